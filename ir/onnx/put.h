/* put.h -- writing protobuf's wire format into memory, with the fields of onnx.proto that are written here:
 * libonnx's schema is too old for some of them. */
#ifndef CKC_ONNX_PUT_H
#define CKC_ONNX_PUT_H

#include "../ir.h"

enum { /* field numbers, onnx.proto */
       MODEL_IR_VERSION = 1,
       MODEL_PRODUCER = 2,
       MODEL_VERSION = 3,
       MODEL_DOC = 6,
       MODEL_GRAPH = 7,
       MODEL_OPSET = 8,
       MODEL_FUNCTION = 25,
       OPSET_DOMAIN = 1,
       OPSET_VERSION = 2,
       GRAPH_NODE = 1,
       GRAPH_NAME = 2,
       GRAPH_INITIALIZER = 5,
       GRAPH_INPUT = 11,
       GRAPH_OUTPUT = 12,
       GRAPH_VALUE = 13,
       NODE_INPUT = 1,
       NODE_OUTPUT = 2,
       NODE_NAME = 3,
       NODE_OP = 4,
       NODE_ATTRIBUTE = 5,
       NODE_METADATA = 9,
       ATTR_NAME = 1,
       ATTR_INT = 3,
       ATTR_STRING = 4,
       ATTR_TENSOR = 5,
       ATTR_GRAPH = 6,
       ATTR_INTS = 8,
       ATTR_TENSORS = 10,
       ATTR_GRAPHS = 11,
       ATTR_TYPE = 20,
       FUNCTION_NODE = 7,
       TENSOR_DIMS = 1,
       TENSOR_TYPE = 2,
       TENSOR_FLOAT_DATA = 4,
       TENSOR_INT32_DATA = 5,
       TENSOR_INT64_DATA = 7,
       TENSOR_NAME = 8,
       TENSOR_RAW = 9,
       TENSOR_DOUBLE_DATA = 10,
       TENSOR_UINT64_DATA = 11,
       TENSOR_EXTERNAL = 13,
       TENSOR_LOCATION = 14,
       INFO_NAME = 1,
       INFO_TYPE = 2,
       INFO_METADATA = 4,
       TYPE_TENSOR = 1,
       TENSOR_TYPE_ELEM = 1,
       TENSOR_TYPE_SHAPE = 2,
       SHAPE_DIM = 1,
       DIM_VALUE = 1,
       ENTRY_KEY = 1,
       ENTRY_VALUE = 2,
       EXTERNAL_ALIGN = 4096, /* so that readers can map each tensor */
};

/* A message under construction, in an arena. */
typedef struct {
    uint8_t *p;
    uint32_t n, cap;
} Buf;

void put_bytes(Arena *a, Buf *b, const void *data, size_t size);
void put_number(Arena *a, Buf *b, uint32_t field, uint64_t v);
void put_header(Arena *a, Buf *b, uint32_t field, size_t size); /* `size` bytes follow */
void put_string(Arena *a, Buf *b, uint32_t field, const char *text);
void put_message(Arena *a, Buf *b, uint32_t field, const Buf *message);

void put_value_info(Arena *a, Buf *b, uint32_t field, const char *name, int32_t elem, const Type *type);
/* Says in a TensorProto that its elements lie in another file. */
void put_external(Arena *a, Buf *tensor, const char *location, int64_t offset, size_t bytes);

#endif
