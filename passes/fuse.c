/* fuse.c -- groups nodes into kernels.
 *
 * A node joins the groups of its producers when the union (a) is one kernel description
 * (lower), (b) makes no cycle through the rest of the graph, (c) lies in one phase: forward
 * and backward never share a kernel, which would keep a value across the loss that nothing needs
 * to keep.  In the forward phase a producer joins only if nothing else needs its result: a value that
 * is stored anyway is a place where rematerialization can start.  On a GPU it joins, too, if its result is
 * read in less time than a kernel is launched (states of a recurrent cell, small batches).  Pointwise kernels
 * that are the last to read a value join although neither needs the other (gates of a recurrent cell,
 * gradients of the factors of a gated product).  In the backward phase, reductions of one large operand join
 * although neither needs the other, and on a GPU sums of columns join the kernel that reduces the same rows
 * (ir/column_sums.c). Groups are fixed before rematerialization, so every budget runs the same kernels. */
#include "fuse.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 48, MAX_OPERANDS = 32, MAX_INSTRUCTIONS = 240, MAX_SPAN = 400 };

typedef struct {
    Graph *g;
    Arena *tmp;
    uint32_t *pos;     /* per node id: position in order */
    uint32_t *unit;    /* per position: the unit it belongs to (position of its first member) */
    uint32_t *next;    /* per position: next member of the unit, 0 = end */
    uint32_t *last;    /* per unit: its last member */
    uint32_t *reach;   /* per unit: the last member of it and of all units it depends on */
    uint32_t loss;     /* position of the loss (or the end): later nodes are backward */
    bool *accumulated; /* per position: it runs after all micro-batches */
    bool *rows;        /* per position: a row operator whose first result is not reduced */
    uint32_t *mark, stamp, *open, nopen;
    uint32_t **users;  /* per value root: positions that read it, 0-terminated (position + 1) */
    Val *target;       /* per value: the state it overwrites */
    bool *live;        /* per value: false between probes */
    int64_t small;     /* bytes that a GPU reads in the time of a launch; -1: it is no GPU */
} Fuse;

static const Node *at(const Fuse *f, uint32_t pos) { return &f->g->nodes[f->g->order[pos].i]; }

/* The reason to join nodes into one kernel. */
typedef enum { PRODUCERS, LAST_READERS, SIBLINGS, COLUMNS } Reason;

/* Does the kernel store nothing but reductions? */
static bool only_reductions(const Kernel *k)
{
    bool only = k->red != 0;
    for (uint32_t i = 0; i < k->nins; i++)
        for (int d = 0; k->ins[i].kind == K_STORE && d < k->rank; d++)
            only &= !(k->red >> d & 1) || k->ins[i].stride[d] == 0;
    return only;
}

/* Can the node be part of a merged kernel at all?  Sets rows[pos]: it reduces rows, and results in rows. */
static bool fusible(const Fuse *f, uint32_t pos)
{
    const Node *n = at(f, pos);
    Arena a = {0};
    Kernel k;
    if (is_view(n) || n->group || (node_def(n)->traits & OPT_ONCE) || !node_def(n)->lower)
        return false;
    k_init(&k, &a, f->g, n);
    bool ok = node_def(n)->lower(&k, f->g, n) && !k.body && !k.lib;
    f->rows[pos] = ok && k.red && !only_reductions(&k);
    arena_free(&a);
    return ok;
}

/* Position of the node whose kernel makes v, -1 for sources. */
static int64_t producer(const Fuse *f, Val v)
{
    Val r = graph_root(f->g, v);
    NodeId d = f->g->vals[r.i].def;
    return r.i && d.i ? (int64_t)f->pos[d.i] : -1;
}

static int collect(const Fuse *f, uint32_t unit, uint32_t *out, int n)
{
    uint32_t p = unit;
    do
        out[n++] = p;
    while ((p = f->next[p]) != 0 && n <= MAX_NODES);
    return n;
}

