/* codegen.h -- kernel descriptions printed as C and CUDA C.
 *
 * Both printers write the same computation: the loop analysis is shared (schedule.h), the scalar
 * text of operators is pasted unchanged, and the functions it names (EXP, TANH, ...) come from one
 * source (codegen/prelude/math.h).  Results depend on the kernel alone, never on the number of
 * threads: reductions run in fixed lanes and chunks joined by a fixed tree. */
#ifndef CKC_CODEGEN_H
#define CKC_CODEGEN_H

#include "ir/file.h"
#include "ir/program.h"

/* Prints a kernel as a function `name`.  Write errors are left in the file's ferror(). */
typedef void KernelPrint(const Kernel *k, const char *name, FILE *f);
/* The kernel printed under a fixed name, so that equal kernels have equal texts.  The caller frees it. */
char *kernel_print_text(KernelPrint *print, const Kernel *k);

/* ---- C (c.c): void NAME(void *const *op), op[i] = operand i of the kernel ------- */

void codegen_prelude_c(FILE *f); /* printed once, before the first kernel */
/* Prints the prelude and the functions that several of k[0..n) call. */
void codegen_shared_c(FILE *f, const Kernel *const *k, int n);
KernelPrint kernel_print_c;
/* Prints the same text for kernels that differ only in the keys of their random draws. */
KernelPrint kernel_print_keyless_c;

/* Prints the prelude and the distinct kernels among k[0..n), named ck_0, ck_1, ...: kernel i runs as
 * ck_<func_of_kernel[i]>.  Returns the number of functions. */
