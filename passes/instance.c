/* instance.c -- the compiler's side of rematerialization.
 *
 * Steps (kernels) become operators, computed values with memory become values.  Parameters, state,
 * data and constants are persistent bytes.  An update that overwrites its parameter costs no
 * bytes, but nothing may read the parameter afterwards, which is a barrier. */
#include "instance.h"
#include <string.h>

typedef struct {
    Graph *g;
    Arena *a;
    Instance *in;
    int32_t *value_of;     /* per Val: value of the instance, -1 */
    Val *target;           /* per Val: state it overwrites */
    int64_t align;
    int32_t **readers;     /* per source Val: steps that read it */
    uint32_t *nreaders, *creaders;
} Make;

static int32_t value_id(Make *m, Val v)
{
    RematInstance *inst = &m->in->inst;
    if (m->value_of[v.i] < 0) {
        m->value_of[v.i] = inst->nvalues;
        bool host = val_space(m->g, v) == SPACE_HOST; /* takes no bytes of the budget */
        inst->values[inst->nvalues++].bytes = host ? 0 : align_up(type_bytes(val_type(m->g, v)), m->align);
    }
    return m->value_of[v.i];
}

static void add_reader(Make *m, Val v, int32_t step)
{
    uint32_t n = m->nreaders[v.i];
    if (n && m->readers[v.i][n - 1] == step)
        return;
    m->readers[v.i] = arena_grow(m->a, m->readers[v.i], n, &m->creaders[v.i], sizeof step);
    m->readers[v.i][m->nreaders[v.i]++] = step;
}

static bool is_source(const Graph *g, Val v) { return g->vals[v.i].kind != VAL_TEMP; }

static void add_inplace(Make *m, RematOp *op, const Command *c, const int32_t *in_pos, const int32_t *out_pos)
{
    RematInPlace *list = NEW(m->a, RematInPlace, 64);
    for (int o = 0; o < c->nwrite; o++)
        for (int i = 0; i < c->nread && op->ninplace < 64; i++)
            if (c->vals[i].i && in_pos[i] >= 0 && out_pos[o] >= 0 && command_inplace(c, i, c->nread + o))
                list[op->ninplace++] = (RematInPlace){out_pos[o], in_pos[i]};
    op->inplace = list;
}

/* Does the command write the new value of a state over the old one? */
static bool overwrites(const Make *m, const Command *c, int out)
{
    Val state = m->target[c->vals[out].i];
    for (int i = 0; i < c->nread && state.i; i++)
        if (c->vals[i].i == state.i)
            return command_inplace(c, i, out);
    return false;
}

/* Kernel choice k of the operator is candidate k of the step. */
static void add_candidates(Make *m, const StepCost *c, RematOp *op)
{
    RematAlt *alt = NEW(m->a, RematAlt, MAX_CANDIDATES);
    op->cost = c->c[0].ns;
    op->workspace = align_up(c->c[0].scratch, m->align);
    op->alt = alt;
    for (int k = 1; k < (m->in->any_bits ? c->n : c->same); k++)
        alt[op->nalt++] = (RematAlt){c->c[k].ns, align_up(c->c[k].scratch, m->align)};
}

/* Gives op the lane of a copy if the command copies a state; its cost becomes that to kernels beside it. */
static void add_lane(const Make *m, const HostLink *link, const Command *c, RematOp *op)
{
    Op copy = command_node(c)->op;
    if (copy != OP_fetch && copy != OP_offload)
        return;
    op->lane = copy == OP_fetch ? REMAT_IN : REMAT_OUT;
    op->link = op->cost;
    op->cost = copy_beside_ns(link, type_bytes(val_type(m->g, c->vals[0])));
    op->once = true;
    op->staged = align_up(type_bytes(val_type(m->g, c->vals[0])), m->align);
    m->in->inst.values[op->lane == REMAT_IN ? op->out[0] : op->in[0]].bytes = 0;
}

