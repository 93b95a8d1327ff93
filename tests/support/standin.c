/* A stand-in for libcuda.so.1: what the backend calls of the driver, on host memory, for tests of control flow.

   A stream is a thread that runs a queue of operations in order. A "kernel" is a host function: an image is the text "STANDIN",
   a zero byte, the function's address, and the bytes of its parameters. Calls are refused as the real driver refuses them: without cuInit, without
   a context that is current on the calling thread, for handles that are not alive, for device addresses outside of living
   allocations. It says nothing about a real device's timing, memory model or limits. With STANDIN_GUARD the host cannot touch device
   memory while no stream is at work on it, which costs time.

   It is stricter than a driver where a driver may be so: a handle that is dead ends the process, and so does a call in a forked child,
   where the driver's locks may be held for good; a channel, which streams share, takes
   so many operations (STANDIN_DEPTH) before a submission blocks; host functions are called one after the other, also those of
   different streams; a kernel whose parameters have an address of another device is an illegal access; a stream that is being captured
   refuses everything; and standin_waits has allocations, freeing, loading and a kernel's first launch wait for the device, while every
   other call waits for them, and for a submission that waits for room in a channel. A conditional node's body may hold kernels, copies,
   fills and such nodes, no more; a handle is one node's, is set in its graph alone, and has no value that was not given to it; the
   graph is instantiated once at a time; and what is captured behind such a node must depend on it.

   Control: standin_inject (a status for the n-th next call of a function), standin_latency, standin_lose (a sticky status),
   standin_count (calls of a function so far), standin_alive (living handles of a kind). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void (*Kernel)(void *parameters, size_t nbytes, const unsigned *grid_and_block);

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
       ILLEGAL_ADDRESS = 700 };

/* Control */

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;
static char inject_name[64];
static int inject_status, inject_after;
static int sticky;              /* every call returns it from now on, and streams stand still */
static long latency_ns;         /* before each operation of a stream */
static int initialized, version = 12050;
static struct { const char *name; long calls; } counts[128];

void standin_inject(const char *name, int status, int after) {
    pthread_mutex_lock(&control);
    snprintf(inject_name, sizeof inject_name, "%s", name);
    inject_status = status, inject_after = after;
    pthread_mutex_unlock(&control);
}
void standin_latency(long ns) { latency_ns = ns; }
void standin_version(int value) { version = value; }
void standin_lose(int status);

static int forked;              /* this is the child of a process that has started the driver: nobody is to call it */
static void in_child(void) { forked = initialized; }
static void not_in_child(const char *name) {
    if (!forked) return;
    fprintf(stderr, "stand-in: %s is called in a forked child\n", name);
    abort();
}

static CUresult enter(const char *name) {
    CUresult found = OK;
    not_in_child(name);
    pthread_mutex_lock(&control);
    for (int i = 0; i < 128; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (counts[i].name == name) { counts[i].calls++; break; }
    }
    if (inject_status && !strcmp(name, inject_name) && inject_after-- == 0) found = inject_status, inject_status = 0;
    if (sticky) found = sticky;
    pthread_mutex_unlock(&control);
    return found;
}
long standin_count(const char *name) {
    for (int i = 0; i < 128 && counts[i].name; i++) if (!strcmp(counts[i].name, name)) return counts[i].calls;
    return 0;
}
/* Calls that wait for the device hold up all others, as by the lock of a context. */
static pthread_rwlock_t context_lock = PTHREAD_RWLOCK_INITIALIZER;
static int waits;
void standin_waits(int on) { waits = on; }
static void follow(void) { if (waits) pthread_rwlock_rdlock(&context_lock), pthread_rwlock_unlock(&context_lock); }

#define ENTER do { CUresult status_ = enter(__func__); follow(); if (status_) return status_; \
                   if (!initialized) return NOT_INITIALIZED; } while (0)

/* Handles: alive until destroyed, which may happen once. */

enum { STREAM = 1, EVENT = 2, MODULE = 3, FUNCTION = 4, MEMORY = 5, BLAS = 6, SOLVER = 7, PARAMETERS = 8, GRAPH = 9, EXECUTABLE = 10,
       JACOBI = 11 };
typedef struct Handle { uint32_t magic, kind; int device; struct Handle *next; } Handle;
static Handle *handles;
static long alive[12];

static void *make(int kind, int device, size_t size) {
    Handle *h = calloc(1, size);
    h->magic = 0xA10DEF, h->kind = kind, h->device = device;
    pthread_mutex_lock(&control);
    h->next = handles, handles = h, alive[kind]++;
    pthread_mutex_unlock(&control);
    return h;
}
static int is_alive(void *p, int kind) {
    int found = 0;
    pthread_mutex_lock(&control);
    for (Handle *h = handles; h; h = h->next) if (h == p && h->kind == (uint32_t)kind && h->magic == 0xA10DEF) found = 1;
    pthread_mutex_unlock(&control);
    return found;
}
static int is_handle(void *p, int kind) {  /* as is_alive, for handles that the driver does not look up */
    if (is_alive(p, kind)) return 1;
    fprintf(stderr, "stand-in: %p is no living handle of kind %d\n", p, kind);
    abort();
}
long standin_alive(int kind) { return alive[kind]; }
static void kill_handle(Handle *h) { h->magic = 0; alive[h->kind]--; }   /* never freed: a late use must be seen */

/* Memory: a table of living allocations, device's and page-locked ones. */

typedef struct Block { uint64_t start; size_t size; int device; struct Block *next; int is_mapped; } Block;   /* device -1: page-locked */
static Block *blocks;
static size_t used[8], total_memory = 1ul << 30;

static Block *block_at(uint64_t address, int at_its_end) {
    for (Block *b = blocks; b; b = b->next)
        if (b->start && address >= b->start && address < b->start + b->size + at_its_end) return b;
    return NULL;
}
static Block *block_of(uint64_t address, size_t size) {     /* where all of it lies; mapped blocks may adjoin */
    pthread_mutex_lock(&control);
    Block *found = block_at(address, !size), *b = found;
    while (b && address + size > b->start + b->size) {
        size -= b->start + b->size - address, address = b->start + b->size;
        b = b->is_mapped ? block_at(address, 0) : NULL;
        if (!b || !b->is_mapped) found = b = NULL;
    }
    pthread_mutex_unlock(&control);
    return found;
}

/* Guarded memory is made accessible by the first stream that runs an operation, until the last one has. */
static int at_work;
static size_t span(size_t size) { return (size / 4096 + 2) * 4096; }    /* so that no block ends where another begins */
static int guarded(void) { static int known = -1; return known < 0 ? (known = getenv("STANDIN_GUARD") != NULL) : known; }
static void protect(int access) {
    for (Block *b = blocks; b; b = b->next)
        if (b->start && b->device >= 0) mprotect((void *)b->start, b->is_mapped ? b->size : span(b->size), access);
}
static void work(int begins) {
    if (!guarded()) return;
    pthread_mutex_lock(&control);
    if (begins && !at_work++) protect(PROT_READ | PROT_WRITE);
    if (!begins && !--at_work) protect(PROT_NONE);
    pthread_mutex_unlock(&control);
}

