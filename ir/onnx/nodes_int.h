/* nodes_int.h -- private to nodes*.c. */
#ifndef CKC_ONNX_NODES_INT_H
#define CKC_ONNX_NODES_INT_H

#include "../names.h"
#include "nodes.h"

typedef struct {
    const char *name; /* NULL until it is serialized or given */
    DType dt;
    uint32_t made_for; /* count of translations when it was made; 0: a source */
    bool result;       /* it is a result of the model: the name stays */
} EmittedTensor;

typedef struct {
    const char *op, *name;
    OnnxVal *in, out[2];
    int nin, nout;
    Buf attr;
    const char *const *metadata; /* of the first node of a translation; NULL: none */
} EmittedNode;

typedef struct {
    OnnxVal v;
    Type type;
    const void *data;
} EmittedConst;

struct OnnxNodes {
    Arena *a;
    Diag *d;
    const Graph *g;
    const Node *n; /* the node being translated */
    const char *base;
    const char *const *metadata;
    uint32_t translations;
    OnnxVal *of; /* per value of the graph */
    EmittedTensor *tensor;
    uint32_t ntensor, ctensor;
    EmittedNode *node;
    uint32_t nnode, cnode;
    EmittedConst *constant;
    uint32_t nconstant, cconstant;
    NameMap names, node_names, reserved;
};

/* A value of kernel arithmetic: comparisons are bool, integers i64, reals f32 or f64. */
typedef enum { X_BOOL, X_INT, X_REAL } ExprClass;
typedef struct {
    OnnxVal v;
    ExprClass class;
    bool constant; /* a number, c, that is no tensor yet */
    double c;
} ExprValue;

/* Applies an expression to its operands; `real` is the type of arithmetic.  false: it is not known how. */
bool expr_translate(OnnxNodes *o, const Expr *e, const ExprValue *arg, double al, double be, DType real,
                    ExprValue *out);
/* x as a tensor of that class. */
OnnxVal expr_tensor(OnnxNodes *o, ExprValue x, ExprClass class, DType real);

/* Translates o->n by the instructions of its kernel, which is no text. */
bool kernel_translate(OnnxNodes *o, const Kernel *k);

#endif
