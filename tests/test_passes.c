/* test_passes.c -- passes: golden files, and what all of them promise together. */
#include "tests.h"
#include "golden.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden files --------------------------------------------------------------------------- */

enum { FILES_MAX = 512 };
static char *files[FILES_MAX];
static int nfiles;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find_files(void)
{
    static const char root[] = CKC_SOURCE_DIR "/tests/golden";
    if (nfiles)
        return;
    DIR *passes = opendir(root);
    for (struct dirent *p; passes && (p = readdir(passes)) != NULL;) {
        char folder[2048];
        snprintf(folder, sizeof folder, "%s/%s", root, p->d_name);
        DIR *dir = p->d_name[0] == '.' ? NULL : opendir(folder);
        for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
            size_t n = strlen(e->d_name);
            if (n > 4 && strcmp(e->d_name + n - 4, ".ckg") == 0 && nfiles < FILES_MAX)
                nfiles += asprintf(&files[nfiles], "%s/%s", folder, e->d_name) > 0;
        }
        if (dir)
            closedir(dir);
    }
    if (passes)
        closedir(passes);
    qsort(files, (size_t)nfiles, sizeof *files, by_name);
}

START_TEST(golden)
{
    golden_check(files[_i]);
}
END_TEST

/* ---- recognition in every order of operands --------------------------------------------------- */

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

/* The operands of + and * of a golden of recognise exchanged in 32 ways: same operators. */
START_TEST(any_order)
{
    if (!strstr(files[_i], "/golden/recognise/"))
        return;
    char *text = golden_read(files[_i]);
    int want[OP_COUNT], got[OP_COUNT];
    for (unsigned mask = 0; mask < 32; mask++) {
        Golden s;
        ck_assert_msg(golden_parse(&s, text, false), "%s", s.diag.msg);
        swap_operands(&s.g, mask);
        ck_assert_msg(golden_run(&s, text, false), "%s: %s", files[_i], s.diag.msg);
        count_ops(&s.g, mask ? got : want);
        for (int op = 0; mask && op < OP_COUNT; op++)
            ck_assert_msg(got[op] == want[op], "%s, order %x: %d times %s, not %d", files[_i],
                          mask, got[op], op_table[op] ? op_table[op]->name : "-", want[op]);
        golden_free(&s);
    }
    free(text);
}
END_TEST

/* ---- recognition on exported networks ------------------------------------------------------------ */

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

/* Largest difference of the outputs of both graphs, relative to the largest element. */
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

/* ---- order of passes ------------------------------------------------------------------------------ */

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
    find_files();
    tcase_add_loop_test(t, golden, 0, nfiles);
    tcase_add_loop_test(t, any_order, 0, nfiles);
    suite_add_tcase(s, t);
    t = tcase_create("models");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, recognised_models, 0, (int)(sizeof models / sizeof *models));
    tcase_add_test(t, every_pass_is_found);
    suite_add_tcase(s, t);
    return s;
}
