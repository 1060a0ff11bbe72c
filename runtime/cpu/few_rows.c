/* few_rows.c -- products of so few rows that packing the other factor would cost more than multiplying it:
 * it is read in place.
 *
 * If the other factor is a matrix, the result is computed row by row.  If it is an image (the last
 * convolution of a network, with one to three outputs; the data gradient of one with as few inputs), the
 * result is computed line by line of positions: each term is a stretch of a line of the image times one
 * number for each row. */
#include "product_int.h"

#include <string.h>

enum {
    LINE = 64, /* columns at a time */
    LEAST_LINE = 16,
    LANES = 8
};

/* ---- matrices ------------------------------------------------------------------------------------- */

static bool one_digit(const int64_t extent[DIGITS]) { return extent[DIGITS - 1] == digits_count(extent); }

/* Are lanes and terms of b, and terms of a, of one digit, with b's lanes or terms adjacent in memory? */
static bool has_matrix(const Product *p)
{
    const Factor *b = &p->fb;
    return !p->is_phase && !b->window && !p->bias && one_digit(b->lanes) && one_digit(b->terms) &&
           one_digit(p->fa.terms) && (b->lane[DIGITS - 1] == 1 || b->term[DIGITS - 1] == 1);
}

typedef float Four __attribute__((vector_size(16), aligned(4)));

static float dot_of(const float *a, int64_t step, const float *b, int64_t n)
{
    Four sum[4] = {{0}};
    float rest = 0;
    int64_t k = 0;
    for (; k + 16 <= n; k += 16)
        for (int v = 0; v < 4; v++) {
            const float *at = a + (k + 4 * v) * step;
            Four x = step == 1 ? *(const Four *)(const void *)at
                               : (Four){at[0], at[step], at[2 * step], at[3 * step]};
            sum[v] += x * *(const Four *)(const void *)(b + k + 4 * v);
        }
    for (; k < n; k++)
        rest += a[k * step] * b[k];
    Four all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return (all[0] + all[1]) + (all[2] + all[3]) + rest;
}

/* sum[j] += a * b[j] for n columns; sum has room for n rounded up to a multiple of 4. */
static void add_row(Four *sum, float a, const float *b, int64_t n)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
        sum[j / 4] += a * *(const Four *)(const void *)(b + j);
    for (; j < n; j++)
        sum[j / 4][j % 4] += a * b[j];
}

/* Computes n columns of a row of the result, n at most LINE; b and c are at the first one. */
static void run_row(const Product *p, const float *a, const float *b, float *c, int64_t n, bool add)
{
    const int last = DIGITS - 1;
    int64_t lane = p->fb.lane[last], term = p->fb.term[last], step = p->fa.term[last];
    Four sum[LINE / 4] = {{0}};
    for (int64_t j = 0; term == 1 && j < n; j++)
        sum[j / 4][j % 4] = dot_of(a, step, b + j * lane, p->terms);
    for (int64_t k = 0; term != 1 && k < p->terms; k++)
        add_row(sum, a[k * step], b + k * term, n);
    for (int64_t j = 0; j < n; j++)
        c[j] = add ? c[j] + sum[j / 4][j % 4] : sum[j / 4][j % 4];
}

static void run_matrix(const Product *p, const Member *m, int64_t column, int64_t n, bool add)
{
    const int last = DIGITS - 1;
    for (int64_t r = 0; r < p->rows; r++)
        run_row(p, (const float *)(const void *)m->a + r * p->fa.lane[last],
                (const float *)(const void *)m->b + column * p->fb.lane[last],
                (float *)(void *)m->c + r * p->row_stride + column, n, add);
}

/* ---- images --------------------------------------------------------------------------------------- */

/* Is it a convolution or a data gradient in which adjacent columns of a line are adjacent in the image? */
static bool has_lines(const Product *p)
{
    const Factor *b = &p->fb;
    bool whole = p->a == WEIGHTS && b->window && b->lanes[0] == 1 && b->lane[DIGITS - 1] == 1 &&
                 b->stride[WINDOW - 1] == 1 && b->lanes[DIGITS - 1] >= LEAST_LINE;
    for (int i = 0; i < WINDOW; i++)
        whole = whole && b->each[i] == 1;
    return whole;
}

typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float Sums[FEW_ROWS][LINE];

/* A position of the window: addresses of a's first row and channel and of b's first channel at the first
 * column; strides; number of channels. */
typedef struct {
    const float *a, *b;
    int64_t a_row, a_channel, b_channel, channels;
} Stretch;

/* Adds the products of all channels to columns [j, j + LANES * vectors); compiled as panels are (panel.c). */
typedef void AddFn(const Stretch *s, int64_t j, Sums sum);
#define ADD(name, isa, rows, vectors)                                                                        \
    __attribute__((no_sanitize("address", "undefined"))) isa static void name(const Stretch *s, int64_t j,   \
                                                                              Sums sum)                      \
    {                                                                                                        \
        Lanes t[rows][vectors];                                                                              \
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) t[r][v] =             \
            ((const Lanes *)(const void *)&sum[r][j])[v];                                                    \
        for (int64_t c = 0; c < s->channels; c++) {                                                          \
            const float *a = s->a + c * s->a_channel;                                                        \
            const Lanes *b = (const void *)(s->b + c * s->b_channel + j);                                    \
            UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) t[r][v] +=        \
                a[r * s->a_row] * b[v];                                                                      \
        }                                                                                                    \
        UNROLL for (int r = 0; r < rows; r++)                                                                \
            UNROLL for (int v = 0; v < vectors; v++)((Lanes *)(void *)&sum[r][j])[v] = t[r][v];              \
    }