static uint64_t allocate(size_t size, int device) {
    void *p = NULL;
    int guard = guarded() && device >= 0;
    if (guard) p = mmap(NULL, span(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (device < 0) {      /* page-locked memory is not there in a forked child */
        p = mmap(NULL, span(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(p, span(size), MADV_DONTFORK);
    }
    else if (posix_memalign(&p, 512, size ? size : 1)) return 0;
    Block *b = malloc(sizeof *b);
    pthread_mutex_lock(&control);
    *b = (Block){(uint64_t)p, size, device, blocks, 0}, blocks = b;
    if (guard && at_work) protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&control);
    return (uint64_t)p;
}

/* Streams */

enum { COPY, TAKEN, SET, SET2D, HOST, RECORD, WRITE, WAIT, LAUNCH, END, GRAPH_RUN, BLOCK };
typedef struct Event { Handle h; uint64_t recorded, done; struct timespec time; } Event;
typedef struct Op {
    int kind; uint64_t a, b, c, d; size_t n; Kernel kernel; unsigned grid[6]; Event *event; void *parameters; struct Op *next;
} Op;
/* A graph: operations, one behind the other; a node is the place of one. What is executable has copies of them. A conditional node's
   graph has a parent, and is that node's. */
typedef struct Graph {
    Handle h; Op *ops; size_t count; int invalid, running, open; struct Graph *source, *executable, *parent; void *last;
} Graph;
typedef struct Node { Graph *graph; size_t index; } Node;
typedef struct Body { size_t count; Op ops[]; } Body;
typedef struct Condition { uint64_t handle; Graph *graph; void *context; unsigned initial, flags, value; int is_used; struct Condition *next; } Condition;
static Condition *conditions;
static __thread Graph *running;     /* the graph that this stream runs */
static Op duplicate(const Op *o);
static void discard(Op *o);
static Graph *root_of(Graph *g) { while (g->parent) g = g->parent; return g; }
static Condition *condition_of(uint64_t handle) {
    Condition *c = conditions;
    while (c && (c->handle != handle || !handle)) c = c->next;
    return c;
}
typedef struct Stream {
    Handle h; pthread_t thread; pthread_mutex_t lock; pthread_cond_t arrived; Op *head, *tail; int busy, priority, channel;
    uint64_t ended; Graph *capture; void *follows;     /* the node that what is captured next depends on */
} Stream;
/* Channels: what streams that share one have in hand together. */
enum { CHANNELS = 32 };
static struct { pthread_mutex_t lock; pthread_cond_t left; int held; } channels[CHANNELS];
static pthread_mutex_t host_functions = PTHREAD_MUTEX_INITIALIZER;
static void *captured;              /* this stream is being captured by another library */
long standin_blocked;               /* submissions that had to wait for room */
static int depth(void) { static int known; return known ? known : (known = getenv("STANDIN_DEPTH") ? atoi(getenv("STANDIN_DEPTH")) : 1024); }
static int enabled[8][8];           /* [d][e]: work of device d reaches memory of e */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;   /* with memory_changed: for waits and events */
static pthread_cond_t memory_changed = PTHREAD_COND_INITIALIZER;

void standin_lose(int status) {
    pthread_mutex_lock(&control);
    sticky = status;
    pthread_mutex_unlock(&control);
    pthread_mutex_lock(&memory_lock);
    pthread_cond_broadcast(&memory_changed);
    pthread_mutex_unlock(&memory_lock);
}

static int bad(uint64_t address, size_t size) {     /* an address that the device cannot reach */
    return size && !block_of(address, size);
}

static void run(Op *o) {
    switch (o->kind) {
    case COPY:
        if (bad(o->a, o->n) || bad(o->b, o->n)) standin_lose(ILLEGAL_ADDRESS);
        else memmove((void *)o->a, (void *)o->b, o->n);
        break;
    case TAKEN:
        if (bad(o->a, o->n)) standin_lose(ILLEGAL_ADDRESS);
        else memcpy((void *)o->a, o->parameters, o->n);
        break;
    case SET:
        if (bad(o->a, o->n * o->d)) { standin_lose(ILLEGAL_ADDRESS); break; }
        for (size_t i = 0; i < o->n; i++) memcpy((char *)o->a + i * o->d, &o->b, o->d);
        break;
    case SET2D:
        if (bad(o->a, o->n ? (o->n - 1) * o->c + 4 : 0)) { standin_lose(ILLEGAL_ADDRESS); break; }
        for (size_t i = 0; i < o->n; i++) memcpy((char *)o->a + i * o->c, &o->b, 4);
        break;
    case HOST:
        pthread_mutex_lock(&host_functions);
        ((void (*)(void *))o->a)((void *)o->b);
        pthread_mutex_unlock(&host_functions);
        break;
    case LAUNCH:
        for (size_t i = 0; i < o->n / 8; i++) {
            uint64_t word = ((uint64_t *)o->parameters)[i];
            Block *b = word ? block_of(word, 1) : NULL;
            if (b && b->device >= 0 && b->device != (int)o->d && (b->is_mapped || !enabled[o->d][b->device])) {
                standin_lose(ILLEGAL_ADDRESS);
                return;
            }
        }
        o->kernel(o->parameters, o->n, o->grid);
        break;
    case BLOCK: {
        Condition *c = condition_of(o->a);
        Body *body = o->parameters;
        while (c->value && !sticky) {
            for (size_t i = 0; i < body->count && !sticky; i++) {
                Op once = duplicate(body->ops + i);
                run(&once), discard(&once);
            }
            if (!o->b) break;
        }
        break;
    }
    case GRAPH_RUN:
        running = ((Graph *)o->b)->source;
        for (Condition *c = conditions; c; c = c->next)
            if (c->handle && root_of(c->graph) == running) c->value = c->flags ? c->initial : 0xA5A5A5A5;
        for (size_t i = 0; i < o->n; i++) {
            Op *each = (Op *)o->parameters + i;
            if (!sticky) run(each);
            discard(each);
        }
        running = NULL;
        __atomic_sub_fetch(&((Graph *)o->b)->running, 1, __ATOMIC_SEQ_CST);
        break;
    case RECORD:
        pthread_mutex_lock(&memory_lock);
        clock_gettime(CLOCK_MONOTONIC, &o->event->time);
        if (o->a > o->event->done) o->event->done = o->a;
        pthread_cond_broadcast(&memory_changed);
        pthread_mutex_unlock(&memory_lock);
        break;
    case WRITE:
        __atomic_store_n((uint64_t *)o->a, o->b, __ATOMIC_SEQ_CST);
        pthread_mutex_lock(&memory_lock);
        pthread_cond_broadcast(&memory_changed);
        pthread_mutex_unlock(&memory_lock);
        break;
    case WAIT:
        pthread_mutex_lock(&memory_lock);
        while (!sticky && (int64_t)(__atomic_load_n((uint64_t *)o->a, __ATOMIC_SEQ_CST) - o->b) < 0) {
            /* the host may write as well, and tells nobody */
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 1000000;
            if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&memory_changed, &memory_lock, &until);
        }
        pthread_mutex_unlock(&memory_lock);
        break;
    }
}
static void *serve(void *p) {
    Stream *s = p;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        while (!s->head) pthread_cond_wait(&s->arrived, &s->lock);
        Op *o = s->head;
        if (!(s->head = o->next)) s->tail = NULL;
        s->busy = 1;
        pthread_mutex_unlock(&s->lock);
        if (o->kind == END) { __atomic_store_n(&s->ended, 1, __ATOMIC_SEQ_CST); return NULL; }
        if (latency_ns && o->kind != WRITE) nanosleep(&(struct timespec){latency_ns / 1000000000, latency_ns % 1000000000}, NULL);
        if (sticky) for (;;) pause();     /* a lost device does nothing more */
        if (o->kind != WAIT) work(1);
        run(o);
        if (o->kind != WAIT) work(0);
        free(o->parameters);
        free(o);
        pthread_mutex_lock(&channels[s->channel].lock);
        channels[s->channel].held--;
        pthread_cond_broadcast(&channels[s->channel].left);
        pthread_mutex_unlock(&channels[s->channel].lock);
    }
}
static Stream *stream_of(void *handle);
static int is_busy(Stream *s) {
    pthread_mutex_lock(&s->lock);
    int busy = s->head || s->busy;
    pthread_mutex_unlock(&s->lock);
    return busy;
}
static void *append(Graph *g, Op op) {
    g->ops = realloc(g->ops, (g->count + 1) * sizeof op), g->ops[g->count] = op;
    Node *node = malloc(sizeof *node);      /* never freed: a late use must be seen */
    *node = (Node){g, g->count++};
    return g->last = node;
}
static CUresult push(void *stream, Op op) {
    Stream *s = stream_of(stream);
    if (s == captured) return 900;
    if (s->capture) {
        Graph *g = s->capture;
        if (op.kind == END || op.kind == TAKEN) { g->invalid = 1; return 900; }
        if (s->follows != g->last) g->invalid = 1;      /* it would run at the same time as what should be before it */
        s->follows = append(g, op);
        return OK;
    }
    Op *o = malloc(sizeof *o);
    pthread_mutex_lock(&channels[s->channel].lock);
    if (op.kind != END) {
        int blocks = channels[s->channel].held >= depth(), alone = blocks && waits;
        if (alone) pthread_rwlock_wrlock(&context_lock);
        if (blocks) __atomic_add_fetch(&standin_blocked, 1, __ATOMIC_SEQ_CST);
        while (channels[s->channel].held >= depth() && !sticky) {
            struct timespec until;      /* a loss tells nobody here */
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 1000000;
            if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&channels[s->channel].left, &channels[s->channel].lock, &until);
        }
        channels[s->channel].held++;
        if (alone) pthread_rwlock_unlock(&context_lock);
    }
    pthread_mutex_unlock(&channels[s->channel].lock);
    *o = op, o->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->tail) s->tail->next = o; else s->head = o;
    s->tail = o;
    pthread_cond_signal(&s->arrived);
    pthread_mutex_unlock(&s->lock);
    return OK;
}

