/* test_passes.c -- the passes: golden files, recognition in exported networks, losses, steps without one of
 * the passes, long chains. */
#include "tests.h"
#include "command.h"
#include "golden.h"
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden files -------------------------------------------------------------------- */

static glob_t files, folders; /* a folder per pass */

static bool is_golden_of(int i, const char *start) { return strstr(files.gl_pathv[i], start) != NULL; }

START_TEST(golden)
{
    for (int i = 0; i < (int)files.gl_pathc; i++)
        if (is_golden_of(i, folders.gl_pathv[_i]))
            golden_check(files.gl_pathv[i]);
}
END_TEST

/* ---- recognition in every order of operands ------------------------------------------ */

static void count_ops(const Graph *g, int *count)
{
    memset(count, 0, OP_COUNT * sizeof *count);
    for (uint32_t k = 0; k < g->norder; k++)
        count[g->nodes[g->order[k].i].op]++;
}

static void swap_operands(Graph *g, unsigned mask)
{
    for (uint32_t k = 0; k < g->norder; k++) {
        Node *n = &g->nodes[g->order[k].i];
        if (n->op != OP_add && n->op != OP_mul)
            continue;
        if (mask & 1) {
            Val first = n->in[0];
            n->in[0] = n->in[1];
            n->in[1] = first;
        }
        mask >>= 1;
    }
}

/* Checks that a golden file of recognise gives the same operators if operands of + and * are exchanged, in
 * each of 32 ways. */
static void check_any_order(const char *path)
{
    char *text = golden_read(path);
    int want[OP_COUNT], got[OP_COUNT];
    for (unsigned mask = 0; mask < 32; mask++) {
        Golden s;
        ck_assert_msg(golden_parse(&s, text, false), "%s", s.diag.msg);
        swap_operands(&s.g, mask);
        ck_assert_msg(golden_run(&s, text, false), "%s: %s", path, s.diag.msg);
        count_ops(&s.g, mask ? got : want);
        for (int op = 0; mask && op < OP_COUNT; op++)
            ck_assert_msg(got[op] == want[op], "%s, order %x: %d times %s, not %d", path, mask, got[op],
                          op_table[op] ? op_table[op]->name : "-", want[op]);
        golden_free(&s);
    }
    free(text);
}

START_TEST(any_order)
{
    int checked = 0;
    for (int i = 0; i < (int)files.gl_pathc; i++)
        if (is_golden_of(i, "/golden/recognise/")) {
            check_any_order(files.gl_pathv[i]);
            checked++;
        }
    ck_assert_int_gt(checked, 0);
}
END_TEST

/* ---- recognition on exported networks ------------------------------------------------ */

static const struct {
    const char *path;
    OnnxBind bind[4];
    int nbind;
} models[] = {
    {"fixtures/torch-oracle/mlp_ln_gelu/model.onnx", {{"batch", 2}}, 1},
    {"fixtures/torch-oracle/gpt_tiny_tied/model.onnx", {{"batch", 2}}, 1},
    {"fixtures/torch-oracle/llama_tiny_gqa/model.onnx", {{"batch", 2}}, 1},
};

static bool import_model(Golden *s, OnnxModel *m, int row)
{
    OnnxOptions opt = {.bind = models[row].bind, .nbind = models[row].nbind};
    graph_init(&s->g, &s->arena, &s->diag);
    return onnx_import(m, &opt, &s->g, &s->diag);
}

/* Returns the largest difference of the outputs of two graphs, relative to the first's largest element. */
static double distance(const Graph *a, const Graph *b)
{
    Arena mem = {0};
    Diag d = {0};
    void **x = golden_data(a, &mem), **y = golden_data(b, &mem);
    ck_assert_msg(graph_eval(a, x, &mem, &d) && graph_eval(b, y, &mem, &d), "%s", d.msg);
    ck_assert_uint_eq(a->nout, b->nout);
    double far = 0, large = 0;
    for (uint32_t k = 0; k < a->nout; k++) {
        Tensor p = {*val_type(a, a->out[k]), x[a->out[k].i]};
        Tensor q = {*val_type(b, b->out[k]), y[b->out[k].i]};
        ck_assert(type_equal(&p.type, &q.type));
        for (int64_t i = 0; i < type_count(&p.type); i++) {
            far = fmax(far, fabs(tensor_f(&p, i) - tensor_f(&q, i)));
            large = fmax(large, fabs(tensor_f(&p, i)));
        }
    }
    arena_free(&mem);
    return far / (large > 0 ? large : 1);
}

