/* attention_scores.c -- recognises what exporters do to the scores of attention before and behind softmax.
 *
 * From softmax up to the product of queries and keys these are changes of shape and float type, constant
 * factors, caps by tanh, addends and replacements.  An addend or a replacement is a mask (one large negative
 * number where a score is not seen, by bool conditions, of which constants may be limits of the columns a row
 * sees) or a bias.  A mask is exact only if it is applied as exported: a row of which nothing is seen becomes
 * the mean of all values if the number is finite, else NaN, or 0 if the exporter guards it. */
#include "attention_form.h"
#include <math.h>

static const double hides = -1e30; /* a number at most this masks: adding a score does not change it */

/* t as batch, heads, rows, columns: with leading extents of 1, or those before the heads joined. */
static Type four(const Type *t)
{
    Type p = {.dt = t->dt, .rank = t->rank < 2 ? 0 : 4, .dim = {1, 1, 1, 1}};
    for (int i = 0; p.rank && i < t->rank; i++) {
        int to = i + 4 - t->rank;
        p.dim[to < 0 ? 0 : to] *= t->dim[i];
    }
    return p;
}

static bool is_float_cast(const Rewrite *rw, const Node *n)
{
    return n->op == OP_cast && dtype_is_float(val_type(rw->g, n->in[0])->dt) &&
           dtype_is_float(val_type(rw->g, n->out[0])->dt);
}

Val form_behind(const Rewrite *rw, Val v)
{
    const Node *n = graph_def(rw->g, v);
    while (n && rewrite_once(rw, v) && (n->op == OP_reshape || is_float_cast(rw, n))) {
        v = n->in[0];
        n = graph_def(rw->g, v);
    }
    return v;
}

/* Reshapes v, which broadcasts to scores of shape `level`, to broadcast to f->shape; {0}: it cannot. */
static Val as_scores(Rewrite *rw, const Form *f, Val v, const Type *level)
{
    Graph *g = rw->g;
    Type t = *val_type(g, v), as = four(level), wide = *level;
    int lead = level->rank - 2, more = level->rank - t.rank;
    if (lead < 1 || more < 0 || type_count(level) != type_count(&f->shape))
        return none();
    if (as.dim[2] != f->shape.dim[2] || as.dim[3] != f->shape.dim[3]) /* rows or columns split */
        return build_reshape(g, build_expand(g, v, level->rank, level->dim), 4, f->shape.dim);
    if (type_same_shape(&as, &f->shape) && t.rank <= 4 && level->rank <= 4)
        return v;
    bool batch = false, heads = lead > 0 && t.rank > 2 && t.dim[t.rank - 3] > 1;
    for (int i = more; i < lead - 1; i++)
        batch |= t.dim[i - more] > 1;
    bool joined = !type_same_shape(&as, &f->shape); /* the last leading extent is not the heads */
    batch |= joined && heads;
    heads |= joined && batch;
    for (int i = 0; i < level->rank; i++) {
        int64_t own = i < more ? 1 : t.dim[i - more];
        wide.dim[i] = i >= lead || !(i < lead - 1 ? batch : heads) ? own : level->dim[i];
    }
    Val x = build_expand(g, v, wide.rank, wide.dim);
    return build_reshape(g, x, 4, (int64_t[]){batch ? f->shape.dim[0] : 1,
                                              heads ? f->shape.dim[1] : 1,
                                              wide.dim[lead], wide.dim[lead + 1]});
}

/* ---- conditions ------------------------------------------------------------------------------- */

/* Is cond a bool constant that only limits columns: row r sees (cond == seen) the columns r - left to
 * r + right?  A limit of rows + columns or more does not limit. */
static bool is_limit(const Rewrite *rw, const Form *f, Val cond, bool seen, Hide *h)
{
    const int64_t rows = f->shape.dim[2], cols = f->shape.dim[3];
    const Type *type = val_type(rw->g, cond);
    int64_t reach = rows + cols;
    h->right = h->left = reach;
    if (!graph_is_const(rw->g, cond) || type->rank < 2 || type->dim[type->rank - 1] != cols ||
        type->dim[type->rank - 2] != rows)
        return false;
    Tensor t = graph_tensor(rw->g, cond);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c + 1 < cols; c++) {
            bool now = (tensor_f(&t, r * cols + c) != 0) == seen;
            bool next = (tensor_f(&t, r * cols + c + 1) != 0) == seen;
            if (now && !next)
                h->right = c - r;
            if (!now && next)
                h->left = r - (c + 1);
        }
    for (int64_t i = 0; i < type_count(type); i++) {
        int64_t r = i / cols % rows, c = i % cols;
        if (((tensor_f(&t, i) != 0) == seen) != (c <= r + h->right && c >= r - h->left))
            return false;
    }
    return true;
}

