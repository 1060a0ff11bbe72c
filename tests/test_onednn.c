/* test_onednn.c -- every choice of the library against plain loops in double precision, and the
 * same bits on every run. */
#include "lib_reference.h"
#include "op_samples_int.h"
#include "step.h"
#include "tests.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/cpu.h"
#include "runtime/cpu/onednn.h"

typedef struct {
    LibOp op;
    DType dt, out_dt;
    bool ta, tb;
    int ra, rb;
    int64_t a[5], b[5]; /* matmul: as stored; conv: x, w of the forward operation */
    int64_t strides[3], pads[6], dilations[3], group;
    bool bias;
} Case;

static Tensor tensor_new(Type t)
{
    Tensor r = {t, calloc((size_t)type_count(&t) + 1, 8)};
    ck_assert_ptr_nonnull(r.data);
    return r;
}

static Tensor tensor_random(Type t, uint32_t seed)
{
    Tensor r = tensor_new(t);
    for (int64_t i = 0; i < type_count(&t); i++) {
        seed = seed * 1664525u + 1013904223u;
        tensor_set_f(&r, i, (double)(seed >> 8) / (1 << 23) - 1);
    }
    return r;
}

/* ---- cases ------------------------------------------------------------------------ */

#define CONV(type, rank) .op = LIB_CONV, .dt = type, .ra = rank, .rb = rank
static const Case cases[] = {
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {7, 13}, .b = {13, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .tb = true, .ra = 2, .rb = 2, .a = {64, 48}, .b = {80, 48}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 2, .rb = 2, .a = {48, 64}, .b = {48, 33}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 3, .rb = 2, .a = {3, 7, 16}, .b = {16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 3, .rb = 2, .a = {3, 16, 7}, .b = {16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 3, .a = {7, 16}, .b = {3, 16, 9}},
    {.op = LIB_MATMUL, .dt = DT_F32, .tb = true, .ra = 4, .rb = 4, .a = {2, 3, 16, 8}, .b = {2, 3, 16, 8}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ta = true, .ra = 4, .rb = 4, .a = {2, 1, 16, 8}, .b = {1, 3, 16, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 4, .rb = 3, .a = {2, 3, 16, 8}, .b = {3, 8, 5}},
    {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {1, 40}, .b = {40, 1}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {32, 64}, .b = {64, 48}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {13, 700}, .b = {700, 70}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ta = true, .ra = 2, .rb = 2, .a = {75, 29}, .b = {75, 64}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 3, .rb = 3, .a = {3, 7, 9}, .b = {3, 9, 33}},
    {.op = LIB_MATMUL, .dt = DT_BF16, .out_dt = DT_F32, .tb = true, .ra = 3, .rb = 3, .a = {2, 17, 40},
     .b = {2, 19, 40}},
    {CONV(DT_F32, 4), .a = {2, 3, 9, 8}, .b = {5, 3, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_F32, 4), .a = {2, 16, 14, 14}, .b = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {3, 13, 31, 22}, .b = {29, 13, 3, 3}, .pads = {0, 2, 2, 0},
     .bias = true}, /* tiles over all edges, more than a block; more rows than a group */
    {CONV(DT_F32, 4), .a = {2, 4, 10, 11}, .b = {6, 2, 3, 2}, .group = 2, .strides = {2, 1},
     .pads = {0, 1, 2, 0}, .dilations = {1, 2}},
    {CONV(DT_F32, 4), .a = {2, 8, 10, 10}, .b = {8, 1, 3, 3}, .group = 8, .strides = {2, 2},
     .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {2, 4, 37, 21}, .b = {8, 1, 7, 5}, .group = 4, .pads = {3, 0, 2, 4},
     .dilations = {2, 3}}, /* two channels of each, more than a band */
    {CONV(DT_F32, 4), .a = {3, 5, 40, 38}, .b = {5, 1, 2, 3}, .group = 5, .strides = {1, 3},
     .pads = {0, 4, 0, 2}, .dilations = {1, 2}},
    {CONV(DT_F32, 3), .a = {3, 6, 50}, .b = {6, 1, 4}, .group = 6, .strides = {2}, .pads = {3, 1}},
    {CONV(DT_BF16, 4), .a = {2, 16, 9, 19}, .b = {16, 1, 3, 3}, .group = 16, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 3), .a = {2, 4, 20}, .b = {6, 4, 5}, .strides = {3}, .pads = {2, 2}, .bias = true},
    {CONV(DT_F32, 4), .a = {1, 16, 6, 6}, .b = {16, 16, 1, 1}, .strides = {2, 2}},
    {CONV(DT_BF16, 4), .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_BF16, 4), .out_dt = DT_F32, .a = {2, 16, 9, 14}, .b = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}},
    {CONV(DT_BF16, 4), .out_dt = DT_F32, .a = {2, 16, 7, 8}, .b = {40, 16, 1, 1}},
    /* images side by side, whose panels are of several */
    {CONV(DT_F32, 4), .a = {5, 33, 7, 7}, .b = {30, 33, 3, 3}},
    {CONV(DT_BF16, 4), .a = {5, 70, 7, 7}, .b = {52, 70, 1, 1}},
    {CONV(DT_BF16, 4), .a = {3, 520, 5, 5}, .b = {20, 520, 1, 1}, .bias = true},
    {CONV(DT_BF16, 4), .a = {1, 2, 130, 330}, .b = {2, 1, 5, 3}, .group = 2, .strides = {2, 2},
     .pads = {2, 1, 2, 1}, .bias = true}, /* planes in several bands, of what is read and of what is made */
    {CONV(DT_F32, 4), .a = {2, 3, 5, 6}, .b = {3, 1, 2, 2}, .group = 3, .strides = {3, 4},
     .pads = {3, 2, 3, 4}}, /* positions of no tap, and of none but zeros */
    {CONV(DT_BF16, 3), .a = {3, 6, 50}, .b = {40, 6, 4}, .strides = {2}, .pads = {1, 1}},
    {CONV(DT_BF16, 3), .a = {4, 32, 10}, .b = {16, 32, 3}, .strides = {2}, .pads = {1, 0}},
    {CONV(DT_F32, 4), .a = {2, 5, 9, 9}, .b = {6, 5, 2, 2}, .pads = {0, 0, 1, 1}}, /* nothing in front */
    {CONV(DT_F32, 4), .a = {1, 3, 9, 9}, .b = {4, 3, 2, 2}, .strides = {4096, 1 << 22}}, /* many phases */
    /* few rows of long lines */
    {CONV(DT_F32, 4), .a = {2, 20, 9, 37}, .b = {3, 20, 3, 5}, .pads = {1, 2, 1, 0}, .bias = true},
    {CONV(DT_F32, 4), .a = {2, 17, 8, 50}, .b = {1, 17, 3, 3}, .pads = {0, 9, 2, 9}, .dilations = {1, 9}},
    {CONV(DT_F32, 4), .a = {2, 3, 13, 70}, .b = {20, 3, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}},
    {CONV(DT_F32, 4), .a = {1, 2, 9, 150}, .b = {5, 2, 2, 3}, .dilations = {1, 2}},
    {CONV(DT_F32, 4), .a = {2, 4, 7, 30}, .b = {4, 2, 3, 3}, .group = 2, .pads = {1, 1, 1, 1}, .bias = true},
    {CONV(DT_F32, 5), .a = {2, 3, 6, 7, 40}, .b = {16, 3, 3, 3, 3}, .strides = {2, 2, 2}, .pads = {1, 1, 1}},
    {CONV(DT_F32, 3), .a = {3, 2, 90}, .b = {9, 2, 4}, .strides = {3}, .pads = {2, 2}},
    {CONV(DT_F16, 4), .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}, .bias = true},
    {CONV(DT_F16, 4), .a = {2, 6, 9, 19}, .b = {6, 1, 3, 3}, .group = 6},
};
enum { NCASES = sizeof cases / sizeof *cases };