static void make_op(Make *m, const StepInfo *info, const Command *c, uint32_t s)
{
    Graph *g = m->g;
    RematInstance *inst = &m->in->inst;
    Arena tmp = {0};
    RematOp *op = &inst->ops[s];
    static const StepCost unknown = {.c = {{.ns = 1}}, .n = 1, .same = 1};
    /* Run again for some of its results only, it would add up columns in another order. */
    op->once = kernel_has_column_sums(&c->k);
    for (int i = 0; i < c->n; i++) {
        op->once |= (node_def(&g->nodes[c->nodes[i].i])->traits & OPT_ONCE) != 0;
        m->in->op_of_node[c->nodes[i].i] = (int32_t)s;
    }
    int32_t *in_pos = NEW(&tmp, int32_t, c->nread + 1), *out_pos = NEW(&tmp, int32_t, c->nwrite + 1);
    int32_t *ins = NEW(m->a, int32_t, c->nread + 1), *outs = NEW(m->a, int32_t, c->nwrite + 1);
    for (int i = 0; i < c->nread; i++) {
        in_pos[i] = -1;
        if (!c->vals[i].i)
            continue;
        if (is_source(g, c->vals[i])) {
            add_reader(m, c->vals[i], (int32_t)s);
            continue;
        }
        int32_t id = value_id(m, c->vals[i]);
        for (int j = 0; j < op->nin; j++)
            if (ins[j] == id)
                in_pos[i] = j;
        if (in_pos[i] < 0) {
            in_pos[i] = op->nin;
            ins[op->nin++] = id;
        }
    }
    for (int o = 0; o < c->nwrite; o++) {
        Val v = c->vals[c->nread + o];
        int32_t id = value_id(m, v);
        out_pos[o] = op->nout;
        outs[op->nout++] = id;
        if (m->target[v.i].i && overwrites(m, c, c->nread + o)) {
            op->once = true; /* its input is gone */
            inst->values[id].bytes = 0;
            out_pos[o] = -1; /* it has the state's bytes already */
        } else if (m->target[v.i].i) {
            inst->values[id].keep_to_end = true;
        }
    }
    op->in = ins;
    op->out = outs;
    add_inplace(m, op, c, in_pos, out_pos);
    add_candidates(m, info->cost ? &info->cost[c->nodes[0].i] : &unknown, op);
    add_lane(m, &info->link, c, op);
    arena_free(&tmp);
}

/* Keeps values that the steps after the micro-batches read to the end; sums the time of these steps. */
static void keep_for_tail(Make *m, const StepInfo *info)
{
    const Graph *g = m->g;
    for (uint32_t s = m->in->nops; s < m->in->cut.nstep && info->cost; s++)
        m->in->tail_ns += info->cost[g->order[m->in->cut.step[s].first].i].c[0].ns;
    for (uint32_t k = m->in->tail; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++) {
            Val r = graph_root(g, n->in[i]);
            if (r.i && is_source(g, r))
                add_reader(m, r, (int32_t)m->in->cut.nstep);
            else if (r.i && m->value_of[r.i] >= 0)
                m->in->inst.values[m->value_of[r.i]].keep_to_end = true;
        }
    }
}

/* Readers of a state must not run once the step that overwrites it has. */
static void add_barriers(Make *m)
{
    Graph *g = m->g;
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Val v = graph_root(g, g->update[i].value), state = g->update[i].state;
        if (!g->vals[v.i].def.i || m->value_of[v.i] < 0)
            continue;
        int32_t writer = m->in->op_of_node[g->vals[v.i].def.i];
        RematOp *op = &m->in->inst.ops[writer];
        int32_t *list = NEW(m->a, int32_t, (uint32_t)op->nbarrier + m->nreaders[state.i] + 1), n = 0;
        for (; n < op->nbarrier; n++)
            list[n] = op->barrier[n];
        for (uint32_t r = 0; r < m->nreaders[state.i]; r++)
            if (m->readers[state.i][r] != writer && m->readers[state.i][r] < (int32_t)m->in->nops)
                list[n++] = m->readers[state.i][r];
        op->barrier = list;
        op->nbarrier = n;
    }
}