/* Initialization, devices and contexts */

static void unsafe(void);

static struct Context { int device; } contexts[8];
static __thread struct Context *current;
static int device_count(void) { char *n = getenv("STANDIN_DEVICES"); return n ? atoi(n) : 2; }
static Stream *create(int device, int priority) {
    static int made;
    Stream *s = make(STREAM, device, sizeof *s);
    pthread_mutex_init(&s->lock, NULL), pthread_cond_init(&s->arrived, NULL);
    s->priority = priority, s->channel = __atomic_fetch_add(&made, 1, __ATOMIC_SEQ_CST) % CHANNELS;
    pthread_create(&s->thread, NULL, serve, s);
    return s;
}
static Stream *stream_of(void *handle) {   /* the legacy stream of the current device is one like others here, so is a thread's own */
    static Stream *legacy[8];
    static __thread Stream *own[8];
    Stream **place = (uint64_t)handle <= 1 ? legacy : own;
    if ((uint64_t)handle > 2) return is_handle(handle, STREAM) ? handle : NULL;
    pthread_mutex_lock(&memory_lock);
    if (!place[current->device]) place[current->device] = create(current->device, 0);
    pthread_mutex_unlock(&memory_lock);
    return place[current->device];
}
static CUresult idle(void);
/* Wait for the device, if calls that may do so are to; everything else waits meanwhile. */
static void wait_for_device(void) {
    if (!waits) return;
    pthread_rwlock_wrlock(&context_lock);
    idle();
    pthread_rwlock_unlock(&context_lock);
}
#define NEED_CONTEXT do { ENTER; if (!current) return INVALID_CONTEXT; } while (0)
#define NEED_DEVICE(d) do { ENTER; if ((d) < 0 || (d) >= device_count()) return INVALID_DEVICE; } while (0)

CUresult cuInit(unsigned flags) {
    for (int i = 0; i < CHANNELS && !initialized; i++) pthread_mutex_init(&channels[i].lock, NULL), pthread_cond_init(&channels[i].left, NULL);
    if (!initialized) pthread_atfork(NULL, NULL, in_child);
    initialized = 1; CUresult e = enter(__func__); if (e) { initialized = 0; return e; } return device_count() ? OK : NO_DEVICE; }
CUresult cuDriverGetVersion(int *v) { *v = version; return OK; }
CUresult cuDeviceGetCount(int *n) { ENTER; *n = device_count(); return OK; }
CUresult cuDeviceGet(CUdevice *d, int i) { NEED_DEVICE(i); *d = i; return OK; }
CUresult cuDeviceGetName(char *name, int n, CUdevice d) { NEED_DEVICE(d); char *own = getenv("STANDIN_NAME"); snprintf(name, n, "%s %d", own ? own : "Stand-in", d); return OK; }
CUresult cuDeviceGetUuid(void *uuid, CUdevice d) { NEED_DEVICE(d); memset(uuid, d + 1, 16); return OK; }
CUresult cuDeviceTotalMem(size_t *n, CUdevice d) { NEED_DEVICE(d); *n = total_memory; return OK; }
CUresult cuDeviceGetAttribute(int *v, int a, CUdevice d) {
    NEED_DEVICE(d);
    switch (a) {
    case 16: *v = 4; break;      /* MULTIPROCESSOR_COUNT */
    case 75: *v = getenv("STANDIN_MIXED") && d ? 8 : 9; break;      /* COMPUTE_CAPABILITY_MAJOR */
    case 76: *v = 0; break;      /* COMPUTE_CAPABILITY_MINOR */
    case 122: case 41: *v = 1; break;  /* 64-bit stream memory operations, unified addressing */
    case 110: *v = 1; break;     /* GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
    case 102: *v = !getenv("STANDIN_NO_VIRTUAL_MEMORY"); break;   /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    case 10: *v = 32; break;     /* WARP_SIZE */
    default: *v = 0;
    }
    return OK;
}
static int retained[sizeof contexts / sizeof *contexts];
CUresult cuDevicePrimaryCtxRetain(void **c, CUdevice d) {
    NEED_DEVICE(d);
    retained[d] = 1, contexts[d].device = d;
    *c = &contexts[d];
    return OK;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    NEED_DEVICE(d);
    *flags = 0, *active = retained[d];
    return OK;
}
CUresult cuCtxGetCurrent(void **c) { not_in_child(__func__); if (!initialized) return NOT_INITIALIZED; *c = current; return OK; }
CUresult cuCtxSetCurrent(void *c) { not_in_child(__func__); if (!initialized) return NOT_INITIALIZED; current = c; return OK; }
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEED_CONTEXT; *least = 0, *greatest = -5; return OK; }
CUresult cuMemGetInfo(size_t *f, size_t *t) {
    NEED_CONTEXT; *t = total_memory; *f = total_memory - used[current->device]; return OK;
}

/* Memory */