static Ints ints_or(const int64_t *v, int n, int64_t otherwise)
{
    Ints r = {.n = n};
    for (int i = 0; i < n; i++)
        r.v[i] = v[i] ? v[i] : otherwise;
    return r;
}

static void fill_matmul(DnnlDesc *d, const Case *c)
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

static void fill_conv(DnnlDesc *d, const Case *c, LibOp op)
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

static void run_once(DnnlOp *op, const Tensor *t, Tensor *out)
{
    Diag diag = {0};
    size_t bytes = ((size_t)onednn_scratch_bytes(op) + 64) / 64 * 64;
    void *scratch = aligned_alloc(64, bytes);
    memset(scratch, 0xff, bytes); /* NaN: what is used must be written first */
    const void *in[3] = {t[0].data, t[1].data, t[2].data};
    ck_assert_msg(onednn_run(op, in, out->data, scratch, &diag), "%s", diag.msg);
    free(scratch);
}

static double largest(const double *v, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++)
        m = fmax(m, fabs(v[i]));
    return m;
}

static void compare(const DnnlDesc *d, DnnlOp *op, const Tensor *t, const double *want)
{
    Tensor a = tensor_new(d->of.out), b = tensor_new(d->of.out);
    run_once(op, t, &a);
    run_once(op, t, &b);
    ck_assert_mem_eq(a.data, b.data, (size_t)type_bytes(&d->of.out));
    int64_t n = type_count(&d->of.out);
    DType dt = d->of.out.dt;
    double limit = largest(want, n) * (dt == DT_BF16 ? 1e-2 : dt == DT_F16 ? 1e-3 : 5e-6);
    for (int64_t i = 0; i < n; i++) /* an assertion that holds is a message, too: none for each element */
        if (!(fabs(tensor_f(&a, i) - want[i]) <= limit))
            ck_abort_msg("%s %s: [%lld] %g, not %g", onednn_choice_text(d), onednn_impl(op), (long long)i,
                         tensor_f(&a, i), want[i]);
    free(a.data);
    free(b.data);
}