static void attach_views(Make *m)
{
    Graph *g = m->g;
    Instance *in = m->in;
    uint32_t *count = in->nviews = NEW(m->a, uint32_t, in->cut.nstep + 1);
    in->views = NEW(m->a, NodeId *, in->cut.nstep + 1);
    in->free_views = NEW(m->a, NodeId, g->norder + 1);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t s = 0; s < in->nops; s++) {
            if (pass == 1 && count[s])
                in->views[s] = NEW(m->a, NodeId, count[s]);
            if (pass == 1)
                count[s] = 0;
        }
        for (uint32_t k = 0; k < in->tail; k++) {
            NodeId id = g->order[k];
            if (in->op_of_node[id.i] >= 0)
                continue;
            Val r = graph_root(g, g->nodes[id.i].in[0]);
            NodeId def = g->vals[r.i].def;
            if (!def.i) {
                if (pass == 0)
                    in->free_views[in->nfree++] = id;
                continue;
            }
            int32_t s = in->op_of_node[def.i];
            if (pass == 1)
                in->views[s][count[s]] = id;
            count[s]++;
        }
    }
}

/* ---- a schedule as a sequence --------------------------------------------------------------- */

static uint32_t count_results(const Instance *in, uint32_t step)
{
    uint32_t n = 0;
    const Step *s = &in->cut.step[step];
    for (uint32_t i = 0; i < s->count; i++)
        n += (uint32_t)in->cut.g->nodes[in->cut.g->order[s->first + i].i].nout;
    return n;
}

/* Finds which of n nodes in order are needed, from the last to the first; returns their number.  live: per
 * value, something behind the nodes reads it; on return, something from the first node on reads it. */
static uint32_t find_needed(const Graph *g, const NodeId *id, uint32_t n, bool *live, NodeId *needed)
{
    uint32_t at = n;
    for (uint32_t k = n; k-- > 0;) {
        const Node *node = &g->nodes[id[k].i];
        bool used = false;
        for (int i = 0; i < node->nout; i++) {
            used |= live[node->out[i].i];
            live[node->out[i].i] = false;
        }
        for (int i = 0; used && i < node->nin; i++)
            live[node->in[i].i] = true;
        if (used)
            needed[--at] = id[k];
    }
    memmove(needed, needed + at, (n - at) * sizeof *needed);
    return n - at;
}

/* Per result of a step: it is read; NULL: none is. */
static const bool *read_results(const Instance *in, uint32_t step, const bool *live, Arena *a)
{
    const Graph *g = in->cut.g;
    const Step *s = &in->cut.step[step];
    bool *read = NEW(a, bool, count_results(in, step) + 1), any = false;
    for (uint32_t i = 0, at = 0; i < s->count; i++) {
        const Node *n = &g->nodes[g->order[s->first + i].i];
        for (int o = 0; o < n->nout; o++)
            any |= read[at++] = live[n->out[o].i];
    }
    return any ? read : NULL;
}

/* The step whose results an execution makes, or fetches. */
static uint32_t step_of(const Instance *in, int32_t op)
{
    return op < in->inst.nops ? (uint32_t)op : (uint32_t)in->inst.ops[op].fetch_of;
}

/* A schedule with its copies placed by remat_overlap, and the steps offloaded behind each execution. */
typedef struct {
    Schedule s;
    int32_t *first, *next; /* lists: per execution, the first step offloaded behind it; per step, the next */
} Overlapped;

