/* cublaslt.c -- a libcublasLt for tests: products computed by the processor, as their descriptors say, in
 * streams of the fake driver.  Sums are in f32, or f64.
 *
 * It has algorithms that add in different orders (one chain, or two that are added from workspace), with and
 * without a demand on alignment, and knows its own by their version.  What a program must not do ends the
 * test: a heuristic, a handle or a descriptor in a step, workspace that is too small or misaligned, operands
 * that leave what is allocated.
 *
 *   FAKE_CUBLASLT=13.1.0   the version
 *   FAKE_CUBLASLT_SLOW=02  the algorithms that take long, by their digits: 0 and 2
 *   FAKE_CUBLASLT_WORD=7   the last word of all algorithms, which means nothing
 *   FAKE_CUBLASLT_MORE=02  the algorithms whose check asks for more workspace than the heuristic says
 *   FAKE_CUBLASLT_PLAIN=1  there are no algorithms for products with an epilogue */
#include "gpu.h"
#include <math.h>

struct cublasLtContext {
    int unused;
};
struct LtMatmulDesc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld, aux_stride;
};
struct LtMatrixLayout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batch;
};
struct LtMatmulPreference {
    uint64_t workspace;
    uint32_t schemes, align[4];
};

#define LT(name, ...) EXPORT cublasStatus_t name(__VA_ARGS__);
#include "runtime/cuda/symbols.def"

enum { NO_EPILOGUE = 1 }; /* CUBLASLT_EPILOGUE_DEFAULT */
enum { NOT_INITIALIZED = 1, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

static void version(int v[3])
{
    const char *text = setting("FAKE_CUBLASLT");
    if (!*text || sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]) != 3)
        memcpy(v, (int[]){13, 0, 0}, 3 * sizeof *v);
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType which, int *value)
{
    int v[3];
    version(v);
    *value = v[which];
    return 0;
}

/* ---- objects ------------------------------------------------------------------------------------ */

static void *new_object(size_t size)
{
    check_step("a handle or descriptor of cuBLASLt is made in a step");
    gpu.objects++;
    return calloc(1, size);
}

static cublasStatus_t free_object(void *object)
{
    free(object);
    gpu.objects--;
    return 0;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    check_context();
    return (*h = new_object(sizeof **h)) ? 0 : NOT_INITIALIZED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return free_object(h); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *d = new_object(sizeof **d);
    **d = (struct LtMatmulDesc){.compute = compute, .scale = scale, .epilogue = NO_EPILOGUE};
    return 0;
}

static bool has_bias(const struct LtMatmulDesc *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
static bool is_dgelu(const struct LtMatmulDesc *d) { return d->epilogue == CUBLASLT_EPILOGUE_DGELU; }
static bool has_aux(const struct LtMatmulDesc *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || is_dgelu(d);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return free_object(d); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
                                              const void *v, size_t n)
{
    if (attr == CUBLASLT_MATMUL_DESC_EPILOGUE && n == sizeof d->epilogue)
        memcpy(&d->epilogue, v, n);
    else if (attr == CUBLASLT_MATMUL_DESC_BIAS_POINTER && n == sizeof d->bias)
        memcpy(&d->bias, v, n);
    else if (attr == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER && n == sizeof d->aux)
        memcpy(&d->aux, v, n);
    else if (attr == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD && n == sizeof d->aux_ld)
        memcpy(&d->aux_ld, v, n);
    else if (attr == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE && n == sizeof d->aux_stride)
        memcpy(&d->aux_stride, v, n);
    else if (attr >= CUBLASLT_MATMUL_DESC_TRANSA && attr <= CUBLASLT_MATMUL_DESC_TRANSB && n == sizeof *d->op)
        memcpy(&d->op[attr - CUBLASLT_MATMUL_DESC_TRANSA], v, n);
    else
        return INVALID;
    return d->epilogue == NO_EPILOGUE || has_bias(d) || has_aux(d) ? 0 : INVALID;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *l = new_object(sizeof **l);
    **l = (struct LtMatrixLayout){type, rows, cols, ld, 0, 1};
    return ld < (int64_t)rows ? INVALID : 0;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return free_object(l); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr, const void *v, size_t n)
{
    if (attr == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && n == sizeof l->batch)
        memcpy(&l->batch, v, n);
    else if (attr == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && n == sizeof l->stride)
        memcpy(&l->stride, v, n);
    else
        return INVALID;
    return 0;
}

/* Makes preferences with the defaults of the library. */
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new_object(sizeof **p);
    **p = (struct LtMatmulPreference){0, 7, {256, 256, 256, 256}};
    return 0;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return free_object(p); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void *v,
                                                    size_t n)
{
    uint32_t align = (uint32_t)attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && n == sizeof p->workspace)
        memcpy(&p->workspace, v, n);
    else if (attr == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && n == sizeof p->schemes)
        memcpy(&p->schemes, v, n);
    else if (align < 4 && n == sizeof *p->align)
        memcpy(&p->align[align], v, n);
    else
        return INVALID;
    return 0;
}

