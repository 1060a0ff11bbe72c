/* ir.h -- the graph IR: values, nodes, operators, arenas.
 *
 * A Graph is three flat arrays: values (tensors), nodes (operator executions) and order (the
 * schedule, a list of node ids).  Everything refers to everything else by index, so a graph can
 * be grown, copied and printed without fixing up pointers.  Nodes are never moved or freed:
 * deleting a node means leaving it out of `order`; the arena reclaims it with the graph.
 * Recomputing a node means cloning it with fresh outputs and scheduling the clone.
 *
 * All shapes are static: symbolic dimensions are bound at import (ir/onnx), where shape
 * arithmetic folds away, so operators carry static attributes and no shape tensors. */
#ifndef CKC_IR_H
#define CKC_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { MAX_RANK = 8, MAX_OUT = 4, MAX_INTS = 2 * MAX_RANK };
typedef struct { int n; int64_t v[MAX_INTS]; } Ints;
/* Most elements of a tensor, extents of 0 not counted: more than any machine has, and few enough that
 * the bytes of all tensors of a graph can be added up. */
#define MAX_ELEMENTS ((int64_t)1 << 40)

/* ---- arena.c: memory by lifetime, diagnostics ------------------------- */

typedef struct Arena {
    struct Block *top;
    size_t used;
} Arena;

#define NONNULL __attribute__((returns_nonnull))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
NONNULL void *arena_alloc(Arena *a, size_t n, size_t size); /* zeroed, 64-byte aligned if larger than that */
NONNULL char *arena_strndup(Arena *a, const char *s, size_t n);
NONNULL char *arena_printf(Arena *a, const char *fmt, ...) PRINTF(2, 3);
void arena_free(Arena *a);
#define NEW(a, T, n) ((T *)arena_alloc((a), (size_t)(n), sizeof(T)))

/* Growable array in an arena: returns room for element n (old contents copied on growth). */
NONNULL void *arena_grow(Arena *a, void *old, uint32_t n, uint32_t *cap, size_t size);

/* First error wins.  status is the exit status the error stands for (0 means EXIT_BAD_INPUT). */
enum { EXIT_OK, EXIT_BAD_INPUT, EXIT_UNSUPPORTED, EXIT_INFEASIBLE, EXIT_DEVICE };
typedef struct {
    bool failed;
    int status;
    char msg[4096];
} Diag;
void diag_set(Diag *d, const char *fmt, ...) PRINTF(2, 3);
/* Macros, so that the compiler and the analyzer can see they are always false. */
#define fail(...) (diag_set(__VA_ARGS__), false)
#define fail_status(d, st, ...) ((d)->failed ? false : ((d)->status = (st), fail((d), __VA_ARGS__)))
#define TRY(e)                                                                               \
    do {                                                                                     \
        if (!(e))                                                                            \
            return false;                                                                    \
    } while (0)

/* ---- nearest.c: which name was meant -------------------------------------- */

typedef struct {
    const char *typed, *name; /* name: the nearest so far, NULL: none is near */
    char *part;               /* longest part of `typed` without wildcards: names that contain it are near */
    int distance;
} Nearest;
enum { NEAREST_HINT = 256 };
void nearest_init(Nearest *near, const char *typed);
void nearest_try(Nearest *near, const char *name);
/* "; did you mean 'NAME'?", or nothing; ends the search. */
const char *nearest_hint(Nearest *near, char buf[NEAREST_HINT]);

/* ---- type.c: element types, shapes, tensors --------------------------- */

typedef enum {
    DT_NONE, DT_F32, DT_F64, DT_BF16, DT_F16, DT_I64, DT_I32, DT_U8, DT_BOOL, DT_I8, DT_COUNT
} DType;
extern const char *const dtype_name[DT_COUNT];  /* "?", "f32", ... */
extern const int8_t dtype_size[DT_COUNT];       /* bytes per element */
static inline bool dtype_is_float(DType t) { return t >= DT_F32 && t <= DT_F16; }
static inline bool dtype_is_half(DType t) { return t == DT_BF16 || t == DT_F16; }
/* The type in which elements of type t are summed, and in which such sums are kept: statistics, gradients
 * of parameters, optimizer state. */
