/* product.c -- runs matrix products in cuBLASLt, and chooses and prints their algorithms. */
#include "product.h"
#include "cuda.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_MOST = 256 }; /* a larger alignment makes no difference to the library */

/* ---- products of launches ----------------------------------------------------------------------- */

static int alignment(int64_t at)
{
    int align = ALIGN_MOST;
    while (at % align)
        align /= 2;
    return align;
}

uint32_t product_index(const Products *p, const Gemm *g)
{
    uint32_t i = 0;
    while (i < p->n && memcmp(&p->of[i].g, g, sizeof *g) != 0)
        i++;
    return i;
}

static void add_call(Products *p, uint32_t *cap, const Launch *l, const Gemms *s, int64_t call, Arena *a)
{
    int64_t at[GEMM_OPERANDS];
    Gemm g = gemm_call(s, call, at);
    uint32_t i = product_index(p, &g);
    if (i == p->n) {
        p->of = arena_grow(a, p->of, p->n++, cap, sizeof *p->of);
        memset(&p->of[i], 0, sizeof p->of[i]);
        p->of[i].g = g;
    }
    for (int o = 0; o < GEMM_OPERANDS; o++) {
        bool there = gemm_has(&g, (GemmOperand)o);
        int align = there ? alignment(l->op[s->operand[o]].at + at[o]) : ALIGN_MOST;
        int *known = &p->of[i].align[o];
        *known = *known == 0 || align < *known ? align : *known;
    }
}

Products products_of(const Launch *l, uint32_t n, Arena *a)
{
    Products p = {0};
    uint32_t cap = 0;
    Gemms s;
    for (uint32_t i = 0; i < n; i++)
        if (gemm_describe(&s, l[i].lib))
            for (int64_t call = 0; call < gemm_calls(&s); call++)
                add_call(&p, &cap, &l[i], &s, call, a);
    return p;
}

/* ---- the library -------------------------------------------------------------------------------- */

static bool lt_ok(cublasStatus_t s, const char *call, Diag *d)
{
    return s == 0 || fail_status(d, EXIT_DEVICE, "cuda: %s failed: error %d", call, s);
}

bool products_open(ProductLibrary *l, const CudaDriver *cu, CUdevice device, Diag *d)
{
    Diag missing = {0};
    *l = (ProductLibrary){.lt = cuda_cublaslt(cu, &missing)};
    if (!l->lt)
        return true;
    snprintf(l->pin, sizeof l->pin, "%d.%d.%d", l->lt->version, cuda_capability(cu, device),
             cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    return lt_ok(l->lt->cublasLtCreate(&l->handle), "cublasLtCreate", d);
}

void products_close(ProductLibrary *l)
{
    if (l->handle)
        l->lt->cublasLtDestroy(l->handle);
    l->handle = NULL;
}

/* ---- descriptors -------------------------------------------------------------------------------- */

static cudaDataType_t type_of(DType dt)
{
    return dt == DT_F64 ? CUDA_R_64F : dt == DT_F16 ? CUDA_R_16F : dt == DT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool set(const Routine *r, const CublasLt *lt, cublasLtMatmulDescAttributes_t attr, const void *v,
                size_t n, Diag *d)
{
    return lt_ok(lt->cublasLtMatmulDescSetAttribute(r->op, attr, v, n), "cublasLtMatmulDescSetAttribute", d);
}

/* Makes the layout of row-major matrices; the library, which is column-major, sees their transposes. */
static bool make_layout(const CublasLt *lt, cublasLtMatrixLayout_t *out, DType dt, int64_t rows, int64_t cols,
                        int64_t ld, int64_t batch, int64_t stride, Diag *d)
{
    int32_t count = (int32_t)batch;
    return lt_ok(lt->cublasLtMatrixLayoutCreate(out, type_of(dt), (uint64_t)cols, (uint64_t)rows, ld),
                 "cublasLtMatrixLayoutCreate", d) &&
           lt_ok(lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                      sizeof count),
                 "cublasLtMatrixLayoutSetAttribute", d) &&
           lt_ok(lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                      &stride, sizeof stride),
                 "cublasLtMatrixLayoutSetAttribute", d);
}