/* ---- products ----------------------------------------------------------------------------------- */

typedef struct {
    struct LtMatmulDesc op;
    struct LtMatrixLayout a, b, c, d;
    int64_t m, n, k;
} Problem;

static size_t size_of(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
static size_t sum_size(const Problem *p) { return p->op.scale == CUDA_R_64F ? 8 : 4; }

static bool types_fit(const Problem *p)
{
    cudaDataType_t in = p->a.type, out = p->d.type;
    bool half = in == CUDA_R_16F || in == CUDA_R_16BF;
    if (p->b.type != in || p->c.type != out || (out != in && !(half && out == CUDA_R_32F)))
        return false;
    if (in == CUDA_R_64F)
        return p->op.compute == CUBLAS_COMPUTE_64F && p->op.scale == CUDA_R_64F;
    return p->op.scale == CUDA_R_32F && (p->op.compute == CUBLAS_COMPUTE_32F ||
                                         (p->op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in == CUDA_R_32F));
}

static bool describe(Problem *p, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    *p = (Problem){*op, *a, *b, *c, *d, 0, 0, 0};
    p->m = (int64_t)(op->op[0] ? a->cols : a->rows);
    p->k = (int64_t)(op->op[0] ? a->rows : a->cols);
    p->n = (int64_t)(op->op[1] ? b->rows : b->cols);
    return types_fit(p) && p->k == (int64_t)(op->op[1] ? b->cols : b->rows) && p->m == (int64_t)d->rows &&
           p->n == (int64_t)d->cols && c->rows == d->rows && c->cols == d->cols && p->m && p->n && p->k &&
           a->batch == d->batch && b->batch == d->batch && c->batch == d->batch &&
           (!has_bias(op) || op->bias) &&
           (!has_aux(op) || (op->aux && op->aux_ld >= p->m && op->aux_ld % 8 == 0)) &&
           (d->batch == 1 || d->stride >= (p->n - 1) * d->ld + p->m);
}

/* The words of an algorithm. */
enum { ID, SPLITS, ALIGN, VERSION, OTHER };
static const struct {
    uint64_t splits, align;
} algos[] = {{1, 1}, {2, 16}, {1, 16}, {2, 1}};
enum { ALGOS = sizeof algos / sizeof *algos };

static cublasLtMatmulAlgo_t algo_of(uint64_t id)
{
    int v[3];
    version(v);
    return (cublasLtMatmulAlgo_t){{id, algos[id].splits, algos[id].align, (uint64_t)(v[0] * 100 + v[1]),
                                   strtoull(setting("FAKE_CUBLASLT_WORD"), NULL, 10)}};
}

static size_t workspace_of(const Problem *p, const cublasLtMatmulAlgo_t *algo)
{
    uint64_t splits = algo->data[SPLITS];
    return splits > 1 ? splits * (size_t)(p->m * p->n * p->d.batch) * sum_size(p) : 0;
}

static bool aligned(const struct LtMatrixLayout *l, uint64_t to)
{
    size_t size = size_of(l->type);
    return (uint64_t)l->ld * size % to == 0 && (uint64_t)l->stride * size % to == 0;
}

/* Does the algorithm take the problem, by what the layouts alone tell of alignment? */
static bool takes(const Problem *p, const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulAlgo_t own = algo_of(algo->data[ID] % ALGOS);
    uint64_t to = algo->data[ALIGN];
    own.data[OTHER] = algo->data[OTHER];
    return memcmp(&own, algo, sizeof own) == 0 && (int64_t)algo->data[SPLITS] <= p->k && aligned(&p->a, to) &&
           aligned(&p->b, to) && aligned(&p->c, to) && aligned(&p->d, to);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    Problem p;
    if (!h || !describe(&p, op, a, b, c, d))
        return INVALID;
    bool more = algo->data[ID] < ALGOS && strchr(setting("FAKE_CUBLASLT_MORE"), '0' + (int)algo->data[ID]);
    result->workspaceSize = workspace_of(&p, algo) + (more ? 4 : 0);
    result->state = takes(&p, algo) ? 0 : NOT_SUPPORTED;
    return result->state;
}

/* Long sums get the algorithms in reverse order, one that adds in two parts first. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int want,
                                              cublasLtMatmulHeuristicResult_t *result, int *n)
{
    enum { LONG = 32 };
    Problem p;
    check_step("a heuristic is asked in a step");
    if (pref->schemes & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        violation("sums may be added in place or in the type of the result");
    *n = 0;
    if (!h || !describe(&p, op, a, b, c, d))
        return INVALID;
    if (*setting("FAKE_CUBLASLT_PLAIN") && op->epilogue != NO_EPILOGUE)
        return NOT_SUPPORTED;
    for (uint64_t i = 0; i < ALGOS && *n < want; i++) {
        cublasLtMatmulAlgo_t algo = algo_of(p.k >= LONG ? ALGOS - 1 - i : i);
        bool ok = takes(&p, &algo) && workspace_of(&p, &algo) <= pref->workspace;
        for (int o = 0; o < 4; o++)
            ok = ok && pref->align[o] % algo.data[ALIGN] == 0;
        if (ok)
            result[(*n)++] =
                (cublasLtMatmulHeuristicResult_t){.algo = algo, .workspaceSize = workspace_of(&p, &algo)};
    }
    return *n ? 0 : NOT_SUPPORTED;
}

/* ---- computing ---------------------------------------------------------------------------------- */

typedef struct {
    Problem p;
    int id, splits;
    const char *a, *b, *c;
    char *d, *partial;
    size_t workspace; /* bytes */
    double beta;
} Call;

static float bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(f != f ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Rounds f to 10 bits of fraction. */
static float tf32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static double load(const void *at, cudaDataType_t type, int64_t i)
{
    return type == CUDA_R_64F    ? ((const double *)at)[i]
           : type == CUDA_R_16F  ? (double)((const _Float16 *)at)[i]
           : type == CUDA_R_16BF ? (double)bf16(((const uint16_t *)at)[i])
                                 : (double)((const float *)at)[i];
}

static void store(void *at, cudaDataType_t type, int64_t i, double v)
{
    if (type == CUDA_R_64F)
        ((double *)at)[i] = v;
    else if (type == CUDA_R_16F)
        ((_Float16 *)at)[i] = (_Float16)(float)v;
    else if (type == CUDA_R_16BF)
        ((uint16_t *)at)[i] = to_bf16((float)v);
    else
        ((float *)at)[i] = (float)v;
}

/* op(X) of batch t as n rows of k elements, which are rounded to tf32 if the product computes in that; the
 * caller frees it. */
static double *pack(const Call *c, const char *at, const struct LtMatrixLayout *l, bool rows_of_k, int64_t n,
                    int64_t t)
{
    int64_t k = c->p.k;
    double *x = malloc((size_t)(n * k) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            double v = load(at, l->type, t * l->stride + (rows_of_k ? i * l->ld + j : j * l->ld + i));
            x[i * k + j] = c->p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? (double)tf32((float)v) : v;
        }
    return x;
}

enum { LANES = 16 };
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)))); /* one sum of each of LANES rows */

