/* A stand-in for cuSOLVER, part of the stand-in for the driver: NumPy's LAPACK, in double precision, on the handle's stream.

   A handle belongs to the context that it was created in, and must not be set to another stream while work of its own is not done.
   Eigenvalues and singular values are waited for in the call, as the library may.

   What factorises whole stacks, of cuBLAS too, reads the addresses of matrices in the device's memory when its turn comes. */

typedef struct Solver { Handle h; void *stream; int pending; } Solver;
enum { POTRF, GETRF, GETRS, GEQRF, ORGQR, SYEVD, GESVD, ROUTINES };
typedef void (*Fortran)();
static Fortran lapack[ROUTINES];
void standin_lapack(int routine, Fortran function) { lapack[routine] = function; }

enum { SOLVER_OK = 0, SOLVER_NOT_INITIALIZED = 1, SOLVER_INVALID_VALUE = 3, SOLVER_EXECUTION_FAILED = 6, SOLVER_INTERNAL_ERROR = 7 };
enum { DEVICE_BYTES = 160, HOST_BYTES = 48 };

typedef struct Factoring {
    Solver *solver; int routine, kind, option, other; int64_t m, n, k, lda, ldu, ldv, width;
    char *a, *b, *u, *v, *work; int64_t *pivots; int *info;
} Factoring;

static double complex *fetch(const char *p, int kind, int64_t rows, int64_t columns, int64_t ld) {
    double complex *made = malloc((rows * columns + 1) * sizeof *made);
    for (int64_t j = 0; j < columns; j++) for (int64_t i = 0; i < rows; i++) made[i + j * rows] = element(p, kind, i + j * ld);
    return made;
}
static void give(char *p, int kind, int64_t rows, int64_t columns, int64_t ld, double complex *made) {
    for (int64_t j = 0; j < columns; j++) for (int64_t i = 0; i < rows; i++) set_element(p, kind, i + j * ld, made[i + j * rows]);
    free(made);
}
static void factor(void *data) {
    Factoring *f = data;
    int64_t m = f->m, n = f->n, k = f->k, info = 0, room = 64 * (m + n + 8) + 4 * (m + n + 8) * (m + n + 8), many = 8 * room;
    int64_t least = m < n ? m : n, one = 1;
    double complex *a = NULL, *b = NULL, *work = malloc(room * sizeof *work);
    double *values = malloc((m + n + 1) * sizeof *values), *more = malloc(many * sizeof *more);
    int64_t *integers = malloc(many * sizeof *integers);
    char option = f->option;
    int real = f->kind == 4 ? 0 : f->kind == 5 ? 1 : f->kind;
    if (f->work) memset(f->work, 0xA5, DEVICE_BYTES);
    switch (f->routine) {
    case POTRF:
        a = fetch(f->a, f->kind, n, n, f->lda), option = f->option ? 'U' : 'L';
        lapack[POTRF](&option, &n, a, &n, &info, one);
        give(f->a, f->kind, n, n, f->lda, a);
        break;
    case GETRF:
        a = fetch(f->a, f->kind, m, n, f->lda);
        lapack[GETRF](&m, &n, a, &m, integers, &info);
        memcpy(f->pivots, integers, least * 8);
        give(f->a, f->kind, m, n, f->lda, a);
        break;
    case GETRS:
        a = fetch(f->a, f->kind, n, n, f->lda), b = fetch(f->b, f->kind, n, k, f->ldu), option = "NTC"[f->option];
        lapack[GETRS](&option, &n, &k, a, &n, f->pivots, b, &n, &info, one);
        give(f->b, f->kind, n, k, f->ldu, b), free(a);
        break;
    case GEQRF:
        a = fetch(f->a, f->kind, m, n, f->lda), b = malloc((least + 1) * sizeof *b);
        lapack[GEQRF](&m, &n, a, &m, b, work, &room, &info);
        give(f->a, f->kind, m, n, f->lda, a), give(f->b, f->kind, least, 1, least, b);
        break;
    case ORGQR:
        a = fetch(f->a, f->kind, m, n, f->lda), b = fetch(f->b, f->kind, k, 1, k);
        lapack[ORGQR](&m, &n, &k, a, &m, b, work, &room, &info);
        give(f->a, f->kind, m, n, f->lda, a), free(b);
        break;
    case SYEVD: {
        char fill = f->other ? 'U' : 'L';
        a = fetch(f->a, f->kind, n, n, f->lda), option = f->option ? 'V' : 'N';
        lapack[SYEVD](&option, &fill, &n, a, &n, values, work, &room, more, &many, integers, &many, &info, one, one);
        for (int64_t i = 0; i < n; i++) set_element(f->b, real, i, values[i]);
        give(f->a, f->kind, n, n, f->lda, a);
        break;
    }
    case GESVD: {
        double complex *u = malloc((m * m + 1) * sizeof *u), *v = malloc((n * n + 1) * sizeof *v);
        int64_t width = option == 'A' ? m : option == 'S' ? n : 0, height = option == 'N' ? 0 : n;
        a = fetch(f->a, f->kind, m, n, f->lda);
        lapack[GESVD](&option, &option, &m, &n, a, &m, values, u, &m, v, &n, work, &room, more, &info, one, one);
        for (int64_t i = 0; i < n; i++) set_element(f->b, real, i, values[i]);
        give(f->u, f->kind, m, width, f->ldu, u), give(f->v, f->kind, height, n, f->ldv, v), free(a);
    }
    }
    *f->info = info;
    __atomic_sub_fetch(&f->solver->pending, 1, __ATOMIC_SEQ_CST);
    free(work), free(values), free(more), free(integers), free(f);
}