static bool add_hide(Rewrite *rw, Form *f, Hide h, const Type *level)
{
    if (f->nhide == FORM_HIDES)
        return false;
    double same;
    if (isfinite(f->least) && h.fill <= f->least)
        h = (Hide){.cond = h.cond, .seen = h.seen, .set = true, .fill = f->least};
    if (rewrite_scalar(rw, h.cond, &same) && (same != 0) == h.seen)
        return true; /* masks nothing */
    if (is_limit(rw, f, h.cond, h.seen, &h))
        h.cond = none();
    else if (!(h.cond = as_scores(rw, f, h.cond, level)).i)
        return false;
    f->hide[f->nhide++] = h;
    return true;
}

/* Adds a condition to f, as several if a score is seen only where all of them hold. */
static bool add_condition(Rewrite *rw, Form *f, Hide h, const Type *level, int depth)
{
    const Node *n = graph_def(rw->g, h.cond);
    if (n && depth < FORM_DEPTH && (n->op == OP_not || n->op == OP_expand)) {
        h.seen ^= n->op == OP_not;
        h.cond = n->in[0];
        return add_condition(rw, f, h, level, depth + 1);
    }
    if (n && depth < FORM_DEPTH && n->op == (h.seen ? OP_and : OP_or)) {
        Hide other = h;
        h.cond = n->in[0];
        other.cond = n->in[1];
        /* both have the same addend, which join_bias adds once */
        return add_condition(rw, f, h, level, depth + 1) && add_condition(rw, f, other, level, depth + 1);
    }
    return add_hide(rw, f, h, level);
}

/* ---- what is added ---------------------------------------------------------------------------- */

/* A constant v of zeros and one number that masks as a bool condition, *fill: that number; else {0}. */
static Val as_condition(Rewrite *rw, Val v, double *fill)
{
    Tensor t = graph_tensor(rw->g, v);
    int64_t n = type_count(&t.type);
    *fill = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_f(&t, i);
        if (x != 0 && *fill == 0)
            *fill = x;
        if (x != 0 && x != *fill)
            return none();
    }
    if (!(*fill <= hides))
        return none();
    Type type = type_make(DT_BOOL, t.type.rank, t.type.dim);
    char *set = NEW(rw->g->arena, char, n);
    for (int64_t i = 0; i < n; i++)
        set[i] = tensor_f(&t, i) != 0;
    return graph_const(rw->g, "hidden", type, set);
}

/* Is v computed from a parameter? */
static bool learnt(const Graph *g, Val v)
{
    Arena tmp = {0};
    bool *seen = NEW(&tmp, bool, g->nvals), param = false;
    Val *todo = NEW(&tmp, Val, g->nvals);
    uint32_t n = 0;
    seen[v.i] = true;
    todo[n++] = v;
    while (n > 0 && !param) {
        Val x = todo[--n];
        const Node *d = graph_def(g, x);
        param = g->vals[x.i].kind == VAL_PARAM;
        for (int i = 0; d && i < d->nin; i++)
            if (!seen[d->in[i].i]) {
                seen[d->in[i].i] = true;
                todo[n++] = d->in[i];
            }
    }
    arena_free(&tmp);
    return param;
}

/* The value v that is added to scores, broadcast to f->shape, times the constant factor `outer` behind it. */
static Val addend(Rewrite *rw, const Form *f, Val v, double outer, const Type *level)
{
    Graph *g = rw->g;
    v = as_scores(rw, f, build_cast(g, v, f->shape.dt), level);
    return outer != 1 ? form_folded(rw, NULL, OP_mul, v, outer) : v;
}

