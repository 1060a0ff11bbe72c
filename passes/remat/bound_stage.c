/* bound_stage.c -- the stronger, more expensive bound: several cuts at once, by (mixed-integer)
 * linear programming.
 *
 * Take a path g_1 -> g_2 -> ... -> g_k of the graph. Whatever the order, their first runs
 * happen at moments tau_1 < ... < tau_k, which cut every schedule into k + 1 periods.
 * Variables in [0, 1]:
 *
 *     run(u, i)   operator u runs in period i, between tau_(i-1) and tau_i
 *     keep(v, i)  value v is resident at tau_i
 *
 *     keep(v, i)      <= keep(v, i-1) + run(producer(v), i)
 *     run(u, i)       <= keep(v, i-1) + run(producer(v), i)    for every input v of u
 *     sum_i run(u, i) >= 1                                     for every u off the path
 *     sum_v bytes(v) keep(v, i) <= budget - persistent - outputs and workspace of g_i
 *     keep(v, i) = 1  for the inputs of g_i
 *     run(u, i)  = 0  if u descends from some g_j with j >= i, or is one
 *
 * where g_(i-1)'s own outputs are present at the start of period i for nothing.
 *
 * Every schedule gives a feasible point of no higher cost, so the optimum bounds all
 * orders; with k = 1 it is the cut of bound.c without its convexification. The path is the
 * one along which most bytes would have to go, thinned to the operators where that is most.
 * Needs GLPK; without it bound_stages() does nothing. */
#include "solve.h"

#ifndef CKC_GLPK

void bound_stages(const Problem *p, int64_t budget, double deadline, double work, int64_t known,
                  RematBound *bound)
{
    (void)p, (void)budget, (void)deadline, (void)work, (void)known, (void)bound;
}

#else

#include <glpk.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Problem *p;
    int64_t budget;
    int32_t k;
    const int32_t *g; /* the path: g[1] .. g[k] */
    int32_t *latest;     /* per op: the last j such that it descends from g_j or is it, 0 = none */
    int32_t *run, *keep; /* columns, [i * nops + u] for i = 1..k + 1, [i * nvals + v] for i = 1..k; 0 = fixed
                          * at 0 */
    glp_prob *lp;
    int ia[4096];
    double ar[4096];
    double scale;  /* cost unit of the objective */
    double bound;  /* best so far, in units of scale */
    double enough; /* stop when the bound reaches this */
    double pivots, most_pivots; /* done of this path, and their limit */
    uint8_t *probed;            /* per column: it has been tried as one to branch on */
} Stage;

static void find_latest(Stage *s)
{
    const Problem *p = s->p;
    s->latest = RM_NEW(int32_t, p->nops);
    for (int32_t i = 0; i < p->nops; i++) {
        for (int32_t k = p->in.first[i]; k < p->in.first[i + 1]; k++) {
            int32_t u = p->producer[p->in.at[k]];
            s->latest[i] = s->latest[u] > s->latest[i] ? s->latest[u] : s->latest[i];
        }
        for (int32_t j = 1; j <= s->k; j++)
            if (s->g[j] == i)
                s->latest[i] = j;
    }
}

/* ---- the model ----------------------------------------------------------------------- */

static int new_column(Stage *s, double cost, bool fixed_to_one)
{
    int c = glp_add_cols(s->lp, 1);
    glp_set_col_bnds(s->lp, c, fixed_to_one ? GLP_FX : GLP_DB, fixed_to_one ? 1 : 0, 1);
    glp_set_obj_coef(s->lp, c, cost);
    return c;
}

static bool is_input(const Problem *p, int32_t op, int32_t v)
{
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++)
        if (p->in.at[k] == v)
            return true;
    return false;
}

static void add_columns(Stage *s)
{
    const Problem *p = s->p;
    s->run = RM_NEW(int32_t, (size_t)p->nops * (size_t)(s->k + 2));
    s->keep = RM_NEW(int32_t, (size_t)p->nvals * (size_t)(s->k + 2));
    for (int32_t i = 1; i <= s->k + 1; i++) {
        for (int32_t u = 0; u < p->nops; u++)
            if (s->latest[u] < i)
                s->run[i * p->nops + u] = new_column(s, (double)p->cost[u] / s->scale, false);
        for (int32_t v = 0; v < p->nvals && i <= s->k; v++)
            if (s->latest[p->producer[v]] < i)
                s->keep[i * p->nvals + v] = new_column(s, 0, is_input(p, s->g[i], v));
    }
}

/* sum of entries - column <= / >= bound */
static void add_row(Stage *s, int n, int kind, double bound)
{
    int r = glp_add_rows(s->lp, 1);
    glp_set_row_bnds(s->lp, r, kind, bound, bound);
    glp_set_mat_row(s->lp, r, n, s->ia, s->ar);
}

