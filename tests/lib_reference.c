/* lib_reference.c -- matrix products and convolutions by plain loops. */
#include "lib_reference.h"
#include <stdlib.h>
#include <string.h>

static int64_t batch_offset(const Type *t, const Type *out, int64_t i)
{
    int64_t offset = 0, stride = t->dim[t->rank - 1] * t->dim[t->rank - 2];
    for (int k = out->rank - 3; k >= 0; k--) {
        int64_t index = i % out->dim[k];
        i /= out->dim[k];
        int own = k - (out->rank - t->rank);
        if (own >= 0) {
            offset += t->dim[own] > 1 ? index * stride : 0;
            stride *= t->dim[own];
        }
    }
    return offset;
}

static double *numbers(const Tensor *t)
{
    int64_t n = type_count(&t->type);
    double *v = calloc((size_t)n + 1, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = tensor_f(t, i);
    return v;
}

void reference_matmul(const LibDesc *d, const Tensor *t, double *out)
{
    const Type *a = &d->in[0], *b = &d->in[1], *c = &d->out;
    int64_t m = c->dim[c->rank - 2], n = c->dim[c->rank - 1];
    int64_t k = a->dim[a->rank - (d->matmul.ta ? 2 : 1)];
    double *x = numbers(&t[0]), *y = numbers(&t[1]);
    for (int64_t i = 0; i < type_count(c); i++) {
        int64_t batch = i / (m * n), row = i / n % m, col = i % n;
        int64_t oa = batch_offset(a, c, batch), ob = batch_offset(b, c, batch);
        double s = 0;
        for (int64_t j = 0; j < k; j++)
            s += x[oa + (d->matmul.ta ? j * m + row : row * k + j)] *
                 y[ob + (d->matmul.tb ? col * k + j : j * n + col)];
        out[i] = s;
    }
    free(x);
    free(y);
}

/* A place in a convolution's window: the channel in its group, and the distance from the first place along
 * each axis of x. */
typedef struct {
    int64_t channel, at[3];
} Tap;

static Tap *taps_of(const Type *w, const ConvAttrs *c, int64_t n)
{
    Tap *tap = calloc((size_t)n + 1, sizeof *tap);
    for (int64_t i = 0; i < n; i++) {
        tap[i].channel = i;
        for (int k = w->rank - 3; k >= 0; k--) {
            tap[i].at[k] = tap[i].channel % w->dim[k + 2] * c->dilations.v[k];
            tap[i].channel /= w->dim[k + 2];
        }
    }
    return tap;
}

typedef struct {
    LibOp op;
    const double *a, *b;
    double *out;
} RefConv;

/* Adds one product to the result of r->op: that of the forward convolution's term x[xi] * w[wi] of y[yi]. */
static void add_product(const RefConv *r, int64_t xi, int64_t wi, int64_t yi)
{
    if (r->op == LIB_CONV)
        r->out[yi] += r->a[xi] * r->b[wi];
    else if (r->op == LIB_CONV_BWD_DATA)
        r->out[xi] += r->a[yi] * r->b[wi];
    else
        r->out[wi] += r->a[xi] * r->b[yi];
}

static void add_products(const RefConv *r, const Type *x, const Type *w, const Type *y, const ConvAttrs *c)
{
    int sp = x->rank - 2;
    int64_t mg = y->dim[1] / c->group, taps = type_count(w) / w->dim[0];
    Tap *tap = taps_of(w, c, taps);
    for (int64_t yi = 0; yi < type_count(y); yi++) {
        int64_t first[3] = {0}, rest = yi;
        for (int k = sp - 1; k >= 0; k--) {
            first[k] = rest % y->dim[k + 2] * c->strides.v[k] - c->pads.v[k];
            rest /= y->dim[k + 2];
        }
        int64_t m = rest % y->dim[1], plane = rest / y->dim[1] * x->dim[1] + m / mg * w->dim[1];
        for (int64_t t = 0; t < taps; t++) {
            int64_t xi = plane + tap[t].channel;
            bool inside = true;
            for (int k = 0; k < sp; k++) {
                int64_t at = first[k] + tap[t].at[k];
                inside &= at >= 0 && at < x->dim[k + 2];
                xi = xi * x->dim[k + 2] + at;
            }
            if (inside)
                add_product(r, xi, m * taps + t, yi);
        }
    }
    free(tap);
}

void reference_conv(const LibDesc *d, const Tensor *t, double *out)
{
    const Type *x = &d->in[0], *w = &d->in[1], *y = &d->out;
    if (d->op == LIB_CONV_BWD_DATA)
        x = &d->out, y = &d->in[0];
    if (d->op == LIB_CONV_BWD_WEIGHTS)
        w = &d->out, y = &d->in[1];
    int64_t plane = type_count(y) / y->dim[0] / y->dim[1];
    double *a = numbers(&t[0]), *b = numbers(&t[1]);
    memset(out, 0, sizeof *out * (size_t)type_count(&d->out));
    for (int64_t i = 0; d->nin > 2 && i < type_count(y); i++)
        out[i] = tensor_f(&t[2], i / plane % y->dim[1]);
    add_products(&(RefConv){d->op, a, b, out}, x, w, y, &d->conv);
    free(a);
    free(b);
}