/* Adds v to the bias.  within: the mask replaces the sum with v, not a part of it. */
static bool add_bias(Graph *g, Form *f, Val v, bool within)
{
    f->within |= within;
    f->outside |= !within;
    f->bias = f->bias.i && v.i ? build2(g, OP_add, f->bias, v) : v;
    if (v.i && isfinite(f->least))
        f->bias = build2(g, OP_max, f->bias, build_scalar(g, f->shape.dt, f->least));
    return v.i;
}

static bool add_addend(Rewrite *rw, Form *f, Val v, double outer, const Type *level, int depth)
{
    const Node *n = graph_def(rw->g, v);
    double x, fill;
    if (rewrite_scalar(rw, v, &x) && x == 0)
        return true;
    Val cond = graph_is_const(rw->g, v) ? as_condition(rw, v, &fill) : none();
    if (cond.i)
        return add_condition(rw, f, (Hide){.cond = cond, .addend = addend(rw, f, v, outer, level),
                                           .fill = fill * outer}, level, 0);
    if (n && depth < FORM_DEPTH && (n->op == OP_expand || is_float_cast(rw, n)))
        return add_addend(rw, f, n->in[0], outer, level, depth + 1);
    if (n && depth < FORM_DEPTH && n->op == OP_add)
        return add_addend(rw, f, n->in[0], outer, level, depth + 1) &&
               add_addend(rw, f, n->in[1], outer, level, depth + 1);
    for (int i = 1; n && n->op == OP_where && i < 3; i++)
        if (rewrite_scalar(rw, n->in[i], &fill) && fill <= hides &&
            rewrite_scalar(rw, n->in[3 - i], &x) && x == 0)
            return add_condition(rw, f, (Hide){.cond = n->in[0], .seen = i == 2,
                                               .addend = addend(rw, f, v, outer, level),
                                               .fill = fill * outer}, level, 0);
    bool within = isfinite(f->least);
    for (int i = 0; i < f->nhide; i++)
        within |= f->hide[i].set && isfinite(f->hide[i].fill);
    return add_bias(rw->g, f, addend(rw, f, v, outer, level), within);
}

/* ---- the walk --------------------------------------------------------------------------------- */

typedef struct {
    Rewrite *rw;
    Form *f;
    double outer; /* constant factor of the value that is visited now */
} Walk;

static bool walk(Walk *w, Val v, int depth);

/* Is v `guarded`, or is guarded a constant that is set for exactly those rows that are all -inf in v? */
static bool is_guard(const Graph *g, Val guarded, Val v)
{
    if (v.i == guarded.i || !guarded.i || !graph_is_const(g, v) || !graph_is_const(g, guarded))
        return v.i == guarded.i;
    Tensor t = graph_tensor(g, v), row = graph_tensor(g, guarded);
    Type rows = t.type;
    int64_t cols = rows.rank ? rows.dim[rows.rank - 1] : 1;
    rows.dim[rows.rank ? rows.rank - 1 : 0] = 1;
    bool same = row.type.dt == DT_BOOL && type_same_shape(&row.type, &rows);
    for (int64_t r = 0; same && r < type_count(&rows); r++) {
        bool unseen = true;
        for (int64_t c = 0; c < cols; c++)
            unseen &= tensor_f(&t, r * cols + c) == -INFINITY;
        same = unseen == (tensor_f(&row, r) != 0);
    }
    return same;
}

/* Matches a sum or difference of which one operand is the scores and the other is added or subtracted. */
static bool walk_add(Walk *w, const Node *n, int depth)
{
    Graph *g = w->rw->g;
    const Type *level = val_type(g, n->out[0]);
    for (int i = 0; i < (n->op == OP_sub ? 1 : 2); i++) {
        Form keep = *w->f;
        double outer = w->outer;
        if (is_guard(g, w->f->guarded, n->in[1 - i]))
            w->f->guarded = none();
        Val added = n->op == OP_sub ? build1(g, OP_neg, n->in[1]) : n->in[1 - i];
        if (type_same_shape(val_type(g, n->in[i]), level) && graph_def(g, n->in[i]) &&
            add_addend(w->rw, w->f, added, w->outer, level, 0) && walk(w, n->in[i], depth + 1))
            return true;
        *w->f = keep;
        w->outer = outer;
    }
    return false;
}

