/* cuda_samples.c -- samples of sums by an index (of rows and of elements), of pools, of cumulative
 * sums, and of transposes of images with few channels. */
#include "cuda_samples.h"
#include <math.h>

/* ---- sums by an index -------------------------------------------------------------------------- */

/* For each of `outer`, adds `count` vectors of `inner` elements to `rows` rows by their indices.  `most`
 * percent of the indices are equal; some may be out of range, whose vectors are not added. */
static const struct {
    DType dt;
    int64_t outer, count, inner;
    int rows, most;
} sums[] = {{DT_F32, 1, 200, 40, 1500, 30}, {DT_F32, 1, 500, 64, 700, 30},  {DT_F32, 2, 1100, 60, 1, 0},
            {DT_F32, 1, 300, 7, 9001, 90},  {DT_F32, 1, 200, 50, 1500, 30}, {DT_BF16, 1, 300, 60, 1500, 30},
            {DT_F16, 2, 1100, 61, 9, 20},   {DT_F64, 3, 333, 34, 60, 5}};
enum { SUMS = sizeof sums / sizeof *sums };

static void sum_sample(Sample *s, int i)
{
    int64_t count = sums[i].count;
    int rows = sums[i].rows;
    *s = (Sample){.seed = (uint64_t)rows, .dt = sums[i].dt, .op = OP_gather_bwd};
    graph_init(&s->g, &s->arena, &s->diag);
    Type x = type_make(s->dt, 3, (int64_t[]){sums[i].outer, rows, sums[i].inner});
    sample_reals(s, type_make(s->dt, 3, (int64_t[]){sums[i].outer, count, sums[i].inner}), -1, 1);
    sample_ints(s, type_make(rows % 2 ? DT_I32 : DT_I64, 1, &count), -rows - 1, rows);
    for (int64_t k = 0; k < count; k++)
        if (sample_chance(s, sums[i].most))
            tensor_set_i(&s->data[1], k, rows / 3);
    sample_build(s, &(GatherBwdAttrs){1, sample_all_dims(&x)});
}

/* ---- pools --------------------------------------------------------------------------------------- */

/* A pool along three dimensions, the last of which may be the channels: extents of the input, of the window,
 * steps, pads (three in front, three behind), dilations, extents of the result. */
typedef struct {
    int64_t in[3], window[3], step[3], pads[6], dilation[3], out[3];
} Window;
static const Window windows[] = {
    {{9, 8, 16}, {3, 2, 1}, {2, 1, 1}, {1, 0, 0, 1, 1, 0}, {1, 2, 1}, {5, 7, 16}},
    {{9, 8, 6}, {3, 2, 1}, {2, 1, 1}, {1, 0, 0, 1, 1, 0}, {1, 2, 1}, {5, 7, 6}},
    {{37, 19, 72}, {3, 3, 1}, {2, 2, 1}, {1, 1, 0, 1, 1, 0}, {1, 1, 1}, {19, 10, 72}},
    {{33, 5, 16}, {2, 3, 1}, {3, 1, 1}, {0, 1, 0, 0, 1, 0}, {2, 1, 1}, {11, 5, 16}},
    {{20, 18, 8}, {13, 13, 1}, {1, 1, 1}, {6, 6, 0, 6, 6, 0}, {1, 1, 1}, {20, 18, 8}},
    {{7, 9, 33}, {2, 3, 3}, {2, 1, 2}, {1, 1, 1, 0, 1, 1}, {1, 2, 2}, {4, 7, 16}},
    {{18, 20, 8}, {17, 16, 1}, {1, 1, 1}, {8, 8, 0, 8, 7, 0}, {1, 1, 1}, {18, 20, 8}}, /* places are i32 */
};
static const Op pools[] = {OP_max_pool, OP_max_pool_bwd, OP_avg_pool, OP_avg_pool_bwd};
enum { WINDOWS = sizeof windows / sizeof *windows, KINDS = 4, POOLS = WINDOWS * KINDS * 2 };

/* Makes ties in x, as there are behind a ReLU, and windows that see nothing but -inf. */
static void make_ties(Tensor *x, const Window *w)
{
    int64_t channels = w->in[2], n = type_count(&x->type);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / channels / w->in[1] % w->in[0];
        double v = tensor_f(x, i);
        tensor_set_f(x, i, row < 5 ? -INFINITY : v > 0.2 ? v : 0);
    }
}