/* Returns how many there are. */
static int check_choices(DnnlDesc *d, const Tensor *t, const double *want)
{
    int made = 0;
    for (int choice = 0; choice < ONEDNN_CHOICES; choice++) {
        Diag diag = {0};
        d->choice = (DnnlChoice)choice;
        DnnlOp *op = onednn_make(d, &diag);
        ck_assert_msg(!diag.failed, "%s", diag.msg);
        if (op)
            compare(d, op, t, want);
        made += op != NULL;
        onednn_free(op);
    }
    return made;
}

/* Where element i of [N, C, s...] is in [N, s..., C]. */
static int64_t place_last(const Type *t, int64_t i)
{
    int64_t places = type_count(t) / (t->dim[0] * t->dim[1]), image = i / (t->dim[1] * places);
    return (image * places + i % places) * t->dim[1] + i / places % t->dim[1];
}

static Tensor tensor_last(const Tensor *t)
{
    Tensor last = tensor_new(sample_channels_last(t->type));
    for (int64_t i = 0; i < type_count(&t->type); i++)
        tensor_set_f(&last, place_last(&t->type, i), tensor_f(t, i));
    return last;
}

/* The same convolution of channels-last images. */
static DnnlDesc on_last(DnnlDesc d)
{
    bool of_weights = d.of.op == LIB_CONV_BWD_WEIGHTS;
    Type *result = of_weights ? &d.of.in[1] : &d.of.out;
    d.of.conv.channels_last = 1;
    d.of.in[0] = sample_channels_last(d.of.in[0]);
    *result = sample_channels_last(*result);
    return d;
}

