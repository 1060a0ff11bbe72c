/* test_device.c -- descriptions of devices: their text, the times and limits that plans take from them, the
 * kernel choices of the devices that are here, and commands with --device. */
#include "tests.h"
#include "command.h"
#include "ir/program.h"
#include "step.h"
#include <stdlib.h>
#include <string.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 "

/* Rates in round numbers: with both efficiencies at 50 %, memory has 1 byte per ns, and products have 2 (f32)
 * or 4 (bf16) operations per ns. */
#define LINES                                                                              \
    "memory 1 GiB # in all\n"                                                              \
    "reserved 1 MB\n"                                                                      \
    "vector f32 2 GFLOP/s  vector f64 1 GFLOP/s\n"                                         \
    "matrix f32 4 GFLOP/s  matrix bf16 0.008 TFLOP/s\n"                                    \
    "compute_efficiency 50 %\n"                                                            \
    "memory_bandwidth 0.002 TB/s  memory_efficiency 50 %\n"                                \
    "launch 0.1 us\n"
static const char good[] = "# a device\ndevice toy \"a \\\"toy\\\"\"\n" LINES;

/* ---- text -------------------------------------------------------------------------- */

static const struct {
    const char *text, *says;
} bad[] = {
    {"", "line 1: expected device"},
    {"device", "line 1: expected a name"},
    {"device toy", "line 1: expected \""},
    {"device toy \"a", "line 1: expected \""},
    {"device cpu \"mine\"\n" LINES, "'cpu' is this machine"},
    {"device toy \"a\"\nspeed 3", "line 2: expected vector, matrix or another property"},
    {"device toy \"a\"\nmemory", "line 2: expected a number"},
    {"device toy \"a\"\nmemory 3", "line 2: expected B, kB, MB"},
    {"device toy \"a\"\nmemory 3\nalign 256 B", "line 2: expected B, kB, MB"},
    {"device toy \"a\"\nmemory 3 GB/s", "line 2: expected vector"},
    {"device toy \"a\"\nmemory_bandwidth 3 GB", "line 2: expected GB/s or TB/s"},
    {"device toy \"a\"\nmemory -3 GB", "line 2: memory is out of range"},
    {"device toy \"a\"\nmemory nan GB", "line 2: memory is out of range"},
    {"device toy \"a\"\nmemory inf GB", "line 2: memory is out of range"},
    {"device toy \"a\"\nmemory_bandwidth 1e-300 GB/s", "line 2: memory_bandwidth is out of range"},
    {"device toy \"a\"\nmemory 1e300 TB", "line 2: memory is out of range"},
    {"device toy \"a\"\n\nmemory 0.5 B", "line 3: memory is out of range"},
    {"device toy \"a\"\nmemory 1 GB\nmemory 1 GB", "line 3: memory is given twice"},
    {"device toy \"a\"\nvector", "line 2: expected f32, f64, bf16 or f16"},
    {"device toy \"a\"\nvector i64 1 GFLOP/s", "line 2: expected f32, f64, bf16 or f16"},
    {"device toy \"a\"\nmatrix f16 1 GB/s", "line 2: expected GFLOP/s"},
    {"device toy \"a\"\nmatrix f16 1 GFLOP/s matrix f16 1 GFLOP/s",
     "line 2: f16 is given twice"},
    {"device toy \"a\"\ncompute_efficiency 101 %",
     "line 2: compute_efficiency is out of range"},
    {"device toy \"a\"\nlaunch 0 us", "line 2: launch is out of range"},
    {"device toy \"a\"\nhead_rows 1e12", "line 2: head_rows is out of range"},
    {"device toy \"a\"", "memory is missing"},
    {"device toy \"a\"\nmemory 1 GB memory_bandwidth 1 GB/s", "launch is missing"},
    {"device toy \"a\"\nmemory 1 GB memory_bandwidth 1 GB/s launch 1 us",
     "vector f32 is missing"},
    {"device toy \"a\"\n" LINES "align 96 B", "align is no power of 2 from 64 B"},
    {"device toy \"a\"\n" LINES "align 32 B", "align is no power of 2 from 64 B"},
    {"device toy \"a\"\n" LINES "align 4 MiB", "align is no power of 2 from 64 B"},
    {"device toy \"a\"\nreserved 2 GB memory 1 GB memory_bandwidth 1 GB/s launch 1 ns "
     "vector f32 1 GFLOP/s",
     "more is reserved than there is memory"},
};
enum { NBAD = sizeof bad / sizeof *bad };

