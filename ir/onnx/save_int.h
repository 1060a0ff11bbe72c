/* save_int.h -- private to save.c and save_node.c: a model that is rewritten on the wire. */
#ifndef CKC_ONNX_SAVE_INT_H
#define CKC_ONNX_SAVE_INT_H

#include "onnx_int.h"
#include "protobuf.h"
#include "save.h"

enum { /* field numbers, onnx.proto */
    MODEL_IR_VERSION = 1, MODEL_GRAPH = 7, MODEL_FUNCTION = 25,
    GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11,
    NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP = 4, NODE_ATTRIBUTE = 5,
    ATTR_NAME = 1, ATTR_INT = 3, ATTR_GRAPH = 6, ATTR_GRAPHS = 11, ATTR_TYPE = 20,
    FUNCTION_NODE = 7,
    TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
    INFO_NAME = 1, INFO_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEM = 1, TENSOR_TYPE_SHAPE = 2,
    SHAPE_DIM = 1, DIM_VALUE = 1,
    ENTRY_KEY = 1, ENTRY_VALUE = 2,
    EXTERNAL_ALIGN = 4096, /* so that readers can map each tensor */
};

typedef struct {
    const uint8_t *data;
    size_t size;
} Piece;

typedef struct {
    Piece *piece;
    uint32_t n, cap;
    size_t bytes;
} Rope;

typedef struct {
    uint8_t *p;
    uint32_t n, cap;
} Buf;

typedef struct {
    const SaveValue *v;
    bool initializer; /* the file has it as one */
    bool placed;
    int32_t elem;     /* element type in the file; 0: that of the value */
} Target;

typedef struct {
    OnnxModel *m;
    Arena a;
    const char *path;
    Target *target; /* sorted by name */
    int n;
    bool old;       /* before IR 4: initializers are inputs, too */
    const Merged *merged;
    uint32_t node;  /* of the main graph, the next one */
    bool inference; /* nodes become what they are when nothing trains */
    bool spill;     /* the model would be too large: replaced values go to the external file */
    Rope graph, model; /* rewritten */
    NewFile data;   /* external values; f is NULL until there is one */
    const char *data_path, *old_data; /* its place; that of the model that is replaced, NULL: none */
    Diag *d;
} Save;

/* ---- save.c ---------------------------------------------------------------------------- */

void put_bytes(Save *s, Buf *b, const void *data, size_t size);
void put_number(Save *s, Buf *b, uint32_t field, uint64_t v);
void put_string(Save *s, Buf *b, uint32_t field, const char *text);
void put_message(Save *s, Buf *b, uint32_t field, const Buf *message);
Target *target_of(const Save *s, const WireField *name); /* named so; NULL: none */

/* ---- save_node.c: nodes with other operands, or as they are when nothing trains ---------- */

/* Append node number `index` of the main graph as it is saved; false: it stays as it is. */
bool put_changed_node(Save *s, Buf *b, const WireField *proto, uint32_t index);
/* Append function number `index` of the model, likewise. */
bool put_changed_function(Save *s, Buf *b, const WireField *proto, size_t index);

#endif
