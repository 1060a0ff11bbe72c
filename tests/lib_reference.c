/* lib_reference.c -- matrix products and convolutions by plain loops. */
#include "lib_reference.h"
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

void reference_matmul(const LibDesc *d, const Tensor *t, double *out)
{
    const Type *a = &d->in[0], *b = &d->in[1], *c = &d->out;
    int64_t m = c->dim[c->rank - 2], n = c->dim[c->rank - 1];
    int64_t k = a->dim[a->rank - (d->matmul.ta ? 2 : 1)];
    for (int64_t i = 0; i < type_count(c); i++) {
        int64_t batch = i / (m * n), row = i / n % m, col = i % n;
        int64_t oa = batch_offset(a, c, batch), ob = batch_offset(b, c, batch);
        double s = 0;
        for (int64_t j = 0; j < k; j++)
            s += tensor_f(&t[0], oa + (d->matmul.ta ? j * m + row : row * k + j)) *
                 tensor_f(&t[1], ob + (d->matmul.tb ? col * k + j : j * n + col));
        out[i] = s;
    }
}

/* Visit every product x[xi] * w[wi] of dst[yi] in the forward convolution. */
static void each_product(const Type *x, const Type *w, const Type *y, const ConvAttrs *c,
                         void (*visit)(void *u, int64_t xi, int64_t wi, int64_t yi), void *u)
{
    int sp = x->rank - 2;
    int64_t mg = y->dim[1] / c->group, taps = type_count(w) / w->dim[0];
    for (int64_t yi = 0; yi < type_count(y); yi++) {
        int64_t pos[3] = {0}, rest = yi;
        for (int k = sp - 1; k >= 0; k--) {
            pos[k] = rest % y->dim[k + 2];
            rest /= y->dim[k + 2];
        }
        int64_t m = rest % y->dim[1], image = rest / y->dim[1];
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t left = tap, xi = 0, stride = 1;
            bool inside = true;
            for (int k = sp - 1; k >= 0; k--) {
                int64_t at = pos[k] * c->strides.v[k] - c->pads.v[k] +
                             left % w->dim[k + 2] * c->dilations.v[k];
                left /= w->dim[k + 2];
                inside &= at >= 0 && at < x->dim[k + 2];
                xi += at * stride;
                stride *= x->dim[k + 2];
            }
            xi += (image * x->dim[1] + m / mg * w->dim[1] + left) * stride;
            if (inside)
                visit(u, xi, m * taps + tap, yi);
        }
    }
}

typedef struct {
    LibOp op;
    const Tensor *t;
    double *out;
} RefConv;

static void add_product(void *u, int64_t xi, int64_t wi, int64_t yi)
{
    RefConv *r = u;
    if (r->op == LIB_CONV)
        r->out[yi] += tensor_f(&r->t[0], xi) * tensor_f(&r->t[1], wi);
    else if (r->op == LIB_CONV_BWD_DATA)
        r->out[xi] += tensor_f(&r->t[0], yi) * tensor_f(&r->t[1], wi);
    else
        r->out[wi] += tensor_f(&r->t[0], xi) * tensor_f(&r->t[1], yi);
}

void reference_conv(const LibDesc *d, const Tensor *t, double *out)
{
    const Type *x = &d->in[0], *w = &d->in[1], *y = &d->out;
    if (d->op == LIB_CONV_BWD_DATA)
        x = &d->out, y = &d->in[0];
    if (d->op == LIB_CONV_BWD_WEIGHTS)
        w = &d->out, y = &d->in[1];
    int64_t plane = type_count(y) / y->dim[0] / y->dim[1];
    memset(out, 0, sizeof *out * (size_t)type_count(&d->out));
    for (int64_t i = 0; d->nin > 2 && i < type_count(y); i++)
        out[i] = tensor_f(&t[2], i / plane % y->dim[1]);
    each_product(x, w, y, &d->conv, add_product, &(RefConv){d->op, t, out});
}