START_TEST(bad_text)
{
    Arena a = {0};
    Diag d = {0};
    DeviceInfo info;
    ck_assert_msg(!device_parse(&info, bad[_i].text, &a, &d), "%s", bad[_i].text);
    ck_assert_msg(strstr(d.msg, bad[_i].says) == d.msg && !strchr(d.msg, '\n'), "%s: '%s'",
                  bad[_i].text, d.msg);
    arena_free(&a);
}
END_TEST

static DeviceInfo toy(Arena *a)
{
    DeviceInfo info;
    Diag d = {0};
    ck_assert_msg(device_parse(&info, good, a, &d), "%s", d.msg);
    return info;
}

START_TEST(good_text)
{
    Arena a = {0};
    DeviceInfo info = toy(&a);
    ck_assert_str_eq(info.name, "toy");
    ck_assert_str_eq(info.title, "a \"toy\"");
    ck_assert_int_eq(info.memory, 1 << 30);
    ck_assert_int_eq(device_room(&info), (1 << 30) - 1000000);
    ck_assert_double_eq(info.flops[UNIT_MATRIX][DT_BF16], 8);
    ck_assert_double_eq(info.flops[UNIT_MATRIX][DT_F16], 0);
    ck_assert_double_eq(info.launch_ns, 100);
    /* defaults of what the text does not give */
    ck_assert_int_eq(info.update_bytes, 1 << 20);
    ck_assert_int_eq(info.factor_bytes, 1 << 20);
    ck_assert_int_eq(info.head_bytes, 1 << 20);
    ck_assert_int_eq(info.head_rows, 256); /* 20 rows for each operation per byte are 80, rounded up */
    arena_free(&a);
}
END_TEST

/* Every device that ckc knows can be read and has the name of its file. */
START_TEST(known)
{
    Arena a = {0};
    int n = 0;
    for (const DeviceText *t = device_texts; t->name; t++, n++) {
        DeviceInfo info;
        Diag d = {0};
        ck_assert_msg(device_find(&info, t->name, &a, &d), "%s: %s", t->name, d.msg);
        ck_assert_str_eq(info.name, t->name);
        ck_assert_int_gt(info.head_rows, 256);
    }
    ck_assert_int_ge(n, 5);
    /* The CPU's thresholds decide which bits it computes, so they must not change. */
    ck_assert_int_eq(device_cpu.head_bytes, 32 << 20);
    ck_assert_int_eq(device_cpu.head_rows, 256);
    ck_assert_int_eq(device_cpu.update_bytes, 4 << 20);
    ck_assert_int_eq(device_cpu.factor_bytes, 1 << 20);
    arena_free(&a);
}
END_TEST

/* ---- plans ------------------------------------------------------------------------- */

/* A graph and the times of its steps as computed by hand: products run at the rates of their types, pointwise
 * operators at that of the memory. */
static const char text[] = "graph {\n"
                           "  input %x: f32[64,64]\n"
                           "  param %w: f32[64,64]\n"
                           "  input %a: bf16[64,64]\n"
                           "  input %b: bf16[64,64]\n"
                           "  input %z: f64[512]\n"
                           "  %h: f32[64,64] = matmul %x, %w\n"
                           "  %y: f32[64,64] = relu %h\n"
                           "  %p: bf16[64,64] = matmul %a, %b\n"
                           "  %q: f64[512] = relu %z\n"
                           "  output %y\n"
                           "  output %p\n"
                           "  output %q\n"
                           "}\n";
static const int64_t predicted[] = {
    100 + 2 * 64 * 64 * 64 / 2, /* 2 operations per ns */
    100 + 2 * 4 * 64 * 64,      /* 1 byte per ns */
    100 + 2 * 64 * 64 * 64 / 4, /* 4 operations per ns */
    100 + 2 * 8 * 512,          /* 1 byte per ns */
};
enum { STEPS = sizeof predicted / sizeof *predicted };