static Overlapped overlap(const Instance *in, Schedule s, Arena *a)
{
    int32_t *op = memcpy(NEW(a, int32_t, s.n + 1), s.op, (size_t)s.n * sizeof *op);
    int32_t *offload = NEW(a, int32_t, s.n + 1);
    uint8_t *alt = NEW(a, uint8_t, s.n + 1);
    Overlapped o = {{op, alt, s.n}, NEW(a, int32_t, s.n + 1), NEW(a, int32_t, in->nops + 1)};
    if (s.alt)
        memcpy(alt, s.alt, (size_t)s.n);
    memset(o.first, -1, (size_t)s.n * sizeof *o.first);
    if (!in->copies)
        return o;
    remat_overlap(&in->inst, op, alt, s.n, in->room, offload);
    for (int32_t k = s.n; k-- > 0;)
        if (offload[k] >= 0) {
            o.next[op[k]] = o.first[offload[k]];
            o.first[offload[k]] = op[k];
        }
    return o;
}

/* Lists the views of a step's results among its own nodes: they are made again for fetched results. */
static uint32_t own_views(const Instance *in, const NodeId *order, uint32_t step, NodeId *list)
{
    const Graph *g = in->cut.g;
    const Step *s = &in->cut.step[step];
    uint32_t n = 0;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const Node *node = &g->nodes[order[k].i];
        bool view = node_def(node)->traits & OPT_VIEW;
        NodeId def = view ? g->vals[graph_root(g, node->in[0]).i].def : (NodeId){0};
        if (def.i && in->op_of_node[def.i] == (int32_t)step)
            list[n++] = order[k];
    }
    return n;
}

static bool is_fetch(const Instance *in, int32_t op) { return op >= in->inst.nops; }

/* Per move of a step: its result is read, so it is fetched; NULL: none is.  Marks these results as offloaded
 * in `away` and as not live in front of the fetch. */
static const bool *fetched_results(const Instance *in, uint32_t step, bool *live, bool *away, Arena *a)
{
    bool *read = NEW(a, bool, in->nmoves[step] + 1), any = false;
    for (uint32_t i = 0; i < in->nmoves[step]; i++) {
        uint32_t v = in->moves[step][i].value.i;
        any |= read[i] = live[v];
        away[v] |= live[v];
        live[v] = false;
    }
    return any ? read : NULL;
}

/* Marks as live what is offloaded behind execution k. */
static void read_for_offload(const Instance *in, const Overlapped *o, int32_t k, bool *live, const bool *away)
{
    for (int32_t step = o->first[k]; step >= 0; step = o->next[step])
        for (uint32_t i = 0; i < in->nmoves[step]; i++)
            live[in->moves[step][i].value.i] |= away[in->moves[step][i].value.i];
}

/* Per execution: which of its results are read; for a fetch: which of its moves are made.  Sets away: per
 * value, it is offloaded. */
static const bool **find_read(const Instance *in, const Overlapped *o, bool *away, Arena *a)
{
    Schedule s = o->s;
    const Graph *g = in->cut.g;
    const bool **read = NEW(a, const bool *, s.n + 1);
    bool *live = NEW(a, bool, g->nvals);
    NodeId *needed = NEW(a, NodeId, g->norder + 1), *own = NEW(a, NodeId, g->norder + 1);
    for (uint32_t i = 0; i < g->nout; i++)
        live[g->out[i].i] = true;
    for (uint32_t i = 0; i < g->nupdate; i++)
        live[g->update[i].value.i] = true;
    find_needed(g, g->order + in->tail, g->norder - in->tail, live, needed);
    for (int32_t k = s.n; k-- > 0;) {
        uint32_t op = step_of(in, s.op[k]);
        read_for_offload(in, o, k, live, away);
        find_needed(g, in->views[op], in->nviews[op], live, needed);
        if (is_fetch(in, s.op[k])) {
            find_needed(g, own, own_views(in, g->order, op, own), live, needed);
            read[k] = fetched_results(in, op, live, away, a);
            continue;
        }
        read[k] = read_results(in, op, live, a);
        find_needed(g, g->order + in->cut.step[op].first, in->cut.step[op].count, live, needed);
    }
    return read;
}

/* Sets in->live for the results of a step that are read, or for their roots; clear: unsets it, and that of
 * the operands of the step's nodes. */