static void pool_sample(Sample *s, int i)
{
    const Window *w = &windows[i / (2 * KINDS)];
    bool half = i / KINDS % 2 && w->window[0] < 13; /* the interpreter rounds after every addition */
    *s = (Sample){.seed = (uint64_t)i, .dt = half ? DT_BF16 : DT_F32, .op = pools[i % KINDS]};
    PoolAttrs at = {.include_pad = i / KINDS % 2 == 0};
    Ints *part[] = {&at.kernel, &at.strides, &at.dilations, &at.out};
    const int64_t *of[] = {w->window, w->step, w->dilation, w->out};
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 4; k++) {
            part[k]->n = 3;
            part[k]->v[d] = of[k][d];
        }
    at.pads.n = 6;
    for (int d = 0; d < 6; d++)
        at.pads.v[d] = w->pads[d];
    Type x = type_make(s->dt, 5, (int64_t[]){2, 1, w->in[0], w->in[1], w->in[2]}), y = x;
    for (int d = 0; d < 3; d++)
        y.dim[2 + d] = w->out[d];
    at.shape = sample_all_dims(&x);
    graph_init(&s->g, &s->arena, &s->diag);
    if (s->op == OP_max_pool_bwd)
        sample_places(s, &at, &x);
    else if (s->op != OP_avg_pool_bwd)
        sample_reals(s, x, -1, 1);
    if (s->op == OP_max_pool && i >= 4 * KINDS)
        make_ties(&s->data[0], w);
    if (s->op == OP_avg_pool_bwd || s->op == OP_max_pool_bwd)
        sample_reals(s, y, -1, 1);
    sample_build(s, &at);
}

/* ---- few rows or columns, transposed ----------------------------------------------------------- */

static const int64_t images[][3] = {{2, 3, 1100}, {2, 1100, 3}, {1, 600, 9}, {3, 16, 300}};
enum { IMAGES = sizeof images / sizeof *images };

static void image_sample(Sample *s, int i)
{
    *s = (Sample){.seed = (uint64_t)i, .dt = i / IMAGES ? DT_BF16 : DT_F32, .op = OP_transpose};
    graph_init(&s->g, &s->arena, &s->diag);
    sample_reals(s, type_make(s->dt, 3, images[i % IMAGES]), -1, 1);
    sample_build(s, &(TransposeAttrs){{3, {0, 2, 1}}});
}

/* ---- sums of elements by index ----------------------------------------------------------------- */

/* x has `rows` rows of `extent` elements, to each of which `added` values are added; `most` percent of the
 * indices are equal; shared: all batches have the same indices. */
static const struct {
    int rows, extent, added, most;
    bool shared;
} elements[] = {{3, 100, 77, 30, true},
                {2, 33, 200, 95, false},
                {5, 1, 40, 0, true},
                {9, 2000, 31, 0, false},
                {3, 2100, 50, 10, false}};
enum { ELEMENTS = sizeof elements / sizeof *elements };

/* The forms of such a sum: a scatter; the gradient of a gather in f32, in bf16, and from bf16 to f32. */
enum { SCATTER, BWD_F32, BWD_BF16, BWD_WIDE, FORMS };

static void elements_sample(Sample *s, int sample)
{
    const int i = sample % ELEMENTS, form = sample / ELEMENTS;
    const int n = elements[i].extent;
    const bool shared = elements[i].shared;
    const DType dt = form < BWD_BF16 ? DT_F32 : DT_BF16;
    *s = (Sample){.seed = (uint64_t)i, .dt = dt, .op = form ? OP_gather_elements_bwd : OP_scatter_elements};
    graph_init(&s->g, &s->arena, &s->diag);
    Type x = type_make(dt, 3, (int64_t[]){2, elements[i].rows, n}), u = x, ix;
    u.dim[1] -= shared ? 0 : 1; /* a row that nothing is added to */
    u.dim[2] = elements[i].added;
    ix = type_with(u, i % 2 ? DT_I32 : DT_I64);
    ix.dim[0] = shared ? 1 : ix.dim[0];
    sample_reals(s, form ? u : x, -1, 1);
    sample_ints(s, ix, -n - 1, n);
    for (int64_t k = 0; k < type_count(&ix); k++)
        if (sample_chance(s, elements[i].most))
            tensor_set_i(&s->data[1], k, n / 3);
    if (form == SCATTER) {
        sample_reals(s, u, -1, 1);
        sample_build(s, &(ScatterAttrs){.axis = 2, .reduction = SCATTER_ADD, .batch = shared});
    } else {
        DType out = form == BWD_BF16 ? DT_BF16 : DT_NONE;
        sample_build(s, &(ElementsBwdAttrs){2, shared, out, sample_all_dims(&x)});
    }
}

/* ---- cumulative sums ---------------------------------------------------------------------------- */