typedef struct {
    Arena arena, tmp;
    Diag diag;
    Graph g;
    StepInfo info;
    DeviceInfo device;
    StepOptions opt;
} Toy;

static bool plan_graph(Toy *t, const char *graph)
{
    PassCtx cx = {.diag = &t->diag, .tmp = &t->tmp, .opt = &t->opt, .info = &t->info};
    t->opt.device = &t->device;
    graph_init(&t->g, &t->arena, &t->diag);
    return graph_parse(&t->g, graph, &t->diag) &&
           passes_run(&t->g, &cx, &(PassRun){.only = "cost,remat,plan"});
}

static bool plan(Toy *t)
{
    t->device = toy(&t->arena);
    return plan_graph(t, text);
}

static void free_toy(Toy *t)
{
    arena_free(&t->tmp);
    arena_free(&t->arena);
}

START_TEST(roofline)
{
    Toy t = {0};
    int64_t sum = 0;
    ck_assert_msg(plan(&t), "%s", t.diag.msg);
    const Plan *p = &t.info.plan;
    ck_assert_uint_eq(p->nstep, STEPS);
    for (int s = 0; s < STEPS; s++) {
        ck_assert_int_eq(p->step[s].cost_ns, predicted[s]);
        sum += predicted[s];
    }
    ck_assert_int_eq(p->predicted_ns, sum);
    ck_assert_int_eq(p->measured_ns, 0);
    ck_assert_str_eq(p->device, "toy");
    ck_assert_uint_eq(p->threads, 0);
    free_toy(&t);
}
END_TEST

/* Copying 64 MB to the host or back takes the time of the link, not that of the device's own memory. */
START_TEST(host_link)
{
    static const char graph[] = "graph {\n  input %x: f32[16000000]\n"
                                "  %a: f32[16000000] = relu %x\n"
                                "  %b: f32[16000000] = offload %a\n"
                                "  %c: f32[16000000] = fetch %b\n"
                                "  %y: f32[16000000] = relu %c\n  output %y\n}\n";
    Toy t = {0};
    ck_assert_msg(device_find(&t.device, "h200", &t.arena, &t.diag), "%s", t.diag.msg);
    ck_assert_msg(plan_graph(&t, graph), "%s", t.diag.msg);
    const Step *s = t.info.plan.step;
    ck_assert_uint_eq(t.info.plan.nstep, 4);
    for (int i = 1; i <= 2; i++)
        ck_assert_int_eq(s[i].cost_ns, (int64_t)(64000000 / t.device.host_link + t.device.launch_ns));
    ck_assert_int_lt(10 * s[0].cost_ns, s[1].cost_ns);
    free_toy(&t);
}
END_TEST

/* The predicted time of a batch norm has two reads of its input, for the statistics and for the result; that
 * of its gradient two reads of both inputs.  Rows of a layer norm stay in registers, and small values in the
 * cache: they are read once. */
START_TEST(columns_are_read_again)
{
    static const char graph[] =
        "graph {\n  input %x: f32[1000000,64]\n  input %s: f32[64]\n  input %b: f32[64]\n"
        "  input %m: f32[64]\n  input %r: f32[64]\n  input %z: f32[10000,64]\n"
        "  %y: f32[1000000,64], %a: f32[64], %v: f32[64], %c: f32[64] = batch_norm %x, %s, %b {axis=1}\n"
        "  %d: f32[1000000,64], %e: f32[64], %f: f32[64] = batch_norm_bwd %y, %x, %s, %m, %r {axis=1}\n"
        "  %l: f32[1000000,64], %g: f32[1000000,1], %h: f32[1000000,1] = layer_norm %d, %s, %b {axis=1}\n"
        "  %w: f32[10000,64], %i: f32[64], %j: f32[64], %k: f32[64] = batch_norm %z, %s, %b {axis=1}\n"
        "  output %l\n  output %w\n}\n";
    static const int64_t values[] = {3, 5, 2}; /* of 256 MB that each step reads and writes */
    Toy t = {0};
    ck_assert_msg(device_find(&t.device, "h200", &t.arena, &t.diag), "%s", t.diag.msg);
    ck_assert_msg(plan_graph(&t, graph), "%s", t.diag.msg);
    const Step *s = t.info.plan.step;
    double value = 256e6 / (t.device.memory_bandwidth * t.device.memory_efficiency);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol((double)s[i].cost_ns, (double)values[i] * value,
                                0.04 * value + t.device.launch_ns);
    ck_assert_double_eq_tol((double)s[3].cost_ns, 0.02 * value, 0.01 * value + t.device.launch_ns);
    free_toy(&t);
}
END_TEST

