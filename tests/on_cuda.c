/* on_cuda.c -- see on_cuda.h. */
#include "tests.h"
#include "on_cuda.h"
#include "command.h"
#include <stdlib.h>

void use_cuda(void)
{
    make_cache();
    if (getenv("CKC_GPU"))
        unsetenv("CKC_CUDA_PATH");
    else
        setenv("CKC_CUDA_PATH", CKC_FAKE_CUDA, 1);
    if (getenv("CKC_LONG"))
        setenv("FAKE_CUDA_SHADOW", "1", 1);
}

void leave_cuda(void)
{
    setenv("CKC_CUDA_PATH", "", 1);
    unsetenv("FAKE_CUDA_SHADOW");
    remove_cache();
}

/* A network, and what all plans of it have in common. */
typedef struct {
    const char *path;
    const StepOptions *opt;
    const Init *init;
    DataFile *data;
    double tolerance;
} Network;

/* Plans a step of n for the device, within an arena of that many bytes; 0: without a budget. */
static bool plan(const Network *n, const DeviceOps *device, TestStep *s, int64_t arena)
{
    step_init(s);
    s->opt = *n->opt;
    s->device = device;
    if (arena) {
        ck_assert_msg(device->info(0, &s->info_of, &s->arena, &s->diag), "%s", s->diag.msg);
        s->opt.budget = arena + s->info_of.reserved;
    }
    s->opt.keep_grads = true;
    s->opt.max_moves = 2000;
    return step_plan(s, n->path, n->init);
}

static void must_plan(const Network *n, const DeviceOps *device, TestStep *s, int64_t arena)
{
    ck_assert_msg(plan(n, device, s, arena), "%s: %s", n->path, s->diag.msg);
}

static double first_step(const Network *n, TestStep *s)
{
    double loss;
    ck_assert_msg(step_open(s, n->init), "%s: %s", n->path, s->diag.msg);
    step_run(s, n->data, 1, &loss);
    return loss;
}

/* The digest of s after two more steps, which run as a captured graph. */
static uint64_t digest_of_third(const Network *n, TestStep *s)
{
    double loss[2];
    step_run(s, n->data, 2, loss);
    return step_digest(s);
}

static int64_t least_arena(const Network *n)
{
    TestStep s;
    ck_assert(!plan(n, &cuda_device, &s, 1)); /* one byte: what is the least? */
    int64_t least = s.info.plan.min_feasible_bytes;
    ck_assert_int_gt(least, 0);
    step_free(&s);
    return least;
}

/* ---- gradients ---------------------------------------------------------------------------------- */

/* norm: the norm of the error of all gradients, over that of the gradients wanted; element: the largest error
 * of an element, over 1 + its size. */
typedef struct {
    double norm, element;
} GradError;

static GradError gradient_error(TestStep *want, TestStep *got)
{
    GradError e = {0};
    double err = 0, norm = 0;
    ck_assert_uint_eq(want->g.nout, got->g.nout);
    for (uint32_t i = 0; i < want->g.nout; i++) {
        Tensor w = exec_tensor(want->exec, want->g.out[i]), g = exec_tensor(got->exec, got->g.out[i]);
        ck_assert_msg(exec_read(got->exec, got->g.out[i], &got->diag), "%s", got->diag.msg);
        ck_assert_int_eq(type_count(&w.type), type_count(&g.type));
        for (int64_t k = 0; k < type_count(&w.type); k++) {
            double x = tensor_f(&w, k), d = tensor_f(&g, k) - x;
            if (!isfinite(d))
                ck_abort_msg("a gradient is not finite");
            err += d * d;
            norm += x * x;
            e.element = fmax(e.element, fabs(d) / (1 + fabs(x)));
        }
    }
    e.norm = sqrt(err / norm);
    return e;
}

static int64_t check_gradients(const Network *n, uint64_t *digest)
{
    TestStep cpu, gpu;
    must_plan(n, NULL, &cpu, 0);
    must_plan(n, &cuda_device, &gpu, 0);
    first_step(n, &cpu);
    double loss = first_step(n, &gpu);
    GradError e = gradient_error(&cpu, &gpu);
    printf("%s: loss %.7f, gradients %.2e of the norm, %.2e of an element from the processor's\n", n->path,
           loss, e.norm, e.element);
    ck_assert_double_le(e.norm, n->tolerance);
    ck_assert_double_le(e.element, n->tolerance);
    *digest = digest_of_third(n, &gpu);
    int64_t keep = gpu.info.plan.arena_bytes;
    step_free(&cpu);
    step_free(&gpu);
    return keep;
}

/* ---- bits --------------------------------------------------------------------------------------- */

/* Checks that three steps give the digest `want` if the fake driver orders streams by that seed. */
static void check_bits(const Network *n, TestStep *s, const char *seed, uint64_t want)
{
    setenv("FAKE_CUDA_SEED", seed, 1);
    first_step(n, s);
    ck_assert_msg(digest_of_third(n, s) == want, "%s: other bits within %lld bytes, seed %s", n->path,
                  (long long)s->info.plan.arena_bytes, seed);
    exec_close(s->exec);
    s->exec = NULL;
    unsetenv("FAKE_CUDA_SEED");
}

void check_on_cuda(const char *path, const StepOptions *opt, const Init *init, DataFile *data,
                   double tolerance)
{
    static const double fraction[] = {0.75, 0.5};
    static const char *const seed[][2] = {{"3", "5"}, {"11", "7"}};
    const Network n = {path, opt, init, data, tolerance};
    TestStep s;
    uint64_t digest;
    int64_t keep = check_gradients(&n, &digest), least = least_arena(&n);
    for (int i = 0; i < 2; i++) {
        int64_t arena = (int64_t)(fraction[i] * (double)keep);
        must_plan(&n, &cuda_device, &s, arena > least ? arena : least);
        for (int k = 0; k < 2; k++)
            check_bits(&n, &s, seed[i][k], digest);
        printf("%-60s %5.1f %%: %u recomputed, %u fetched, same bits\n", path,
               100.0 * (double)s.info.plan.arena_bytes / (double)keep, s.info.nrecomputed, s.info.nfetched);
        step_free(&s);
    }
}