/* The m rows of k elements in panels: elements of LANES rows lie beside each other.  The caller frees it. */
static Lanes *beside(const double *x, int64_t m, int64_t k)
{
    Lanes *panel = aligned_alloc(sizeof *panel, (size_t)((m + LANES - 1) / LANES * k) * sizeof *panel);
    for (int64_t i = 0; i < (m + LANES - 1) / LANES * LANES; i++)
        for (int64_t j = 0; j < k; j++)
            panel[i / LANES * k + j][i % LANES] = i < m ? (float)x[i * k + j] : 0;
    return panel;
}

enum { COLUMNS = 4 };

/* Multiplies all rows of x by COLUMNS columns y, over k in [from, to); each sum is one chain in the type of
 * sums.  panel: x as beside() has it. */
static void dots(const Call *c, const double *x, const Lanes *panel, const double *const y[COLUMNS],
                 int64_t from, int64_t to, double *const out[COLUMNS])
{
    const Problem *p = &c->p;
    for (int64_t i = 0; p->op.scale == CUDA_R_64F && i < p->m; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = 0;
            for (int64_t k = from; k < to; k++)
                sum += x[i * p->k + k] * y[j][k];
            out[j][i] = sum;
        }
    for (int64_t i = 0; p->op.scale != CUDA_R_64F && i < p->m; i += LANES) {
        Lanes sum[COLUMNS] = {0};
        for (int64_t k = from; k < to; k++)
            for (int j = 0; j < COLUMNS; j++)
                sum[j] += panel[i / LANES * p->k + k] * (float)y[j][k];
        for (int j = 0; j < COLUMNS; j++)
            for (int64_t l = 0; l < LANES && i + l < p->m; l++)
                out[j][i + l] = (double)sum[j][l];
    }
}

