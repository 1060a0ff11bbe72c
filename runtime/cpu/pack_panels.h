/* pack_panels.h -- functions that pack factors into panels (pack.h); pack_types.h includes this for each type
 * of element and pack.c for each width of vectors.  ELEMENT is the type, WIDEN converts an element to float,
 * WIDEN_LANES loads a vector of them, NARROW converts a float to an element; PACK(name) names the functions,
 * compiled for the instructions ISA.  Numbers are only moved and widened: all widths give the same bits. */

typedef float PACK(Lanes) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t PACK(Words) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t PACK(Halves) __attribute__((vector_size(2 * LANES), aligned(2)));

/* Builds the vector in registers: loading a vector from memory just written in parts would stall. */
ISA static inline PACK(Lanes) PACK(widen)(const ELEMENT *from)
{
    PACK(Lanes) all;
    for (int i = 0; i < LANES; i++)
        all[i] = WIDEN(from[i]);
    return all;
}

ISA static inline void PACK(copy)(float *to, const ELEMENT *from, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        *(PACK(Lanes) *)(void *)(to + i) = WIDEN_LANES(from + i);
    for (; i < n && n >= 4; i += 4) {
        i = least(i, n - 4);
        float v[4] = {WIDEN(from[i]), WIDEN(from[i + 1]), WIDEN(from[i + 2]), WIDEN(from[i + 3])};
        memcpy(to + i, v, sizeof v);
    }
    for (; i < n; i++)
        to[i] = WIDEN(from[i]);
}

ISA static void PACK(narrow)(void *to, const float *from, int64_t n)
{
    ELEMENT *at = to;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            at[i + j] = NARROW(from[i + j]);
    for (; i < n; i++)
        at[i] = NARROW(from[i]);
}

/* Transposes LANES lanes of LANES consecutive terms to LANES terms of LANES lanes, `width` apart. */
ISA static void PACK(transpose)(const ELEMENT *from, const int64_t *at, float *to, int64_t width)
{
    PACK(Lanes) r[LANES];
    UNROLL for (int i = 0; i < LANES; i++) r[i] = WIDEN_LANES(from + at[i]);
    TRANSPOSE(PACK(Lanes), r, LANES, ALL_LANES)
    UNROLL for (int i = 0; i < LANES; i++) * (PACK(Lanes) *)(void *)(to + i * width) = r[i];
}

/* Packs n lanes whose terms are consecutive; `at` has entries up to a multiple of LANES.  Stores may reach
 * into what is packed next: the next term, so that first lanes are stored last, or PACK_SPARE elements behind
 * the last panel.  Meanwhile the lanes of the next panel, `ahead` elements from these, are prefetched: the
 * rows are too short for the hardware prefetcher. */
ISA static void PACK(pack_transposed)(const ELEMENT *from, const int64_t *at, int n, int64_t ahead,
                                      int64_t terms, int width, float *to)
{
    int64_t t = 0;
    for (; t + LANES <= terms; t += LANES) {
        for (int i = 0; i < n && t * (int64_t)sizeof *from % LINE == 0; i++)
            __builtin_prefetch(from + t + at[i] + ahead);
        for (int i = (n - 1) / LANES * LANES; i >= 0; i -= LANES)
            PACK(transpose)(from + t, at + i, to + t * width + i, width);
    }
    for (; t < terms; t++)
        for (int i = 0; i < n; i++)
            to[t * width + i] = WIDEN(from[at[i] + t]);
}

/* Packs a run of terms, which are `stride` apart, of n lanes that begin at these places. */
ISA static void PACK(pack_run)(const ELEMENT *from, const int64_t *at, int n, int64_t ahead, bool dense,
                               int64_t stride, int64_t terms, int width, float *to)
{
    if (!dense && stride == 1) {
        PACK(pack_transposed)(from, at, n, ahead, terms, width, to);
        return;
    }
    for (int64_t t = 0; t < terms; t++, from += stride, to += width) {
        for (int64_t i = 0; dense && i < n; i += LINE / (int64_t)sizeof *from)
            __builtin_prefetch(from + at[0] + AHEAD * stride + i);
        if (dense)
            PACK(copy)(to, from + at[0], n);
        for (int i = 0; !dense && i < n; i++)
            to[i] = WIDEN(from[at[i]]);
    }
}

