/* record.c -- a device that computes nothing and records the bytes that a run writes, for a program that runs
 * elsewhere (--emit cuda).  A record is two int64, an offset in the arena and a number of bytes, then the
 * bytes; a negative offset ends the inputs of a step. */
#include "device.h"
#include "ir/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Plan *plan;
    FILE *values, *inputs;
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

static bool add(FILE *f, int64_t at, const void *from, int64_t bytes, Diag *d)
{
    const int64_t head[] = {at, bytes};
    return (fwrite(head, sizeof head, 1, f) == 1 && fwrite(from, 1, (size_t)bytes, f) == (size_t)bytes) ||
           fail_status(d, EXIT_DEVICE, "cannot write what a run reads: %s", strerror(errno));
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