static int check_last(const DnnlDesc *d, const Tensor *t, const double *want)
{
    int64_t n = type_count(&d->of.out);
    double *moved = malloc((size_t)n * sizeof *moved);
    bool of_weights = d->of.op == LIB_CONV_BWD_WEIGHTS;
    Tensor in[3] = {tensor_last(&t[0]), of_weights ? tensor_last(&t[1]) : t[1], t[2]};
    DnnlDesc last = on_last(*d);
    for (int64_t i = 0; i < n; i++)
        moved[of_weights ? i : place_last(&d->of.out, i)] = want[i];
    int made = check_choices(&last, in, moved);
    for (int i = 0; i <= of_weights; i++)
        free(in[i].data);
    free(moved);
    return made;
}

/* All choices of one operation; returns how many there are, of convolutions at least in either layout. */
static int check_desc(DnnlDesc *d)
{
    Tensor t[3] = {{.data = NULL}};
    bool product = d->of.op == LIB_MATMUL;
    for (int i = 0; i < d->of.nin; i++)
        t[i] = tensor_random(d->of.in[i], 17u + (uint32_t)i);
    double *want = calloc((size_t)type_count(&d->of.out), sizeof *want);
    (product ? reference_matmul : reference_conv)(&d->of, t, want);
    int made = check_choices(d, t, want), last = product ? made : check_last(d, t, want);
    free(want);
    for (int i = 0; i < d->of.nin; i++)
        free(t[i].data);
    return last < made ? last : made;
}

static void check_case(const Case *c)
{
    LibOp last = c->op == LIB_MATMUL ? LIB_MATMUL : LIB_CONV_BWD_WEIGHTS;
    for (LibOp op = c->op; op <= last; op++) {
        DnnlDesc d = {.of.op = op};
        if (op == LIB_MATMUL)
            fill_matmul(&d, c);
        else
            fill_conv(&d, c, op);
        int made = check_desc(&d);
        if (made == 0 && c->dt == DT_BF16 && !onednn_wide_bf16())
            skipped("no routines for 16-bit types on this processor: generated kernels run");
        else
            ck_assert_int_gt(made, 0);
    }
}

START_TEST(test_against_loops)
{
    if (use_isa(_i / NCASES))
        check_case(&cases[_i % NCASES]);
}
END_TEST

/* Tiles of bf16 (AMX), also of whole panels and of less. */
START_TEST(tiles_against_loops)
{
    static const Case more[] = {
        {.op = LIB_MATMUL, .dt = DT_BF16, .ta = true, .ra = 2, .rb = 2, .a = {1030, 96}, .b = {1030, 128}},
        {.op = LIB_MATMUL,
         .dt = DT_BF16,
         .out_dt = DT_F32,
         .tb = true,
         .ra = 2,
         .rb = 2,
         .a = {80, 1026},
         .b = {47, 1026}},
        {.op = LIB_MATMUL, .dt = DT_BF16, .ra = 2, .rb = 2, .a = {33, 31}, .b = {31, 32}},
    };
    if (!use_isa(TEST_AMX))
        return;
    const int n = sizeof more / sizeof *more;
    for (int i = 0; i < n + NCASES; i++)
        if (i < n || cases[i - n].dt == DT_BF16)
            check_case(i < n ? &more[i] : &cases[i - n]);
}
END_TEST

/* Five images, two at a time: the fourth is made twice. */
START_TEST(test_pieces)
{
    Case c = cases[_i % NCASES];
    if (!use_isa(_i / NCASES))
        return;
    c.a[0] = 5;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA && c.op == LIB_CONV; op++) {
        DnnlDesc d = {.of.op = op, .images = 2};
        fill_conv(&d, &c, op);
        check_desc(&d);
    }
}
END_TEST

/* ---- candidates with the same bits ---------------------------------------------------------------- */

/* False: there is no such routine. */
static bool result_of(DnnlDesc *d, int64_t parts, Tensor *out)
{
    Diag diag = {0};
    d->parts = parts;
    DnnlOp *op = onednn_make(d, &diag);
    ck_assert_msg(!diag.failed, "%s", diag.msg);
    if (!op)
        return false;
    Tensor t[3] = {{.data = NULL}};
    for (int i = 0; i < d->of.nin; i++)
        t[i] = tensor_random(d->of.in[i], 17u + (uint32_t)i);
    *out = tensor_new(d->of.out);
    run_once(op, t, out);
    for (int i = 0; i < d->of.nin; i++)
        free(t[i].data);
    onednn_free(op);
    return true;
}

