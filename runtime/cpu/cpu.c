/* cpu.c -- this processor as a device: the launches of a Program as a flat array of calls on one allocation.
 *
 * Everything that can fail or allocate happens in cpu_open: kernels are printed as one source, compiled
 * and loaded; library routines are made, one per distinct description; operand pointers are fixed.  A
 * training step is then one pass over the array in the order of issue, which respects all waits of lanes. */
#include "runtime/device.h"
#include "cpu.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    Arena arena;      /* tables */
    char *memory[SPACES]; /* includes the space to which a GPU would offload; NULL: not used */
    int64_t bytes[SPACES];
    Call *call;       /* one for each launch of the Program */
    uint32_t *first;  /* per step, and one more: index of its first call */
    uint32_t updates[3];
    KernelObjects objects; /* compiled kernels */
    DnnlOp **lib;   /* the distinct routines */
    DnnlDesc *desc; /* their descriptions */
    uint32_t nlib, clib, cdesc;
    const DeadRange *dead; /* check mode */
    uint32_t ndead;
    bool check;
} Cpu;

/* ---- preparing steps --------------------------------------------------- */

/* The routine for a description, made once. */
static DnnlOp *share_lib(Cpu *x, const DnnlDesc *desc, Diag *d)
{
    for (uint32_t i = 0; i < x->nlib; i++)
        if (memcmp(&x->desc[i], desc, sizeof *desc) == 0)
            return x->lib[i];
    DnnlOp *op = onednn_make(desc, d);
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
                       ": plan the model again on this processor",
                       node_def(command_node(of))->name, bytes, s->scratch);
}

/* Fails, as another routine or the kernel's text would give other bits. */
static bool no_routine(uint32_t s, const Step *step, const Command *of, Diag *d)
{
    DnnlDesc desc;
    bool known = onednn_choice_parse(&desc, step->choice);
    return fail_status(d, EXIT_DEVICE,
                       "plan: step %" PRIu32 ", %s: there is no routine '%s' %s: plan the model again "
                       "on this processor", s, node_def(command_node(of))->name, step->choice,
                       known ? "for it here" : "on this device");
}

/* Parses the choice for a stage: `list` itself or, in a loop, one of its items, of which there is one for
 * each stage that names a routine; *text: the stage runs as text.  False: there is no such choice. */
static bool choice_of(const Command *c, int stage, const char *list, DnnlDesc *desc, bool *text)
{
    char one[16];
    for (int i = 0; c->loop && i < stage; i++)
        if (c->loop->stage[i].lib) {
            list = strchr(list, ',');
            TRY(list);
            list++;
        }
    size_t n = strcspn(list, ",");
    TRY(n < sizeof one && (c->loop || !list[n]));
    memcpy(one, list, n);
    one[n] = 0;
    *text = strcmp(one, "-") == 0;
    return *text || onednn_choice_parse(desc, one);
}

/* Binds the routines of a step's launches.  The products of all blocks but the last have the same
 * description; they must have the schedule's routine. */
static bool bind_routines(Cpu *x, uint32_t s, const Program *pr, Arena *tmp, Diag *d)
{
    const Step *step = &x->plan->step[s];
    const Command *of = &pr->command[s];
    int64_t most = 0;
    bool any = !step->choice, *bound = NEW(tmp, bool, of->loop ? of->loop->nstage : 1), text;
    for (uint32_t i = pr->first[s]; i < pr->first[s + 1] && step->choice; i++) {
        const Launch *l = &pr->l.launch[i];
        if (!lib_worth(l->lib))
            continue;
        DnnlDesc desc = {.of = *l->lib};
        if (!choice_of(of, l->stage, step->choice, &desc, &text))
            return no_routine(s, step, of, d);
        if (text)
            continue;
        x->call[i].lib = share_lib(x, &desc, d);
        if (d->failed || (!x->call[i].lib && !bound[l->stage]))
            return d->failed ? false : no_routine(s, step, of, d);
        any = bound[l->stage] = true; /* the last block may have no routine, in planning as here */
        int64_t bytes = x->call[i].lib ? onednn_scratch_bytes(x->call[i].lib) : 0;
        most = bytes > most ? bytes : most;
    }
    return (any || no_routine(s, step, of, d)) &&
           has_scratch(step, of, command_workspace_bytes(of) + most, d);
}

/* Do two choices give the same bits?  The number of parts makes no difference. */
static bool same_bits(const char *a, const char *b)
{
    DnnlDesc x = {0}, y = {0};
    if (!a || !b)
        return a == b;
    return strcmp(a, b) == 0 ||
           (onednn_choice_parse(&x, a) && onednn_choice_parse(&y, b) && x.choice == y.choice);
}

static bool check_recomputed(const Plan *p, Arena *tmp, Diag *d)
{
    const uint32_t *original = plan_originals(p, tmp);
    for (uint32_t s = 0; s < p->nstep; s++) {
        const char *was = p->step[original[s]].choice, *is = p->step[s].choice;
        if (!same_bits(was, is))
            return fail_status(d, EXIT_DEVICE,
                               "plan: step %" PRIu32 " recomputes step %" PRIu32 " with other bits, by '%s' "
                               "and not '%s': plan the model again", s, original[s], is ? is : "-",
                               was ? was : "-");
    }
    return true;
}

