/* ---- host side: the functions that the schedule at the end of this file calls ---------------------
 *
 *   static Ckc c;
 *   ckc_open(&c, arena, workspace, workspace_bytes, stream);   once: cuBLASLt, algorithms pinned
 *   ... fill parameters, state and constants, then per step the inputs, at ckc_value[].offset
 *   ckc_micro(&c);   a micro-batch, in order on the stream
 *   ckc_rest(&c);    after the last micro-batch of a step: the update, unless it is in ckc_micro
 *   ckc_close(&c);
 *
 * arena: ckc_arena_bytes of device memory, 256-byte aligned; a step uses no other memory but the
 * workspace, which is the caller's so that matrix products are reproducible.  All work is
 * enqueued on one stream and can be captured in a CUDA graph after a first step.  Functions return
 * false and leave the reason in c.error.
 * Build: nvcc -gencode arch=compute_90a,code=sm_90a --fmad=false -lcublasLt */
#ifndef __CUDACC_RTC__
#ifdef __CUDACC__
#include <cublasLt.h>
#include <cuda_runtime.h>
#else
#include "cuda_host_shim.h"
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define CKC_API extern "C"
#else
#define CKC_API
#endif

enum { CKC_MAX_ARGS = 64, CKC_MAX_GEMMS = 4096, CKC_MAX_TABLE = 500 };

typedef struct {
    const char *name, *kind, *type;
    int rank;
    int64_t dim[8], offset; /* bytes from the start of the arena */
} CkcValue;

/* y[batch][m][n] = op(a) op(b) [+ c], row-major, with c in the layout of y; leading dimensions and strides
 * between batches are in elements, 0: shared.  gelu: 1: y is GELU of the sum; 2: y is the product times the
 * derivative of GELU. */
typedef struct {
    const char *in, *out; /* types of a and b; of y and c */
    int tf32, adds, bias, gelu, ta, tb;
    int64_t m, n, k, lda, ldb, ldy, batch, stride_a, stride_b, stride_y;
} CkcGemm;

typedef struct {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t algo;
    bool f64, adds, bias;
    int gelu;
} CkcGemmPlan;

typedef struct {
    char *arena, *workspace;
    size_t workspace_bytes;
    cudaStream_t stream;
    cublasLtHandle_t lt;
    CkcGemmPlan gemm[CKC_MAX_GEMMS];
    int ngemm;
    char error[256];
} Ckc;

/* status: of the CUDA runtime where `what` is the name of its function, else of cuBLASLt. */
static bool ckc_check(Ckc *c, int status, const char *what)
{
    const char *why = strncmp(what, "cuda", 4) == 0 ? cudaGetErrorString((cudaError_t)status) : "";
    if (status != 0 && !c->error[0])
        snprintf(c->error, sizeof c->error, "%s failed: error %d%s%s", what, status, *why ? ", " : "", why);
    return status == 0;
}

static bool ckc_layout(Ckc *c, cublasLtMatrixLayout_t *l, cudaDataType_t type, int64_t rows,
                       int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    return ckc_check(c, cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld),
                     "cublasLtMatrixLayoutCreate") &&
           ckc_check(c, cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                         &count, sizeof count), "batch count") &&
           ckc_check(c, cublasLtMatrixLayoutSetAttribute(
                            *l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                            sizeof stride), "batch stride");
}

/* Chooses one algorithm per description, once, so that a recomputed product gives the same bits.
 * Split sums must not be added in place, as the order of that is not documented. */
static bool ckc_choose(Ckc *c, CkcGemmPlan *g)
{
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found;
    uint32_t align = 64, schemes = CUBLASLT_REDUCTION_SCHEME_NONE |
                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    size_t bytes = c->workspace_bytes;
    int n = 0;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    if (!ckc_check(c, cublasLtMatmulPreferenceCreate(&pref), "cublasLtMatmulPreferenceCreate"))
        return false;
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceSetAttribute(pref, aligned[i], &align, sizeof align);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof bytes);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &schemes, sizeof schemes);
    bool ok = ckc_check(c, cublasLtMatmulAlgoGetHeuristic(c->lt, g->op, g->b, g->a, g->y, g->y,
                                                          pref, 1, &found, &n),
                        "cublasLtMatmulAlgoGetHeuristic") &&
              ckc_check(c, n == 1 ? 0 : -1, "cublasLt: no algorithm for a matrix product,");
    if (ok)
        g->algo = found.algo;
    cublasLtMatmulPreferenceDestroy(pref);
    return ok;
}

