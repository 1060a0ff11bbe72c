/* exec.c -- the executor: runs a plan on a device and gives the host access to its values. */
#include "device.h"
#include "ir/mem.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Executor {
    const DeviceOps *ops;
    void *on; /* the device's state */
    const Plan *plan;
    char *map[SPACES]; /* spaces as the host addresses them; NULL: the host works on copies */
    void **copy; /* per value: its host copy, made on demand, or what exec_replace gave one without memory */
    Val loss;              /* loss of the runs in flight */
    double start, seconds; /* of a run on a device whose runs end before they return */
};

const DeviceOps *const devices_here[] = {&cpu_device, &fake_device, &cuda_device, NULL};

/* The number in "NAME:NUMBER", 0 for the bare name of the device; -1: the text names another device. */
static int ordinal_of(const DeviceOps *ops, const char *text)
{
    enum { MOST = 1000 };
    size_t n = strlen(ops->name);
    char *end;
    if (strncmp(text, ops->name, n) != 0 || (text[n] && (text[n] != ':' || !ops->numbered)))
        return -1;
    if (!text[n])
        return 0;
    long v = strtol(text + n + 1, &end, 10);
    return *end || !isdigit((unsigned char)text[n + 1]) || v > MOST ? -1 : (int)v;
}

const DeviceOps *device_here(const char *name, int *ordinal)
{
    const DeviceOps *const *d = devices_here;
    *ordinal = 0;
    while (name && *d && (*ordinal = ordinal_of(*d, name)) < 0)
        d++;
    return *d;
}

const DeviceOps *device_planner(const DeviceInfo *d) { return d->capability > 0 ? &cuda_device : NULL; }

/* Offset of a value in its space, in bytes; -1: it has no memory. */
static int64_t place(const Executor *x, Val v)
{
    return v.i ? x->plan->offset[graph_root(x->plan->g, v).i] : -1;
}

static bool is_mapped(const Executor *x) { return x->map[SPACE_DEVICE]; }

Tensor exec_tensor(const Executor *x, Val v)
{
    Tensor t = {*val_type(x->plan->g, v), NULL};
    int64_t at = place(x, v);
    if (at >= 0 && !is_mapped(x) && !x->copy[v.i])
        x->copy[v.i] = mem_new((size_t)type_bytes(&t.type) + 1, 1);
    t.data = at >= 0 && is_mapped(x) ? x->map[val_space(x->plan->g, v)] + at : x->copy[v.i];
    return t;
}

/* The host's copy of a value on the device; data NULL: the host addresses it, or it has no memory there. */
static Tensor copy_of(const Executor *x, Val v)
{
    return is_mapped(x) || place(x, v) < 0 ? (Tensor){0} : exec_tensor(x, v);
}

bool exec_write(Executor *x, Val v, Diag *d)
{
    Tensor t = copy_of(x, v);
    return !t.data ||
           x->ops->write(x->on, val_space(x->plan->g, v), place(x, v), t.data, type_bytes(&t.type), d);
}

bool exec_read(Executor *x, Val v, Diag *d)
{
    Tensor t = copy_of(x, v);
    return !t.data ||
           x->ops->read(x->on, val_space(x->plan->g, v), place(x, v), t.data, type_bytes(&t.type), d);
}

bool exec_replace(Executor *x, Val v, const void *from, Diag *d)
{
    const Graph *g = x->plan->g;
    Tensor given = {*val_type(g, v), (void *)(uintptr_t)from};
    if (place(x, v) < 0 && !x->copy[v.i])
        x->copy[v.i] = mem_new((size_t)type_bytes(&given.type) + 1, 1);
    for (uint32_t i = 1; i < g->nvals; i++)
        if (i == v.i || g->vals[i].cast_of.i == v.i) {
            Tensor to = exec_tensor(x, (Val){i});
            if (to.data)
                tensor_cast(&given, &to);
            TRY(exec_write(x, (Val){i}, d));
        }
    return true;
}

void exec_drop(Executor *x, Val v)
{
    if (!is_mapped(x) && place(x, v) >= 0) {
        free(x->copy[v.i]);
        x->copy[v.i] = NULL;
    }
}

static bool load_values(Executor *x, const ExecOptions *opt, Diag *d)
{
    const Graph *g = x->plan->g;
    for (uint32_t v = 1; v < g->nvals; v++) {
        ValKind kind = g->vals[v].kind;
        if (kind == VAL_TEMP || kind == VAL_INPUT || place(x, (Val){v}) < 0)
            continue;
        Tensor t = exec_tensor(x, (Val){v});
        TRY(initial_value(g, (Val){v}, opt, &t, d) && exec_write(x, (Val){v}, d));
        exec_drop(x, (Val){v});
    }
    return true;
}

Executor *exec_open(const Plan *p, const ExecOptions *opt, Diag *d)
{
    Executor *x = mem_new(1, sizeof *x);
    x->ops = opt->device ? opt->device : devices_here[0];
    x->plan = p;
    x->on = x->ops->open(p, opt, d);
    for (Space s = 0; s < SPACES && x->on && x->ops->map; s++)
        x->map[s] = x->ops->map(x->on, s);
    x->copy = mem_new(p->g->nvals, sizeof *x->copy);
    if (x->on && load_values(x, opt, d))
        return x;
    exec_close(x);
    return NULL;
}

void exec_close(Executor *x)
{
    if (!x)
        return;
    for (uint32_t v = 0; v < x->plan->g->nvals; v++)
        free(x->copy[v]);
    free(x->copy);
    if (x->on)
        x->ops->close(x->on);
    free(x);
}

bool exec_micro(Executor *x, double *seconds, Diag *d)
{
    return x->ops->run(x->on, false, seconds, d);
}

bool exec_rest(Executor *x, double *seconds, Diag *d)
{
    return x->plan->nmicro == x->plan->nstep || x->ops->run(x->on, true, seconds, d);
}

/* ---- runs beside the host ------------------------------------------------------------------------ */

int exec_flight(const Executor *x) { return x->ops->begin ? 2 : 1; }

bool exec_begin(Executor *x, Diag *d)
{
    x->start = clock_seconds();
    return !x->ops->begin || x->ops->begin(x->on, d);
}

bool exec_end(Executor *x, Val v, Diag *d)
{
    int64_t at = place(x, v);
    x->seconds = clock_seconds() - x->start;
    x->loss = at < 0 ? (Val){0} : v;
    return !x->ops->end || x->ops->end(x->on, at, at < 0 ? 0 : type_bytes(val_type(x->plan->g, v)), d);
}

bool exec_finish(Executor *x, double *loss, double *seconds, Diag *d)
{
    double room;
    Tensor t = {.data = NULL};
    if (x->loss.i)
        t = x->ops->finish ? (Tensor){*val_type(x->plan->g, x->loss), &room} : exec_tensor(x, x->loss);
    *seconds = x->seconds;
    TRY(x->ops->finish ? x->ops->finish(x->on, &room, t.data ? type_bytes(&t.type) : 0, seconds, d)
                       : !t.data || exec_read(x, x->loss, d));
    *loss = t.data ? tensor_f(&t, 0) : NAN;
    return true;
}

const Plan *exec_plan(const Executor *x) { return x->plan; }
