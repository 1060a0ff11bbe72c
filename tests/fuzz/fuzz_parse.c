/* fuzz_parse.c -- graph text: what parses and verifies prints to text that parses to the same. */
#include "fuzz.h"
#include "ir/ir.h"

static char *print(const Graph *g)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    graph_print(g, f);
    fclose(f);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena a = {0};
    Diag d = {0};
    Graph g, again;
    graph_init(&g, &a, &d);
    graph_init(&again, &a, &d);
    if (graph_parse(&g, arena_strndup(&a, (const char *)data, size), &d) && graph_verify(&g, &d)) {
        char *first = print(&g);
        if (!graph_parse(&again, first, &d) || !graph_verify(&again, &d))
            fuzz_fail(d.msg, first);
        char *second = print(&again);
        if (strcmp(first, second) != 0)
            fuzz_fail("prints differently", first);
        free(first);
        free(second);
    }
    arena_free(&a);
    return 0;
}