static int by_position(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Opens the units that make the operands of the node at p; is one of them inside? */
static bool open_producers(Fuse *f, uint32_t p, uint32_t first, uint32_t inside)
{
    const Node *n = at(f, p);
    bool meets = false;
    for (int i = 0; i < n->nin; i++) {
        int64_t q = producer(f, n->in[i]);
        uint32_t unit = q < 0 ? 0 : f->unit[q];
        meets |= q >= 0 && f->mark[unit] == inside;
        if (q < 0 || f->mark[unit] >= inside || f->reach[unit] < first)
            continue;
        f->mark[unit] = inside + 1;
        f->open[f->nopen++] = unit;
    }
    return meets;
}

/* Does a path leave the union and come back?  Walks producers of outside operands backwards. */
static bool makes_cycle(Fuse *f, const uint32_t *set, int n)
{
    uint32_t inside = f->stamp += 2;
    bool meets = false;
    for (int i = 0; i < n; i++)
        f->mark[f->unit[set[i]]] = inside;
    f->nopen = 0;
    for (int i = 0; i < n; i++)
        open_producers(f, set[i], set[0], inside);
    while (f->nopen > 0 && !meets) {
        uint32_t p = f->open[--f->nopen];
        do
            meets |= open_producers(f, p, set[0], inside);
        while ((p = f->next[p]) != 0);
    }
    return meets;
}

static bool in_set(const uint32_t *set, int n, uint32_t pos)
{
    for (int i = 0; i < n; i++)
        if (set[i] == pos)
            return true;
    return false;
}

/* Is root value r read by a kernel outside the set, or needed at the end? */
static bool read_outside(const Fuse *f, Val r, const uint32_t *set, int n, const bool *ends)
{
    if (ends[r.i])
        return true;
    for (const uint32_t *u = f->users[r.i]; u && *u; u++)
        if (!in_set(set, n, *u - 1))
            return true;
    return false;
}

/* Is there a concatenation in the set?  A reduction over it would need the rows of all its parts at once. */
static bool has_concat(const Fuse *f, const uint32_t *set, int n)
{
    for (int i = 0; i < n; i++)
        if (at(f, set[i])->op == OP_concat)
            return true;
    return false;
}

/* Does the set overwrite no state in the forward phase (running statistics), or is it pointwise?  A kernel
 * that overwrites a state runs once: other results of it could not be recomputed. */
static bool updates_alone(const Fuse *f, const uint32_t *set, int n)
{
    bool updates = false, pointwise = true;
    for (int i = 0; i < n && set[i] <= f->loss; i++) {
        const Node *node = at(f, set[i]);
        pointwise &= (node_def(node)->traits & OPT_POINTWISE) != 0;
        for (int o = 0; o < node->nout; o++)
            updates |= f->target[node->out[o].i].i != 0;
    }
    return !updates || pointwise;
}

/* Has the set, in the backward phase, at most one operator that reduces rows and results in rows (a
 * batch norm's gradient)?  Two that read the same gradient would save storing it, but need the rows
 * of both at once: in a residual network that decides which budgets can be met. */
static bool one_of_rows(const Fuse *f, const uint32_t *set, int n)
{
    int rows = 0;
    for (int i = 0; i < n && set[0] > f->loss; i++)
        rows += f->rows[set[i]];
    return rows <= 1;
}

/* Lists the members that member i of the set is computed from, itself included; returns their number. */
static int needed_for(const Fuse *f, const uint32_t *set, int i, NodeId *ids)
{
    bool needed[MAX_NODES] = {false};
    int n = 0;
    needed[i] = true;
    for (int k = i; k >= 0; k--)
        for (int o = 0; needed[k] && o < at(f, set[k])->nin; o++) {
            int64_t q = producer(f, at(f, set[k])->in[o]);
            for (int j = 0; j < k; j++)
                needed[j] |= set[j] == q;
        }
    for (int k = 0; k <= i; k++)
        if (needed[k])
            ids[n++] = f->g->order[set[k]];
    return n;
}

/* If the kernel runs again for some results only, are its sums in the same order and precision? */
static bool results_stand_alone(Fuse *f, const Kernel *whole, const uint32_t *set, int n)
{
    bool alike = true, f64 = kernel_is_f64(whole);
    for (int i = 0; alike && (whole->apart || f64) && i < n; i++) {
        Arena a = {0};
        Command c;
        NodeId ids[MAX_NODES];
        Val y = at(f, set[i])->out[0];
        bool live = f->live[y.i], result = false;
        for (int o = 0; o < at(f, set[i])->nout; o++)
            result |= f->live[at(f, set[i])->out[o].i];
        f->live[y.i] = true;
        int count = needed_for(f, set, i, ids);
        if (lower(&c, &a, f->g, ids, count, f->live, NULL))
            alike = (!c.k.red || kernel_reduces_alike(&c.k, whole)) &&
                    (!result || kernel_is_f64(&c.k) == f64);
        f->live[y.i] = live;
        arena_free(&a);
    }
    return alike;
}

/* Is v, on a GPU, read in less time than a kernel is launched? */
static bool is_small(const Fuse *f, Val v) { return type_bytes(val_type(f->g, v)) <= f->small; }

/* Is the set one kernel, in which, in the forward phase, every value between members is internal? */
static bool acceptable(Fuse *f, const uint32_t *set, int n, const bool *ends, Reason why)
{
    Arena a = {0};
    NodeId ids[MAX_NODES];
    bool *live = f->live, ok = true;
    for (int i = 0; i < n; i++) {
        const Node *node = at(f, set[i]);
        ids[i] = f->g->order[set[i]];
        for (int o = 0; o < node->nout; o++)
            live[node->out[o].i] = read_outside(f, node->out[o], set, n, ends);
    }
    for (int i = 0; i < n && ok && set[i] <= f->loss; i++) {
        const Node *node = at(f, set[i]);
        for (int k = 0; k < node->nin; k++) {
            int64_t q = producer(f, node->in[k]);
            Val r = graph_root(f->g, node->in[k]);
            if (q >= 0 && in_set(set, n, (uint32_t)q) && live[r.i] && !is_small(f, r))
                ok = false;
        }
    }
    Command c;
    ok = ok && lower(&c, &a, f->g, ids, n, live, NULL) && c.nread + c.nwrite <= MAX_OPERANDS &&
         c.k.nins <= MAX_INSTRUCTIONS && (why != SIBLINGS || only_reductions(&c.k)) &&
         (why != LAST_READERS || !c.k.red) && kernel_has_column_sums(&c.k) == (why == COLUMNS) &&
         !(c.k.red && has_concat(f, set, n)) && results_stand_alone(f, &c.k, set, n);
    for (int i = 0; ok && i < c.nwrite; i++) /* every stored value is needed outside */
        ok = live[c.vals[c.nread + i].i];
    for (int i = 0; i < n; i++)
        for (int o = 0; o < at(f, set[i])->nout; o++)
            live[at(f, set[i])->out[o].i] = false;
    arena_free(&a);
    return ok;
}

/* Raises the reach of all units that depend on this one to at least its own. */
static void raise_reach(Fuse *f, uint32_t unit)
{
    f->nopen = 0;
    f->open[f->nopen++] = unit;
    while (f->nopen > 0) {
        uint32_t p = f->open[--f->nopen];
        do
            for (int o = 0; o < at(f, p)->nout; o++)
                for (const uint32_t *u = f->users[at(f, p)->out[o].i]; u && *u; u++)
                    if (f->reach[f->unit[*u - 1]] < f->reach[unit]) {
                        f->reach[f->unit[*u - 1]] = f->reach[unit];
                        f->open[f->nopen++] = f->unit[*u - 1];
                    }
        while ((p = f->next[p]) != 0);
    }
}

static void join(Fuse *f, const uint32_t *set, int n)
{
    uint32_t reach = set[n - 1];
    for (int i = 0; i < n; i++) {
        reach = f->reach[f->unit[set[i]]] > reach ? f->reach[f->unit[set[i]]] : reach;
        f->unit[set[i]] = set[0];
        f->next[set[i]] = i + 1 < n ? set[i + 1] : 0;
    }
    f->last[set[0]] = set[n - 1];
    f->reach[set[0]] = reach;
    raise_reach(f, set[0]);
}

/* Joins the units of pos and q, if that is possible. */
static void try_union(Fuse *f, uint32_t pos, uint32_t q, const bool *ends, Reason why)
{
    uint32_t span = pos > f->unit[q] ? pos - f->unit[q] : f->unit[q] - pos;
    if (f->unit[q] == f->unit[pos] || span > MAX_SPAN || (q <= f->loss) != (pos <= f->loss) ||
        f->accumulated[q] != f->accumulated[pos])
        return;
    uint32_t set[2 * MAX_NODES + 2];
    int m = collect(f, f->unit[pos], set, 0);
    m = collect(f, f->unit[q], set, m);
    if (m > MAX_NODES)
        return;
    qsort(set, (size_t)m, sizeof *set, by_position);
    if (updates_alone(f, set, m) && one_of_rows(f, set, m) && acceptable(f, set, m, ends, why) &&
        !makes_cycle(f, set, m))
        join(f, set, m);
}

/* Joins the producers of all members, until none joins: one that two members read joins when both are in. */
static void try_join(Fuse *f, uint32_t pos, const bool *can, const bool *ends)
{
    uint32_t member[MAX_NODES + 2];
    for (int before = 0, m; (m = collect(f, f->unit[pos], member, 0)) > before; before = m)
        for (int k = 0; k < m; k++)
            for (int i = 0; i < at(f, member[k])->nin; i++) {
                int64_t q = producer(f, at(f, member[k])->in[i]);
                if (q >= 0 && can[q])
                    try_union(f, pos, (uint32_t)q, ends, PRODUCERS);
            }
}

static bool shrinks(const Fuse *f, uint32_t pos)
{
    const Node *n = at(f, pos);
    return n->nin == 1 && type_count(val_type(f->g, n->out[0])) < type_count(val_type(f->g, n->in[0]));
}

/* Units that may become one. */
typedef struct {
    uint32_t unit[8];
    int n;
} Units;

enum { MOST_UNITS = sizeof((Units *)0)->unit / sizeof(uint32_t) };

/* Lists what the units read of other kernels, each value once; returns their number. */
static int operands_of(const Fuse *f, const Units *of, Val out[MAX_OPERANDS])
{
    uint32_t set[MAX_NODES + 2];
    int n = 0;
    for (int k = 0; k < of->n; k++)
        for (int m = collect(f, of->unit[k], set, 0), i = 0; i < m; i++)
            for (int o = 0; o < at(f, set[i])->nin; o++) {
                Val r = graph_root(f->g, at(f, set[i])->in[o]);
                int64_t q = producer(f, r);
                bool listed = !r.i || (q >= 0 && f->unit[q] == of->unit[k]);
                for (int j = 0; j < n; j++)
                    listed |= out[j].i == r.i;
                if (!listed && n < MAX_OPERANDS)
                    out[n++] = r;
            }
    return n;
}

/* Is the unit one of these, or does it read a result of one? */
static bool belongs(const Fuse *f, uint32_t unit, const Units *to)
{
    Val operand[MAX_OPERANDS];
    bool found = in_set(to->unit, to->n, unit);
    int n = found ? 0 : operands_of(f, &(Units){{unit}, 1}, operand);
    for (int i = 0; i < n; i++) {
        int64_t q = producer(f, operand[i]);
        found |= q >= 0 && in_set(to->unit, to->n, f->unit[q]);
    }
    return found;
}

/* Is the root value of more than one element, and no longer needed when the units, and what reads their
 * results, have run? */
static bool ends_with(const Fuse *f, Val r, const Units *units, const bool *ends)
{
    if (ends[r.i] || producer(f, r) < 0 || type_count(val_type(f->g, r)) == 1)
        return false;
    for (const uint32_t *u = f->users[r.i]; u && *u; u++)
        if (f->last[f->unit[*u - 1]] >= units->unit[0] && !belongs(f, f->unit[*u - 1], units))
            return false;
    return true;
}

/* Is all there that the unit reads when the first unit can run? */
static bool reads_at(const Fuse *f, uint32_t unit, uint32_t first)
{
    Val operand[MAX_OPERANDS], known[MAX_OPERANDS];
    int n = operands_of(f, &(Units){{unit}, 1}, operand), m = operands_of(f, &(Units){{first}, 1}, known);
    bool all = true;
    for (int i = 0; i < n && all; i++) {
        int64_t q = producer(f, operand[i]);
        all = q < 0 || (q <= f->loss && unit > f->loss) || type_count(val_type(f->g, operand[i])) == 1;
        for (int j = 0; j < m; j++)
            all |= known[j].i == operand[i].i;
    }
    return all;
}

/* Bytes of what others read of the units, less those of the operands that end with them. */
static int64_t more_bytes(const Fuse *f, const Units *units, const bool *ends)
{
    uint32_t set[MAX_NODES + 2];
    Val operand[MAX_OPERANDS];
    int64_t bytes = 0;
    for (int k = 0; k < units->n; k++)
        for (int m = collect(f, units->unit[k], set, 0), i = 0; i < m; i++)
            for (int o = 0; o < at(f, set[i])->nout; o++)
                if (read_outside(f, at(f, set[i])->out[o], set, m, ends))
                    bytes += type_bytes(val_type(f->g, at(f, set[i])->out[o]));
    for (int n = operands_of(f, units, operand), i = 0; i < n; i++)
        if (ends_with(f, operand[i], units, ends))
            bytes -= type_bytes(val_type(f->g, operand[i]));
    return bytes;
}

/* Joins the pointwise units that read a value, if it ends with them, or with what reads their results, and
 * they read nothing else that comes later: if their results take no more bytes than the operands that end as
 * well, nothing is held that was not held before. */
static void try_last_readers(Fuse *f, Val r, const bool *can, const bool *ends)
{
    Units units = {.n = 0};
    for (const uint32_t *u = f->users[r.i]; u && *u; u++) {
        uint32_t unit = f->unit[*u - 1];
        bool fits = units.n == 0 ||
                    ((unit <= f->loss) == (units.unit[0] <= f->loss) && reads_at(f, unit, units.unit[0]));
        if (can[*u - 1] && fits && units.n < MOST_UNITS && !in_set(units.unit, units.n, unit))
            units.unit[units.n++] = unit;
    }
    if (units.n < 2 || !ends_with(f, r, &units, ends) || more_bytes(f, &units, ends) > 0)
        return;
    for (int i = 1; i < units.n; i++)
        try_union(f, units.unit[0], units.unit[i], ends, LAST_READERS);
    try_join(f, units.unit[0], can, ends);
}

/* Joins sums over the same large operand (gradients of scale and bias), which then read it once; COLUMNS:
 * joins sums of columns to the kernel that reduces the rows they read, or that makes them. */
static void try_readers(Fuse *f, uint32_t pos, const bool *can, const bool *ends, Reason why)
{
    uint32_t member[MAX_NODES + 2];
    int n = collect(f, f->unit[pos], member, 0);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < at(f, member[i])->nin; k++) {
            Val r = graph_root(f->g, at(f, member[i])->in[k]), x = at(f, pos)->in[0];
            int64_t q = why == COLUMNS ? producer(f, r) : -1;
            if (type_count(val_type(f->g, r)) < type_count(val_type(f->g, x)))
                continue;
            if (q >= 0 && can[q])
                try_union(f, pos, (uint32_t)q, ends, why);
            for (const uint32_t *u = f->users[r.i]; u && *u; u++)
                if (can[*u - 1] && (why == COLUMNS || *u - 1 < pos))
                    try_union(f, pos, *u - 1, ends, why);
        }
}

