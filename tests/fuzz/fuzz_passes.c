/* fuzz_passes.c -- passes: of any graph that verifies they make one that verifies, and a plan whose values do
 * not overlap. */
#include "text.h"
#include "passes/passes.h"

enum { MAX_NODES = 200 };

static int64_t elements(const Graph *g)
{
    int64_t n = 0;
    for (uint32_t i = 1; i < g->nvals; i++)
        n += type_count(&g->vals[i].type) < 1 << 20 ? type_count(&g->vals[i].type) : 1 << 20;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena a = {0}, tmp = {0};
    Diag d = {0};
    Graph g;
    StepOptions opt = {.threads = 1};
    StepInfo info = {0};
    PassCtx cx = {.diag = &d, .tmp = &tmp, .opt = &opt, .info = &info};
    PassRun how = {.only = "canonicalize,recognise,simplify,inline,split,fuse,cost,plan"};
    graph_init(&g, &a, &d);
    if (graph_parse(&g, arena_strndup(&a, (const char *)data, size), &d) && graph_verify(&g, &d) &&
        g.norder < MAX_NODES && elements(&g) < 1 << 20 && !passes_run(&g, &cx, &how) &&
        (strncmp(d.msg, "after ", 6) == 0 || strncmp(d.msg, "plan: ", 6) == 0))
        fuzz_fail(d.msg, "from a graph that verifies");
    arena_free(&tmp);
    arena_free(&a);
    return 0;
}

TEXT_MUTATOR
