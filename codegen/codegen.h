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

/* Errors stay in the file: ferror(). */
typedef void KernelPrint(const Kernel *k, const char *name, FILE *f);
/* The text under a fixed name: equal for equal kernels.  The caller frees it. */
char *kernel_print_text(KernelPrint *print, const Kernel *k);

/* ---- C (c.c): void NAME(void *const *op), op[i] = operand i of the kernel ------- */

void codegen_prelude_c(FILE *f); /* printed once, before the first kernel */
/* The prelude, and functions that several of k[0..n) call. */
void codegen_shared_c(FILE *f, const Kernel *const *k, int n);
KernelPrint kernel_print_c;
/* The same text for kernels that differ only in the keys of their random draws. */
KernelPrint kernel_print_keyless_c;

/* Prelude and the distinct kernels among k[0..n), named ck_0, ck_1, ...: kernel i runs as
 * ck_<func_of_kernel[i]>.  Returns the number of functions. */
int codegen_c(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

/* ---- ONNX (onnx.c) ---------------------------------------------------------------------------- */

typedef struct {
    uint32_t noutputs; /* of the graph's outputs, the loss and the model's; gradients follow */
    /* The value before the first step into t->data. */
    bool (*value)(void *user, Val v, Tensor *t, Diag *d);
    void *user;
    NewFile *data; /* receives what is large; the model names it data_name */
    const char *data_name;
} OnnxStep;

/* The step as a model; in f only if it went well.  f and `value` NULL: can it be?  EXIT_UNSUPPORTED: an
 * operator has no translation.  Covers a single batch only; a plan with micro-batches is not represented. */
bool codegen_onnx(FILE *f, const Plan *p, const OnnxStep *how, Diag *d);

/* A policy of torch.utils.checkpoint, as a Python file (torch.c).  The first `results` outputs are no
 * gradients. */
void codegen_torch(FILE *f, const Plan *p, uint32_t results);

/* ---- CUDA C (cuda.c) ------------------------------------------------------------------
 *
 * A kernel is one or several __global__ functions, its phases, launched one behind the other: NAME,
 * NAME_1, NAME_2 and so on.  Each takes the operands' pointers in kernel order and, where there is one, the
 * workspace behind them; then keys, int64_t, in which kernels of one text differ: those of random draws, and
 * how many elements there are where a pointwise kernel walks all its operands alike. */

/* Printed once, before the first kernel: all of it, or what k[0..n) need. */
void codegen_prelude_cuda(FILE *f);
void codegen_shared_cuda(FILE *f, const Kernel *const *k, int n);
KernelPrint kernel_print_cuda;
int codegen_cuda(FILE *f, const Kernel *const *k, int n, int *func_of_kernel);

/* A kernel of several calls takes a table of their operands and keys by value (prelude/cuda.h), and has one
 * key, the blocks of a call. */
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

/* Depends on the kernel alone, as its results do: not on the device. */
CudaLaunch kernel_cuda_launch(const Kernel *k);
/* Is it a product, convolution or attention whose items are computed one by one? */
bool kernel_cuda_is_scalar(const Kernel *k);
bool kernel_cuda_is_point(const Kernel *k); /* pointwise, chunk by chunk: it may have several calls */
/* Its keys, NULL: only their number, at most CUDA_KEYS. */
int kernel_cuda_keys(const Kernel *k, int64_t *key);
/* The function of a phase of kernel `name`. */
const char *cuda_phase_name(const char *name, int phase, char buf[CUDA_NAME]);

/* Where the workspace of a launch lies, aligned, among the bytes that the plan has for it; -1: it needs none.
 * Has the plan enough? */
int64_t cuda_workspace_at(const Launch *l, const CudaLaunch *of);
bool cuda_workspace_fits(const Launch *l, const CudaLaunch *of);

/* Choices of a step (Step.choice), and of its kernel, by what the GPU has: products of warpgroups, where
 * there is such a text; tiles of attention for less shared memory. */
enum { CUDA_WGMMA_CAPABILITY = 90 };   /* sm_90a's alone */
enum { CUDA_SHARED_LEAST = 99 << 10 }; /* bytes that a block may have on any GPU: 8.6, 8.9, 12.0 */
extern const char cuda_wgmma[];        /* "wgmma" */
extern const char cuda_small_tiles[];  /* "small_tiles" */
bool kernel_cuda_has_wgmma(const Kernel *k);
/* Is it attention whose tiles do not fit so many bytes? */
bool kernel_cuda_wants_small_tiles(const Kernel *k, int64_t shared);
/* As steps' choices have it, in place of kernels that are there; wgmma: the GPU has them.  What does not fit
 * `shared` bytes has small tiles without being asked: how many kernels. */
int64_t cuda_choose_texts(Launches *l, const uint32_t *first, const Plan *p, bool wgmma, int64_t shared);

/* cuda_batch.c: launches of a Program that are calls of one kernel, as one. */
typedef struct {
    uint32_t calls;       /* this launch and those behind it; 0: it is one of an earlier launch's */
    const Kernel *kernel; /* what runs, with as many calls; NULL: copies */
} CudaBatch;
/* Per launch; allocated in a.  Steps from nmicro on run when the others have. */
CudaBatch *cuda_batches(const Program *p, uint32_t nmicro, uint32_t nstep, Arena *a);

/* cuda_schedule.c: the whole step as one source: prelude, kernels, cuBLASLt products and the
 * host functions ckc_open, ckc_micro, ckc_rest, ckc_close (prelude/host.h says how to call them). */
bool codegen_cuda_schedule(FILE *f, const Plan *p, Diag *d);

/* Sources pasted in front of kernels, as lines ending with NULL (embedded at build time). */
typedef const char *const Prelude[];
extern Prelude prelude_philox, prelude_math, prelude_c, prelude_cuda, prelude_gather, prelude_tensor,
    prelude_host, prelude_main, prelude_attention, prelude_attention_product, prelude_tiles,
    prelude_attention_tile, prelude_attention_forward, prelude_attention_backward, prelude_conv,
    prelude_conv_tiles, prelude_conv_direct, prelude_pool, prelude_wgmma;

#endif
