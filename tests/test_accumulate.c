/* test_accumulate.c -- micro-batches and the limit on the norm of the gradients: N micro-batches of B/N rows
 * train as one batch of B where the loss is a mean, a budget changes no bits, and updates with a limit equal
 * PyTorch's. */
#include "tests.h"
#include "step.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 512, WIDTH = 16, CLASSES = 10, STEPS = 3, PARAMS = 4096 };

/* A file with the rows of a small classification task, opened; its path is stored in `path`. */
static DataFile *make_data(char path[64], Diag *d)
{
    static float x[ROWS * WIDTH];
    static int64_t target[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)sin(0.7 * i) + (float)(i % 7) * 0.25f;
    for (int i = 0; i < ROWS; i++)
        target[i] = (i * 7 + i / 3) % CLASSES;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){ROWS, WIDTH}), x}},
                       {"target", {type_make(DT_I64, 1, (int64_t[]){ROWS}), target}}};
    snprintf(path, 64, "/tmp/ckc_accumulate_%d.npz", (int)getpid());
    ck_assert_msg(npz_write(path, 2, v, d), "%s", d->msg);
    DataFile *f = data_open(path, d);
    ck_assert_msg(f != NULL, "%s", d->msg);
    return f;
}

/* A text file of 300 digits for a model of bytes, opened; its path is stored in `path`. */
static DataFile *make_text(char path[64], Diag *d)
{
    snprintf(path, 64, "/tmp/ckc_accumulate_%d.txt", (int)getpid());
    FILE *f = fopen(path, "w");
    ck_assert(f != NULL);
    for (int i = 0; i < 300; i++)
        fputc('0' + i * i % 7, f);
    ck_assert_int_eq(fclose(f), 0);
    DataFile *data = data_open(path, d);
    ck_assert_msg(data != NULL, "%s", d->msg);
    return data;
}

typedef struct {
    double loss[STEPS], param[PARAMS];
    int n;
    int64_t arena;
    uint64_t digest;
} Trained3;

/* Two layers with a norm between them, and a state that counts micro-batches, as running statistics do, with
 * %1$d rows and elements of type %2$s. */
static const char network[] =
    "graph {\n"
    "  input %%x: %2$s[%1$d,16]\n"
    "  param %%w1: %2$s[48,16]\n"
    "  param %%b1: %2$s[48]\n"
    "  param %%scale: %2$s[48]\n"
    "  param %%w2: %2$s[10,48]\n"
    "  state %%count: f64[]\n"
    "  const %%one: f64[] = {1}\n"
    "  %%next: f64[] = add %%count, %%one\n"
    "  %%h: %2$s[%1$d,48] = matmul %%x, %%w1 {tb=1}\n"
    "  %%a: %2$s[%1$d,48] = add %%h, %%b1\n"
    "  %%n: %2$s[%1$d,48], %%mean: %2$s[%1$d,1], %%rstd: %2$s[%1$d,1] = layer_norm %%a, %%scale {axis=1}\n"
    "  %%r: %2$s[%1$d,48] = gelu %%n\n"
    "  %%y: %2$s[%1$d,10] = matmul %%r, %%w2 {tb=1}\n"
    "  output %%y\n"
    "  update %%count = %%next\n"
    "}\n";

/* A model of bytes with %1$d rows of four bytes and elements of type %2$s. */
static const char model_of_bytes[] =
    "graph {\n"
    "  input %%x: i64[%1$d,4]\n"
    "  param %%embedding: %2$s[64,8]\n"
    "  param %%w: %2$s[64,8]\n"
    "  state %%count: f64[]\n"
    "  const %%one: f64[] = {1}\n"
    "  %%next: f64[] = add %%count, %%one\n"
    "  %%e: %2$s[%1$d,4,8] = gather %%embedding, %%x {axis=0}\n"
    "  %%y: %2$s[%1$d,4,64] = matmul %%e, %%w {tb=1}\n"
    "  output %%y\n"
    "  update %%count = %%next\n"
    "}\n";

