/* fuzz_device.c -- descriptions of devices: any text is refused in one line, or a step is planned for it. */
#include "text.h"
#include "passes/passes.h"

static const char step[] =
    "graph {\n"
    "  input %lr: f64[]\n  input %t: i64[64]\n  input %x: f32[64,32]\n"
    "  param %w: f32[32,96]\n  param %v: f32[96,128]\n"
    "  %c: f32[] = cast %lr {dtype=f32}\n"
    "  %h: f32[64,96] = matmul %x, %w\n  %r: f32[64,96] = relu %h\n"
    "  %l: f32[64,128] = matmul %r, %v\n"
    "  %g: f32[64,96] = matmul %l, %v {tb=1}\n  %d: f32[96,128] = matmul %r, %l {ta=1}\n"
    "  %e: f32[32,96] = matmul %x, %g {ta=1}\n"
    "  %v2: f32[96,128] = sgd %v, %d, %c\n  %w2: f32[32,96] = sgd %w, %e, %c\n"
    "  update %v = %v2\n  update %w = %w2\n"
    "  %m: f32[64,1] = reduce_sum %l {axes=[1]}\n  output %m\n}\n";

static void plan(const DeviceInfo *device, Arena *a)
{
    Arena tmp = {0};
    Diag d = {0};
    Graph g;
    StepOptions opt = {.device = device, .budget_fraction = 0.9, .max_moves = 50};
    StepInfo info = {0};
    PassCtx cx = {.diag = &d, .tmp = &tmp, .opt = &opt, .info = &info};
    graph_init(&g, a, &d);
    bool ok = graph_parse(&g, step, &d) && graph_verify(&g, &d) &&
              passes_run(&g, &cx, &(PassRun){.only = "head,inline,split,fuse,cost,remat,plan"});
    if (!ok && d.status != EXIT_INFEASIBLE)
        fuzz_fail(d.msg, "a step was not planned");
    if (ok && info.plan.predicted_ns < 0)
        fuzz_fail("less than no time", device->name);
    arena_free(&tmp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena a = {0};
    Diag d = {0};
    DeviceInfo device;
    if (device_parse(&device, arena_strndup(&a, (const char *)data, size), &a, &d))
        plan(&device, &a);
    else if (!d.failed || strchr(d.msg, '\n'))
        fuzz_fail("no line says why", d.msg);
    arena_free(&a);
    return 0;
}

TEXT_MUTATOR