/* Have all other readers of the states that the node overwrites run? */
static bool readers_ran(const Fuse *f, const Node *n, uint32_t unit, const bool *out)
{
    for (int i = 0; i < n->nout; i++)
        for (const uint32_t *u = f->users[f->target[n->out[i].i].i]; u && *u; u++)
            if (f->unit[*u - 1] != unit && !out[f->unit[*u - 1]])
                return false;
    return true;
}

static bool unit_ready(const Fuse *f, uint32_t unit, const bool *out, bool in_place)
{
    uint32_t q = unit;
    do {
        const Node *node = at(f, q);
        if (in_place && !readers_ran(f, node, unit, out))
            return false;
        for (int i = 0; i < node->nin; i++) {
            NodeId d = f->g->vals[node->in[i].i].def;
            if (d.i && f->unit[f->pos[d.i]] != unit && !out[f->unit[f->pos[d.i]]])
                return false;
        }
    } while ((q = f->next[q]) != 0);
    return true;
}

/* Position of the last member of the first unit from `low` on that can run; norder: there is none. */
static uint32_t next_ready(const Fuse *f, uint32_t low, const bool *out, bool in_place)
{
    uint32_t p = low, n = f->g->norder;
    while (p < n && (out[f->unit[p]] || f->last[f->unit[p]] != p ||
                     !unit_ready(f, f->unit[p], out, in_place)))
        p++;
    return p;
}