CUresult cuMemAlloc(CUdeviceptr *p, size_t n) {
    NEED_CONTEXT;
    unsafe();
    wait_for_device();
    if (!n) return INVALID_VALUE;
    if (n > total_memory - used[current->device] || !(*p = allocate(n, current->device))) return OUT_OF_MEMORY;
    used[current->device] += n;
    return OK;
}
static CUresult release(uint64_t p, int pinned) {
    Block *b = block_of(p, 0);
    if (!b || b->start != p || (b->device < 0) != pinned || b->is_mapped) return INVALID_VALUE;
    if (b->device >= 0) used[b->device] -= b->size;
    b->start = 0;
    if (guarded() || b->device < 0) munmap((void *)p, span(b->size));
    else free((void *)p);
    return OK;
}
CUresult cuMemFree(CUdeviceptr p) { NEED_CONTEXT; unsafe(); wait_for_device(); return release(p, 0); }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
    NEED_CONTEXT; unsafe(); wait_for_device(); *p = (void *)allocate(n, -1); return *p ? OK : OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *p) { NEED_CONTEXT; return release((uint64_t)p, 1); }
CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr p) {
    NEED_CONTEXT;
    Block *b = block_of(p, 0);
    if (!b || (attribute != 2 && attribute != 9)) return INVALID_VALUE;
    *(unsigned *)data = attribute == 9 ? (b->device < 0 ? 0 : b->device) : b->device < 0 ? 1 : 2;
    return OK;
}
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, void *stream) {
    NEED_CONTEXT;
    Block *to = block_of(d, n), *from = block_of(s, n);
    if ((!to || !from) && stream_of(stream)->capture) { stream_of(stream)->capture->invalid = 1; return 900; }
    if (to && to->device >= 0 && !block_of(s, 0) && n <= 65536) {    /* ordinary memory: read before the call returns */
        while (is_busy(stream_of(stream)) && !sticky) usleep(50);    /* which a driver may wait for */
        void *copied = malloc(n);
        memcpy(copied, (void *)s, n);
        return push(stream, (Op){.kind = TAKEN, .a = d, .n = n, .parameters = copied});
    }
    if (!to || !from) return INVALID_VALUE;
    if (to->device != from->device && to->device >= 0 && from->device >= 0 && (to->is_mapped || from->is_mapped))
        return INVALID_VALUE;       /* mapped memory is accessible from its own device alone */
    return push(stream, (Op){.kind = COPY, .a = d, .b = s, .n = n});
}
CUresult cuMemcpyPeerAsync(CUdeviceptr d, void *there, CUdeviceptr s, void *here, size_t n, void *stream) {
    NEED_CONTEXT;
    Block *to = block_of(d, n), *from = block_of(s, n);
    if (!to || !from || to->device < 0 || from->device < 0) return INVALID_VALUE;
    if (there != &contexts[to->device] || here != &contexts[from->device]) return INVALID_CONTEXT;
    return push(stream, (Op){.kind = COPY, .a = d, .b = s, .n = n});
}
static CUresult set(CUdeviceptr d, uint64_t value, size_t width, size_t n, void *stream) {
    return d % width ? INVALID_VALUE : push(stream, (Op){.kind = SET, .a = d, .b = value, .d = width, .n = n});
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, void *s) { NEED_CONTEXT; return set(d, v, 1, n, s); }
CUresult cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, void *s) { NEED_CONTEXT; return set(d, v, 2, n, s); }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, void *s) { NEED_CONTEXT; return set(d, v, 4, n, s); }
CUresult cuMemsetD2D32Async(CUdeviceptr d, size_t pitch, unsigned v, size_t width, size_t height, void *s) {
    NEED_CONTEXT;
    if (width != 1 || d % 4 || pitch % 4) return INVALID_VALUE;
    return push(s, (Op){.kind = SET2D, .a = d, .b = v, .c = pitch, .n = height});
}

/* Virtual memory: reserved ranges, memory by handles, and what is mapped where. Device memory is counted by the handle, which
   lives until it is released and mapped nowhere. What is mapped cannot be touched before its access is set. */

enum { GRANULE = 2 << 20 };
typedef struct Memory { Handle h; size_t size; int handles, mapped; } Memory;
typedef struct Range { uint64_t start; size_t size; struct Range *next; } Range;
typedef struct Mapping { uint64_t start; Memory *memory; Block *block; struct Mapping *next; } Mapping;
typedef struct { int type, handles, location, device; void *windows; unsigned char compression, remote; unsigned short usage;
                 unsigned char reserved[4]; } Properties;
typedef struct { int location, device, flags; } Access;
static pthread_mutex_t virtual_lock = PTHREAD_MUTEX_INITIALIZER;
static Range *ranges;
static Mapping *mappings;