static void mark_read(Instance *in, uint32_t step, const bool *read, bool roots, bool clear)
{
    const Graph *g = in->cut.g;
    const Step *s = &in->cut.step[step];
    for (uint32_t i = 0, at = 0; i < s->count; i++) {
        const Node *n = &g->nodes[g->order[s->first + i].i];
        for (int o = 0; o < n->nout; o++, at++)
            if (read[at])
                in->live[roots ? graph_root(g, n->out[o]).i : n->out[o].i] = !clear;
        for (int k = 0; k < n->nin && clear; k++)
            in->live[n->in[k].i] = false;
    }
}

/* Lowers the nodes of a step that make the results that are read to one command. */
static bool lower_variant(Instance *in, uint32_t step, const bool *read, Command *c, Diag *d)
{
    const Graph *g = in->cut.g;
    const Step *s = &in->cut.step[step];
    NodeId *needed = NEW(in->arena, NodeId, s->count + 1);
    mark_read(in, step, read, false, false);
    uint32_t n = find_needed(g, g->order + s->first, s->count, in->live, needed);
    mark_read(in, step, read, false, true);
    mark_read(in, step, read, true, false);
    bool ok = lower(c, in->arena, g, needed, (int)n, in->live, d);
    mark_read(in, step, read, true, true);
    return ok;
}

/* The command of an execution of which these results are read, lowered once; NULL: failed. */
static const Command *find_variant(Instance *in, uint32_t step, const bool *read, Diag *d)
{
    size_t n = count_results(in, step);
    Variant *v = in->variant[step];
    while (v && memcmp(v->read, read, n) != 0)
        v = v->next;
    if (v)
        return &v->c;
    v = NEW(in->arena, Variant, 1);
    *v = (Variant){.next = in->variant[step], .read = memcpy(NEW(in->arena, bool, n + 1), read, n)};
    in->variant[step] = v;
    return lower_variant(in, step, read, &v->c, d) ? &v->c : NULL;
}

/* The copies that a command reads and makes; a result that has been made before gets a further copy. */
static const Val *find_copies(Sequence *s, const Command *c, const Val *fetched, Val *now, bool *made,
                              Val *of, Arena *a)
{
    Val *vals = NEW(a, Val, c->nread + c->nwrite + 1);
    for (int i = 0; i < c->nread + c->nwrite; i++) {
        Val v = fetched[c->vals[i].i].i ? fetched[c->vals[i].i] : c->vals[i];
        if (i >= c->nread && made[v.i]) {
            now[v.i].i = s->nvals++;
            of[now[v.i].i] = v;
        }
        made[v.i] |= i >= c->nread;
        vals[i] = now[v.i];
    }
    return vals;
}

/* Kernel choices of the executions.  A recomputation must give the same bits: if an execution of an operator
 * has a choice with other bits, all executions of it get their last choice, of the least workspace. */
static const uint8_t *one_result(const Instance *in, Schedule s, Arena *a)
{
    if (!in->any_bits || !in->cost)
        return s.alt;
    uint8_t *most = NEW(a, uint8_t, in->nops + (uint32_t)in->inst.nfetch + 1);
    uint8_t *alt = NEW(a, uint8_t, s.n + 1);
    for (int32_t k = 0; k < s.n; k++)
        most[s.op[k]] = s.alt[k] > most[s.op[k]] ? s.alt[k] : most[s.op[k]];
    for (int32_t k = 0; k < s.n; k++) {
        NodeId first = in->cut.g->order[in->cut.step[step_of(in, s.op[k])].first];
        alt[k] = most[s.op[k]] < in->cost[first.i].same ? s.alt[k] : most[s.op[k]];
    }
    return alt;
}

/* Appends the copies of a step's results to run: fetches of the moves marked in `fetched`, or, if that is
 * NULL, offloads of the values marked in `away`.  Returns their number. */