/* column <= presence of v in period i: kept since tau_(i-1), or made in it. */
static void add_presence(Stage *s, int column, int32_t v, int32_t i)
{
    const Problem *p = s->p;
    int32_t u = p->producer[v];
    int n = 0, kept = i > 1 ? s->keep[(i - 1) * p->nvals + v] : 0, made = s->run[i * p->nops + u];
    if (i > 1 && s->g[i - 1] == u)
        return;
    s->ia[++n] = column;
    s->ar[n] = 1;
    if (kept) {
        s->ia[++n] = kept;
        s->ar[n] = -1;
    }
    if (made) {
        s->ia[++n] = made;
        s->ar[n] = -1;
    }
    add_row(s, n, GLP_UP, 0);
}

static void add_period(Stage *s, int32_t i)
{
    const Problem *p = s->p;
    for (int32_t v = 0; v < p->nvals && i <= s->k; v++)
        if (s->keep[i * p->nvals + v])
            add_presence(s, s->keep[i * p->nvals + v], v, i);
    for (int32_t u = 0; u < p->nops; u++)
        for (int32_t k = p->in.first[u]; s->run[i * p->nops + u] && k < p->in.first[u + 1]; k++)
            add_presence(s, s->run[i * p->nops + u], p->in.at[k], i);
}

/* Inputs are resident in g_i's step besides the columns' values; they are columns fixed
 * at 1. */
static void add_memory(Stage *s, int32_t i)
{
    const Problem *p = s->p;
    int32_t g = s->g[i], n = 0;
    int64_t room = s->budget - bound_step_bytes(p, g);
    for (int32_t k = p->in.first[g]; k < p->in.first[g + 1]; k++)
        room += p->bytes[p->in.at[k]];
    double unit = room > 0 ? (double)room : 1;
    for (int32_t v = 0; v < p->nvals && n < 4000; v++)
        if (s->keep[i * p->nvals + v] && p->bytes[v] > 0) {
            s->ia[++n] = s->keep[i * p->nvals + v];
            s->ar[n] = (double)p->bytes[v] / unit;
        }
    add_row(s, n, GLP_UP, (double)room / unit);
}

static void add_coverage(Stage *s, int32_t u)
{
    const Problem *p = s->p;
    int n = 0;
    for (int32_t i = 1; i <= s->k + 1; i++) {
        if (s->g[i <= s->k ? i : 1] == u && i <= s->k)
            return;
        if (s->run[i * p->nops + u]) {
            s->ia[++n] = s->run[i * p->nops + u];
            s->ar[n] = 1;
        }
    }
    add_row(s, n, p->inst->ops[u].once && p->fetch[u] < 0 ? GLP_FX : GLP_LO, 1);
}

/* Adds the row of the end of the schedule for v, a value that stays. */
static void add_end(Stage *s, int32_t v)
{
    const Problem *p = s->p;
    int32_t u = p->producer[v];
    int n = 0;
    if (!p->inst->values[v].keep_to_end || s->g[s->k] == u)
        return;
    if (s->keep[s->k * p->nvals + v]) {
        s->ia[++n] = s->keep[s->k * p->nvals + v];
        s->ar[n] = 1;
    }
    s->ia[++n] = s->run[(s->k + 1) * p->nops + u];
    s->ar[n] = 1;
    add_row(s, n, GLP_LO, 1);
}

static void build(Stage *s)
{
    s->lp = glp_create_prob();
    glp_set_obj_dir(s->lp, GLP_MIN);
    add_columns(s);
    for (int32_t i = 1; i <= s->k + 1; i++)
        add_period(s, i);
    for (int32_t i = 1; i <= s->k; i++)
        add_memory(s, i);
    for (int32_t u = 0; u < s->p->nops; u++)
        add_coverage(s, u);
    for (int32_t v = 0; v < s->p->nvals; v++)
        add_end(s, v);
}

/* ---- solving ------------------------------------------------------------------------- */

/* The bound that the row multipliers y of the relaxation prove, in ordinary arithmetic and
 * independent of the solver's tolerances: for y of the right sign, b y + sum over columns of
 * the least (c - A'y) x within the box. */
