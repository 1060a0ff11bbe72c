/* fake.c -- a simulated device: verifies a Program, then interprets it in double precision.
 *
 * It has memory of its own, so that a forgotten copy to or from the device shows.  A launch that reads bytes
 * which nothing has written is an error; workspace counts as unwritten at the start of a step.  On request
 * lanes advance in random order, as far as their waits allow. */
#include "runtime/device.h"
#include "ir/mem.h"
#include "ir/program.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    Arena arena;
    Program program;
    char *memory[SPACES];
    bool *written[SPACES]; /* per byte of memory */
    uint32_t *step;        /* plan step of each launch; nstep for updates */
    uint64_t random;       /* 0: launches run in the order in which they are issued */
} Fake;

static void fake_close(void *device)
{
    Fake *x = device;
    for (int s = 0; s < SPACES; s++) {
        free(x->memory[s]);
        free(x->written[s]);
    }
    arena_free(&x->arena);
    free(x);
}

static void *fake_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Fake *x = mem_new(1, sizeof *x);
    x->plan = p;
    x->random = (uint64_t)opt->lane_order;
    if (!program_make(&x->program, p, &x->arena, d) || !program_verify(&x->program, d)) {
        fake_close(x);
        return NULL;
    }
    x->step = NEW(&x->arena, uint32_t, x->program.l.n + 1);
    for (uint32_t i = 0, s = 0; i < x->program.l.n; i++) {
        while (s < p->nstep && x->program.first[s + 1] <= i)
            s++;
        x->step[i] = s;
    }
    for (int s = 0; s < SPACES; s++) {
        size_t bytes = (size_t)x->program.bytes[s];
        x->memory[s] = mem_new(bytes + 1, 1);
        x->written[s] = mem_new(bytes + 1, sizeof *x->written[s]);
        memset(x->memory[s], 0xFF, bytes);
    }
    return x;
}

/* ---- one launch ---------------------------------------------------------------------------------------- */

static bool all_written(const Fake *x, const Slice *s)
{
    return s->bytes == 0 || !memchr(x->written[s->base] + s->at, false, (size_t)s->bytes);
}

static bool run_launch(Fake *x, const Launch *l, Diag *d)
{
    Arena tmp = {0};
    const Kernel *k = l->copy ? NULL : x->program.l.kernel[l->kernel];
    Tensor *op = NEW(&tmp, Tensor, l->nop + 1);
    bool ok = true;
    for (int i = 0; i < l->nop; i++) {
        const Slice *s = &l->op[i];
        if (s->base < 0)
            continue;
        op[i] = (Tensor){type_scalar(k ? k->operand[i] : DT_NONE), x->memory[s->base] + s->at};
        ok = ok && (s->write || all_written(x, s) || fail(d, "operand %d is read, and was not written", i));
    }
    if (ok)
        launch_run_ref(l, k, op);
    for (int i = 0; i < l->nop && ok; i++)
        if (l->op[i].base >= 0 && l->op[i].write)
            memset(x->written[l->op[i].base] + l->op[i].at, true, (size_t)l->op[i].bytes);
    arena_free(&tmp);
    return ok;
}

/* ---- lanes --------------------------------------------------------------------------------------------- */

/* The launches of [from, to) that are left to run: next is the next one of each lane. */
typedef struct {
    uint32_t from, to, next[LANES];
} Queue;

static void advance(const Fake *x, Queue *q, Lane lane)
{
    while (q->next[lane] < q->to && x->program.l.launch[q->next[lane]].lane != lane)
        q->next[lane]++;
}

static bool waits(const Fake *x, const Queue *q, const Launch *l)
{
    for (int i = 0; i < l->nwait; i++)
        if (l->wait[i] >= q->from && q->next[x->program.l.launch[l->wait[i]].lane] <= l->wait[i])
            return true;
    return false;
}

