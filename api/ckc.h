/* ckc.h -- training steps within a budget of memory, inside of other programs: what ckc plan, ckc train and
 * ckc run do, as functions.  docs/library.md goes through them, examples/embed/ has a program.
 *
 * A session is one training step, planned, and what a run of it has: weights, optimizer state, the number of
 * steps made.  Its results are those of the command line with the same options, bit for bit.
 *
 * Errors are values: what fails returns a status that is not CKC_OK, or NULL, and describes itself in the
 * ckc_error, if that is not NULL.  Nothing is printed, no signal is taken, the process is not ended, and the
 * locale does not matter.  The C compiler is run as a child process.
 *
 * Threads: sessions are independent of each other; each may be used by any thread, but by one at a time.  A
 * step runs on as many threads as the option "threads" says, of the OpenMP runtime.
 *
 * Text is as in the model, and ends with a zero byte.  What is returned by const pointer belongs to the
 * session and lasts until ckc_free(); what is given is only read during the call. */
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

/* As the exit statuses of the command. */
enum {
    CKC_OK,
    CKC_BAD_INPUT,   /* a file, an option or an array is wrong */
    CKC_UNSUPPORTED, /* an operator or a feature */
    CKC_INFEASIBLE,  /* the budget cannot be met */
    CKC_DEVICE /* device, memory, compiler or disk failed, or the numbers did: a loss that is not finite */
};

typedef struct ckc_error {
    int status;
    int64_t least_bytes; /* of CKC_INFEASIBLE: the smallest budget known to be feasible; else, or where it is
                          * not known, 0 */
    char message[4096];  /* one line, "FILE: reason", without a control character; options in it are called as
                          * on the command line, --budget */
} ckc_error;

/* ---- sessions -------------------------------------------------------------------------------------- */

/* "0.1" */
CKC_API const char *ckc_version(void);

/* Plan a training step of an ONNX model.  options: NULL, or texts "NAME=VALUE", or "NAME" of those without a
 * value, and NULL behind the last: "budget=50%", "bind=batch=8", "optimizer=sgd", "nesterov".  They are those
 * of ckc plan (ckc help plan) but for what is printed and written, and of ckc train lr, schedule, warmup,
 * min-lr, steps, epochs, shuffle, training, checkpoint and resume; grads is the library's own.  Of these
 *   steps, epochs        say how long a schedule of the learning rate lasts: ckc_train() makes any number
 *   steps=0              plans alone: weights need not have values, and a device need not be here
 *   checkpoint, resume   see ckc_checkpoint()
 *   grads                see ckc_output()
 * What is planned is found in seconds to minutes, the measured times of kernels and the compiled ones are
 * kept in a cache, as by the command.  The model's file must stay as it is while there is the session.
 * NULL: failed. */
CKC_API ckc_session *ckc_plan(const char *model, const char *const *options, ckc_error *error);

/* Likewise of a schedule that ckc_write_schedule(), or the command, wrote: DIR/step.ckp.  What options do not
 * say is as in the run that wrote it; they are those above that ckc run has. */
CKC_API ckc_session *ckc_open(const char *schedule, const char *const *options, ckc_error *error);

CKC_API void ckc_free(ckc_session *s); /* NULL is fine */

/* ---- what was planned ------------------------------------------------------------------------------ */

/* Bytes and seconds of a step; later versions have more behind them. */
typedef struct ckc_info {
    int64_t arena_bytes;    /* of the one allocation that a step runs in */
    int64_t host_bytes;     /* likewise in the host's memory, beside a device's; 0: none */
    int64_t budget_bytes;   /* 0: none was given */
    int64_t keep_all_bytes; /* of the arena with everything stored, nothing recomputed */
    int64_t least_bytes;    /* smallest budget known to be feasible; 0: not looked for */
    double seconds;         /* predicted for a step; so the next two.  0: not known */
    double base_seconds;    /* without recomputation */
    double bound_seconds;   /* that no schedule within the budget is below */
    int64_t kernels;        /* of a step */
    int64_t recomputed;     /* of them, those that run again */
    int64_t micro_batches;  /* of a step, from 1 */
    int64_t steps;          /* that the schedule of the learning rate is for; 0: nothing can be run */
} ckc_info;

CKC_API const ckc_info *ckc_get_info(const ckc_session *s);

