/* cpu.c -- the executor: a plan becomes a flat array of calls on one allocation.
 *
 * Everything that can fail or allocate happens in exec_open: kernels of all steps are
 * printed as one source, compiled and loaded; library routines are made, one per distinct
 * description; operand pointers are fixed.  A step of training then is one walk over the
 * array. */
#include "runtime_int.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    void *state;
    const void *value;
    size_t bytes;
    bool micro; /* after every micro-batch */
} Copy;

struct Executor {
    const Plan *plan;
    Arena arena;      /* tables */
    char *memory;     /* plan->arena_bytes */
    Call *call;       /* one per plan step */
    const Copy *copy; /* updates that are not in place */
    uint32_t ncopy;
    KernelObjects objects; /* compiled kernels */
    DnnlOp **lib;   /* distinct */
    DnnlDesc *desc; /* of lib */
    uint32_t nlib, clib, cdesc;
    const DeadRange *dead; /* check mode */
    uint32_t ndead;
    bool check;
};

/* A plan may come from a file: nothing may lie outside the arena. */
static bool check_places(const Plan *p, Diag *d)
{
    for (uint32_t v = 1; v < p->g->nvals; v++)
        if (p->offset[v] > p->arena_bytes ||
            (p->offset[v] >= 0 &&
             type_bytes(&p->g->vals[v].type) > p->arena_bytes - p->offset[v]))
            return fail(d, "plan: %s lies outside the arena", p->g->vals[v].name);
    for (uint32_t s = 0; s < p->nstep; s++) {
        const Step *t = &p->step[s];
        if (t->scratch > 0 &&
            (t->scratch_offset < 0 || t->scratch_offset > p->arena_bytes ||
             t->scratch > p->arena_bytes - t->scratch_offset))
            return fail(d, "plan: the scratch of step %" PRIu32 " lies outside the arena",
                        s);
    }
    return true;
}

/* ---- preparing steps --------------------------------------------------- */

/* Operand addresses of a step. */
static bool bind_step(Executor *x, uint32_t s, const Command *of, Diag *d)
{
    const Plan *p = x->plan;
    Call *c = &x->call[s];
    int n = of->nread + of->nwrite;
    c->nread = of->nread;
    c->op = NEW(&x->arena, void *, n + 1);
    for (int i = 0; i < n; i++) {
        Val v = of->vals[i];
        if (v.i == 0)
            continue;
        c->op[i] = exec_tensor(x, v).data;
        if (!c->op[i])
            return fail(d, "plan: step %" PRIu32 ": %s has no memory", s,
                        p->g->vals[v.i].name);
    }
    const Step *step = &p->step[s];
    c->scratch = step->scratch > 0 ? x->memory + step->scratch_offset : NULL;
    return true;
}

/* The routine for a description, made once. */
static DnnlOp *share_lib(Executor *x, const DnnlDesc *desc, Diag *d)
{
    for (uint32_t i = 0; i < x->nlib; i++)
        if (memcmp(&x->desc[i], desc, sizeof *desc) == 0)
            return x->lib[i];
    DnnlOp *op = dnnl_make(desc, d);
    x->lib = arena_grow(&x->arena, x->lib, x->nlib, &x->clib, sizeof *x->lib);
    x->desc = arena_grow(&x->arena, x->desc, x->nlib, &x->cdesc, sizeof *x->desc);
    x->lib[x->nlib] = op;
    x->desc[x->nlib++] = *desc;
    return op;
}

static bool has_scratch(const Step *s, const Command *of, int64_t bytes, Diag *d)
{
    return bytes <= s->scratch ||
           fail_status(d, EXIT_DEVICE,
                       "plan: %s needs %" PRId64 " bytes of scratch here and has %" PRId64
                       ": compile for this processor",
                       node_def(command_node(of))->name, bytes, s->scratch);
}

/* Another routine, or the kernel's text, would give other bits. */
static bool no_routine(const Step *s, const Command *of, Diag *d)
{
    return fail_status(d, EXIT_DEVICE,
                       "plan: %s has no routine %d here: compile for this processor",
                       node_def(command_node(of))->name, s->choice);
}

