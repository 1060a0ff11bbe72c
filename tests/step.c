/* step.c -- compiled training steps for tests. */
#include "tests.h"
#include "step.h"
#include <string.h>
#include <xxhash.h>

void step_init(TestStep *s)
{
    memset(s, 0, sizeof *s);
    StepOptions *o = &s->opt;
    o->number = optim_unsaid;
    o->number.lr = 1e-3;
    o->threads = 2;
    o->seed = 1;
    o->max_moves = 20000;
}

/* Checks that the arena exceeds the live bytes at the peak by at most 0.5 % and 2 KiB; the latter is for
 * networks of a few kilobytes, where one buffer is more than 0.5 %.  A plan for the least budget has no other
 * schedule to fall back on and may exceed them by 2 % and 4 KiB.  A GRU of many small values needs that with
 * the kernels chosen for AVX-512: 139,008 bytes for 133,440, while its smallest tight packing has 155,264. */
static void check_arena(const Plan *p, const char *path)
{
    ck_assert_msg(p->arena_bytes >= p->live_bytes, "%s: less arena than live bytes", path);
    ck_assert_msg((double)(p->arena_bytes - p->live_bytes) <=
                      (p->min_feasible_bytes ? 0.02 : 0.005) * (double)p->live_bytes +
                          (p->min_feasible_bytes ? 4096 : 2048),
                  "%s: an arena of %lld bytes for %lld live ones at budget %lld", path,
                  (long long)p->arena_bytes, (long long)p->live_bytes, (long long)p->budget);
}

static bool ask_device(TestStep *s)
{
    const DeviceOps *ops = s->planned = s->device ? s->device : &cpu_device;
    if (s->device) {
        TRY(ops->info(0, &s->info_of, &s->arena, &s->diag));
        s->opt.device = &s->info_of;
        s->opt.threads = 0;
    }
    if (ops->profile_open)
        TRY(s->profile = ops->profile_open(
                &(ProfileOptions){.device = &s->info_of, .here = true, .threads = 2, .time_limit = -1},
                &s->diag));
    s->opt.cost = s->choose ? s->choose : ops->choose;
    s->opt.cost_user = s->profile;
    s->opt.channels_last = ops->channels_last ? ops->channels_last() : 0;
    s->opt.either_order = ops->either_order;
    return true;
}

static bool plan(TestStep *s, const char *name, const PassRun *how)
{
    Diag *d = &s->diag, v = {0};
    TRY(ask_device(s));
    PassCtx cx = {.diag = d, .tmp = &s->tmp, .opt = &s->opt, .info = &s->info};
    TRY(passes_run(&s->g, &cx, how));
    ck_assert_msg(plan_verify(&s->info.plan, &v), "%s: %s", name, v.msg);
    if (s->opt.precision == PRECISION_F32) /* in 16 bits one network's arena is 1.0 % above its live bytes */
        check_arena(&s->info.plan, name);
    return true;
}

bool step_open(TestStep *s, const Init *init)
{
    s->exec = exec_open(
        &s->info.plan, &(ExecOptions){.device = s->device, .init = init, .seed = 1, .check = true}, &s->diag);
    return s->exec != NULL;
}

bool step_plan(TestStep *s, const char *path, const Init *init)
{
    graph_init(&s->g, &s->arena, &s->diag);
    s->model = onnx_open(path, &s->diag);
    s->opt.model = s->model;
    s->opt.import.init = init != NULL;
    return s->model && plan(s, path, &(PassRun){0});
}

bool step_compile(TestStep *s, const char *path, const Init *init)
{
    return step_plan(s, path, init) && step_open(s, init);
}

bool step_compile_text(TestStep *s, const char *text, const Init *init)
{
    graph_init(&s->g, &s->arena, &s->diag);
    return graph_parse(&s->g, text, &s->diag) &&
           plan(s, "graph", &(PassRun){.disable = "bind"}) && step_open(s, init);
}

void step_free(TestStep *s)
{
    exec_close(s->exec);
    if (s->profile)
        s->planned->profile_close(s->profile);
    onnx_close(s->model);
    arena_free(&s->arena);
    arena_free(&s->tmp);
}

static void set_input(TestStep *s, Val v, DataFile *data)
{
    char key[512];
    Tensor to = exec_tensor(s->exec, v), from;
    const char *name = s->g.vals[v.i].name;
    snprintf(key, sizeof key, "%s%s", strcmp(name, "target") == 0 ? "" : "input/", name);
    ck_assert_msg(data_get(data, key, &from, &s->diag), "%s", s->diag.msg);
    ck_assert_int_eq(type_count(&from.type), type_count(&to.type));
    for (int64_t i = 0; i < type_count(&to.type); i++)
        if (dtype_is_float(to.type.dt))
            tensor_set_f(&to, i, tensor_f(&from, i));
        else
            tensor_set_i(&to, i, tensor_i(&from, i));
    ck_assert(exec_write(s->exec, v, &s->diag));
}