/* Of what is sliced or gathered, the parts alone are read; several parts of a value as one kernel each. */
START_TEST(parts_are_read)
{
    static const char graph[] =
        "graph {\n  input %x: f32[100,1000000]\n  input %i: i64[1000]\n  input %w: f32[1000000,64]\n"
        "  %a: f32[1,1000000] = slice %x {start=[7,0], step=[1,1], size=[1,1000000]}\n"
        "  %b: f32[1,1000000] = slice %x {start=[8,0], step=[1,1], size=[1,1000000]} #1\n"
        "  %c: f32[1,1000000] = slice %x {start=[9,0], step=[1,1], size=[1,1000000]} #1\n"
        "  %d: f32[1,1000000] = add %b, %c #1\n"
        "  %e: f32[1000,64] = gather %w, %i {axis=0}\n"
        "  output %a\n  output %d\n  output %e\n}\n";
    static const double bytes[] = {2 * 4e6, 3 * 4e6, 2 * 4e3 * 64 + 8e3};
    Toy t = {0};
    ck_assert_msg(device_find(&t.device, "h200", &t.arena, &t.diag), "%s", t.diag.msg);
    ck_assert_msg(plan_graph(&t, graph), "%s", t.diag.msg);
    ck_assert_uint_eq(t.info.plan.nstep, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol((double)t.info.plan.step[i].cost_ns,
                                bytes[i] / (t.device.memory_bandwidth * t.device.memory_efficiency) +
                                    t.device.launch_ns,
                                1);
    free_toy(&t);
}
END_TEST

/* What is written to few columns of integers takes the time of few threads; cumulative sums, searches for the
 * largest elements and sums by index have many, along few rows, too. */
START_TEST(few_threads_are_slow)
{
    static const char graph[] =
        "graph {\n  input %x: f32[1000000]\n  input %r: f32[64,50000]\n  input %u: i64[100000,2]\n"
        "  input %j: i64[100000,1]\n  input %t: i64[1000,2]\n  input %c: f32[64,1024,768]\n"
        "  input %v: f32[64,8]\n"
        "  %a: f32[1000000] = cumsum %x {axis=0}\n"
        "  %b: i64[64,8] = topk %r {axis=1, k=8, largest=1}\n"
        "  %s: i64[1000,2] = scatter_nd %t, %j, %u {axis=0, reduction=1}\n"
        "  %d: f32[64,1024,768] = cumsum %c {axis=1}\n"
        "  %e: f32[64,50000] = scatter_elements %r, %b, %v {axis=1, reduction=1}\n"
        "  output %a\n  output %b\n  output %s\n  output %d\n  output %e\n}\n";
    enum { EACH = 100000 }; /* elements of a thread */
    Toy t = {0};
    ck_assert_msg(device_find(&t.device, "h200", &t.arena, &t.diag), "%s", t.diag.msg);
    const DeviceOps *planner = device_planner(&t.device);
    t.opt.cost = planner->choose;
    t.opt.cost_user = planner->profile_open(&(ProfileOptions){.device = &t.device}, &t.diag);
    ck_assert_msg(plan_graph(&t, graph), "%s", t.diag.msg);
    const Step *s = t.info.plan.step;
    ck_assert_double_gt((double)s[2].cost_ns, 10 * EACH);
    ck_assert_double_lt((double)s[2].cost_ns, 40 * EACH);
    ck_assert_double_lt((double)s[0].cost_ns, 20000);
    ck_assert_double_lt((double)s[1].cost_ns, 40000);
    ck_assert_double_lt((double)s[4].cost_ns, 20000);
    double moved = 2 * 4.0 * 64 * 1024 * 768 / (t.device.memory_bandwidth * t.device.memory_efficiency);
    ck_assert_double_eq_tol((double)s[3].cost_ns, moved + t.device.launch_ns, 1);
    planner->profile_close(t.opt.cost_user);
    free_toy(&t);
}
END_TEST

static void parse(const char *s, Toy *t)
{
    graph_init(&t->g, &t->arena, &t->diag);
    t->info.plan.g = &t->g;
    ck_assert_msg(plan_parse(&t->info.plan, s, &t->diag), "%s", t->diag.msg);
}

/* A schedule names its device; a schedule without such a line is for this machine. */
START_TEST(schedule)
{
    Toy t = {0}, again = {0}, old = {0};
    ck_assert_msg(plan(&t), "%s", t.diag.msg);
    char *s = plan_text(&t.info.plan);
    parse(s, &again);
    ck_assert_str_eq(again.info.plan.device, "toy");
    ck_assert_int_eq(again.info.plan.measured_ns, 0);
    char *same = plan_text(&again.info.plan);
    ck_assert_str_eq(s, same);
    for (const char *key = "  device"; key;
         key = strcmp(key, "  device") == 0 ? "  measured_ns" : NULL) {
        char *from = strstr(s, key), *to = strchr(from, '\n') + 1;
        memmove(from, to, strlen(to) + 1);
    }
    parse(s, &old);
    ck_assert_ptr_null(old.info.plan.device);
    ck_assert_int_eq(old.info.plan.measured_ns, -1);
    free(s);
    free(same);
    free_toy(&old);
    free_toy(&again);
    free_toy(&t);
}
END_TEST

/* Checks what both verifiers say if v lies `by` bytes behind its place in the plan; then moves it back. */
static void misplace(Plan *p, Val v, int64_t by, const char *plan_says, const char *program_says)
{
    Arena a = {0};
    Diag d = {0}, e = {0};
    Program pr;
    p->offset[v.i] += by;
    ck_assert(!plan_verify(p, &d));
    ck_assert_msg(strstr(d.msg, plan_says) != NULL, "%s", d.msg);
    ck_assert(program_make(&pr, p, &a, &e) && !program_verify(&pr, &e));
    ck_assert_msg(strstr(e.msg, program_says) != NULL, "%s", e.msg);
    p->offset[v.i] -= by;
    arena_free(&a);
}

/* All offsets of a plan are multiples of the device's alignment, which is in the schedule and verified. */
START_TEST(alignment)
{
    Toy t = {0}, again = {0};
    ck_assert_msg(device_find(&t.device, "h200", &t.arena, &t.diag), "%s", t.diag.msg);
    ck_assert_msg(plan_graph(&t, "graph {\n  input %y: f32[3]\n  %b: f32[3] = relu %y\n"
                                 "  %c: f32[6] = concat %b, %y {axis=0}\n  output %b\n  output %c\n}\n"),
                  "%s", t.diag.msg);
    Plan *p = &t.info.plan;
    ck_assert_int_eq(p->align, 256);
    for (uint32_t v = 1; v < t.g.nvals; v++)
        ck_assert(p->offset[v] < 0 || p->offset[v] % 256 == 0);
    ck_assert_int_eq(p->arena_bytes, 3 * 256);
    char *s = plan_text(p);
    ck_assert_ptr_nonnull(strstr(s, "\n  align 256\n"));
    parse(s, &again);
    ck_assert_int_eq(again.info.plan.align, 256);
    misplace(&again.info.plan, graph_find(&again.g, "y"), 64, "plan: %y is misaligned",
             "operand 0 is no multiple of 256 bytes away");
    free(s);
    free_toy(&again);
    free_toy(&t);
}
END_TEST

/* A step that exceeds the device's memory is refused; the message says if a smaller budget would help. */
START_TEST(memory)
{
    Toy t = {0};
    t.opt.memory = 16384;
    ck_assert(!plan(&t));
    ck_assert_int_eq(t.diag.status, EXIT_DEVICE);
    ck_assert_ptr_nonnull(
        strstr(t.diag.msg, "and a \"toy\" has 16384: what lives through a step alone is too much"));
    ck_assert_ptr_null(strstr(t.diag.msg, "--steps"));
    free_toy(&t);
    t = (Toy){.opt.memory = 65536};
    ck_assert(!plan(&t));
    ck_assert_ptr_nonnull(strstr(t.diag.msg, "and a \"toy\" has 65536: a smaller --budget recomputes more"));
    free_toy(&t);
}
END_TEST

/* Checks the kernel choices that a device has for the commands: each has less workspace than the one before,
 * so that the last of those with the same bits has the least. */
static void check_choices(const DeviceOps *ops, const Command *c, uint32_t n, Arena *a)
{
    Diag d = {0};
    void *profile = ops->profile_open
                        ? ops->profile_open(&(ProfileOptions){.threads = 1, .time_limit = -1}, &d) : NULL;
    StepCost *cost = NEW(a, StepCost, n);
    ck_assert_ptr_nonnull(ops->choose);
    ck_assert_msg(ops->choose(profile, c, n, cost, &d), "%s: %s", ops->name, d.msg);
    ck_assert(!ops->times || ops->times(profile, TIMES_ROUGH, &(Progress){0}, cost, &d));
    for (uint32_t s = 0; s < n; s++) {
        ck_assert_int_ge(cost[s].same, 1);
        ck_assert_int_ge(cost[s].n, cost[s].same);
        for (int i = 1; i < cost[s].n; i++)
            ck_assert_int_lt(cost[s].c[i].scratch, cost[s].c[i - 1].scratch);
        ck_assert_int_lt(cost[s].c[cost[s].n - 1].scratch, 64 << 10); /* saving less is not worth a choice */
        ck_assert(!cost[s].measured);
    }
    if (ops->profile_close)
        ops->profile_close(profile);
}

START_TEST(tables)
{
    static const char graph[] = "graph {\n  input %x: f32[4,64,28,28]\n  input %a: f32[64,64]\n"
                                "  param %w: f32[128,64,3,3]\n  param %b: f32[64,64]\n"
                                "  %y: f32[4,128,28,28] = conv %x, %w {strides=[1,1], pads=[1,1,1,1], "
                                "dilations=[1,1]}\n"
                                "  %r: f32[4,128,28,28] = relu %y\n  %p: f32[64,64] = matmul %a, %b\n"
                                "  output %r\n  output %p\n}\n";
    int n = 0;
    for (const DeviceOps *const *ops = devices_here; *ops; ops++, n++) {
        Toy t = {0};
        int ordinal;
        ck_assert_ptr_eq(device_here((*ops)->name, &ordinal), *ops);
        if (!(*ops)->info(0, &t.device, &t.arena, &t.diag)) {
            ck_assert_int_eq(t.diag.status, EXIT_DEVICE);
            continue;
        }
        ck_assert_str_eq(t.device.name, (*ops)->name);
        ck_assert_msg(plan_graph(&t, graph), "%s", t.diag.msg);
        const Plan *p = &t.info.plan;
        ck_assert_str_eq(p->device, (*ops)->name);
        check_choices(*ops, plan_commands(p, &t.arena, &t.diag), p->nstep, &t.arena);
        free_toy(&t);
    }
    ck_assert_int_ge(n, 2);
    int ordinal;
    ck_assert_ptr_eq(device_here(NULL, &ordinal), devices_here[0]);
    ck_assert(device_here("cuda:3", &ordinal) == &cuda_device && ordinal == 3);
    ck_assert_ptr_null(device_here("h200", &ordinal));
    ck_assert_ptr_null(device_here("cuda:", &ordinal));
    ck_assert_ptr_null(device_here("cuda:x", &ordinal));
    ck_assert_ptr_null(device_here("cuda1", &ordinal));
    ck_assert_ptr_null(device_here("cpu:1", &ordinal));
}
END_TEST

static int split_updates(const char *more)
{
    TestStep s;
    DeviceInfo info;
    Arena a = {0};
    OnnxBind bind = {"batch", 24};
    int n = 0;
    step_init(&s);
    ck_assert(device_parse(&info, arena_printf(&a, "%s%s", good, more), &a, &s.diag));
    s.opt.device = &info;
    s.opt.import.bind = &bind;
    s.opt.import.nbind = 1;
    ck_assert_msg(step_plan(&s, CKC_SOURCE_DIR "/examples/mlp/model.onnx", NULL), "%s",
                  s.diag.msg);
    for (uint32_t k = 0; k < s.g.norder; k++) {
        const Node *node = &s.g.nodes[s.g.order[k].i];
        n += node->split.by == SPLIT_ROWS && node->group;
    }
    step_free(&s);
    arena_free(&a);
    return n;
}

START_TEST(thresholds)
{
    ck_assert_int_eq(split_updates(""), 0);
    ck_assert_int_ge(split_updates("update_bytes 2 KiB"), 2);
}
END_TEST

/* ---- commands ---------------------------------------------------------------------- */

START_TEST(commands)
{
    write_text("toy.txt", good);
    write_text("bad.txt", "device toy \"a\"\nmemory 1 apple\n");
    ckc_refuses(MLP "--device toy.txt", 1, "--device toy is not this machine: ckc plan");
    ckc_refuses(MLP "--device toy.txt --steps 0 --threads 2", 1,
                "--threads belongs to this machine");
    ckc_refuses(MLP "--device h20 --steps 0", 1, "did you mean 'h200'?");
    ckc_refuses(MLP "--device ./no --steps 0", 1, "./no: No such file");
    ckc_refuses(MLP "--device bad.txt --steps 0", 1, "bad.txt: line 2: expected B, kB");
    ckc_accepts(MLP "--device toy.txt --steps 0 --budget 100% --json -o a");
    json_t *j = read_json("out");
    ck_assert_str_eq(json_string_value(json_object_get(j, "device")), "toy");
    ck_assert_str_eq(json_string_value(json_object_get(j, "precision")), "f32");
    ck_assert(json_real_value(json_object_get(j, "measured_share")) == 0);
    ck_assert(json_is_null(json_object_get(j, "threads")));
    json_decref(j);
    ckc_fails("", "run a/step.ckp", EXIT_DEVICE,
              "is a schedule for the device 'toy', which is not here");
    ckc_accepts(MLP "--device toy.txt --steps 0 -o b");
    ck_assert_int_eq(shell("grep -q '^device      toy, f32; times estimated$' out"), 0);
    ckc_accepts(MLP "--device cpu --threads 1 -o c");
    ck_assert_int_eq(shell("grep -q '^device      cpu, 1 threads, f32; times' out"), 0);
    ckc_accepts("run c/step.ckp");
    ck_assert_int_eq(shell("grep -q '^device      cpu, 1 threads, f32; times' out"), 0);
}
END_TEST

static double first_loss(void)
{
    json_t *j = read_json("out");
    double loss = json_real_value(json_array_get(json_object_get(j, "losses"), 0));
    json_decref(j);
    return loss;
}

/* The device "fake", which is part of every ckc, trains with the same options to the CPU's loss, and its
 * schedule runs again to the same one. */
START_TEST(fake)
{
    ckc_accepts(MLP "--device cpu --budget 100% --json -o a");
    double cpu = first_loss();
    ckc_accepts(MLP "--device fake --budget 100% --json -o b");
    double loss = first_loss();
    ck_assert_msg(fabs(loss - cpu) < 1e-5 * fabs(cpu), "%g, not %g", loss, cpu);
    ck_assert_int_eq(shell("grep -q '^  device \"fake\"' b/step.ckp && ! grep -q choice=[^-] b/step.ckp"), 0);
    ckc_accepts("run b/step.ckp --json");
    ck_assert(first_loss() == loss);
}
END_TEST

/* A budget includes the memory that driver and libraries take; the arena has the rest. */
START_TEST(budget_holds_what_is_reserved)
{
    enum { RESERVED = 1000000 };
    write_text("toy.txt", good);
    ckc_refuses(MLP "--device toy.txt --steps 0 --budget 900kB", 3, "driver, context and libraries of");
    ckc_accepts(MLP "--device toy.txt --steps 0 --json -o a");
    json_t *j = read_json("out");
    long long whole = json_integer_value(json_object_get(j, "arena_bytes"));
    json_decref(j);
    ckc_refuses(MLP "--device toy.txt --steps 0 --budget 1001kB --policy keep-all", 3,
                format("budget of 1001000 bytes cannot be met by policy keep-all: it takes %lld bytes",
                       whole + RESERVED));
    char args[256];
    snprintf(args, sizeof args, MLP "--device toy.txt --steps 0 -o a --budget %lld", RESERVED + whole / 4);
    ck_assert_int_eq(ckc(args), EXIT_INFEASIBLE);
    long long least = ckc_least_budget();
    snprintf(args, sizeof args, MLP "--device toy.txt --steps 0 --json -o a --budget %lld", least);
    ckc_accepts(args);
    j = read_json("out");
    ck_assert_int_eq(json_integer_value(json_object_get(j, "budget_bytes")), least);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "reserved_bytes")), RESERVED);
    ck_assert_int_le(json_integer_value(json_object_get(j, "arena_bytes")), least - RESERVED);
    json_decref(j);
}
END_TEST

