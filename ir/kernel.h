/* kernel.h -- the one description of a computation below the graph.
 *
 * An operator's `lower` hook fills a Kernel in one of two forms:
 *
 *  DAG   a scalar SSA program over an iteration space.  Dimensions whose bit is set in `red` are
 *        reduced; the others are parallel.  Loads and stores are affine in the space.  K_SUM,
 *        K_MAX, K_MIN and K_PROD reduce an instruction over all red dimensions; what depends on a
 *        reduction runs in a later pass over the space.  Pointwise kernels have red == 0.
 *        Softmax, norms, losses, optimizers and their gradients are a few lines each, and nodes
 *        of one fusion group concatenate (kernel_merge).
 *
 *  BODY  hand-written text in the kernel C subset, run once per item i in [0, items).  The
 *        same text is compiled here as the reference (see KERNEL below).  For everything
 *        irregular: gather, pooling, resize.  Items must not write the same element.
 *
 * Both are printed as C (codegen/c.c) and CUDA C (codegen/cuda.c), and interpreted in double
 * precision (eval.c).  A kernel may name a library routine that computes the same thing; a back
 * end that has it uses it, otherwise the description runs.
 *
 * Operands are numbered: inputs of the node first, then its outputs.  Absent optional inputs keep
 * their number.  Arithmetic is in REAL (float, or double when an operand is f64) for float
 * elements and int64_t for integers and bools. */
#ifndef CKC_KERNEL_H
#define CKC_KERNEL_H

#include "ir.h"

enum { K_DIMS = MAX_RANK, K_PARAMS = 64 };

typedef enum {
    K_LOAD,  /* operand at offset + sum stride[d]*index[d] */
    K_CONST, /* imm */
    K_INDEX, /* offset + sum stride[d]*index[d], as an integer */
    K_EXPR,  /* expr applied to arg[0..nin) with attributes al, be */
    K_SUM, K_MAX, K_MIN, K_PROD, /* arg[0] reduced over the red dimensions */
    K_STORE, /* arg[0] to operand */
} KKind;

typedef enum { KT_REAL, KT_INT } KType;

typedef struct {
    KKind kind;
    KType type;
    int arg[3];
    const Expr *expr;
    double al, be, imm;
    int operand;
    int64_t offset, stride[K_DIMS]; /* elements */
} KInst;

/* Reference form of a BODY kernel: item i, integer parameters p, operands t. */
typedef void BodyFn(int64_t i, const int64_t *p, const double *q, Tensor *t);
typedef struct {
    const char *name, *text;
    BodyFn *ref;
} Body;

/* The same computation written by hand in C for the vectors of a CPU: all items at once, for f32
 * and f64.  A source in codegen/prelude, which sees parameters as P0.. and Q0.., but the last
 * integer as an argument: a key, so that layers of one shape share one compiled text. */
typedef enum { NATIVE_NONE, NATIVE_ATTENTION } NativeText;

typedef enum {
    LIB_NONE,
    LIB_MATMUL,
    LIB_MATMUL_ADD, /* the third operand is added, and may be the result's memory */
    LIB_CONV,
    LIB_CONV_BWD_DATA,
    LIB_CONV_BWD_WEIGHTS,
    LIB_CONCAT, /* strided copies; every back end has it, so its body carries no text */
} LibOp;

struct Kernel {
    Arena *arena;
    int noperands;
    DType *operand; /* element type by operand; DT_NONE: absent */
    /* DAG */
    int rank;
    int64_t extent[K_DIMS];
    uint32_t red;
    KInst *ins;
    uint32_t nins, cins;
    /* BODY */
    const Body *body;
    NativeText native; /* the C printer prefers it to the body */
    int64_t items;
    int64_t p[K_PARAMS]; /* integer parameters, read as p[k] by the text */
    double q[8];         /* real parameters, read as q[k] */
    int np;
    /* library routine with the same meaning; attributes are those of the node */
    LibOp lib;
    double flops; /* operations, roughly; 0: count the instructions */
    /* Product in tiles (tile.c): not NULL where the group begins with a product that only its other
     * members, pointwise ones, read.  The instructions are theirs, over the product's elements in
     * one dimension.  `tile` of its `rows` rows are made at a time, in working memory, and worked
     * off at once.  Operands 0 and 1 are the product's factors, of which the rows read number
     * `moving` `step` elements apart; the last operand, which vals does not have, is its result. */
    const Kernel *product;
    int64_t rows, tile, step;
    int moving;
};

