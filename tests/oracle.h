/* oracle.h -- a network with PyTorch's numbers (tests/torch/oracle.py, shared/fixtures/torch-oracle):
 * inputs, loss and gradients of the first step, and five steps of three optimizers. */
#ifndef CKC_TESTS_ORACLE_H
#define CKC_TESTS_ORACLE_H
#include "step.h"
#include <jansson.h>

enum { NOPTIMS = 3, MAX_TIES = 4, MAX_FROZEN = 512 };

typedef struct {
    char dir[4096];
    json_t *meta;
    DataFile *data;
    bool judged;  /* else there are inputs only: the network has dropout */
    bool half;    /* computes in 16 bits */
    double single_error; /* of PyTorch's own gradient in single precision */
    bool chaotic;        /* which is more than 1e-4 */
    OnnxBind batch;
    OnnxTie tie[MAX_TIES]; /* that the exporter has cut */
    const char *freeze[MAX_FROZEN]; /* float tensors that are no parameters in PyTorch */
    int nfreeze;
    OnnxOptions import; /* refers to batch and tie: an Oracle stays where it is */
} Oracle;

void oracle_open(Oracle *o, const char *dir); /* fails the test if it cannot */
void oracle_close(Oracle *o);
/* A step of that file: what it is told, and where it lies. */
void oracle_options(const Oracle *o, const char *file, StepOptions *opt, char path[4200]);

/* What trains, the number of attentions; loss and gradients of the first step: within 1e-4 of the
 * gradients' norm (a chaotic network's 1e-2, in 16 bits 2e-2), in double precision 1e-7 (1e-6 where
 * the network is ill-conditioned: constants of the file are single).  Without PyTorch's numbers: in
 * double precision, differences of losses within 1e-6. */
void oracle_check_gradients(const Oracle *o, const char *file, bool f64);
/* Of the gradients of the first step, over the norm of those in double precision.  device: NULL: this
 * processor. */
double oracle_gradient_error(const Oracle *o, const char *file, PrecisionKind precision,
                             const DeviceOps *device);
/* Running statistics after a step; losses and parameters along five, in double precision within
 * 1e-6 of PyTorch's.  In single precision each of the five steps, within 1e-4 of the gradients'
 * norm (a chaotic network's first: 1e-2), against one in double precision from the same weights. */
void oracle_check_training(const Oracle *o, const char *file, int optim, bool f64);
#endif
