/* choose.c -- what commands need on an NVIDIA GPU beside their operands.  No device is asked: plans are made
 * for GPUs that are not there as well. */
#include "cuda.h"

/* Behind the buffers of a loop: launches use it one after the other. */
static int64_t workspace_bytes(const Command *c)
{
    Arena a = {0};
    Launches l = {.arena = &a};
    int64_t most = 0, own = command_workspace_bytes(c);
    command_launches(c, &l);
    for (uint32_t i = 0; i < l.nkernel && !c->copy; i++) {
        int64_t bytes = kernel_cuda_launch(l.kernel[i]).workspace;
        most = bytes > most ? bytes : most;
    }
    arena_free(&a);
    return most ? align_up(own, CUDA_WORKSPACE_ALIGN) + most : own;
}

bool cuda_choose(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)user, (void)d;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (StepCost){.c = {{NULL, workspace_bytes(&c[i]), -1}}, .n = 1, .same = 1};
    return true;
}