/* Checks that the values live at the peak add up, kind by kind, to the bytes that the plan counts; sums of
 * gradients count as gradients. */
static void check_peak(const TestStep *s)
{
    const Plan *p = &s->info.plan;
    int64_t sum[MEM_KINDS] = {0};
    Arena a = {0};
    uint32_t n;
    const PeakHeld *held = plan_peak(p, &s->info, &n, &a);
    for (uint32_t i = 0; i < n; i++)
        sum[held[i].kind] += align_up(held[i].bytes, ARENA_ALIGN);
    for (int k = 0; k < MEM_KINDS; k++)
        ck_assert_msg(sum[k] == p->mem[k], "%s: %lld, not %lld bytes", mem_kind_name[k],
                      (long long)sum[k], (long long)p->mem[k]);
    arena_free(&a);
}

typedef enum { ROWS_GIVEN, RANDOM, TEXT } Source;

static void train_on(Source from, Trained3 *r, int64_t micro, double clip, OptimKind optim, bool f64,
                     double fraction)
{
    TestStep s;
    char path[64] = "", text[2000];
    TrainResult result;
    static const Init init = {INIT_XAVIER, 0};
    step_init(&s);
    snprintf(text, sizeof text, from == TEXT ? model_of_bytes : network, (int)(ROWS / micro),
             f64 ? "f64" : "f32");
    s.opt.accumulate = micro;
    s.opt.clip_norm = clip;
    s.opt.optim = optim;
    s.opt.budget_fraction = fraction;
    ck_assert_msg(step_compile_text(&s, text, &init), "%s", s.diag.msg);
    check_peak(&s);
    DataFile *data = from == RANDOM ? NULL : (from == TEXT ? make_text : make_data)(path, &s.diag);
    TrainOptions o = {.steps = STEPS, .lr = 0.01, .seed = 7, .inputs = step_inputs(&s.g)};
    o.feed = feed_open(&s.g, &o.inputs, data, FEED_FILE, o.seed, &s.diag);
    ck_assert_msg(o.feed && train_run(s.exec, &o, &result, &s.diag), "%s", s.diag.msg);
    feed_close(o.feed);
    memcpy(r->loss, result.loss, sizeof r->loss);
    Tensor count = exec_tensor(s.exec, graph_find(&s.g, "count"));
    ck_assert_double_eq(tensor_f(&count, 0), (double)(STEPS * micro));
    r->n = 0;
    r->arena = s.info.plan.arena_bytes;
    r->digest = step_digest(&s);
    for (uint32_t v = 1; v < s.g.nvals; v++) {
        Tensor t = exec_tensor(s.exec, (Val){v});
        for (int64_t i = 0; s.g.vals[v].kind == VAL_PARAM && t.data && i < type_count(&t.type); i++) {
            ck_assert_int_lt(r->n, PARAMS);
            r->param[r->n++] = tensor_f(&t, i);
        }
    }
    train_result_free(&result);
    data_close(data);
    if (*path)
        unlink(path);
    step_free(&s);
}

static void train(Trained3 *r, int64_t micro, double clip, OptimKind optim, bool f64, double fraction)
{
    train_on(ROWS_GIVEN, r, micro, clip, optim, f64, fraction);
}

static double difference(const Trained3 *a, const Trained3 *b)
{
    double most = 0;
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        most = fmax(most, fabs(a->param[i] - b->param[i]));
    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs(a->loss[i] - b->loss[i]));
    return most;
}

static const OptimKind optims[] = {OPTIM_ADAMW, OPTIM_ADAM,     OPTIM_LION,
                                   OPTIM_ADAFACTOR, OPTIM_SGD, OPTIM_MOMENTUM};

START_TEST(micro_batches_are_one_batch)
{
    static Trained3 whole, parts;
    OptimKind optim = optims[_i / 2];
    double clip = _i & 1 ? 0.5 : 0;
    train(&whole, 1, clip, optim, true, 0);
    for (int64_t n = 2; n <= 8; n *= 2) {
        train(&parts, n, clip, optim, true, 0);
        double off = difference(&whole, &parts);
        ck_assert_msg(off < 1e-6, "%s, %d micro-batches: off by %g", optim_name[optim], (int)n, off);
        ck_assert_int_lt(parts.arena, whole.arena);
    }
}
END_TEST