START_TEST(recognised_models)
{
    const char *path = shared_path(models[_i].path);
    if (!path)
        return;
    Golden before = {.opt.threads = 1}, after = {.opt.threads = 1};
    OnnxModel *m = onnx_open(path, &before.diag);
    ck_assert_msg(m != NULL, "%s", before.diag.msg);
    ck_assert_msg(import_model(&before, m, _i), "%s", before.diag.msg);
    ck_assert_msg(import_model(&after, m, _i), "%s", after.diag.msg);
    PassCtx cx = {.diag = &after.diag, .tmp = &after.tmp, .opt = &after.opt, .info = &after.info};
    PassRun how = {.only = "canonicalize,recognise"};
    ck_assert_msg(passes_run(&after.g, &cx, &how), "%s", after.diag.msg);
    ck_assert_uint_lt(after.g.norder, before.g.norder);
    double far = distance(&before.g, &after.g);
    ck_assert_msg(far < 1e-5, "%s: outputs moved by %g", path, far);
    onnx_close(m);
    golden_free(&before);
    golden_free(&after);
}
END_TEST

/* Parses a golden's graph in f64 and runs the passes, for the MSE loss and with the gradients as outputs. */
static void step_of(Golden *s, const char *text, const char *passes)
{
    ck_assert_msg(golden_parse(s, text, true), "%s", s->diag.msg);
    s->opt.loss = LOSS_MSE;
    s->opt.optim = OPTIM_NONE;
    s->opt.keep_grads = true;
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    ck_assert_msg(passes_run(&s->g, &cx, &(PassRun){.only = passes}), "%s", s->diag.msg);
}

/* Checks in f64 that what is recognised has the gradients of the operators that it was exported as. */
static void check_gradients(const char *path, const char *text)
{
    Golden plain, native;
    step_of(&plain, text, "loss,autodiff");
    step_of(&native, text, "recognise,loss,autodiff");
    double far = distance(&plain.g, &native.g);
    ck_assert_msg(far < 1e-12, "%s: gradients moved by %g", path, far);
    golden_free(&plain);
    golden_free(&native);
}

static const char *const forms[] = {"/golden/recognise/attention", "/golden/recognise/box"};

START_TEST(recognised_gradients)
{
    int checked = 0;
    for (int i = 0; i < (int)files.gl_pathc; i++) {
        if (!is_golden_of(i, forms[_i]))
            continue;
        char *text = golden_read(files.gl_pathv[i]);
        if (strstr(text, "param %")) {
            check_gradients(files.gl_pathv[i], text);
            checked++;
        }
        free(text);
    }
    ck_assert_int_gt(checked, 0);
}
END_TEST

/* sinc as torch.export writes it, and cdist as TorchScript does */
static const char *const zero_gradients[] = {
    "const %z: f64[] = {0}\n const %one: f64[] = {1}\n const %pi: f64[] = {3.14159}\n"
    " %c: bool[3,4] = equal %w, %z\n %p: f64[3,4] = mul %w, %pi\n %s: f64[3,4] = sin %p\n"
    " %q: f64[3,4] = div %s, %p\n %y: f64[3,4] = where %c, %one, %q\n",
    "%s: f64[3,4] = square %w\n %t: f64[3] = reduce_sum %s {axes=[1], keepdims=0}\n"
    " %y: f64[3] = powc %t {al=0.4999997615814209}\n"};

START_TEST(gradients_at_zero)
{
    Golden s;
    step_of(&s,
            format("graph {\n param %%w: f64[3,4]\n %s output %%y\n}\n# >>> recognise\n", zero_gradients[_i]),
            "recognise,loss,autodiff");
    void **data = golden_data(&s.g, &s.tmp);
    memset(data[graph_find(&s.g, "w").i], 0, 12 * sizeof(double));
    ck_assert_msg(graph_eval(&s.g, data, &s.tmp, &s.diag), "%s", s.diag.msg);
    Val dw = s.info.trained[0].grad;
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(((double *)data[dw.i])[i], 0);
    golden_free(&s);
}
END_TEST

/* ---- losses by their definitions ----------------------------------------------------- */

static double element_loss(LossKind kind, double x, double y)
{
    if (kind == LOSS_BCE)
        return -y * log(1 / (1 + exp(-x))) - (1 - y) * log(1 / (1 + exp(x)));
    return kind == LOSS_MSE ? (x - y) * (x - y) : fabs(x - y);
}

