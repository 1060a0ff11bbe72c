/* test_memory.c -- the promise about memory, seen from outside: a run lives in its arena, a limit of
 * the system at the planned bytes does not kill it, a smaller budget than the least is refused. */
#include "tests.h"
#include "count_memory.h"
#include "step.h"
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a run may hold beside its arena: code, stacks, the plan, compiled kernels. */
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

static char dir[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void enter(void)
{
    strcpy(dir, "/tmp/ckc-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    setenv("XDG_CACHE_HOME", dir, 1);
}

static void leave(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Address sanitizer takes more than any limit: with it, CKC_PLAIN may name a ckc built without. */
static const char *binary(void)
{
    const char *plain = getenv("CKC_PLAIN");
    return plain ? plain : CKC_BINARY;
}

static bool limits_work(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return getenv("CKC_PLAIN") != NULL;
#else
    return true;
#endif
}

/* Exit status of "ckc ARGS" in a process that may have `limit` bytes of private memory (0: any). */
static int ckc(const char *args, int64_t limit)
{
    char command[4096];
    snprintf(command, sizeof command, "exec '%s' %s >out 2>err", binary(), args);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit r = {(rlim_t)limit, (rlim_t)limit};
        if (limit && setrlimit(RLIMIT_DATA, &r) != 0)
            _exit(126);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    ck_assert(child > 0 && waitpid(child, &status, 0) == child);
    ck_assert_msg(WIFEXITED(status), "ckc %s: signal %d", args, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static char *slurp(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "r");
    ck_assert(f && text);
    (void)!fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static void must(const char *args, int64_t limit)
{
    int status = ckc(args, limit);
    char *err = slurp("err");
    ck_assert_msg(status == 0, "ckc %s within %" PRId64 " bytes: exit status %d: %s", args, limit,
                  status, err);
    free(err);
}

static int64_t reported(const char *path, const char *key)
{
    json_error_t e;
    json_t *report = json_load_file(path, 0, &e);
    ck_assert_msg(report != NULL, "%s: %s", path, e.text);
    int64_t v = json_integer_value(json_object_get(report, key));
    json_decref(report);
    return v;
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
    must(args, 0);
    int64_t arena = reported("a/report.json", "arena_bytes");
    must("run a/step.ckp --steps 3 --json", 0);
    int64_t peak = reported("out", "resident_bytes");
    printf("%-10s arena %" PRId64 " bytes, resident %" PRId64 "\n", e->path, arena, peak);
    ck_assert_int_gt(peak, arena);
    if (!limits_work()) {
        skipped("limits on memory need a ckc without address sanitizer in CKC_PLAIN");
        return;
    }
    ck_assert_int_lt(peak - arena, BESIDE);
    must("run a/step.ckp --steps 3", arena + BESIDE);
    must(args, arena + BESIDE);
    if (arena > BESIDE) /* the limit does what it should */
        ck_assert_int_eq(ckc("run a/step.ckp --steps 3", arena), EXIT_DEVICE);
}
END_TEST

/* Plan the small network within a budget: its arena; -1: refused, with the least that is known. */
static int64_t plan_within(int64_t budget, int64_t *least)
{
    static const char says[] = "smallest known to be feasible is ";
    char args[512];
    snprintf(args, sizeof args, CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=64 --quiet "
             "--moves 100000 --output b --budget %" PRId64 "B", budget);
    int status = ckc(args, 0);
    if (status == EXIT_OK)
        return reported("b/report.json", "arena_bytes");
    ck_assert_int_eq(status, EXIT_INFEASIBLE);
    char *err = slurp("err"), *at = strstr(err, says);
    ck_assert_msg(at != NULL, "%s", err);
    *least = strtoll(at + sizeof says - 1, NULL, 10);
    free(err);
    return -1;
}

/* One byte less than the least budget is refused when planning.  Asking for less may show that the
 * least known was not the least: then that is the least known. */
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

/* After the first step nothing is allocated that could hold a tensor: neither by ckc nor by the
 * libraries it calls, whatever processor they plan for. */
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

Suite *suite_memory(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("process");
    tcase_add_checked_fixture(t, enter, leave);
    tcase_add_loop_test(t, resident, 0, NEXAMPLES);
    tcase_add_test(t, least_budget);
    tcase_add_loop_test(t, steps_allocate_nothing, 0, NEXAMPLES * TEST_ISAS);
    suite_add_tcase(s, t);
    return s;
}