/* Row-major A B is column-major B A: the library's first operand is B. */
static bool make_op(Routine *r, const CublasLt *lt, const Gemm *g, Diag *d)
{
    cublasOperation_t first = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t compute = g->in == DT_F64 ? CUBLAS_COMPUTE_64F
                                  : g->tf32       ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    return lt_ok(lt->cublasLtMatmulDescCreate(&r->op, compute, type_of(r->sum)), "cublasLtMatmulDescCreate",
                 d) &&
           set(r, lt, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, d) &&
           set(r, lt, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, d);
}

static bool set_places(const Routine *r, const CublasLt *lt, CUdeviceptr bias, CUdeviceptr x, Diag *d)
{
    const void *row = (const void *)(uintptr_t)bias;
    void *aux = (void *)(uintptr_t)x;
    return (!r->bias || set(r, lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof row, d)) &&
           (!r->gelu || set(r, lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux, d));
}

/* Sets the epilogue.  Algorithms are asked for with placeholder addresses that have the final alignment. */
static bool make_epilogue(const Routine *r, const CublasLt *lt, const AlignedGemm *p, Diag *d)
{
    const Gemm *g = &p->g;
    cublasLtEpilogue_t epilogue = g->gelu == GELU_BWD ? CUBLASLT_EPILOGUE_DGELU
                                  : g->gelu           ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                                      : CUBLASLT_EPILOGUE_BIAS;
    return !(g->bias || g->gelu) ||
           (set(r, lt, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, d) &&
            (!g->gelu ||
             (set(r, lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g->ldy, sizeof g->ldy, d) &&
              set(r, lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &g->sy, sizeof g->sy, d))) &&
            set_places(r, lt, (CUdeviceptr)p->align[GEMM_BIAS], (CUdeviceptr)p->align[GEMM_X], d));
}

bool routine_make(Routine *r, const ProductLibrary *l, const AlignedGemm *p, Diag *d)
{
    const Gemm *g = &p->g;
    const CublasLt *lt = l->lt;
    *r = (Routine){.sum = dtype_sum(g->in), .adds = g->adds, .bias = g->bias, .gelu = (GeluOf)g->gelu};
    return make_op(r, lt, g, d) && make_epilogue(r, lt, p, d) &&
           make_layout(lt, &r->layout[GEMM_A], g->in, g->ta ? g->k : g->m, g->ta ? g->m : g->k, g->lda,
                       g->batch, g->sa, d) &&
           make_layout(lt, &r->layout[GEMM_B], g->in, g->tb ? g->n : g->k, g->tb ? g->k : g->n, g->ldb,
                       g->batch, g->sb, d) &&
           make_layout(lt, &r->layout[GEMM_Y], g->out, g->m, g->n, g->ldy, g->batch, g->sy, d);
}

void routine_free(Routine *r, const ProductLibrary *l)
{
    for (int i = 0; i < GEMM_C; i++)
        if (r->layout[i])
            l->lt->cublasLtMatrixLayoutDestroy(r->layout[i]);
    if (r->op)
        l->lt->cublasLtMatmulDescDestroy(r->op);
    *r = (Routine){0};
}

/* ---- algorithms --------------------------------------------------------------------------------- */

/* Sets the preferences.  Of split-K reductions only those in the compute type are allowed, which add in a
 * fixed order: neither in place nor in the type of the result. */
static bool prefer(const CublasLt *lt, cublasLtMatmulPreference_t pref, const AlignedGemm *p,
                   uint64_t workspace)
{
    static const struct {
        cublasLtMatmulPreferenceAttributes_t attr;
        GemmOperand of;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, GEMM_B},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, GEMM_A},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, GEMM_C},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, GEMM_Y}};
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    bool ok = lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &workspace, sizeof workspace) == 0 &&
              lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                       &schemes, sizeof schemes) == 0;
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned && ok; i++) {
        uint32_t align = (uint32_t)p->align[aligned[i].of];
        ok = lt->cublasLtMatmulPreferenceSetAttribute(pref, aligned[i].attr, &align, sizeof align) == 0;
    }
    return ok;
}