static int solver_of(void *handle) { return is_alive(handle, SOLVER) && current && current->device == ((Handle *)handle)->device; }
static CUresult create_at(void **place, int kind) {
    if (!current) return SOLVER_NOT_INITIALIZED;
    *place = make(kind, current->device, sizeof(Solver));
    return SOLVER_OK;
}
CUresult cusolverDnCreate(void **handle) { CUresult s = enter(__func__); return s ? s : create_at(handle, SOLVER); }
CUresult cusolverDnCreateParams(void **p) { CUresult s = enter(__func__); return s ? s : create_at(p, PARAMETERS); }
CUresult cusolverDnSetStream(void *handle, void *stream) {
    if (enter(__func__) || !solver_of(handle) || !is_alive(stream, STREAM)) return SOLVER_NOT_INITIALIZED;
    Solver *solver = handle;
    if (solver->stream != stream && __atomic_load_n(&solver->pending, __ATOMIC_SEQ_CST)) return SOLVER_INTERNAL_ERROR;
    solver->stream = stream;
    return SOLVER_OK;
}
static int is_whole(const void *p, int64_t rows, int64_t columns, int64_t ld, int kind) {
    return !rows || !columns || (p && ld >= rows && block_of((uint64_t)p, ((columns - 1) * ld + rows) * size_of(kind)));
}
static CUresult begin(const char *name, void *handle, void *parameters, Factoring f, void *work, size_t bytes, void *host,
                      size_t host_bytes, int *info, int waits) {
    CUresult injected = enter(name);
    if (injected) return injected;
    if (!solver_of(handle) || (parameters && !is_alive(parameters, PARAMETERS))) return SOLVER_NOT_INITIALIZED;
    Block *b = block_of((uint64_t)info, 4);
    if (!b || b->device != ((Handle *)handle)->device || (uint64_t)info % 4) return SOLVER_INVALID_VALUE;
    if (f.routine != GETRS) {
        if (!work || bytes < DEVICE_BYTES || !block_of((uint64_t)work, bytes)) return SOLVER_INVALID_VALUE;
        if (parameters) { if (!host || host_bytes < HOST_BYTES) return SOLVER_INVALID_VALUE; memset(host, 0x5A, host_bytes); }
    }
    Factoring *made = malloc(sizeof *made);
    *made = f, made->solver = handle, made->info = info, made->work = work;
    __atomic_add_fetch(&made->solver->pending, 1, __ATOMIC_SEQ_CST);
    void *stream = made->solver->stream;
    if (push(stream, (Op){.kind = HOST, .a = (uint64_t)factor, .b = (uint64_t)made})) return SOLVER_EXECUTION_FAILED;
    if (waits) while (is_busy(stream_of(stream)) && !sticky) usleep(50);
    return sticky ? SOLVER_EXECUTION_FAILED : SOLVER_OK;
}
static CUresult sized(void *handle, void *parameters, size_t *device, size_t *host) {
    if (!solver_of(handle) || !is_alive(parameters, PARAMETERS)) return SOLVER_NOT_INITIALIZED;
    *device = DEVICE_BYTES, *host = HOST_BYTES;
    return SOLVER_OK;
}
CUresult cusolverDnXpotrf_bufferSize(void *h, void *p, int fill, int64_t n, int kind, const void *a, int64_t lda, int compute,
                                     size_t *device, size_t *host) {
    return n < 0 || lda < n || kind != compute ? SOLVER_INVALID_VALUE : sized(h, p, device, host);
}
CUresult cusolverDnXpotrf(void *h, void *p, int fill, int64_t n, int kind, void *a, int64_t lda, int compute, void *work,
                          size_t bytes, void *host, size_t host_bytes, int *info) {
    if (kind != compute || !is_whole(a, n, n, lda, kind)) return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = POTRF, .kind = kind, .option = fill, .n = n, .lda = lda, .a = a},
                 work, bytes, host, host_bytes, info, 0);
}
CUresult cusolverDnXgetrf_bufferSize(void *h, void *p, int64_t m, int64_t n, int kind, const void *a, int64_t lda, int compute,
                                     size_t *device, size_t *host) {
    return lda < m || kind != compute ? SOLVER_INVALID_VALUE : sized(h, p, device, host);
}
CUresult cusolverDnXgetrf(void *h, void *p, int64_t m, int64_t n, int kind, void *a, int64_t lda, int64_t *pivots, int compute,
                          void *work, size_t bytes, void *host, size_t host_bytes, int *info) {
    if (kind != compute || !is_whole(a, m, n, lda, kind) || !block_of((uint64_t)pivots, 8 * (m < n ? m : n)))
        return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = GETRF, .kind = kind, .m = m, .n = n, .lda = lda, .a = a, .pivots = pivots},
                 work, bytes, host, host_bytes, info, 0);
}
CUresult cusolverDnXgetrs(void *h, void *p, int op, int64_t n, int64_t k, int kind, const void *a, int64_t lda,
                          const int64_t *pivots, int kind_b, void *b, int64_t ldb, int *info) {
    if (kind != kind_b || op < 0 || op > 2 || !is_whole(a, n, n, lda, kind) || !is_whole(b, n, k, ldb, kind)
        || !block_of((uint64_t)pivots, 8 * n))
        return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = GETRS, .kind = kind, .option = op, .n = n, .k = k, .lda = lda, .ldu = ldb,
                 .a = (char *)a, .b = b, .pivots = (int64_t *)pivots}, NULL, 0, NULL, 0, info, 0);
}
CUresult cusolverDnXgeqrf_bufferSize(void *h, void *p, int64_t m, int64_t n, int kind, const void *a, int64_t lda, int kind_tau,
                                     const void *tau, int compute, size_t *device, size_t *host) {
    return lda < m || kind != compute || kind != kind_tau ? SOLVER_INVALID_VALUE : sized(h, p, device, host);
}
CUresult cusolverDnXgeqrf(void *h, void *p, int64_t m, int64_t n, int kind, void *a, int64_t lda, int kind_tau, void *tau,
                          int compute, void *work, size_t bytes, void *host, size_t host_bytes, int *info) {
    int64_t least = m < n ? m : n;
    if (kind != compute || kind != kind_tau || !is_whole(a, m, n, lda, kind) || !is_whole(tau, least, 1, least, kind))
        return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = GEQRF, .kind = kind, .m = m, .n = n, .lda = lda, .a = a, .b = tau},
                 work, bytes, host, host_bytes, info, 0);
}
#define ORGQR_OF(name, of)                                                                                                         \
    CUresult name##_bufferSize(void *h, int m, int n, int k, const void *a, int lda, const void *tau, int *count) {                  \
        if (!solver_of(h)) return SOLVER_NOT_INITIALIZED;                                                                          \
        if (lda < m || m < n || n < k) return SOLVER_INVALID_VALUE;                                                                \
        *count = DEVICE_BYTES / (int)size_of(of) + 1;                                                                              \
        return SOLVER_OK;                                                                                                          \
    }                                                                                                                              \
    CUresult name(void *h, int m, int n, int k, void *a, int lda, const void *tau, void *work, int count, int *info) {               \
        if (m < n || n < k || !is_whole(a, m, n, lda, of) || !is_whole(tau, k, 1, k, of)) return SOLVER_INVALID_VALUE;               \
        return begin(__func__, h, NULL, (Factoring){.routine = ORGQR, .kind = of, .m = m, .n = n, .k = k, .lda = lda, .a = a,       \
                     .b = (char *)tau}, work, count * size_of(of), NULL, 0, info, 0);                                              \
    }