/* All powers of 2: how many parts there are with routines. */
static int compare_parts(DnnlDesc *d)
{
    Tensor whole, out;
    int made = 0;
    if (!result_of(d, 0, &whole))
        return 0;
    for (int64_t parts = 2; parts <= ONEDNN_MAX_PARTS; parts *= 2) {
        if (!result_of(d, parts, &out))
            continue;
        ck_assert_msg(memcmp(whole.data, out.data, (size_t)type_bytes(&d->of.out)) == 0,
                      "%s: other bits in %lld parts", onednn_choice_text(d), (long long)parts);
        free(out.data);
        made++;
    }
    free(whole.data);
    return made;
}

static const Case shapes[] = {
    {.a = {3, 64, 14, 14}, .b = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}},
    {.a = {4, 32, 9, 9}, .b = {96, 32, 3, 3}, .pads = {1, 1, 1, 1}, .strides = {2, 2}, .bias = true},
    {.a = {2, 128, 7, 7}, .b = {256, 128, 3, 3}, .pads = {1, 1, 1, 1}},
    {.a = {3, 64, 12, 12}, .b = {32, 64, 5, 5}, .pads = {2, 2, 2, 2}, .dilations = {2, 1}},
    {.a = {2, 128, 8, 8}, .b = {128, 128, 1, 1}, .strides = {2, 2}},
    {.a = {2, 64, 10, 10}, .b = {64, 1, 3, 3}, .group = 64, .pads = {1, 1, 1, 1}},
    {.a = {2, 128, 6, 6}, .b = {128, 16, 3, 3}, .group = 8, .pads = {1, 1, 1, 1}},
    {.a = {6, 3, 20, 20}, .b = {64, 3, 7, 7}, .strides = {2, 2}, .pads = {3, 3, 3, 3}},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

/* A result made in parts of its channels, a few images at a time or all at once. */
START_TEST(parts_have_the_same_bits)
{
    Case c = shapes[_i % NSHAPES];
    int made = 0;
    if (!use_isa(_i / NSHAPES))
        return;
    c.dt = DT_F32;
    c.ra = c.rb = 4;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++)
        for (int64_t images = 0; images <= 2; images += 2) {
            DnnlDesc d = {.of.op = op, .images = images, .choice = ONEDNN_BLOCKED}, last;
            fill_conv(&d, &c, op);
            made += compare_parts(&d);
            last = on_last(d);
            last.choice = ONEDNN_PLAIN;
            made += compare_parts(&last);
        }
    ck_assert(made > 0 || _i / NSHAPES == 0);
}
END_TEST

/* What a plan may take for another, of sums long enough for the library to cut. */
START_TEST(candidates_have_the_same_bits)
{
    Case c = {CONV(DT_F32, 4), .a = {4, 512, 3, 3}, .b = {256, 512, 3, 3}, .pads = {1, 1, 1, 1}};
    c.dt = _i % 2 ? DT_BF16 : DT_F32;
    if (!use_isa(_i / 2))
        return;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++) {
        DnnlDesc rows = {.of.op = op, .choice = ONEDNN_PLAIN};
        Diag diag = {0};
        StepCost cost;
        fill_conv(&rows, &c, op);
        DnnlDesc d = on_last(rows);
        DnnlOp *whole = onednn_make(&d, &diag);
        if (!whole)
            continue;
        find_candidates(&d, whole, &cost, &diag);
        onednn_free(whole);
        Tensor want, got;
        ck_assert(result_of(&d, 0, &want));
        for (int i = 1; i < cost.same; i++) {
            ck_assert(onednn_choice_parse(&d, cost.c[i].choice));
            ck_assert(result_of(&d, d.parts, &got));
            ck_assert_msg(memcmp(want.data, got.data, (size_t)type_bytes(&d.of.out)) == 0, "%s: other bits",
                          cost.c[i].choice);
            free(got.data);
        }
        free(want.data);
    }
}
END_TEST