static double wanted_loss(LossKind kind, const Tensor *x, const Tensor *t)
{
    int64_t rows = x->type.dim[0], classes = x->type.dim[1];
    double sum = 0, count = 0;
    for (int64_t i = 0; i < rows * classes && kind != LOSS_CE; i++, count++)
        sum += element_loss(kind, tensor_f(x, i), tensor_f(t, i));
    for (int64_t i = 0; i < rows && kind == LOSS_CE; i++) {
        double total = 0;
        for (int64_t k = 0; k < classes; k++)
            total += exp(tensor_f(x, i * classes + k));
        if (tensor_i(t, i) < 0)
            continue;
        sum += log(total) - tensor_f(x, i * classes + tensor_i(t, i));
        count++;
    }
    return sum / count;
}

START_TEST(loss_values)
{
    LossKind kind = (LossKind)_i;
    Golden s;
    char text[256];
    snprintf(text, sizeof text, "graph {\n input %%x: f64[5,3]\n %%y: f64[5,3] = copy %%x\n"
             " output %%y\n}\n# >>> loss loss=%s\n", loss_name[kind]);
    ck_assert_msg(golden_parse(&s, text, false) && golden_run(&s, text, false), "%s", s.diag.msg);
    void **data = golden_data(&s.g, &s.arena);
    Val x = graph_find(&s.g, "x"), t = s.info.target;
    Tensor logits = {*val_type(&s.g, x), data[x.i]}, target = {*val_type(&s.g, t), data[t.i]};
    if (kind == LOSS_CE)
        tensor_set_i(&target, 2, -100);
    ck_assert_msg(graph_eval(&s.g, data, &s.arena, &s.diag), "%s", s.diag.msg);
    double got = tensor_f(&(Tensor){*val_type(&s.g, s.info.loss), data[s.info.loss.i]}, 0);
    ck_assert_double_eq_tol(got, wanted_loss(kind, &logits, &target), 1e-12);
    golden_free(&s);
}
END_TEST

/* ---- any pass can be left out -------------------------------------------------------- */

static const char network[] =
    "graph {\n"
    "  input %x: f32[6,4]\n  param %w: f32[4,8]\n  param %b: f32[8]\n  param %g: f32[8]\n"
    "  param %v: f32[3,8]\n  const %n: f32[] = {0.125}\n  const %eps: f32[] = {0.01}\n"
    "  const %r: f32[] = {0.70710678118654752}\n  const %one: f32[] = {1}\n"
    "  const %half: f32[] = {0.5}\n"
    "  %h: f32[6,8] = matmul %x, %w\n  %a: f32[6,8] = add %h, %b\n"
    "  %s: f32[6,1] = reduce_sum %a {axes=[1]}\n  %m: f32[6,1] = mul %s, %n\n"
    "  %c: f32[6,8] = sub %a, %m\n  %q: f32[6,8] = mul %c, %c\n"
    "  %t: f32[6,1] = reduce_sum %q {axes=[1]}\n  %u: f32[6,1] = mul %t, %n\n"
    "  %e: f32[6,1] = add %u, %eps\n  %d: f32[6,1] = sqrt %e\n  %z: f32[6,8] = div %c, %d\n"
    "  %k: f32[6,8] = mul %z, %g\n  %i: f32[6,8] = mul %k, %r\n  %j: f32[6,8] = erf %i\n"
    "  %l: f32[6,8] = add %j, %one\n  %o: f32[6,8] = mul %k, %half\n"
    "  %p: f32[6,8] = mul %o, %l\n  %vt: f32[8,3] = transpose %v {perm=[1,0]}\n"
    "  %y: f32[6,3] = matmul %p, %vt\n  output %y\n}\n# >>> ";

/* Compiles a training step without the passes `without` (NULL: with all) and evaluates it.  Writes the loss,
 * then the elements of every updated value, to value, max numbers at most; returns how many. */
static int step_values(const char *without, double *value, int max)
{
    Golden s;
    int n = 0;
    ck_assert_msg(golden_parse(&s, network, true), "%s", s.diag.msg);
    s.opt.loss = LOSS_CE;
    PassCtx cx = {.diag = &s.diag, .tmp = &s.tmp, .opt = &s.opt, .info = &s.info};
    PassRun how = {.disable = without};
    ck_assert_msg(passes_run(&s.g, &cx, &how), "%s", s.diag.msg);
    void **data = golden_data(&s.g, &s.arena);
    ck_assert_msg(graph_eval(&s.g, data, &s.arena, &s.diag), "%s", s.diag.msg);
    value[n++] = tensor_f(&(Tensor){*val_type(&s.g, s.g.out[0]), data[s.g.out[0].i]}, 0);
    for (uint32_t k = 0; k < s.g.nupdate; k++) {
        Val v = s.g.update[k].value;
        Tensor t = {*val_type(&s.g, v), data[v.i]};
        for (int64_t i = 0; i < type_count(&t.type) && n < max; i++)
            value[n++] = tensor_f(&t, i);
    }
    golden_free(&s);
    return n;
}

