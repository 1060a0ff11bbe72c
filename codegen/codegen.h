/* codegen.h -- kernel descriptions printed as C and CUDA C.
 *
 * Both printers write the same computation: the loop analysis is shared (schedule.h), the scalar
 * text of operators is pasted unchanged, and the functions it names (EXP, TANH, ...) come from one
 * source (codegen/prelude/math.h).  Results depend on the kernel alone, never on the number of
 * threads: reductions run in fixed lanes and chunks joined by a fixed tree. */
#ifndef CKC_CODEGEN_H
#define CKC_CODEGEN_H

#include "../ir/plan.h"

/* Errors stay in the file: ferror(). */

/* ---- C (c.c): void NAME(void *const *op), op[i] = operand i of the kernel ------- */

void codegen_prelude_c(FILE *f); /* printed once, before the first kernel */
/* The prelude, and functions that several of k[0..n) call. */
void codegen_shared_c(FILE *f, const Kernel *const *k, int n);
void kernel_print_c(const Kernel *k, const char *name, FILE *f);
/* The same text for kernels that differ only in the keys of their random draws. */
void kernel_print_keyless_c(const Kernel *k, FILE *f);

/* Prelude and the distinct kernels among k[0..n), named ck_0, ck_1, ...: kernel i runs as
 * ck_<func_of_kernel[i]>.  Returns the number of functions. */
int codegen_c(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

/* ---- CUDA C (cuda.c): __global__ void NAME(operand pointers in kernel order) ----- */

void codegen_prelude_cuda(FILE *f); /* printed once, before the first kernel */
void kernel_print_cuda(const Kernel *k, const char *name, FILE *f);
int codegen_cuda(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

typedef struct {
    unsigned grid, block; /* 1-D: blocks, threads per block */
} CudaLaunch;
CudaLaunch kernel_cuda_launch(const Kernel *k);

/* cuda_schedule.c: the whole step as one source: prelude, kernels, cuBLASLt products and the
 * host functions ckc_open, ckc_step, ckc_close (prelude/host.h says how to call them). */
bool codegen_cuda_schedule(FILE *f, const Plan *p, Diag *d);

/* Sources pasted in front of kernels, as lines ending with NULL (embedded at build time). */
extern const char *const prelude_philox[], *const prelude_math[], *const prelude_c[],
    *const prelude_cuda[], *const prelude_host[], *const prelude_attention[];

#endif
