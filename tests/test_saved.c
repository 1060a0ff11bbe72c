/* test_saved.c -- what a step saves from the forward pass for the backward pass, by operator and by
 * transformer layer: no mask, nothing twice, and of a maximum only its place in the window. */
#include "tests.h"
#include "step.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t bytes;
    char names[400]; /* of the tensors, in schedule order */
} Saved;

/* Finds what a plan saves: tensors with memory, except scalars, that are made up to the step of the loss and
 * read after it. */
static void find_saved(const TestStep *s, Saved *k)
{
    Arena a = {0};
    const Plan *p = &s->info.plan;
    const Graph *g = p->g;
    bool *made = NEW(&a, bool, g->nvals), *seen = NEW(&a, bool, g->nvals);
    Val loss = graph_root(g, s->info.loss);
    *k = (Saved){0, ""};
    Diag d = {0};
    const Command *c = plan_commands(p, &a, &d);
    ck_assert_msg(c != NULL, "%s", d.msg);
    for (uint32_t i = 0; i < p->nstep; i++) {
        const Val *vals = c[i].vals;
        for (int v = 0; v < c[i].nread; v++) {
            bool scalar = val_type(g, vals[v])->rank == 0;
            if (!made[loss.i] || !made[vals[v].i] || seen[vals[v].i] || scalar)
                continue;
            seen[vals[v].i] = true;
            k->bytes += type_bytes(val_type(g, vals[v]));
            size_t n = strlen(k->names);
            snprintf(k->names + n, sizeof k->names - n, "%s%s", n ? " " : "", g->vals[vals[v].i].name);
        }
        for (int v = c[i].nread; v < c[i].nread + c[i].nwrite; v++)
            made[vals[v].i] |= !made[loss.i];
    }
    arena_free(&a);
}