static bool walk_where(Walk *w, const Node *n, int depth)
{
    const Type *level = val_type(w->rw->g, n->out[0]);
    for (int i = 1; i < 3; i++) {
        double fill;
        if (!rewrite_scalar(w->rw, n->in[i], &fill) || isnan(fill) || fill == INFINITY ||
            !type_same_shape(val_type(w->rw->g, n->in[3 - i]), level))
            continue;
        Hide h = {.cond = n->in[0], .seen = i == 2, .set = true, .fill = fill * w->outer};
        return add_condition(w->rw, w->f, h, level, 0) && walk(w, n->in[3 - i], depth + 1);
    }
    return false;
}

/* Matches a factor that is the same along each row, which goes to the queries. */
static bool walk_mul(Walk *w, const Node *n, int depth)
{
    const Type *level = val_type(w->rw->g, n->out[0]);
    for (int i = 0; i < 2; i++) {
        const Type *t = val_type(w->rw->g, n->in[1 - i]);
        if (w->f->row_scale.i || w->f->at.cap > 0 || t->rank < 1 || t->dim[t->rank - 1] != 1 ||
            !type_same_shape(val_type(w->rw->g, n->in[i]), level))
            continue;
        w->f->row_scale = as_scores(w->rw, w->f, n->in[1 - i], level);
        return w->f->row_scale.i && walk(w, n->in[i], depth + 1);
    }
    return false;
}

/* Matches max(x, c) with a number c that masks: f->least = c limits addends below it; masked scores are c. */
static bool walk_max(Walk *w, const Node *n, int depth)
{
    double c;
    for (int i = 0; i < 2 && !w->f->bias.i && w->f->nhide == 0; i++)
        if (rewrite_scalar(w->rw, n->in[i], &c) && c * w->outer <= hides) {
            w->f->least = c * w->outer;
            return walk(w, n->in[1 - i], depth + 1);
        }
    return false;
}

static bool walk(Walk *w, Val v, int depth)
{
    const Node *n = graph_def(w->rw->g, v);
    double c = 1;
    Val x = n ? form_scaled(w->rw, v, &c) : none();
    if (!n || depth == 2 * FORM_DEPTH || !form_only_weighs(w->rw, v, false))
        return false;
    if (n->op == OP_matmul) {
        w->f->product = n;
        w->f->at.scale = w->outer * (w->f->at.cap > 0 ? w->f->at.cap : 1);
        return true;
    }
    if (x.i) {
        w->outer *= c;
        return walk(w, x, depth + 1);
    }
    if (n->op == OP_reshape || is_float_cast(w->rw, n))
        return walk(w, n->in[0], depth + 1);
    if (n->op == OP_tanh && w->f->at.cap == 0 && !w->f->row_scale.i && w->outer > 0) {
        w->f->at.cap = w->outer;
        w->outer = 1;
        return walk(w, n->in[0], depth + 1);
    }
    if (w->f->at.cap > 0 || w->f->row_scale.i)
        return false; /* the operator does nothing else in front of a cap or a row's scale */
    switch (n->op) {
    case OP_add:
    case OP_sub: return walk_add(w, n, depth);
    case OP_max: return walk_max(w, n, depth);
    case OP_where: return walk_where(w, n, depth);
    case OP_mul: return walk_mul(w, n, depth);
    default: return false;
    }
}

/* ---- masks as the operator has them ----------------------------------------------------------- */

static Val hidden(Graph *g, const Hide *h) { return h->seen ? build1(g, OP_not, h->cond) : h->cond; }

static bool no_limit(const Form *f, int64_t x) { return x >= f->shape.dim[2] + f->shape.dim[3]; }

static void limit(Form *f, int64_t right, int64_t left)
{
    int64_t reach = f->shape.dim[2] + f->shape.dim[3];
    AttentionAttrs *at = &f->at;
    int64_t old = at->causal ? at->diagonal : reach;
    int64_t old_left = at->window ? at->window - 1 - at->diagonal : reach;
    right = right < old ? right : old;
    left = left < old_left ? left : old_left;
    at->causal = !no_limit(f, right);
    at->diagonal = no_limit(f, right) && no_limit(f, left) ? 0 : right;
    at->window = no_limit(f, left) ? 0 : right + left < 0 ? -1 : right + left + 1;
}

