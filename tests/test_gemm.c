/* test_gemm.c -- matrix products as they are described to a library (ir/gemm.h) give the interpreter's
 * results. */
#include "tests.h"
#include "ir/gemm.h"
#include "ir/program.h"
#include "random_kernel.h"
#include <stdlib.h>
#include <string.h>

/* A graph of one node. */
typedef struct {
    const char *text;
    int calls; /* number of products that a library is called for; 0: the node is not described as products */
} Case;

#define ATTRS(s, p, d) "strides=" s ", pads=" p ", dilations=" d
#define LINE ATTRS("[1]", "[0,0]", "[1]")
#define POINT ", shape=[6,4,1]"
#define PLANE ATTRS("[1,1]", "[0,0,0,0]", "[1,1]")
#define SPACE ATTRS("[1,1,1]", "[0,0,0,0,0,0]", "[1,1,1]")
#define AB(a, b) "  input %a: " a "\n  input %b: " b "\n"
static const Case cases[] = {
    {AB("f32[5,7]", "f32[7,3]") "  %y: f32[5,3] = matmul %a, %b\n", 1},
    {AB("f32[7,5]", "f32[7,3]") "  %y: f32[5,3] = matmul %a, %b {ta=1}\n", 1},
    {AB("f32[5,7]", "f32[3,7]") "  %y: f32[5,3] = matmul %a, %b {tb=1}\n", 1},
    {AB("f64[7,5]", "f64[3,7]") "  %y: f64[5,3] = matmul %a, %b {ta=1, tb=1}\n", 1},
    {AB("bf16[7,5]", "bf16[7,3]") "  %y: bf16[5,3] = matmul %a, %b {ta=1}\n", 1},
    {AB("f16[7,5]", "f16[7,3]") "  %y: f32[5,3] = matmul %a, %b {ta=1, out=f32}\n", 1},
    /* products that are added to an operand, not in place, as the interpreter keeps its operands */
    {AB("f32[7,5]", "f32[7,3]") "  input %c: f32[5,3]\n  %y: f32[5,3] = matmul_add %a, %b, %c {ta=1}\n", 1},
    {AB("bf16[5,7]",
        "bf16[3,7]") "  input %c: f32[5,3]\n  %y: f32[5,3] = matmul_add %a, %b, %c {tb=1, out=f32}\n",
     1},
    /* batches: with one stride, as rows of one product, with a shared operand on either side, and as several
     * calls; epilogues */
    {AB("f32[4,5,7]", "f32[4,7,3]") "  %y: f32[4,5,3] = matmul %a, %b\n", 1},
    {AB("f32[7,5]", "f32[7,3]") "  input %r: f32[3]\n  %y: f32[5,3] = matmul_bias %a, %b, _, %r {ta=1}\n", 1},
    {AB("bf16[2,5,7]", "bf16[3,7]") "  input %c: f32[2,5,3]\n  input %r: f32[3]\n"
                                    "  %y: f32[2,5,3] = matmul_bias %a, %b, %c, %r {tb=1, out=f32}\n",
     1},
    {AB("f32[2,5,7]",
        "f32[7,3]") "  input %r: f32[3]\n  %y: f32[2,5,3], %x: f32[2,5,3] = matmul_gelu %a, %b, _, %r\n",
     1},
    {AB("f32[2,5,7]",
        "f32[7,3]") "  input %c: f32[2,5,3]\n  %y: f32[2,5,3] = matmul_gelu_bwd %a, %b, %c\n",
     1},
    {AB("f32[2,3,5,7]", "f32[7,3]") "  %y: f32[2,3,5,3] = matmul %a, %b\n", 1},
    {AB("f32[2,3,7,5]", "f32[7,3]") "  %y: f32[2,3,5,3] = matmul %a, %b {ta=1}\n", 1},
    {AB("f32[5,7]", "f32[2,3,7,4]") "  %y: f32[2,3,5,4] = matmul %a, %b\n", 1},
    {AB("f32[2,1,5,7]", "f32[1,3,7,4]") "  %y: f32[2,3,5,4] = matmul %a, %b\n", 2},
    {AB("f32[2,4,5,7]", "f32[2,1,3,7]") "  %y: f32[2,4,5,3] = matmul %a, %b {tb=1}\n", 1},
    {AB("f32[2,4,7,5]", "f32[2,1,3,7]") "  %y: f32[2,4,5,3] = matmul %a, %b {ta=1, tb=1}\n", 2},
    {AB("f32[3,1,2,5,7]", "f32[3,4,2,7,3]") "  %y: f32[3,4,2,5,3] = matmul %a, %b\n", 6},
    {AB("f32[2,1,5,7]",
        "f32[1,3,7,4]") "  input %c: f32[2,3,5,4]\n  %y: f32[2,3,5,4] = matmul_add %a, %b, %c\n",
     2},
    /* blocks of rows and of terms, the last of which is smaller */
    {AB("f32[7,5]", "f32[5,3]") "  %y: f32[7,3] = matmul %a, %b split rows 3\n", 3},
    {AB("bf16[5,7]", "bf16[5,3]") "  %y: f32[7,3] = matmul %a, %b {ta=1, out=f32} split rows 3\n", 3},
    {AB("f32[8,5]", "f32[8,3]") "  %y: f32[5,3] = matmul %a, %b {ta=1} split sum 3\n", 3},
    /* convolutions with windows of one position and their gradients; images of one and of three dimensions */
    {AB("f32[3,4,5,2]", "f32[6,4,1,1]") "  %y: f32[3,6,5,2] = conv %a, %b {" PLANE "}\n", 1},
    {AB("bf16[3,4,5,2]", "bf16[6,4,1,1]") "  %y: bf16[3,6,5,2] = conv %a, %b {" PLANE "}\n", 1},
    {AB("f32[3,6,5,2]", "f32[6,4,1,1]") "  %y: f32[3,4,5,2] = conv_bwd_data %a, %b {" PLANE
                                        ", shape=[3,4,5,2]}\n",
     1},
    {AB("f32[3,4,5]", "f32[3,6,5]") "  %y: f32[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT "}\n", 3},
    {AB("bf16[3,4,2,2,3]", "bf16[3,6,2,2,3]") "  %y: f32[6,4,1,1,1] = conv_bwd_weights %a, %b {" SPACE
                                              ", shape=[6,4,1,1,1], out=f32}\n",
     3},
    {AB("f32[3,4,5]", "f32[3,6,5]") "  %y: f32[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT
                                    "} split rows 4\n",
     6},
    {AB("f32[5,4,5]", "f32[5,6,5]") "  %y: f32[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT
                                    "} split sum 2\n",
     5},
    /* images of one position: each is a row of the product */
    {AB("f32[9,4,1,1]", "f32[6,4,1,1]") "  %y: f32[9,6,1,1] = conv %a, %b {" PLANE "}\n", 1},
    {AB("f32[9,6,1,1]", "f32[6,4,1,1]") "  %y: f32[9,4,1,1] = conv_bwd_data %a, %b {" PLANE
                                        ", shape=[9,4,1,1]}\n",
     1},
    {AB("bf16[9,4,1]", "bf16[9,6,1]") "  %y: bf16[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT "}\n", 1},
    {AB("f32[9,4,1]", "f32[9,6,1]") "  %y: f32[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT
                                    "} split rows 4\n",
     2},
    /* nodes that are not described as products */
    {AB("f32[9,4,5]", "f32[9,6,5]") "  %y: f32[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT "}\n", 0},
    {AB("f32[3,4,5]", "f32[6,4,1]") "  input %c: f32[6]\n  %y: f32[3,6,5] = conv %a, %b, %c {" LINE "}\n", 0},
    {AB("f32[3,4,5]", "f32[6,4,2]") "  %y: f32[3,6,4] = conv %a, %b {" LINE "}\n", 0},
    {AB("f32[3,4,5]", "f32[6,4,1]") "  %y: f32[3,6,3] = conv %a, %b {" ATTRS("[2]", "[0,0]", "[1]") "}\n", 0},
    {AB("f32[3,4,5]", "f32[6,4,1]") "  %y: f32[3,6,7] = conv %a, %b {" ATTRS("[1]", "[1,1]", "[1]") "}\n", 0},
    {AB("f32[3,4,5]", "f32[6,2,1]") "  %y: f32[3,6,5] = conv %a, %b {" LINE ", group=2}\n", 0},
    {AB("bf16[3,4,5]", "bf16[3,6,5]") "  %y: bf16[6,4,1] = conv_bwd_weights %a, %b {" LINE POINT "}\n", 0},
    {AB("f32[0,7]", "f32[7,3]") "  %y: f32[0,3] = matmul %a, %b\n", 0},
};