/* Of lines in one part and in several, wide and not, along and across memory, with fewer lines than a warp
 * has threads; the first are those that have barriers. */
static const struct {
    DType dt;
    int64_t outer, extent, inner;
    bool exclusive, reverse;
} scans[] = {
    {DT_F32, 1, 9000, 1, false, false}, {DT_F32, 2, 700, 5, true, true},   {DT_BF16, 1, 20480, 1, true, true},
    {DT_F16, 3, 999, 1, false, true},   {DT_I64, 2, 6000, 1, true, false}, {DT_I32, 1, 5001, 3, false, true},
    {DT_BOOL, 1, 2056, 1, false, true}, {DT_F64, 2, 4100, 2, true, false}, {DT_F32, 70, 9, 1, true, true},
    {DT_F32, 3, 300, 70, false, true},  {DT_BF16, 5, 3, 33, true, false},  {DT_U8, 9, 64, 1, false, false}};
enum { SCANS = sizeof scans / sizeof *scans };

static void scan_sample(Sample *s, int i)
{
    *s = (Sample){.seed = (uint64_t)i, .dt = scans[i].dt, .op = OP_cumsum};
    graph_init(&s->g, &s->arena, &s->diag);
    Type t = type_make(s->dt, 3, (int64_t[]){scans[i].outer, scans[i].extent, scans[i].inner});
    if (dtype_is_float(s->dt))
        sample_reals(s, t, -1, 1);
    else
        sample_ints(s, t, 0, s->dt == DT_BOOL ? 1 : 9);
    sample_build(s, &(CumsumAttrs){1, scans[i].exclusive, scans[i].reverse});
}

/* ---- the first elements of rows ------------------------------------------------------------------- */

/* In rows of one warp and of several, found one by one or sorted, in shared memory or partly outside of it,
 * of few values, so that many are equal, and with NaN. */
static const struct {
    DType dt;
    int64_t outer, extent, inner, k;
    bool smallest;
} firsts[] = {{DT_F32, 3, 9000, 1, 9, false}, {DT_BF16, 2, 600, 3, 100, true},
              {DT_F32, 70, 64, 1, 8, true},   {DT_I64, 2, 1000, 1, 5, false},
              {DT_F16, 9, 3, 5, 3, false},    {DT_F64, 5, 130, 1, 130, false},
              {DT_F32, 2, 5000, 1, 200, true}, {DT_I64, 1, 2500, 2, 2500, false}};
enum { FIRSTS = sizeof firsts / sizeof *firsts };

static void first_sample(Sample *s, int i)
{
    *s = (Sample){.seed = (uint64_t)i, .dt = firsts[i].dt, .op = OP_topk};
    graph_init(&s->g, &s->arena, &s->diag);
    Type t = type_make(s->dt, 3, (int64_t[]){firsts[i].outer, firsts[i].extent, firsts[i].inner});
    if (dtype_is_float(s->dt))
        sample_reals(s, t, -1, 1);
    else
        sample_ints(s, t, -40, 40);
    for (int64_t j = 3; j < type_count(&t) && dtype_is_float(s->dt); j += 31)
        tensor_set_f(&s->data[0], j, j % 5 ? 0.75 : NAN);
    sample_build(s, &(TopkAttrs){1, firsts[i].k, !firsts[i].smallest});
}

/* ---- rows by tuples of indices -------------------------------------------------------------------- */

/* x[batch, extents, inner]; of `added` tuples some are equal, some out of range. */
static const struct {
    DType dt;
    int64_t batch, extent[2], inner, added;
    int how;
} tuples[] = {{DT_F32, 1, {37, 5}, 12, 700, SCATTER_ADD},  {DT_F32, 2, {1, 50}, 7, 600, SCATTER_MAX},
              {DT_BF16, 1, {40, 1}, 8, 1000, SCATTER_SET}, {DT_I64, 2, {9, 4}, 3, 520, SCATTER_SET},
              {DT_F64, 1, {3, 100}, 1, 900, SCATTER_MUL},  {DT_F32, 1, {70, 90}, 16, 100, SCATTER_MIN},
              {DT_U8, 1, {5, 5}, 6, 2000, SCATTER_SET},    {DT_F32, 1, {1, 2}, 5, 3000, SCATTER_ADD}};
enum { TUPLES = sizeof tuples / sizeof *tuples };

