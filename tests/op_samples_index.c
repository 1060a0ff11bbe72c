/* op_samples_index.c -- samplers of convolution, pooling, gather, scatter and scans. */
#include "op_samples_int.h"

/* ---- windows ------------------------------------------------------------------------- */

static Ints some(Sample *s, int n, int lo, int hi)
{
    Ints v = {.n = n};
    for (int i = 0; i < n; i++)
        v.v[i] = sample_int(s, lo, hi);
    return v;
}

/* The number of windows along a dimension of extent `in`; pads: at both ends together. */
static int64_t windows(int64_t in, int64_t pads, int64_t kernel, int64_t stride,
                       int64_t dilation)
{
    return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
}

Type sample_channels_last(Type t)
{
    int64_t channels = t.dim[1];
    memmove(t.dim + 1, t.dim + 2, (size_t)(t.rank - 2) * sizeof *t.dim);
    t.dim[t.rank - 1] = channels;
    return t;
}

static void conv(Sample *s)
{
    int sp = sample_int(s, 1, 3);
    ConvAttrs at = {.strides = some(s, sp, 1, 3),
                    .pads = some(s, 2 * sp, 0, 2),
                    .dilations = some(s, sp, 1, 2),
                    .group = sample_int(s, 1, 3),
                    .channels_last = sample_chance(s, 40)};
    Type x = {.dt = s->dt,
              .rank = sp + 2,
              .dim = {sample_int(s, 1, 2), at.group * sample_int(s, 1, 2)}};
    Type w = {.dt = s->dt,
              .rank = sp + 2,
              .dim = {at.group * sample_int(s, 1, 2), x.dim[1] / at.group}};
    Type y = {.dt = s->dt, .rank = sp + 2, .dim = {x.dim[0], w.dim[0]}};
    for (int i = 0; i < sp; i++) {
        int64_t k = w.dim[2 + i] = sample_int(s, 1, 3),
                reach = at.dilations.v[i] * (k - 1) + 1;
        x.dim[2 + i] = reach + sample_int(s, 0, sp == 1 ? 40 : 4);
        y.dim[2 + i] = windows(x.dim[2 + i], at.pads.v[i] + at.pads.v[sp + i], k,
                               at.strides.v[i], at.dilations.v[i]);
    }
    if (at.channels_last) {
        x = sample_channels_last(x);
        y = sample_channels_last(y);
    }
    sample_reals(s, s->op == OP_conv_bwd_data ? y : x, -1, 1);
    sample_reals(s, s->op == OP_conv_bwd_weights ? y : w, -1, 1);
    if (s->op == OP_conv && sample_chance(s, 50))
        sample_reals(s, type_make(s->dt, 1, w.dim), -1, 1);
    at.shape = sample_all_dims(s->op == OP_conv_bwd_data ? &x : &w);
    sample_build(s, &at);
}

static bool is_inside(const PoolAttrs *at, const Type *x, const int64_t *window, int64_t place)
{
    bool inside = true;
    for (int d = at->kernel.n; d-- > 0; place /= at->kernel.v[d]) {
        int64_t k = place % at->kernel.v[d];
        int64_t p = window[d] * at->strides.v[d] + k * at->dilations.v[d] - at->pads.v[d];
        inside &= p >= 0 && p < x->dim[2 + d];
    }
    return inside;
}

void sample_places(Sample *s, const PoolAttrs *at, const Type *x)
{
    int sp = at->kernel.n;
    int64_t all = 1;
    Type t = *x;
    for (int d = 0; d < sp; d++) {
        all *= at->kernel.v[d];
        t.dim[2 + d] = at->out.v[d];
    }
    t.dt = all <= UINT8_MAX ? DT_U8 : DT_I32;
    Tensor *places = sample_operand(s, t);
    for (int64_t i = 0; i < type_count(&t); i++) {
        int64_t window[MAX_RANK], n = i, place = sample_int(s, 0, (int)all - 1), tried = 0;
        for (int d = sp; d-- > 0; n /= at->out.v[d])
            window[d] = n % at->out.v[d];
        for (; tried < all && !is_inside(at, x, window, place); tried++)
            place = (place + 1) % all;
        tensor_set_i(places, i, tried < all ? place : all);
    }
}