static int is_granular(uint64_t n) { return n && n % GRANULE == 0; }
static int is_plain(const Properties *p) {
    return p->type == 1 && !p->handles && p->location == 1 && p->device >= 0 && p->device < device_count() && !p->windows
           && !p->compression && p->remote <= 1 && !p->usage && !memcmp(p->reserved, "\0\0\0", 4);
}
static void settle(Memory *m) {
    if (m->handles || m->mapped) return;
    used[m->h.device] -= m->size;
    kill_handle(&m->h);
}
CUresult cuMemGetAllocationGranularity(size_t *n, const Properties *p, int option) {
    NEED_CONTEXT;
    if (!is_plain(p) || option < 0 || option > 1) return INVALID_VALUE;
    *n = GRANULE;
    return OK;
}
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    NEED_CONTEXT;
    if (!is_granular(size) || (alignment & (alignment - 1)) || wanted || flags) return INVALID_VALUE;
    size_t step = alignment > GRANULE ? alignment : GRANULE;
    char *q = mmap(NULL, size + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (q == MAP_FAILED) return OUT_OF_MEMORY;
    Range *r = malloc(sizeof *r);
    pthread_mutex_lock(&virtual_lock);
    *r = (Range){((uint64_t)q + step - 1) / step * step, size, ranges}, ranges = r;
    pthread_mutex_unlock(&virtual_lock);
    *p = r->start;
    return OK;
}
static Mapping *mapped_in(uint64_t start, size_t size) {
    for (Mapping *m = mappings; m; m = m->next)
        if (m->memory && m->start < start + size && start < m->start + m->memory->size) return m;
    return NULL;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {     /* a whole range, with nothing mapped */
    NEED_CONTEXT;
    CUresult status = INVALID_VALUE;
    pthread_mutex_lock(&virtual_lock);
    for (Range *r = ranges; r && status; r = r->next)
        if (r->size && r->start == p && r->size == size && !mapped_in(p, size)) {
            munmap((void *)p, size);
            r->size = 0, status = OK;
        }
    pthread_mutex_unlock(&virtual_lock);
    return status;
}
CUresult cuMemCreate(uint64_t *handle, size_t size, const Properties *p, unsigned long long flags) {
    NEED_CONTEXT;
    if (!is_granular(size) || !is_plain(p) || flags) return INVALID_VALUE;
    pthread_mutex_lock(&virtual_lock);
    CUresult status = size > total_memory - used[p->device] ? OUT_OF_MEMORY : OK;
    if (!status) {
        used[p->device] += size;
        Memory *m = make(MEMORY, p->device, sizeof *m);
        m->size = size, m->handles = 1;
        *handle = (uint64_t)m;
    }
    pthread_mutex_unlock(&virtual_lock);
    return status;
}
CUresult cuMemRelease(uint64_t handle) {
    NEED_CONTEXT;
    Memory *m = (Memory *)handle;
    if (!is_alive(m, MEMORY) || !m->handles) return INVALID_VALUE;
    pthread_mutex_lock(&virtual_lock);
    m->handles--;
    settle(m);
    pthread_mutex_unlock(&virtual_lock);
    return OK;
}
CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    NEED_CONTEXT;
    Memory *m = (Memory *)handle;
    if (!is_granular(p) || !is_alive(m, MEMORY) || !m->handles || size != m->size || offset || flags) return INVALID_VALUE;
    CUresult status = INVALID_VALUE;
    pthread_mutex_lock(&virtual_lock);
    for (Range *r = ranges; r && status; r = r->next)
        if (r->start <= p && p + size <= r->start + r->size && !mapped_in(p, size)) {
            Mapping *found = malloc(sizeof *found);
            *found = (Mapping){p, m, NULL, mappings}, mappings = found;
            m->mapped++, status = OK;
        }
    pthread_mutex_unlock(&virtual_lock);
    return status;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const Access *a, size_t count) {
    NEED_CONTEXT;
    if (!is_granular(p) || !is_granular(size) || count != 1 || a->location != 1 || a->flags != 3) return INVALID_VALUE;
    CUresult status = OK;
    pthread_mutex_lock(&virtual_lock);
    for (uint64_t q = p; q < p + size && !status;) {       /* without a gap, and no handle in part */
        Mapping *m = mapped_in(q, 1);
        if (!m || m->start != q || q + m->memory->size > p + size || m->memory->h.device != a->device) status = INVALID_VALUE;
        else q += m->memory->size;
    }
    for (uint64_t q = p; q < p + size && !status;) {
        Mapping *m = mapped_in(q, 1);
        if (!m->block) {
            m->block = malloc(sizeof *m->block);
            pthread_mutex_lock(&control);
            mprotect((void *)q, m->memory->size, guarded() && !at_work ? PROT_NONE : PROT_READ | PROT_WRITE);
            *m->block = (Block){q, m->memory->size, a->device, blocks, 1}, blocks = m->block;
            pthread_mutex_unlock(&control);
        }
        q += m->memory->size;
    }
    pthread_mutex_unlock(&virtual_lock);
    return status;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t size) {      /* one handle's whole mapping; work that uses it is the caller's error */
    NEED_CONTEXT;
    wait_for_device();
    CUresult status = INVALID_VALUE;
    pthread_mutex_lock(&virtual_lock);
    Mapping *m = mapped_in(p, 1);
    if (m && m->start == p && m->memory->size == size) {
        if (m->block) m->block->start = 0;
        mmap((void *)p, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        m->memory->mapped--;
        settle(m->memory);
        m->memory = NULL, status = OK;
    }
    pthread_mutex_unlock(&virtual_lock);
    return status;
}

/* Streams and events */

CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    NEED_CONTEXT;
    *stream = create(current->device, priority);
    return OK;
}
CUresult cuStreamDestroy(void *stream) {
    NEED_CONTEXT;
    CUresult status = push(stream, (Op){.kind = END});
    if (!status) kill_handle(stream);
    return status;
}
CUresult cuStreamQuery(void *stream) {
    NEED_CONTEXT;
    unsafe();
    Stream *s = stream_of(stream);
    if (s == captured) return 900;
    if (s->capture) { s->capture->invalid = 1; return 900; }
    return is_busy(s) ? NOT_READY : OK;
}
static CUresult idle(void) {
    for (Handle *h = handles; h && !sticky; h = h->next)
        while (h->kind == STREAM && h->magic && h->device == current->device && !sticky && is_busy((Stream *)h)) usleep(50);
    return sticky;
}
CUresult cuCtxSynchronize(void) { NEED_CONTEXT; unsafe(); return idle(); }
CUresult cuStreamWriteValue64(void *s, CUdeviceptr a, uint64_t v, unsigned flags) {
    NEED_CONTEXT;
    return bad(a, 8) || a % 8 ? INVALID_VALUE : push(s, (Op){.kind = WRITE, .a = a, .b = v});
}
CUresult cuStreamWaitValue64(void *s, CUdeviceptr a, uint64_t v, unsigned flags) {
    NEED_CONTEXT;
    return bad(a, 8) || a % 8 || flags ? INVALID_VALUE : push(s, (Op){.kind = WAIT, .a = a, .b = v});
}
CUresult cuLaunchHostFunc(void *s, void (*f)(void *), void *data) {
    NEED_CONTEXT; return push(s, (Op){.kind = HOST, .a = (uint64_t)f, .b = (uint64_t)data});
}
CUresult cuEventCreate(void **e, unsigned flags) { NEED_CONTEXT; *e = make(EVENT, current->device, sizeof(Event)); return OK; }
CUresult cuEventDestroy(void *e) { NEED_CONTEXT; is_handle(e, EVENT); kill_handle(e); return OK; }
CUresult cuEventRecord(void *event, void *s) {
    NEED_CONTEXT;
    Event *e = event;
    is_handle(e, EVENT);
    pthread_mutex_lock(&memory_lock);
    uint64_t number = ++e->recorded;
    pthread_mutex_unlock(&memory_lock);
    return push(s, (Op){.kind = RECORD, .event = e, .a = number});
}
/* All that the context was given so far: the last record to come of one on each stream counts, and each stream has one. */
CUresult cuCtxRecordEvent(void *context, void *event) {
    NEED_CONTEXT;
    if (context != current) return INVALID_CONTEXT;
    if (captured) return 900;
    for (Handle *h = handles; h; h = h->next)
        if (h->kind == STREAM && h->magic && h->device == current->device && ((Stream *)h)->capture) return 900;
    Event *whole = event;
    is_handle(whole, EVENT);
    Stream *last = create(current->device, 0);
    for (Handle *h = handles; h; h = h->next)
        if (h->kind == STREAM && !h->magic && h->device == current->device) {
            push(last, (Op){.kind = WAIT, .a = (uint64_t)&((Stream *)h)->ended, .b = 1});
        } else if (h->kind == STREAM && h->device == current->device && h != &last->h) {
            Event *e = make(EVENT, h->device, sizeof *e);
            e->recorded = 1;
            push(h, (Op){.kind = RECORD, .event = e, .a = 1});
            push(last, (Op){.kind = WAIT, .a = (uint64_t)&e->done, .b = 1});
        }
    return cuEventRecord(event, last);
}
CUresult cuStreamWaitEvent(void *s, void *event, unsigned flags) {
    NEED_CONTEXT;
    Event *e = event;
    is_handle(e, EVENT);
    pthread_mutex_lock(&memory_lock);
    uint64_t number = e->recorded;
    pthread_mutex_unlock(&memory_lock);
    return push(s, (Op){.kind = WAIT, .a = (uint64_t)&e->done, .b = number});
}
CUresult cuEventQuery(void *event) {
    NEED_CONTEXT;
    unsafe();
    Event *e = event;
    is_handle(e, EVENT);
    pthread_mutex_lock(&memory_lock);
    int done = e->done >= e->recorded;
    pthread_mutex_unlock(&memory_lock);
    return done ? OK : NOT_READY;
}
CUresult cuEventSynchronize(void *event) {
    NEED_CONTEXT;
    unsafe();
    Event *e = event;
    is_handle(e, EVENT);
    pthread_mutex_lock(&memory_lock);
    while (e->done < e->recorded && !sticky) pthread_cond_wait(&memory_changed, &memory_lock);
    pthread_mutex_unlock(&memory_lock);
    return sticky;
}

/* Modules and kernels */

typedef struct Function { Handle h; Kernel kernel; size_t nbytes; int launched; } Function;