/* The derivative of GELU in its tanh form. */
static double gelu_slope(double x)
{
    double t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286536 * (1 + 0.134145 * x * x);
}

static double add_as(cudaDataType_t type, double v, double add)
{
    return type == CUDA_R_64F ? v + add : (double)((float)v + (float)add);
}

/* Adds C and the bias to v.  For factors of 16 bits their order depends on whether C is D, as on a GPU. */
static double add_rest(const Call *c, int64_t i, int64_t at, double v)
{
    const Problem *p = &c->p;
    bool half = p->a.type == CUDA_R_16F || p->a.type == CUDA_R_16BF, apart = half && c->c != c->d;
    double bias = has_bias(&p->op) ? load(p->op.bias, p->d.type, i) : 0;
    if (apart && has_bias(&p->op))
        v = add_as(p->op.scale, v, bias);
    if (c->beta != 0)
        v = add_as(p->op.scale, v, load(c->c, p->c.type, at));
    if (!apart && has_bias(&p->op))
        v = add_as(p->op.scale, v, bias);
    return v;
}

/* Computes part s of all sums of batch t.  All but the last part go to the workspace; the last one adds them
 * and writes the result. */
static void multiply(const Call *c, const double *x, const Lanes *panel, const double *y, int64_t t, int s)
{
    const Problem *p = &c->p;
    int64_t from = p->k * s / c->splits, to = p->k * (s + 1) / c->splits;
    cudaDataType_t sum = p->op.scale;
    double *column[COLUMNS] = {malloc((size_t)(COLUMNS * p->m) * sizeof *column[0])};
    for (int j = 1; j < COLUMNS; j++)
        column[j] = column[j - 1] + p->m;
    for (int64_t j = 0; j < p->n; j++) {
        const double *of[COLUMNS]; /* the last column again where there are no more */
        for (int64_t o = 0; o < COLUMNS; o++)
            of[o] = y + (j + o < p->n ? j + o : p->n - 1) * p->k;
        if (j % COLUMNS == 0)
            dots(c, x, panel, of, from, to, column);
        for (int64_t i = 0; i < p->m; i++) {
            int64_t at = t * p->d.stride + j * p->d.ld + i;
            int64_t part = (t * p->n + j) * p->m + i, all = p->m * p->n * p->d.batch;
            double v = column[j % COLUMNS][i];
            if (s + 1 < c->splits) {
                store(c->partial, sum, s * all + part, v);
                continue;
            }
            for (int o = 0; o < s; o++) {
                double other = load(c->partial, sum, o * all + part);
                v = sum == CUDA_R_64F ? v + other : (double)((float)v + (float)other);
            }
            v = add_rest(c, i, at, v);
            int64_t aux = t * p->op.aux_stride + j * p->op.aux_ld + i;
            if (is_dgelu(&p->op))
                v *= gelu_slope(load(p->op.aux, p->d.type, aux));
            else if (has_aux(&p->op)) {
                store(p->op.aux, p->d.type, aux, v);
                v = 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
            }
            store(c->d, p->d.type, at, v);
        }
    }
    free(column[0]);
}

