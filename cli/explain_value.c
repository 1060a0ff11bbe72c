/* explain_value.c -- `ckc explain MODEL.onnx --value NAME`: one value from the step that makes it to the last
 * that reads it. */
#include "explain.h"
#include <inttypes.h>
#include <string.h>

/* The value of --value, by its name in the plan or the model; none with a message in o->diag. */
static Val find_value(const Explain *x)
{
    const Graph *g = x->job->plan->g;
    Val v = graph_find(g, x->o->value);
    for (uint32_t i = 1; i < g->nvals && !v.i; i++)
        for (const ModelName *m = g->vals[i].in_model; m && !v.i; m = m->next)
            if (strcmp(m->name, x->o->value) == 0)
                v.i = i;
    if (v.i)
        return v;
    char hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, x->o->value);
    for (uint32_t i = 1; i < g->nvals; i++)
        nearest_try(&near, g->vals[i].name);
    diag_set(&x->o->diag, "--value %s: the plan has no value of that name%s", x->o->value,
             nearest_hint(&near, hint));
    return v;
}

/* Per value: is it v, a copy of v, or a view of one? */
static const bool *find_copies(const Explain *x, Val v)
{
    const Graph *g = x->job->plan->g;
    bool *copy = NEW(&x->job->arena, bool, g->nvals);
    copy[v.i] = true;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i], *of = &g->nodes[graph_original(g, g->order[k]).i];
        bool moves = n->op == OP_offload || n->op == OP_fetch || node_def(n)->traits & OPT_VIEW;
        for (int i = 0; i < n->nout; i++)
            copy[n->out[i].i] |= (moves && copy[n->in[0].i]) || copy[of->out[i].i];
    }
    return copy;
}

static void print_reads(FILE *f, const Explain *x, Val v)
{
    enum { LABEL = 60 };
    const Plan *p = x->job->plan;
    const bool *copy = find_copies(x, v);
    uint32_t n = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        bool reads = false;
        for (uint32_t k = 0; k < p->step[s].count; k++) {
            const Node *node = &p->g->nodes[p->g->order[p->step[s].first + k].i];
            for (int i = 0; i < node->nin; i++)
                reads |= copy[node->in[i].i];
        }
        char label[LABEL];
        step_label(p, s, label, LABEL);
        if (reads)
            print_line(f, "%-11s step %" PRIu32 ", %s%s%s", n++ ? "" : "read", s, label,
                       step_copies(p, s) ? "" : ", ",
                       step_copies(p, s) ? "" : phase_name[step_phase(p, &x->uses, s)]);
    }
}

static const Fate *fate_of(const Explain *x, Val v)
{
    const Plan *p = x->job->plan;
    const Node *def = graph_def(p->g, v);
    NodeId id = def ? graph_original(p->g, p->g->vals[v.i].def) : (NodeId){0};
    const Fate *found = NULL;
    for (uint32_t i = 0; i < x->nfate && id.i; i++)
        for (uint32_t k = 0; k < p->step[x->fate[i].step].count; k++)
            found = p->g->order[p->step[x->fate[i].step].first + k].i == id.i ? &x->fate[i] : found;
    return found;
}

static void print_fate(FILE *f, const Explain *x, const Fate *to)
{
    enum { LABEL = 60 };
    char label[LABEL], bytes[32];
    const Plan *p = x->job->plan;
    const char *module = step_module(p, to->step, &x->job->arena);
    step_label(p, to->step, label, LABEL);
    print_line(f, "made        step %" PRIu32 ", %s%s%s; %.3g ms, results of %s", to->step, label,
               *module ? " of " : "", module, ns_ms(p->step[to->step].cost_ns), bytes_str(to->bytes, bytes));
    Decision d = explain_decision(to);
    fprintf(f, "decision    %s", decision_name[d]);
    if (to->again == NEVER)
        fprintf(f, " until step %" PRIu32 "\n", to->last);
    else
        fprintf(f, ": dropped behind step %" PRIu32 ", there again from step %" PRIu32 " to %" PRIu32 "\n",
                to->until, to->again, to->last);
    if (to->redone)
        fprintf(f, "            computed again %" PRIu32 " times, %.3g ms in all\n", to->redone,
                ns_ms(to->redone_ns));
    if (to->moved_bytes)
        fprintf(f, "            copied to the host's memory and back %" PRIu32 " times, %s in all\n",
                to->fetched, bytes_str(to->moved_bytes, bytes));
    for (uint32_t i = 0; i < x->n; i++)
        if (x->result[i].fate == to && d == KEPT)
            fprintf(f, "            %s\n", why_text[x->result[i].why]);
    fprintf(f, "            %sheld at the peak, in step %" PRIu32 "\n", to->at_peak ? "" : "not ",
            p->peak_step);
}

bool explain_value(const Explain *x)
{
    const Plan *p = x->job->plan;
    char type[160], bytes[32];
    Val v = find_value(x), root = graph_root(p->g, v);
    TRY(v.i);
    const Fate *fate = fate_of(x, root);
    progress_end();
    print_line(stdout, "%%%s  %s, %s", p->g->vals[v.i].name, type_str(val_type(p->g, v), type),
               bytes_str(type_bytes(val_type(p->g, v)), bytes));
    if (root.i != v.i)
        print_line(stdout, "            a view of %%%s", p->g->vals[root.i].name);
    Val loaded = graph_loaded(p->g, root);
    if (loaded.i != root.i)
        print_line(stdout, "            loaded as %%%s, %s", p->g->vals[loaded.i].name,
                   type_str(val_type(p->g, loaded), type));
    root = loaded;
    if (fate && p->offset[root.i] < 0)
        print_line(stdout, "            never in memory: inside the kernel of step %" PRIu32, fate->step);
    else if (fate)
        print_fate(stdout, x, fate);
    else if (p->offset[root.i] < 0)
        print_line(stdout, "            never in memory");
    else
        print_line(stdout, "            always there, at byte %" PRId64 " of the %s", p->offset[root.i],
                   val_space(p->g, root) == SPACE_HOST ? "host's memory" : "arena");
    print_reads(stdout, x, root);
    return true;
}
