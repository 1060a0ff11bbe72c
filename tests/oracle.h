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
    bool judged;  /* PyTorch's numbers are there; false: only inputs are, as the network has dropout */
    bool half;    /* the network computes in 16 bits */
    double single_error; /* of PyTorch's own gradient in single precision, over the gradient's norm */
    bool chaotic;        /* single_error is more than 1e-4 */
    OnnxBind batch;
    OnnxTie tie[MAX_TIES]; /* tied weights that the exporter has separated */
    const char *freeze[MAX_FROZEN]; /* names of float tensors that are no parameters in PyTorch */
    int nfreeze;
    OnnxOptions import; /* refers to batch and tie: an Oracle stays where it is */
} Oracle;

void oracle_open(Oracle *o, const char *dir); /* fails the test if dir has no oracle */
void oracle_close(Oracle *o);
/* Sets the options of a step of the oracle's `file`, and the path of that. */
void oracle_options(const Oracle *o, const char *file, StepOptions *opt, char path[4200]);

/* Checks which parameters train, the number of attentions, and loss and gradients of the first step.  The
 * gradients' error is at most 1e-4 of their norm (of a chaotic network 1e-2, in 16 bits 2e-2), in double
 * precision 1e-7 (1e-6 if the network is ill-conditioned: constants of the file are single).  Without
 * PyTorch's numbers, differences of losses in double precision agree with the gradients within 1e-6. */
void oracle_check_gradients(const Oracle *o, const char *file, bool f64);
/* The error of the gradients of the first step, over the norm of PyTorch's in double precision.  device NULL:
 * this processor. */
double oracle_gradient_error(const Oracle *o, const char *file, PrecisionKind precision,
                             const DeviceOps *device);
/* Checks the running statistics after a step, and five steps of one of the NOPTIMS optimizers.  In double
 * precision their losses and the parameters at the end are within 1e-6 of PyTorch's.  In single precision the
 * gradients of each step (of a chaotic network, the first) are within 1e-4 (1e-2) of their norm of those of a
 * step in double precision from the same weights. */
void oracle_check_training(const Oracle *o, const char *file, int optim, bool f64);
#endif