static bool bytes_of_algo(const Routine *r, const ProductLibrary *l, const cublasLtMatmulAlgo_t *algo,
                          int64_t *bytes)
{
    cublasLtMatmulHeuristicResult_t result;
    TRY(l->lt->cublasLtMatmulAlgoCheck(l->handle, r->op, r->layout[GEMM_B], r->layout[GEMM_A],
                                       r->layout[GEMM_Y], r->layout[GEMM_Y], algo, &result) == 0);
    *bytes = (int64_t)result.workspaceSize;
    return true;
}

/* Checks an algorithm; its workspace is the larger of what heuristic and check say.  False: it is not taken,
 * or needs more than `workspace` bytes. */
static bool check_algo(const Routine *r, const ProductLibrary *l,
                       const cublasLtMatmulHeuristicResult_t *found, int64_t workspace, ProductAlgo *out)
{
    int64_t bytes;
    TRY(bytes_of_algo(r, l, &found->algo, &bytes));
    *out = (ProductAlgo){found->algo, (int64_t)found->workspaceSize};
    out->workspace = bytes > out->workspace ? bytes : out->workspace;
    return out->workspace <= workspace;
}

int routine_algos(const Routine *r, const ProductLibrary *l, const AlignedGemm *p, int64_t workspace,
                  ProductAlgo *out, int most)
{
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[PRODUCT_ALGOS];
    int n = 0, kept = 0;
    if (l->lt->cublasLtMatmulPreferenceCreate(&pref) != 0)
        return 0;
    if (!prefer(l->lt, pref, p, (uint64_t)workspace) ||
        l->lt->cublasLtMatmulAlgoGetHeuristic(l->handle, r->op, r->layout[GEMM_B], r->layout[GEMM_A],
                                              r->layout[GEMM_Y], r->layout[GEMM_Y], pref, PRODUCT_ALGOS,
                                              found, &n) != 0)
        n = 0;
    for (int i = 0; i < n && kept < most; i++)
        kept += found[i].state == 0 && check_algo(r, l, &found[i], workspace, &out[kept]);
    l->lt->cublasLtMatmulPreferenceDestroy(pref);
    return kept;
}

bool products_have_epilogues(const ProductLibrary *l)
{
    enum { SIDE = 256, ALIGN = 16, ROOM = 4 << 20 };
    static const struct {
        DType in, out;
        int adds;
        GeluOf gelu;
    } kind[] = {{DT_F32, DT_F32, 1, GELU_NONE},   {DT_BF16, DT_BF16, 0, GELU_NONE},
                {DT_BF16, DT_F32, 1, GELU_NONE},  {DT_BF16, DT_BF16, 0, GELU_OF_SUM},
                {DT_BF16, DT_BF16, 0, GELU_BWD},  {DT_F16, DT_F16, 0, GELU_NONE},
                {DT_F16, DT_F32, 1, GELU_NONE},   {DT_F16, DT_F16, 0, GELU_OF_SUM},
                {DT_F16, DT_F16, 0, GELU_BWD}};
    bool all = l->lt != NULL;
    for (size_t i = 0; i < sizeof kind / sizeof *kind && all; i++) {
        Routine r;
        ProductAlgo algo;
        Diag none = {0};
        AlignedGemm p = {.g = {.in = kind[i].in,
                               .out = kind[i].out,
                               .adds = kind[i].adds,
                               .bias = kind[i].gelu != GELU_BWD,
                               .gelu = (int)kind[i].gelu,
                               .tb = 1,
                               .m = SIDE,
                               .n = SIDE,
                               .k = SIDE,
                               .lda = SIDE,
                               .ldb = SIDE,
                               .ldy = SIDE,
                               .batch = 1}};
        for (int o = 0; o < GEMM_OPERANDS; o++)
            p.align[o] = ALIGN;
        all = routine_make(&r, l, &p, &none) && routine_algos(&r, l, &p, ROOM, &algo, 1) == 1;
        routine_free(&r, l);
    }
    return all;
}

