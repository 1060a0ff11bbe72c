/* train.c -- trains a model inside of a C program: classes of random points, by a small network.
 *
 *   cc train.c -o train $(pkg-config --cflags --libs ckc)
 *   ./train ../mlp/model.onnx [OPTION...] */
#include <ckc.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 32, WIDTH = 16, CLASSES = 10, STEPS = 200 };

/* Points whose class is the place of their largest coordinate. */
static void make_batch(float x[ROWS][WIDTH], int64_t target[ROWS])
{
    for (int i = 0; i < ROWS; i++) {
        target[i] = 0;
        for (int k = 0; k < WIDTH; k++) {
            x[i][k] = 2.0f * (float)rand() / (float)RAND_MAX - 1;
            if (k < CLASSES && x[i][k] > x[i][target[i]])
                target[i] = k;
        }
    }
}

static int failed(const ckc_error *e)
{
    fprintf(stderr, "train: %s\n", e->message);
    return e->status;
}

int main(int argc, char **argv)
{
    static const char *const standard[] = {"bind=batch=32", "budget=90%", "lr=0.01", NULL};
    const char *const *options = argc > 2 ? (const char *const *)argv + 2 : standard;
    float x[ROWS][WIDTH];
    int64_t target[ROWS];
    const ckc_tensor batch[] = {{"x", CKC_F32, 2, {ROWS, WIDTH}, x}, {"target", CKC_I64, 1, {ROWS}, target}};
    double loss;
    ckc_error e;

    ckc_session *s = ckc_plan(argc > 1 ? argv[1] : "model.onnx", options, &e);
    if (!s)
        return failed(&e);
    const ckc_info *plan = ckc_get_info(s);
    printf("%lld bytes, %lld with everything stored; %lld of %lld kernels run again\n",
           (long long)plan->arena_bytes, (long long)plan->keep_all_bytes, (long long)plan->recomputed,
           (long long)plan->kernels);
    for (int step = 1; step <= STEPS; step++) {
        make_batch(x, target);
        if (ckc_train(s, 1, batch, 2, &loss, &e) != CKC_OK)
            return failed(&e);
        if (step == 1 || step % 50 == 0)
            printf("step %d: loss %.4f\n", step, loss);
    }
    if (ckc_save(s, "trained.onnx", &e) != CKC_OK)
        return failed(&e);
    ckc_free(s);
    return 0;
}
