/* device.h -- what is asked of a device: what it is and what commands cost there, to plan; one arena and the
 * steps of a plan on it, to run. */
#ifndef CKC_RUNTIME_DEVICE_H
#define CKC_RUNTIME_DEVICE_H

#include "runtime.h"

typedef struct DeviceOps {
    const char *name; /* of --device, and in schedules */
    bool numbered;    /* there may be several: cuda:1 is the second */
    bool threads;     /* a run takes a number of them */
    /* Its convolutions take and make [N, s..., C], where a place's channels are a multiple of so many bytes
     * (passes/layout.c); 0 or NULL: [N, C, s...]. */
    int (*channels_last)(void);
    bool either_order; /* or [N, C, s...] of a network where much stands between them that is not */
    /* What it is; refers to memory of a.  False: it is not here. */
    bool (*info)(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
    /* Is everything found that steps run with?  Then a run may choose the device by itself.  NULL: no. */
    bool (*complete)(Diag *d);
    /* One line for people on what was found with it, versions and free memory; NULL: nothing to say. */
    const char *(*about)(int ordinal, Arena *a);

    /* Ways to run commands, as shapes decide (plan.h): among them is the one with the least workspace that it
     * has; NULL: every kernel is its text.  times: what they take, measured; NULL: nothing is.  The user of
     * both is the profile. */
    CostFn *choose;
    TimesFn *times;
    /* What those two keep.  NULL: nothing, and their user is NULL. */
    void *(*profile_open)(const ProfileOptions *o, Diag *d); /* NULL: failed */
    void (*profile_close)(void *profile);
    /* Times of a run instead of those that were measured: seconds[i] of the command that starts with node
     * first[i]; of several that are alike the mean counts. */
    bool (*learn)(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);

    /* Memory of plan->arena_bytes; kernels compiled, library routines made: everything that can be
     * refused is refused here.  The plan must outlive it.  NULL: failed. */
    void *(*open)(const Plan *p, const ExecOptions *o, Diag *d);
    void (*close)(void *x);
    /* The steps of a micro-batch or, with `rest`, those behind them, then the updates that are not in
     * place.  seconds: NULL, or per plan step its least time so far (0: none), which is kept up: by every
     * run, or by the first two, of which the second is warm. */
    bool (*run)(void *x, bool rest, double *seconds, Diag *d);
    /* Where runs go on beside the host; all three NULL: they have ended when run returns.  Around the runs
     * whose result, at most 8 bytes, is wanted: begin, and end, which copies it behind them.  Two may be
     * between begin and finish, which waits for the earlier one: its result, and the seconds from begin to
     * end. */
    bool (*begin)(void *x, Diag *d);
    bool (*end)(void *x, int64_t at, int64_t bytes, Diag *d);
    bool (*finish)(void *x, void *result, int64_t bytes, double *seconds, Diag *d);
    /* A space as the host addresses it; NULL where it cannot, and bytes are copied behind what has been run:
     */
    char *(*map)(void *x, Space space);
    bool (*write)(void *x, Space space, int64_t at, const void *from, int64_t bytes, Diag *d);
    bool (*read)(void *x, Space space, int64_t at, void *to, int64_t bytes, Diag *d);
} DeviceOps;

extern const DeviceOps cpu_device;
/* Checks every launch and runs it through the interpreter of kernels, in double precision: a judge of
 * plans and programs, not a way to train. */
extern const DeviceOps fake_device;
/* An NVIDIA GPU; whether there is one, info says. */
extern const DeviceOps cuda_device;

/* Computes nothing: writes initial values and inputs of steps to the files of ExecOptions (record.c). */
extern const DeviceOps record_device;

/* Those that plans can run on; the first is the default.  Ends with NULL. */
extern const DeviceOps *const devices_here[];
/* Who plans for a device of that kind, though none may be here; NULL: what is in its file is all that is
 * known. */
const DeviceOps *device_planner(const DeviceInfo *d);
/* By name, or name:number, which goes to *ordinal; name NULL: the default.  NULL if there is none of that
 * name. */
const DeviceOps *device_here(const char *name, int *ordinal);

#endif
