/* gemm.c -- from the description of a node to matrix products. */
#include "gemm.h"
#include <string.h>

/* ---- batches ------------------------------------------------------------------------------------ */

/* Adds an innermost dimension of calls, merged with the last one if the strides of all operands allow it. */
static void add_dim(Gemms *s, int64_t extent, int64_t a, int64_t b, int64_t y)
{
    const int64_t stride[GEMM_OPERANDS] = {
        [GEMM_A] = a, [GEMM_B] = b, [GEMM_Y] = y, [GEMM_C] = y, [GEMM_X] = y};
    bool merges = s->rank > 0;
    if (extent == 1)
        return;
    for (int o = 0; o < GEMM_OPERANDS && merges; o++)
        merges = s->stride[s->rank - 1][o] == stride[o] * extent;
    s->rank += !merges;
    s->extent[s->rank - 1] = merges ? s->extent[s->rank - 1] * extent : extent;
    memcpy(s->stride[s->rank - 1], stride, sizeof stride);
}

static void drop_dim(Gemms *s, int d)
{
    s->rank--;
    memmove(s->extent + d, s->extent + d + 1, (size_t)(s->rank - d) * sizeof *s->extent);
    memmove(s->stride + d, s->stride + d + 1, (size_t)(s->rank - d) * sizeof *s->stride);
}

/* The innermost calls become rows of one if they share b and their rows of a and y follow each other; of the
 * dimensions that are left the longest becomes the library's batch. */
static void fold_calls(Gemms *s)
{
    Gemm *g = &s->g;
    int last = s->rank - 1, longest = 0;
    if (last >= 0 && !g->ta && s->stride[last][GEMM_B] == 0 && s->stride[last][GEMM_A] == g->m * g->lda &&
        s->stride[last][GEMM_Y] == g->m * g->ldy) {
        g->m *= s->extent[last];
        drop_dim(s, last);
    }
    for (int d = 1; d < s->rank; d++)
        longest = s->extent[d] > s->extent[longest] ? d : longest;
    if (s->rank == 0)
        return;
    g->batch = s->extent[longest];
    g->sa = s->stride[longest][GEMM_A];
    g->sb = s->stride[longest][GEMM_B];
    g->sy = s->stride[longest][GEMM_Y];
    drop_dim(s, longest);
}

/* ---- matrix products ---------------------------------------------------------------------------- */

/* Elements of t from one matrix to the next in batch dimension d of a result of that rank; 0: t has one. */
static int64_t batch_stride(const Type *t, int rank, int d)
{
    int64_t stride[MAX_RANK];
    int own = d - (rank - t->rank);
    if (own < 0 || t->dim[own] == 1)
        return 0;
    type_strides(t, stride);
    return stride[own];
}

static void describe_matmul(Gemms *s, const LibDesc *of)
{
    const Type *a = &of->in[0], *b = &of->in[1], *y = &of->out;
    Gemm *g = &s->g;
    g->ta = of->matmul.ta != 0;
    g->tb = of->matmul.tb != 0;
    g->gelu = (int)of->gelu;
    g->adds = of->nin > 2 && of->in[2].dt != DT_NONE && g->gelu != GELU_BWD;
    g->m = of->rows ? of->rows : y->dim[y->rank - 2];
    g->n = g->ldy = y->dim[y->rank - 1];
    g->k = a->dim[a->rank - (g->ta ? 2 : 1)];
    g->lda = a->dim[a->rank - 1];
    g->ldb = b->dim[b->rank - 1];
    g->bias = of->nin > 3 && of->in[3].dt != DT_NONE;
    s->operand[GEMM_B] = 1;
    s->operand[GEMM_C] = 2;
    s->operand[GEMM_BIAS] = 3;
    s->operand[GEMM_X] = g->gelu == GELU_BWD ? 2 : of->nin + 1;
    for (int d = 0; d < y->rank - 2; d++)
        add_dim(s, y->dim[d], batch_stride(a, y->rank, d), batch_stride(b, y->rank, d),
                batch_stride(y, y->rank, d));
}

/* ---- convolutions ------------------------------------------------------------------------------- */