/* Plans the training step of a graph, without the passes named. */
static void plan_graph(TestStep *s, const char *text, const char *without)
{
    step_init(s);
    s->opt.optim = OPTIM_SGD;
    graph_init(&s->g, &s->arena, &s->diag);
    PassCtx cx = {.diag = &s->diag, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    bool ok = graph_parse(&s->g, text, &s->diag) &&
              passes_run(&s->g, &cx, &(PassRun){.disable = without});
    ck_assert_msg(ok, "%s: %s", text, s->diag.msg);
}

/* The text of an operator that reads %h, a product, and makes %r, which a product and a sum of squares read;
 * and the names of what the step saves. */
static const struct {
    const char *op, *saved;
} operators[] = {
    {"%r: f32[64,32] = relu %h", "y r"},
    {"%r: f32[64,32] = sigmoid %h", "y r"},
    {"%r: f32[64,32] = tanh %h", "y r"},
    {"%r: f32[64,32] = gelu %h", "y r h"},
    {"%r: f32[64,32] = silu %h", "y r h"},
    {"%r: f32[64,32] = softmax %h {axis=1}", "y r"},
    {"%r: f32[64,32] = log_softmax %h {axis=1}", "y r"},
    {"%r: f32[64,32] = dropout %h, %rng {p=0.5, key=1}", "y r"},
    {"%n: f32[64,32], %m: f32[64,1], %d: f32[64,1] = layer_norm %h {axis=1}\n"
     "  %r: f32[64,32] = relu %n", "y r h m d"},
    {"%b: bf16[64,32] = cast %h {dtype=bf16}\n"
     "  %c: f32[64,32] = cast %b {dtype=f32}\n"
     "  %n: f32[64,32], %d: f32[64,1] = rms_norm %c {axis=1}\n"
     "  %t: bf16[64,32] = cast %n {dtype=bf16}\n"
     "  %s: bf16[64,32] = add %b, %t\n"
     "  %r: f32[64,32] = cast %s {dtype=f32}", "y r b d"},
    {"%i: f32[4,16,8,4] = reshape %h {shape=[4,16,8,4]}\n"
     "  %q: f32[4,16,4,4], %z: u8[4,16,4,4] = max_pool %i {kernel=[2,1], strides=[2,1], "
     "pads=[0,0,0,0], dilations=[1,1], out=[4,4]}\n"
     "  %e: f32[64,16] = reshape %q {shape=[64,16]}\n"
     "  %r: f32[64,32] = concat %e, %e {axis=1}", "y r z"},
};

START_TEST(operators_save)
{
    TestStep s;
    Saved k;
    char text[2000];
    snprintf(text, sizeof text,
             "graph {\n  input %%x: f32[64,16]\n  input %%rng: i64[2]\n  param %%w1: f32[16,32]\n"
             "  param %%w2: f32[32,8]\n  %%h: f32[64,32] = matmul %%x, %%w1\n  %s\n"
             "  %%y: f32[64,8] = matmul %%r, %%w2\n  %%l: f32[64,8] = square %%y\n"
             "  %%loss: f32[] = reduce_sum %%l {axes=[0,1], keepdims=0}\n  output %%loss\n}\n",
             operators[_i].op);
    plan_graph(&s, text, "bind");
    find_saved(&s, &k);
    ck_assert_msg(strcmp(k.names, operators[_i].saved) == 0, "%s: saves %s", operators[_i].op,
                  k.names);
    step_free(&s);
}
END_TEST

/* ---- a transformer layer -----------------------------------------------------------------------
 *
 * V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, count
 * the bytes that a layer of 16-bit elements saves, for s tokens, b sequences, width h, a heads:
 *
 *                                          they            here
 *   inputs of the two layer norms          4 sbh           4 sbh, and mean and 1/deviation: 16 sb
 *   input of the products to q, k, v       2 sbh           2 sbh
 *   q, k, v                                6 sbh           6 sbh
 *   softmax                                2 as2b          2 as2b
 *   its dropout: mask, result              1 + 2 as2b      0 + 2 as2b
 *   input of the output product            2 sbh           2 sbh
 *   dropout: mask                          1 sbh           0
 *   input of the first product             2 sbh           2 sbh
 *   input of GELU, and its result          8 + 8 sbh       8 + 8 sbh
 *   dropout: mask                          1 sbh           0
 *                                          34 sbh + 5 as2b 32 sbh + 16 sb + 4 as2b
 *
 * Dropout is a function of the element's number: a mask is recomputed, not saved.  With attention
 * as one operator (they: recomputed, 34 sbh) nothing with s2 is saved, but 8 bytes of every row of
 * the softmax, 8 asb; its result is the input of the output product, which is there already. */

typedef struct {
    int s, b, h, a;
} Layer;

static void print_layer(FILE *f, const Layer *y, int i)
{
    int s = y->s, b = y->b, h = y->h, a = y->a, d = h / a;
    static const char *const proj[] = {"q", "k", "v"};
    fprintf(f, "  %%n%d: bf16[%d,%d,%d], %%mean%d: f32[%d,%d,1], %%rstd%d: f32[%d,%d,1] = layer_norm "
            "%%x%d {axis=2}\n", 2 * i, b, s, h, 2 * i, b, s, 2 * i, b, s, i);
    for (int k = 0; k < 3; k++)
        fprintf(f, "  %%%s%d: bf16[%d,%d,%d] = matmul %%n%d, %%w%s%d\n"
                "  %%%sr%d: bf16[%d,%d,%d,%d] = reshape %%%s%d {shape=[%d,%d,%d,%d]}\n", proj[k], i,
                b, s, h, 2 * i, proj[k], i, proj[k], i, b, s, a, d, proj[k], i, b, s, a, d);
    fprintf(f, "  %%qt%d: bf16[%d,%d,%d,%d] = transpose %%qr%d {perm=[0,2,1,3]}\n", i, b, a, s, d, i);
    fprintf(f, "  %%kt%d: bf16[%d,%d,%d,%d] = transpose %%kr%d {perm=[0,2,3,1]}\n", i, b, a, d, s, i);
    fprintf(f, "  %%vt%d: bf16[%d,%d,%d,%d] = transpose %%vr%d {perm=[0,2,1,3]}\n", i, b, a, s, d, i);
    fprintf(f, "  %%sc%d: bf16[%d,%d,%d,%d] = matmul %%qt%d, %%kt%d\n", i, b, a, s, s, i, i);
    fprintf(f, "  %%ss%d: bf16[%d,%d,%d,%d] = mul %%sc%d, %%scale\n", i, b, a, s, s, i);
    fprintf(f, "  %%p%d: bf16[%d,%d,%d,%d] = softmax %%ss%d {axis=3}\n", i, b, a, s, s, i);
    fprintf(f, "  %%pd%d: bf16[%d,%d,%d,%d] = dropout %%p%d, %%rng {p=0.1, key=%d}\n", i, b, a, s, s, i,
            3 * i);
    fprintf(f, "  %%o%d: bf16[%d,%d,%d,%d] = matmul %%pd%d, %%vt%d\n", i, b, a, s, d, i, i);
    fprintf(f, "  %%ot%d: bf16[%d,%d,%d,%d] = transpose %%o%d {perm=[0,2,1,3]}\n", i, b, s, a, d, i);
    fprintf(f, "  %%or%d: bf16[%d,%d,%d] = reshape %%ot%d {shape=[%d,%d,%d]}\n", i, b, s, h, i, b, s, h);
    fprintf(f, "  %%y%d: bf16[%d,%d,%d] = matmul %%or%d, %%wo%d\n", i, b, s, h, i, i);
    fprintf(f, "  %%yd%d: bf16[%d,%d,%d] = dropout %%y%d, %%rng {p=0.1, key=%d}\n", i, b, s, h, i,
            3 * i + 1);
    fprintf(f, "  %%m%d: bf16[%d,%d,%d] = add %%x%d, %%yd%d\n", i, b, s, h, i, i);
    fprintf(f, "  %%n%d: bf16[%d,%d,%d], %%mean%d: f32[%d,%d,1], %%rstd%d: f32[%d,%d,1] = layer_norm "
            "%%m%d {axis=2}\n", 2 * i + 1, b, s, h, 2 * i + 1, b, s, 2 * i + 1, b, s, i);
    fprintf(f, "  %%f%d: bf16[%d,%d,%d] = matmul %%n%d, %%wf%d\n", i, b, s, 4 * h, 2 * i + 1, i);
    fprintf(f, "  %%g%d: bf16[%d,%d,%d] = gelu %%f%d\n", i, b, s, 4 * h, i);
    fprintf(f, "  %%z%d: bf16[%d,%d,%d] = matmul %%g%d, %%wz%d\n", i, b, s, h, i, i);
    fprintf(f, "  %%zd%d: bf16[%d,%d,%d] = dropout %%z%d, %%rng {p=0.1, key=%d}\n", i, b, s, h, i,
            3 * i + 2);
    fprintf(f, "  %%x%d: bf16[%d,%d,%d] = add %%m%d, %%zd%d\n", i + 1, b, s, h, i, i);
}

/* Returns the bytes that a stack of n layers saves. */
static int64_t stack_saves(const Layer *y, int n, const char *without)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    TestStep s;
    Saved k;
    fprintf(f, "graph {\n  input %%x0: bf16[%d,%d,%d]\n  input %%rng: i64[2]\n  const %%scale: bf16[] "
            "= {0.125}\n  param %%first: bf16[%d]\n", y->b, y->s, y->h, y->h);
    for (int i = 0; i < n; i++) {
        static const char *const name[] = {"q", "k", "v", "o"};
        for (int k4 = 0; k4 < 4; k4++)
            fprintf(f, "  param %%w%s%d: bf16[%d,%d]\n", name[k4], i + 1, y->h, y->h);
        fprintf(f, "  param %%wf%d: bf16[%d,%d]\n  param %%wz%d: bf16[%d,%d]\n", i + 1, y->h, 4 * y->h,
                i + 1, 4 * y->h, y->h);
    }
    fprintf(f, "  %%x1: bf16[%d,%d,%d] = mul %%x0, %%first\n", y->b, y->s, y->h);
    for (int i = 1; i <= n; i++)
        print_layer(f, y, i);
    fprintf(f, "  %%l: bf16[%d,%d,%d] = square %%x%d\n  %%loss: bf16[] = reduce_sum %%l {axes=[0,1,2], "
            "keepdims=0}\n  output %%loss\n}\n", y->b, y->s, y->h, n + 1);
    fclose(f);
    plan_graph(&s, text, without);
    find_saved(&s, &k);
    step_free(&s);
    free(text);
    return k.bytes;
}