/* Remarks from planning and opening, indexed from k = 0; NULL past the last. */
CKC_API const char *ckc_note(const ckc_session *s, int k);

/* The schedule with its kernels and report.json into a folder, as ckc plan --output does; of a session of
 * ckc_plan(), at any time: it is of the step, not of the weights. */
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
    const void *data; /* of given arrays; need not be aligned.  NULL in descriptions */
} ckc_tensor;

/* Inputs of a step, those of the model that it reads and the targets of a loss that was added, and weights:
 * tensors of the model's file, under each of their names and those of their modules.  From k = 0; 0: there is
 * no such, *t is as it was.  The shape of an input is that of one micro-batch. */
CKC_API int ckc_input(const ckc_session *s, int k, ckc_tensor *t);
CKC_API int ckc_weight(const ckc_session *s, int k, ckc_tensor *t);

/* What a step leaves to be read, likewise.  With the option "grads": the model's outputs under their names,
 * but the one that is the loss, and the gradients, each under the name of its parameter; they take memory up
 * to the end of the step, within the budget.  Without it: the outputs of a step that has no loss; with
 * "optimizer=none" and "loss=none" that is the network in its inference form. */
CKC_API int ckc_output(const ckc_session *s, int k, ckc_tensor *t);
CKC_API int ckc_gradient(const ckc_session *s, int k, ckc_tensor *t);

/* The bytes of all elements. */
CKC_API size_t ckc_tensor_bytes(const ckc_tensor *t);

/* ---- training -------------------------------------------------------------------------------------- */

/* Make `steps` steps.  loss: NULL, or room for the loss of each (NaN where the step has none); a failure
 * leaves those behind it as they were.  Every input is taken from the n arrays, by its name, as from a file
 * of --data: of the shape of the input, or with as many more rows, or one more dimension in front, as there
 * are further batches; step k of the session (from 1) takes the k-th batch, from the start again at the end,
 * and a step in m micro-batches m of them.  Floats become floats and integers integers, of the type that the
 * step has.  All elements are checked at every call: NaNs, indices and class targets out of range are errors,
 * and nothing has run.
 * n = 0: the data of the option "data", without one random inputs in valid ranges.
 * The first of all steps compiles kernels, allocates the arena and reads the weights.
 * A loss that is not finite is CKC_DEVICE, and the weights are lost. */
CKC_API int ckc_train(ckc_session *s, int64_t steps, const ckc_tensor *arrays, int n, double *loss,
                      ckc_error *error);

/* Called behind every step of ckc_train(), with its number, loss (NaN: it has none) and seconds (without the
 * data).  What is not 0 ends ckc_train() with CKC_OK: no further step begins, but on a GPU one may be
 * running.  The session may not be used within.  To use it between steps, make one at a time. */
typedef int ckc_step_fn(void *user, int64_t step, double loss, double seconds);
CKC_API void ckc_on_step(ckc_session *s, ckc_step_fn *f, void *user); /* f NULL: none */

/* Steps that are behind the session, those before a checkpoint it went on from included. */
CKC_API int64_t ckc_steps(const ckc_session *s);

/* ---- weights and results --------------------------------------------------------------------------- */

/* The elements of a weight, as they are between two steps; bytes must be those of the tensor. */
CKC_API int ckc_read(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);
/* Others in their place.  Optimizer state stays; what the step holds as a constant cannot be written. */
CKC_API int ckc_write(ckc_session *s, const char *name, const void *from, size_t bytes, ckc_error *error);

/* An output or a gradient of the last step.  Of one in micro-batches outputs are those of the last of them,
 * gradients the mean of all; without the scale of the loss, and not yet clipped. */
CKC_API int ckc_read_output(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);
CKC_API int ckc_read_gradient(ckc_session *s, const char *name, void *to, size_t bytes, ckc_error *error);

/* All weights to a file, as --save does: .onnx, a copy of the model, or .safetensors.  Weights that are not
 * finite are not written.  The file is complete or as it was before. */
CKC_API int ckc_save(ckc_session *s, const char *path, ckc_error *error);

/* Weights, optimizer state and the number of steps to the folder of the option "checkpoint", of which the
 * last two are kept; crash-safe.  With the option "resume" a session goes on from the newest one there, with
 * the bits of one that was never interrupted; a folder that has one is refused without. */
CKC_API int ckc_checkpoint(ckc_session *s, ckc_error *error);

#ifdef __cplusplus
}
#endif
#endif
