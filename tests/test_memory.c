/* test_memory.c -- the promise about memory, seen from outside: a run lives in its arena, the system's limit
 * at the planned bytes does not end it, and a budget below the least is refused. */
#include "tests.h"
#include "command.h"
#include "count_memory.h"
#include "onnx_builder.h"
#include "session.h"
#include "step.h"
#include <inttypes.h>
#include <stdlib.h>

/* Bytes that a run may hold beside its arena, for code, stacks, the plan and compiled kernels. */
enum { BESIDE = 150 * 1000 * 1000 };

typedef struct {
    const char *path, *args;
    OnnxBind bind[2];
    int nbind;
    bool init;
} Example;

static const Example examples[] = {
    {"mlp", "--bind batch=64", {{"batch", 64}}, 1, false},
    {"decoder", "--bind batch=4,seq=64 --init normal", {{"batch", 4}, {"seq", 64}}, 2, true},
    {"resnet18", "--bind batch=4 --init normal", {{"batch", 4}}, 1, true},
};
enum { NEXAMPLES = sizeof examples / sizeof *examples };

/* Fixture: a folder, and the ckc in CKC_PLAIN if there is one, since the address sanitizer of a test build
 * takes more memory than any limit. */
static void enter(void)
{
    const char *plain = getenv("CKC_PLAIN");
    ckc_binary = plain ? plain : CKC_BINARY;
    make_folder();
}

static bool limits_work(void)
{
#if defined(__SANITIZE_ADDRESS__)
    if (!getenv("CKC_PLAIN")) {
        skipped("limits on memory need a ckc without address sanitizer in CKC_PLAIN");
        return false;
    }
#endif
    return true;
}

/* Starts ckc in a process that may have `limit` bytes of private memory. */
static pid_t start_within(int64_t limit, const char *args)
{
    char before[64];
    snprintf(before, sizeof before, "ulimit -d %" PRId64 ";", limit / 1024);
    return ckc_start(before, args);
}

static void runs_within(int64_t limit, const char *args)
{
    int status = ckc_end(start_within(limit, args));
    char *err = read_text("err");
    ck_assert_msg(status == 0, "ckc %s within %" PRId64 " bytes: exit status %d: %s", args, limit, status,
                  err);
    free(err);
}

/* Resident memory, as the kernel counts it, is the arena and little more.  RLIMIT_DATA is the limit
 * of what a process may have of its own: heap and private writable mappings, the stacks of threads
 * included, whether touched or not; files that are mapped to be read are no part of it, as the
 * kernel can always drop them. */
START_TEST(resident)
{
    const Example *e = &examples[_i];
    char args[512];
    snprintf(args, sizeof args, CKC_SOURCE_DIR "/examples/%s/model.onnx %s --steps 2 --moves 1000"
             " --quiet --output a", e->path, e->args);
    ckc_accepts(args);
    int64_t arena = json_number("a/report.json", "arena_bytes");
    ckc_accepts("run a/step.ckp --steps 3 --json");
    int64_t peak = json_number("out", "resident_bytes");
    printf("%-10s arena %" PRId64 " bytes, resident %" PRId64 "\n", e->path, arena, peak);
    ck_assert_int_gt(peak, arena);
    if (!limits_work())
        return;
    ck_assert_int_lt(peak - arena, BESIDE);
    runs_within(arena + BESIDE, "run a/step.ckp --steps 3");
    runs_within(arena + BESIDE, args);
    if (arena > BESIDE) /* the limit takes effect */
        ck_assert_int_eq(ckc_end(start_within(arena, "run a/step.ckp --steps 3")), EXIT_DEVICE);
}
END_TEST

/* A limit on the address space counts as the machine's memory: a run that needs more is refused before
 * planning, but without steps it is planned, for another machine. */
START_TEST(process_limit)
{
    static const char limit[] = "ulimit -v 600000;",
                      args[] =
                          CKC_SOURCE_DIR "/examples/mlp/model.onnx --threads 1 --quiet -o a --bind batch=";
    if (!limits_work())
        return;
    ckc_fails(limit, format("%s1000000", args), EXIT_DEVICE, "this machine has 614400000:");
    ck_assert_int_eq(ckc_end(ckc_start(limit, format("%s1000000 --steps 0", args))), EXIT_OK);
    ck_assert_int_gt(json_number("a/report.json", "arena_bytes"), 614400000);
    ck_assert_int_eq(ckc_end(ckc_start(limit, format("%s1000", args))), EXIT_OK);
}
END_TEST

/* Where there is no memory to measure kernels in, their times are estimated. */
START_TEST(too_little_to_measure)
{
    if (limits_work())
        runs_within(150 << 20,
                    CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=20000 --threads 1 --steps 1"
                                   " --init normal --moves 100 --quiet --output a --cache fresh");
}
END_TEST

/* Plans the small network within a budget and returns the arena's bytes; -1: it is refused, and *least is the
 * least budget known. */
