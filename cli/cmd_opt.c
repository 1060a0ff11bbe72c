/* cmd_opt.c -- `ckc opt --passes=simplify,fuse GRAPH.ckg`: passes on the text form of a graph, for
 * tests and for looking.  Prints the graph that results; "-" reads standard input.  A schedule
 * (.ckp) is checked and printed. */
#include "cli.h"
#include "ir/file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void list_passes(void)
{
    enum { INDENT = 14, WIDTH = 79 };
    for (const Pass *p = pipeline; p->name; p++) {
        printf("%-*s", INDENT, p->name);
        print_words(stdout, p->doc, strlen(p->doc), INDENT, WIDTH, INDENT);
        putchar('\n');
    }
}

/* Reads the whole file into *text, allocated in a, and ends it with a 0. */
static bool read_text(const char *path, Arena *a, char **text, Diag *d)
{
    bool in = strcmp(path, "-") == 0;
    const char *why;
    FILE *f = in ? stdin : file_open_text(path, &why);
    if (!f)
        return fail(d, "%s: %s", path, why);
    uint32_t n = 0, cap = 0;
    size_t got;
    *text = arena_grow(a, NULL, 0, &cap, 1);
    while (*text = arena_grow(a, *text, n + 4096, &cap, 1),
           n < TEXT_MOST && (got = fread(*text + n, 1, 4096, f)))
        n += (uint32_t)got;
    (*text)[n] = 0;
    bool ok = !ferror(f) && n < TEXT_MOST;
    if (!in)
        fclose(f);
    return ok || fail(d, "%s: cannot be read", path);
}

static bool print_schedule(const Options *o, Graph *g, const char *text, Diag *d)
{
    Plan p = {.g = g};
    if (o->passes)
        return fail(d, "is a schedule: passes run on graphs");
    TRY(plan_parse(&p, text, d));
    plan_print(&p, stdout);
    return true;
}

static bool run(Options *o, Arena *a)
{
    Graph g;
    StepInfo info = {0};
    Arena tmp = {0};
    char *text = NULL;
    PassCtx cx = {.diag = &o->diag, .tmp = &tmp, .opt = &o->step, .info = &info};
    PassRun how = {.only = o->passes, .disable = o->disable, .dump = o->dump,
                   .time = o->time_passes};
    graph_init(&g, a, &o->diag);
    TRY(read_text(o->path, a, &text, &o->diag));
    if (has_suffix(o->path, ".ckp"))
        return print_schedule(o, &g, text, &o->diag);
    TRY(graph_parse(&g, text, &o->diag) && graph_verify(&g, &o->diag));
    TRY(!o->passes || passes_run(&g, &cx, &how));
    graph_print(&g, stdout);
    return true;
}

int cmd_opt(Options *o)
{
    Arena a = {0};
    bool ok = true;
    if (o->list)
        list_passes();
    else
        ok = (o->path || fail(&o->diag, "no graph given")) && run(o, &a);
    int status = ok ? EXIT_OK : report_error(&o->diag, o->path);
    arena_free(&a);
    return status;
}