/* The products of all turns but the last are alike, and have the schedule's routine. */
static bool bind_turns(Executor *x, Call *call, const Step *s, const Command *of, Diag *d)
{
    Turns *t = call->turns = turns_make(&of->k, &x->arena);
    bool bound = s->choice == 0;
    for (int i = 0; i < t->of.ncalls && s->choice > 0 && !d->failed; i++) {
        const TurnCall *c = &t->of.call[i];
        if (!lib_worth(c->lib))
            continue;
        DnnlDesc desc = {.of = *c->lib};
        dnnl_decode(&desc, s->choice);
        t->lib[i] = share_lib(x, &desc, d);
        if (!t->lib[i] && !bound)
            break;
        bound = true; /* the last turn's may have none, in planning as here */
    }
    return !d->failed && (bound || no_routine(s, of, d)) &&
           has_scratch(s, of, turns_scratch(t), d);
}

static bool bind_lib(Executor *x, Call *c, const Step *s, const Command *of, Diag *d)
{
    if (of->k.product)
        return bind_turns(x, c, s, of, d);
    if (of->copy) {
        CopyRows *copy = NEW(&x->arena, CopyRows, of->nread);
        memcpy(copy, of->copy, (size_t)of->nread * sizeof *copy);
        c->copy = copy;
        c->ncopy = of->nread;
        return true;
    }
    if (s->choice == 0)
        return true;
    if (!lib_worth(of->lib))
        return no_routine(s, of, d);
    DnnlDesc desc = {.of = *of->lib};
    dnnl_decode(&desc, s->choice);
    c->lib = share_lib(x, &desc, d);
    return !d->failed && (c->lib || no_routine(s, of, d)) &&
           has_scratch(s, of, dnnl_scratch_bytes(c->lib), d);
}

/* Lower every step; kernels without a library routine are printed and compiled together. */
static bool prepare(Executor *x, const ExecOptions *opt, Diag *d)
{
    const Plan *p = x->plan;
    Arena tmp = {0};
    Command *command = plan_commands(p, &tmp, d);
    bool ok = command != NULL;
    Kernel **text = NEW(&tmp, Kernel *, TURN_CALLS * p->nstep + 1);
    KernelFn ***user = NEW(&tmp, KernelFn **, TURN_CALLS * p->nstep + 1);
    int ntext = 0;
    for (uint32_t s = 0; s < p->nstep && ok; s++) {
        ok = bind_step(x, s, &command[s], d) &&
             bind_lib(x, &x->call[s], &p->step[s], &command[s], d);
        if (ok && x->call[s].turns) {
            ntext += turns_texts(x->call[s].turns, text + ntext, user + ntext);
        } else if (ok && !x->call[s].lib && !x->call[s].copy) {
            text[ntext] = &command[s].k;
            user[ntext++] = &x->call[s].fn;
        }
    }
    KernelFn **fn = NEW(&tmp, KernelFn *, ntext + 1);
    ok = ok && kernels_load(text, ntext, opt->cache, fn, &x->objects, d);
    for (int i = 0; i < ntext && ok; i++)
        *user[i] = fn[i];
    if (ok && x->check)
        x->dead = dead_ranges(p, command, &x->ndead, &x->arena);
    arena_free(&tmp);
    return ok;
}

/* Is v made once per micro-batch? */
static bool made_in_micro(const Plan *p, Val v)
{
    NodeId def = p->g->vals[graph_root(p->g, v).i].def;
    for (uint32_t k = p->nmicro < p->nstep ? p->step[p->nmicro].first : p->g->norder;
         k < p->g->norder; k++)
        if (p->g->order[k].i == def.i)
            return false;
    return true;
}

static void prepare_copies(Executor *x)
{
    const Graph *g = x->plan->g;
    Copy *copy = NEW(&x->arena, Copy, g->nupdate + 1);
    for (uint32_t i = 0; i < g->nupdate; i++) {
        Tensor to = exec_tensor(x, g->update[i].state),
               from = exec_tensor(x, g->update[i].value);
        if (to.data && from.data && to.data != from.data)
            copy[x->ncopy++] = (Copy){to.data, from.data, (size_t)type_bytes(&to.type),
                                      made_in_micro(x->plan, g->update[i].value)};
    }
    x->copy = copy;
}