/* Orders the units topologically: next is always the ready one whose last member stood first.  A unit that
 * overwrites a state waits for the state's other readers, unless one of them waits for its new value: then it
 * cannot be in place. */
static void reorder(Fuse *f)
{
    Graph *g = f->g;
    uint32_t n = g->norder, done = 0, low = 0;
    NodeId *order = NEW(f->tmp, NodeId, n + 1);
    bool *out = NEW(f->tmp, bool, n + 1);
    while (done < n) {
        while (out[f->unit[low]] || f->last[f->unit[low]] != low)
            low++;
        uint32_t p = next_ready(f, low, out, true);
        p = p < n ? p : next_ready(f, low, out, false);
        uint32_t q = f->unit[p];
        out[q] = true;
        do
            order[done++] = g->order[q];
        while ((q = f->next[q]) != 0);
    }
    memcpy(g->order, order, n * sizeof *order);
}

/* Makes views of members part of their unit, however large it is, so that the unit stands together:
 * members behind a view would wait for it, and it for them. */
static void adopt_views(Fuse *f)
{
    for (uint32_t p = 0; p < f->g->norder; p++) {
        NodeId d = is_view(at(f, p)) && !at(f, p)->group ? f->g->vals[at(f, p)->in[0].i].def : (NodeId){0};
        uint32_t q = d.i ? f->unit[f->pos[d.i]] : p;
        if (q == p || !f->next[q])
            continue; /* a lone producer: the view may stand alone behind it */
        f->unit[p] = q; /* last[q] stays: a view does not delay its unit */
        while (f->next[q] && f->next[q] < p)
            q = f->next[q];
        f->next[p] = f->next[q];
        f->next[q] = p;
    }
}