static int64_t places(const Type *t)
{
    int64_t n = 1;
    for (int i = 2; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

/* Is it a convolution whose window is one position, at every place of an image? */
static bool has_point_window(const LibDesc *of)
{
    const Type *w = of->op == LIB_CONV_BWD_WEIGHTS ? &of->out : &of->in[1];
    return of->conv.group == 1 && !of->conv.channels_last && places(w) == 1 &&
           ints_are(&of->conv.strides, 1) && ints_are(&of->conv.pads, 0) &&
           (of->op != LIB_CONV || of->in[2].dt == DT_NONE);
}

/* Images of one place are rows of channels: Y = X W^T, dX = dY W, dW = dY^T X. */
static void describe_points(Gemms *s, const LibDesc *of, int64_t m, int64_t c, int64_t images)
{
    bool data = of->op == LIB_CONV_BWD_DATA, weights = of->op == LIB_CONV_BWD_WEIGHTS;
    Gemm *g = &s->g;
    s->operand[weights ? GEMM_A : GEMM_B] = 1;
    g->ta = weights;
    g->tb = !weights && !data;
    g->m = !weights ? images : of->rows ? of->rows : m;
    g->n = g->ldy = weights || data ? c : m;
    g->k = weights ? images : data ? m : c;
    g->lda = weights || data ? m : c;
    g->ldb = c;
}

/* An image is a matrix of channels by places: Y = W X, dX = W^T dY, dW = sum of dY X^T. */
static void describe_conv(Gemms *s, const LibDesc *of)
{
    bool data = of->op == LIB_CONV_BWD_DATA, weights = of->op == LIB_CONV_BWD_WEIGHTS;
    const Type *w = weights ? &of->out : &of->in[1], *x = data ? &of->out : &of->in[0];
    int64_t m = w->dim[0], c = w->dim[1], at = places(x);
    Gemm *g = &s->g;
    s->operand[GEMM_C] = of->nin; /* its own result */
    if (at == 1) {
        describe_points(s, of, m, c, x->dim[0]);
        return;
    }
    s->operand[weights ? GEMM_B : GEMM_A] = weights ? 0 : 1;
    s->operand[weights ? GEMM_A : GEMM_B] = weights ? 1 : 0;
    g->ta = data;
    g->tb = s->sums = weights;
    g->m = weights && of->rows ? of->rows : data ? c : m;
    g->n = g->ldy = weights ? c : at;
    g->k = weights ? at : data ? m : c;
    g->lda = weights ? at : c;
    g->ldb = at;
    if (weights)
        add_dim(s, x->dim[0], m * at, c * at, 0);
    else
        add_dim(s, x->dim[0], 0, g->k * at, g->m * at);
}

/* ---- both --------------------------------------------------------------------------------------- */

static bool types_fit(const LibDesc *of)
{
    DType in = of->in[0].dt, out = of->out.dt;
    bool added = of->op != LIB_MATMUL || of->nin < 3 || of->in[2].dt == DT_NONE || of->in[2].dt == out;
    return dtype_is_float(in) && of->in[1].dt == in && (out == in || out == dtype_sum(in)) && added;
}

bool gemm_describe(Gemms *s, const LibDesc *of)
{
    memset(s, 0, sizeof *s);
    if (!of || of->nin < 2 || of->panels || !types_fit(of) || type_count(&of->out) == 0 ||
        type_count(&of->in[0]) == 0 || type_count(&of->in[1]) == 0 ||
        (of->op != LIB_MATMUL && !has_point_window(of)))
        return false;
    s->g.in = of->in[0].dt;
    s->g.out = of->out.dt;
    s->g.batch = 1;
    s->g.tf32 = s->g.in == DT_F32 && (of->op == LIB_MATMUL ? of->matmul.tf32 : of->conv.tf32);
    s->operand[GEMM_Y] = of->nin;
    (of->op == LIB_MATMUL ? describe_matmul : describe_conv)(s, of);
    if (!s->sums)
        fold_calls(s);
    bool rounds = s->sums && s->g.out != dtype_sum(s->g.in); /* every partial sum */
    return gemm_calls(s) <= (rounds ? 1 : s->sums ? GEMM_SUM_CALLS : GEMM_CALLS);
}

int64_t gemm_calls(const Gemms *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->extent[d];
    return n;
}

Gemm gemm_call(const Gemms *s, int64_t i, int64_t at[GEMM_OPERANDS])
{
    Gemm g = s->g;
    int64_t rest = i;
    g.adds |= s->sums && i > 0;
    for (int o = 0; o < GEMM_OPERANDS; o++)
        at[o] = 0;
    for (int d = s->rank; d-- > 0;) {
        int64_t j = rest % s->extent[d];
        rest /= s->extent[d];
        for (int o = 0; o < GEMM_OPERANDS; o++)
            at[o] += j * s->stride[d][o] * dtype_size[o < GEMM_Y ? g.in : g.out];
    }
    return g;
}

int64_t gemm_bytes(const Gemm *g, GemmOperand operand)
{
    int64_t rows = g->m, cols = g->n, ld = g->ldy, stride = g->sy;
    if (operand == GEMM_BIAS)
        return g->n * dtype_size[g->out];
    if (operand == GEMM_A) {
        rows = g->ta ? g->k : g->m;
        cols = g->ta ? g->m : g->k;
        ld = g->lda;
        stride = g->sa;
    } else if (operand == GEMM_B) {
        rows = g->tb ? g->n : g->k;
        cols = g->tb ? g->k : g->n;
        ld = g->ldb;
        stride = g->sb;
    }
    return ((g->batch - 1) * stride + (rows - 1) * ld + cols) * dtype_size[operand < GEMM_Y ? g->in : g->out];
}