ORGQR_OF(cusolverDnSorgqr, 0) ORGQR_OF(cusolverDnDorgqr, 1) ORGQR_OF(cusolverDnCungqr, 4) ORGQR_OF(cusolverDnZungqr, 5)

static int real_of(int kind) { return kind == 4 ? 0 : kind == 5 ? 1 : kind; }
CUresult cusolverDnXsyevd_bufferSize(void *h, void *p, int job, int fill, int64_t n, int kind, const void *a, int64_t lda,
                                     int kind_w, const void *w, int compute, size_t *device, size_t *host) {
    return lda < n || kind != compute || kind_w != real_of(kind) ? SOLVER_INVALID_VALUE : sized(h, p, device, host);
}
CUresult cusolverDnXsyevd(void *h, void *p, int job, int fill, int64_t n, int kind, void *a, int64_t lda, int kind_w, void *w,
                          int compute, void *work, size_t bytes, void *host, size_t host_bytes, int *info) {
    if (kind != compute || kind_w != real_of(kind) || job < 0 || job > 1 || !is_whole(a, n, n, lda, kind)
        || !is_whole(w, n, 1, n, kind_w))
        return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = SYEVD, .kind = kind, .option = job, .other = fill, .n = n, .lda = lda,
                 .a = a, .b = w}, work, bytes, host, host_bytes, info, 1);
}
CUresult cusolverDnXgesvd_bufferSize(
    void *h, void *p, signed char job, signed char job_v, int64_t m, int64_t n, int kind, const void *a, int64_t lda, int kind_s,
    const void *s, int kind_u, const void *u, int64_t ldu, int kind_v, const void *v, int64_t ldv, int compute, size_t *device,
    size_t *host) {
    return lda < m || m < n || ldu < m || ldv < n || kind_s != real_of(kind) || kind != compute ? SOLVER_INVALID_VALUE
                                                                                                : sized(h, p, device, host);
}
CUresult cusolverDnXgesvd(
    void *h, void *p, signed char job, signed char job_v, int64_t m, int64_t n, int kind, void *a, int64_t lda, int kind_s, void *s,
    int kind_u, void *u, int64_t ldu, int kind_v, void *v, int64_t ldv, int compute, void *work, size_t bytes, void *host,
    size_t host_bytes, int *info) {
    int64_t width = job == 'A' ? m : job == 'S' ? n : 0;
    if (m < n || job != job_v || (job != 'A' && job != 'S' && job != 'N') || kind_u != kind || kind_v != kind || compute != kind
        || kind_s != real_of(kind) || !is_whole(a, m, n, lda, kind) || !is_whole(s, n, 1, n, kind_s)
        || !is_whole(u, m, width, ldu, kind) || !is_whole(v, width ? n : 0, n, ldv, kind))
        return SOLVER_INVALID_VALUE;
    return begin(__func__, h, p, (Factoring){.routine = GESVD, .kind = kind, .option = job, .m = m, .n = n, .lda = lda, .ldu = ldu,
                 .ldv = ldv, .a = a, .b = s, .u = u, .v = v}, work, bytes, host, host_bytes, info, 1);
}