bool exec_step(Executor *x, double *seconds, Diag *d)
{
    return exec_micro(x, seconds, d) && exec_rest(x, seconds, d);
}

/* Random data goes through train_run(); given data is written to the inputs here, step by step. */
void step_run(TestStep *s, DataFile *data, int64_t n, double *loss)
{
    StepInputs own = step_inputs(&s->g);
    if (!data) {
        TrainResult r = {0};
        TrainOptions o = {.steps = n, .lr = s->opt.number.lr, .seed = 7, .inputs = own};
        ck_assert_msg(train_run(s->exec, &o, &r, &s->diag), "%s", s->diag.msg);
        for (int64_t i = 0; i < n; i++)
            loss[i] = r.loss[i];
        train_result_free(&r);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (uint32_t v = 1; v < s->g.nvals; v++)
            if (s->g.vals[v].kind == VAL_INPUT && exec_tensor(s->exec, (Val){v}).data &&
                v != own.lr.i && v != own.step.i && v != own.rng.i)
                set_input(s, (Val){v}, data);
        Tensor lr = exec_tensor(s->exec, own.lr), count = exec_tensor(s->exec, own.step);
        if (lr.data)
            tensor_set_f(&lr, 0, s->opt.number.lr);
        if (count.data)
            tensor_set_i(&count, 0, ++s->steps);
        ck_assert(exec_write(s->exec, own.lr, &s->diag) && exec_write(s->exec, own.step, &s->diag));
        ck_assert_msg(exec_step(s->exec, NULL, &s->diag), "%s", s->diag.msg);
        ck_assert_msg(exec_read(s->exec, s->g.out[0], &s->diag), "%s", s->diag.msg);
        Tensor l = exec_tensor(s->exec, s->g.out[0]);
        loss[i] = tensor_f(&l, 0);
    }
}

char *plan_text(const Plan *p)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(f);
    plan_print(p, f);
    fclose(f);
    return text;
}

static uint64_t add_digest(TestStep *s, Val v, uint64_t h)
{
    Tensor t = exec_tensor(s->exec, v);
    if (!t.data)
        return h;
    ck_assert_msg(exec_read(s->exec, v, &s->diag), "%s", s->diag.msg);
    return XXH64(t.data, (size_t)type_bytes(&t.type), h);
}

uint64_t step_digest(TestStep *s)
{
    uint64_t h = 0;
    for (uint32_t v = 1; v < s->g.nvals; v++)
        if (s->g.vals[v].kind == VAL_PARAM || s->g.vals[v].kind == VAL_STATE)
            h = add_digest(s, (Val){v}, h);
    for (uint32_t i = 0; i < s->g.nout; i++)
        h = add_digest(s, graph_root(&s->g, s->g.out[i]), h);
    return h;
}

static bool compile_within(TestStep *s, const char *path, const OnnxOptions *import,
                           const Init *init, PrecisionKind precision, int64_t budget)
{
    step_init(s);
    s->opt.precision = precision;
    s->opt.import = *import;
    s->opt.budget = budget;
    return step_compile(s, path, init);
}

void check_budgets(const char *path, const OnnxOptions *import, const Init *init, PrecisionKind precision)
{
    static const double fractions[] = {0.75, 0.6, 0.5};
    double base[2], loss[2];
    TestStep s;
    ck_assert_msg(compile_within(&s, path, import, init, precision, 0), "%s: %s", path, s.diag.msg);
    step_run(&s, NULL, 2, base);
    uint64_t want = step_digest(&s);
    int64_t keep = s.info.plan.arena_bytes;
    step_free(&s);
    ck_assert(!compile_within(&s, path, import, init, precision, 1)); /* the refusal names the least budget */
    ck_assert_int_eq(s.diag.status, EXIT_INFEASIBLE);
    int64_t least = s.info.plan.min_feasible_bytes;
    step_free(&s);
    for (int i = 0; i < 4; i++) {
        int64_t budget = i == 3 ? least : (int64_t)(fractions[i] * (double)keep);
        if (budget < least) {
            printf("%-60s %5.1f %% below the least\n", path, 100.0 * (double)budget / (double)keep);
            continue;
        }
        ck_assert_msg(compile_within(&s, path, import, init, precision, budget), "%s at %lld: %s", path,
                      (long long)budget, s.diag.msg);
        const Plan *p = &s.info.plan;
        ck_assert_int_le(p->arena_bytes, budget);
        step_run(&s, NULL, 2, loss);
        ck_assert_msg(step_digest(&s) == want && memcmp(base, loss, sizeof base) == 0,
                      "%s at %lld of %lld bytes: other bits (loss %.9g %.9g, was %.9g %.9g)", path,
                      (long long)budget, (long long)keep, loss[0], loss[1], base[0], base[1]);
        printf("%-60s %5.1f %% same bits, %u recomputed, arena %.2f %% above live bytes\n", path,
               100.0 * (double)budget / (double)keep, s.info.nrecomputed,
               100.0 * (double)(p->arena_bytes - p->live_bytes) / (double)p->live_bytes);
        step_free(&s);
    }
}