static uint32_t add_copies(const Instance *in, uint32_t step, const bool *fetched, const bool *away,
                           Execution *run)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->nmoves[step]; i++) {
        const Move *m = &in->moves[step][i];
        if (fetched && fetched[i])
            run[n++] = (Execution){.c = &m->in, .how = in->cost[m->fetch.i].c};
        else if (!fetched && away[m->value.i])
            run[n++] = (Execution){.c = &m->out, .how = in->cost[m->offload.i].c};
    }
    return n;
}

/* Fills out->run with executions and their commands; the copies that they read and make are still missing. */
static bool find_commands(Instance *in, const Overlapped *o, Sequence *out, Arena *a, Diag *d)
{
    Schedule s = o->s;
    bool *away = NEW(a, bool, in->cut.g->nvals);
    const bool **read = find_read(in, o, away, a);
    uint32_t n = 0;
    for (int32_t k = 0; k < s.n; k++) {
        uint32_t op = step_of(in, s.op[k]);
        bool fetch = is_fetch(in, s.op[k]);
        n += read[k] && fetch ? add_copies(in, op, read[k], away, out->run + n) : 0;
        const Command *c = read[k] && !fetch ? find_variant(in, op, read[k], d) : NULL;
        TRY(c || fetch || !read[k]);
        NodeId first = in->cut.g->order[in->cut.step[op].first];
        if (c)
            out->run[n++] = (Execution){.c = c, .how = in->cost ? &in->cost[first.i].c[s.alt[k]] : NULL};
        for (int32_t step = o->first[k]; step >= 0; step = o->next[step])
            n += add_copies(in, (uint32_t)step, NULL, away, out->run + n);
    }
    out->nmicro = n;
    for (uint32_t t = in->nops; t < in->cut.nstep; t++) {
        NodeId first = in->cut.g->order[in->cut.step[t].first];
        out->run[n++] = (Execution){.c = &in->variant[t]->c, .how = in->cost ? in->cost[first.i].c : NULL};
    }
    out->n = n;
    return true;
}

bool instance_sequence(Instance *in, Schedule s, Sequence *out, Arena *a, Diag *d)
{
    const Graph *g = in->cut.g;
    uint32_t results = 0, n = (uint32_t)s.n + in->cut.nstep - in->nops;
    for (int32_t k = 0; k < s.n; k++)
        n += is_fetch(in, s.op[k]) ? 2 * in->nmoves[step_of(in, s.op[k])] : 0;
    *out = (Sequence){.g = g, .run = NEW(a, Execution, n + 1), .nvals = g->nvals};
    s.alt = one_result(in, s, a);
    Overlapped o = overlap(in, s, a);
    TRY(find_commands(in, &o, out, a, d));
    for (uint32_t k = 0; k < out->n; k++)
        results += (uint32_t)out->run[k].c->nwrite;
    Val *of = NEW(a, Val, g->nvals + results), *now = NEW(a, Val, g->nvals);
    bool *made = NEW(a, bool, g->nvals);
    for (uint32_t v = 0; v < g->nvals; v++)
        of[v].i = now[v].i = v;
    for (uint32_t k = 0; k < out->n; k++)
        out->run[k].vals = find_copies(out, out->run[k].c, in->fetched, now, made, of, a);
    out->of = of;
    out->final = now;
    return true;
}

/* Makes the first variant of every step from its command in the graph. */
static void base_variants(Instance *in, const Command *c)
{
    int32_t *op = NEW(in->arena, int32_t, in->nops + 1);
    for (uint32_t s = 0; s < in->nops; s++)
        op[s] = (int32_t)s;
    Overlapped all = overlap(in, (Schedule){op, NULL, (int32_t)in->nops}, in->arena);
    const bool **read = find_read(in, &all, NULL, in->arena);
    in->variant = NEW(in->arena, Variant *, in->cut.nstep + 1);
    for (uint32_t s = 0; s < in->cut.nstep; s++) {
        Variant *v = in->variant[s] = NEW(in->arena, Variant, 1);
        *v = (Variant){NULL, s < in->nops ? read[s] : NULL, c[s]};
        if (!v->read)
            v->read = NEW(in->arena, bool, count_results(in, s) + 1);
    }
}