/* Whole stacks. */

typedef struct Stack {
    int *pending, routine, kind, option, other, device; int64_t n, k, lda, ldb, batch; char **a, **b; char *values, *work; int *pivots, *info;
} Stack;
static void factor_stack(void *data) {
    Stack *f = data;
    int real = f->kind == 4 ? 0 : f->kind == 5 ? 1 : f->kind;
    int64_t n = f->n, room = 64 * (n + 8) + 4 * (n + 8) * (n + 8), many = 8 * room, one = 1;
    double complex *work = malloc(room * sizeof *work);
    double *values = malloc((n + 1) * sizeof *values), *more = malloc(many * sizeof *more);
    int64_t *integers = malloc(many * sizeof *integers);
    for (int64_t m = 0; m < f->batch && !sticky; m++) {
        int64_t info = 0, step = n * f->lda * size_of(f->kind);
        char *at = f->routine == SYEVD ? (char *)f->a + m * step : f->a[m], *to = f->b ? f->b[m] : NULL, option = f->option ? 'U' : 'L';
        Block *place = block_of((uint64_t)at, step), *target = to ? block_of((uint64_t)to, f->ldb * f->k * size_of(f->kind)) : place;
        if (!place || place->device != f->device || !target || target->device != f->device) { standin_lose(ILLEGAL_ADDRESS); break; }
        double complex *a = fetch(at, f->kind, n, n, f->lda), *b;
        switch (f->routine) {
        case POTRF:
            lapack[POTRF](&option, &n, a, &n, &info, one);
            give(at, f->kind, n, n, f->lda, a);
            break;
        case GETRF:
            lapack[GETRF](&n, &n, a, &n, integers, &info);
            for (int64_t i = 0; i < n; i++) f->pivots[m * n + i] = integers[i];
            give(at, f->kind, n, n, f->lda, a);
            break;
        case GETRS:     /* and inverses, for which the right sides are an identity */
            b = f->other ? calloc(n * n, sizeof *b) : fetch(to, f->kind, n, f->k, f->ldb), option = "NTC"[f->option];
            for (int64_t i = 0; i < n; i++) { integers[i] = f->pivots[m * n + i]; if (f->other) b[i + i * n] = 1; }
            lapack[GETRS](&option, &n, &f->k, a, &n, integers, b, &n, &info, one);
            give(to, f->kind, n, f->k, f->ldb, b), free(a);
            break;
        case SYEVD: {
            char job = f->other ? 'V' : 'N';
            memset(f->work, 0xA5, DEVICE_BYTES);
            lapack[SYEVD](&job, &option, &n, a, &n, values, work, &room, more, &many, integers, &many, &info, one, one);
            for (int64_t i = 0; i < n; i++) set_element(f->values + m * n * size_of(real), real, i, values[i]);
            give(at, f->kind, n, n, f->lda, a);
        }
        }
        if (f->info) f->info[m] = info;
    }
    if (f->pending) __atomic_sub_fetch(f->pending, 1, __ATOMIC_SEQ_CST);
    free(work), free(values), free(more), free(integers), free(f);
}
static int is_there(const void *p, size_t bytes, int device, size_t alignment) {
    Block *b = block_of((uint64_t)p, bytes);
    return b && b->device == device && (uint64_t)p % alignment == 0;
}
static CUresult begin_stack(const char *name, void *handle, Stack f, int refused) {
    CUresult injected = enter(name);
    int is_blas = is_alive(handle, BLAS), device = is_blas || is_alive(handle, SOLVER) ? ((Handle *)handle)->device : -1;
    if (is_blas) __atomic_store_n(&((Blas *)handle)->in_use, 0, __ATOMIC_SEQ_CST);
    if (injected) return injected;
    if (device < 0 || !current || current->device != device) return SOLVER_NOT_INITIALIZED;
    if (refused || f.n < 1 || f.lda < f.n || f.batch < 1 || (f.b && f.ldb < f.n)) return SOLVER_INVALID_VALUE;
    if (f.routine != SYEVD && !is_there(f.a, 8 * f.batch, device, 8)) return SOLVER_INVALID_VALUE;
    if (f.b && !is_there(f.b, 8 * f.batch, device, 8)) return SOLVER_INVALID_VALUE;
    if (f.pivots && !is_there(f.pivots, 4 * f.n * f.batch, device, 4)) return SOLVER_INVALID_VALUE;
    if (f.info && !is_there(f.info, 4 * f.batch, device, 4)) return SOLVER_INVALID_VALUE;
    Stack *made = malloc(sizeof *made);
    *made = f, made->device = device, made->pending = is_blas ? NULL : &((Solver *)handle)->pending;
    if (made->pending) __atomic_add_fetch(made->pending, 1, __ATOMIC_SEQ_CST);
    void *stream = is_blas ? ((Blas *)handle)->stream : ((Solver *)handle)->stream;
    if (!stream || push(stream, (Op){.kind = HOST, .a = (uint64_t)factor_stack, .b = (uint64_t)made}))
        return SOLVER_EXECUTION_FAILED;
    return sticky ? SOLVER_EXECUTION_FAILED : SOLVER_OK;
}
CUresult cusolverDnCreateSyevjInfo(void **p) { CUresult s = enter(__func__); return s ? s : create_at(p, JACOBI); }