static void pool(Sample *s)
{
    int sp = sample_int(s, 1, 3);
    PoolAttrs at = {.kernel = some(s, sp, 1, 3),
                    .strides = some(s, sp, 1, 3),
                    .pads = some(s, 2 * sp, 0, 1),
                    .dilations = some(s, sp, 1, 2),
                    .out.n = sp,
                    .include_pad = sample_chance(s, 50)};
    Type x = {.dt = s->dt,
              .rank = sp + 2,
              .dim = {sample_int(s, 1, 2), sample_int(s, 1, 3)}},
         y = x;
    bool far = sp == 1 && sample_chance(s, 40); /* windows lie too far apart to be taken together */
    bool parts = sp > 1 && sample_chance(s, 30); /* planes may be long enough to be made in parts */
    if (far)
        at.strides.v[0] = sample_int(s, 4, 7);
    for (int i = 0; i < sp; i++) {
        int64_t reach = at.dilations.v[i] * (at.kernel.v[i] - 1) + 1;
        if (at.kernel.v[i] == 1) /* so that no window lies wholly in the padding */
            at.pads.v[i] = at.pads.v[sp + i] = 0;
        x.dim[2 + i] = reach + sample_int(s, 0, far ? 250 : parts && i == 0 ? 90 : sp == 1 ? 40 : 4);
        int64_t n = windows(x.dim[2 + i], at.pads.v[i] + at.pads.v[sp + i], at.kernel.v[i],
                            at.strides.v[i], at.dilations.v[i]);
        n += n * at.strides.v[i] - at.pads.v[i] < x.dim[2 + i]; /* as with ceil_mode: it leans out */
        y.dim[2 + i] = at.out.v[i] = n;
    }
    at.shape = sample_all_dims(&x);
    if (s->op == OP_max_pool_bwd)
        sample_places(s, &at, &x);
    else if (s->op != OP_avg_pool_bwd)
        sample_reals(s, x, -1, 1);
    if (s->op == OP_avg_pool_bwd || s->op == OP_max_pool_bwd)
        sample_reals(s, y, -1, 1);
    sample_build(s, &at);
}

/* ---- indices ------------------------------------------------------------------------- */

/* At times gives the last dimension an extent of several vectors. */
static void lengthen_rows(Sample *s, Type *t)
{
    if (sample_chance(s, 30))
        t->dim[t->rank - 1] = sample_int(s, 1, 70);
}

/* A random shape; *axis: a dimension of it whose extent is from 1 to `longest`. */
static Type shape_along(Sample *s, int max_rank, int longest, int *axis)
{
    Type t = sample_shape(s, 1, max_rank);
    *axis = sample_int(s, 0, t.rank - 1);
    t.dim[*axis] = sample_int(s, 1, longest);
    return t;
}

static void gather(Sample *s)
{
    int axis;
    Type x = shape_along(s, 3, 40, &axis), ix = sample_shape(s, 0, 2);
    lengthen_rows(s, &x);
    int n = (int)x.dim[axis];
    sample_table(s, x);
    sample_ints(s, type_with(ix, sample_some_int(s)), -n, n - 1);
    sample_build(s, &(GatherAttrs){axis, -1});
}