START_TEST(without_a_pass)
{
    static const char *const passes[] = {"canonicalize", "recognise", "simplify", "inline", "fuse",
                                         "canonicalize,recognise,simplify,inline,split,fuse"};
    enum { MAX = 1024 };
    double want[MAX], got[MAX];
    int n = step_values(NULL, want, MAX), m = step_values(passes[_i], got, MAX);
    ck_assert_int_eq(n, m);
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs(want[i] - got[i]) <= 1e-6 * (1 + fabs(want[i])),
                      "without %s, value %d is %.12g, not %.12g", passes[_i], i, got[i], want[i]);
}
END_TEST

/* ---- chains of any length ------------------------------------------------------------ */

static const char *const chains[] = {"add %y, %b", "tanh %y"};

/* Passes do not recurse along a chain of nodes, which may be longer than the stack allows. */
START_TEST(long_chain)
{
    enum { LENGTH = 60000 };
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "graph {\n input %%x: f32[2,2]\n param %%w: f32[2,2]\n param %%b: f32[2,2]\n"
               " %%y0: f32[2,2] = matmul %%x, %%w\n");
    for (int i = 0; i < LENGTH; i++) {
        const char *at = strchr(chains[_i], 'y') + 1;
        fprintf(f, " %%y%d: f32[2,2] = %.*s%d%s\n", i + 1, (int)(at - chains[_i]), chains[_i], i, at);
    }
    fprintf(f, " output %%y%d\n}\n# >>> loss,autodiff,optimize,simplify,stack,inline loss=mse\n", LENGTH);
    fclose(f);
    Golden s;
    ck_assert_msg(golden_parse(&s, text, false) && golden_run(&s, text, false), "%s", s.diag.msg);
    ck_assert_uint_gt(s.g.norder, LENGTH / 100);
    golden_free(&s);
    free(text);
}
END_TEST

/* The parts that a value is cut into join readers however far behind; one that leaves some out stays. */
START_TEST(slices_join_far_behind)
{
    enum { LENGTH = 600 };
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "graph {\n input %%x: f32[2,2]\n param %%w: f32[2,2]\n\n"
               " %%h: f32[2,2] = matmul %%x, %%w\n %%k: f32[2,2] = matmul %%h, %%w\n"
               " %%a: f32[1,2] = slice %%h {start=[0,0], step=[1,1], size=[1,2]}\n"
               " %%b: f32[1,2] = slice %%k {start=[0,0], step=[1,1], size=[1,2]}\n"
               " %%c: f32[1,2] = slice %%k {start=[1,0], step=[1,1], size=[1,2]}\n"
               " %%y0: f32[1,2] = matmul %%b, %%w\n");
    for (int i = 0; i < LENGTH; i++)
        fprintf(f, " %%y%d: f32[1,2] = matmul %%y%d, %%w\n", i + 1, i);
    fprintf(f,
            " %%u: f32[1,2] = add %%a, %%y%d\n %%v: f32[1,2] = mul %%c, %%y%d\n"
            " output %%u\n output %%v\n}\n# >>> fuse\n",
            LENGTH, LENGTH);
    fclose(f);
    Golden s;
    ck_assert_msg(golden_parse(&s, text, false) && golden_run(&s, text, false), "%s", s.diag.msg);
    ck_assert_uint_eq(graph_def(&s.g, graph_find(&s.g, "a"))->group, 0);
    ck_assert_uint_ne(graph_def(&s.g, graph_find(&s.g, "c"))->group, 0);
    ck_assert_uint_eq(graph_def(&s.g, graph_find(&s.g, "c"))->group,
                      graph_def(&s.g, graph_find(&s.g, "v"))->group);
    golden_free(&s);
    free(text);
}
END_TEST