/* Our products: any blocks, any number of threads. */
START_TEST(blocks_and_threads_have_the_same_bits)
{
    const Case *c = &cases[_i % NCASES];
    if (!use_isa(_i / NCASES))
        return;
    LibOp last = c->op == LIB_MATMUL ? LIB_MATMUL : LIB_CONV_BWD_WEIGHTS;
    for (LibOp op = c->op; op <= last; op++) {
        DnnlDesc d = {.of.op = op, .choice = ONEDNN_OWN};
        if (op == LIB_MATMUL)
            fill_matmul(&d, c);
        else
            fill_conv(&d, c, op);
        ck_assert_int_eq(compare_parts(&d), 4);
        Tensor two, three;
        omp_set_num_threads(2);
        ck_assert(result_of(&d, 0, &two));
        omp_set_num_threads(3);
        ck_assert(result_of(&d, 0, &three));
        ck_assert_mem_eq(two.data, three.data, (size_t)type_bytes(&d.of.out));
        free(two.data);
        free(three.data);
    }
}
END_TEST

/* Has our own Winograd such a routine? */
static bool has_tiles(const DnnlDesc *d)
{
    bool turned = d->of.op == LIB_CONV_BWD_WEIGHTS && d->of.conv.channels_last;
    return onednn_vector_bytes() == 64 || (onednn_vector_bytes() == 32 && !turned);
}

/* Any number of threads, and of images at a time. */
static void check_tiles(DnnlDesc *d)
{
    Tensor want, got;
    d->choice = ONEDNN_WINOGRAD;
    omp_set_num_threads(1);
    bool made = result_of(d, 0, &want);
    ck_assert_int_eq(made, has_tiles(d));
    if (!made)
        return;
    for (int threads = 2; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        d->images = threads;
        ck_assert(result_of(d, 0, &got));
        ck_assert_mem_eq(want.data, got.data, (size_t)type_bytes(&d->of.out));
        free(got.data);
    }
    free(want.data);
}

/* Fewer tiles than channels; more, in two blocks. */
START_TEST(tiles_have_the_same_bits)
{
    Case c = shapes[0];
    if (!use_isa(_i))
        return;
    int64_t few = 3, many = onednn_vector_bytes() == 64 ? 18 : 9;
    c.dt = DT_F32;
    c.ra = c.rb = 4;
    for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_WEIGHTS; op++)
        for (c.a[0] = few; c.a[0] <= many; c.a[0] += many - few) {
            DnnlDesc d = {.of.op = op}, last;
            fill_conv(&d, &c, op);
            if (op == LIB_CONV_BWD_WEIGHTS && c.a[0] == many)
                check_desc(&d);
            last = on_last(d);
            if (onednn_vector_bytes() < 64) /* otherwise the library's, which adds in other orders */
                check_tiles(&d);
            check_tiles(&last);
        }
}
END_TEST

