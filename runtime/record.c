/* record.c -- a device that computes nothing and records the bytes that a run writes, for a program that runs
 * elsewhere (--emit cuda).  A record is two int64, an offset in the arena and a number of bytes, then the
 * bytes; a negative offset ends the inputs of a step. */
#include "device.h"
#include "ir/file.h"
#include "ir/mem.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    NewFile *values, *inputs;
} Record;

static void *record_open(const Plan *p, const ExecOptions *o, Diag *d)
{
    (void)d;
    Record *x = mem_new(1, sizeof *x);
    *x = (Record){p, o->record_values, o->record_inputs};
    return x;
}

static bool is_input(const Plan *p, int64_t at)
{
    for (uint32_t v = 1; v < p->g->nvals; v++)
        if (p->g->vals[v].kind == VAL_INPUT && p->offset[v] == at)
            return true;
    return false;
}

static bool add(NewFile *f, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    const int64_t head[] = {at, bytes};
    file_write(f, head, sizeof head);
    file_write(f, from, (size_t)bytes);
    return !f->error || fail_status(d, EXIT_DEVICE, "%s: %s", f->path, strerror(f->error));
}

static bool record_write(void *on, Space space, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    const Record *x = on;
    (void)space; /* always SPACE_DEVICE: --emit cuda does not offload */
    return add(is_input(x->plan, at) ? x->inputs : x->values, at, from, bytes, d);
}

static bool record_run(void *on, bool rest, double *seconds, Diag *d)
{
    const Record *x = on;
    (void)seconds;
    return rest || add(x->inputs, -1, "", 0, d);
}

static bool record_read(void *on, Space space, int64_t at, void *to, int64_t bytes, Diag *d)
{
    (void)on, (void)space, (void)at, (void)d;
    memset(to, 0, (size_t)bytes);
    return true;
}

const DeviceOps record_device = {.name = "record",
                                 .open = record_open,
                                 .close = free,
                                 .run = record_run,
                                 .write = record_write,
                                 .read = record_read};
