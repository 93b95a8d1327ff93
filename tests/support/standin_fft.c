/* A stand-in for cuFFT, part of the stand-in for the driver: transforms in double precision, on the plan's stream, in its turn.

   A plan belongs to the context that it was made in, has no memory of its own, and must not be used by two threads at once. */

typedef struct Plan { int device, made, in_use, type; void *stream, *area; long long n, before, behind, steps[4], rows; } Plan;
typedef struct Transform { Plan plan; const char *x; char *y; int direction; } Transform;
static Plan plans[4096];
static int plan_count;

enum { FFT_OK = 0, FFT_INVALID_PLAN = 1, FFT_INVALID_TYPE = 3, FFT_INVALID_VALUE = 4, FFT_EXEC_FAILED = 6, FFT_NO_WORKSPACE = 13 };
enum { AREA_BYTES = 96 };

static Plan *plan_of(int handle) {
    return handle > 0 && handle <= plan_count && plans[handle - 1].made && current ? &plans[handle - 1] : NULL;
}
CUresult cufftCreate(int *handle) {
    CUresult injected = enter(__func__);
    if (injected) return injected;
    if (!current) return FFT_INVALID_PLAN;
    pthread_mutex_lock(&control);
    plans[plan_count] = (Plan){.device = current->device, .made = 1}, *handle = ++plan_count;
    pthread_mutex_unlock(&control);
    return FFT_OK;
}
CUresult cufftDestroy(int handle) {
    enter(__func__);
    Plan *plan = plan_of(handle);
    if (plan) plan->made = 0;
    return plan ? FFT_OK : FFT_INVALID_PLAN;
}
CUresult cufftSetAutoAllocation(int handle, int on) { return plan_of(handle) && !on ? FFT_OK : FFT_INVALID_PLAN; }
CUresult cufftMakePlanMany64(int handle, int rank, long long *n, long long *before, long long stride, long long distance,
                             long long *behind, long long out_stride, long long out_distance, int type, long long rows,
                             size_t *bytes) {
    CUresult injected = enter(__func__);
    Plan *plan = plan_of(handle);
    if (injected) return injected;
    if (!plan || plan->made != 1) return FFT_INVALID_PLAN;
    int is_real = (type & 7) == 2, is_half = (type & 7) == 4;
    if ((type & ~0x47) != 0x28 || (!is_real && !is_half && (type & 7) != 1)) return FFT_INVALID_TYPE;
    if (rank != 1 || *n < 1 || rows < 1 || *before != (is_half ? *n / 2 + 1 : *n) || *behind != (is_real ? *n / 2 + 1 : *n))
        return FFT_INVALID_VALUE;
    plan->made = 2, plan->type = type, plan->n = *n, plan->before = *before, plan->behind = *behind, plan->rows = rows;
    memcpy(plan->steps, (long long[]){stride, distance, out_stride, out_distance}, sizeof plan->steps);
    *bytes = AREA_BYTES;
    return FFT_OK;
}
CUresult cufftSetStream(int handle, void *stream) {
    if (enter(__func__) || !plan_of(handle) || !is_alive(stream, STREAM)) return FFT_INVALID_PLAN;
    Plan *plan = plan_of(handle);
    if (__atomic_exchange_n(&plan->in_use, 1, __ATOMIC_SEQ_CST)) return FFT_EXEC_FAILED;
    plan->stream = stream, plan->area = NULL;
    return FFT_OK;
}
CUresult cufftSetWorkArea(int handle, void *area) {
    enter(__func__);
    Plan *plan = plan_of(handle);
    if (!plan || !block_of((uint64_t)area, AREA_BYTES)) return FFT_INVALID_PLAN;
    plan->area = area;
    return FFT_OK;
}
/* An element of a row as the definition has it: the other half of what is Hermitian is the first one's, conjugated. */
static double complex sample(const Transform *t, long long row, long long i, int kind) {
    const Plan *p = &t->plan;
    int mirrored = i >= p->before;
    double complex value = element(t->x, kind, row * p->steps[1] + (mirrored ? p->n - i : i) * p->steps[0]);
    return mirrored ? conj(value) : value;
}
static double complex root(long long n, long long k) {
    double angle = 2 * 3.14159265358979323846 * (double)(k % n) / (double)n, sine, cosine;
    __builtin_sincos(angle, &sine, &cosine);
    return cosine + I * sine;
}
static void transform_row(long long n, const double complex *x, long long step, double complex *y, int direction);
/* Of a large prime length, by a convolution with a chirp, whose length is a power of two (Bluestein). */
static void transform_prime(long long n, const double complex *x, long long step, double complex *y, int direction) {
    long long m = 1;
    while (m < 2 * n) m *= 2;
    double complex *a = calloc(4 * m, sizeof *a), *b = a + m, *u = b + m, *v = u + m;
    for (long long i = 0; i < n; i++) {
        double complex c = root(2 * n, i * i % (2 * n));
        if (direction < 0) c = conj(c);
        a[i] = x[i * step] * c, b[i] = conj(c), b[(m - i) % m] = conj(c);
    }
    transform_row(m, a, 1, u, -1), transform_row(m, b, 1, v, -1);
    for (long long i = 0; i < m; i++) v[i] *= u[i];
    transform_row(m, v, 1, u, 1);
    for (long long k = 0; k < n; k++) y[k] = u[k] / m * conj(b[k]);
    free(a);
}
/* By the factors of the length: of each as many transforms of what is left. */
static void transform_row(long long n, const double complex *x, long long step, double complex *y, int direction) {
    long long factor = 2;
    while (factor * factor <= n && n % factor) factor++;
    if (n % factor) factor = n;
    if (factor > 200 && factor == n) { transform_prime(n, x, step, y, direction); return; }
    long long rest = n / factor;
    double complex *parts = malloc(n * sizeof *parts);
    for (long long j = 0; j < factor; j++) {
        if (rest == 1) parts[j] = x[j * step];
        else transform_row(rest, x + j * step, step * factor, parts + j * rest, direction);
    }
    for (long long k = 0; k < n; k++) {
        y[k] = 0;
        for (long long j = 0; j < factor; j++) {
            double complex w = root(n, j * k);
            y[k] += parts[j * rest + k % rest] * (direction < 0 ? conj(w) : w);
        }
    }
    free(parts);
}
static void transform(void *data) {
    Transform *t = data;
    Plan *p = &t->plan;
    int is_double = (p->type & 0x40) != 0, is_real = (p->type & 7) == 2, is_half = (p->type & 7) == 4;
    int from = is_double ? (is_real ? 1 : 5) : is_real ? 0 : 4, to = is_double ? (is_half ? 1 : 5) : is_half ? 0 : 4;
    double complex *row = malloc(p->n * sizeof *row), *made = malloc(p->n * sizeof *made);
    memset(p->area, 0xA5, AREA_BYTES);
    for (long long r = 0; r < p->rows; r++) {
        for (long long i = 0; i < p->n; i++) row[i] = sample(t, r, i, from);
        transform_row(p->n, row, 1, made, t->direction);
        for (long long k = 0; k < p->behind; k++) set_element(t->y, to, r * p->steps[3] + k * p->steps[2], made[k]);
    }
    free(row), free(made), free(t);
}
static CUresult execute(const char *name, int handle, int type, const void *x, void *y, int direction) {
    Plan *plan = plan_of(handle);
    if (!plan) return FFT_INVALID_PLAN;
    Transform *t = malloc(sizeof *t);
    *t = (Transform){*plan, x, y, direction};
    __atomic_store_n(&plan->in_use, 0, __ATOMIC_SEQ_CST);
    CUresult injected = enter(name);
    if (injected) return injected;
    if (plan->made != 2 || plan->type != type || plan->device != current->device) return FFT_INVALID_PLAN;
    if (direction != 1 && direction != -1) return FFT_INVALID_VALUE;
    if (!plan->area) return FFT_NO_WORKSPACE;
    int wide = type & 0x40 ? 2 : 1, is_real = (type & 7) == 2, is_half = (type & 7) == 4;
    long long last = (plan->rows - 1) * plan->steps[1] + (plan->before - 1) * plan->steps[0] + 1;
    long long out_last = (plan->rows - 1) * plan->steps[3] + (plan->behind - 1) * plan->steps[2] + 1;
    if (!block_of((uint64_t)x, last * (is_real ? 4 : 8) * wide) || !block_of((uint64_t)y, out_last * (is_half ? 4 : 8) * wide))
        return FFT_EXEC_FAILED;
    return push(t->plan.stream, (Op){.kind = HOST, .a = (uint64_t)transform, .b = (uint64_t)t, .n = sizeof *t}) ? FFT_EXEC_FAILED : FFT_OK;
}
CUresult cufftExecC2C(int h, void *x, void *y, int direction) { return execute(__func__, h, 0x29, x, y, direction); }
CUresult cufftExecZ2Z(int h, void *x, void *y, int direction) { return execute(__func__, h, 0x69, x, y, direction); }
CUresult cufftExecR2C(int h, void *x, void *y) { return execute(__func__, h, 0x2a, x, y, -1); }
CUresult cufftExecD2Z(int h, void *x, void *y) { return execute(__func__, h, 0x6a, x, y, -1); }
CUresult cufftExecC2R(int h, void *x, void *y) { return execute(__func__, h, 0x2c, x, y, 1); }
CUresult cufftExecZ2D(int h, void *x, void *y) { return execute(__func__, h, 0x6c, x, y, 1); }