bool instance_make(Graph *g, StepInfo *info, bool any_bits, Arena *a, Instance *in, Diag *d)
{
    *in = (Instance){.cut = {.g = g}, .cost = info->cost, .any_bits = any_bits, .arena = a,
                     .batches = info->accumulate > 1 ? info->accumulate : 1};
    plan_cut(&in->cut, a);
    const Command *c = plan_commands(&in->cut, a, d);
    TRY(c);
    uint32_t nvals = g->nvals;
    in->nops = in->cut.nmicro;
    in->tail = in->nops < in->cut.nstep ? in->cut.step[in->nops].first : g->norder;
    in->op_of_node = NEW(a, int32_t, g->nnodes);
    memset(in->op_of_node, -1, g->nnodes * sizeof *in->op_of_node);
    in->inst = (RematInstance){.nops = (int32_t)in->nops, .loss = -1,
                               .ops = NEW(a, RematOp, in->cut.nstep + in->nops + 1),
                               .values = NEW(a, RematValue, g->nvals)};
    Make m = {.g = g, .a = a, .in = in, .align = info->align,
              .value_of = NEW(a, int32_t, g->nvals), .target = NEW(a, Val, g->nvals),
              .readers = NEW(a, int32_t *, g->nvals), .nreaders = NEW(a, uint32_t, g->nvals),
              .creaders = NEW(a, uint32_t, g->nvals)};
    memset(m.value_of, -1, g->nvals * sizeof *m.value_of);
    for (uint32_t i = 0; i < g->nupdate; i++)
        m.target[graph_root(g, g->update[i].value).i] = g->update[i].state;
    for (uint32_t s = 0; s < in->nops; s++)
        make_op(&m, info, &c[s], s);
    keep_for_tail(&m, info);
    for (uint32_t i = 0; i < g->nout; i++) {
        Val r = graph_root(g, g->out[i]);
        if (m.value_of[r.i] >= 0)
            in->inst.values[m.value_of[r.i]].keep_to_end = true;
    }
    const bool *cast = graph_cast(g, a);
    for (uint32_t i = 1; i < nvals; i++) { /* every source that something reads */
        bool state = (g->vals[i].kind == VAL_PARAM && !cast[i]) || g->vals[i].kind == VAL_STATE;
        if (is_source(g, (Val){i}) && (m.nreaders[i] || state) && g->vals[i].space == SPACE_DEVICE)
            in->inst.persistent += align_up(type_bytes(&g->vals[i].type), info->align);
    }
    add_barriers(&m);
    attach_views(&m);
    NodeId loss = g->vals[graph_root(g, info->loss).i].def;
    in->inst.loss = loss.i ? in->op_of_node[loss.i] : -1;
    instance_layers(g, in, a);
    TRY(instance_add_moves(g, in, info, c, d));
    base_variants(in, c);
    return true;
}

/* ---- a schedule as a graph ------------------------------------------------------------------ */

/* Appends a node to the order (first itself, later a clone), with the latest copies of its operands;
 * in0: the operands it had in the instance's graph. */
static void emit(Graph *g, NodeId id, Val *in0, Val *subst, bool again, uint32_t group)
{
    NodeId run = id;
    if (again) {
        Val *now = g->nodes[id.i].in;
        g->nodes[id.i].in = in0;
        run = graph_clone_node(g, id, subst);
        g->nodes[id.i].in = now;
        g->nodes[run.i].group = group;
        const Node *n = &g->nodes[run.i];
        for (int i = 0; i < n->nout; i++)
            subst[g->nodes[id.i].out[i].i] = n->out[i];
    } else {
        Node *n = &g->nodes[id.i];
        Val *in = NEW(g->arena, Val, n->nin + 1);
        for (int i = 0; i < n->nin; i++)
            in[i] = subst[in0[i].i];
        n->in = in;
    }
    graph_schedule(g, run);
}