/* ---- building (each returns the instruction's index) ---------------------- */

void k_init(Kernel *k, Arena *a, const Graph *g, const Node *n); /* operands from the node */
void k_space(Kernel *k, const Type *shape, uint32_t red);        /* iteration space = shape */
/* Operand broadcast (numpy rules, right-aligned) into the space. */
int k_load(Kernel *k, int operand, const Type *t);
/* Operand whose dimensions are the space's, those in `drop` removed (stride 0). */
int k_load_keep(Kernel *k, int operand, uint32_t drop);
int k_load_at(Kernel *k, int operand, int64_t offset, const int64_t *stride);
int k_const(Kernel *k, KType t, double v);
int k_index(Kernel *k, const int64_t *stride, int64_t offset);
int k_expr(Kernel *k, const Expr *e, KType t, int a, int b, int c, double al, double be);
int k_op(Kernel *k, Op op, int a, int b, int c); /* expression of a pointwise operator, real */
int k_reduce(Kernel *k, KKind kind, int a);
void k_store(Kernel *k, int operand, int v);                     /* whole space, row-major */
void k_store_keep(Kernel *k, int operand, int v, uint32_t drop); /* dims in drop removed */
/* Part of an operand; the stores of one operand do not overlap. */
void k_store_at(Kernel *k, int operand, int v, int64_t offset, const int64_t *stride);

/* BODY operators are written once, with KERNEL(name, text).  Inside the text:
 *   i            the item;  p[..], q[..]  integer and real parameters
 *   F(k, j)      element j of operand k as REAL       I(k, j)  as int64_t
 *   SETF(k,j,v)  store                                SETI(k,j,v)
 *   REAL         the arithmetic type; write constants as R(0.5)
 *   Operands are named by literals, no two share memory, and every element is stored.
 *   Absent operands are not accessed.
 *   EXP LOG TANH SQRT ERF POW FLOOR ... as in exprs (kernel_math.h lists them)
 * No preprocessor lines and no // comments inside the text. */
#define KERNEL(id, ...)                                                                      \
    static void id##_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)            \
    {                                                                                        \
        (void)i, (void)p, (void)q, (void)t;                                                  \
        __VA_ARGS__                                                                          \
    }                                                                                        \
    static const Body id##_body = {#id, #__VA_ARGS__, id##_ref};
void k_body(Kernel *k, const Body *b, int64_t items);
static inline void k_param(Kernel *k, int64_t v) { k->p[k->np++] = v; }

/* ---- using ------------------------------------------------------------------ */

/* Lower one node, or merge all nodes of a fusion group (in schedule order) into one kernel.
 * vals receives the value of each operand; reads first, then writes; nread/nwrite count them.
 * A value used only inside the group is no operand.  live_out: value is read outside. */
bool kernel_of(Kernel *k, Arena *a, const Graph *g, const NodeId *nodes, int n,
               const bool *live_out, Val *vals, int *nread, int *nwrite, Diag *d);
/* May `write` take over the memory of `read` (same bytes, element for element)? */
bool kernel_inplace(const Kernel *k, int read, int write);
/* Where an operator that can be made in tiles has its rows per tile, 0: all; NULL: it cannot. */
int64_t *node_tile(const Node *n);
/* kernel_of where nodes[0] is a product in tiles (tile.c). */
bool kernel_in_tiles(Kernel *k, Arena *a, const Graph *g, const NodeId *nodes, int n,
                     const bool *live_out, Val *vals, int *nread, int *nwrite, Diag *d);
/* Both parts of a kernel in tiles, for `rows` rows. */
void kernel_tile(const Kernel *k, int64_t rows, Kernel *product, Kernel *rest);
int64_t kernel_tile_bytes(const Kernel *k); /* of the product's rows in working memory; 0: none */
/* Bytes from a row to the next in an operand: 0 where all rows see the same. */
int64_t kernel_row_bytes(const Kernel *k, int operand);
void kernel_run_ref(const Kernel *k, Tensor *t); /* interpret in double precision */
/* Can both kernels share one iteration space? */
bool kernel_same_space(const Kernel *a, const Kernel *b);

#endif