static void gather_bwd(Sample *s)
{
    int axis;
    Type x = shape_along(s, 3, 40, &axis), ix = sample_shape(s, 0, 2), y = {.dt = s->dt};
    lengthen_rows(s, &x);
    int n = (int)x.dim[axis];
    for (int i = 0; i < axis; i++)
        y.dim[y.rank++] = x.dim[i];
    for (int i = 0; i < ix.rank; i++)
        y.dim[y.rank++] = ix.dim[i];
    for (int i = axis + 1; i < x.rank; i++)
        y.dim[y.rank++] = x.dim[i];
    sample_reals(s, y, -1, 1);
    sample_ints(s, type_with(ix, sample_some_int(s)), -n, n - 1);
    sample_build(s, &(GatherBwdAttrs){axis, sample_all_dims(&x)});
}

/* The type of indices into x along axis, which is no larger than x along the other dimensions. */
static Type element_indices(Sample *s, const Type *x, int axis)
{
    Type ix = type_with(*x, sample_some_int(s));
    for (int i = 0; i < x->rank; i++)
        ix.dim[i] = i == axis             ? sample_extent(s)
                    : sample_int(s, 0, 3) ? x->dim[i]
                                          : x->dim[i] / 2;
    return ix;
}

/* At times lets a batch share its indices: gives the first dimensions of *ix, before axis, an extent of 1,
 * and returns their number.  What goes with the indices has x's extents there. */
static int64_t share_indices(Sample *s, Type *ix, int axis)
{
    int batch = sample_chance(s, 50) ? sample_int(s, 0, axis) : 0;
    for (int i = 0; i < batch; i++)
        ix->dim[i] = 1;
    return batch;
}

static void gather_elements(Sample *s)
{
    int axis;
    Type x = shape_along(s, 4, 6, &axis);
    int n = (int)x.dim[axis];
    Type ix = element_indices(s, &x, axis);
    int64_t batch = share_indices(s, &ix, axis);
    sample_table(s, x);
    sample_ints(s, ix, -n, n - 1);
    sample_build(s, &(ElementsAttrs){axis, batch});
}

static void gather_elements_bwd(Sample *s)
{
    int axis;
    Type x = shape_along(s, 4, 6, &axis);
    int n = (int)x.dim[axis];
    Type ix = element_indices(s, &x, axis), dy = ix;
    int64_t batch = share_indices(s, &ix, axis);
    dy.dt = s->dt;
    for (int i = 0; i < batch; i++)
        dy.dim[i] = x.dim[i];
    sample_reals(s, dy, -1, 1);
    sample_ints(s, ix, -n, n - 1);
    sample_build(
        s, &(ElementsBwdAttrs){axis, batch, sample_chance(s, 30) ? s->dt : DT_NONE, sample_all_dims(&x)});
}

/* Chooses the number of batch dimensions and the length of tuples of indices into x; returns their type. */
static Type tuples(Sample *s, const Type *x, int *batch, int *tuple)
{
    *batch = sample_int(s, 0, x->rank - 1);
    *tuple = sample_int(s, 1, x->rank - *batch);
    Type ix = type_make(sample_some_int(s), *batch, x->dim);
    for (int i = sample_int(s, 0, 1); i >= 0; i--)
        ix.dim[ix.rank++] = sample_int(s, 1, 3);
    ix.dim[ix.rank++] = *tuple;
    return ix;
}

static void fill_tuples(Sample *s, Type ix, const Type *x, int batch, int tuple)
{
    Tensor *t = sample_operand(s, ix);
    for (int64_t i = 0; i < type_count(&ix); i++) {
        int n = (int)x->dim[batch + i % tuple];
        tensor_set_i(t, i, n ? sample_int(s, -n, n - 1) : 0);
    }
}

static void gather_nd(Sample *s)
{
    Type x = sample_shape(s, 1, 4);
    int batch, tuple;
    Type ix = tuples(s, &x, &batch, &tuple);
    sample_table(s, x);
    fill_tuples(s, ix, &x, batch, tuple);
    sample_build(s, &(AxisAttrs){batch});
}

