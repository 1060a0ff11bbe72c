/* lib_cases.c -- see lib_cases.h. */
#include "lib_cases.h"
#include "tests.h"

#include <stdlib.h>

Tensor tensor_new(Type t)
{
    Tensor r = {t, calloc((size_t)type_count(&t) + 1, 8)};
    ck_assert_ptr_nonnull(r.data);
    return r;
}

Tensor tensor_random(Type t, uint32_t seed)
{
    Tensor r = tensor_new(t);
    for (int64_t i = 0; i < type_count(&t); i++) {
        seed = seed * 1664525u + 1013904223u;
        tensor_set_f(&r, i, (double)(seed >> 8) / (1 << 23) - 1);
    }
    return r;
}

static Ints ints_or(const int64_t *v, int n, int64_t otherwise)
{
    Ints r = {.n = n};
    for (int i = 0; i < n; i++)
        r.v[i] = v[i] ? v[i] : otherwise;
    return r;
}

void lib_case_matmul(DnnlDesc *d, const LibCase *c)
{
    Type a = type_make(c->dt, c->ra, c->a), b = type_make(c->dt, c->rb, c->b);
    Type batch = {0}, other = b;
    int64_t m = a.dim[a.rank - (c->ta ? 1 : 2)], n = b.dim[b.rank - (c->tb ? 2 : 1)];
    batch = type_make(c->dt, a.rank - 2, a.dim);
    other = type_make(c->dt, b.rank - 2, b.dim);
    ck_assert(type_broadcast(&batch, &other));
    d->of.in[0] = a;
    d->of.in[1] = b;
    d->of.out = type_make(c->out_dt ? c->out_dt : c->dt, batch.rank, batch.dim);
    d->of.out.dim[d->of.out.rank++] = m;
    d->of.out.dim[d->of.out.rank++] = n;
    d->of.nin = 2;
    d->of.matmul = (MatmulAttrs){.ta = c->ta, .tb = c->tb};
}

void lib_case_conv(DnnlDesc *d, const LibCase *c, LibOp op)
{
    int sp = c->ra - 2;
    d->of.conv = (ConvAttrs){.strides = ints_or(c->strides, sp, 1),
                             .pads = ints_or(c->pads, 2 * sp, 0),
                             .dilations = ints_or(c->dilations, sp, 1),
                             .group = c->group ? c->group : 1};
    Type x = type_make(c->dt, c->ra, c->a), w = type_make(c->dt, c->rb, c->b), y = x;
    y.dim[1] = w.dim[0];
    for (int k = 0; k < sp; k++)
        y.dim[k + 2] = (x.dim[k + 2] + d->of.conv.pads.v[k] + d->of.conv.pads.v[k + sp] - 1 -
                        (w.dim[k + 2] - 1) * d->of.conv.dilations.v[k]) /
                           d->of.conv.strides.v[k] +
                       1;
    d->of.nin = op == LIB_CONV && c->bias ? 3 : 2;
    d->of.in[2] = type_make(c->dt, 1, &w.dim[0]);
    d->of.in[0] = op == LIB_CONV_BWD_DATA ? y : x;
    d->of.in[1] = op == LIB_CONV_BWD_WEIGHTS ? y : w;
    d->of.out = op == LIB_CONV ? y : op == LIB_CONV_BWD_DATA ? x : w;
    if (op == LIB_CONV_BWD_WEIGHTS && c->out_dt)
        d->of.out.dt = c->out_dt;
}
