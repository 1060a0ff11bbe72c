/* pack.h -- panels of a product's factors (product.c), which includes this for each type of element:
 * ELEMENT, as WIDEN makes a float of one; PACK(name) names the functions. */

static void PACK(copy)(float *to, const ELEMENT *from, int64_t n)
{
    if (sizeof *from == sizeof *to)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = WIDEN(from[i]);
}

static Four PACK(four)(const ELEMENT *from)
{
    if (sizeof *from == sizeof(float))
        return *(const Four *)(const void *)from;
    return (Four){WIDEN(from[0]), WIDEN(from[1]), WIDEN(from[2]), WIDEN(from[3])};
}

/* Four lanes of four terms each, as they lie, to four terms of four lanes. */
static void PACK(turn_four)(const ELEMENT *from, const int64_t at[4], float *to, int64_t width)
{
    Four r[4], s[4];
    for (int i = 0; i < 4; i++)
        r[i] = PACK(four)(from + at[i]);
    for (int i = 0; i < 2; i++) {
        s[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 4, 1, 5);
        s[i + 2] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 6, 3, 7);
    }
    for (int i = 0; i < 4; i += 2) {
        *(Four *)(void *)(to + i * width) = __builtin_shufflevector(s[i], s[i + 1], 0, 1, 4, 5);
        *(Four *)(void *)(to + (i + 1) * width) = __builtin_shufflevector(s[i], s[i + 1], 2, 3, 6, 7);
    }
}

/* Lanes that are rows of consecutive terms. */
static void PACK(pack_turned)(const ELEMENT *from, const int64_t *at, int n, int64_t terms, int width,
                              float *to)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        int64_t t = 0;
        for (; t + 4 <= terms; t += 4)
            PACK(turn_four)(from + t, at + i, to + t * width + i, width);
        for (; t < terms; t++)
            for (int j = i; j < i + 4; j++)
                to[t * width + j] = WIDEN(from[at[j] + t]);
    }
    for (; i < n; i++)
        for (int64_t t = 0; t < terms; t++)
            to[t * width + i] = WIDEN(from[at[i] + t]);
}

/* Terms of n lanes at these places, one `stride` behind the other. */
static void PACK(pack_run)(const ELEMENT *from, const int64_t *at, int n, bool dense, int64_t stride,
                           int64_t terms, int width, float *to)
{
    if (!dense && stride == 1) {
        PACK(pack_turned)(from, at, n, terms, width, to);
        return;
    }
    for (int64_t t = 0; t < terms; t++, from += stride, to += width) {
        if (dense)
            PACK(copy)(to, from + at[0], n);
        for (int i = 0; !dense && i < n; i++)
            to[i] = WIDEN(from[at[i]]);
    }
}

/* A panel of `width` lanes, n of them there, of a factor without window. */
static void PACK(pack_plain)(const Factor *f, const ELEMENT *from, int64_t lane, int n, int width,
                             int64_t first, int64_t terms, float *to)
{
    int64_t at[MAX_COLUMNS];
    bool dense = true;
    Count c = count_from(lane, f->lanes);
    for (int i = 0; i < n; i++) {
        at[i] = dot(&c, f->lane);
        dense &= at[i] == at[0] + i;
        count_on(&c, f->lanes, 1);
    }
    c = count_from(first, f->terms);
    for (int64_t k = 0, run; k < terms; k += run) {
        run = least(terms - k, f->terms[DIGITS - 1] - c.digit[DIGITS - 1]);
        PACK(pack_run)(from + dot(&c, f->term), at, n, dense, f->term[DIGITS - 1], run, width,
                 to + k * width);
        count_on(&c, f->terms, run);
    }
    clear_rest(to, n, width, terms);
}

/* pos: of the first in the image. */
static void PACK(gather)(const Factor *f, const Run *r, const ELEMENT *from, const int64_t pos[WINDOW],
                         float *to)
{
    const int last = WINDOW - 1;
    bool inside = true;
    for (int d = 0; d < last; d++) {
        inside &= pos[d] >= 0 && pos[d] % f->each[d] == 0 && pos[d] / f->each[d] < f->size[d];
        from += pos[d] / f->each[d] * f->stride[d];
    }
    int64_t q = pos[last], size = inside ? f->size[last] * f->each[last] : 0, i = 0;
    for (; i < r->n && !(q >= 0 && q < size); i++, q += r->by)
        to[i * r->every] = 0;
    if (i < r->n && f->each[last] == 1 && r->by > 0) {
        int64_t end = least(r->n, i + (size - q + r->by - 1) / r->by), by = r->by * f->stride[last];
        from += q * f->stride[last];
        if (by == 1 && r->every == 1) {
            PACK(copy)(to + i, from, end - i);
            i = end;
        }
        for (; i < end; i++, from += by)
            to[i * r->every] = WIDEN(*from);
        q = size;
    }
    for (; i < r->n; i++, q += r->by) {
        bool there = q >= 0 && q < size && q % f->each[last] == 0;
        to[i * r->every] = there ? WIDEN(from[q / f->each[last] * f->stride[last]]) : 0;
    }
}

/* Either way: the outer one of lanes and terms is walked one by one, the inner one in runs. */
static void PACK(pack_window)(const Factor *f, const ELEMENT *from, int64_t lane, int n, int width,
                              int64_t first, int64_t terms, float *to)
{
    bool by_terms = f->terms[DIGITS - 1] > f->lanes[DIGITS - 1];
    const int64_t *in_n = by_terms ? f->terms : f->lanes, *in = by_terms ? f->term : f->lane;
    const int64_t *out_n = by_terms ? f->lanes : f->terms, *out = by_terms ? f->lane : f->term;
    int64_t inner = by_terms ? terms : n, outer = by_terms ? n : terms;
    int in_every = by_terms ? width : 1, out_every = by_terms ? 1 : width;
    Count o = count_from(by_terms ? lane : first, out_n);
    Count start = count_from(by_terms ? first : lane, in_n);
    for (int64_t k = 0; k < outer; k++, count_on(&o, out_n, 1)) {
        Count c = start;
        for (int64_t i = 0, pos[WINDOW]; i < inner;) {
            Run r = {least(inner - i, in_n[DIGITS - 1] - c.digit[DIGITS - 1]), in[DIGITS - 1], in_every};
            for (int d = 0; d < WINDOW; d++)
                pos[d] = o.digit[d + 1] * out[d + 1] + c.digit[d + 1] * in[d + 1] - f->pad[d];
            PACK(gather)(f, &r, from + o.digit[0] * out[0] + c.digit[0] * in[0], pos,
                   to + k * out_every + i * in_every);
            count_on(&c, in_n, r.n);
            i += r.n;
        }
    }
    clear_rest(to, n, width, terms);
}

/* Panels of `width` of the lanes [lane, lane + n), one behind the other. */
static void PACK(pack)(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                       int64_t terms, float *to)
{
    const ELEMENT *from = at;
    for (int64_t i = 0; i < n; i += width, to += width * terms)
        (f->window ? PACK(pack_window) : PACK(pack_plain))(f, from, lane + i, (int)least(width, n - i), width,
                                                           first, terms, to);
}
