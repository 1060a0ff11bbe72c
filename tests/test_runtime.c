/* test_runtime.c -- executed plans give what the reference evaluator gives; steps are fed from data; bad
 * plans and bad data are refused; costs of kernels are measured, kept and learned. */
#include "tests.h"
#include "command.h"
#include "passes/passes.h"
#include "runtime/cpu/cpu.h"
#include "step.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A graph in text form, planned as it stands. */
typedef struct {
    Arena arena, tmp;
    Diag d;
    Graph g;
    StepInfo info;
} Fixture;

static Plan *plan_of(Fixture *f, const char *text)
{
    *f = (Fixture){0};
    graph_init(&f->g, &f->arena, &f->d);
    void *costs = profile_open(&(ProfileOptions){.threads = 2, .time_limit = -1}, &f->d);
    StepOptions opt = {.threads = 2, .cost = profile_cost, .cost_user = costs};
    PassCtx cx = {.diag = &f->d, .tmp = &f->tmp, .opt = &opt, .info = &f->info};
    ck_assert_msg(graph_parse(&f->g, text, &f->d) && graph_verify(&f->g, &f->d) &&
                      pass_cost(&f->g, &cx) && pass_plan(&f->g, &cx),
                  "%s", f->d.msg);
    profile_close(costs);
    return &f->info.plan;
}

static void fixture_free(Fixture *f)
{
    arena_free(&f->arena);
    arena_free(&f->tmp);
}

static Val named(const Graph *g, const char *name)
{
    Val v = graph_find(g, name);
    ck_assert_msg(v.i != 0, "no %s", name);
    return v;
}

static void fill(Tensor *t, uint32_t seed)
{
    for (int64_t i = 0; i < type_count(&t->type); i++) {
        seed = seed * 1664525u + 1013904223u;
        if (dtype_is_float(t->type.dt))
            tensor_set_f(t, i, (double)(seed >> 8) / (1 << 23) - 1);
        else
            tensor_set_i(t, i, seed >> 8 & 3);
    }
}

/* ---- executor ---------------------------------------------------------- */

