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
    const DeviceOps *device;  /* runs the step; planned for if set before planning; NULL: this processor */
    CostFn *choose;           /* replaces the cost function of `planned`; NULL: that one is used */
    const DeviceOps *planned; /* the device that the step is planned for */
    DeviceInfo info_of;       /* describes the device, where it is not this processor */
    void *profile;            /* measured costs, opened by `planned`; NULL: none */
    Executor *exec;
    int64_t steps; /* number of steps run so far on given data */
} TestStep;

/* Clears s and sets the options to their defaults; the caller changes some and then plans or compiles. */
void step_init(TestStep *s);
/* Imports the model at path and plans its step; false: s->diag says why.  An invalid plan fails the test.
 * init: how parameters without values start; NULL: every parameter must have values. */
bool step_plan(TestStep *s, const char *path, const Init *init);
bool step_open(TestStep *s, const Init *init); /* opens an executor of the planned step */
bool step_compile(TestStep *s, const char *path, const Init *init); /* step_plan() and step_open() */
/* step_compile() for a graph in text form instead of a model file. */
bool step_compile_text(TestStep *s, const char *text, const Init *init);
void step_free(TestStep *s);
char *plan_text(const Plan *p); /* the plan as a schedule's text; the caller frees it */

/* Runs a step of a single micro-batch: exec_micro(), then exec_rest(). */
bool exec_step(Executor *x, double *seconds, Diag *d);
/* Runs n more steps on the entries "input/NAME" and "target" of data, or on random data if that is NULL, and
 * stores their losses. */
void step_run(TestStep *s, DataFile *data, int64_t n, double *loss);
/* A hash of the bits of parameters, states and outputs (the loss and, with keep_grads, the gradients). */
uint64_t step_digest(TestStep *s);
/* Checks that two steps of AdamW leave the same bits at 75, 60 and 50 % of the memory and at the least budget
 * as without a budget, in losses, parameters, running statistics and optimizer state.  Gradients are covered
 * by AdamW's first moment, which is a tenth of the gradient after the first step. */
void check_budgets(const char *path, const OnnxOptions *import, const Init *init, PrecisionKind precision);
#endif