static inline DType dtype_sum(DType t) { return dtype_is_half(t) ? DT_F32 : t; }

typedef struct {
    DType dt;
    int rank;
    int64_t dim[MAX_RANK]; /* entries past rank are 0, so that memcmp compares types */
} Type;

Type    type_make(DType dt, int rank, const int64_t *dim);
Type    type_scalar(DType dt);
Type    type_with(Type t, DType dt);           /* same shape, other element type */
bool    type_valid(const Type *t);             /* extents >= 0, at most MAX_ELEMENTS */
int64_t type_count(const Type *t);             /* elements */
int64_t type_bytes(const Type *t);             /* bytes */
bool    type_equal(const Type *a, const Type *b);
bool    type_same_shape(const Type *a, const Type *b);
void    type_strides(const Type *t, int64_t *stride); /* row-major, in elements */
bool    type_broadcast(Type *acc, const Type *t);     /* numpy rules, shape only; false: clash */
const char *type_str(const Type *t, char buf[160]);   /* "f32[8,3]" */

/* A tensor in host memory: type + bytes (row-major).  Not owned. */
typedef struct {
    Type type;
    void *data;
} Tensor;
double  tensor_f(const Tensor *t, int64_t i); /* element i as a double, from any dtype */
int64_t tensor_i(const Tensor *t, int64_t i); /* element i as an integer, floats truncated */
void    tensor_set_f(Tensor *t, int64_t i, double v);   /* rounds to the dtype, nearest even */
void    tensor_cast(const Tensor *from, Tensor *to);    /* floats, to the dtype of to */
Tensor  tensor_transposed(const Tensor *t, Arena *a);   /* a copy; t has two dimensions */
/* t as slices that are equal, along dimensions in which `slice` has extent 1: *first is one, in t or a copy.
 * false: they are not equal, or the shapes do not fit. */
bool tensor_slice(const Tensor *t, const Type *slice, Arena *a, Tensor *first);
/* *all: a copy of t, repeated along dimensions of extent 1.  false: the shapes do not fit. */
bool tensor_expand(const Tensor *t, const Type *to, Arena *a, Tensor *all);
int64_t int_of(double v); /* truncates; out of range: the nearest integer; NaN: INT64_MIN */
void    tensor_set_i(Tensor *t, int64_t i, int64_t v);  /* wraps to the dtype; bool: v != 0 */
float    bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
float    f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);

/* ---- graph.c: values, nodes, order ------------------------------------ */

typedef struct { uint32_t i; } Val;    /* index into Graph.vals;  0 = none (optional operand) */
typedef struct { uint32_t i; } NodeId; /* index into Graph.nodes; 0 = none */

typedef enum {
    OP_NONE,
#define OP(name) OP_##name,
#include "ops.def"
    OP_COUNT
} Op;

typedef enum {
    VAL_TEMP,  /* computed by a node */
    VAL_INPUT, /* fed before every step: data, targets, lr, step, rng */
    VAL_PARAM, /* a weight: trainable if an update names it, else frozen */
    VAL_STATE, /* lives across steps: optimizer state, running statistics */
    VAL_CONST, /* known bytes */
    VAL_KIND_COUNT
} ValKind;
extern const char *const val_kind_name[VAL_KIND_COUNT];

/* The memory in which a value lies. */
typedef enum { SPACE_DEVICE, SPACE_HOST, SPACES } Space;

/* A name of a weight in the model's file, in the modules that it was exported from, or in both: exporters
 * store what they make of a weight under names of their own.  A tied weight has several. */
typedef enum { NAME_OF_BOTH, NAME_OF_FILE, NAME_OF_MODULE, NAME_HOLDERS } NameHolder;
extern const char *const name_holder[NAME_HOLDERS]; /* "", "file", "module" */
typedef struct ModelName {
    const char *name;
    NameHolder of;
    bool transposed; /* the tensor of this name has the value's two dimensions exchanged */
    const Type *shape; /* or has this shape; NULL: the value's */
    const Ints *blocks; /* and is these blocks of the value's elements, all of one size; NULL: all of them */
    const struct ModelName *next;
} ModelName;

