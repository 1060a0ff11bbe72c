/* pipeline.c -- the pass list, in order, and the loop that runs it. */
#include "passes.h"
#include <string.h>

const Pass pipeline[] = {
    {"bind", "import: bind symbols, fold shape arithmetic and constants", pass_bind},
    {"canonicalize", "algebra, common subexpressions, dead code on the forward graph", pass_canonicalize},
    {"recognise", "decomposed norms, activations, losses, attention: to native operators", pass_recognise},
    {"rows", "of what a slice reads rows of, these rows alone", pass_rows},
    {"loss", "find the loss, or append it with its target input", pass_loss},
    {"precision", "casts around products in 16 bits, as autocast has them; tf32", pass_precision},
    {"layout", "channels-last around convolutions, where the device wants it; 1x1 ones as products",
     pass_layout},
    {"autodiff", "append the backward graph", pass_autodiff},
    {"zeros", "gradients that are zero by algebra, such as of a bias in front of a batch norm", pass_zeros},
    {"optimize", "append the optimizer, each update right behind its gradient", pass_optimize},
    {"simplify", "algebra, common subexpressions, dead code", pass_simplify},
    {"stack", "sums of products, such as a recurrent weight's gradient, as one of stacked factors",
     pass_stack},
    {"head", "cross-entropy of large logits in blocks of rows, with its product and gradients", pass_head},
    {"epilogue", "biases, residuals and casts join the products and attention that they follow",
     pass_epilogue},
    {"inline", "cheap forward values recomputed inside the backward kernels that read them", pass_inline},
    {"split", "weight gradients in blocks, with what makes their factors or with their updates", pass_split},
    {"activate", "activations join the products in front of them", pass_activate},
    {"panels", "a matrix that many small products read, such as a recurrent weight, packed once for them",
     pass_panels},
    {"fuse", "group pointwise and row operators into kernels", pass_fuse},
    {"narrow", "frozen weights that are read in 16 bits alone are held in 16 bits", pass_narrow},
    {"cost", "seconds and workspace of every kernel, measured or by roofline", pass_cost},
    {"remat", "order and recompute until the budget holds", pass_remat},
    {"plan", "an offset in one arena for every byte", pass_plan},
    {0},
};

const Pass *pass_find(const char *name)
{
    for (const Pass *p = pipeline; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

bool pass_listed(const char *list, const char *name)
{
    size_t n;
    for (const char *s = list; s && *s; s += n + (s[n] == ',')) {
        n = strcspn(s, ",");
        if ((n == strlen(name) && strncmp(s, name, n) == 0) || (n == 3 && strncmp(s, "all", n) == 0))
            return true;
    }
    return false;
}

static bool verified(const Graph *g, PassCtx *cx, const char *name)
{
    Diag d = {0};
    if (graph_verify(g, &d))
        return true;
    return fail(cx->diag, "after %s: %.4000s", name, d.msg);
}

bool passes_run(Graph *g, PassCtx *cx, const PassRun *how)
{
    if (cx->info && cx->opt)
        cx->info->align = step_device(cx->opt)->align;
    for (const Pass *p = pipeline; p->name; p++) {
        if ((how->only && !pass_listed(how->only, p->name)) || pass_listed(how->disable, p->name))
            continue;
        double start = clock_seconds();
        cx->changed = false;
        if (cx->opt)
            progress(&cx->opt->progress, "%s: %s", p->name, p->doc);
        bool ok = p->run(g, cx);
        arena_free(cx->tmp);
        TRY(ok);
        if (cx->changed)
            TRY(verified(g, cx, p->name));
        if (how->time)
            fprintf(stderr, "%-13s %8.3f s  %u nodes\n", p->name, clock_seconds() - start, g->norder);
        if (pass_listed(how->dump, p->name)) {
            fprintf(stderr, "# after %s\n", p->name);
            graph_print(g, stderr);
        }
    }
    return true;
}