static void tuple_sample(Sample *s, int i)
{
    const int64_t *n = tuples[i].extent;
    *s = (Sample){.seed = (uint64_t)i, .dt = tuples[i].dt, .op = OP_scatter_nd};
    graph_init(&s->g, &s->arena, &s->diag);
    sample_numbers(s, type_make(s->dt, 4, (int64_t[]){tuples[i].batch, n[0], n[1], tuples[i].inner}), 0, 2);
    sample_ints(s, type_make(DT_I64, 3, (int64_t[]){tuples[i].batch, tuples[i].added, 2}), 0, 99);
    for (int64_t j = 0; j < type_count(&s->data[1].type); j++) {
        const int64_t most = n[j % 2], v = tensor_i(&s->data[1], j);
        tensor_set_i(&s->data[1], j, v == 99 ? most : v % 2 ? v % most : v % most - most);
    }
    sample_numbers(s, type_make(s->dt, 3, (int64_t[]){tuples[i].batch, tuples[i].added, tuples[i].inner}), 0,
                   2);
    sample_build(s, &(ScatterAttrs){.axis = 1, .reduction = tuples[i].how});
}

/* ---- writing along an axis ------------------------------------------------------------------------ */

/* x[2, extent, inner] in ranges of lines that lie side by side or not; updates are of inner or less. */
static const struct {
    DType dt;
    int64_t extent, inner, added, across;
    int how;
} writes[] = {{DT_F32, 5000, 1, 300, 1, SCATTER_ADD},  {DT_F32, 90, 13, 700, 13, SCATTER_SET},
              {DT_F32, 2500, 3, 40, 2, SCATTER_MUL},   {DT_BF16, 70, 5, 33, 5, SCATTER_MAX},
              {DT_F32, 1, 7, 129, 7, SCATTER_MIN},     {DT_F16, 300, 1, 500, 1, SCATTER_SET},
              {DT_F32, 129, 40, 1000, 40, SCATTER_ADD}, {DT_I64, 300, 5, 700, 5, SCATTER_ADD},
              {DT_BF16, 200, 1, 900, 1, SCATTER_ADD},   {DT_F64, 90, 3, 99, 2, SCATTER_MUL},
              {DT_I32, 50, 2, 300, 2, SCATTER_MAX},     {DT_U8, 7, 3, 90, 3, SCATTER_ADD}};
enum { WRITES = sizeof writes / sizeof *writes };

static void write_sample(Sample *s, int i)
{
    const int n = (int)writes[i].extent;
    *s = (Sample){.seed = (uint64_t)i, .dt = writes[i].dt, .op = OP_scatter_elements};
    graph_init(&s->g, &s->arena, &s->diag);
    Type x = type_make(s->dt, 3, (int64_t[]){2, n, writes[i].inner}), u = x;
    u.dim[1] = writes[i].added;
    u.dim[2] = writes[i].across;
    sample_numbers(s, x, -1, 1);
    sample_ints(s, type_with(u, i % 2 ? DT_I32 : DT_I64), -n - 1, n);
    sample_numbers(s, u, -1, 1);
    sample_build(s, &(ScatterAttrs){.axis = 1, .reduction = writes[i].how});
}

/* ---- attention in which blocks of queries, or of keys, have nothing to look at ------------------ */

static const struct {
    int64_t rows, cols, window;
} attentions[] = {{5, 200, 0}, {200, 5, 9}};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions };

static void attention_sample(Sample *s, int i)
{
    const int64_t rows = attentions[i / 2].rows, cols = attentions[i / 2].cols;
    *s = (Sample){.seed = (uint64_t)i, .dt = DT_F32, .op = i % 2 ? OP_attention_grad : OP_attention};
    AttentionAttrs at = {.scale = 0.3,
                         .causal = 1,
                         .window = attentions[i / 2].window,
                         .fill = -INFINITY,
                         .guard = GUARD_UNSEEN,
                         .layout = {4, {0, 0, 0, 0}}};
    Type q = type_make(s->dt, 4, (int64_t[]){1, 1, rows, 8}), k = q;
    k.dim[2] = cols;
    graph_init(&s->g, &s->arena, &s->diag);
    if (s->op == OP_attention_grad)
        sample_reals(s, q, -1, 1);
    sample_reals(s, q, -1, 1);
    sample_reals(s, k, -1, 1);
    sample_reals(s, k, -1, 1);
    if (s->op == OP_attention_grad) {
        sample_reals(s, q, -1, 1);
        sample_reals(s, type_make(DT_F32, 3, q.dim), 1, 2);
        sample_reals(s, type_make(DT_F32, 3, q.dim), 0.1, 0.5);
    }
    for (int absent = s->op == OP_attention ? 4 : 3; absent > 0; absent--)
        s->in[s->nin++] = (Val){0};
    sample_build(s, &at);
}

