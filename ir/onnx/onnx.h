/* onnx.h -- ONNX intake: a model file becomes a Graph.
 *
 * onnx_open() maps the file, checks its wire form and unpacks the structure (weights stay
 * in the mapping); onnx_import() binds symbols and builds native nodes.  Values of the
 * graph refer to the mapping, so the model must stay open as long as the graph is used.
 * Their data need not be aligned to the element size.
 *
 * Which float tensors train (notes give the decision for each, `train` overrides it):
 *   - an initializer is a parameter, unless it is one of these:
 *     - a buffer, by the signature that torch.export leaves in the file;
 *     - a constant that torch.export made (a mask that masks nothing): neither the signature
 *       has it nor a node that reads it comes from a parameter that the file lacks; what the
 *       signature calls a constant where the program reads none of its parameters (it closes
 *       over its weights) is decided as any tensor without a signature;
 *     - a lifted scalar: it has one element, is no weight operand of an operator that has
 *       weights (as are the bias of a one-unit layer or the slope of PRelu), and PyTorch's
 *       exporters do not say that it was held by a module (signature; a module's path as
 *       its name, with a dot where torch.export's signature was dropped);
 *     - a mask: its elements are 0 and 1 in a table of rank >= 2, or 0, 1 and large negative numbers
 *       (<= -50), and it is no bias of a recurrent network, nor what PyTorch calls the `weight` of a
 *       module;
 *     - a table of positions or frequencies: its columns are sampled sinusoids, or it is an
 *       arithmetic or geometric progression (masks and progressions that the signature
 *       calls parameters train; sinusoids are nn.Parameter without gradient too often);
 *     - an operand that no framework trains: scales of integers, weights of a loss's classes;
 *     - an operand that must be known at compile time depends on it (scales of Resize);
 *     - no differentiable path leads from it to an output;
 *   - running statistics of BatchNormalization, also of one written out, are state;
 *   - a graph input without data is a parameter if it is float, fully static, not named in
 *     `data`, and another input is data (named, symbolic or not float);
 *   - ConstantOfShape feeding a weight operand is a parameter with that fill, and so is a
 *     Constant if the model has no other parameters.
 */
#ifndef CKC_ONNX_H
#define CKC_ONNX_H

#include "../ir.h"

typedef struct OnnxModel OnnxModel;

/* NULL on error.  Close also after the error of a later call. */
OnnxModel *onnx_open(const char *path, Diag *d);
void onnx_close(OnnxModel *m); /* NULL is fine */
/* Folders where external data may lie besides the model's own; they outlive it. */
void onnx_allow(OnnxModel *m, const char *const *folder, int n);

typedef struct {
    const char *symbol; /* a symbolic dimension, or INPUT.dim ("x.0") */
    int64_t value;
} OnnxBind;

/* A graph input whose value is known when compiling.  It binds the input's symbols, stays
 * an input with this as its data, and becomes a constant if shapes depend on it. */
typedef struct {
    const char *name;
    Tensor t; /* outlives the graph */
} OnnxFeed;

/* Two initializers that are one weight: `copy` is `kept`, or `kept` transposed. */
typedef struct {
    const char *kept, *copy;
} OnnxTie;

typedef struct {
    const OnnxBind *bind;
    int nbind;
    const OnnxFeed *feed;
    int nfeed;
    const char *const *data; /* graph inputs known to be fed */
    int ndata;
    const OnnxTie *tie;
    int nties;
    const char *const *train; /* globs: these are parameters, whatever the rule says */
    int ntrain;
    bool init;         /* all static float inputs but the first are parameters, too */
    bool weights;      /* parameters have their values elsewhere: with forward_only inputs may be some, too */
    bool forward_only; /* evaluate as it stands: no conversion to training form, no updates
                        */
    bool weightless;   /* for planning only: parameters whose file does not exist have no data */
    bool inference;    /* nothing trains: no dropout, given statistics, whatever the nodes say */
    bool keep_batch_norm; /* leave inference-form BatchNormalization as it is */
    bool unbiased_var;    /* running variance as PyTorch keeps it: times n/(n-1) */
    bool untie; /* parameters that the exporter merged or left out are separate again: those of
                   Identities, and those that its records tell apart */
} OnnxOptions;

/* Build the graph (initialised by the caller).  Errors name the node; everything
 * unsupported is listed in one message with status EXIT_UNSUPPORTED, unbound symbols
 * likewise. */
bool onnx_import(OnnxModel *m, const OnnxOptions *opt, Graph *g, Diag *d);

typedef enum { ONNX_TRAINED, ONNX_FROZEN, ONNX_REMARK } OnnxNoteKind;
typedef struct {
    OnnxNoteKind kind;
    const char *name; /* tensor or node */
    const char *text; /* reason */
} OnnxNote;
const OnnxNote *onnx_notes(const OnnxModel *m, uint32_t *n); /* notes of the last import */

/* Index and name in the file of output k of the last import's graph, which has no output twice and leaves out
 * some; names of weights and inputs are the graph's (Value.in_model). */
uint32_t onnx_output_index(const OnnxModel *m, uint32_t k);
const char *onnx_output_name(const OnnxModel *m, uint32_t k);
/* Does the file leave open how large a dimension of this output is? */
bool onnx_output_open(const OnnxModel *m, const char *name);
/* Is it a parameter of the exported program that the file does not have, as no node reads it? */
bool onnx_is_unread(OnnxModel *m, const char *name);
/* Name of input k, inputs with an initializer not counted; NULL: there are fewer. */
const char *onnx_input_name(const OnnxModel *m, uint32_t k);
/* The name that --bind has for the first dimension of input k: its symbol, or INPUT.0 if it has none,
 * allocated in a; NULL: its size is in the file. */
const char *onnx_input_batch(const OnnxModel *m, uint32_t k, Arena *a);
/* The --bind that gives the size of this dimension; NULL: none does. */
const OnnxBind *onnx_batch_bind(const OnnxModel *m, uint32_t k, const OnnxOptions *opt, Arena *a);

/* The ONNX project's test layout: folder/model.onnx, test_data_set_N/{input,output}_K.pb.
 * Imports forward only, evaluates by interpretation and compares all outputs:
 * |got - want| <= atol + rtol * |want|, where rtol is at least two units in the last place.
 */
typedef enum { ONNX_PASSED, ONNX_REFUSED, ONNX_FAILED } OnnxVerdict;
OnnxVerdict onnx_check_folder(const char *folder, double rtol, double atol, Diag *why);
/* The same comparison of one output, whatever its type: integers must be equal. */
bool onnx_compare(const char *name, const Tensor *got, const Tensor *want, double rtol, double atol, Diag *d);

/* Read a serialized TensorProto (input_K.pb) into the arena. */
bool onnx_read_tensor(const char *path, Arena *a, Tensor *t, Diag *d);

#endif