/* Fewer tiles than channels, but more than their products have room for, or than are summed in registers. */
START_TEST(tiles_in_chunks)
{
    Case c = {CONV(DT_F32, 4), .a = {1, 8, 41, 35}, .b = {120, 8, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true};
    static const LibOp ops[] = {LIB_CONV, LIB_CONV_BWD_WEIGHTS};
    for (int i = 0; i < 2 && use_isa(_i); i++) {
        DnnlDesc d = {.of.op = ops[i]};
        fill_conv(&d, &c, ops[i]);
        ck_assert_int_gt(check_desc(&d), 0);
    }
}
END_TEST

static int64_t scratch_bytes(DnnlDesc *d, int64_t images)
{
    Diag diag = {0};
    d->images = images;
    d->choice = ONEDNN_BLOCKED;
    DnnlOp *op = onednn_make(d, &diag);
    ck_assert_ptr_nonnull(op);
    int64_t bytes = onednn_scratch_bytes(op);
    onednn_free(op);
    return bytes;
}

/* Scratch of the rule is that of so many images, where there are routines both ways. */
START_TEST(test_rule)
{
    if (!use_isa(1))
        return;
    static const struct {
        Case c;
        int64_t images;
    } t[] = {
        {{.a = {8, 32, 256, 256}, .b = {32, 32, 3, 3}}, 1},  /* an image is a piece */
        {{.a = {32, 64, 56, 56}, .b = {64, 64, 3, 3}}, 4},   /* not 3: they would not divide 32 */
        {{.a = {31, 64, 56, 56}, .b = {64, 64, 3, 3}}, 4},   /* one image twice */
        {{.a = {7, 64, 56, 56}, .b = {64, 64, 3, 3}}, 7},    /* one of seven twice is too much */
        {{.a = {32, 512, 7, 7}, .b = {512, 512, 3, 3}}, 32}, /* large weights */
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++) {
            Case c = t[i].c;
            DnnlDesc d = {.of.op = op};
            c.dt = DT_F32;
            c.ra = c.rb = 4;
            fill_conv(&d, &c, op);
            ck_assert_int_eq(scratch_bytes(&d, 0), scratch_bytes(&d, t[i].images));
        }
}
END_TEST

/* Of products: the library's, unless rows of the second factor are whole pages apart, but no power of two. */
START_TEST(products_that_are_ours)
{
    static const Case c[] = {{.ra = 2, .rb = 2, .a = {32, 64}, .b = {64, 768}},
                             {.ra = 2, .rb = 2, .a = {32, 64}, .b = {64, 4096}},
                             {.ra = 2, .rb = 2, .a = {32, 64}, .b = {3072, 64}, .tb = true},
                             {.ra = 2, .rb = 2, .a = {32, 64}, .b = {64, 3072}},
                             {.ra = 2, .rb = 2, .a = {64, 32}, .b = {64, 5120}, .ta = true},
                             {.ra = 2, .rb = 2, .a = {8, 64}, .b = {64, 3072}}};
    static const DnnlChoice want[] = {ONEDNN_PLAIN, ONEDNN_PLAIN, ONEDNN_PLAIN,
                                      ONEDNN_OWN,   ONEDNN_OWN,   ONEDNN_PLAIN};
    if (!use_isa(2))
        return;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Case f32 = c[i];
        Diag d = {0};
        DnnlDesc desc = {.of.op = LIB_MATMUL};
        f32.dt = DT_F32;
        fill_matmul(&desc, &f32);
        DnnlOp *op = choose_routine(&desc, &d);
        ck_assert(op && desc.choice == want[i]);
        onednn_free(op);
    }
}
END_TEST

/* Without AVX-512: depthwise ones, and all of 16 bits, which the library reorders one element at a time. */
START_TEST(convolutions_that_are_ours)
{
    static const struct {
        Case c;
        DnnlChoice want;
    } t[] = {
        {{.dt = DT_F32, .a = {2, 32, 28, 28}, .b = {32, 32, 3, 3}}, ONEDNN_BLOCKED},
        {{.dt = DT_BF16, .a = {2, 16, 9, 9}, .b = {16, 16, 3, 3}}, ONEDNN_OWN},
        {{.dt = DT_F32, .a = {2, 16, 9, 9}, .b = {16, 1, 3, 3}, .group = 16, .strides = {2, 2}}, ONEDNN_OWN},
    };
    if (!use_isa(1))
        return;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (LibOp op = LIB_CONV; op <= LIB_CONV_BWD_DATA; op++) {
            Case c = t[i].c;
            Diag d = {0};
            DnnlDesc desc = {.of.op = op};
            c.ra = c.rb = 4;
            fill_conv(&desc, &c, op);
            DnnlOp *made = choose_routine(&desc, &d);
            ck_assert(made && desc.choice == t[i].want);
            onednn_free(made);
        }
}
END_TEST

