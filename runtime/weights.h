/* weights.h -- weights before the first step and after the last: initial values, random data,
 * safetensors files. */
#ifndef CKC_WEIGHTS_H
#define CKC_WEIGHTS_H

#include "data.h"
#include "ir/file.h"

/* ---- weights.c: initial values -------------------------------------------- */

/* The initialization that --init asks for.  Values are a pure function of (seed, name, element): the same
 * whatever else is in the model, in whatever order, on any number of threads. */
typedef enum { INIT_NORMAL, INIT_XAVIER, INIT_KAIMING } InitKind;
typedef struct {
    InitKind kind;
    double deviation; /* INIT_NORMAL */
} Init;

/* "normal", "normal:0.02", "xavier", "kaiming" */
bool init_parse(const char *text, Init *init, Diag *d);

/* Fill a float parameter.
 *   rank 0 and 1   by the last part of the name: ones where it ends in weight, scale, gamma or g
 *                  (the scale of a normalisation), else zeros (a bias)
 *   normal:s       N(0, s)
 *   xavier         uniform in +-sqrt(6 / (fan_in + fan_out))
 *   kaiming        N(0, sqrt(2 / fan_in))
 * fan_in = dim[1] * product of the rest (kernel), fan_out = dim[0] * product of the rest, as for
 * the weights of Gemm with transB and of Conv; input_first: dim[0] is the input side (the second
 * operand of MatMul, the weights of ConvTranspose). */
void init_fill(Tensor *t, const Init *init, const char *name, bool input_first, int64_t seed);

/* Fills a tensor with random data where the user gives none: whole numbers in [0, limit); if limit is 0,
 * floats N(0, 1) and integers 0 or 1.  Bools are always 0 or 1.
 * A pure function of (seed, name, element); the tensor's elements are numbered from `first`. */
void random_fill(Tensor *t, const char *name, int64_t limit, int64_t seed, int64_t first);

/* ---- safetensors.c ---------------------------------------------------------- */

/* Writes tensors under their names as .safetensors, atomically.  meta: NULL, or keys, each followed by its
 * value, then NULL. */
bool safetensors_write(const char *path, const char *const *meta, int n, const NamedTensor *v, Diag *d);
/* Likewise, of tensors that are not in memory, of which v has the types alone: write(user, k, f, d) is called
 * once for each, and writes the bytes of the k-th of v to f. */
typedef bool WriteTensor(void *user, int k, NewFile *f, Diag *d);
bool safetensors_stream(const char *path, const char *const *meta, int n, const NamedTensor *v,
                        WriteTensor *write, void *user, Diag *d);

#endif
