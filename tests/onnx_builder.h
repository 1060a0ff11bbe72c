/* onnx_builder.h -- small ONNX models written by tests. */
#ifndef CKC_ONNX_BUILDER_H
#define CKC_ONNX_BUILDER_H

#include "ir/onnx/onnx_int.h"

enum { MOST = 16 };

/* A model under construction: fixed room, everything in one object. */
typedef struct {
    Onnx__ModelProto model;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__GraphProto graph;
    Onnx__NodeProto node[MOST], *nodes[MOST];
    char *operand[MOST][MOST], *result[MOST][MOST];
    Onnx__AttributeProto attr[MOST], *attrs[MOST];
    Onnx__TensorProto tensor[MOST], *tensors[MOST];
    int64_t dims[MOST][4];
    Onnx__ValueInfoProto value[MOST], *inputs[MOST], *outputs[MOST];
    Onnx__TypeProto type[MOST];
    Onnx__TypeProto__Tensor ttype[MOST];
    Onnx__TensorShapeProto shape[MOST];
    Onnx__TensorShapeProto__Dimension dim[MOST][4], *dimp[MOST][4];
    size_t nvalue;
} Builder;

enum { FLOAT = 1 }; /* TensorProto.DataType */

void start(Builder *b, int opset);
/* Operands and results: names separated by blanks, "_" for an absent one. */
Onnx__NodeProto *add_node(Builder *b, Arena *a, const char *op, const char *in,
                          const char *out);
Onnx__AttributeProto *add_attr(Builder *b, Onnx__NodeProto *n, const char *name);
void add_int(Builder *b, Onnx__NodeProto *n, const char *name, int64_t v);
/* An input or output; dims: one letter per dimension, a digit, a symbol or '?' for no symbol ("N3"). */
void add_value(Builder *b, Arena *a, const char *name, int type, const char *dims,
               bool input);
Onnx__TensorProto *add_tensor(Builder *b, const char *name, int rank, const int64_t *dim,
                              float *data);
/* n floats in another file; offset and length may be NULL. */
void add_external(Builder *b, Arena *a, const char *name, int64_t n, const char *location,
                  const char *offset, const char *length);
void add_bool(Builder *b, const char *name, bool value); /* a scalar */
/* A field of string pairs that libonnx's schema does not know. */
void add_record(Arena *a, ProtobufCMessage *m, uint32_t field, const char *key,
                const char *value);
/* An entry of GraphProto.metadata_props. */
void add_metadata(Builder *b, Arena *a, const char *key, const char *value);
const char *save(Builder *b, Arena *a, const char *path); /* returns path */

#endif