/* A plan for another device needs nothing of this machine: no compiler and no cache. */
START_TEST(asks_nobody)
{
    setenv("XDG_CACHE_HOME", folder_path(), 1);
    ckc_accepts("--help");
    pid_t pid =
        ckc_start("PATH=/none;", MLP "--device h200 --budget 100% --steps 0 --quiet -o a");
    ck_assert_int_eq(ckc_end(pid), EXIT_OK);
    ck_assert_int_eq(files_in("."), 3); /* out, err, a */
}
END_TEST

START_TEST(listing)
{
    write_text("toy.txt", good);
    ckc_accepts("devices toy.txt");
    ck_assert_int_eq(shell("grep -q '^cpu .*this machine$' out && grep -q '^h200 ' out && "
                           "grep -q '^toy ' out"),
                     0);
    ckc_accepts("devices --json toy.txt");
    json_t *j = read_json("out");
    size_t n = json_array_size(j);
    ck_assert_uint_ge(n, 7);
    json_t *last = json_array_get(j, n - 1);
    ck_assert_str_eq(json_string_value(json_object_get(last, "title")), "a \"toy\"");
    ck_assert_int_eq(json_integer_value(json_object_get(last, "memory_bytes")), 1 << 30);
    json_decref(j);
    ckc_refuses("devices no.txt", 1,
                "'no.txt' is no device that is known (see ckc devices), nor a file");
}
END_TEST

