/* device.h -- what the runtime asks of a device: one arena, and the steps of a plan on it. */
#ifndef CKC_RUNTIME_DEVICE_H
#define CKC_RUNTIME_DEVICE_H

#include "runtime.h"

typedef struct DeviceOps {
    const char *name;
    /* Memory of plan->arena_bytes; kernels compiled, library routines made: everything that can be
     * refused is refused here.  The plan must outlive it.  NULL: failed. */
    void *(*open)(const Plan *p, const ExecOptions *o, Diag *d);
    void (*close)(void *x);
    /* The steps of a micro-batch or, with `rest`, those behind them, then the updates that are not in
     * place.  seconds: NULL, or per plan step its least time so far (0: none), which is kept up. */
    bool (*run)(void *x, bool rest, double *seconds, Diag *d);
    /* The arena as the host addresses it; NULL where it cannot, and bytes are copied: */
    char *(*map)(void *x);
    bool (*write)(void *x, int64_t at, const void *from, int64_t bytes, Diag *d);
    bool (*read)(void *x, int64_t at, void *to, int64_t bytes, Diag *d);
} DeviceOps;

extern const DeviceOps cpu_device;
/* Checks every launch and runs it through the interpreter of kernels, in double precision: a judge of
 * plans and programs, not a way to train. */
extern const DeviceOps fake_device;

#endif