/* Indices of SET are distinct, as its gradient assumes: they count up along the axis. */
static void scatter_elements(Sample *s)
{
    int axis;
    Type x = shape_along(s, 4, 6, &axis);
    int n = (int)x.dim[axis];
    ScatterAttrs at = {.axis = axis,
                       .reduction = sample_chance(s, 30) ? sample_int(s, 2, 4) : sample_int(s, 0, 1)};
    Type ix = element_indices(s, &x, axis), u;
    at.batch = share_indices(s, &ix, axis);
    if (at.reduction == SCATTER_SET && ix.dim[axis] > n)
        ix.dim[axis] = n;
    sample_table(s, x);
    Tensor *t = sample_operand(s, ix);
    int64_t inner = 1, first = sample_int(s, 0, n - 1);
    for (int i = axis + 1; i < x.rank; i++)
        inner *= ix.dim[i];
    for (int64_t i = 0; i < type_count(&ix); i++)
        tensor_set_i(t, i,
                     at.reduction ? sample_int(s, -n, n - 1)
                                  : (first + i / inner % ix.dim[axis]) % n);
    u = type_with(ix, s->data[0].type.dt);
    for (int i = 0; i < at.batch; i++)
        u.dim[i] = x.dim[i];
    sample_numbers(s, u, -2, 2);
    sample_build(s, &at);
}

static void scatter_nd(Sample *s)
{
    Type x = sample_shape(s, 1, 4);
    int batch, tuple;
    Type ix = tuples(s, &x, &batch, &tuple);
    ScatterAttrs at = {.axis = batch,
                       .reduction = sample_chance(s, 30) ? sample_int(s, 2, 4) : sample_int(s, 0, 1)};
    if (at.reduction == SCATTER_SET) /* a single tuple per batch is distinct */
        for (int i = batch; i < ix.rank - 1; i++)
            ix.dim[i] = 1;
    Type u = type_make(s->dt, ix.rank - 1, ix.dim);
    for (int i = batch + tuple; i < x.rank; i++)
        u.dim[u.rank++] = x.dim[i];
    sample_table(s, x);
    fill_tuples(s, ix, &x, batch, tuple);
    sample_numbers(s, type_with(u, s->data[0].type.dt), -2, 2);
    sample_build(s, &at);
}

static void cumsum(Sample *s)
{
    Type t = sample_shape(s, 1, 4);
    lengthen_rows(s, &t);
    int axis = sample_int(s, 0, t.rank - 1);
    sample_table(s, t);
    sample_build(s, &(CumsumAttrs){axis, sample_chance(s, 50), sample_chance(s, 50)});
}

static void arg(Sample *s)
{
    int axis;
    Type t = shape_along(s, 4, 9, &axis);
    sample_table(s, t);
    sample_build(s, &(ArgAttrs){axis, sample_chance(s, 50), sample_chance(s, 50)});
}

static void topk(Sample *s)
{
    int axis;
    Type t = shape_along(s, 3, 20, &axis);
    sample_table(s, t);
    sample_build(
        s, &(TopkAttrs){axis, sample_int(s, 0, (int)t.dim[axis]), sample_chance(s, 50)});
}

/* The tables are constants, as an importer makes them. */
static void resample(Sample *s)
{
    Type x = sample_shape(s, 1, 4);
    int axis = sample_int(s, 0, x.rank - 1), n = (int)x.dim[axis];
    lengthen_rows(s, &x);
    sample_reals(s, x, -1, 1);
    int64_t dim[] = {sample_int(s, 1, 16), sample_int(s, 1, 4)};
    sample_ints(s, type_make(sample_some_int(s), 2, dim), -1, n - 1);
    sample_reals(s, type_make(DT_F32, 2, dim), -1, 1);
    for (int i = 1; i < 3; i++)
        s->in[i] = graph_const(&s->g, "table", s->data[i].type, s->data[i].data);
    sample_build(s, &(AxisAttrs){axis});
}

/* Positions lie inside, on and beyond the border, but never where the interpolation has a kink: at whole
 * pixels and halfway between them. */
