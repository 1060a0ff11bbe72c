/* save_int.h -- private to save.c and save_node.c: a model that is rewritten on the wire. */
#ifndef CKC_ONNX_SAVE_INT_H
#define CKC_ONNX_SAVE_INT_H

#include "onnx_int.h"
#include "protobuf.h"
#include "put.h"
#include "save.h"

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
    uint32_t node, tensor;             /* numbers of the main graph's next node and initializer */
    bool *unread_node, *unread_tensor; /* per such: is it left out, as nothing reads it any more? */
    bool inference; /* nodes become what they are when nothing trains */
    bool spill;     /* the model would be too large: replaced values go to the external file */
    Rope graph, model; /* as they are saved */
    NewFile data;   /* external values; f is NULL until there is one */
    const char *data_path, *old_data; /* path of data; that of the model that is replaced, NULL: none */
    Diag *d;
} Save;

/* ---- save.c ---------------------------------------------------------------------------- */

Target *target_of(const Save *s, const WireField *name); /* the target of that name; NULL: none */
bool is_external(const WireField *tensor); /* Do the elements of a TensorProto lie in a file of their own? */
/* Append such a tensor with its elements in the external file of the saved model; s->d says what failed. */
void put_external_tensor(Save *s, Buf *out, const WireField *tensor);

/* ---- save_node.c: nodes with other operands, other external files, or as they are when nothing
 * trains */

/* Find what nodes read that do not any more once they are saved: s->unread_node, s->unread_tensor. */
void find_unread(Save *s);
/* Append node number `index` of the main graph as it is saved; false: it stays as it is.  s->d says what
 * failed. */
bool put_changed_node(Save *s, Buf *b, const WireField *proto, uint32_t index);
/* Append function number `index` of the model, likewise. */
bool put_changed_function(Save *s, Buf *b, const WireField *proto, size_t index);

#endif