#define ADD_ALL(isa_name, isa)                                                                               \
    ADD(add_1_1##isa_name, isa, 1, 1)                                                                        \
    ADD(add_1_4##isa_name, isa, 1, 4)                                                                        \
    ADD(add_2_1##isa_name, isa, 2, 1)                                                                        \
    ADD(add_2_4##isa_name, isa, 2, 4)                                                                        \
    ADD(add_3_1##isa_name, isa, 3, 1)                                                                        \
    ADD(add_3_4##isa_name, isa, 3, 4)                                                                        \
    static AddFn *const add##isa_name[FEW_ROWS][2] = {{add_1_1##isa_name, add_1_4##isa_name},                \
                                                      {add_2_1##isa_name, add_2_4##isa_name},                \
                                                      {add_3_1##isa_name, add_3_4##isa_name}};
ADD_ALL(_any, )
#ifdef __x86_64__
ADD_ALL(_avx2, __attribute__((target("avx2,fma"))))
#else
#define add_avx2 add_any
#endif

/* Adds the products of all channels to columns [from, to). */
static void add_stretch(AddFn *const add[2], int64_t rows, const Stretch *s, int64_t from, int64_t to,
                        Sums sum)
{
    int64_t j = from;
    for (; j + 4 * LANES <= to; j += 4 * LANES)
        add[1](s, j, sum);
    for (; j + LANES <= to; j += LANES)
        add[0](s, j, sum);
    for (int64_t c = 0; c < s->channels && j < to; c++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = j; k < to; k++)
                sum[r][k] += s->a[r * s->a_row + c * s->a_channel] * s->b[c * s->b_channel + k];
}

/* Sets *at to the offset of the line of the image that is read at these positions and taps, in all dimensions
 * but the last; false: it is outside the image. */
static bool line_of(const Factor *f, const int64_t position[WINDOW], const int64_t tap[WINDOW], int64_t *at)
{
    *at = 0;
    for (int i = 0; i < WINDOW - 1; i++) {
        int64_t x = position[i] * f->lane[i + 1] + tap[i] * f->term[i + 1] - f->pad[i];
        if (x < 0 || x >= f->size[i])
            return false;
        *at += x * f->stride[i];
    }
    return true;
}

/* Offset of a term in factor a, whose digits may be fewer than those of factor b. */
static int64_t term_at(const Factor *f, int64_t term)
{
    int64_t at = 0;
    for (int d = DIGITS - 1; d >= 0; term /= f->terms[d--])
        at += term % f->terms[d] * f->term[d];
    return at;
}

/* Computes the sums of all terms for n columns along a line, from these positions on. */
static void sum_line(const Product *p, const Member *m, const int64_t position[WINDOW], int64_t n, Sums sum)
{
    const int last = WINDOW - 1;
    const Factor *fa = &p->fa, *fb = &p->fb;
    AddFn *const *add = (p->vector >= 32 ? add_avx2 : add_any)[p->rows - 1];
    const float *a = (const float *)(const void *)m->a, *b = (const float *)(const void *)m->b;
    int64_t taps = fb->terms[1] * fb->terms[2] * fb->terms[3], channel = term_at(fa, taps % p->terms), line;
    memset(sum, 0, sizeof(Sums));
    for (int64_t i = 0; i < taps; i++) {
        int64_t rest = i / fb->terms[3];
        int64_t tap[WINDOW] = {rest / fb->terms[2], rest % fb->terms[2], i % fb->terms[3]};
        if (!line_of(fb, position, tap, &line))
            continue;
        int64_t x = position[last] + tap[last] * fb->term[DIGITS - 1] - fb->pad[last];
        Stretch s = {.a = a + term_at(fa, i), .a_row = fa->lane[DIGITS - 1], .a_channel = channel,
                     .b = b + line + x, .b_channel = fb->term[0], .channels = fb->terms[0]};
        add_stretch(add, p->rows, &s, x < 0 ? -x : 0, least(n, fb->size[last] - x), sum);
    }
}

static void run_line(const Product *p, const Member *m, int64_t column, int64_t n, bool add)
{
    int64_t position[WINDOW], rest = column, together;
    Sums sum;
    for (int i = WINDOW - 1; i >= 0; rest /= p->fb.lanes[1 + i--])
        position[i] = rest % p->fb.lanes[1 + i];
    sum_line(p, m, position, n, sum);
    const float *bias = (const float *)(const void *)m->bias;
    int64_t step = p->is_phase ? p->place[WINDOW - 1] : 1;
    for (int64_t r = 0; r < p->rows; r++) {
        float *c = (float *)(void *)m->c + product_place(p, r, column, &together);
        for (int64_t j = 0; j < n; j++)
            c[j * step] = (add ? c[j * step] : bias ? bias[r] : 0) + sum[r][j];
    }
}

/* ---- matrices and images -------------------------------------------------------------------------- */

bool few_rows_fit(const Product *p)
{
    bool plain = p->rows <= FEW_ROWS && p->in == DT_F32 && p->out == DT_F32;
    return plain && (has_matrix(p) || has_lines(p));
}

void few_rows_run(const Product *p, char *const at[SLOTS], bool add)
{
    int64_t line = p->fb.window ? p->fb.lanes[DIGITS - 1] : p->columns, pieces = ceil_div(line, LINE);
    int64_t lines = p->columns / (line ? line : 1), units = p->nbatch * lines * pieces;
#pragma omp parallel for schedule(static) num_threads(p->threads) if (units > 1)
    for (int64_t i = 0; i < units; i++) {
        Member m = product_member(p, at, i / (lines * pieces));
        int64_t from = i % pieces * LINE, column = i / pieces % lines * line + from;
        (p->fb.window ? run_line : run_matrix)(p, &m, column, least(LINE, line - from), add);
    }
}
