/* onnx_builder.h -- small ONNX models that tests write. */
#ifndef CKC_ONNX_BUILDER_H
#define CKC_ONNX_BUILDER_H

#include "ir/onnx/onnx_int.h"

enum { MOST = 24 };

/* A model under construction, all in one object, with room for MOST messages of each kind. */
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
    Onnx__TensorShapeProto__Dimension dim[MOST][5], *dimp[MOST][5];
    size_t nvalue;
    Onnx__ValueInfoProto *infos[MOST];
} Builder;

enum { FLOAT = 1, INT64 = 7 }; /* TensorProto.DataType */

void start(Builder *b, int opset);
/* Adds a node; in and out are the names of its operands and results, separated by blanks, "_" for none. */
Onnx__NodeProto *add_node(Builder *b, Arena *a, const char *op, const char *in,
                          const char *out);
Onnx__AttributeProto *add_attr(Builder *b, Onnx__NodeProto *n, const char *name);
void add_int(Builder *b, Onnx__NodeProto *n, const char *name, int64_t v);
/* Adds an input or output; dims has a character per dimension ("N3"): a digit is its extent, a letter is its
 * symbol, and '?' leaves it unknown. */
void add_value(Builder *b, Arena *a, const char *name, int type, const char *dims,
               bool input);
Onnx__TensorProto *add_tensor(Builder *b, const char *name, int rank, const int64_t *dim,
                              float *data);
/* Adds n floats that lie in another file; NULL for location, offset or length leaves that entry out. */
void add_external(Builder *b, Arena *a, const char *name, int64_t n, const char *location,
                  const char *offset, const char *length);
void add_bool(Builder *b, const char *name, bool value); /* adds a scalar */
/* Adds a pair of strings to m, in a field that libonnx's schema does not know. */
void add_record(Arena *a, ProtobufCMessage *m, uint32_t field, const char *key,
                const char *value);
/* Adds an entry to GraphProto.metadata_props. */
void add_metadata(Builder *b, Arena *a, const char *key, const char *value);
/* Adds a node with torch.export's records of the call that it comes from and of its modules; NULL: without.
 */
Onnx__NodeProto *add_recorded(Builder *b, Arena *a, const char *op, const char *in, const char *out,
                              const char *call, const char *scope);
/* Says that the model is PyTorch's, with these lines as the exported program's signature; NULL: without. */
void add_signature(Builder *b, Arena *a, const char *lines);
/* Says from what the exporter has computed a tensor: "['w', 'expand']". */
void add_origins(Builder *b, Arena *a, const char *name, const char *names);
const char *save(Builder *b, Arena *a, const char *path); /* writes the model; returns path */

#endif