static void number_groups(Fuse *f)
{
    for (uint32_t p = 0; p < f->g->norder; p++)
        if (f->unit[p] == p && f->next[p]) {
            uint32_t id = ++f->g->ngroups, q = p;
            do
                f->g->nodes[f->g->order[q].i].group = id;
            while ((q = f->next[q]) != 0);
        }
}

static void find_users(Fuse *f)
{
    Graph *g = f->g;
    uint32_t *count = NEW(f->tmp, uint32_t, g->nvals);
    f->users = NEW(f->tmp, uint32_t *, g->nvals);
    f->target = NEW(f->tmp, Val, g->nvals);
    for (uint32_t i = 0; i < g->nupdate; i++)
        f->target[graph_root(g, g->update[i].value).i] = g->update[i].state;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t p = 0; p < g->norder; p++) {
            const Node *n = at(f, p);
            for (int i = 0; i < n->nin && !is_view(n); i++) {
                uint32_t r = graph_root(g, n->in[i]).i;
                if (!r)
                    continue;
                if (pass == 0) {
                    count[r]++;
                    continue;
                }
                if (!f->users[r])
                    f->users[r] = NEW(f->tmp, uint32_t, count[r] + 1), count[r] = 0;
                f->users[r][count[r]++] = p + 1;
            }
        }
}