static void spin(void *parameters, size_t nbytes, const unsigned *grid) {
    uint64_t ns = *(uint64_t *)parameters;
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}
static void poke(void *parameters, size_t nbytes, const unsigned *grid) {
    uint64_t *words = parameters;
    if (bad(words[0], 8)) standin_lose(ILLEGAL_ADDRESS);
    else __atomic_store_n((uint64_t *)words[0], words[1], __ATOMIC_SEQ_CST);
}

static void set_condition(void *parameters, size_t nbytes, const unsigned *grid) {
    uint64_t *words = parameters, record = words[0], word = words[1], mask = words[2];
    Condition *c = condition_of(words[3]);
    if (!running || !c || root_of(c->graph) != running || (record && bad(record, 8)) || (word && bad(word, 8))) {
        standin_lose(ILLEGAL_ADDRESS);
        return;
    }
    c->value = !(record && __atomic_load_n((uint64_t *)record, __ATOMIC_SEQ_CST))
               && !(word && !(__atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST) & mask));
}
static void signal_next(void *parameters, size_t nbytes, const unsigned *grid) {
    uint64_t *words = parameters, record = words[0], cell = words[1], *counter;
    if ((record && bad(record, 8)) || bad(cell, 8) || bad(*(uint64_t *)cell, 8)) {
        standin_lose(ILLEGAL_ADDRESS);
        return;
    }
    if (record && __atomic_load_n((uint64_t *)record, __ATOMIC_SEQ_CST)) return;
    counter = *(uint64_t **)cell;
    if (*counter < words[2]) __atomic_store_n(counter, *counter + 1, __ATOMIC_SEQ_CST);
}
static void count_down(void *parameters, size_t nbytes, const unsigned *grid) {
    uint64_t *words = parameters;
    Condition *c = condition_of(words[0]);
    if (!running || !c || root_of(c->graph) != running || bad(words[1], 8)) standin_lose(ILLEGAL_ADDRESS);
    else c->value = *(uint64_t *)words[1] -= words[2];
}

CUresult cuModuleLoadData(void **module, const void *image) {
    NEED_CONTEXT;
    unsafe();
    wait_for_device();
    int is_ptx = !strncmp(image, "\n.version", 9);
    if (!is_ptx && memcmp(image, "STANDIN", 8)) return INVALID_IMAGE;
    Function *m = make(MODULE, current->device, sizeof *m);
    if (!is_ptx) memcpy(&m->kernel, (const char *)image + 8, sizeof m->kernel);
    if (!is_ptx) memcpy(&m->nbytes, (const char *)image + 16, sizeof m->nbytes);
    *module = m;
    return OK;
}
CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    NEED_CONTEXT;
    if (!is_alive(module, MODULE)) return INVALID_HANDLE;
    Function *f = make(FUNCTION, current->device, sizeof *f);
    f->kernel = ((Function *)module)->kernel, f->nbytes = ((Function *)module)->nbytes;
    if (!f->kernel && !strcmp(name, "spin")) f->kernel = spin, f->nbytes = 8;
    if (!f->kernel && !strcmp(name, "poke")) f->kernel = poke, f->nbytes = 16;
    if (!f->kernel && !strcmp(name, "count_down")) f->kernel = count_down, f->nbytes = 24;
    if (!f->kernel && !strcmp(name, "set_condition")) f->kernel = set_condition, f->nbytes = 32;
    if (!f->kernel && !strcmp(name, "signal")) f->kernel = signal_next, f->nbytes = 24;
    if (!f->kernel) return NOT_FOUND;
    *function = f;
    return OK;
}
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *f, void *unused, size_t shared, int limit) {
    NEED_CONTEXT; if (!is_alive(f, FUNCTION)) return INVALID_HANDLE; *grid = 8, *block = 1024; return OK;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int block, size_t shared) {
    NEED_CONTEXT; if (!is_alive(f, FUNCTION)) return INVALID_HANDLE; *n = block > 512 ? 0 : 2; return OK;
}
int standin_priority(void *stream) { return ((Stream *)stream)->priority; }
unsigned standin_grid[6];   /* of the last launch: blocks and threads along x, y and z */
CUresult cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        void *s, void **parameters, void **extra) {
    NEED_CONTEXT;
    if (!is_alive(f, FUNCTION) || ((Handle *)f)->device != current->device) return INVALID_HANDLE;
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || gy > 65535 || gz > 65535) return INVALID_VALUE;
    if (parameters || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID_VALUE;
    if (!__atomic_exchange_n(&((Function *)f)->launched, 1, __ATOMIC_SEQ_CST)) wait_for_device();
    memcpy(standin_grid, (unsigned[]){gx, gy, gz, bx, by, bz}, sizeof standin_grid);
    size_t n = *(size_t *)extra[3];
    if (n != ((Function *)f)->nbytes) return INVALID_VALUE;
    void *copied = malloc(n);
    memcpy(copied, extra[1], n);
    return push(s, (Op){.kind = LAUNCH, .kernel = ((Function *)f)->kernel, .parameters = copied, .n = n, .d = current->device,
                        .grid = {gx, gy, gz, bx, by, bz}});
}

/* Captures of other libraries: a thread that is not relaxed must not do what could go into them. */

static int capturing;               /* another thread captures, in global mode */
static __thread int capture_mode;   /* CU_STREAM_CAPTURE_MODE_GLOBAL, as threads begin */
long standin_invalidated;

void standin_capture(int on, void *stream) { capturing = on, captured = stream; }
static void unsafe(void) { if (capturing && capture_mode != 2) __atomic_add_fetch(&standin_invalidated, 1, __ATOMIC_SEQ_CST); }
CUresult cuThreadExchangeStreamCaptureMode(int *mode) {    /* as the current context it is the thread's own, and waits for nobody */
    CUresult status = enter(__func__);
    if (status) return status;
    if (*mode < 0 || *mode > 2) return INVALID_VALUE;
    int before = capture_mode;
    capture_mode = *mode, *mode = before;
    return OK;
}
CUresult cuStreamGetCtx(void *stream, void **context) {
    NEED_CONTEXT;
    *context = &contexts[stream_of(stream)->h.device];
    return OK;
}
CUresult cuStreamIsCapturing(void *stream, int *status) {
    NEED_CONTEXT; *status = stream_of(stream) == captured || stream_of(stream)->capture; return OK;
}

/* Captures of our own, and graphs. What is instantiated has the operations that were captured; a launch has them as they are then. */