/* Makes the calls of all launches; kernels without a library routine are printed and compiled together. */
static bool prepare(Cpu *x, const ExecOptions *opt, Arena *tmp, Diag *d)
{
    const Plan *p = x->plan;
    Program pr;
    TRY(program_make(&pr, p, tmp, d) && (!x->check || program_verify(&pr, d)));
    x->call = calls_make(pr.l.launch, pr.l.n, &x->arena);
    x->first = NEW(&x->arena, uint32_t, p->nstep + 1);
    memcpy(x->first, pr.first, (p->nstep + 1) * sizeof *x->first);
    memcpy(x->updates, pr.updates, sizeof x->updates);
    calls_bind(x->call, pr.l.launch, pr.l.n, x->memory);
    for (uint32_t s = 0; s < p->nstep; s++)
        TRY(bind_routines(x, s, &pr, tmp, d));
    TRY(check_recomputed(p, tmp, d));
    TRY(calls_load(&x->call, &(const Launches *){&pr.l}, 1, opt->cache, &x->objects, d));
    if (x->check)
        x->dead = dead_ranges(p, pr.command, &x->ndead, &x->arena);
    return true;
}

static void cpu_close(void *device)
{
    Cpu *x = device;
    for (uint32_t i = 0; i < x->nlib; i++)
        onednn_free(x->lib[i]);
    kernels_unload(&x->objects);
    for (int i = 0; i < SPACES; i++)
        pages_free(x->memory[i], x->bytes[i]);
    Arena arena = x->arena; /* x lies in it */
    arena_free(&arena);
}

static bool allocate(Cpu *x, Space space, int64_t bytes, Diag *d)
{
    x->memory[space] = pages_alloc(bytes, d);
    x->bytes[space] = bytes;
    return x->memory[space] != NULL;
}

static void *cpu_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Arena arena = {0}, tmp = {0};
    Cpu *x = NEW(&arena, Cpu, 1);
    x->arena = arena;
    x->plan = p;
    x->check = opt->check;
    unsigned mode = fp_flush((int)p->threads);
    bool ok = allocate(x, SPACE_DEVICE, p->arena_bytes, d) &&
              (!p->host_bytes || allocate(x, SPACE_HOST, p->host_bytes, d)) && prepare(x, opt, &tmp, d);
    fp_restore(mode);
    arena_free(&tmp);
    if (ok && x->check)
        memset(x->memory[SPACE_DEVICE], 0xFF, (size_t)p->arena_bytes);
    if (ok)
        return x;
    cpu_close(x);
    return NULL;
}

/* ---- running ----------------------------------------------------------- */

static bool run_step(const Cpu *x, uint32_t s, Diag *d)
{
    return calls_run(x->call + x->first[s], x->first[s + 1] - x->first[s], d);
}

/* Runs the steps [from, to); seconds: NULL, or per step the least time so far (0: none), which is updated. */
static bool run_timed(Cpu *x, uint32_t from, uint32_t to, double *seconds, Diag *d)
{
    double last = clock_seconds();
    for (uint32_t s = from; s < to; s++) {
        TRY(run_step(x, s, d));
        double t = clock_seconds();
        if (seconds && (seconds[s] <= 0 || t - last < seconds[s]))
            seconds[s] = t - last;
        last = t;
    }
    return true;
}

/* Runs the steps [from, to), filling scratch with NaNs before a step and the dead ranges after it. */
static bool run_checked(Cpu *x, uint32_t from, uint32_t to, Diag *d)
{
    uint32_t next = 0;
    while (next < x->ndead && x->dead[next].step < from)
        next++;
    for (uint32_t s = from; s < to; s++) {
        const Step *step = &x->plan->step[s];
        if (step->scratch > 0)
            memset(x->memory[SPACE_DEVICE] + step->scratch_offset, 0xFF, (size_t)step->scratch);
        TRY(run_step(x, s, d));
        for (; next < x->ndead && x->dead[next].step == s; next++)
            memset(x->memory[SPACE_DEVICE] + x->dead[next].offset, 0xFF, (size_t)x->dead[next].bytes);
    }
    return true;
}

static bool cpu_run(void *device, bool rest, double *seconds, Diag *d)
{
    Cpu *x = device;
    const Plan *p = x->plan;
    uint32_t from = rest ? p->nmicro : 0, to = rest ? p->nstep : p->nmicro;
    const uint32_t *update = &x->updates[rest];
    unsigned mode = fp_flush((int)p->threads);
    bool ok = (x->check ? run_checked(x, from, to, d) : run_timed(x, from, to, seconds, d)) &&
              calls_run(x->call + update[0], update[1] - update[0], d);
    fp_restore(mode);
    return ok;
}

static char *cpu_map(void *device, Space space) { return ((Cpu *)device)->memory[space]; }

/* With AVX-512 the library is as fast on channels-last images as on blocked ones. */
static int cpu_channels_last(void) { return onednn_vector_bytes() >= 64; }

const DeviceOps cpu_device = {.name = "cpu", .threads = true, .channels_last = cpu_channels_last,
                              .either_order = true, .info = cpu_info, .choose = profile_cost,
                              .times = profile_times, .profile_open = profile_open,
                              .profile_close = profile_close, .learn = profile_learn, .open = cpu_open,
                              .close = cpu_close, .run = cpu_run, .map = cpu_map};