static cudaDataType_t ckc_type(const char *name)
{
    return strcmp(name, "f64") == 0    ? CUDA_R_64F
           : strcmp(name, "bf16") == 0 ? CUDA_R_16BF
           : strcmp(name, "f16") == 0  ? CUDA_R_16F
                                       : CUDA_R_32F;
}

static bool ckc_set(Ckc *c, const CkcGemmPlan *g, cublasLtMatmulDescAttributes_t attr, const void *v,
                    size_t n)
{
    return ckc_check(c, cublasLtMatmulDescSetAttribute(g->op, attr, v, n), "an epilogue");
}

static bool ckc_places(Ckc *c, const CkcGemmPlan *g, const void *bias, void *sum)
{
    return (!g->bias || ckc_set(c, g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)) &&
           (!g->gelu || ckc_set(c, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &sum, sizeof sum));
}

static bool ckc_epilogue(Ckc *c, const CkcGemmPlan *g, const CkcGemm *s)
{
    cublasLtEpilogue_t epilogue = s->gelu == 2 ? CUBLASLT_EPILOGUE_DGELU
                                  : s->gelu    ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                               : CUBLASLT_EPILOGUE_BIAS;
    return ckc_set(c, g, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!s->gelu || (ckc_set(c, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ldy, sizeof s->ldy) &&
                         ckc_set(c, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &s->stride_y,
                                 sizeof s->stride_y))) &&
           ckc_places(c, g, c->arena, c->arena);
}

static bool ckc_gemm_desc(Ckc *c, CkcGemmPlan *g, const CkcGemm *s)
{
    cublasOperation_t first = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    return ckc_check(c,
                     cublasLtMatmulDescCreate(&g->op,
                                              g->f64    ? CUBLAS_COMPUTE_64F
                                              : s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                        : CUBLAS_COMPUTE_32F,
                                              g->f64 ? CUDA_R_64F : CUDA_R_32F),
                     "cublasLtMatmulDescCreate") &&
           ckc_check(c,
                     cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
                     "transposition") &&
           ckc_check(
               c, cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
               "transposition") &&
           (!(s->bias || s->gelu) || ckc_epilogue(c, g, s));
}

/* Row-major a b is column-major b a: cuBLAS's first operand is our second. */
static bool ckc_gemm_plan(Ckc *c, const CkcGemm *s)
{
    CkcGemmPlan *g = &c->gemm[c->ngemm++];
    g->f64 = strcmp(s->in, "f64") == 0;
    g->adds = s->adds;
    g->bias = s->bias;
    g->gelu = s->gelu;
    return ckc_gemm_desc(c, g, s) &&
           ckc_layout(c, &g->b, ckc_type(s->in), s->tb ? s->k : s->n, s->tb ? s->n : s->k, s->ldb,
                      s->batch, s->stride_b) &&
           ckc_layout(c, &g->a, ckc_type(s->in), s->ta ? s->m : s->k, s->ta ? s->k : s->m, s->lda,
                      s->batch, s->stride_a) &&
           ckc_layout(c, &g->y, ckc_type(s->out), s->n, s->m, s->ldy, s->batch, s->stride_y) &&
           ckc_choose(c, g);
}

/* Runs a product on operands at these offsets.  add, bias: added to the product, and to its rows; sum:
 * stored, or read, with gelu; -1: none. */
static inline bool ckc_gemm(Ckc *c, int index, int64_t a, int64_t b, int64_t y, int64_t add, int64_t bias,
                            int64_t sum)
{
    const CkcGemmPlan *g = &c->gemm[index];
    if (!ckc_places(c, g, c->arena + (bias < 0 ? y : bias), c->arena + (sum < 0 ? y : sum)))
        return false;
    const float one = 1, beta = g->adds;
    const double one64 = 1, beta64 = g->adds;
    return ckc_check(c, cublasLtMatmul(c->lt, g->op, g->f64 ? (const void *)&one64 : &one,
                                       c->arena + b, g->b, c->arena + a, g->a,
                                       g->f64 ? (const void *)&beta64 : &beta,
                                       c->arena + (add < 0 ? y : add), g->y, c->arena + y, g->y,
                                       &g->algo, c->workspace, c->workspace_bytes, c->stream),
                     "cublasLtMatmul");
}