/* Micro-batches draw the same rows as one batch also where the data is random or comes from a text. */
START_TEST(micro_batches_are_the_same_rows)
{
    static Trained3 whole, parts;
    Source from = _i ? TEXT : RANDOM;
    train_on(from, &whole, 1, 0, OPTIM_SGD, true, 0);
    train_on(from, &parts, 4, 0, OPTIM_SGD, true, 0);
    double off = difference(&whole, &parts);
    ck_assert_msg(off < 1e-9, "off by %g", off);
}
END_TEST

START_TEST(any_budget_same_bits)
{
    static Trained3 all, less;
    train(&all, 2, 1, OPTIM_ADAMW, false, 0);
    for (double fraction = 0.95; fraction > 0.8; fraction -= 0.05) {
        train(&less, 2, 1, OPTIM_ADAMW, false, fraction);
        ck_assert_int_le(less.arena, (int64_t)(fraction * (double)all.arena));
        ck_assert(less.digest == all.digest && memcmp(less.loss, all.loss, sizeof all.loss) == 0);
    }
}
END_TEST

/* Training with a limit on the gradients' norm equals PyTorch's clip_grad_norm_() with each optimizer
 * (tests/torch/clip_golden.py) within 1e-12. */
START_TEST(updates_are_pytorchs)
{
    static const char *const param[] = {"w1", "b1", "scale", "w2"};
    static const Init init = {INIT_XAVIER, 0};
    static const OptimKind kind[] = {OPTIM_SGD, OPTIM_ADAMW, OPTIM_LION, OPTIM_ADAFACTOR};
    const char *optim = optim_name[kind[_i]];
    TestStep s;
    char text[2000], key[64];
    double loss[STEPS];
    Tensor want;
    step_init(&s);
    snprintf(text, sizeof text, network, 16, "f64");
    s.opt.number.lr = 0.01;
    s.opt.clip_norm = 0.5;
    s.opt.optim = kind[_i];
    ck_assert_msg(step_compile_text(&s, text, &init), "%s", s.diag.msg);
    DataFile *data = data_open(CKC_SOURCE_DIR "/tests/data/clip.npz", &s.diag);
    ck_assert_msg(data != NULL, "%s", s.diag.msg);
    for (int k = 0; k < 4; k++) {
        Tensor t = exec_tensor(s.exec, graph_find(&s.g, param[k]));
        snprintf(key, sizeof key, "before/%s", param[k]);
        ck_assert(data_get(data, key, &want, &s.diag));
        memcpy(t.data, want.data, (size_t)type_bytes(&t.type));
    }
    step_run(&s, data, STEPS, loss);
    snprintf(key, sizeof key, "%s/loss", optim);
    ck_assert(data_get(data, key, &want, &s.diag));
    for (int i = 0; i < STEPS; i++)
        ck_assert_double_eq_tol(loss[i], tensor_f(&want, i), 1e-12);
    for (int k = 0; k < 4; k++) {
        Tensor t = exec_tensor(s.exec, graph_find(&s.g, param[k]));
        snprintf(key, sizeof key, "%s/%s", optim, param[k]);
        ck_assert(data_get(data, key, &want, &s.diag));
        for (int64_t i = 0; i < type_count(&t.type); i++)
            ck_assert_double_eq_tol(tensor_f(&t, i), tensor_f(&want, i), 1e-12);
    }
    data_close(data);
    step_free(&s);
}
END_TEST

Suite *suite_accumulate(void)
{
    Suite *s = suite_create("accumulate");
    TCase *t = tcase_create("micro");
    tcase_add_loop_test(t, micro_batches_are_one_batch, 0, 12);
    tcase_add_loop_test(t, micro_batches_are_the_same_rows, 0, 2);
    tcase_add_test(t, any_budget_same_bits);
    tcase_add_loop_test(t, updates_are_pytorchs, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