static const char *const graphs[] = {
    /* a product with broadcast batch, a view of its result, a group, a reduction */
    "graph {\n"
    "  input %x: f32[4,3,8]\n"
    "  param %w: f32[8,6] = {1,-1,0.5,2,0.25,-2, 1,2,3,4,5,6, -1,-2,-3,-4,-5,-6, "
    "0,0,0,0,0,1,"
    " 1,1,1,1,1,1, 2,2,2,2,2,2, 0.5,0.5,0.5,0.5,0.5,0.5, -1,1,-1,1,-1,1}\n"
    "  const %c: f32[6] = {0.5, -1, 2, 0, 1, 1}\n"
    "  %h: f32[4,3,6] = matmul %x, %w\n"
    "  %v: f32[12,6] = reshape %h {shape=[12,6]}\n"
    "  %b: f32[12,6] = add %v, %c #1\n"
    "  %r: f32[12,6] = relu %b #1\n"
    "  %s: f32[12,6] = softmax %b {axis=1}\n"
    "  %t: f32[12] = reduce_sum %s {axes=[1], keepdims=0}\n"
    "  output %r\n"
    "  output %s\n"
    "  output %t\n"
    "}\n",
    /* concatenation along an inner dimension, slices, integers, an empty tensor */
    "graph {\n"
    "  input %x: f32[3,4]\n"
    "  input %y: f32[3,2]\n"
    "  input %e: f32[3,0]\n"
    "  input %i: i64[5]\n"
    "  %c: f32[3,6] = concat %x, %e, %y {axis=1}\n"
    "  %d: f32[6,6] = concat %c, %c {axis=0}\n"
    "  %g: f32[5,6] = gather %d, %i {axis=0}\n"
    "  %s: f32[5,3] = slice %g {start=[0,1], step=[1,2], size=[5,3]}\n"
    "  %m: f32[5,5] = matmul %s, %s {tb=1}\n"
    "  output %m\n"
    "  output %d\n"
    "}\n",
    /* convolution and pooling */
    "graph {\n"
    "  input %x: f32[2,3,9,9]\n"
    "  input %w: f32[4,3,3,3]\n"
    "  input %b: f32[4]\n"
    "  %y: f32[2,4,9,9] = conv %x, %w, %b {strides=[1,1], pads=[1,1,1,1], dilations=[1,1],"
    " group=1}\n"
    "  %r: f32[2,4,9,9] = relu %y\n"
    "  %p: f32[2,4,4,4], %i: u8[2,4,4,4] = max_pool %r {kernel=[2,2], strides=[2,2], pads=[0,0,0,0],"
    " dilations=[1,1], out=[4,4]}\n"
    "  output %p\n"
    "}\n",
    /* integers that overflow within a kernel wrap around, as they do in memory */
    "graph {\n"
    "  input %i: i32[4]\n"
    "  const %u: u8[4] = {255, 200, 3, 128}\n"
    "  const %s: i8[4] = {127, -128, -3, 100}\n"
    "  const %w: i32[4] = {2147483647, -2147483648, 5, -7}\n"
    "  const %l: i64[4] = {3037000500, -3037000500, 5, -7}\n"
    "  %iu: u8[4] = cast %i {dtype=u8}\n"
    "  %is: i8[4] = cast %i {dtype=i8}\n"
    "  %a: u8[4] = add %u, %iu #1\n"
    "  %b: i8[4] = mul %s, %s #1\n"
    "  %c: i32[4] = add %w, %w #1\n"
    "  %d: i8[4] = sub %is, %b #1\n"
    "  %e: i64[4] = square %l #1\n"
    "  %h: i64[4] = relu %e #1\n"
    "  %fa: f32[4] = cast %a {dtype=f32} #1\n"
    "  %fc: f32[4] = cast %c {dtype=f32} #1\n"
    "  %fd: f32[4] = cast %d {dtype=f32} #1\n"
    "  %f: f32[4] = add %fa, %fc #1\n"
    "  %fh: f32[4] = cast %h {dtype=f32} #1\n"
    "  %fdh: f32[4] = add %fd, %fh #1\n"
    "  %g: f32[4] = add %f, %fdh #1\n"
    "  output %g\n"
    "}\n",
};