typedef struct {
    const char *name; /* unique in the graph */
    const ModelName *in_model; /* NULL: not in the model's file */
    Type type;
    NodeId def;       /* VAL_TEMP only */
    ValKind kind;
    Space space;      /* states in SPACE_HOST are read by fetch, written by offload */
    uint32_t place;   /* VAL_INPUT: among the model's inputs, from 1, with those that are no values here;
                       * 0: behind that of the input before it */
    bool batch;       /* VAL_INPUT: its first dimension is the batch; if no input says so: the first one's */
    const void *data; /* CONST, and PARAM/STATE with an initial value; NULL: zeros (STATE) or --init */
    const char *file; /* path of the mapped file in which data lies, at byte `offset`; else NULL */
    int64_t offset;
    Val cast_of; /* PARAM or CONST whose data is that of this value, cast when it is loaded; {0}: none */
} Value;

/* How an operator is computed one block after another (split.c): in blocks of rows of its result (dimension
 * 0), or in blocks of the terms that it sums, which are added in order. */
typedef enum { SPLIT_NONE, SPLIT_ROWS, SPLIT_SUM, SPLIT_COUNT } SplitBy;
extern const char *const split_name[SPLIT_COUNT]; /* "", "rows", "sum" */
typedef struct {
    SplitBy by;
    int64_t block; /* extent of a block along the axis, 0: all of it; the last block may be smaller */
} Split;

typedef struct {
    Op op;
    int nin, nout;
    Val *in, *out;    /* arena slices, fixed after node_new() */
    void *attr;       /* struct described by op_table[op]->attrs, or NULL */
    const char *name; /* the ONNX node it came from, or NULL */
    uint32_t group;   /* nodes of one group (> 0) that stand together in order run as one kernel */
    Split split;      /* a group with nodes that are split is a loop over blocks */
    const char *remat; /* in a recomputation: the name of the original's first result, a label that
                        * all copies carry; the original itself need not be scheduled */
    int candidate;    /* index into StepCost.c of the step that starts with this node */
} Node;

typedef struct { Val state, value; } Update; /* at its node, `value` overwrites `state` */

typedef struct {
    Arena *arena;
    Diag *diag; /* builders report here; sticky */
    Value *vals;     uint32_t nvals, cvals;
    Node *nodes;     uint32_t nnodes, cnodes;
    NodeId *order;   uint32_t norder, corder; /* the schedule: what runs, in order */
    Val *out;        uint32_t nout, cout;     /* survive the step; out[0] is the loss once there is one */
    Update *update;  uint32_t nupdate, cupdate;
    uint32_t ngroups;
    uint32_t *names; uint32_t cnames;         /* hash of value names */
    bool importing; /* new values do not get the names of the step's own inputs, which are found by name */
} Graph;

