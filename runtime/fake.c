/* fake.c -- a device that is not there: every launch is checked, then interpreted in double precision.
 *
 * Its memory is its own, so that whoever forgets to write or read it sees nothing.  It says so when a
 * launch reads bytes that nothing has written, leaves the arena, misaligns an operand, or writes over
 * what it reads where the kernel does not allow it.  Workspace holds nothing before a step. */
#include "device.h"
#include "ir/mem.h"
#include "ir/program.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    Arena arena;
    Program program;
    char *memory;
    bool *written; /* per byte of it */
} Fake;

static void fake_close(void *device)
{
    Fake *x = device;
    free(x->memory);
    free(x->written);
    arena_free(&x->arena);
    free(x);
}

static void *fake_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Fake *x = mem_new(1, sizeof *x);
    (void)opt;
    x->plan = p;
    if (!program_make(&x->program, p, &x->arena, d)) {
        fake_close(x);
        return NULL;
    }
    x->memory = mem_new((size_t)p->arena_bytes + 1, 1);
    x->written = mem_new((size_t)p->arena_bytes + 1, sizeof *x->written);
    memset(x->memory, 0xFF, (size_t)p->arena_bytes);
    return x;
}

/* ---- checks -------------------------------------------------------------------------------------------- */

static bool inside(const Fake *x, int64_t at, int64_t bytes)
{
    return at >= 0 && bytes >= 0 && at <= x->plan->arena_bytes && bytes <= x->plan->arena_bytes - at;
}

static bool all_written(const Fake *x, const Slice *s)
{
    return s->bytes == 0 || !memchr(x->written + s->at, false, (size_t)s->bytes);
}

static bool overlap(const Slice *a, const Slice *b)
{
    return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

static bool check_operand(const Fake *x, const Launch *l, const Kernel *k, int i, Diag *d)
{
    const Slice *s = &l->op[i];
    if (s->base < 0)
        return true;
    if (!inside(x, s->at, s->bytes))
        return fail(d, "operand %d leaves the arena", i);
    if (k && s->at % dtype_size[k->operand[i]])
        return fail(d, "operand %d is misaligned", i);
    if (!s->write)
        return all_written(x, s) || fail(d, "operand %d is read and was not written", i);
    for (int r = 0; r < l->nop; r++) {
        const Slice *other = &l->op[r];
        bool same = other->at == s->at && k && !other->write && kernel_inplace(k, r, i);
        if (r != i && other->base >= 0 && overlap(s, other) && !same)
            return fail(d, "operand %d is written over operand %d", i, r);
    }
    return true;
}

/* ---- running ------------------------------------------------------------------------------------------- */

static bool run_launch(Fake *x, uint32_t index, Diag *d)
{
    Arena tmp = {0};
    const Launch *l = &x->program.l.launch[index];
    const Kernel *k = l->copy ? NULL : x->program.l.kernel[l->kernel];
    Tensor *op = NEW(&tmp, Tensor, l->nop + 1);
    bool ok = true;
    for (int i = 0; i < l->nop && ok; i++) {
        ok = check_operand(x, l, k, i, d);
        if (l->op[i].base >= 0)
            op[i] = (Tensor){type_scalar(k ? k->operand[i] : DT_NONE), x->memory + l->op[i].at};
    }
    if (ok)
        launch_run_ref(l, k, op);
    for (int i = 0; i < l->nop && ok; i++)
        if (l->op[i].base >= 0 && l->op[i].write)
            memset(x->written + l->op[i].at, true, (size_t)l->op[i].bytes);
    arena_free(&tmp);
    return ok;
}

static bool run_launches(Fake *x, uint32_t from, uint32_t to, const char *what, uint32_t number, Diag *d)
{
    for (uint32_t i = from; i < to; i++) {
        Diag why = {0};
        if (!run_launch(x, i, &why))
            return fail_status(d, EXIT_DEVICE, "%s %" PRIu32 ", launch %" PRIu32 ": %.900s", what,
                               number, i - from, why.msg);
    }
    return true;
}

static bool fake_run(void *device, bool rest, double *seconds, Diag *d)
{
    Fake *x = device;
    const Plan *p = x->plan;
    const Program *pr = &x->program;
    (void)seconds;
    for (uint32_t s = rest ? p->nmicro : 0; s < (rest ? p->nstep : p->nmicro); s++) {
        if (p->step[s].scratch > 0)
            memset(x->written + p->step[s].scratch_offset, false, (size_t)p->step[s].scratch);
        TRY(run_launches(x, pr->first[s], pr->first[s + 1], "step", s, d));
    }
    return run_launches(x, pr->updates[rest], pr->updates[rest + 1], "updates", rest, d);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static bool fake_write(void *device, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    Fake *x = device;
    if (!inside(x, at, bytes))
        return fail_status(d, EXIT_DEVICE, "a value that is written leaves the arena");
    memcpy(x->memory + at, from, (size_t)bytes);
    memset(x->written + at, true, (size_t)bytes);
    return true;
}

static bool fake_read(void *device, int64_t at, void *to, int64_t bytes, Diag *d)
{
    Fake *x = device;
    if (!inside(x, at, bytes) || !all_written(x, &(Slice){.at = at, .bytes = bytes}))
        return fail_status(d, EXIT_DEVICE, "a value that is read was not written");
    memcpy(to, x->memory + at, (size_t)bytes);
    return true;
}

const DeviceOps fake_device = {.name = "fake", .open = fake_open, .close = fake_close,
                               .run = fake_run, .write = fake_write, .read = fake_read};