/* Launches a kernel.  at: offsets of the operands and the workspace, -1 if one is absent; key: the keys. */
static inline bool ckc_launch(Ckc *c, const void *kernel, unsigned grid, unsigned block, unsigned shared,
                              const int64_t *at, int n, const int64_t *key, int nkey)
{
    void *operand[CKC_MAX_ARGS] = {0}, *arg[CKC_MAX_ARGS];
    dim3 g = {grid, 1, 1}, b = {block, 1, 1};
    for (int i = 0; i < CKC_MAX_ARGS; i++) {
        if (i < n && at[i] >= 0)
            operand[i] = c->arena + at[i];
        if (i >= n && i < n + nkey)
            memcpy(&operand[i], &key[i - n], sizeof operand[i]);
        arg[i] = &operand[i];
    }
    if (shared > 48u << 10 &&
        !ckc_check(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                   "cudaFuncSetAttribute"))
        return false;
    return ckc_check(c, cudaLaunchKernel(kernel, g, b, arg, shared, c->stream), "cudaLaunchKernel");
}

/* Launches a kernel of several calls; at and key have nop offsets and nkey keys of each call. */
static inline bool ckc_launch_table(Ckc *c, const void *kernel, unsigned grid, unsigned block,
                                    const int64_t *at, int nop, const int64_t *key, int nkey, int calls)
{
    void *operand[CKC_MAX_TABLE] = {0}, **table = operand, *arg[CKC_MAX_ARGS];
    int64_t blocks = grid / (unsigned)calls;
    dim3 g = {grid, 1, 1}, b = {block, 1, 1};
    for (int i = 0; i < calls; i++) {
        for (int o = 0; o < nop; o++, at++)
            operand[i * (nop + nkey) + o] = *at < 0 ? NULL : c->arena + *at;
        memcpy(&operand[i * (nop + nkey) + nop], &key[i * nkey], nkey * sizeof *key);
    }
    for (int i = 1; i < CKC_MAX_ARGS; i++)
        arg[i] = &blocks;
#ifdef __CUDACC__
    arg[0] = table; /* by value */
#else
    arg[0] = &table;
#endif
    return ckc_check(c, cudaLaunchKernel(kernel, g, b, arg, 0, c->stream), "cudaLaunchKernel");
}

/* Copies rows, which are packed in the source and `pitch` bytes apart in the target.  Pitches of
 * cudaMemcpy2DAsync have a limit, lengths of cudaMemcpyAsync have none. */
static inline bool ckc_copy(Ckc *c, int64_t to, int64_t pitch, int64_t from, int64_t bytes, int64_t rows)
{
    bool ok = true;
    if (pitch == bytes) {
        bytes *= rows;
        rows = 1;
    }
    if (rows > 1 && pitch <= INT32_MAX)
        return ckc_check(c, cudaMemcpy2DAsync(c->arena + to, (size_t)pitch, c->arena + from,
                                              (size_t)bytes, (size_t)bytes, (size_t)rows,
                                              cudaMemcpyDeviceToDevice, c->stream),
                         "cudaMemcpy2DAsync");
    for (int64_t i = 0; i < rows && ok; i++)
        ok = ckc_check(c, cudaMemcpyAsync(c->arena + to + i * pitch, c->arena + from + i * bytes,
                                          (size_t)bytes, cudaMemcpyDeviceToDevice, c->stream),
                       "cudaMemcpyAsync");
    return ok;
}

static bool ckc_open_gemms(Ckc *c, const CkcGemm *s, int n)
{
    if (!ckc_check(c, cublasLtCreate(&c->lt), "cublasLtCreate"))
        return false;
    for (int i = 0; i < n; i++)
        if (!ckc_gemm_plan(c, &s[i]))
            return false;
    return true;
}

static void ckc_close_gemms(Ckc *c)
{
    for (int i = 0; i < c->ngemm; i++) {
        CkcGemmPlan *g = &c->gemm[i];
        cublasLtMatrixLayout_t layout[] = {g->a, g->b, g->y};
        for (int l = 0; l < 3; l++)
            if (layout[l])
                cublasLtMatrixLayoutDestroy(layout[l]);
        if (g->op)
            cublasLtMatmulDescDestroy(g->op);
    }
    if (c->lt)
        cublasLtDestroy(c->lt);
}
#endif