void graph_init(Graph *g, Arena *a, Diag *d);
/* New value; the name is copied and made unique by a suffix. */
Val  graph_value(Graph *g, const char *name, Type t, ValKind kind);
Val  graph_find(const Graph *g, const char *name); /* {0}: no such value */
void graph_rename(Graph *g, Val v, const char *name);  /* the name is made unique, too */
/* A further name of v, or another holder of one that it has; the strings of `name` are kept. */
void graph_name_in_model(Graph *g, Val v, ModelName name);
const ModelName *graph_module_name(const Graph *g, Val v); /* NULL: all its names are in the file */
const ModelName *next_module_name(const ModelName *n); /* n, or the first behind it; NULL: none */
/* The tensor of that name, whose value is t (its type alone: without data), in t or in a copy. */
Tensor tensor_of_name(const ModelName *name, Tensor t, Arena *a);
/* Writes the tensor of a name that has blocks, of the value's element type, into the value's elements. */
void tensor_put_blocks(const ModelName *name, const Tensor *t, void *value);
/* Per value: does an update of the step change it?  Allocated in a. */
bool *graph_updated(const Graph *g, Arena *a);
/* Per value: is a source loaded as a cast of it?  Allocated in a. */
bool *graph_cast(const Graph *g, Arena *a);
const char *graph_model_name(const Graph *g, Val v);   /* v's first name in the model's file, else its own */
Val  graph_const(Graph *g, const char *name, Type t, const void *data); /* data is copied */
/* New node at the end of order, with these outputs and default attributes. */
Node *graph_node(Graph *g, Op op, int nin, const Val *in, int nout, const Val *out);
void graph_schedule(Graph *g, NodeId n); /* appends n to order */
/* Returns the order, allocated in a, and empties g's: for passes that schedule the nodes anew. */
NodeId *graph_take_order(Graph *g, Arena *a);
/* Clone with fresh outputs; not scheduled.  subst maps old to new input values (by Val.i). */
NodeId graph_clone_node(Graph *g, NodeId n, const Val *subst);
NodeId graph_original(const Graph *g, NodeId n); /* the node that n recomputes, if the graph has it, else n */
void graph_add_out(Graph *g, Val v);
bool graph_is_out(const Graph *g, Val v);
void graph_add_update(Graph *g, Val state, Val value);
static inline const Type *val_type(const Graph *g, Val v) { return &g->vals[v.i].type; }
static inline Node *graph_def(const Graph *g, Val v)
{
    return g->vals[v.i].def.i ? &g->nodes[g->vals[v.i].def.i] : NULL;
}
/* A copy that can be changed while g stays, with the arena a: only what changes in place is copied. */
Graph graph_copy(const Graph *g, Arena *a);
/* Per value: is it, or a view of it, a result of the step: an output, or the new value of a state?  Allocated
 * in a. */
bool *graph_ends(const Graph *g, Arena *a);
/* Number of scheduled uses per value (outputs and updates count), allocated in a. */
uint32_t *graph_uses(const Graph *g, Arena *a);
/* Results of `offload` are in the host's memory. */
static inline Space val_space(const Graph *g, Val v)
{
    const Node *n = graph_def(g, v);
    return n && n->op == OP_offload ? SPACE_HOST : g->vals[v.i].space;
}
Val  graph_root(const Graph *g, Val v); /* the value whose bytes v shows: v, or the root of its views */
Val  graph_loaded(const Graph *g, Val v); /* the source loaded as a cast of v, else v */
bool graph_is_const(const Graph *g, Val v);             /* CONST with data */
Tensor graph_tensor(const Graph *g, Val v);             /* v has data */

/* ---- build.c: building with inference and folding ---------------------- */

/* Append a node: outputs are created and inferred, names derive from `name` (may be NULL).
 * attr: a struct of the operator's attribute type, or NULL for defaults.  If every input is a
 * constant the node is evaluated now and constants come back.  On error (g->diag) returns
 * NULL / {0}; {0} for a required operand propagates silently, so calls can be chained. */
Val  build(Graph *g, Op op, const char *name, int nin, const Val *in, const void *attr);
bool build_n(Graph *g, Op op, const char *name, int nin, const Val *in, const void *attr,
             int nout, Val *out);
Val build1(Graph *g, Op op, Val a);
Val build2(Graph *g, Op op, Val a, Val b);
Val build3(Graph *g, Op op, Val a, Val b, Val c);
Val build_scalar(Graph *g, DType dt, double v);
/* A tensor of like's type and shape, of which every element is v. */
Val build_filled(Graph *g, Val like, double v);
Val build_ints(Graph *g, const int64_t *v, int n);        /* i64[n] constant */
Val build_cast(Graph *g, Val a, DType dt);                /* a itself when it has that type */
Val build_reshape(Graph *g, Val a, int rank, const int64_t *dim);
Val build_transpose(Graph *g, Val a, const int *perm);
Val build_expand(Graph *g, Val a, int rank, const int64_t *dim);
Val build_reduce(Graph *g, Op op, Val a, uint32_t axes, bool keepdims); /* axes: bit mask */
Val build_sum_to(Graph *g, Val a, const Type *shape);     /* undo a broadcast by summing */
Val build_slice(Graph *g, Val a, int axis, int64_t start, int64_t len);
Val build_gather(Graph *g, Val a, Val index, int axis); /* slices of a along axis */
Val build_pad(Graph *g, Val a, int axis, int64_t size); /* appends zeros up to that size */
Val build_concat(Graph *g, int n, const Val *v, int axis);
Val build_concat_many(Graph *g, int n, const Val *v, int axis); /* any number of values */
Val build_matmul(Graph *g, Val a, Val b, bool ta, bool tb); /* batched, numpy broadcast */