static double proved(const Stage *s)
{
    int rows = glp_get_num_rows(s->lp), cols = glp_get_num_cols(s->lp);
    long double sum = 0, *reduced = mem_new((size_t)cols + 1, sizeof *reduced);
    int *ind = RM_NEW(int, cols + 1);
    double *val = RM_NEW(double, cols + 1);
    for (int j = 1; j <= cols; j++)
        reduced[j] = glp_get_obj_coef(s->lp, j);
    for (int r = 1; r <= rows; r++) {
        double y = glp_get_row_dual(s->lp, r);
        int type = glp_get_row_type(s->lp, r);
        if ((type == GLP_UP && y > 0) || (type == GLP_LO && y < 0))
            y = 0;
        if (y == 0)
            continue;
        sum += (long double)y * (type == GLP_UP ? glp_get_row_ub(s->lp, r) : glp_get_row_lb(s->lp, r));
        int n = glp_get_mat_row(s->lp, r, ind, val);
        for (int k = 1; k <= n; k++)
            reduced[ind[k]] -= (long double) y * val[k];
    }
    for (int j = 1; j <= cols; j++) {
        bool fixed = glp_get_col_type(s->lp, j) == GLP_FX;
        sum += fixed || reduced[j] < 0 ? reduced[j] : 0;
    }
    MEM_FREE(reduced, ind, val);
    return (double)sum;
}

/* Work in pivots that GLPK does not count: setting up the matrix and a basis, the overhead of a node, and
 * both sides of a column that is tried for branching. */
enum { LP_PIVOTS = 100, NODE_PIVOTS = 30, PROBE_PIVOTS = 60 };

/* Called several times per node, the last time to branch. */
static void watch(glp_tree *tree, void *info)
{
    Stage *s = info;
    int node = glp_ios_best_node(tree);
    if (node > 0 && glp_ios_node_bound(tree, node) > s->bound)
        s->bound = glp_ios_node_bound(tree, node);
    if (glp_ios_reason(tree) == GLP_IROWGEN)
        s->pivots += NODE_PIVOTS;
    for (int j = 1; glp_ios_reason(tree) == GLP_IBRANCH && j <= glp_get_num_cols(s->lp); j++)
        if (glp_ios_can_branch(tree, j) && !s->probed[j]) {
            s->probed[j] = 1;
            s->pivots += PROBE_PIVOTS;
        }
    if (s->bound >= s->enough || s->pivots + glp_get_it_cnt(s->lp) >= s->most_pivots)
        glp_ios_terminate(tree);
}

static int milliseconds_to(double deadline)
{
    double left = 1000 * (deadline - clock_seconds());
    return left < 0 ? 0 : left < INT_MAX ? (int)left : INT_MAX; /* INT_MAX is no limit to GLPK */
}

static void solve(Stage *s, double deadline)
{
    glp_smcp lp;
    glp_iocp mip;
    glp_init_smcp(&lp);
    lp.msg_lev = GLP_MSG_OFF;
    lp.meth = GLP_DUALP;
    lp.tm_lim = milliseconds_to(deadline);
    lp.it_lim = s->most_pivots < INT_MAX ? (int)s->most_pivots : INT_MAX;
    s->pivots = LP_PIVOTS;
    glp_adv_basis(s->lp, 0);
    if (glp_simplex(s->lp, &lp) != 0 || glp_get_status(s->lp) != GLP_OPT)
        return;
    s->bound = proved(s);
    if (s->bound >= s->enough)
        return;
    for (int j = 1; j <= glp_get_num_cols(s->lp); j++)
        glp_set_col_kind(s->lp, j, GLP_BV);
    for (int32_t i = 1; i <= s->k; i++)
        for (int32_t v = 0; v < s->p->nvals; v++)
            if (s->keep[i * s->p->nvals + v] && is_input(s->p, s->g[i], v))
                glp_set_col_bnds(s->lp, s->keep[i * s->p->nvals + v], GLP_FX, 1, 1);
    glp_init_iocp(&mip);
    mip.msg_lev = GLP_MSG_OFF;
    mip.tm_lim = milliseconds_to(deadline);
    mip.br_tech = GLP_BR_PCH;
    mip.bt_tech = GLP_BT_BLB;
    mip.mir_cuts = mip.cov_cuts = GLP_ON;
    mip.cb_func = watch;
    mip.cb_info = s;
    int status = glp_intopt(s->lp, &mip);
    if (status == 0 && glp_mip_status(s->lp) == GLP_OPT && glp_mip_obj_val(s->lp) > s->bound)
        s->bound = glp_mip_obj_val(s->lp);
}

/* The limits on what is left to spend; the first one reached ends the search. */
typedef struct {
    double deadline; /* monotonic seconds */
    double work;     /* pivots times rows */
} Limit;

static bool spent(const Limit *l) { return l->work <= 0 || clock_seconds() >= l->deadline; }

