/* device.h -- the interface of a device: for planning, its description and the costs of commands; for
 * running, an arena and the steps of a plan on it. */
#ifndef CKC_RUNTIME_DEVICE_H
#define CKC_RUNTIME_DEVICE_H

#include "runtime.h"

typedef struct DeviceOps {
    const char *name; /* in --device and in schedules */
    bool numbered;    /* there may be several: cuda:1 is the second */
    bool threads;     /* a run takes a number of threads */
    /* Convolutions take and make images as [N, s..., C], with the channels padded to a multiple of the bytes
     * returned (passes/layout.c); 0 or NULL: as [N, C, s...]. */
    int (*channels_last)(void);
    bool either_order; /* [N, C, s...] is fine too, and better if much between convolutions is transposed */
    /* Describes the device; *out refers to memory of a.  False: the device is not here. */
    bool (*info)(int ordinal, DeviceInfo *out, Arena *a, Diag *d);
    /* Is everything found that steps need to run?  Then a run may choose the device by itself.  NULL: no. */
    bool (*complete)(Diag *d);
    /* One line for people on what was found: versions, free memory.  NULL: nothing to say. */
    const char *(*about)(int ordinal, Arena *a);

    /* choose: the ways to run each command, which shapes decide (plan.h), including the one with the least
     * workspace; NULL: every kernel runs as text.  times: their measured times; NULL: nothing is measured.
     * The `user` of both is the profile. */
    CostFn *choose;
    TimesFn *times;
    /* Opens and closes the profile, the state of choose and times.  NULL: there is none, and their user is
     * NULL. */
    void *(*profile_open)(const ProfileOptions *o, Diag *d); /* NULL: failed */
    void (*profile_close)(void *profile);
    /* Replaces measured times by those of a run: seconds[i] is the time of the command that starts with node
     * first[i]; equal commands get the mean of their times. */
    bool (*learn)(void *profile, const NodeId *first, const double *seconds, uint32_t n, Diag *d);

    /* Allocates plan->arena_bytes, compiles kernels and makes library routines: everything that can be
     * refused is refused here.  The plan must outlive what is returned.  NULL: failed. */
    void *(*open)(const Plan *p, const ExecOptions *o, Diag *d);
    void (*close)(void *x);
    /* Runs the steps of a micro-batch or, with `rest`, the steps after the micro-batches, then the updates
     * that are not in place.  seconds: NULL, or the least time of each plan step so far (0: none), which
     * every run updates, or only the first two, of which the second is warm. */
    bool (*run)(void *x, bool rest, double *seconds, Diag *d);
    /* For a device whose runs are asynchronous; all three NULL: a run has ended when `run` returns.  begin
     * and end enclose the runs whose result (at most 8 bytes) is wanted; end enqueues the copy of the result.
     * Two such may be begun and not finished; finish waits for the earlier one and returns its result, and
     * the seconds from begin to end. */
    bool (*begin)(void *x, Diag *d);
    bool (*end)(void *x, int64_t at, int64_t bytes, Diag *d);
    bool (*finish)(void *x, void *result, int64_t bytes, double *seconds, Diag *d);
    /* A space as the host addresses it; NULL if the host cannot: then write and read copy bytes, in order
     * with the runs before them. */
    char *(*map)(void *x, Space space);
    bool (*write)(void *x, Space space, int64_t at, const void *from, int64_t bytes, Diag *d);
    bool (*read)(void *x, Space space, int64_t at, void *to, int64_t bytes, Diag *d);
} DeviceOps;

extern const DeviceOps cpu_device;
/* Checks every launch and runs it through the interpreter of kernels, in double precision: it tests plans and
 * programs and is not meant for training. */
extern const DeviceOps fake_device;
/* An NVIDIA GPU; its info says whether there is one. */
extern const DeviceOps cuda_device;

/* Computes nothing; writes initial values and the inputs of steps to the files of ExecOptions (record.c). */
extern const DeviceOps record_device;

/* The devices that plans can run on, NULL-terminated; the first is the default. */
extern const DeviceOps *const devices_here[];
/* The ops that plan for such a device, which need not be present; NULL: nothing is known about it but what
 * its description says. */
const DeviceOps *device_planner(const DeviceInfo *d);
/* Finds a device by "NAME" or "NAME:NUMBER", which sets *ordinal; name NULL: the default.  NULL if there is
 * none of that name. */
const DeviceOps *device_here(const char *name, int *ordinal);

#endif
