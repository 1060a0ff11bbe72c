/* fuzz_plan.c -- schedules (.ckp): one that is accepted is printed as text that parses to the same, and is
 * lowered to a program or refused. */
#include "text.h"
#include "ir/program.h"

static char *print(const Plan *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    plan_print(p, f);
    fclose(f);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena a = {0};
    Diag d = {0};
    Graph g, again;
    Plan p = {.g = &g}, q = {.g = &again};
    graph_init(&g, &a, &d);
    graph_init(&again, &a, &d);
    if (plan_parse(&p, arena_strndup(&a, (const char *)data, size), &d)) {
        char *first = print(&p);
        if (!plan_parse(&q, first, &d))
            fuzz_fail(d.msg, first);
        fuzz_same(first, print(&q));
        Program program;
        if (program_make(&program, &p, &a, &d))
            program_verify(&program, &d);
    }
    arena_free(&a);
    return 0;
}

TEXT_MUTATOR
