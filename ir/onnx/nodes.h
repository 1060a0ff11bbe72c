/* nodes.h -- operators of ours as nodes of ONNX's standard operators (opset ONNX_OPSET).
 *
 * onnx_translate() translates one node of a graph.  Kernels that are instructions over a space (kernel.h)
 * are translated from that description, expressions from their text; operators with a text of their own
 * have a hook, OpDef.onnx, which is written in the functions below.  Arithmetic on 16-bit floats is in
 * f32, as our kernels have it: operands are cast, results are cast back. */
#ifndef CKC_ONNX_NODES_H
#define CKC_ONNX_NODES_H

#include "../kernel.h"
#include "data_type.h"
#include "put.h"

enum { ONNX_OPSET = 20, ONNX_IR = 10 }; /* node metadata are of IR version 10 */

/* A tensor of the model under construction; 0: none (an optional operand left out). */
typedef struct {
    uint32_t i;
} OnnxVal;

OnnxNodes *onnx_nodes(Arena *a, const Graph *g, Diag *d);
/* Says that value v of the graph is an input or an initializer, defined elsewhere.  Returns its name there:
 * `name`, or one like it if that is taken. */
const char *onnx_source(OnnxNodes *o, Val v, const char *name);
/* Translates n into nodes whose names begin with `name`; metadata: pairs of key and value, the last NULL.
 * false: an operator cannot be translated, the message names it. */
bool onnx_translate(OnnxNodes *o, const Node *n, const char *name, const char *const *metadata);
/* Reserves a name for one result, unless it is taken: call it before what might take it. */
void onnx_reserve(OnnxNodes *o, const char *name);
/* Makes value v a result named `want`, by an Identity if v has another name; returns the name it got. */
const char *onnx_result(OnnxNodes *o, Val v, const char *want);
/* Appends the NodeProtos, and the TensorProtos of constants that they need, as fields of a GraphProto. */
void onnx_put(OnnxNodes *o, Buf *graph);

/* ---- what hooks are written in --------------------------------------------------------------------- */

OnnxVal onnx_in(OnnxNodes *o, int k);          /* operand k of the node; 16-bit floats as f32 */
void onnx_out(OnnxNodes *o, int k, OnnxVal v); /* v is its result k, cast to the result's type */
DType onnx_type(const OnnxNodes *o, OnnxVal v);
/* Appends a node whose first result has type dt.  The attributes set afterwards are those of this node. */
OnnxVal onnx_op(OnnxNodes *o, const char *op, DType dt, int nin, const OnnxVal *in);
OnnxVal onnx_op1(OnnxNodes *o, const char *op, OnnxVal a); /* result of a's type, as below: */
OnnxVal onnx_op2(OnnxNodes *o, const char *op, OnnxVal a, OnnxVal b);
OnnxVal onnx_op3(OnnxNodes *o, const char *op, OnnxVal a, OnnxVal b, OnnxVal c);
OnnxVal onnx_second(OnnxNodes *o); /* one more result of the last node: indices */
void onnx_attr(OnnxNodes *o, const char *name, int64_t v);
void onnx_attr_ints(OnnxNodes *o, const char *name, const int64_t *v, int n);
void onnx_attr_text(OnnxNodes *o, const char *name, const char *v);

OnnxVal onnx_scalar(OnnxNodes *o, DType dt, double v);
OnnxVal onnx_ints(OnnxNodes *o, const int64_t *v, int n); /* i64[n] */
OnnxVal onnx_table(OnnxNodes *o, const Tensor *t);

OnnxVal onnx_cast(OnnxNodes *o, OnnxVal v, DType dt);
OnnxVal onnx_reshape(OnnxNodes *o, OnnxVal v, int rank, const int64_t *dim);
OnnxVal onnx_transpose(OnnxNodes *o, OnnxVal v, int rank, const int *perm);
OnnxVal onnx_expand(OnnxNodes *o, OnnxVal v, int rank, const int64_t *dim);
/* ReduceSum, ReduceMax ... over a bit mask of axes. */
OnnxVal onnx_reduced(OnnxNodes *o, const char *op, OnnxVal v, uint32_t axes, bool keepdims);
/* Slices one axis: elements start, start + step, ... before end. */
OnnxVal onnx_slice(OnnxNodes *o, OnnxVal v, int axis, int64_t start, int64_t end, int64_t step);
OnnxVal onnx_zeros(OnnxNodes *o, DType dt, int rank, const int64_t *dim);
/* Random draws (ops/random.c) by i64 tensors that broadcast; nodes_random.c. */
OnnxVal onnx_uniform(OnnxNodes *o, OnnxVal seed, int64_t key, OnnxVal step, OnnxVal index, DType real);
OnnxVal onnx_normal(OnnxNodes *o, OnnxVal seed, int64_t key, OnnxVal step, OnnxVal index, DType real);
/* The expression of a pointwise operator, of one or two operands of one type. */
OnnxVal onnx_expr(OnnxNodes *o, Op pointwise, OnnxVal a, OnnxVal b);
Arena *onnx_arena(OnnxNodes *o); /* the arena for tables */
/* Sets pads and output_padding of the last node, a ConvTranspose, so that it takes n extents `from` to `to`.
 */
void onnx_spread(OnnxNodes *o, int n, const int64_t *from, const int64_t *to, const int64_t *kernel,
                 const int64_t *stride, const int64_t *dilation, const int64_t *pads);
bool onnx_refuse(OnnxNodes *o, const char *why); /* reports why; returns false */

#endif