bool routine_takes(const Routine *r, const ProductLibrary *l, const ProductAlgo *algo)
{
    int64_t bytes;
    return bytes_of_algo(r, l, &algo->algo, &bytes) && bytes <= algo->workspace;
}

bool routine_run(const Routine *r, const ProductLibrary *l, const CUdeviceptr at[GEMM_OPERANDS],
                 CUdeviceptr workspace, CUstream stream, Diag *d)
{
    const float one = 1, beta = r->adds;
    const double one64 = 1, beta64 = r->adds;
    bool f64 = r->sum == DT_F64;
    const void *of[GEMM_OPERANDS];
    TRY(set_places(r, l->lt, at[GEMM_BIAS], at[GEMM_X], d));
    for (int o = 0; o < GEMM_OPERANDS; o++)
        of[o] = (const void *)(uintptr_t)at[o == GEMM_C && !r->adds ? GEMM_Y : o];
    return lt_ok(l->lt->cublasLtMatmul(l->handle, r->op, f64 ? (const void *)&one64 : &one, of[GEMM_B],
                                       r->layout[GEMM_B], of[GEMM_A], r->layout[GEMM_A],
                                       f64 ? (const void *)&beta64 : &beta, of[GEMM_C], r->layout[GEMM_Y],
                                       (void *)(uintptr_t)at[GEMM_Y], r->layout[GEMM_Y], &r->algo.algo,
                                       (void *)(uintptr_t)workspace, (size_t)r->algo.workspace, stream),
                 "cublasLtMatmul", d);
}

/* ---- text --------------------------------------------------------------------------------------- */

const char product_unpinned[] = "cublaslt";
enum { WORDS = 8 };

/* "1f.20003.0.1+33554432": words without trailing zeros, and the workspace. */
const char *product_algo_text(const ProductAlgo *algo, Arena *a)
{
    const char *text = "";
    int n = WORDS;
    if (algo->workspace < 0)
        return "-";
    while (n > 1 && algo->algo.data[n - 1] == 0)
        n--;
    for (int i = 0; i < n; i++)
        text = arena_printf(a, "%s%s%" PRIx64, text, i ? "." : "", algo->algo.data[i]);
    return arena_printf(a, "%s+%" PRId64, text, algo->workspace);
}

const char *product_choice(const ProductLibrary *l, const ProductAlgo *algo, uint32_t n, Arena *a)
{
    const char *text = arena_printf(a, "%s:%s:", product_unpinned, l->pin);
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        any |= algo[i].workspace >= 0;
        text = arena_printf(a, "%s%s%s", text, i ? "," : "", product_algo_text(&algo[i], a));
    }
    return any ? text : NULL;
}

bool product_algo_parse(const char **s, ProductAlgo *out)
{
    char *end;
    *out = (ProductAlgo){.workspace = -1};
    if (**s == '-') {
        ++*s;
        return true;
    }
    for (int i = 0; i < WORDS; i++) {
        out->algo.data[i] = strtoull(*s, &end, 16);
        TRY(end > *s);
        *s = end;
        if (*end != '.')
            break;
        ++*s;
    }
    TRY(**s == '+');
    out->workspace = strtoll(*s + 1, &end, 10);
    TRY(end > *s + 1 && out->workspace >= 0);
    *s = end;
    return true;
}

bool product_parse(const ProductLibrary *l, const char *choice, uint32_t n, ProductAlgo *out)
{
    char head[64];
    size_t length = (size_t)snprintf(head, sizeof head, "%s:%s:", product_unpinned, l->lt ? l->pin : "");
    for (uint32_t i = 0; i < n; i++)
        out[i] = (ProductAlgo){.workspace = -1};
    if (!choice)
        return true;
    TRY(l->lt && strncmp(choice, head, length) == 0);
    choice += length;
    for (uint32_t i = 0; i < n; i++)
        TRY((i == 0 || *choice++ == ',') && product_algo_parse(&choice, &out[i]));
    return *choice == '\0';
}