START_TEST(executor_matches_reference)
{
    Fixture f;
    Plan *p = plan_of(&f, graphs[_i]);
    ExecOptions opt = {.check = true};
    Executor *x = exec_open(p, &opt, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    void **data = NEW(&f.arena, void *, f.g.nvals);
    for (uint32_t v = 1; v < f.g.nvals; v++) {
        Tensor t = exec_tensor(x, (Val){v});
        if (f.g.vals[v].kind == VAL_INPUT)
            fill(&t, v);
        data[v] = NEW(&f.arena, char, type_bytes(&t.type) + 1);
        if (f.g.vals[v].kind != VAL_TEMP && t.data)
            memcpy(data[v], t.data, (size_t)type_bytes(&t.type));
    }
    ck_assert_msg(exec_step(x, NULL, &f.d), "%s", f.d.msg);
    ck_assert_msg(graph_eval(&f.g, data, &f.arena, &f.d), "%s", f.d.msg);
    for (uint32_t o = 0; o < f.g.nout; o++) {
        Tensor got = exec_tensor(x, f.g.out[o]);
        Tensor want = {got.type, data[f.g.out[o].i]};
        for (int64_t i = 0; i < type_count(&got.type); i++)
            ck_assert_double_eq_tol(tensor_f(&got, i), tensor_f(&want, i), 1e-4);
    }
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* Values are updated in place, or at the end of the step if their old bytes are read until then. */
START_TEST(updates)
{
    Fixture f;
    Plan *p = plan_of(&f, "graph {\n"
                            "  input %lr: f64[]\n"
                            "  input %step: i64[]\n"
                            "  state %n: f32[2]\n"
                            "  param %w: f32[2] = {1, 2}\n"
                            "  const %one: f32[2] = {1, 1}\n"
                            "  %m: f32[2] = add %n, %one\n"
                            "  %u: f32[2] = sgd %w, %one, %lr\n"
                            "  %old: f32[2] = copy %n\n"
                            "  output %old\n"
                            "  update %n = %m\n"
                            "  update %w = %u\n"
                            "}\n");
    Executor *x = exec_open(p, &(ExecOptions){.check = true}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    TrainOptions opt = {.steps = 3, .lr = 0.25, .inputs = step_inputs(&f.g)};
    ck_assert_uint_ne(opt.inputs.lr.i, 0);
    ck_assert_uint_ne(opt.inputs.step.i, 0);
    ck_assert_uint_eq(opt.inputs.rng.i, 0);
    TrainResult r;
    ck_assert_msg(train_run(x, &opt, &r, &f.d), "%s", f.d.msg);
    ck_assert_int_eq(r.steps, 3);
    Tensor n = exec_tensor(x, named(&f.g, "n")), w = exec_tensor(x, named(&f.g, "w"));
    Tensor old = exec_tensor(x, named(&f.g, "old"));
    ck_assert_double_eq(tensor_f(&n, 0), 3);
    ck_assert_double_eq(tensor_f(&old, 0), 2);
    ck_assert_double_eq(tensor_f(&w, 1), 2 - 0.75);
    train_result_free(&r);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* Check mode fills memory with NaN once its value is dead, so that a plan that frees it too early shows. */
START_TEST(check_mode_poisons)
{
    Fixture f;
    Plan *p = plan_of(&f, "graph {\n"
                            "  input %x: f32[64]\n"
                            "  %a: f32[64] = exp %x\n"
                            "  %t: f32[64] = transpose %a {perm=[0]}\n"
                            "  %b: f32[64] = add %t, %x\n"
                            "  output %b\n"
                            "}\n");
    Executor *x = exec_open(p, &(ExecOptions){.check = true}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    Tensor in = exec_tensor(x, named(&f.g, "x")), a = exec_tensor(x, named(&f.g, "a"));
    Tensor b = exec_tensor(x, named(&f.g, "b"));
    fill(&in, 1);
    ck_assert(exec_step(x, NULL, &f.d));
    ck_assert(isfinite(tensor_f(&b, 63)));
    if (a.data && a.data != b.data)
        ck_assert(isnan(tensor_f(&a, 0)));
    exec_close(x);
    fixture_free(&f);
}
END_TEST

static bool is_denormal_kept(void)
{
    volatile float tiny = 1e-39f;
    return tiny * 0.5f != 0;
}

START_TEST(denormals_are_zero)
{
    Fixture f;
    Plan *p = plan_of(&f, "graph {\n  input %x: f32[2]\n  const %h: f32[2] = {0.5, 0.5}\n"
                            "  %y: f32[2] = mul %x, %h\n  output %y\n}\n");
    Executor *x = exec_open(p, &(ExecOptions){0}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    Tensor in = exec_tensor(x, named(&f.g, "x")), y = exec_tensor(x, named(&f.g, "y"));
    ((float *)in.data)[0] = 1e-39f;
    ((float *)in.data)[1] = 1;
    ck_assert(exec_step(x, NULL, &f.d));
    ck_assert(((float *)y.data)[0] == 0 && ((float *)y.data)[1] == 0.5f);
    ck_assert_msg(is_denormal_kept(), "the caller's mode has changed");
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* Checks that a plan whose step 0 names an absent routine is refused, rather than run by the kernel. */
static void refuses_choice(Plan *p, const char *choice, const char *says)
{
    Diag d = {0};
    p->step[0].choice = choice;
    ck_assert_ptr_null(exec_open(p, &(ExecOptions){0}, &d));
    ck_assert_msg(strstr(d.msg, says) != NULL, "%s", d.msg);
    ck_assert_int_eq(d.status, EXIT_DEVICE);
}

START_TEST(bad_plans)
{
    Fixture f;
    Plan *p = plan_of(&f, graphs[0]);
    int64_t *at = &p->offset[named(&f.g, "w").i], good = *at;
    static const int64_t bad[] = {INT64_MAX - 8, 1 << 30};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        *at = bad[i];
        Diag d = {0};
        ck_assert_ptr_null(exec_open(p, &(ExecOptions){0}, &d));
        ck_assert_ptr_nonnull(strstr(d.msg, "w lies outside the arena"));
    }
    *at = good;
    refuses_choice(p, "wave", "step 0, matmul: there is no routine 'wave' on this device");
    refuses_choice(p, "winograd", "step 0, matmul: there is no routine 'winograd' for it here");
    p->step[0].choice = NULL;
    Diag d = {0};
    p->arena_bytes = INT64_MAX / 2;
    ck_assert_ptr_null(exec_open(p, &(ExecOptions){0}, &d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    fixture_free(&f);
}
END_TEST

/* A plan that recomputes a step by another routine, which would add in another order, is refused:
 * recomputation must give the same bits. */
START_TEST(recomputed_by_the_same_routine)
{
    Fixture f;
    Plan *p = plan_of(&f, "graph {\n  input %x: f32[64,64]\n  input %w: f32[64,64]\n"
                            "  %h: f32[64,64] = matmul %x, %w\n  %a: f32[64,64] = relu %h\n"
                            "  %r: f32[64,64] = matmul %x, %w remat %h\n  %y: f32[64,64] = add %a, %r\n"
                            "  output %y\n}\n");
    ck_assert_uint_eq(p->nstep, 4);
    Executor *x = exec_open(p, &(ExecOptions){0}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    exec_close(x);
    p->step[2].choice = p->step[0].choice ? NULL : "own";
    Diag d = {0};
    ck_assert_ptr_null(exec_open(p, &(ExecOptions){0}, &d));
    ck_assert_msg(strstr(d.msg, "plan: step 2 recomputes step 0 with other bits, by '") != NULL, "%s", d.msg);
    fixture_free(&f);
}
END_TEST

START_TEST(missing_values)
{
    Fixture f;
    Plan *p = plan_of(&f, "graph {\n  input %x: f32[2,8]\n  param %w: f32[8,4]\n"
                            "  %y: f32[2,4] = matmul %x, %w\n  output %y\n}\n");
    ck_assert_ptr_null(exec_open(p, &(ExecOptions){0}, &f.d));
    ck_assert_ptr_nonnull(strstr(f.d.msg, "--init"));
    f.d = (Diag){0};
    Init init;
    ck_assert(init_parse("kaiming", &init, &f.d));
    Executor *x = exec_open(p, &(ExecOptions){.init = &init, .seed = 3}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    float want[32];
    Tensor t = {*val_type(&f.g, named(&f.g, "w")), want},
           w = exec_tensor(x, named(&f.g, "w"));
    init_fill(&t, &init, "w", true, 3);
    ck_assert_mem_eq(w.data, want, sizeof want);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* ---- feeding ----------------------------------------------------------- */

static const char *const classifier =
    "graph {\n"
    "  input %x: f32[2,3]\n"
    "  input %target: i64[2]\n"
    "  %l: f32[2], %top: f32[2], %lse: f32[2] = cross_entropy %x, %target {axis=1}\n"
    "  %loss: f32[] = reduce_sum %l {axes=[0], keepdims=0}\n"
    "  output %loss\n"
    "}\n";

static const char *const picker =
    "graph {\n"
    "  input %x: f32[2,3]\n"
    "  input %target: i64[2]\n"
    "  %l: f32[2], %top: f32[2], %lse: f32[2] = cross_entropy %x, %target {negative=1}\n"
    "  output %l\n"
    "}\n";

static DataFile *data_of(int n, const NamedTensor *v, char path[64], Diag *d)
{
    snprintf(path, 64, "/tmp/ckc_runtime_%d.npz", (int)getpid());
    ck_assert_msg(npz_write(path, n, v, d), "%s", d->msg);
    DataFile *f = data_open(path, d);
    ck_assert_msg(f != NULL, "%s", d->msg);
    return f;
}

START_TEST(batches_wrap)
{
    Fixture f;
    Plan *p = plan_of(&f, classifier);
    Executor *x = exec_open(p, &(ExecOptions){0}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    float rows[5][3];
    int32_t target[5] = {0, 1, 2, 0, 1};
    for (int i = 0; i < 15; i++)
        rows[i / 3][i % 3] = (float)i;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){5, 3}), rows}},
                       {"target", {type_make(DT_I32, 1, (int64_t[]){5}), target}}};
    char path[64];
    DataFile *data = data_of(2, v, path, &f.d);
    Feed *feed = feed_open(&f.g, &(StepInputs){0}, data, FEED_FILE, 0, &f.d);
    ck_assert_msg(feed != NULL, "%s", f.d.msg);
    Tensor tx = exec_tensor(x, named(&f.g, "x")),
           ty = exec_tensor(x, named(&f.g, "target"));
    static const int first[] = {0, 2, 4, 1, 3, 0};
    for (int s = 0; s < 6; s++) {
        ck_assert(feed_step(feed, x, s + 1, &f.d));
        for (int i = 0; i < 2; i++) {
            int row = (first[s] + i) % 5;
            ck_assert_double_eq(tensor_f(&tx, i * 3 + 1), row * 3 + 1);
            ck_assert_int_eq(tensor_i(&ty, i), target[row]);
        }
    }
    feed_close(feed);
    data_close(data);
    unlink(path);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* Data with a leading dimension of 1 is one batch, which every step takes. */
START_TEST(one_batch)
{
    Fixture f;
    Plan *p = plan_of(&f, classifier);
    Executor *x = exec_open(p, &(ExecOptions){0}, &f.d);
    ck_assert_msg(x != NULL, "%s", f.d.msg);
    float rows[2][3] = {{0, 1, 2}, {3, 4, 5}};
    int32_t target[2] = {2, 1};
    NamedTensor v[] = {{"x", {type_make(DT_F32, 3, (int64_t[]){1, 2, 3}), rows}},
                       {"target", {type_make(DT_I32, 2, (int64_t[]){1, 2}), target}}};
    char path[64];
    DataFile *data = data_of(2, v, path, &f.d);
    Feed *feed = feed_open(&f.g, &(StepInputs){0}, data, FEED_FILE, 0, &f.d);
    ck_assert_msg(feed != NULL, "%s", f.d.msg);
    Tensor tx = exec_tensor(x, named(&f.g, "x")), ty = exec_tensor(x, named(&f.g, "target"));
    for (int s = 0; s < 2; s++) {
        tensor_set_f(&tx, 5, 0);
        ck_assert(feed_step(feed, x, s + 1, &f.d));
        ck_assert_double_eq(tensor_f(&tx, 5), 5);
        ck_assert_int_eq(tensor_i(&ty, 0), 2);
    }
    feed_close(feed);
    data_close(data);
    unlink(path);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

START_TEST(bad_data)
{
    static const struct {
        bool picks; /* targets may count from the end */
        int64_t xdim[2], tdim;
        float x;
        int64_t t;
        const char *tname, *want;
    } cases[] = {
        {false, {2, 3}, 2, NAN, 0, "target", "x: element 0 is NaN"},
        {false, {2, 3}, 2, 0, 3, "target", "target: element 0 is 3, outside [0, 3)"},
        {false, {2, 3}, 2, 0, -1, "target", "target: element 0 is -1, outside [0, 3)"},
        {true, {2, 3}, 2, 0, -4, "target", "target: element 0 is -4, outside [-3, 3)"},
        {false, {2, 4}, 2, 0, 0, "target", "x: the data is f32[2,4], the model wants f32[2,3]"},
        {false,
         {1, 3},
         2,
         0,
         0,
         "target",
         "x: the data is f32[1,3], the model wants f32[2,3]: it has fewer rows"},
        {false, {4, 3}, 6, 0, 0, "target", "x has 4 rows and target 6"},
        {false, {4, 3}, 2, 0, 0, "target", "x has 4 rows and target 2"},
        {false, {2, 3}, 4, 0, 0, "target", "target has 4 rows and x 2"},
        {false, {2, 3}, 2, 0, 0, "label", "target"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Fixture f;
        plan_of(&f, cases[i].picks ? picker : classifier);
        float x[12] = {cases[i].x};
        int64_t t[6] = {cases[i].t};
        NamedTensor v[] = {{"x", {type_make(DT_F32, 2, cases[i].xdim), x}},
                           {cases[i].tname, {type_make(DT_I64, 1, &cases[i].tdim), t}}};
        char path[64];
        Diag d = {0};
        DataFile *data = data_of(2, v, path, &d);
        ck_assert_ptr_null(feed_open(&f.g, &(StepInputs){0}, data, FEED_FILE, 0, &d));
        ck_assert_msg(strstr(d.msg, cases[i].want) != NULL, "'%s' lacks '%s'", d.msg,
                      cases[i].want);
        ck_assert_ptr_null(strchr(d.msg, '\n'));
        data_close(data);
        unlink(path);
        fixture_free(&f);
    }
}
END_TEST

START_TEST(text_windows)
{
    Fixture f;
    Plan *p =
        plan_of(&f, "graph {\n"
                      "  input %idx: i64[3,8]\n"
                      "  input %target: i64[24]\n"
                      "  param %w: f32[128,128]\n"
                      "  %e: f32[3,8,128] = gather %w, %idx {axis=0}\n"
                      "  %v: f32[24,128] = reshape %e {shape=[24,128]}\n"
                      "  %l: f32[24], %top: f32[24], %lse: f32[24] = cross_entropy %v, %target {axis=1}\n"
                      "  %loss: f32[] = reduce_sum %l {axes=[0], keepdims=0}\n"
                      "  output %loss\n"
                      "}\n");
    char path[64], text[200];
    snprintf(path, sizeof path, "/tmp/ckc_runtime_%d.txt", (int)getpid());
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('0' + i % 64);
    FILE *file = fopen(path, "w");
    ck_assert(file && fwrite(text, 1, sizeof text, file) == sizeof text &&
              fclose(file) == 0);
    Init init = {INIT_NORMAL, 0.1};
    Executor *x = exec_open(p, &(ExecOptions){.init = &init}, &f.d);
    DataFile *data = data_open(path, &f.d);
    ck_assert_msg(x && data, "%s", f.d.msg);
    Feed *feed = feed_open(&f.g, &(StepInputs){0}, data, FEED_FILE, 7, &f.d);
    ck_assert_msg(feed != NULL, "%s", f.d.msg);
    Tensor idx = exec_tensor(x, named(&f.g, "idx")),
           t = exec_tensor(x, named(&f.g, "target"));
    int64_t first[2];
    for (int s = 0; s < 2; s++) {
        ck_assert(feed_step(feed, x, s + 1, &f.d));
        first[s] = tensor_i(&idx, 0);
        for (int i = 0; i < 24; i++) {
            ck_assert_int_eq((tensor_i(&idx, i) + 1 - '0') % 64,
                             (tensor_i(&t, i) - '0') % 64);
            if (i % 8 < 7)
                ck_assert_int_eq(tensor_i(&idx, i + 1), tensor_i(&t, i));
        }
    }
    ck_assert_int_ne(first[0], first[1]);
    feed_close(feed);
    data_close(data);
    unlink(path);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

START_TEST(random_is_in_range)
{
    Fixture f;
    Plan *p = plan_of(&f, classifier);
    Executor *x = exec_open(p, &(ExecOptions){0}, &f.d);
    Feed *feed = feed_open(&f.g, &(StepInputs){0}, NULL, FEED_FILE, 1, &f.d);
    ck_assert_msg(x && feed, "%s", f.d.msg);
    ck_assert(feed_step(feed, x, 1, &f.d));
    Tensor t = exec_tensor(x, named(&f.g, "target"));
    for (int i = 0; i < 2; i++)
        ck_assert(tensor_i(&t, i) >= 0 && tensor_i(&t, i) < 3);
    feed_close(feed);
    exec_close(x);
    fixture_free(&f);
}
END_TEST

/* ---- costs ------------------------------------------------------------- */

static const char *const work = "graph {\n"
                                "  input %x: f32[64,512]\n"
                                "  input %i: i64[64]\n"
                                "  input %w: f32[512,512]\n"
                                "  %g: f32[64,512] = gather %w, %i {axis=0}\n"
                                "  %a: f32[64,512] = add %x, %g\n"
                                "  %h: f32[64,512] = matmul %a, %w\n"
                                "  %c: f32[128,512] = concat %h, %a {axis=0}\n"
                                "  %s: f32[128,512] = softmax %c {axis=1}\n"
                                "  output %s\n"
                                "}\n";

/* Returns the costs that pass_cost finds for a graph's kernels, with the profile in the folder "cache" and
 * `limit` as ProfileOptions.time_limit.  Then the profile learns that each took `taken` seconds, if not 0. */
static StepCost *learned_costs(Fixture *f, double limit, const char *text, double taken)
{
    *f = (Fixture){0};
    graph_init(&f->g, &f->arena, &f->d);
    KernelCache c;
    ck_assert_msg(kernel_cache_open(&c, "cache", &f->d), "%s", f->d.msg);
    void *costs = profile_open(
        &(ProfileOptions){.cache = &c, .threads = 1, .time_limit = limit}, &f->d);
    ck_assert_msg(costs != NULL, "%s", f->d.msg);
    StepOptions opt = {.threads = 1, .cost = profile_cost, .cost_user = costs};
    PassCtx cx = {.diag = &f->d, .tmp = &f->tmp, .opt = &opt, .info = &f->info};
    ck_assert_msg(graph_parse(&f->g, text, &f->d) && pass_cost(&f->g, &cx), "%s", f->d.msg);
    double *seconds = NEW(&f->arena, double, f->g.norder);
    for (uint32_t i = 0; i < f->g.norder; i++)
        seconds[i] = taken;
    ck_assert(taken <= 0 ||
              profile_learn(costs, f->g.order, seconds, f->g.norder, &f->d));
    profile_close(costs);
    return f->info.cost;
}

static StepCost *costs_of(Fixture *f, double limit, const char *text)
{
    return learned_costs(f, limit, text, 0);
}

START_TEST(costs_are_kept)
{
    Fixture a, b, c;
    StepCost *first = costs_of(&a, 10, work), *again = costs_of(&b, 10, work);
    StepCost *rules = costs_of(&c, -1, work);
    for (uint32_t i = 0; i < a.g.norder; i++) {
        uint32_t n = a.g.order[i].i;
        ck_assert_int_gt(first[n].c[0].ns, 0);
        ck_assert_int_eq(first[n].c[0].ns, again[n].c[0].ns);
        const Candidate *x = first[n].c, *y = rules[n].c;
        ck_assert_int_eq(x->scratch, y->scratch);
        ck_assert_str_eq(x->choice ? x->choice : "-", y->choice ? y->choice : "-");
    }
    fixture_free(&a);
    fixture_free(&b);
    fixture_free(&c);
}
END_TEST

/* Small kernels are measured in little memory, however large the caches are. */
START_TEST(small_kernels_are_measured_in_little)
{
    ck_assert_int_eq(pool_bytes(0), 0);
    ck_assert_int_lt(pool_bytes(4096), 1 << 20);
    ck_assert_int_eq(pool_bytes(cache_bytes()), 3 * cache_bytes());
}
END_TEST

/* The times that kernels took in a run replace those that were measured alone, in the profile's file. */
START_TEST(costs_are_learned)
{
    Fixture a, b;
    learned_costs(&a, 10, work, 0.25);
    StepCost *next = costs_of(&b, 10, work);
    for (uint32_t i = 0; i < b.g.norder; i++)
        ck_assert_int_eq(next[b.g.order[i].i].c[0].ns, 250000000);
    fixture_free(&a);
    fixture_free(&b);
}
END_TEST

/* A kernel that works on more rows costs more, whether it is measured or estimated. */
START_TEST(costs_grow)
{
    static const char *const text = "graph {\n  input %%x: f32[%d,1024]\n"
                                    "  %%y: f32[%d,1024] = tanh %%x\n  output %%y\n}\n";
    char small[200], large[200];
    snprintf(small, sizeof small, text, 16, 16);
    snprintf(large, sizeof large, text, 4096, 4096);
    for (int i = 0; i < 2; i++) { /* the limit lets nothing be measured the first time */
        Fixture a, b;
        double limit = i == 0 ? 1e-12 : 10;
        int64_t s = costs_of(&a, limit, small)[1].c[0].ns,
                l = costs_of(&b, limit, large)[1].c[0].ns;
        ck_assert_msg(l > 4 * s, "%lld ns for 16 rows, %lld for 4096", (long long)s,
                      (long long)l);
        fixture_free(&a);
        fixture_free(&b);
    }
}
END_TEST

/* One time that is far off, of a kernel that is a tenth of the step, does not decide how all are scaled. */
START_TEST(one_time_does_not_scale_all)
{
    Weighted v[] = {{80, 10}, {1.1, 30}, {0.9, 35}, {1, 25}};
    ck_assert_double_eq(weighted_median(v, 4), 1);
    ck_assert_double_eq(weighted_median(v, 1), 0.9); /* sorted */
    ck_assert_double_eq(weighted_median(v, 0), 0);
}
END_TEST

/* The time that a child computes counts as others' time, which is a fraction of that of all processors. */
START_TEST(others_are_seen)
{
    ProcessorTime start = processor_time();
    double at = clock_seconds(), one = 1.0 / (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (start.all <= 0) {
        skipped("there is no /proc/stat");
        return;
    }
    pid_t child = fork();
    while (clock_seconds() < at + 0.5)
        if (child)
            usleep(1000);
    if (child == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    double others = others_since(&start);
    ck_assert_msg(others > 0.2 * one && others <= 1, "%g of the processors", others);
}
END_TEST

Suite *suite_runtime(void)
{
    Suite *s = suite_create("runtime");
    TCase *t = tcase_create("executor");
    tcase_add_loop_test(t, executor_matches_reference, 0, sizeof graphs / sizeof *graphs);
    tcase_add_test(t, updates);
    tcase_add_test(t, check_mode_poisons);
    tcase_add_test(t, denormals_are_zero);
    tcase_add_test(t, bad_plans);
    tcase_add_test(t, recomputed_by_the_same_routine);
    tcase_add_test(t, missing_values);
    suite_add_tcase(s, t);
    t = tcase_create("feed");
    tcase_add_test(t, batches_wrap);
    tcase_add_test(t, bad_data);
    tcase_add_test(t, one_batch);
    tcase_add_test(t, text_windows);
    tcase_add_test(t, random_is_in_range);
    suite_add_tcase(s, t);
    t = tcase_create("costs");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, costs_are_kept);
    tcase_add_test(t, small_kernels_are_measured_in_little);
    tcase_add_test(t, costs_are_learned);
    tcase_add_test(t, costs_grow);
    tcase_add_test(t, one_time_does_not_scale_all);
    tcase_add_test(t, others_are_seen);
    suite_add_tcase(s, t);
    return s;
}
