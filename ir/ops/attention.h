/* attention.h -- private to attention*.c. */
#ifndef CKC_OPS_ATTENTION_H
#define CKC_OPS_ATTENTION_H
#include "common.h"

/* Operand numbers of the forward operator, and of the backward operators. */
enum { Q, K, V, MASK, BIAS, SINK, RNG, NIN };
enum { B_DO, B_Q, B_K, B_V, B_O, B_TOP, B_INV, B_MASK, B_BIAS, B_RNG, B_NIN };

bool attention_onnx(OnnxNodes *o, const Graph *g, const Node *n);
bool attention_grad_onnx(OnnxNodes *o, const Graph *g, const Node *n); /* for all backward operators */
#endif
