/* verify.c -- the invariants every pass must preserve. */
#include "ir.h"

static const char *name_of(const Graph *g, Val v) { return g->vals[v.i].name; }

/* Checks operand counts, definition before use, and that stored types agree with what the operator
 * infers from its inputs. */
static bool verify_node(const Graph *g, NodeId id, const bool *ready, Diag *d)
{
    const Node *n = &g->nodes[id.i];
    const OpDef *def = node_def(n);
    if (n->nin < def->min_in || (def->max_in >= 0 && n->nin > def->max_in) || n->nout != def->nout)
        return fail(d, "%s: wrong number of operands", def->name);
    for (int i = 0; i < n->nin; i++) {
        if (!n->in[i].i && (i < def->min_in || def->max_in < 0))
            return fail(d, "%s: operand %d is missing", def->name, i);
        if (n->in[i].i && !ready[n->in[i].i])
            return fail(d, "%s: %%%s is not available", def->name, name_of(g, n->in[i]));
    }
    Type want[MAX_OUT] = {{0}};
    TRY(def->infer(g, n, want, d));
    for (int i = 0; i < n->nout; i++) {
        if (g->vals[n->out[i].i].def.i != id.i)
            return fail(d, "%s: %%%s belongs to another node", def->name, name_of(g, n->out[i]));
        if (!type_equal(&want[i], val_type(g, n->out[i])))
            return fail(d, "%s: %%%s has the wrong type", def->name, name_of(g, n->out[i]));
    }
    return true;
}

static bool verify_update(const Graph *g, Update u, const bool *ready, Diag *d)
{
    ValKind kind = g->vals[u.state.i].kind;
    if (kind != VAL_PARAM && kind != VAL_STATE)
        return fail(d, "update of %%%s, which is neither parameter nor state", name_of(g, u.state));
    if (!ready[u.value.i])
        return fail(d, "update value %%%s is never computed", name_of(g, u.value));
    if (!type_equal(val_type(g, u.state), val_type(g, u.value)))
        return fail(d, "update of %%%s with another type", name_of(g, u.state));
    return true;
}

/* Once a state is overwritten (its update's node has run) nobody may read the old bytes, be it through a
 * view, and no result of the step may show them. */
static bool verify_overwrites(const Graph *g, Arena *a, Diag *d)
{
    uint32_t *state_of = NEW(a, uint32_t, g->nvals);
    bool *gone = NEW(a, bool, g->nvals);
    for (uint32_t i = 0; i < g->nupdate; i++)
        state_of[g->update[i].value.i] = g->update[i].state.i;
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            if (gone[graph_root(g, n->in[i]).i])
                return fail(d, "%s reads %%%s after its update", node_def(n)->name,
                            name_of(g, graph_root(g, n->in[i])));
        for (int i = 0; i < n->nout; i++)
            if (op_table[n->op]->traits & OPT_ONCE || n->op == OP_offload)
                gone[state_of[n->out[i].i]] = state_of[n->out[i].i] != 0;
    }
    for (uint32_t i = 0; i < g->nout; i++) {
        Val root = graph_root(g, g->out[i]);
        if (gone[root.i])
            return fail(d, "output %%%s shows %%%s after its update", name_of(g, g->out[i]),
                        name_of(g, root));
    }
    return true;
}

/* Checks a source that is loaded as a cast of another. */
static bool verify_source(const Graph *g, Val v, const bool *updated, Diag *d)
{
    Val of = g->vals[v.i].cast_of;
    const Value *to = &g->vals[v.i], *from = &g->vals[of.i];
    bool frozen = !updated[v.i] && !updated[of.i] && (to->kind == VAL_PARAM || to->kind == VAL_CONST) &&
                  (from->kind == VAL_PARAM || from->kind == VAL_CONST);
    return !of.i ||
           (frozen && !from->cast_of.i && type_same_shape(&to->type, &from->type) &&
            dtype_is_float(to->type.dt) && dtype_is_float(from->type.dt)) ||
           fail(d, "%%%s cannot be a cast of %%%s", name_of(g, v), name_of(g, of));
}

static bool verify_split(const Graph *g, const Node *n, Diag *d)
{
    SplitAxis axis;
    if (!node_is_split(n) || node_axis(g, n, n->split.by, &axis))
        return true;
    return fail(d, "%s cannot be split by %s", node_def(n)->name, split_name[n->split.by]);
}

/* Checks that fetch alone reads what lies in the host's memory, and that a state there is updated there. */
static bool verify_spaces(const Graph *g, Diag *d)
{
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        for (int i = 0; i < n->nin; i++)
            if ((val_space(g, n->in[i]) == SPACE_HOST) != (n->op == OP_fetch))
                return fail(d, "%s reads %%%s, which lies in the %s memory", node_def(n)->name,
                            name_of(g, n->in[i]), n->op == OP_fetch ? "device's" : "host's");
    }
    for (uint32_t i = 0; i < g->nout; i++)
        if (val_space(g, g->out[i]) == SPACE_HOST)
            return fail(d, "%%%s lies in the host's memory, and is an output", name_of(g, g->out[i]));
    for (uint32_t i = 0; i < g->nupdate; i++)
        if (val_space(g, g->update[i].state) != val_space(g, g->update[i].value))
            return fail(d, "update of %%%s from the other memory", name_of(g, g->update[i].state));
    return true;
}

bool graph_verify(const Graph *g, Diag *d)
{
    Arena tmp = {0};
    bool *ready = NEW(&tmp, bool, g->nvals), ok = true;
    for (uint32_t i = 1; i < g->nvals; i++)
        ready[i] = g->vals[i].kind != VAL_TEMP;
    for (uint32_t k = 0; k < g->norder && ok; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        ok = verify_node(g, g->order[k], ready, d) && verify_split(g, n, d);
        for (int i = 0; i < n->nout && ok; i++) {
            if (ready[n->out[i].i])
                ok = fail(d, "%%%s is computed twice", name_of(g, n->out[i]));
            ready[n->out[i].i] = true;
        }
    }
    bool *updated = NEW(&tmp, bool, g->nvals);
    for (uint32_t i = 0; i < g->nupdate && ok; i++) {
        Val state = g->update[i].state;
        ok = verify_update(g, g->update[i], ready, d) &&
             (!updated[state.i] || fail(d, "%%%s is updated twice", name_of(g, state)));
        updated[state.i] = true;
    }
    for (uint32_t i = 1; i < g->nvals && ok; i++)
        ok = verify_source(g, (Val){i}, updated, d);
    for (uint32_t i = 0; i < g->nout && ok; i++)
        if (!ready[g->out[i].i])
            ok = fail(d, "output %%%s is never computed", name_of(g, g->out[i]));
    ok = ok && verify_spaces(g, d) && verify_overwrites(g, &tmp, d);
    arena_free(&tmp);
    return ok;
}