/* ---- attention whose products may be those of warpgroups ---------------------------------------- */

typedef struct {
    DType dt;
    int64_t size, v_size, rows, cols, heads, groups, causal, diagonal, window;
    double drop;
    int layout;
} Plain;

static Type plain_type(const Plain *x, int64_t heads, int64_t rows, int64_t size)
{
    const int *place = attention_place[x->layout];
    int64_t dim[4] = {[3] = size};
    dim[place[0]] = 2;
    dim[place[1]] = heads;
    dim[place[2]] = rows;
    return type_make(x->dt, 4, dim);
}

/* Cases with partial tiles in rows and columns, with one and two warpgroups, and with both panel widths. */
static const Plain plain[] = {
    {DT_BF16, 64, 64, 150, 150, 2, 1, 1, 0, 0, 0, 0}, {DT_BF16, 128, 128, 100, 100, 1, 1, 1, 0, 0, 0, 1},
    {DT_F16, 64, 64, 70, 130, 1, 1, 0, 0, 0, 0.3, 2}, {DT_BF16, 64, 64, 131, 131, 1, 1, 1, 0, 40, 0.1, 1},
    {DT_F16, 120, 120, 40, 72, 2, 1, 1, 32, 0, 0, 0}, {DT_BF16, 48, 48, 200, 66, 1, 1, 0, 0, 0, 0, 1},
    {DT_F16, 128, 128, 66, 66, 1, 1, 1, 0, 0, 0.2, 0}, {DT_BF16, 192, 128, 70, 130, 2, 1, 1, 0, 0, 0, 1},
    {DT_BF16, 64, 128, 66, 100, 1, 1, 0, 0, 0, 0, 0}, {DT_F16, 104, 40, 70, 66, 2, 1, 1, 0, 0, 0, 2},
    {DT_BF16, 256, 64, 66, 70, 1, 1, 1, 0, 0, 0.2, 0},
};
_Static_assert(sizeof plain / sizeof *plain == WARPGROUP_SAMPLES, "each has a number");

bool warpgroup_sample(Sample *s, Op op, int i)
{
    const Plain *x = &plain[i];
    if (op != OP_attention && x->size > (x->drop > 0 ? 64 : 128))
        return false;
    *s = (Sample){.seed = (uint64_t)i, .dt = x->dt, .op = op};
    AttentionAttrs at = {.scale = 0.25,
                         .fill = -INFINITY,
                         .p = x->drop,
                         .key = 7,
                         .causal = x->causal,
                         .diagonal = x->diagonal,
                         .window = x->window,
                         .guard = GUARD_NAN,
                         .layout = {.n = 4}};
    Type q = plain_type(x, x->heads, x->rows, x->size), o = plain_type(x, x->heads, x->rows, x->v_size);
    Type line = type_make(DT_F32, 3, (int64_t[]){2, x->heads, x->rows});
    for (int k = 0; k < 4; k++)
        at.layout.v[k] = x->layout;
    graph_init(&s->g, &s->arena, &s->diag);
    if (op != OP_attention)
        sample_reals(s, o, -1, 1);
    sample_reals(s, q, -1, 1);
    sample_reals(s, plain_type(x, x->groups, x->cols, x->size), -1, 1);
    sample_reals(s, plain_type(x, x->groups, x->cols, x->v_size), -1, 1);
    if (op != OP_attention) {
        sample_reals(s, o, -1, 1);
        sample_reals(s, line, 1, 2);
        sample_reals(s, line, 0.01, 0.05);
    }
    s->nin += op == OP_attention ? 3 : 2; /* neither mask nor bias nor sinks */
    if (x->drop > 0)
        sample_ints(s, type_make(DT_I64, 1, (int64_t[]){2}), 1, 1000);
    else
        s->nin++;
    sample_build(s, &at);
    return true;
}

/* ------------------------------------------------------------------------------------------------- */

static const struct {
    int n;
    void (*make)(Sample *s, int i);
} kinds[] = {{SUMS, sum_sample},
             {POOLS, pool_sample},
             {2 * IMAGES, image_sample},
             {FORMS * ELEMENTS, elements_sample},
             {SCANS, scan_sample},
             {FIRSTS, first_sample},
             {WRITES, write_sample},
             {TUPLES, tuple_sample},
             {2 * ATTENTIONS, attention_sample}};

int cuda_samples(void)
{
    int n = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        n += kinds[k].n;
    return n;
}

void cuda_sample(Sample *s, int i)
{
    int k = 0;
    for (; i >= kinds[k].n; k++)
        i -= kinds[k].n;
    kinds[k].make(s, i);
}