/* Adds one more condition to the mask, or to the limits. */
static bool join(Rewrite *rw, Form *f, const Hide *h)
{
    if (!h->cond.i) {
        limit(f, h->right, h->left);
        return f->at.window >= 0;
    }
    Val cond = hidden(rw->g, h);
    f->mask = f->mask.i ? build2(rw->g, OP_or, f->mask, cond) : cond;
    return f->mask.i;
}

/* Adds what hide i adds to scores to the bias instead, once per addend. */
static bool join_bias(Rewrite *rw, Form *f, int i, bool within)
{
    Graph *g = rw->g;
    const Hide *h = &f->hide[i];
    for (int k = 0; k < i; k++)
        if (h->addend.i && f->hide[k].addend.i == h->addend.i)
            return true;
    if (h->addend.i)
        return add_bias(g, f, h->addend, within);
    return h->cond.i && !isfinite(h->fill) &&
           add_bias(g, f, build3(g, OP_where, hidden(g, h), build_scalar(g, f->shape.dt, h->fill),
                                 build_scalar(g, f->shape.dt, 0)), within);
}

/* The hide whose number becomes the mask's: one that replaces, if there is any, else a limit, else any. */
static const Hide *main_hide(const Form *f)
{
    const Hide *best = NULL;
    int rank = -1;
    for (int i = 0; i < f->nhide; i++) {
        const Hide *h = &f->hide[i];
        int r = 2 * (h->set && isfinite(h->fill)) + !h->cond.i;
        if (r > rank)
            rank = r, best = h;
    }
    return best;
}

/* Are all hides limits within which every row sees something, with no bias that may mask?  Then any number
 * that masks is as good as -inf, and the limits are set in f->at. */
static bool join_limits(Rewrite *rw, Form *f)
{
    AttentionAttrs keep = f->at;
    bool only = !f->bias.i || learnt(rw->g, f->bias) || graph_is_const(rw->g, f->bias);
    for (int i = 0; i < f->nhide; i++)
        only &= !f->hide[i].cond.i && f->hide[i].fill <= hides;
    for (int i = 0; only && i < f->nhide; i++)
        limit(f, f->hide[i].right, f->hide[i].left);
    for (int64_t r = 0; only && r < f->shape.dim[2]; r++) {
        int64_t last = f->at.causal ? r + f->at.diagonal : f->shape.dim[3];
        int64_t begin = f->at.window ? r + f->at.diagonal - f->at.window + 1 : 0;
        only = last >= 0 && begin < f->shape.dim[3] && begin <= last;
    }
    if (!only)
        f->at = keep;
    return only && f->at.window >= 0;
}

/* Adds hides to the mask if that is exact, else to the bias: with a mask of -inf, those of -inf; else those
 * that replace as it does, or belong to the same addend. */
static bool join_hides(Rewrite *rw, Form *f)
{
    const Hide *first = main_hide(f);
    bool replaced = isfinite(f->least);
    if (!first || join_limits(rw, f))
        return f->at.window >= 0;
    f->at.fill = first->fill;
    for (int i = 0; i < f->nhide; i++) {
        const Hide *h = &f->hide[i];
        bool same = h->fill == first->fill && h->set == first->set &&
                    (h->set || h->addend.i == first->addend.i);
        same |= h->fill == -INFINITY && first->fill == -INFINITY;
        if (same ? !join(rw, f, h) : !join_bias(rw, f, i, replaced))
            return false;
        replaced |= h->set && isfinite(h->fill);
    }
    if (isfinite(first->fill))
        f->at.hides = !first->set ? HIDES_ADDED : f->outside ? HIDES_SCORE : HIDES_ALL;
    return !isfinite(first->fill) || !first->set || !f->within || !f->outside;
}

/* The scores if v = [scores, sink of the head]; takes the sink; else {0}. */
static Val without_sink(Rewrite *rw, Form *f, Val v)
{
    const Node *n = rewrite_def(rw, v, OP_concat);
    Type one = f->shape;
    one.dim[3] = 1;
    if (!n || n->nin != 2 || val_type(rw->g, n->in[1])->rank != 4 ||
        ((const AxisAttrs *)n->attr)->axis != 3 || !type_same_shape(val_type(rw->g, n->in[1]), &one))
        return none();
    View w = view_of(rw, n->in[1]);
    for (int i = 0; i < 4; i++)
        for (int k = w.first[i]; k < w.first[i + 1]; k++)
            if (w.atom[k].extent > 1 && (w.atom[k].stride != 0) != (i == 1))
                return none();
    if (w.scale != 1 || type_count(val_type(rw->g, w.root)) != one.dim[1])
        return none();
    f->sink = build_reshape(rw->g, build_cast(rw->g, w.root, f->shape.dt), 1, &one.dim[1]);
    return n->in[0];
}

