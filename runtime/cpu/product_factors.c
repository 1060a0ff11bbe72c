/* product_factors.c -- describes the factors of a product by the tensors of a problem. */
#include "product_int.h"

static void batch_over(Product *p, int64_t n, int64_t a, int64_t b, int64_t c)
{
    int d = 0;
    while (p->batch[d])
        d++;
    p->batch[d] = n;
    p->step[0][d] = a;
    p->step[1][d] = b;
    p->step[2][d] = c;
    p->nbatch *= n;
}

static void set_ones(int64_t v[DIGITS])
{
    for (int i = 0; i < DIGITS; i++)
        v[i] = 1;
}

static void describe_matmul(Product *p, const Problem *q)
{
    const Layout *a = &q->slot[SRC], *b = &q->slot[WEIGHTS], *c = &q->slot[DST];
    int r = c->rank;
    p->a = SRC, p->b = WEIGHTS, p->c = DST;
    p->rows = c->dim[r - 2];
    p->row_stride = c->stride[r - 2];
    p->fa.terms[0] = p->fb.terms[0] = a->dim[r - 1];
    p->fa.lanes[0] = p->rows;
    p->fa.lane[0] = a->stride[r - 2];
    p->fa.term[0] = a->stride[r - 1];
    int last = b->rank - 1;
    p->fb.lanes[0] = c->dim[r - 1];
    p->fb.lane[0] = b->stride[last];
    p->fb.term[0] = b->stride[last - 1];
    if (q->panels) {
        p->fb.lanes[0] = b->dim[0], p->fb.lanes[1] = b->dim[last];
        p->fb.lane[0] = b->stride[0], p->fb.lane[1] = b->stride[last];
    }
    for (int i = 0; i < r - 2; i++)
        if (c->dim[i] > 1)
            batch_over(p, c->dim[i], a->dim[i] > 1 ? a->stride[i] : 0,
                       b->dim[i] > 1 ? b->stride[i] : 0, c->stride[i]);
}

/* Sets the image that a factor is gathered from; its dimensions are the last ones of the factor. */
static void set_image(Factor *f, const Problem *q, const Layout *image)
{
    int first = WINDOW + 2 - image->rank, grouped = q->slot[WEIGHTS].rank - image->rank;
    for (int i = 0; i < WINDOW; i++) {
        int from = i - first;
        f->each[i] = f->size[i] = 1;
        if (from < 0)
            continue;
        f->pad[i] = q->pad_begin[from];
        f->size[i] = image->dim[from + 2];
        f->stride[i] = image->stride[from + 2];
        f->window |= q->slot[SRC].dim[from + 2] != q->slot[DST].dim[from + 2] || q->strides[from] > 1 ||
                     q->slot[WEIGHTS].dim[grouped + from + 2] > 1 || f->pad[i] != 0;
    }
}

/* Sets the steps of column and term in an image dimension: in positions or, without a window, strides. */
static void set_steps(Factor *f, const Problem *q, int i, int from, int64_t column, int64_t term)
{
    f->lane[i + 1] = f->window ? column : f->stride[i];
    f->term[i + 1] = f->window ? term : f->stride[i];
    if (q->op == LIB_CONV_BWD_DATA) {
        f->pad[i] = -q->pad_begin[from];
        f->each[i] = q->strides[from];
    }
}

/* Sets position digit i of columns and terms, which is spatial dimension `from` of the tensors. */
static void describe_position(Product *p, const Problem *q, int i, int from, const int64_t *window,
                              const int64_t *window_stride)
{
    const Layout *x = &q->slot[SRC], *y = &q->slot[DST];
    bool forward = q->op == LIB_CONV, weights = q->op == LIB_CONV_BWD_WEIGHTS;
    int64_t dilate = q->dilates[from] + 1, stride = q->strides[from];
    p->fb.lanes[i + 1] = weights ? window[from] : (forward ? y : x)->dim[from + 2];
    p->fa.terms[i + 1] = p->fb.terms[i + 1] = weights ? y->dim[from + 2] : window[from];
    p->fa.term[i + 1] = weights ? y->stride[from + 2] : window_stride[from];
    set_steps(&p->fb, q, i, from, weights ? dilate : forward ? stride : 1,
              weights ? stride : forward ? dilate : -dilate);
}

/* Puts the images of a batch side by side if that makes the panels fewer by a twentieth; else each image is a
 * member of the product's batch. */
static void add_images(Product *p, int64_t n, int64_t step, int64_t result_step)
{
    int64_t columns = digits_count(p->fb.lanes), apart = n * round_up(columns, p->nr);
    if (p->rows <= FEW_ROWS || 20 * round_up(n * columns, p->nr) > 19 * apart) {
        batch_over(p, n, 0, step, result_step);
        return;
    }
    p->fb.lanes[0] = n;
    p->fb.lane[0] = step;
    p->image_stride = result_step;
}