/* Computes the product that a description says. */
static void multiply(const Gemm *g, char *const base[GEMM_OPERANDS], const int64_t at[GEMM_OPERANDS])
{
    Tensor t[GEMM_OPERANDS];
    for (int o = 0; o < GEMM_OPERANDS; o++)
        t[o] = (Tensor){type_scalar(o < GEMM_Y ? g->in : g->out), base[o] ? base[o] + at[o] : NULL};
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                int64_t y = b * g->sy + i * g->ldy + j;
                double sum = g->adds ? tensor_f(&t[GEMM_C], y) : 0;
                sum += g->bias ? tensor_f(&t[GEMM_BIAS], j) : 0;
                for (int64_t k = 0; k < g->k; k++)
                    sum += tensor_f(&t[GEMM_A], b * g->sa + (g->ta ? k * g->lda + i : i * g->lda + k)) *
                           tensor_f(&t[GEMM_B], b * g->sb + (g->tb ? j * g->ldb + k : k * g->ldb + j));
                if (g->gelu == GELU_OF_SUM) {
                    tensor_set_f(&t[GEMM_X], y, sum);
                    sum = op_table[OP_gelu_tanh]->expr.f(sum, 0, 0, 0, 0);
                } else if (g->gelu == GELU_BWD) {
                    sum = op_table[OP_gelu_tanh_bwd]->expr.f(sum, tensor_f(&t[GEMM_X], y), 0, 0, 0);
                }
                tensor_set_f(&t[GEMM_Y], y, sum);
            }
}