/* The gradients of the slices that a recurrence reads, one for each step, become one concatenation. */
START_TEST(long_recurrence)
{
    enum { STEPS = 200 };
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f,
            "graph {\n input %%x: f32[%d,2]\n param %%w: f32[2,2]\n param %%v: f32[2,2]\n"
            " %%a: f32[%d,2] = matmul %%x, %%w\n %%y0: f32[1,2] = slice %%a {start=[0,0], step=[1,1], "
            "size=[1,2]}\n",
            STEPS, STEPS);
    for (int i = 1; i < STEPS; i++)
        fprintf(f,
                " %%s%d: f32[1,2] = slice %%a {start=[%d,0], step=[1,1], size=[1,2]}\n"
                " %%h%d: f32[1,2] = matmul %%y%d, %%v\n %%z%d: f32[1,2] = add %%h%d, %%s%d\n"
                " %%y%d: f32[1,2] = tanh %%z%d\n",
                i, i, i, i - 1, i, i, i, i, i);
    fprintf(f, " output %%y%d\n}\n# >>> loss,autodiff,optimize,simplify loss=mse\n", STEPS - 1);
    fclose(f);
    Golden s;
    int parts = 0;
    ck_assert_msg(golden_parse(&s, text, false) && golden_run(&s, text, false), "%s", s.diag.msg);
    for (uint32_t k = 0; k < s.g.norder; k++) {
        const Node *n = &s.g.nodes[s.g.order[k].i];
        ck_assert_int_ne(n->op, OP_slice_bwd);
        parts += n->op == OP_concat ? n->nin : 0;
    }
    ck_assert_int_eq(parts, STEPS);
    golden_free(&s);
    free(text);
}
END_TEST

/* ---- constants ----------------------------------------------------------------------- */

/* One value everywhere is a scalar, with all its bits; numbers that are equal in double precision are no one
 * value. */
START_TEST(large_constants)
{
    enum { LENGTH = 65 };
    static const char text[] = "graph {\n input %x: i64[65]\n const %c: i64[65] @\"-\" 0\n"
                               " %y: i64[65] = add %x, %c\n output %y\n}\n# >>> simplify\n";
    int64_t c[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        c[i] = ((int64_t)1 << 53) + (_i || i + 1 == LENGTH);
    Golden s;
    ck_assert_msg(golden_parse(&s, text, false), "%s", s.diag.msg);
    s.g.vals[graph_find(&s.g, "c").i].data = c;
    ck_assert_msg(golden_run(&s, text, false), "%s", s.diag.msg);
    Tensor left = graph_tensor(&s.g, graph_def(&s.g, s.g.out[0])->in[1]);
    ck_assert_int_eq(type_count(&left.type), _i ? 1 : LENGTH);
    ck_assert_int_eq(tensor_i(&left, 0), c[0]);
    golden_free(&s);
}
END_TEST

/* ---- order of passes ----------------------------------------------------------------- */

START_TEST(every_pass_is_found)
{
    for (const Pass *p = pipeline; p->name; p++) {
        ck_assert_ptr_eq(pass_find(p->name), p);
        ck_assert(p->doc && p->run);
    }
    ck_assert_ptr_null(pass_find("no such pass"));
}
END_TEST

Suite *suite_passes(void)
{
    Suite *s = suite_create("passes");
    TCase *t = tcase_create("golden");
    glob(CKC_SOURCE_DIR "/tests/golden/*/*.ckg", 0, NULL, &files);
    glob(CKC_SOURCE_DIR "/tests/golden/*/", 0, NULL, &folders);
    tcase_add_loop_test(t, golden, 0, (int)folders.gl_pathc);
    tcase_add_test(t, any_order);
    tcase_add_loop_test(t, recognised_gradients, 0, (int)(sizeof forms / sizeof *forms));
    tcase_add_loop_test(t, gradients_at_zero, 0, (int)(sizeof zero_gradients / sizeof *zero_gradients));
    suite_add_tcase(s, t);
    t = tcase_create("models");
    tcase_add_loop_test(t, recognised_models, 0, (int)(sizeof models / sizeof *models));
    tcase_add_loop_test(t, loss_values, LOSS_CE, LOSS_NONE);
    tcase_add_loop_test(t, without_a_pass, 0, 6);
    tcase_add_loop_test(t, long_chain, 0, (int)(sizeof chains / sizeof *chains));
    tcase_add_test(t, slices_join_far_behind);
    tcase_add_test(t, long_recurrence);
    tcase_add_loop_test(t, large_constants, 0, 2);
    tcase_add_test(t, every_pass_is_found);
    suite_add_tcase(s, t);
    return s;
}