static int64_t plan_within(int64_t budget, int64_t *least)
{
    int status = ckc(format(CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=64 --quiet "
                            "--moves 100000 --output b --budget %" PRId64 "B", budget));
    if (status == EXIT_OK)
        return json_number("b/report.json", "arena_bytes");
    ck_assert_int_eq(status, EXIT_INFEASIBLE);
    *least = ckc_least_budget();
    return -1;
}

/* The least budget that a refusal names can be met, and one byte less is refused.  If that is met all the
 * same, its arena is the least known, and the check repeats. */
START_TEST(least_budget)
{
    int64_t least = 0, arena = 0;
    ck_assert_int_eq(plan_within(1, &least), -1);
    for (int tries = 0; tries < 8 && arena >= 0; tries++) {
        arena = plan_within(least, &least);
        ck_assert(arena >= 0 && arena <= least);
        least = arena;
        arena = plan_within(least - 1, &(int64_t){0});
        least = arena >= 0 ? arena : least;
    }
    ck_assert_int_eq(arena, -1);
    printf("least budget of the mlp: %" PRId64 " bytes\n", least);
}
END_TEST

/* After the first step neither ckc nor the libraries it calls allocate anything that could hold a tensor,
 * whatever the instruction set. */
START_TEST(steps_allocate_nothing)
{
    static const Example small[NEXAMPLES] = {
        {"mlp", NULL, {{"batch", 24}}, 1, false},
        {"decoder", NULL, {{"batch", 1}, {"seq", 32}}, 2, true},
        {"resnet18", NULL, {{"batch", 1}}, 1, true},
    };
    const Example *e = &small[_i % NEXAMPLES];
    if (!use_isa(_i / NEXAMPLES))
        return;
    char path[512];
    TestStep s;
    double loss;
    static const Init init = {INIT_NORMAL, 0.02};
    snprintf(path, sizeof path, CKC_SOURCE_DIR "/examples/%s/model.onnx", e->path);
    step_init(&s);
    s.opt.import.bind = e->bind;
    s.opt.import.nbind = e->nbind;
    ck_assert_msg(step_compile(&s, path, e->init ? &init : NULL), "%s", s.diag.msg);
    step_run(&s, NULL, 1, &loss);
    memory_count_start();
    bool ok = exec_step(s.exec, NULL, &s.diag) && exec_step(s.exec, NULL, &s.diag);
    MemoryCount c = memory_count_stop();
    ck_assert_msg(ok, "%s", s.diag.msg);
    printf("%-10s 2 steps: %" PRId64 " allocations, %" PRId64 " bytes, the largest %" PRId64 "\n",
           e->path, c.calls, c.bytes, c.largest);
    ck_assert_int_lt(c.largest, 4096);
    ck_assert_int_lt(c.bytes, 1 << 20);
    step_free(&s);
}
END_TEST

/* Frozen weights that a run holds in 16 bits are written from the model's file, without a copy of one. */
START_TEST(saving_copies_nothing)
{
    enum { N = 256 };
    static const char *const name[] = {"b.safetensors", "b.onnx"};
    Arena a = {0};
    Builder b;
    ckc_error e;
    start(&b, 17);
    float *w = NEW(&a, float, N * N);
    for (int i = 0; i < N * N; i++)
        w[i] = (float)(i % 7) / 7;
    add_tensor(&b, "w", 2, (int64_t[]){N, N}, w);
    add_tensor(&b, "v", 2, (int64_t[]){N, 4}, w);
    add_node(&b, &a, "MatMul", "x w", "h");
    add_node(&b, &a, "MatMul", "h v", "y");
    add_value(&b, &a, "x", FLOAT, "4N", true);
    add_value(&b, &a, "y", FLOAT, "44", false);
    ckc_session *s =
        ckc_plan(save(&b, &a, "w.onnx"),
                 (const char *[]){format("bind=N=%d", N), "precision=bf16", "train=v", NULL}, &e);
    ck_assert_msg(s, "%s", e.message);
    for (int i = 0; i < 2; i++) {
        OK(ckc_save(s, name[i], &e_)); /* maps the model */
        ck_assert_int_eq(remove(name[i]), 0);
        memory_count_start();
        int status = ckc_save(s, name[i], &e);
        MemoryCount c = memory_count_stop();
        ck_assert_msg(status == CKC_OK, "%s", e.message);
        printf("%-13s %" PRId64 " bytes allocated, the largest %" PRId64 "\n", name[i], c.bytes, c.largest);
        ck_assert_int_lt(c.largest, N * N * (int)sizeof *w);
    }
    ckc_free(s);
    arena_free(&a);
}
END_TEST

Suite *suite_memory(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("process");
    tcase_add_unchecked_fixture(t, make_cache, remove_cache);
    tcase_add_checked_fixture(t, enter, remove_folder);
    tcase_add_loop_test(t, resident, 0, NEXAMPLES);
    tcase_add_test(t, process_limit);
    tcase_add_test(t, too_little_to_measure);
    tcase_add_test(t, least_budget);
    tcase_add_test(t, saving_copies_nothing);
    tcase_add_loop_test(t, steps_allocate_nothing, 0, NEXAMPLES * TEST_ISAS);
    suite_add_tcase(s, t);
    return s;
}