typedef struct {
    const Command *c;
    char *operand[8], *workspace;
    int calls;
} Run;

/* Checks that the call stays inside its operand o. */
static void check_inside(const Gemm *g, GemmOperand o, const Slice *s, int64_t at)
{
    ck_assert_int_ge(at, 0);
    ck_assert_int_le(at + gemm_bytes(g, o), s->bytes);
}

static void run_launch(Run *r, const Launch *l, const Kernel *k)
{
    Gemms s;
    char *base[8];
    Tensor op[8];
    for (int i = 0; i < l->nop; i++) {
        if (l->op[i].base < 0)
            continue;
        bool workspace = l->op[i].base == r->c->nread + r->c->nwrite;
        base[i] = (workspace ? r->workspace : r->operand[l->op[i].base]) + l->op[i].at;
        op[i] = (Tensor){type_scalar(k->operand[i]), base[i]};
    }
    if (!gemm_describe(&s, l->lib)) {
        launch_run_ref(l, k, op);
        return;
    }
    for (int64_t i = 0; i < gemm_calls(&s); i++) {
        int64_t at[GEMM_OPERANDS];
        char *of[GEMM_OPERANDS] = {0};
        Gemm g = gemm_call(&s, i, at);
        for (int o = 0; o < GEMM_OPERANDS; o++) {
            if (!gemm_has(&g, (GemmOperand)o))
                continue;
            of[o] = base[s.operand[o]];
            check_inside(&g, (GemmOperand)o, &l->op[s.operand[o]], at[o]);
        }
        multiply(&g, of, at);
        r->calls++;
    }
}