static void *copied(const void *p, size_t n) { return p ? memcpy(malloc(n ? n : 1), p, n) : NULL; }
static void *data_of(const Op *o) { return o->kind == HOST && o->n ? copied((void *)o->b, o->n) : (void *)o->b; }
static Op duplicate(const Op *o) {
    Op made = *o;
    if (o->kind == BLOCK) {     /* of a graph that is captured, or of a copy */
        Graph *g = (Graph *)o->c;
        Body *from = o->parameters, *body = NULL;
        size_t count = g ? g->count : from->count;
        body = malloc(sizeof *body + (count + 1) * sizeof(Op)), body->count = count;
        for (size_t i = 0; i < count; i++) body->ops[i] = duplicate(g ? g->ops + i : from->ops + i);
        made.parameters = body, made.c = 0;
        return made;
    }
    made.parameters = copied(o->parameters, o->n), made.b = (uint64_t)data_of(o);
    return made;
}
static void discard(Op *o) {
    if (o->kind == BLOCK) for (size_t i = 0; i < ((Body *)o->parameters)->count; i++) discard(((Body *)o->parameters)->ops + i);
    free(o->parameters);
}
static void take(Graph *to, const Graph *from) {
    to->ops = malloc((from->count + 1) * sizeof *to->ops), to->count = from->count;
    for (size_t i = 0; i < from->count; i++) to->ops[i] = duplicate(from->ops + i);
}
static int is_open(const Graph *g) {    /* whether a body is being captured still */
    int open = 0;
    for (size_t i = 0; i < g->count; i++)
        if (g->ops[i].kind == BLOCK) open |= ((Graph *)g->ops[i].c)->open || is_open((Graph *)g->ops[i].c);
    return open;
}
CUresult cuStreamBeginCapture(void *stream, int mode) {
    NEED_CONTEXT;
    Stream *s = stream_of(stream);
    if (s->capture || mode != 2) return INVALID_VALUE;
    s->capture = make(GRAPH, current->device, sizeof(Graph)), s->follows = NULL;
    return OK;
}
CUresult cuStreamBeginCaptureToGraph(void *stream, void *graph, void **nodes, void *edges, size_t count, int mode) {
    NEED_CONTEXT;
    Stream *s = stream_of(stream);
    Graph *g = graph;
    if (s->capture || mode != 2 || !is_alive(g, GRAPH) || g->open || g->count || nodes || edges || count) return INVALID_VALUE;
    s->capture = g, s->follows = NULL, g->open = 1;
    return OK;
}
CUresult cuStreamEndCapture(void *stream, void **graph) {
    CUresult status = enter(__func__);      /* whatever that is, the capture is over */
    if (!current) return INVALID_CONTEXT;
    Stream *s = stream_of(stream);
    Graph *g = s->capture;
    *graph = NULL, s->capture = NULL;
    if (!g) return INVALID_VALUE;
    if (status) g->invalid = 1;
    if (s->follows != g->last || is_open(g)) g->invalid = 1;
    g->open = 0;
    if (g->invalid && g->parent) root_of(g)->invalid = 1;
    else if (g->invalid) kill_handle(&g->h);
    if (g->invalid) return status ? status : 901;
    *graph = g;
    return OK;
}
CUresult cuStreamGetCaptureInfo(void *stream, int *status, uint64_t *id, void **graph, void ***nodes, size_t *count) {
    NEED_CONTEXT;
    Stream *s = stream_of(stream);
    Graph *g = s->capture;
    *status = g != NULL;
    if (!nodes != !count) return INVALID_VALUE;
    if (g && graph) *graph = g;
    if (g && id) *id = 1;
    if (g && nodes) *nodes = &s->follows, *count = s->follows != NULL;
    return OK;
}
CUresult cuStreamUpdateCaptureDependencies(void *stream, void **nodes, size_t count, unsigned flags) {
    NEED_CONTEXT;
    Stream *s = stream_of(stream);
    if (!s->capture) return 401;
    if (count != 1 || flags != 1 || ((Node *)*nodes)->graph != s->capture) return INVALID_VALUE;
    s->follows = *nodes;
    return OK;
}
CUresult cuGraphConditionalHandleCreate(uint64_t *handle, void *graph, void *context, unsigned initial, unsigned flags) {
    static uint64_t made = 0xC0000000;
    NEED_CONTEXT;
    if (!is_alive(graph, GRAPH) || context != current || flags > 1) return INVALID_VALUE;
    Condition *c = malloc(sizeof *c);
    *c = (Condition){__atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST), graph, context, initial, flags, 0, 0, conditions};
    conditions = c, *handle = c->handle;
    return OK;
}
typedef struct {
    int type, reserved[3];
    union { long long padding[29]; struct { uint64_t handle; int type; unsigned size; Graph **bodies; void *context; } conditional; };
    long long reserved_too;
} AnyNodeParameters;
CUresult cuGraphAddNode(void **node, void *graph, void **nodes, size_t count, AnyNodeParameters *p) {
    NEED_CONTEXT;
    Graph *g = graph;
    static const long long zeros[30];
    if (!is_alive(g, GRAPH) || p->type != 13 || p->reserved[0] || p->reserved[1] || p->reserved[2] || p->reserved_too) return INVALID_VALUE;
    if (memcmp(&p->conditional + 1, zeros, sizeof p->padding - sizeof p->conditional)) return INVALID_VALUE;
    if (p->conditional.context != current || p->conditional.size != 1 || (unsigned)p->conditional.type > 1) return INVALID_VALUE;
    if (count != (g->last != NULL) || (count && *nodes != g->last)) return INVALID_VALUE;    /* it would not be behind what is there */
    Condition *c = condition_of(p->conditional.handle);
    Graph *owner = g;
    while (owner && c && owner != c->graph) owner = owner->parent;
    if (!c || !owner || c->is_used || c->context != current) return INVALID_VALUE;
    Graph **body = malloc(sizeof *body);
    *body = make(GRAPH, current->device, sizeof **body);
    (*body)->parent = g, c->is_used = 1;
    *node = append(g, (Op){.kind = BLOCK, .a = c->handle, .b = p->conditional.type, .c = (uint64_t)*body});
    p->conditional.bodies = body;
    return OK;
}
static int has_blocks(const Graph *g) { for (size_t i = 0; i < g->count; i++) if (g->ops[i].kind == BLOCK) return 1; return 0; }
/* Whether bodies hold what they may: of what runs on the host, what stands for a library's kernels. */
static int is_allowed(const Graph *g, int inside) {
    for (size_t i = 0; i < g->count; i++) {
        const Op *o = g->ops + i;
        int kernel = o->kind == LAUNCH || (o->kind == HOST && o->n);
        if (inside && !kernel && o->kind != COPY && o->kind != SET && o->kind != SET2D && o->kind != BLOCK) return 0;
        if (o->kind == BLOCK && !is_allowed((Graph *)o->c, 1)) return 0;
    }
    return 1;
}
CUresult cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
    NEED_CONTEXT;
    unsafe();
    Graph *g = graph;
    if (!is_alive(graph, GRAPH) || flags || g->parent || is_open(g)) return INVALID_VALUE;
    if (has_blocks(g) && g->executable) return INVALID_VALUE;
    if (!is_allowed(g, 0)) return 801;
    for (Condition *c = conditions; c; c = c->next) if (c->handle && root_of(c->graph) == g && !c->is_used) return INVALID_VALUE;
    Graph *executable = make(EXECUTABLE, current->device, sizeof *executable);
    take(executable, graph), executable->source = graph, g->executable = executable;
    *made = executable;
    return OK;
}
CUresult cuGraphExecUpdate(void *executable, void *graph, int *info) {
    NEED_CONTEXT;
    is_handle(executable, EXECUTABLE), is_handle(graph, GRAPH);
    Graph *to = executable, *from = graph;
    int same = to->count == from->count && !has_blocks(to);
    for (size_t i = 0; same && i < to->count; i++) same = to->ops[i].kind == from->ops[i].kind;
    *info = !same;
    if (!same) return 910;
    Op *old = to->ops;
    take(to, from), free(old);
    return OK;
}
CUresult cuGraphLaunch(void *executable, void *stream) {
    NEED_CONTEXT;
    is_handle(executable, EXECUTABLE);
    Graph *g = executable;
    if (g->h.device != current->device) return INVALID_VALUE;
    Op *ops = malloc((g->count + 1) * sizeof *ops);
    for (size_t i = 0; i < g->count; i++) ops[i] = duplicate(g->ops + i);
    __atomic_add_fetch(&g->running, 1, __ATOMIC_SEQ_CST);
    return push(stream, (Op){.kind = GRAPH_RUN, .n = g->count, .b = (uint64_t)g, .parameters = ops});
}
static void destroy_graph(Graph *g) {
    for (size_t i = 0; i < g->count; i++) if (g->ops[i].kind == BLOCK) destroy_graph((Graph *)g->ops[i].c);
    for (Condition *c = conditions; c; c = c->next) if (c->graph == g) c->handle = 0;
    kill_handle(&g->h);
}
CUresult cuGraphDestroy(void *graph) {
    NEED_CONTEXT;
    is_handle(graph, GRAPH);
    Graph *g = graph;
    if (g->parent || (has_blocks(g) && g->executable)) {
        fprintf(stderr, "stand-in: a graph is destroyed that is a node's, or whose conditions are in use\n");
        abort();
    }
    destroy_graph(g);
    return OK;
}
CUresult cuGraphExecDestroy(void *executable) {
    NEED_CONTEXT;
    is_handle(executable, EXECUTABLE);
    Graph *g = executable;
    if (__atomic_load_n(&g->running, __ATOMIC_SEQ_CST) && !sticky) {
        fprintf(stderr, "stand-in: a graph is destroyed that runs\n");
        abort();
    }
    if (is_alive(g->source, GRAPH) && g->source->executable == g) g->source->executable = NULL;
    kill_handle(executable);
    return OK;
}
typedef struct { void *function; unsigned grid[6], shared; void **parameters, **extra; void *kernel, *context; } NodeParameters;
CUresult cuGraphExecKernelNodeSetParams(void *executable, void *node, const NodeParameters *p) {
    NEED_CONTEXT;
    is_handle(executable, EXECUTABLE);
    Graph *g = executable;
    Node *n = node;
    if (n->graph != g->source || !is_alive(n->graph, GRAPH) || g->ops[n->index].kind != LAUNCH) return INVALID_VALUE;
    const unsigned *s = p->grid;
    if (!is_alive(p->function, FUNCTION) || p->parameters || !p->extra || p->extra[0] != (void *)1 || p->extra[2] != (void *)2
        || p->extra[4] || p->kernel || !s[0] || !s[1] || !s[2] || !s[3] || !s[4] || !s[5] || p->shared)
        return INVALID_VALUE;
    Op *o = g->ops + n->index;
    if (*(size_t *)p->extra[3] != o->n) return INVALID_VALUE;
    memcpy(o->parameters, p->extra[1], o->n), memcpy(o->grid, s, sizeof o->grid);
    o->kernel = ((Function *)p->function)->kernel;
    return OK;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
    NEED_DEVICE(d);
    *can = d != peer && !getenv("STANDIN_NO_PEERS");
    return OK;
}
CUresult cuCtxEnablePeerAccess(void *context, unsigned flags) {
    NEED_CONTEXT;
    struct Context *peer = context;
    if (peer == current || getenv("STANDIN_NO_PEERS")) return 217;
    if (enabled[current->device][peer->device]++) return 704;
    return OK;
}

