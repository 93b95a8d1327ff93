/* A stand-in for cuBLAS, part of the stand-in for the driver: products by loops, on the handle's stream, in its turn.

   A handle belongs to the context that it was created in, and must not be used by two threads at once. */

#include <complex.h>

typedef struct Blas { Handle h; void *stream; int in_use, has_workspace; } Blas;
typedef struct Product {
    int ta, tb, kind; int64_t m, n, k, lda, sa, ldb, sb, ldc, sc, count; const char *a, *b; char *c; double complex alpha, beta;
} Product;

enum { BLAS_OK = 0, BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13 };

static double wide(uint16_t half) { uint32_t bits = (uint32_t)half << 16; float value; memcpy(&value, &bits, 4); return value; }
static uint16_t narrow(float value) { uint32_t bits; memcpy(&bits, &value, 4); return (bits + 0x7fff + (bits >> 16 & 1)) >> 16; }

static double complex element(const char *p, int kind, int64_t i) {
    switch (kind) {
    case 0: return ((const float *)p)[i];
    case 1: return ((const double *)p)[i];
    case 2: return (double)((const _Float16 *)p)[i];
    case 4: return ((const float complex *)p)[i];
    case 14: return wide(((const uint16_t *)p)[i]);
    default: return ((const double complex *)p)[i];
    }
}
static void set_element(char *p, int kind, int64_t i, double complex value) {
    switch (kind) {
    case 0: ((float *)p)[i] = creal(value); break;
    case 1: ((double *)p)[i] = creal(value); break;
    case 2: ((_Float16 *)p)[i] = (_Float16)creal(value); break;
    case 4: ((float complex *)p)[i] = value; break;
    case 14: ((uint16_t *)p)[i] = narrow((float)creal(value)); break;
    default: ((double complex *)p)[i] = value;
    }
}
static size_t size_of(int kind) { return kind == 14 ? 2 : (size_t[]){4, 8, 2, 0, 8, 16}[kind]; }

static void multiply(void *data) {
    Product *p = data;
    size_t size = size_of(p->kind);
    for (int64_t batch = 0; batch < p->count; batch++) {
        const char *a = p->a + batch * p->sa * size, *b = p->b + batch * p->sb * size;
        char *c = p->c + batch * p->sc * size;
        for (int64_t j = 0; j < p->n; j++) for (int64_t i = 0; i < p->m; i++) {
            double complex sum = 0;
            for (int64_t l = 0; l < p->k; l++)
                sum += element(a, p->kind, p->ta ? l + i * p->lda : i + l * p->lda)
                       * element(b, p->kind, p->tb ? j + l * p->ldb : l + j * p->ldb);
            set_element(c, p->kind, i + j * p->ldc, p->alpha * sum);
        }
    }
    free(p);
}
static int reaches(const char *p, int64_t rows, int64_t columns, int64_t ld, int64_t step, int64_t count, int kind) {
    return block_of((uint64_t)p, ((count - 1) * step + (columns - 1) * ld + rows) * size_of(kind)) != NULL;
}

CUresult cublasCreate_v2(void **handle) {
    if (enter(__func__) || !current) return BLAS_NOT_INITIALIZED;
    *handle = make(BLAS, current->device, sizeof(Blas));
    return BLAS_OK;
}
CUresult cublasSetStream_v2(void *handle, void *stream) {
    if (enter(__func__) || !is_alive(handle, BLAS) || !is_alive(stream, STREAM)) return BLAS_NOT_INITIALIZED;
    Blas *blas = handle;
    if (__atomic_exchange_n(&blas->in_use, 1, __ATOMIC_SEQ_CST)) return BLAS_EXECUTION_FAILED;
    blas->stream = stream, blas->has_workspace = 0;
    return BLAS_OK;
}
CUresult cublasSetWorkspace_v2(void *handle, void *workspace, size_t size) {
    if (enter(__func__) || !is_alive(handle, BLAS)) return BLAS_NOT_INITIALIZED;
    Blas *blas = handle;
    Block *b = block_of((uint64_t)workspace, size);
    if ((uint64_t)workspace % 256 || !b || b->device != blas->h.device) return BLAS_INVALID_VALUE;
    blas->has_workspace = 1;
    return BLAS_OK;
}
CUresult cublasGemmStridedBatchedEx_64(
    void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int a_kind, int64_t lda,
    int64_t sa, const void *b, int b_kind, int64_t ldb, int64_t sb, const void *beta, void *c, int c_kind, int64_t ldc,
    int64_t sc, int64_t count, int compute, int algorithm) {
    if (!is_alive(handle, BLAS)) return BLAS_NOT_INITIALIZED;
    Blas *blas = handle;
    __atomic_store_n(&blas->in_use, 0, __ATOMIC_SEQ_CST);
    CUresult injected = enter(__func__);
    if (injected) return injected;
    if (!blas->has_workspace) return BLAS_EXECUTION_FAILED;    /* it would allocate */
    if (!current || current->device != blas->h.device || ((Handle *)blas->stream)->device != blas->h.device)
        return BLAS_EXECUTION_FAILED;
    int wide = compute == 70, kind = a_kind;
    if (ta < 0 || ta > 1 || tb < 0 || tb > 1 || b_kind != kind || c_kind != kind || algorithm != -1 || m < 1 || n < 1 || k < 1
        || (compute != 68 && !wide) || wide != (kind == 1 || kind == 5) || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m
        || count < 1 || (count > 1 && sc < m))
        return BLAS_INVALID_VALUE;
    if (!reaches(a, ta ? k : m, ta ? m : k, lda, sa, count, kind) || !reaches(b, tb ? n : k, tb ? k : n, ldb, sb, count, kind)
        || !reaches(c, m, n, ldc, sc, count, kind))
        return BLAS_EXECUTION_FAILED;
    int factor = kind == 2 || kind == 14 ? 0 : kind;
    if (element(beta, factor, 0) != 0) return BLAS_INVALID_VALUE;
    Product *p = malloc(sizeof *p);
    *p = (Product){ta, tb, kind, m, n, k, lda, sa, ldb, sb, ldc, sc, count, a, b, c, element(alpha, factor, 0), 0};
    return push(blas->stream, (Op){.kind = HOST, .a = (uint64_t)multiply, .b = (uint64_t)p, .n = sizeof *p}) ? BLAS_EXECUTION_FAILED : BLAS_OK;
}
