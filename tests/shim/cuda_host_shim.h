/* cuda_host_shim.h -- the CUDA runtime and cuBLASLt calls of generated schedules, on the CPU.
 *
 * It has only what prelude/host.h uses.  Matrix products follow the descriptors as cuBLAS would read them
 * (column-major, transposes, strided batches), so a wrong description gives a wrong result. */
#ifndef CKC_CUDA_HOST_SHIM_H
#define CKC_CUDA_HOST_SHIM_H
#include "cuda_shim.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned x, y, z;
} dim3;
typedef void *cudaStream_t;
typedef void *cublasLtHandle_t;
typedef enum { CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
enum {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum { CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE
};
typedef int cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192
} cublasLtEpilogue_t;
enum { CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET };
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
} cublasLtMatmulPreferenceAttributes_t;

typedef struct {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batch;
} *cublasLtMatrixLayout_t;
typedef struct {
    cublasOperation_t transa, transb;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld, aux_stride;
} *cublasLtMatmulDesc_t;
typedef struct {
    int chosen;
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
} cublasLtMatmulHeuristicResult_t;
typedef void *cublasLtMatmulPreference_t;

typedef int cudaError_t;
FN const char *cudaGetErrorString(cudaError_t status) { return status ? "an error" : "no error"; }
FN int cudaMalloc(void **at, size_t bytes)
{
    *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *at ? 0 : 2;
}
FN int cudaFree(void *at)
{
    free(at);
    return 0;
}
FN int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    memcpy(to, from, bytes);
    return 0;
}
FN int cudaStreamCreate(cudaStream_t *s)
{
    *s = NULL;
    return 0;
}
FN int cudaStreamSynchronize(cudaStream_t s) { return 0; }

enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
FN int cudaFuncSetAttribute(const void *f, int attribute, int value) { return 0; }

FN int cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **arg, size_t shared,
                        cudaStream_t s)
{
    return shim->launch(f, arg, grid.x, block.x, (unsigned)shared) ? 0 : 719; /* launch failure */
}

FN int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t s)
{
    memmove(to, from, bytes);
    return 0;
}

FN int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t bytes, size_t rows, int kind, cudaStream_t s)
{
    if (bytes > to_pitch || bytes > from_pitch || to_pitch > INT32_MAX || from_pitch > INT32_MAX)
        return 12; /* invalid pitch */
    for (size_t i = 0; i < rows; i++)
        memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, bytes);
    return 0;
}

FN int cublasLtCreate(cublasLtHandle_t *h) { return (*h = malloc(1)) ? 0 : 3; }
FN int cublasLtDestroy(cublasLtHandle_t h) { free(h); return 0; }
FN int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    return (*p = malloc(1)) ? 0 : 3;
}
FN int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { free(p); return 0; }
FN int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, int attr,
                                            const void *v, size_t n)
{
    return 0;
}

FN int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type, uint64_t rows,
                                  uint64_t cols, int64_t ld)
{
    *l = calloc(1, sizeof **l);
    (*l)->type = type;
    (*l)->rows = rows;
    (*l)->cols = cols;
    (*l)->ld = ld;
    (*l)->batch = 1;
    return ld < (int64_t)rows ? 7 : 0;
}
FN int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, int attr, const void *v,
                                        size_t n)
{
    if (attr == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        memcpy(&l->batch, v, n);
    else
        memcpy(&l->stride, v, n);
    return 0;
}
FN int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { free(l); return 0; }

FN int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, int compute, cudaDataType_t scale)
{
    return (*d = calloc(1, sizeof **d)) ? 0 : 3;
}
FN int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, int attr, const void *v, size_t n)
{
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        memcpy(&d->transa, v, n);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        memcpy(&d->transb, v, n);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        memcpy(&d->epilogue, v, n);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        memcpy(&d->bias, v, n);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        memcpy(&d->aux, v, n);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        memcpy(&d->aux_ld, v, n);
        break;
    default:
        memcpy(&d->aux_stride, v, n);
        break;
    }
    return 0;
}
FN int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { free(d); return 0; }

FN int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                                      cublasLtMatmulPreference_t p, int want,
                                      cublasLtMatmulHeuristicResult_t *r, int *got)
{
    uint64_t m = d->transa ? a->cols : a->rows, ka = d->transa ? a->rows : a->cols;
    uint64_t n = d->transb ? b->rows : b->cols, kb = d->transb ? b->cols : b->rows;
    *got = m == y->rows && n == y->cols && ka == kb;
    r->algo.chosen = 1;
    return *got ? 0 : 7;
}

FN double fake_load(const void *p, cudaDataType_t type, int64_t i)
{
    switch (type) {
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_R_16F: return f16_load(((const uint16_t *)p)[i]);
    case CUDA_R_16BF: return bf16_load(((const uint16_t *)p)[i]);
    default: return ((const float *)p)[i];
    }
}
FN void fake_store(void *p, cudaDataType_t type, int64_t i, double v)
{
    switch (type) {
    case CUDA_R_64F: ((double *)p)[i] = v; break;
    case CUDA_R_16F: ((uint16_t *)p)[i] = f16_store((float)v); break;
    case CUDA_R_16BF: ((uint16_t *)p)[i] = bf16_store((float)v); break;
    default: ((float *)p)[i] = (float)v; break;
    }
}

FN int cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                      cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb,
                      const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *y,
                      cublasLtMatrixLayout_t ly, const cublasLtMatmulAlgo_t *algo, void *work,
                      size_t bytes, cudaStream_t s)
{
    int64_t inner = (int64_t)(d->transa ? la->rows : la->cols);
    double add = ly->type == CUDA_R_64F ? *(const double *)beta : *(const float *)beta;
    if (!algo->chosen)
        return 7;
    for (int64_t t = 0; t < ly->batch; t++)
        for (int64_t j = 0; j < (int64_t)ly->cols; j++)
            for (int64_t i = 0; i < (int64_t)ly->rows; i++) {
                double sum = add ? add * fake_load(c, lc->type, t * lc->stride + j * lc->ld + i) : 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += fake_load(a, la->type, t * la->stride +
                                     (d->transa ? i * la->ld + k : k * la->ld + i)) *
                           fake_load(b, lb->type, t * lb->stride +
                                     (d->transb ? k * lb->ld + j : j * lb->ld + k));
                int64_t aux = t * d->aux_stride + j * d->aux_ld + i;
                if (d->epilogue && d->epilogue != CUBLASLT_EPILOGUE_DGELU)
                    sum += fake_load(d->bias, ly->type, i);
                if (d->epilogue == CUBLASLT_EPILOGUE_DGELU) {
                    double x = fake_load(d->aux, ly->type, aux);
                    double th = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
                    sum *= 0.5 * (1 + th) +
                           0.5 * x * (1 - th * th) * 0.79788456080286536 * (1 + 0.134145 * x * x);
                }
                if (d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                    fake_store(d->aux, ly->type, aux, sum);
                    sum = 0.5 * sum * (1 + tanh(0.79788456080286536 * (sum + 0.044715 * sum * sum * sum)));
                }
                fake_store(y, ly->type, t * ly->stride + j * ly->ld + i, sum);
            }
    return 0;
}
#endif