/* Errors and symbols */

CUresult cuGetErrorName(CUresult e, const char **s) {
    switch (e) {
    case OUT_OF_MEMORY: *s = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case INVALID_CONTEXT: *s = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case ILLEGAL_ADDRESS: *s = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case 719: *s = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default: *s = "CUDA_ERROR_OF_THE_STAND_IN";
    }
    return OK;
}
CUresult cuGetErrorString(CUresult e, const char **s) { *s = e == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "an error"; return OK; }

#include "standin_blas.c"
#include "standin_solver.c"
#include "standin_fft.c"

#define NAME(n) {#n, (void *)n}
static const struct { const char *name; void *function; } symbols[] = {
    NAME(cuInit), NAME(cuDriverGetVersion), NAME(cuDeviceGetCount), NAME(cuDeviceGet), NAME(cuDeviceGetName),
    NAME(cuDeviceGetUuid), NAME(cuDeviceTotalMem), NAME(cuDeviceGetAttribute), NAME(cuDevicePrimaryCtxRetain), NAME(cuDevicePrimaryCtxGetState),
    NAME(cuCtxGetCurrent), NAME(cuCtxSetCurrent), NAME(cuCtxGetStreamPriorityRange), NAME(cuMemGetInfo), NAME(cuMemAlloc),
    NAME(cuMemFree), NAME(cuMemHostAlloc), NAME(cuMemFreeHost), NAME(cuPointerGetAttribute), NAME(cuThreadExchangeStreamCaptureMode), NAME(cuStreamIsCapturing), NAME(cuStreamGetCtx),
    NAME(cuMemcpyAsync), NAME(cuMemsetD8Async), NAME(cuMemsetD16Async), NAME(cuMemsetD32Async), NAME(cuMemsetD2D32Async),
    NAME(cuStreamCreateWithPriority), NAME(cuStreamDestroy), NAME(cuStreamQuery), NAME(cuStreamWriteValue64),
    NAME(cuStreamWaitValue64), NAME(cuLaunchHostFunc), NAME(cuEventCreate), NAME(cuEventDestroy), NAME(cuEventRecord),
    NAME(cuEventSynchronize), NAME(cuStreamWaitEvent), NAME(cuModuleLoadData), NAME(cuModuleGetFunction), NAME(cuOccupancyMaxPotentialBlockSize),
    NAME(cuOccupancyMaxActiveBlocksPerMultiprocessor), NAME(cuLaunchKernel), NAME(cuGetErrorName), NAME(cuGetErrorString),
    NAME(cuCtxSynchronize), NAME(cuCtxRecordEvent), NAME(cuEventQuery), NAME(cuDeviceCanAccessPeer), NAME(cuCtxEnablePeerAccess), NAME(cuMemcpyPeerAsync), NAME(cuMemGetAllocationGranularity), NAME(cuMemAddressReserve), NAME(cuMemAddressFree), NAME(cuMemCreate),
    NAME(cuStreamBeginCapture), NAME(cuStreamEndCapture), NAME(cuStreamGetCaptureInfo), NAME(cuGraphInstantiateWithFlags),
    NAME(cuGraphExecUpdate), NAME(cuGraphLaunch), NAME(cuGraphDestroy), NAME(cuGraphExecDestroy), NAME(cuGraphExecKernelNodeSetParams),
    NAME(cuMemRelease), NAME(cuMemMap), NAME(cuMemSetAccess), NAME(cuMemUnmap), NAME(cuStreamUpdateCaptureDependencies),
    NAME(cuGraphConditionalHandleCreate), NAME(cuGraphAddNode), NAME(cuStreamBeginCaptureToGraph),
};
/* Versions between which a name stands for the prototype that is here. */
static const struct { const char *name; int since, before; } ages[] = {
    {"cuCtxRecordEvent", 12050, 99999}, {"cuGraphConditionalHandleCreate", 12030, 99999}, {"cuGraphAddNode", 12020, 12030},
    {"cuStreamBeginCaptureToGraph", 12030, 99999}, {"cuStreamUpdateCaptureDependencies", 11030, 12030},
    {"cuStreamGetCaptureInfo", 11030, 12030},
};
static int has_prototype(const char *name, int wanted) {
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++)
        if (!strcmp(ages[i].name, name)) return wanted >= ages[i].since && wanted < ages[i].before && version >= ages[i].since;
    return 1;
}
CUresult cuGetProcAddress_v2(const char *name, void **function, int wanted, uint64_t flags, int *status) {
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!strcmp(symbols[i].name, name) && has_prototype(name, wanted)) { *function = symbols[i].function; if (status) *status = 0; return OK; }
    *function = NULL;
    if (status) *status = 1;
    return NOT_FOUND;
}
