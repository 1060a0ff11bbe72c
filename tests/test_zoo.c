/* test_zoo.c -- networks exported by PyTorch's two exporters (tests/torch/export_zoo.py), in the
 * folder that CKC_ZOO names: gradients, five steps of three optimizers, the same bits at any budget. */
#include "tests.h"
#include "oracle.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct dirent **folders; /* found once, before the first test */
static int nfolders;

static int has_oracle(const struct dirent *e)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s/oracle.npz", getenv("CKC_ZOO"), e->d_name);
    return access(path, R_OK) == 0;
}

static void network(Oracle *o, int i)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/%s", getenv("CKC_ZOO"), folders[i]->d_name);
    oracle_open(o, dir);
}

START_TEST(skipped)
{
    printf("skipped: CKC_ZOO names no folder of exported networks\n");
}
END_TEST

START_TEST(gradients)
{
    Oracle o;
    network(&o, _i / 2);
    oracle_check_gradients(&o, "model.onnx", _i & 1);
    oracle_close(&o);
}
END_TEST

/* The same network, whose graph ends in the loss. */
START_TEST(gradients_with_loss)
{
    Oracle o;
    char path[4200];
    network(&o, _i);
    snprintf(path, sizeof path, "%s/model_with_loss.onnx", o.dir);
    if (access(path, R_OK) == 0)
        oracle_check_gradients(&o, "model_with_loss.onnx", true);
    oracle_close(&o);
}
END_TEST

START_TEST(training)
{
    Oracle o;
    network(&o, _i / 2 % nfolders);
    oracle_check_training(&o, "model.onnx", _i / 2 / nfolders, _i & 1);
    oracle_close(&o);
}
END_TEST

START_TEST(budgets)
{
    Oracle o;
    char path[4200];
    network(&o, _i);
    snprintf(path, sizeof path, "%s/model.onnx", o.dir);
    check_budgets(path, &o.import, NULL);
    oracle_close(&o);
}
END_TEST

static void add_case(Suite *s, const char *name, const TTest *test, int times)
{
    TCase *c = tcase_create(name);
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, test, 0, times);
    suite_add_tcase(s, c);
}

Suite *suite_zoo(void)
{
    Suite *s = suite_create("zoo");
    if (getenv("CKC_ZOO") && !folders)
        nfolders = scandir(getenv("CKC_ZOO"), &folders, has_oracle, alphasort);
    if (nfolders <= 0) {
        add_case(s, "skipped", skipped, 1);
        return s;
    }
    add_case(s, "zoo_gradients", gradients, 2 * nfolders);
    add_case(s, "zoo_loss", gradients_with_loss, nfolders);
    add_case(s, "zoo_training", training, 2 * NOPTIMS * nfolders);
    add_case(s, "zoo_budgets", budgets, nfolders);
    return s;
}