static void emit_views(Graph *g, const Instance *in, uint32_t step, Val *const *in0, Val *subst, bool again)
{
    for (uint32_t i = 0; i < in->nviews[step]; i++)
        emit(g, in->views[step][i], in0[in->views[step][i].i], subst, again, 0);
}

static void emit_offloads(Graph *g, const Instance *in, const Overlapped *o, int32_t k, Val *subst)
{
    for (int32_t step = o->first[k]; step >= 0; step = o->next[step])
        for (uint32_t i = 0; i < in->nmoves[step]; i++) {
            Node *n = &g->nodes[in->moves[step][i].offload.i];
            n->in[0] = subst[n->in[0].i];
            graph_schedule(g, in->moves[step][i].offload);
        }
}

/* Appends the fetches of a step's results to the order, clones for a second time; later nodes read them. */
static void emit_fetches(Graph *g, const Instance *in, uint32_t step, Val *subst, bool again)
{
    for (uint32_t i = 0; i < in->nmoves[step]; i++) {
        const Move *m = &in->moves[step][i];
        NodeId id = again ? graph_clone_node(g, m->fetch, NULL) : m->fetch;
        subst[m->value.i] = g->nodes[id.i].out[0];
        graph_schedule(g, id);
    }
}

void instance_apply(Graph *g, const Instance *in, Schedule s, Arena *tmp)
{
    uint32_t nvals = g->nvals, norder = g->norder;
    Val *subst = NEW(tmp, Val, nvals);
    bool *ran = NEW(tmp, bool, in->cut.nstep + 1), *fetched = NEW(tmp, bool, in->cut.nstep + 1);
    Val **in0 = NEW(tmp, Val *, g->nnodes);
    NodeId *own = NEW(tmp, NodeId, norder + 1);
    for (uint32_t i = 0; i < norder; i++)
        in0[g->order[i].i] = g->nodes[g->order[i].i].in;
    for (uint32_t i = 0; i < nvals; i++)
        subst[i].i = i;
    s.alt = one_result(in, s, tmp);
    Overlapped o = overlap(in, s, tmp);
    s = o.s;
    const NodeId *old = graph_take_order(g, tmp);
    for (uint32_t i = 0; i < in->nfree; i++)
        emit(g, in->free_views[i], in0[in->free_views[i].i], subst, false, 0);
    for (int32_t k = 0; k < s.n; k++) {
        uint32_t op = step_of(in, s.op[k]);
        if (is_fetch(in, s.op[k])) {
            emit_fetches(g, in, op, subst, fetched[op]);
            for (uint32_t i = 0, n = own_views(in, old, op, own); i < n; i++)
                emit(g, own[i], in0[own[i].i], subst, true, 0);
            emit_views(g, in, op, in0, subst, true);
            emit_offloads(g, in, &o, k, subst);
            fetched[op] = true;
            continue;
        }
        const Step *st = &in->cut.step[op];
        const NodeId *id = old + st->first;
        uint32_t group = ran[op] && g->nodes[id->i].group ? ++g->ngroups : 0, first = g->norder;
        for (uint32_t i = 0; i < st->count; i++)
            emit(g, id[i], in0[id[i].i], subst, ran[op], group);
        for (uint32_t i = 0; i < st->count; i++) /* all: any node may be the first of its step */
            g->nodes[g->order[first + i].i].candidate = s.alt[k];
        for (uint32_t i = 1; i < st->count && in->cost; i++)
            in->cost[id[i].i] = in->cost[id->i];
        emit_views(g, in, op, in0, subst, ran[op]);
        emit_offloads(g, in, &o, k, subst);
        ran[op] = true;
    }
    for (uint32_t k = in->tail; k < norder; k++)
        emit(g, old[k], in0[old[k].i], subst, false, 0);
    for (uint32_t i = 0; i < g->nout; i++)
        g->out[i] = subst[g->out[i].i];
    for (uint32_t i = 0; i < g->nupdate; i++)
        g->update[i].value = subst[g->update[i].value.i];
    graph_dce(g, tmp);
}