START_TEST(layer_saves)
{
    static const Layer sizes[] = {{32, 2, 64, 4}, {48, 3, 96, 6}};
    const Layer y = sizes[_i];
    int64_t sb = (int64_t)y.s * y.b, sbh = sb * y.h, as2b = sb * y.s * y.a, asb = sb * y.a;
    int64_t whole = stack_saves(&y, 3, "bind,recognise") - stack_saves(&y, 2, "bind,recognise");
    int64_t fused = stack_saves(&y, 3, "bind") - stack_saves(&y, 2, "bind");
    printf("s %d b %d h %d a %d: %lld bytes a layer in bf16 (published: %lld), with attention as one "
           "operator %lld (published: %lld)\n", y.s, y.b, y.h, y.a, (long long)whole,
           (long long)(34 * sbh + 5 * as2b), (long long)fused, (long long)(34 * sbh));
    ck_assert_int_eq(whole, 32 * sbh + 16 * sb + 4 * as2b);
    ck_assert_int_eq(fused, 32 * sbh + 16 * sb + 8 * asb);
}
END_TEST

Suite *suite_saved(void)
{
    Suite *s = suite_create("saved");
    TCase *t = tcase_create("saved");
    tcase_add_loop_test(t, operators_save, 0, sizeof operators / sizeof *operators);
    tcase_add_loop_test(t, layer_saves, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
