/* fuzz_parse.c -- graphs as text: one that parses and verifies is printed as text that parses to the same. */
#include "text.h"
#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena a = {0};
    Diag d = {0};
    Graph g, again;
    graph_init(&g, &a, &d);
    graph_init(&again, &a, &d);
    if (graph_parse(&g, arena_strndup(&a, (const char *)data, size), &d) && graph_verify(&g, &d)) {
        char *first = graph_text(&g);
        if (!graph_parse(&again, first, &d) || !graph_verify(&again, &d))
            fuzz_fail(d.msg, first);
        fuzz_same(first, graph_text(&again));
    }
    arena_free(&a);
    return 0;
}

TEXT_MUTATOR