/* ---- operators --------------------------------------------------------- */

typedef enum { AT_I64, AT_F64, AT_INTS, AT_DTYPE } AttrType; /* int64_t, double, Ints, int64_t(DType) */
typedef struct {
    const char *name;
    AttrType type;
    size_t off;
    double dflt; /* AT_INTS: empty */
} AttrDef;

enum { /* traits */
    OPT_POINTWISE = 1 << 0, /* one output element per (broadcast) input element: expr is set */
    OPT_VIEW = 1 << 1,      /* output 0 is the bytes of input 0 under another type */
    OPT_RANDOM = 1 << 2,    /* reads the rng input: never folded, never merged by CSE */
    OPT_ONCE = 1 << 3,      /* must not be recomputed */
    OPT_NOGRAD = 1 << 4,    /* gradient does not exist mathematically: autodiff stops here */
    OPT_ZEROGRAD = 1 << 5,  /* gradient is zero everywhere it exists (floor, sign, compare) */
};

/* The precision of an operator with --precision bf16 or fp16 (passes/precision.c), as in torch.autocast. */
typedef enum {
    IN_WIDEST, /* the widest of its operands but parameters, which follow */
    IN_HALF,   /* 16 bits, with sums in f32: products */
    IN_SINGLE  /* f32: long sums, what overflows or loses digits */
} OpPrecision;

enum { SPLIT_OPERANDS = 2, SPLIT_WHOLE = -1 };
/* An axis along which an operator can be split. */
typedef struct {
    int64_t extent;
    int in[SPLIT_OPERANDS]; /* the operand's dimension that is the axis; SPLIT_WHOLE: blocks read all of it */
    int param; /* parameter of the kernel that is the extent; -1: the kernel has items along the axis */
    Op add;    /* of a sum: the operator that adds it to one more operand, maybe in place; OP_NONE: none */
} SplitAxis;

typedef struct Grad Grad;     /* below */
typedef struct Kernel Kernel; /* kernel.h */
typedef struct OnnxNodes OnnxNodes; /* onnx/nodes.h */

/* The cost of evaluating an expression: that of the most costly function it calls, cheapest first. */
typedef enum {
    EXPR_ARITH,   /* nothing: arithmetic, comparisons, rounding */
    EXPR_SQRT,
    EXPR_CALL,    /* exp, log, pow, sin, fmod ...: worth storing a result that is needed again */
    EXPR_UNIFORM, /* a random draw; operands seed, step and element, key in al */
    EXPR_NORMAL   /* the same, normally distributed */
} ExprCost;

/* A pointwise expression over a, b, c with attributes al, be.  text is pasted into generated
 * kernels; f and i are the same text compiled for the reference evaluator. */
typedef struct {
    const char *name;
    int nin;
    ExprCost cost;
    const char *text;
    double (*f)(double a, double b, double c, double al, double be);
    int64_t (*i)(int64_t a, int64_t b, int64_t c, int64_t al, int64_t be);
} Expr;