/* Of 16-bit factors the library makes them, too. */
START_TEST(weight_gradients_in_f32)
{
    static const Case c = {.dt = DT_BF16,
                           .out_dt = DT_F32,
                           .ra = 4,
                           .rb = 4,
                           .a = {2, 16, 9, 14},
                           .b = {32, 16, 3, 3},
                           .pads = {1, 1, 1, 1}};
    DnnlDesc desc = {.choice = ONEDNN_BLOCKED};
    Diag d = {0};
    if (!onednn_wide_bf16())
        return skipped("no routines for 16-bit types on this processor: generated kernels run");
    desc.of.op = LIB_CONV_BWD_WEIGHTS;
    fill_conv(&desc, &c, LIB_CONV_BWD_WEIGHTS);
    ck_assert_int_eq(desc.of.out.dt, DT_F32);
    DnnlOp *op = onednn_make(&desc, &d);
    ck_assert_ptr_nonnull(op);
    onednn_free(op);
}
END_TEST

START_TEST(test_unsupported)
{
    static const Case refused[] = {
        {.op = LIB_MATMUL, .dt = DT_F64, .ra = 2, .rb = 2, .a = {2, 3}, .b = {3, 2}},
        {.op = LIB_MATMUL, .dt = DT_F32, .ra = 2, .rb = 2, .a = {2, 0}, .b = {0, 2}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        DnnlDesc d = {.of.op = LIB_MATMUL};
        Diag diag = {0};
        fill_matmul(&d, &refused[i]);
        ck_assert_ptr_null(onednn_make(&d, &diag));
        ck_assert(!diag.failed);
    }
}
END_TEST

/* Schedules have it as text. */
START_TEST(choices_are_text)
{
    for (int choice = 0; choice < ONEDNN_CHOICES; choice++)
        for (int64_t parts = 1; parts <= ONEDNN_MAX_PARTS; parts *= 2) {
            DnnlDesc d = {.parts = parts > 1 ? parts : 0, .choice = (DnnlChoice)choice}, again = {0};
            ck_assert(onednn_choice_parse(&again, onednn_choice_text(&d)));
            ck_assert_int_eq(again.choice, d.choice);
            ck_assert_int_eq(again.parts, d.parts);
        }
    ck_assert_str_eq(onednn_choice_text(&(DnnlDesc){.parts = 4, .choice = ONEDNN_OWN}), "own/4");
    static const char *const none[] = {"", "wave", "own/", "own/3", "own/32", "OWN", "own/4 ", "/4"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert(!onednn_choice_parse(&(DnnlDesc){0}, none[i]));
}
END_TEST

Suite *suite_onednn(void)
{
    Suite *s = suite_create("onednn");
    TCase *tc = tcase_create("choices");
    tcase_add_loop_test(tc, test_against_loops, 0, NCASES * TEST_ISAS);
    tcase_add_test(tc, tiles_against_loops);
    tcase_add_loop_test(tc, test_pieces, 0, NCASES * TEST_ISAS);
    tcase_add_loop_test(tc, parts_have_the_same_bits, 0, NSHAPES * TEST_ISAS);
    tcase_add_loop_test(tc, candidates_have_the_same_bits, 0, 2 * TEST_ISAS);
    tcase_add_loop_test(tc, blocks_and_threads_have_the_same_bits, 0, NCASES * TEST_ISAS);
    tcase_add_loop_test(tc, tiles_have_the_same_bits, 0, TEST_ISAS);
    tcase_add_loop_test(tc, tiles_in_chunks, 0, TEST_ISAS);
    tcase_add_test(tc, test_rule);
    tcase_add_test(tc, products_that_are_ours);
    tcase_add_test(tc, convolutions_that_are_ours);
    tcase_add_test(tc, weight_gradients_in_f32);
    tcase_add_test(tc, test_unsupported);
    tcase_add_test(tc, choices_are_text);
    suite_add_tcase(s, tc);
    return s;
}