static void describe_conv(Product *p, const Problem *q)
{
    const Layout *x = &q->slot[SRC], *w = &q->slot[WEIGHTS], *y = &q->slot[DST];
    int grouped = w->rank - x->rank, first = WINDOW + 2 - x->rank;
    const int64_t *wd = w->dim + grouped, *ws = w->stride + grouped;
    bool forward = q->op == LIB_CONV, weights = q->op == LIB_CONV_BWD_WEIGHTS;
    const Layout *image = q->op == LIB_CONV_BWD_DATA ? y : x, *result = forward ? y : x;
    p->a = weights ? DST : WEIGHTS;
    p->b = q->op == LIB_CONV_BWD_DATA ? DST : SRC;
    p->c = weights ? WEIGHTS : forward ? DST : SRC;
    p->rows = forward || weights ? wd[0] : wd[1];
    p->row_stride = weights ? ws[0] : result->stride[1];
    p->bias = q->slot[BIAS].rank > 0;
    p->fa.lanes[0] = p->rows;
    p->fa.lane[0] = weights ? y->stride[1] : forward ? ws[0] : ws[1];
    p->fa.terms[0] = p->fb.terms[0] = weights ? y->dim[0] : forward ? wd[1] : wd[0];
    p->fa.term[0] = weights ? y->stride[0] : forward ? ws[1] : ws[0];
    p->fb.term[0] = weights ? x->stride[0] : image->stride[1];
    p->fb.lanes[0] = weights ? wd[1] : 1;
    p->fb.lane[0] = weights ? x->stride[1] : 0;
    set_image(&p->fb, q, image);
    for (int i = first; i < WINDOW; i++)
        describe_position(p, q, i, i - first, wd + 2, ws + 2);
    if (grouped && weights)
        batch_over(p, w->dim[0], y->dim[1] / w->dim[0] * y->stride[1],
                   x->dim[1] / w->dim[0] * x->stride[1], w->stride[0]);
    else if (grouped)
        batch_over(p, w->dim[0], w->stride[0], image->dim[1] / w->dim[0] * image->stride[1],
                   result->dim[1] / w->dim[0] * result->stride[1]);
    if (!weights && x->dim[0] > 1)
        add_images(p, x->dim[0], image->stride[0], result->stride[0]);
}

bool product_cut_phase(Problem *q, int64_t offset[SLOTS], int i, int64_t phase)
{
    int grouped = q->slot[WEIGHTS].rank - q->slot[SRC].rank;
    Layout *x = &q->slot[SRC], *w = &q->slot[WEIGHTS];
    int64_t stride = q->strides[i], tap = (phase + q->pad_begin[i]) % stride;
    int d = i + 2, k = i + 2 + grouped;
    offset[SRC] += phase * x->stride[d];
    offset[WEIGHTS] += tap * w->stride[k];
    x->dim[d] = ceil_div(x->dim[d] - phase, stride);
    w->dim[k] = ceil_div(w->dim[k] - tap, stride);
    x->stride[d] *= stride;
    w->stride[k] *= stride;
    q->pad_begin[i] = (phase + q->pad_begin[i] - tap) / stride;
    q->strides[i] = 1;
    return x->dim[d] > 0 && w->dim[k] > 0;
}

/* Merges digits to as few as give the same offsets, moved to the end. */
static void merge_digits(int64_t extent[DIGITS], int64_t stride[DIGITS])
{
    int to = DIGITS;
    for (int d = DIGITS - 1; d >= 0; d--) {
        int64_t n = extent[d], step = stride[d];
        extent[d] = 1;
        stride[d] = 0;
        if (to < DIGITS && step == extent[to] * stride[to]) {
            extent[to] *= n;
        } else if (n > 1) {
            extent[--to] = n;
            stride[to] = step;
        }
    }
}

void product_describe(Product *p, const Problem *q)
{
    int64_t *extent[] = {p->fa.lanes, p->fa.terms, p->fb.lanes, p->fb.terms};
    p->nbatch = 1;
    for (int i = 0; i < 4; i++)
        set_ones(extent[i]);
    (q->op == LIB_MATMUL ? describe_matmul : describe_conv)(p, q);
    const Layout *c = &q->slot[p->c];
    p->out = c->dt;
    p->terms = digits_count(p->fb.terms);
    p->columns = digits_count(p->fb.lanes);
    p->image_columns = p->image_stride ? p->columns / p->fb.lanes[0] : p->columns;
    for (int i = 0; i < WINDOW; i++) {
        int d = c->rank - WINDOW + i;
        p->extent[i] = d < 2 ? 1 : c->dim[d];
        p->place[i] = d < 2 ? 0 : c->stride[d];
    }
    for (Factor *f = &p->fa; f <= &p->fb && !f->window; f++) {
        merge_digits(f->lanes, f->lane);
        merge_digits(f->terms, f->term);
    }
}
