/* test_zoo.c -- networks exported by PyTorch's two exporters (tests/torch/export_zoo.py) have its gradients
 * and its numbers along five steps of three optimizers, and the same bits at any budget.  tests/data/zoo
 * holds three small ones; CKC_ZOO names a folder of all. */
#include "tests.h"
#include "on_cuda.h"
#include "oracle.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct dirent **folders; /* found once, before the first test */
static int nfolders;

static const char *zoo(void)
{
    const char *all = getenv("CKC_ZOO");
    return all ? all : CKC_SOURCE_DIR "/tests/data/zoo";
}

static int has_model(const struct dirent *e)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s/meta.json", zoo(), e->d_name);
    return access(path, R_OK) == 0;
}

static void network(Oracle *o, int i)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/%s", zoo(), folders[i]->d_name);
    oracle_open(o, dir);
}

START_TEST(gradients)
{
    Oracle o;
    network(&o, _i / 2);
    oracle_check_gradients(&o, "model.onnx", _i & 1);
    oracle_close(&o);
}
END_TEST

/* A network exported with its loss, so that the graph ends in it, has the same gradients. */
START_TEST(gradients_with_loss)
{
    Oracle o;
    char path[4200];
    network(&o, _i);
    snprintf(path, sizeof path, "%s/model_with_loss.onnx", o.dir);
    if (access(path, R_OK) == 0)
        oracle_check_gradients(&o, "model_with_loss.onnx", true);
    else
        skipped("%s is not there", path);
    oracle_close(&o);
}
END_TEST

START_TEST(training)
{
    Oracle o;
    network(&o, _i / 2 % nfolders);
    if (o.judged && !o.half)
        oracle_check_training(&o, "model.onnx", _i / 2 / nfolders, _i & 1);
    oracle_close(&o);
}
END_TEST

/* Any budget gives the same bits.  The batch is six times the oracle's, with which parameters alone fill most
 * of the memory. */
START_TEST(budgets)
{
    Oracle o;
    char path[4200];
    network(&o, _i);
    o.batch.value *= 6;
    snprintf(path, sizeof path, "%s/model.onnx", o.dir);
    check_budgets(path, &o.import, NULL, PRECISION_F32);
    oracle_close(&o);
}
END_TEST

/* A step on the CUDA device has the processor's gradients.  Two in single precision may differ by four times
 * the error of PyTorch's own against double precision (EfficientNet's: 1.3e-5 of the norm). */
START_TEST(on_cuda)
{
    Oracle o;
    TestStep s;
    char path[4200];
    network(&o, _i);
    step_init(&s);
    oracle_options(&o, "model_static.onnx", &s.opt, path);
    if (access(path, R_OK) != 0)
        oracle_options(&o, "model.onnx", &s.opt, path);
    s.opt.optim = OPTIM_MOMENTUM;
    s.opt.number.momentum = 0.9;
    check_on_cuda(path, &s.opt, NULL, o.data, o.half ? 2e-2 : fmax(1e-5, 4 * o.single_error));
    oracle_close(&o);
}
END_TEST

static TCase *add_case(Suite *s, const char *name, const TTest *test, int times)
{
    TCase *c = tcase_create(name);
    tcase_add_loop_test(c, test, 0, times);
    suite_add_tcase(s, c);
    return c;
}

Suite *suite_zoo(void)
{
    Suite *s = suite_create("zoo");
    if (!folders)
        nfolders = scandir(zoo(), &folders, has_model, alphasort);
    if (nfolders <= 0) {
        fprintf(stderr, "no networks in %s\n", zoo());
        exit(EXIT_FAILURE);
    }
    add_case(s, "zoo_gradients", gradients, 2 * nfolders);
    add_case(s, "zoo_loss", gradients_with_loss, nfolders);
    add_case(s, "zoo_training", training, 2 * NOPTIMS * nfolders);
    add_case(s, "zoo_budgets", budgets, nfolders);
    if (getenv("CKC_ZOO"))
        tcase_add_unchecked_fixture(add_case(s, "zoo_cuda", on_cuda, nfolders), use_cuda, leave_cuda);
    return s;
}