static void touch(const void *at, const struct LtMatrixLayout *l, bool write)
{
    for (int64_t t = 0; t < l->batch; t++)
        for (int64_t j = 0; j < (int64_t)l->cols; j++)
            check_access((const char *)at + (size_t)(t * l->stride + j * l->ld) * size_of(l->type),
                         (size_t)l->rows * size_of(l->type), write);
}

static void touch_all(const Call *c)
{
    const Problem *p = &c->p;
    touch(c->a, &p->a, false);
    touch(c->b, &p->b, false);
    if (c->beta != 0)
        touch(c->c, &p->c, false);
    if (has_bias(&p->op))
        check_access(p->op.bias, (size_t)p->m * size_of(p->d.type), false);
    if (has_aux(&p->op))
        touch(p->op.aux,
              &(struct LtMatrixLayout){p->d.type, p->d.rows, p->d.cols, p->op.aux_ld, p->op.aux_stride,
                                       p->d.batch},
              !is_dgelu(&p->op));
    check_access(c->partial, c->workspace, true);
    touch(c->d, &p->d, true);
}

static void run_product(void *work)
{
    const Call *c = work;
    const Problem *p = &c->p;
    touch_all(c);
    for (int64_t t = 0; t < p->d.batch; t++) {
        double *x = pack(c, c->a, &p->a, p->op.op[0], p->m, t),
               *y = pack(c, c->b, &p->b, !p->op.op[1], p->n, t);
        Lanes *panel = beside(x, p->m, p->k);
        for (int s = 0; s < c->splits; s++)
            multiply(c, x, panel, y, t, s);
        free(panel);
        free(x);
        free(y);
    }
}

static double seconds_of(const Call *c)
{
    const Problem *p = &c->p;
    const double slow = strchr(setting("FAKE_CUBLASLT_SLOW"), '0' + c->id) ? 3e-3 : 0;
    return slow + 1e-11 * c->splits * (double)p->m * (double)p->n * (double)p->k * (double)p->d.batch;
}

static void check_operand(const void *at, const struct LtMatrixLayout *l, uint64_t align)
{
    size_t last = (size_t)((l->batch - 1) * l->stride + ((int64_t)l->cols - 1) * l->ld + (int64_t)l->rows);
    const Block *b = block_at(at, last * size_of(l->type));
    if (!b || !b->device)
        violation("an operand of a product lies outside of the device's memory");
    if ((uintptr_t)at % align || (uintptr_t)at % size_of(l->type))
        violation("an operand of a product is not aligned as its algorithm wants it");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb,
                              const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t bytes, cudaStream_t stream)
{
    Call call = {.a = a, .b = b, .c = c, .d = d, .partial = workspace};
    if (!h || !algo || !describe(&call.p, op, la, lb, lc, ld) || !takes(&call.p, algo))
        return INVALID;
    call.id = (int)algo->data[ID];
    call.splits = (int)algo->data[SPLITS];
    call.beta = load(beta, op->scale, 0);
    size_t need = call.workspace = workspace_of(&call.p, algo);
    if (load(alpha, op->scale, 0) != 1 || (call.beta != 0 && call.beta != 1))
        return INVALID;
    if (bytes < need || (need && ((uintptr_t)workspace % 256 || !block_at(workspace, need))))
        violation("the workspace of a product is too small, misaligned or not allocated");
    check_operand(a, la, algo->data[ALIGN]);
    check_operand(b, lb, algo->data[ALIGN]);
    check_operand(d, ld, algo->data[ALIGN]);
    if (call.beta != 0)
        check_operand(c, lc, algo->data[ALIGN]);
    if (has_aux(op))
        check_operand(
            op->aux,
            &(struct LtMatrixLayout){ld->type, ld->rows, ld->cols, op->aux_ld, op->aux_stride, ld->batch},
            16);
    if (has_bias(op))
        check_operand(op->bias, &(struct LtMatrixLayout){ld->type, ld->rows, 1, (int64_t)ld->rows, 0, 1}, 1);
    enqueue_call(stream, run_product, memcpy(malloc(sizeof call), &call, sizeof call), seconds_of(&call));
    return gpu.lost ? EXECUTION_FAILED : 0;
}