/* The lane whose launch runs next: one whose next launch has nothing to wait for. */
static Lane choose_lane(Fake *x, const Queue *q)
{
    Lane ready[LANES];
    int n = 0, first = 0;
    for (int lane = 0; lane < LANES; lane++)
        if (q->next[lane] < q->to && !waits(x, q, &x->program.l.launch[q->next[lane]])) {
            first = n && q->next[lane] < q->next[ready[first]] ? n : first;
            ready[n++] = (Lane)lane;
        }
    if (!x->random)
        return ready[first];
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return ready[(x->random >> 33) % (uint64_t)n];
}

/* Marks the workspace of a step as unwritten, if this launch is its first. */
static void begin_step(Fake *x, uint32_t launch)
{
    uint32_t s = x->step[launch];
    if (s < x->plan->nstep && x->program.first[s] == launch && x->plan->step[s].scratch > 0)
        memset(x->written[SPACE_DEVICE] + x->plan->step[s].scratch_offset, false,
               (size_t)x->plan->step[s].scratch);
}

/* Runs the launches [from, to).  There is always a lane to choose, as the launch issued first among those
 * left waits for none of them. */
static bool run_launches(Fake *x, uint32_t from, uint32_t to, Diag *d)
{
    Queue q = {.from = from, .to = to};
    for (int lane = 0; lane < LANES; lane++) {
        q.next[lane] = from;
        advance(x, &q, (Lane)lane);
    }
    for (uint32_t left = to - from; left > 0; left--) {
        Diag why = {0};
        Lane lane = choose_lane(x, &q);
        uint32_t i = q.next[lane]++;
        advance(x, &q, lane);
        begin_step(x, i);
        if (!run_launch(x, &x->program.l.launch[i], &why))
            return fail_status(d, EXIT_DEVICE, "step %" PRIu32 ", launch %" PRIu32 ": %.900s",
                               x->step[i], i, why.msg);
    }
    return true;
}

static bool fake_run(void *device, bool rest, double *seconds, Diag *d)
{
    Fake *x = device;
    const Plan *p = x->plan;
    const Program *pr = &x->program;
    (void)seconds;
    return run_launches(x, pr->first[rest ? p->nmicro : 0], pr->first[rest ? p->nstep : p->nmicro], d) &&
           run_launches(x, pr->updates[rest], pr->updates[rest + 1], d);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static bool inside(const Fake *x, Space space, int64_t at, int64_t bytes)
{
    return at >= 0 && at <= x->program.bytes[space] && bytes <= x->program.bytes[space] - at;
}

static bool fake_write(void *device, Space space, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    Fake *x = device;
    if (!inside(x, space, at, bytes))
        return fail_status(d, EXIT_DEVICE, "a value that is written leaves the arena");
    memcpy(x->memory[space] + at, from, (size_t)bytes);
    memset(x->written[space] + at, true, (size_t)bytes);
    return true;
}

static bool fake_read(void *device, Space space, int64_t at, void *to, int64_t bytes, Diag *d)
{
    Fake *x = device;
    if (!inside(x, space, at, bytes) ||
        !all_written(x, &(Slice){.base = (int)space, .at = at, .bytes = bytes}))
        return fail_status(d, EXIT_DEVICE, "a value that is read was not written");
    memcpy(to, x->memory[space] + at, (size_t)bytes);
    return true;
}

/* ---- what it is ---------------------------------------------------------------------------------------- */

/* Describes the device as this processor, so that graphs are split likewise; the times have no meaning. */
static bool fake_info(int ordinal, DeviceInfo *out, Arena *a, Diag *d)
{
    (void)ordinal, (void)a, (void)d;
    *out = device_cpu;
    out->name = "fake";
    out->title = "interpreter that checks every launch";
    out->host_link = out->memory_bandwidth / 2;
    return true;
}

/* Every command runs as its text, in the interpreter, with the workspace that its loop needs. */
static bool fake_choose(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)user, (void)d;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (StepCost){.c = {{NULL, command_workspace_bytes(&c[i]), -1}}, .n = 1, .same = 1};
    return true;
}

const DeviceOps fake_device = {.name = "fake", .info = fake_info, .choose = fake_choose,
                               .open = fake_open, .close = fake_close, .run = fake_run,
                               .write = fake_write, .read = fake_read};
