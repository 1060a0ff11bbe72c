/* ckc.h -- the library: plan and run training steps within a memory budget from other programs, with the
 * functions of ckc plan, ckc train and ckc run.  docs/library.md explains them, examples/embed/ has a
 * program.
 *
 * A session is one planned training step with the state of its run: weights, optimizer state and the number
 * of steps made.  Its results equal those of the command line with the same options, bit for bit.
 *
 * Errors are values: a function that fails returns a status other than CKC_OK, or NULL, and describes the
 * failure in the ckc_error, unless that is NULL.  The library prints nothing, handles no signals, never exits
 * the process and does not depend on the locale.  It runs the C compiler as a child process.
 *
 * Threads: sessions are independent of each other; any thread may use a session, but only one at a time.  A
 * step runs on as many threads of the OpenMP runtime as the option "threads" says.
 *
 * Strings are as in the model and end with a zero byte.  What is returned by const pointer belongs to the
 * session and is valid until ckc_free(); arguments are only read during the call, and no pointer may be NULL
 * but where it is said. */
#ifndef CKC_H
#define CKC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKC_API __attribute__((visibility("default")))

typedef struct ckc_session ckc_session;

/* ---- errors ---------------------------------------------------------------------------------------- */

/* The values are the exit statuses of the command. */
enum {
    CKC_OK,
    CKC_BAD_INPUT,   /* a file, an option or an array is invalid */
    CKC_UNSUPPORTED, /* the model needs an operator or a feature that ckc lacks */
    CKC_INFEASIBLE,  /* the budget cannot be met */
    CKC_DEVICE /* device, memory, compiler or disk failed, or a loss is not finite */
};

typedef struct ckc_error {
    int status;
    int64_t least_bytes; /* with CKC_INFEASIBLE the smallest budget known to be feasible, 0 if none is known;
                          * with any other status 0 */
    char message[4096];  /* one line, "FILE: reason", without control characters; it names options as on the
                          * command line, --budget */
} ckc_error;

/* ---- sessions -------------------------------------------------------------------------------------- */

/* The version of the library, such as "0.1". */
CKC_API const char *ckc_version(void);

/* Plans a training step of an ONNX model; returns NULL on failure.  options: NULL, or a NULL-terminated array
 * of strings "NAME=VALUE", or "NAME" for options without a value: "budget=50%", "bind=batch=8",
 * "optimizer=sgd", "nesterov".  Options are those of ckc plan (ckc help plan), except those for printing and
 * writing, and lr, schedule, warmup, min-lr, steps, epochs, shuffle, training, checkpoint and resume of ckc
 * train; only the library has grads.
 *   steps, epochs        set the length of the learning-rate schedule; ckc_train() makes any number of steps
 *   steps=0              only plans: weights need no values, and the device need not be present
 *   checkpoint, resume   see ckc_checkpoint()
 *   grads                see ckc_output()
 * Planning takes seconds to minutes; compiled kernels and their measured times are kept in the same cache as
 * the command's.  The model's file must not change while the session exists. */
CKC_API ckc_session *ckc_plan(const char *model, const char *const *options, ckc_error *error);

/* Opens a session on a schedule that ckc_write_schedule() or the command wrote (DIR/step.ckp); returns NULL
 * on failure.  options: those of the above that ckc run has; all others are as in the run that wrote it. */
CKC_API ckc_session *ckc_open(const char *schedule, const char *const *options, ckc_error *error);

CKC_API void ckc_free(ckc_session *s); /* NULL is fine */

/* ---- what was planned ------------------------------------------------------------------------------ */

/* Bytes and seconds of a step.  Later versions may append fields. */
typedef struct ckc_info {
    int64_t arena_bytes;    /* size of the single allocation that a step runs in */
    int64_t host_bytes;     /* size of a device plan's second arena, in host memory; 0: there is none */
    int64_t budget_bytes;   /* 0: none was given */
    int64_t keep_all_bytes; /* arena size if everything were stored and nothing recomputed */
    int64_t least_bytes;    /* smallest budget known to be feasible; 0: not looked for */
    double seconds;         /* predicted time of a step; 0, here and in the next two: not known */
    double base_seconds;    /* predicted time of a step without recomputation */
    double bound_seconds;   /* lower bound on the time of any schedule within the budget */
    int64_t kernels;        /* kernels that a step runs */
    int64_t recomputed;     /* how many of the kernels are recomputations */
    int64_t micro_batches;  /* micro-batches per step, at least 1 */
    int64_t steps;          /* length of the learning-rate schedule in steps; 0: nothing can be run */
} ckc_info;

CKC_API const ckc_info *ckc_get_info(const ckc_session *s);

/* Remark k (from 0) made while planning and opening; NULL past the last. */
CKC_API const char *ckc_note(const ckc_session *s, int k);

/* Writes the schedule, its kernels and report.json to a folder, as ckc plan --output does.  Needs a session
 * of ckc_plan(), and may be called at any time: it writes the step, not the weights. */