/* p if v = where(isnan(p), 0, p), or where(isinf(max(m)), 0, p) with an m that is added, else {0}.  For a
 * constant m the condition is a constant, too. */
static Val behind_guard(const Rewrite *rw, Form *f, Val v)
{
    double x;
    const Node *n = rewrite_def(rw, v, OP_where);
    if (!n || !rewrite_scalar(rw, n->in[1], &x) || x != 0)
        return none();
    const Node *nan = rewrite_def(rw, n->in[0], OP_isnan);
    const Node *inf = rewrite_def(rw, n->in[0], OP_isinf);
    const Node *max = inf ? rewrite_def(rw, inf->in[0], OP_reduce_max) : NULL;
    const ReduceAttrs *at = max ? max->attr : NULL;
    if (rewrite_scalar(rw, n->in[0], &x) && x == 0)
        return n->in[2];
    if (nan && nan->in[0].i == n->in[2].i && rewrite_uses(rw, n->in[2]) == 2)
        f->at.guard = GUARD_NAN;
    else if (max && at->axes.n == 1 && at->axes.v[0] == val_type(rw->g, max->in[0])->rank - 1)
        f->guarded = max->in[0], f->at.guard = GUARD_UNSEEN;
    else if (graph_is_const(rw->g, n->in[0]))
        f->guarded = n->in[0], f->at.guard = GUARD_UNSEEN;
    else
        return none();
    return n->in[2];
}

bool form_scores(Rewrite *rw, Form *f, Val v)
{
    Walk w = {rw, f, 1};
    if (f->cut)
        v = without_sink(rw, f, form_behind(rw, v));
    if (!v.i)
        return false;
    Val guarded = f->guarded, x = guarded.i ? behind_guard(rw, f, v) : none();
    v = x.i && f->guarded.i == guarded.i ? x : v; /* scores may have their probabilities' guard, too */
    return walk(&w, v, 0) && !f->guarded.i && join_hides(rw, f);
}

/* ---- behind softmax --------------------------------------------------------------------------- */

static bool take_dropout(Form *f, const Node *n)
{
    const DropoutAttrs *at = n->attr;
    if (f->rng.i)
        return false;
    f->rng = n->in[1];
    f->at.p = at->p;
    f->at.key = at->key;
    return true;
}

/* Is the slice all columns but the last? */
static bool is_cut(const Rewrite *rw, const Node *n)
{
    const SliceAttrs *at = n->attr;
    const Type *from = val_type(rw->g, n->in[0]), *to = val_type(rw->g, n->out[0]);
    int last = to->rank - 1;
    for (int i = 0; i <= last; i++)
        if (at->start.v[i] != 0 || at->step.v[i] != 1 || to->dim[i] != from->dim[i] - (i == last))
            return false;
    return true;
}

Val form_weights(const Rewrite *rw, Form *f, Val p)
{
    uint32_t uses = 1;
    for (int depth = 0; depth < FORM_DEPTH; depth++) {
        const Node *n = graph_def(rw->g, p);
        if (!n || (rewrite_uses(rw, p) != uses && (uses > 1 || !form_only_weighs(rw, p, true))))
            return none();
        if (n->op == OP_softmax) {
            f->shape = four(val_type(rw->g, p));
            f->shape.dim[3] -= f->cut;
            return ((const AxisAttrs *)n->attr)->axis == val_type(rw->g, p)->rank - 1 ? n->in[0] : none();
        }
        Val y = f->at.guard ? none() : behind_guard(rw, f, p);
        uses = f->at.guard == GUARD_NAN && y.i ? 2 : 1;
        if (!y.i && (n->op == OP_reshape || is_float_cast(rw, n) ||
                 (n->op == OP_dropout && take_dropout(f, n)) ||
                 (n->op == OP_slice && !f->cut && (f->cut = is_cut(rw, n)))))
            y = n->in[0];
        p = y;
    }
    return none();
}