static bool load_values(Executor *x, const ExecOptions *opt, Diag *d)
{
    const Graph *g = x->plan->g;
    for (uint32_t v = 1; v < g->nvals; v++) {
        Tensor t = exec_tensor(x, (Val){v});
        ValKind kind = g->vals[v].kind;
        if (t.data && kind != VAL_TEMP && kind != VAL_INPUT)
            TRY(initial_value(g, (Val){v}, opt, &t, d));
    }
    return true;
}

Executor *exec_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Arena arena = {0};
    Executor *x = NEW(&arena, Executor, 1);
    x->arena = arena;
    x->plan = p;
    x->call = NEW(&x->arena, Call, p->nstep + 1);
    x->check = opt->check;
    unsigned mode = fp_flush((int)p->threads);
    bool ok = check_places(p, d) && (x->memory = pages_alloc(p->arena_bytes, d)) != NULL &&
              prepare(x, opt, d);
    fp_restore(mode);
    if (ok && x->check)
        memset(x->memory, 0xFF, (size_t)p->arena_bytes);
    if (ok) {
        prepare_copies(x);
        ok = load_values(x, opt, d);
    }
    if (ok)
        return x;
    exec_close(x);
    return NULL;
}

void exec_close(Executor *x)
{
    if (!x)
        return;
    for (uint32_t i = 0; i < x->nlib; i++)
        dnnl_free(x->lib[i]);
    kernels_unload(&x->objects);
    pages_free(x->memory, x->plan->arena_bytes);
    Arena arena = x->arena; /* x lies in it */
    arena_free(&arena);
}

/* ---- running ----------------------------------------------------------- */

/* Into seconds, per step: the least time so far, 0 = none yet. */
static bool run_timed(Executor *x, uint32_t from, uint32_t to, double *seconds, Diag *d)
{
    double last = clock_seconds();
    for (uint32_t s = from; s < to; s++) {
        TRY(call_run(&x->call[s], d));
        double t = clock_seconds();
        if (seconds && (seconds[s] <= 0 || t - last < seconds[s]))
            seconds[s] = t - last;
        last = t;
    }
    return true;
}

/* Scratch holds nothing before a step, dead values nothing after it. */
static bool run_checked(Executor *x, uint32_t from, uint32_t to, Diag *d)
{
    uint32_t next = 0;
    while (next < x->ndead && x->dead[next].step < from)
        next++;
    for (uint32_t s = from; s < to; s++) {
        if (x->call[s].scratch)
            memset(x->call[s].scratch, 0xFF, (size_t)x->plan->step[s].scratch);
        TRY(call_run(&x->call[s], d));
        for (; next < x->ndead && x->dead[next].step == s; next++)
            memset(x->memory + x->dead[next].offset, 0xFF, (size_t)x->dead[next].bytes);
    }
    return true;
}

static bool run(Executor *x, uint32_t from, uint32_t to, double *seconds, Diag *d)
{
    unsigned mode = fp_flush((int)x->plan->threads);
    bool ok = x->check ? run_checked(x, from, to, d) : run_timed(x, from, to, seconds, d);
    for (uint32_t i = 0; i < x->ncopy && ok; i++)
        if (x->copy[i].micro == (from == 0))
            memcpy(x->copy[i].state, x->copy[i].value, x->copy[i].bytes);
    fp_restore(mode);
    return ok;
}

bool exec_micro(Executor *x, double *seconds, Diag *d)
{
    return run(x, 0, x->plan->nmicro, seconds, d);
}

bool exec_rest(Executor *x, double *seconds, Diag *d)
{
    const Plan *p = x->plan;
    return p->nmicro == p->nstep || run(x, p->nmicro, p->nstep, seconds, d);
}

bool exec_step(Executor *x, double *seconds, Diag *d)
{
    return exec_micro(x, seconds, d) && exec_rest(x, seconds, d);
}

Tensor exec_tensor(const Executor *x, Val v)
{
    const Plan *p = x->plan;
    int64_t at = v.i ? p->offset[graph_root(p->g, v).i] : -1;
    return (Tensor){*val_type(p->g, v), at < 0 ? NULL : x->memory + at};
}

const Plan *exec_plan(const Executor *x) { return x->plan; }

int64_t exec_arena_bytes(const Executor *x) { return x->plan->arena_bytes; }