#define STACKS_OF(letter, of, syevj)                                                                                               \
    CUresult cusolverDn##letter##potrfBatched(void *h, int fill, int n, char **a, int lda, int *info, int batch) {                  \
        return begin_stack(__func__, h, (Stack){.routine = POTRF, .kind = of, .option = fill, .n = n, .lda = lda, .a = a,           \
                           .info = info, .batch = batch}, fill < 0 || fill > 1 || !info);                                          \
    }                                                                                                                              \
    CUresult cusolverDn##letter##syevj##Batched_bufferSize(void *h, int job, int fill, int n, const void *a, int lda,               \
                                                           const void *w, int *count, void *jacobi, int batch) {                   \
        if (!solver_of(h) || !is_alive(jacobi, JACOBI)) return SOLVER_NOT_INITIALIZED;                                             \
        if (lda < n || batch < 1) return SOLVER_INVALID_VALUE;                                                                     \
        *count = DEVICE_BYTES / (int)size_of(of) + 1;                                                                              \
        return SOLVER_OK;                                                                                                          \
    }                                                                                                                              \
    CUresult cusolverDn##letter##syevj##Batched(void *h, int job, int fill, int n, void *a, int lda, void *w, void *work,          \
                                                int count, int *info, void *jacobi, int batch) {                                   \
        int kind = real_of(of), device = is_alive(h, SOLVER) ? ((Handle *)h)->device : -1;                                         \
        int refused = !is_alive(jacobi, JACOBI) || job < 0 || job > 1 || n > 32 || !info                                           \
                      || !is_there(a, (size_t)n * lda * batch * size_of(of), device, size_of(of))                                  \
                      || !is_there(w, (size_t)n * batch * size_of(kind), device, size_of(kind))                                    \
                      || (size_t)count * size_of(of) < DEVICE_BYTES || !is_there(work, count * size_of(of), device, 16);           \
        return begin_stack(__func__, h, (Stack){.routine = SYEVD, .kind = of, .option = fill, .other = job, .n = n, .lda = lda,     \
                           .a = a, .values = w, .work = work, .info = info, .batch = batch}, refused);                             \
    }                                                                                                                              \
    CUresult cublas##letter##getrfBatched(void *h, int n, char **a, int lda, int *pivots, int *info, int batch) {                  \
        return begin_stack(__func__, h, (Stack){.routine = GETRF, .kind = of, .n = n, .lda = lda, .a = a, .pivots = pivots,         \
                           .info = info, .batch = batch}, !pivots || !info);                                                       \
    }                                                                                                                              \
    CUresult cublas##letter##getriBatched(void *h, int n, char **a, int lda, const int *pivots, char **c, int ldc, int *info,      \
                                          int batch) {                                                                             \
        return begin_stack(__func__, h, (Stack){.routine = GETRS, .kind = of, .other = 1, .n = n, .k = n, .lda = lda, .ldb = ldc,   \
                           .a = a, .b = c, .pivots = (int *)pivots, .info = info, .batch = batch}, !pivots || !info || !c);        \
    }                                                                                                                              \
    CUresult cublas##letter##getrsBatched(void *h, int op, int n, int k, char **a, int lda, const int *pivots, char **b, int ldb,  \
                                          int *info, int batch) {                                                                  \
        if (block_of((uint64_t)info, 4)) return SOLVER_INVALID_VALUE;     /* which is the host's */                                \
        *info = 0;                                                                                                                 \
        return begin_stack(__func__, h, (Stack){.routine = GETRS, .kind = of, .option = op, .n = n, .k = k, .lda = lda, .ldb = ldb, \
                           .a = a, .b = b, .pivots = (int *)pivots, .batch = batch}, op < 0 || op > 2 || !pivots || !b);           \
    }
STACKS_OF(S, 0, syevj) STACKS_OF(D, 1, syevj) STACKS_OF(C, 4, heevj) STACKS_OF(Z, 5, heevj)