static void run_command(Run *r, Arena *a)
{
    Launches l = {.arena = a};
    command_launches(r->c, &l);
    r->workspace = NEW(a, char, command_workspace_bytes(r->c) + 1);
    for (uint32_t i = 0; i < l.n; i++)
        run_launch(r, &l.launch[i], l.kernel[l.launch[i].kernel]);
}

static void parse_case(Graph *g, Arena *a, Diag *d, const char *nodes)
{
    char text[1024];
    snprintf(text, sizeof text, "graph {\n%s  output %%y\n}\n", nodes);
    graph_init(g, a, d);
    ck_assert_msg(graph_parse(g, text, d), "%s: %s", nodes, d->msg);
}

START_TEST(as_interpreted)
{
    const Case *c = &cases[_i];
    Arena a = {0};
    Diag d = {0};
    Graph g;
    char msg[256];
    parse_case(&g, &a, &d, c->text);
    void **data = NEW(&a, void *, g.nvals + 1);
    uint64_t seed = (uint64_t)_i + 1;
    for (uint32_t v = 1; v < g.nvals; v++) {
        Tensor t = {g.vals[v].type, data[v] = NEW(&a, char, type_bytes(&g.vals[v].type) + 1)};
        for (int64_t i = 0; g.vals[v].kind == VAL_INPUT && i < type_count(&t.type); i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            tensor_set_f(&t, i, (double)(seed >> 40) / (1 << 23) - 1);
        }
    }
    Plan p = {.g = &g};
    plan_cut(&p, &a);
    Run r = {.c = plan_commands(&p, &a, &d)};
    ck_assert_msg(r.c && p.nstep == 1, "%s: %s", c->text, d.msg);
    for (int i = 0; i < r.c->nread + r.c->nwrite; i++)
        r.operand[i] = data[r.c->vals[i].i];
    run_command(&r, &a);
    ck_assert_msg(r.calls == c->calls, "%s%d calls", c->text, r.calls);
    Tensor got = graph_tensor(&g, g.out[0]), want;
    got.type = g.vals[g.out[0].i].type;
    got.data = data[g.out[0].i];
    ck_assert_msg(graph_eval(&g, data, &a, &d), "%s", d.msg);
    want = (Tensor){got.type, data[g.out[0].i]};
    ck_assert_ptr_ne(want.data, got.data);
    ck_assert_msg(tensor_close(&want, &got, 1e-6, msg), "%s%s", c->text, msg);
    arena_free(&a);
}
END_TEST

/* Products of the same shape have different descriptions if an operand is transposed in memory; descriptions
 * include attributes. */
START_TEST(descriptions_compare)
{
    Arena a = {0};
    Diag d = {0};
    Gemms s[2];
    const char *const text[] = {AB("f32[5,7]", "f32[7,3]") "  %y: f32[5,3] = matmul %a, %b {tf32=1}\n",
                                AB("f32[5,7]", "f32[3,7]") "  %y: f32[5,3] = matmul %a, %b {tb=1}\n"};
    for (int i = 0; i < 2; i++) {
        Graph g;
        parse_case(&g, &a, &d, text[i]);
        Plan p = {.g = &g};
        plan_cut(&p, &a);
        ck_assert(gemm_describe(&s[i], plan_commands(&p, &a, &d)->lib));
    }
    ck_assert_int_eq(s[0].g.tf32, 1);
    ck_assert_int_eq(s[1].g.tf32, 0);
    ck_assert_int_eq(s[1].g.ldb, 7);
    ck_assert_int_ne(memcmp(&s[0].g, &s[1].g, sizeof(Gemm)), 0);
    arena_free(&a);
}
END_TEST

Suite *suite_gemm(void)
{
    Suite *s = suite_create("gemm");
    TCase *t = tcase_create("description");
    tcase_add_loop_test(t, as_interpreted, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, descriptions_compare);
    suite_add_tcase(s, t);
    return s;
}
