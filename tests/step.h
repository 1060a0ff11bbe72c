/* step.h -- a compiled training step for tests: model to executor in one call. */
#ifndef CKC_TESTS_STEP_H
#define CKC_TESTS_STEP_H
#include "passes/passes.h"
#include "runtime/device.h"
#include <math.h>

typedef struct {
    Arena arena, tmp;
    Diag diag;
    Graph g;
    OnnxModel *model;
    StepOptions opt;
    StepInfo info;
    const DeviceOps *device; /* to run on, and to plan for if it is set before; NULL: this processor */
    CostFn *choose;          /* of another device than the one it is for; NULL: that one's */
    const DeviceOps *planned; /* for */
    DeviceInfo info_of;       /* the device, where it is not this processor */
    void *profile;            /* of `planned` */
    Executor *exec;
    int64_t steps; /* run so far on given data */
} TestStep;

/* Options with every "not said" filled in; the caller changes what it wants, then compiles. */
void step_init(TestStep *s);
/* Import and plan; false with s->diag.  Ends the test on an invalid plan.  init: parameters may come
 * without values. */
bool step_plan(TestStep *s, const char *path, const Init *init);
bool step_open(TestStep *s, const Init *init); /* what is planned */
bool step_compile(TestStep *s, const char *path, const Init *init); /* both */
/* Likewise of a graph in text form. */
bool step_compile_text(TestStep *s, const char *text, const Init *init);
void step_free(TestStep *s);
char *plan_text(const Plan *p); /* printed; free() it */

bool exec_step(Executor *x, double *seconds, Diag *d); /* without micro-batches: exec_micro, exec_rest */
/* Run n more steps on the entries of data ("input/NAME", "target"), or n on random data when NULL. */
void step_run(TestStep *s, DataFile *data, int64_t n, double *loss);
/* A digest of parameters, state, and outputs (loss and, with keep_grads, gradients). */
uint64_t step_digest(TestStep *s);
/* The same bits at 75, 60, 50 % and the least budget as without one?  Compared are losses,
 * parameters, running statistics and optimizer state after two steps of AdamW, whose first moment
 * after a step is a tenth of the gradient: gradients are compared with it. */
void check_budgets(const char *path, const OnnxOptions *import, const Init *init, PrecisionKind precision);
#endif