CKC_API int ckc_write_schedule(ckc_session *s, const char *folder, ckc_error *error);

/* ---- tensors --------------------------------------------------------------------------------------- */

enum { CKC_F32 = 1, CKC_F64, CKC_BF16, CKC_F16, CKC_I64, CKC_I32, CKC_U8, CKC_BOOL, CKC_I8 };
enum { CKC_MAX_RANK = 8 };

/* Elements are in row-major order, without gaps. */
typedef struct ckc_tensor {
    const char *name;
    int type; /* CKC_F32, ... */
    int rank;
    int64_t dim[CKC_MAX_RANK];
    const void *data; /* elements of an array passed in, any alignment; NULL in descriptions */
} ckc_tensor;

/* Describe input or weight k (from 0) in *t; return 0 and leave *t alone if there is no such k.  Inputs are
 * the model's inputs that the step reads, and the targets of a loss that was added; an input's shape is that
 * of one micro-batch.  Weights are tensors of the model's file, listed under each of their names and the
 * names of their modules. */
CKC_API int ckc_input(const ckc_session *s, int k, ckc_tensor *t);
CKC_API int ckc_weight(const ckc_session *s, int k, ckc_tensor *t);

/* Describe output or gradient k (from 0) that can be read after a step; return 0 if there is no such k.  With
 * the option "grads" these are the model's outputs under their names, except the loss, and the gradients,
 * each under its parameter's name; they stay in memory to the end of the step, within the budget.  Without
 * "grads" only the outputs of a step without a loss: with "optimizer=none" and "loss=none" that is the
 * network in its inference form. */
CKC_API int ckc_output(const ckc_session *s, int k, ckc_tensor *t);
CKC_API int ckc_gradient(const ckc_session *s, int k, ckc_tensor *t);

/* Size of all elements in bytes. */
CKC_API size_t ckc_tensor_bytes(const ckc_tensor *t);

/* ---- training -------------------------------------------------------------------------------------- */

/* Makes `steps` steps.  loss: NULL, or room for the loss of each step (NaN if the step has none); entries
 * past a failure are left alone.  Every input is taken from the n arrays, by name, as from a file of --data:
 * an array has the shape of the input, or holds several batches, as more rows or along one more leading
 * dimension.  Step k of the session (from 1) takes batch k, wrapping around at the end; a step of m
 * micro-batches takes m batches.  Floats convert to floats and integers to integers, of the step's type.  All
 * elements are checked at every call: NaNs, and indices or class targets out of range, are errors, and no
 * step is made.
 * n = 0: the data of the option "data", or without that option random inputs in valid ranges.
 * The first step of a session compiles kernels, allocates the arena and reads the weights.
 * A loss that is not finite is reported as CKC_DEVICE, and the weights are lost. */
CKC_API int ckc_train(ckc_session *s, int64_t steps, const ckc_tensor *arrays, int n, double *loss,
                      ckc_error *error);

/* Called after every step of ckc_train() with its number, loss (NaN: it has none) and seconds (without the
 * data).  A result other than 0 ends ckc_train() with CKC_OK: no further step begins, but on a GPU one may be
 * running.  The callback may not use the session; to use it between steps, make one step per call. */
typedef int ckc_step_fn(void *user, int64_t step, double loss, double seconds);
CKC_API void ckc_on_step(ckc_session *s, ckc_step_fn *f, void *user); /* f NULL: none */

/* Number of steps made so far, including those before the checkpoint that the session resumed from. */
CKC_API int64_t ckc_steps(const ckc_session *s);

/* ---- weights and results --------------------------------------------------------------------------- */

/* Copies the elements of a weight, as they are between two steps; `bytes` must be the tensor's size. */
CKC_API int ckc_read(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);
/* Replaces the elements of a weight; optimizer state stays.  Constants of the step cannot be written. */
CKC_API int ckc_write(ckc_session *s, const char *name, const void *from, size_t bytes, ckc_error *error);

/* Copy an output or a gradient of the last step.  In a step of micro-batches an output is that of the last
 * micro-batch, a gradient the mean over all.  Gradients are free of the loss scale and not yet clipped. */
CKC_API int ckc_read_output(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);
CKC_API int ckc_read_gradient(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);

/* Writes all weights to a file, as --save does: .onnx, a copy of the model, or .safetensors.  Fails if
 * weights are not finite.  Replaces the file atomically: on failure it is as it was before. */
CKC_API int ckc_save(ckc_session *s, const char *path, ckc_error *error);

/* Writes a checkpoint (weights, optimizer state, number of steps) to the folder of the option "checkpoint",
 * crash-safe; the last two are kept.  With the option "resume" a session continues from the newest checkpoint
 * in the folder, bit for bit as if never interrupted; without it a folder that has one is refused. */
CKC_API int ckc_checkpoint(ckc_session *s, ckc_error *error);

#ifdef __cplusplus
}
#endif
#endif