/* Packs several panels of adjacent lanes together, term by term: panels narrower than a cache line would
 * otherwise fetch the lines of their neighbours again. */
ISA static void PACK(pack_dense)(const Factor *f, const ELEMENT *from, int64_t lane, int64_t panels,
                                 int width, int64_t first, int64_t terms, float *to)
{
    const int last = DIGITS - 1;
    Count l = count_from(lane, f->lanes), c = count_from(first, f->terms);
    for (int64_t k = 0, run; k < terms; k += run, count_on(&c, f->terms, run)) {
        const ELEMENT *at = from + dot(&l, f->lane) + dot(&c, f->term);
        run = least(terms - k, f->terms[last] - c.digit[last]);
        for (int64_t t = k; t < k + run; t++, at += f->term[last]) {
            for (int64_t i = 0; i < panels * width; i += LINE / (int64_t)sizeof *from)
                __builtin_prefetch(at + AHEAD * f->term[last] + i);
            for (int64_t i = 0; i < panels; i++)
                PACK(copy)(to + (i * terms + t) * width, at + i * width, width);
        }
    }
}

/* Packs a panel of `width` lanes, of which n exist, of a factor without window. */
ISA static void PACK(pack_plain)(const Factor *f, const ELEMENT *from, int64_t lane, int n, int width,
                                 int64_t first, int64_t terms, float *to)
{
    int64_t at[MAX_COLUMNS];
    bool dense = true;
    Count c = count_from(lane, f->lanes);
    for (int i = 0; i < MAX_COLUMNS; i++) {
        at[i] = i < n ? dot(&c, f->lane) : at[n - 1];
        dense &= i >= n || at[i] == at[0] + i;
        if (i < n)
            count_on(&c, f->lanes, 1);
    }
    c = count_from(first, f->terms);
    for (int64_t k = 0, run; k < terms; k += run) {
        run = least(terms - k, f->terms[DIGITS - 1] - c.digit[DIGITS - 1]);
        PACK(pack_run)
        (from + dot(&c, f->term), at, n, width * f->lane[DIGITS - 1], dense, f->term[DIGITS - 1], run, width,
         to + k * width);
        count_on(&c, f->terms, run);
    }
    clear_rest(to, n, width, terms);
}

/* Gathers the elements of a run from an image; pos: position of the first one. */
ISA static void PACK(gather)(const Factor *f, const Run *r, const ELEMENT *from, const int64_t pos[WINDOW],
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

/* Packs a panel of a factor with a window.  Of lanes and terms, the one with the longer last digit is walked
 * in runs, the other one by one. */
ISA static void PACK(pack_window)(const Factor *f, const ELEMENT *from, int64_t lane, int n, int width,
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
            PACK(gather)
            (f, &r, from + o.digit[0] * out[0] + c.digit[0] * in[0], pos, to + k * out_every + i * in_every);
            count_on(&c, in_n, r.n);
            i += r.n;
        }
    }
    clear_rest(to, n, width, terms);
}

/* A PackFn: packs the lanes [lane, lane + n) into consecutive panels. */
ISA static void PACK(pack)(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                           int64_t terms, float *to)
{
    const ELEMENT *from = at;
    for (int64_t i = 0, panels = 1; i < n; i += panels * width, to += panels * width * terms) {
        panels = width < DENSE_LANES ? dense_lanes(f, lane + i, least(n - i, DENSE_LANES)) / width : 0;
        if (panels > 0)
            PACK(pack_dense)(f, from, lane + i, panels, width, first, terms, to);
        else
            (f->window ? PACK(pack_window) : PACK(pack_plain))(f, from, lane + i, (int)least(width, n - i),
                                                               width, first, terms, to);
        panels = panels > 0 ? panels : 1;
    }
}