uint32_t loss_position(const Graph *g, const StepInfo *info)
{
    NodeId loss = g->vals[graph_root(g, info->loss).i].def;
    uint32_t k = loss.i ? 0 : g->norder;
    while (k < g->norder && g->order[k].i != loss.i)
        k++;
    return k;
}

/* Makes units of the groups that exist already (split.c). */
static void join_groups(Fuse *f)
{
    uint32_t n = f->g->norder, *set = NEW(f->tmp, uint32_t, n + 1);
    for (uint32_t p = 0, m; p < n; p += m) {
        uint32_t group = at(f, p)->group;
        for (m = 0; p + m < n && (m == 0 || (group && at(f, p + m)->group == group)); m++)
            set[m] = p + m;
        if (m > 1)
            join(f, set, (int)m);
    }
}

bool pass_fuse(Graph *g, PassCtx *cx)
{
    delay_slices(g, loss_position(g, cx->info), cx->tmp);
    uint32_t n = g->norder;
    bool *can = NEW(cx->tmp, bool, n + 1), *ends = graph_ends(g, cx->tmp);
    Fuse f = {.g = g, .tmp = cx->tmp, .loss = loss_position(g, cx->info),
              .accumulated = graph_accumulated(g, cx->tmp),
              .pos = NEW(cx->tmp, uint32_t, g->nnodes + 1),
              .unit = NEW(cx->tmp, uint32_t, n + 1), .next = NEW(cx->tmp, uint32_t, n + 1),
              .last = NEW(cx->tmp, uint32_t, n + 1), .reach = NEW(cx->tmp, uint32_t, n + 1),
              .mark = NEW(cx->tmp, uint32_t, n + 1), .open = NEW(cx->tmp, uint32_t, n + 1),
              .rows = NEW(cx->tmp, bool, n + 1), .live = NEW(cx->tmp, bool, g->nvals)};
    const DeviceInfo *d = step_device(cx->opt);
    f.small = d->capability > 0 ? (int64_t)(d->launch_ns * d->memory_bandwidth * d->memory_efficiency) : -1;
    for (uint32_t p = 0; p < n; p++) {
        f.pos[g->order[p].i] = f.unit[p] = f.last[p] = f.reach[p] = p;
        can[p] = fusible(&f, p);
    }
    find_users(&f);
    join_groups(&f);
    for (int later = 0; later < 2; later++) /* widening casts last: they should join readers, not producers */
        for (uint32_t p = 0; p < n; p++)
            if (can[p] && node_widens(g, at(&f, p)) == later)
                try_join(&f, p, can, ends);
    for (uint32_t p = 0; p < n; p++)
        for (int o = 0; o < at(&f, p)->nout && !is_view(at(&f, p)); o++)
            try_last_readers(&f, at(&f, p)->out[o], can, ends);
    Reason last = d->capability > 0 ? COLUMNS : SIBLINGS;
    for (Reason why = SIBLINGS; why <= last; why++)
        for (uint32_t p = f.loss + 1; p < n; p++)
            if (can[p] && shrinks(&f, p))
                try_readers(&f, p, can, ends, why);
    adopt_views(&f);
    number_groups(&f);
    reorder(&f);
    cx->changed = true;
    return true;
}