/* In 16 bits all attention of a plan, and of the program emitted from it, uses warpgroup products if the GPU
 * has them. */
START_TEST(warpgroups)
{
    static const struct {
        const char *how;
        int n; /* of 6 attentions and their gradients */
    } plan[] = {{"h200 --precision bf16", 12}, {"a100 --precision bf16", 0}, {"h200", 0}};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        ckc_accepts(format(CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=1,seq=64 --steps 0 "
                                          "--quiet -o d --emit cuda --device %s", plan[i].how));
        ck_assert_int_eq(shell(format("test $(grep -c ' choice=wgmma ' d/step.ckp) = %d", plan[i].n)), 0);
        ck_assert_int_eq(shell("grep -q 'define A_WGMMA 1' d/kernels.cu") == 0, plan[i].n > 0);
        ck_assert_int_eq(shell("grep -q wgmma.mma_async d/kernels.cu") == 0, plan[i].n > 0);
    }
}
END_TEST

Suite *suite_device(void)
{
    Suite *s = suite_create("device");
    TCase *c = tcase_create("text");
    tcase_add_loop_test(c, bad_text, 0, NBAD);
    tcase_add_test(c, good_text);
    tcase_add_test(c, known);
    suite_add_tcase(s, c);
    c = tcase_create("plans");
    tcase_add_test(c, roofline);
    tcase_add_test(c, parts_are_read);
    tcase_add_test(c, few_threads_are_slow);
    tcase_add_test(c, host_link);
    tcase_add_test(c, columns_are_read_again);
    tcase_add_test(c, schedule);
    tcase_add_test(c, alignment);
    tcase_add_test(c, memory);
    tcase_add_test(c, tables);
    tcase_add_test(c, thresholds);
    suite_add_tcase(s, c);
    c = command_case(s, "commands");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, commands);
    tcase_add_test(c, fake);
    tcase_add_test(c, budget_holds_what_is_reserved);
    tcase_add_test(c, asks_nobody);
    tcase_add_test(c, listing);
    tcase_add_test(c, warpgroups);
    return s;
}