typedef struct {
    const char *name;
    int min_in, max_in, nout; /* max_in < 0: any number */
    unsigned traits;
    OpPrecision in;
    unsigned wide_in; /* bit mask of operands that may have the type of sums beside 16-bit data */
    const AttrDef *attrs;
    size_t nattrs, attr_size;
    /* Types of the outputs from the types of the inputs and the attributes. */
    bool (*infer)(const Graph *g, const Node *n, Type *out, Diag *d);
    /* Contribute to the gradients of the inputs (grad_add); NULL: none. */
    bool (*grad)(Grad *gr, const Node *n);
    /* Describe the computation (kernel.h): the one description that is interpreted as the
     * reference evaluation, printed as C and printed as CUDA. */
    bool (*lower)(Kernel *k, const Graph *g, const Node *n);
    /* Translate to standard ONNX operators (onnx/nodes.h); NULL: the kernel is translated, unless a BODY. */
    bool (*onnx)(OnnxNodes *o, const Graph *g, const Node *n);
    /* Set the axis of SPLIT_ROWS or SPLIT_SUM, whose operands are SPLIT_WHOLE and param -1 before.  NULL or
     * false: the operator cannot be split so. */
    bool (*split)(const Graph *g, const Node *n, SplitBy by, SplitAxis *axis);
    /* Does output k sum up to zero over `axes` (bit mask) whatever the operands are?  Clears zero[i], one for
     * each index of the other dimensions, in order, where it does not.  NULL or false: nowhere. */
    bool (*zero_sums)(const Graph *g, const Node *n, int k, uint32_t axes, bool *zero);
    Expr expr; /* OPT_POINTWISE */
} OpDef;
extern const OpDef *const op_table[OP_COUNT];
Op op_find(const char *name); /* OP_NONE: no such operator */
void op_attr_init(Op op, void *attr); /* defaults */
static inline const OpDef *node_def(const Node *n) { return op_table[n->op]; }
bool nodes_alike(const Node *a, const Node *b); /* the same operator, attributes and number of operands */
static inline bool node_is_split(const Node *n) { return n->split.by != SPLIT_NONE; }
/* Can n be split so?  Sets the axis along which. */
bool node_axis(const Graph *g, const Node *n, SplitBy by, SplitAxis *axis);
/* The integer attribute of that name; NULL: n has none. */
int64_t *node_whole(const Node *n, const char *name);

/* ---- grad.c: autodiff, and its interface for OpDef.grad -------------------- */

struct Grad {
    Graph *g;
    Val *adj;        /* per value: accumulated cotangent, {0} none yet; grows with g->vals */
    uint32_t nadj;
    bool *wanted;    /* per value (at start): a trainable parameter lies behind it */
};
/* The type of v's cotangent: v's own, or the type of its sums if v is a parameter, or one that is cast, laid
 * out otherwise or, in that type, times a number: such a gradient is a sum over the batch. */
DType grad_type(const Graph *g, Val v);
Val  grad_out(const Grad *gr, const Node *n, int k);  /* cotangent of output k, {0}: none */
bool grad_wants(const Grad *gr, const Node *n, int k); /* is input k's gradient needed */
void grad_add(Grad *gr, Val input, Val cotangent);    /* sums broadcasts back, accumulates */
Val  grad_take(Grad *gr, Val input, DType dt); /* removes and returns the sum so far; {0}: none of type dt */
/* Append the gradients of the sum of `of` with respect to n values; {0}: it does not depend on that one. */
bool autodiff(Graph *g, Val of, const Val *params, uint32_t n, Val *grad);

/* ---- print.c, parse.c, verify.c ----------------------------------------- */

/* Text form, canonical, one statement per line:
 *   input|param|state|const %name: f32[8,3] [host] [as "name" [transposed] [file|module] [shape f32[8]], ...]
 *                                           [@"file" offset | = {v, v, ...} | cast %v]
 *   %y: f32[8,2], %s: f32[8] = op %a, _, %b {attr=1, ints=[1,2]} [#group] [split rows|sum block]
 *                                           [remat %v] ["onnx name"]
 *   update %state = %value
 *   output %v
 * `as`: names in the model's file.  Data over 64 elements without a file are not in the text: @"-" 0. */
void graph_print(const Graph *g, FILE *f);
char *graph_text(const Graph *g); /* as printed; the caller frees it */
bool *graph_sources(const Graph *g, Arena *a); /* per value: is it a source that is printed? */
bool graph_parse(Graph *g, const char *text, Diag *d);
bool graph_verify(const Graph *g, Diag *d);

/* ---- eval.c: reference evaluation by interpreting kernel descriptions ---- */

bool node_eval(const Graph *g, const Node *n, const Tensor *in, Tensor *out, Diag *d);
/* Evaluate the whole schedule; data[v.i] gives bytes of INPUT/PARAM/STATE values and receives
 * every other value (allocated in a). */
bool graph_eval(const Graph *g, void **data, Arena *a, Diag *d);

#endif