/* The bound of one path g[1..k]. */
static int64_t bound_path(const Problem *p, int64_t budget, const int32_t *g, int32_t k, Limit share,
                          double *work, int64_t known)
{
    Stage s = {.p = p, .budget = budget, .k = k, .g = g, .scale = (double)p->base_cost / 100 + 1};
    double fixed = 0;
    find_latest(&s);
    for (int32_t j = 1; j <= k; j++)
        fixed += (double)p->cost[g[j]];
    s.enough = known < INT64_MAX ? ((double)known - fixed) / s.scale : INFINITY;
    build(&s);
    double rows = glp_get_num_rows(s.lp);
    s.most_pivots = share.work / rows;
    s.probed = RM_NEW(uint8_t, glp_get_num_cols(s.lp) + 1);
    solve(&s, share.deadline);
    *work -= rows * (s.pivots + glp_get_it_cnt(s.lp));
    glp_delete_prob(s.lp);
    double cost = ceil((s.bound * s.scale + fixed) * (1 - 1e-7) - 1e-6);
    MEM_FREE(s.latest, s.run, s.keep, s.probed);
    return (int64_t)cost;
}

/* ---- which paths --------------------------------------------------------------------- */

typedef struct {
    int64_t excess;
    int32_t op;
} Candidate;

static int by_excess(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->excess != y->excess)
        return x->excess > y->excess ? -1 : 1;
    return x->op - y->op;
}

static bool descends(const Problem *p, int32_t from, int32_t to, uint8_t *mark)
{
    memset(mark, 0, (size_t)p->nops);
    mark[from] = 1;
    for (int32_t i = from + 1; i <= to; i++)
        for (int32_t k = p->in.first[i]; k < p->in.first[i + 1]; k++)
            mark[i] |= mark[p->producer[p->in.at[k]]];
    return mark[to];
}

/* Inserts op into the path if it is comparable with all of it; returns the new length, or
 * 0. */
static int32_t join(const Problem *p, const int32_t *g, int32_t k, int32_t op, int32_t *joined, uint8_t *mark)
{
    int32_t n = 0;
    bool placed = false;
    for (int32_t j = 1; j <= k; j++) {
        if (g[j] == op || !descends(p, op < g[j] ? op : g[j], op < g[j] ? g[j] : op, mark))
            return 0;
        if (!placed && op < g[j]) {
            joined[++n] = op;
            placed = true;
        }
        joined[++n] = g[j];
    }
    if (!placed)
        joined[++n] = op;
    return n;
}

enum { MAX_OPS = 600, MAX_STAGES = 6, FIRST_CUTS = 12 };

/* Tries to extend the path by each candidate, each for at most half of what is left; keeps the best extension
 * in g. */
static bool extend(const Problem *p, int64_t budget, const Candidate *c, int32_t n, int32_t *g, int32_t *k,
                   Limit *left, int64_t known, RematBound *bound, uint8_t *mark)
{
    int32_t joined[MAX_STAGES + 2], best[MAX_STAGES + 2], nbest = 0;
    double seconds = (left->deadline - clock_seconds()) / 2, work = left->work / 2;
    for (int32_t i = 0; i < n && bound->cost < known && !spent(left); i++) {
        int32_t len = join(p, g, *k, c[i].op, joined, mark);
        if (len == 0)
            continue;
        Limit share = {fmin(left->deadline, clock_seconds() + seconds), fmin(left->work, work)};
        int64_t x = bound_path(p, budget, joined, len, share, &left->work, known);
        if (x > bound->cost) {
            bound->cost = x;
            bound->node = c[i].op;
            nbest = len;
            memcpy(best, joined, sizeof best);
        }
    }
    if (nbest == 0)
        return false;
    memcpy(g, best, sizeof best);
    *k = nbest;
    return true;
}

void bound_stages(const Problem *p, int64_t budget, double deadline, double work, int64_t known,
                  RematBound *bound)
{
    if (p->nops > MAX_OPS || p->nall > p->nops) /* the model has no fetches */
        return;
    int64_t *excess = RM_NEW(int64_t, p->nops);
    Candidate *c = RM_NEW(Candidate, p->nops);
    uint8_t *mark = RM_NEW(uint8_t, p->nops);
    int32_t n = 0, k = 0, g[MAX_STAGES + 2] = {0};
    Limit left = {deadline, work};
    int terminal = glp_term_out(GLP_OFF);
    bound_excess(p, budget, excess);
    for (int32_t i = 0; i < p->nops; i++)
        if (excess[i] > 0)
            c[n++] = (Candidate){excess[i], i};
    qsort(c, (size_t)n, sizeof *c, by_excess);
    bool more = extend(p, budget, c, n < FIRST_CUTS ? n : FIRST_CUTS, g, &k, &left, known, bound, mark);
    while (more && k < MAX_STAGES && bound->cost < known && !spent(&left))
        more = extend(p, budget, c, n, g, &k, &left, known, bound, mark);
    glp_term_out(terminal);
    MEM_FREE(excess, c, mark);
}

#endif