int codegen_c(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

/* ---- ONNX (onnx.c) ---------------------------------------------------------------------------- */

typedef struct {
    const char *const *output; /* names of the graph's outputs; one that an input has gets a number there */
    uint32_t noutputs; /* number of the graph's outputs that are the loss or the model's; gradients follow */
    /* Writes what v is before the first step into t->data. */
    bool (*value)(void *user, Val v, Tensor *t, Diag *d);
    void *user;
    NewFile *data; /* receives large values; the model refers to it as data_name */
    const char *data_name;
} OnnxStep;

/* Writes the step as a model to f, only if all of it can be translated; with f and `value` NULL it only
 * checks that.  EXIT_UNSUPPORTED: an operator has no translation.  Covers a single batch only; a plan with
 * micro-batches is not represented. */
bool codegen_onnx(FILE *f, const Plan *p, const OnnxStep *how, Diag *d);

/* Prints a policy for torch.utils.checkpoint as a Python file (torch.c).  The first `results` outputs are not
 * gradients. */
void codegen_torch(FILE *f, const Plan *p, uint32_t results);

/* ---- CUDA C (cuda.c) ------------------------------------------------------------------
 *
 * A kernel is one or several __global__ functions, its phases, launched one after the other: NAME, NAME_1,
 * NAME_2 and so on.  Each takes the operands' pointers in kernel order, then the workspace if there is one,
 * then int64_t keys, in which kernels of one text differ: the keys of random draws, and the number of
 * elements where a pointwise kernel walks all its operands alike. */

/* Print the prelude, once before the first kernel: all of it, or the parts that k[0..n) need. */
void codegen_prelude_cuda(FILE *f);
void codegen_shared_cuda(FILE *f, const Kernel *const *k, int n);
KernelPrint kernel_print_cuda;
int codegen_cuda(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

/* A kernel of several calls takes a table of their operands and keys by value (prelude/cuda.h), and has one
 * key, the number of blocks of a call. */
enum { CUDA_PHASES = 4, CUDA_KEYS = 64, CUDA_NAME = 80, CUDA_WORKSPACE_ALIGN = 256, CUDA_TABLE = 500 };

typedef struct {
    unsigned grid, block; /* 1-D: blocks, threads per block */
    unsigned shared;      /* bytes of dynamic shared memory of a block */
} CudaPhase;

typedef struct {
    CudaPhase phase[CUDA_PHASES];
    int n;
    int64_t workspace; /* bytes that the phases share; 0: none */
} CudaLaunch;

/* The phases of a kernel and their grids, which depend on the kernel alone, not on the device. */
CudaLaunch kernel_cuda_launch(const Kernel *k);
/* Is it a product, convolution or attention without a tiled text, whose items are computed one by one? */
bool kernel_cuda_is_scalar(const Kernel *k);
/* Sets the threads and operations (Kernel.threads, Kernel.flops) of a body that is computed item by item, or
 * has a text of its own; any other kernel's text starts as many threads as pay. */
void kernel_cuda_work(Kernel *k);
bool kernel_cuda_is_point(const Kernel *k); /* pointwise, nothing transposed: it may have several calls */
/* Writes the kernel's keys to `key` unless it is NULL; returns their number, at most CUDA_KEYS. */
int kernel_cuda_keys(const Kernel *k, int64_t *key);
/* The name of the function of a phase of kernel `name`: `name` itself or text in buf. */
const char *cuda_phase_name(const char *name, int phase, char buf[CUDA_NAME]);

/* The aligned offset of a launch's workspace within the bytes that the plan reserves for it; -1: it needs
 * none.  Does the workspace fit those bytes? */
int64_t cuda_workspace_at(const Launch *l, const CudaLaunch *of);
bool cuda_workspace_fits(const Launch *l, const CudaLaunch *of);

/* Values of Step.choice, which select a kernel's text by what the GPU has: products of warpgroups, where
 * there is such a text; attention tiles that need less shared memory. */
enum { CUDA_WGMMA_CAPABILITY = 90 };   /* only sm_90a has wgmma */
enum { CUDA_SHARED_LEAST = 99 << 10 }; /* bytes of shared memory a block has on every GPU: 8.6, 8.9, 12.0 */
extern const char cuda_wgmma[];        /* "wgmma" */
extern const char cuda_small_tiles[];  /* "small_tiles" */
bool kernel_cuda_has_wgmma(const Kernel *k);
/* Is it attention of which a block needs more than `shared` bytes of shared memory? */
bool kernel_cuda_wants_small_tiles(const Kernel *k, int64_t shared);
/* Replaces the kernels of launches first[s] to first[s + 1] by copies with the text that step s chose; wgmma:
 * the GPU has it.  Attention that does not fit `shared` bytes gets small tiles even if its step did not
 * choose them; returns the number of launches of which that is true. */
int64_t cuda_choose_texts(Launches *l, const uint32_t *first, const Plan *p, bool wgmma, int64_t shared);

/* cuda_batch.c: joins launches of a Program that are calls of one kernel into one launch. */
typedef struct {
    uint32_t calls;       /* launches in the batch that begins here; 0: this one is in an earlier batch */
    const Kernel *kernel; /* the kernel that runs, with as many calls; NULL: the launch is copies */
} CudaBatch;
/* The batch of each launch, allocated in a.  Steps [0, nmicro) and [nmicro, nstep) are batched apart. */
CudaBatch *cuda_batches(const Program *p, uint32_t nmicro, uint32_t nstep, Arena *a);

/* cuda_schedule.c: the whole step as one source: prelude, kernels, cuBLASLt products and the
 * host functions ckc_open, ckc_micro, ckc_rest, ckc_close (prelude/host.h says how to call them). */
bool codegen_cuda_schedule(FILE *f, const Plan *p, Diag *d);

/* Sources pasted in front of kernels, as arrays of lines that end with NULL (embedded at build time). */
typedef const char *const Prelude[];
extern Prelude prelude_philox, prelude_math, prelude_c, prelude_cuda, prelude_gather, prelude_gather_sum,
    prelude_tensor, prelude_host, prelude_main, prelude_attention, prelude_attention_product, prelude_tiles,
    prelude_attention_tile, prelude_attention_forward, prelude_attention_backward, prelude_conv,
    prelude_conv_tiles, prelude_conv_direct, prelude_pool, prelude_scan, prelude_topk, prelude_wgmma;

#endif