static void grid_sample(Sample *s)
{
    int sp = sample_int(s, 1, 3);
    GridSampleAttrs at = {.mode = sample_int(s, 0, 2), .outside = sample_int(s, 0, 2),
                          .corners = sample_chance(s, 50), .pixels = sample_chance(s, 30)};
    Type x = {.dt = s->dt, .rank = sp + 2, .dim = {sample_int(s, !s->empty, 2)}};
    bool wide = sample_chance(s, 20), high = sample_chance(s, 20);
    for (int d = 1; d <= sp; d++)
        x.dim[d] = sample_int(s, 1, high && d == 1 ? 20 : 4);
    x.dim[sp + 1] = sample_int(s, !s->empty, wide ? 40 : 4);
    Type grid = {.dt = sample_chance(s, 80) ? s->dt : dtype_sum(s->dt),
                 .rank = sp + 2,
                 .dim = {x.dim[0], sample_int(s, !s->empty, 3), sample_int(s, 1, 4)}};
    grid.dim[sp + 1] = sp;
    for (int d = 3; d <= sp; d++)
        grid.dim[d] = sample_int(s, 1, 2);
    Type y = grid;
    y.dt = s->dt;
    y.dim[sp + 1] = x.dim[sp + 1];
    at.shape = sample_all_dims(&x);
    sample_reals(s, s->op == OP_grid_sample ? x : y, -1, 1);
    sample_reals(s, grid, .1, .4);
    Tensor *to = &s->data[1];
    for (int64_t i = 0; i < type_count(&grid); i++) {
        int64_t extent = x.dim[sp - i % sp];
        double half = at.pixels ? 1 : (double)(extent - at.corners) / 2;
        double middle = at.pixels ? 0 : (double)(extent - 1) / 2, past = sample_chance(s, 50) ? .5 : 0;
        double pixel = sample_int(s, -3, (int)extent + 2) + past + tensor_f(to, i);
        tensor_set_f(to, i, half > 0 ? (pixel - middle) / half : pixel);
    }
    if (s->op == OP_grid_sample_bwd_grid)
        sample_reals(s, x, -1, 1);
    sample_build(s, &at);
}

static void trilu(Sample *s)
{
    sample_table(s, sample_shape(s, 2, 4));
    sample_build(s, &(TriluAttrs){sample_int(s, -3, 3), sample_chance(s, 50)});
}

static void inverse(Sample *s)
{
    int64_t side = sample_int(s, 1, 20);
    Type t = sample_shape(s, 0, 2);
    t.dim[t.rank++] = side;
    t.dim[t.rank++] = side;
    sample_reals(s, t, -.3, .3);
    sample_build(s, NULL);
}

SampleFn *const sample_index[OP_COUNT] = {
    [OP_conv] = conv,
    [OP_conv_bwd_data] = conv,
    [OP_conv_bwd_weights] = conv,
    [OP_max_pool] = pool,
    [OP_max_pool_bwd] = pool,
    [OP_avg_pool] = pool,
    [OP_avg_pool_bwd] = pool,
    [OP_gather] = gather,
    [OP_gather_bwd] = gather_bwd,
    [OP_gather_elements] = gather_elements,
    [OP_gather_nd] = gather_nd,
    [OP_gather_elements_bwd] = gather_elements_bwd,
    [OP_scatter_elements] = scatter_elements,
    [OP_scatter_nd] = scatter_nd,
    [OP_cumsum] = cumsum,
    [OP_argmax] = arg,
    [OP_argmin] = arg,
    [OP_trilu] = trilu,
    [OP_unit_lower_inverse] = inverse,
    [OP_topk] = topk,
    [OP_resample] = resample,
    [OP_grid_sample] = grid_sample,
    [OP_grid_sample_bwd_data] = grid_sample,
    [OP_grid_sample_bwd_grid] = grid_sample,
};
