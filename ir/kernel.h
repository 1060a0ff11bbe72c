/* kernel.h -- the one description of a computation below the graph.
 *
 * An operator's `lower` hook fills a Kernel in one of two forms:
 *
 *  DAG   a scalar SSA program over an iteration space.  Dimensions whose bit is set in `red` are
 *        reduced; the others are parallel.  Loads and stores are affine in the space.  K_SUM to
 *        K_DEVIATION reduce an instruction over all red dimensions; what depends on a
 *        reduction runs in a later pass over the space.  Pointwise kernels have red == 0.
 *        Softmax, norms, losses, optimizers and their gradients are a few lines each, and nodes
 *        of one fusion group concatenate (lower).
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

#include "attrs.h"

enum { K_DIMS = MAX_RANK, K_PARAMS = 64 };

typedef enum {
    K_LOAD,  /* operand at offset + sum stride[d]*index[d] */
    K_CONST, /* imm */
    K_INDEX, /* offset + sum stride[d]*index[d], as an integer */
    K_EXPR,  /* expr applied to arg[0..nin) with attributes al, be */
    K_SUM, K_MAX, K_MIN, K_PROD, /* arg[0] reduced over the red dimensions */
    K_DEVIATION, /* sum over the red dimensions of (arg[0] - its mean)^2 (deviations.c) */
    K_COLUMN_SUM, /* arg[0] summed over all dimensions but the red; only a store reads it (column_sums.c) */
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
    bool rounded; /* K_LOAD: a value made in the same kernel is rounded to 16 bits, too, as in memory */
    int64_t offset, stride[K_DIMS]; /* elements */
} KInst;
static inline int k_nargs(const KInst *in) { return in->kind == K_EXPR ? in->expr->nin : in->kind >= K_SUM; }
static inline bool k_reduces(const KInst *in) { return in->kind >= K_SUM && in->kind <= K_DEVIATION; }
/* Do its strides matter? */
static inline bool k_addresses(const KInst *in)
{
    return in->kind == K_LOAD || in->kind == K_STORE || in->kind == K_INDEX;
}

/* Reference form of a BODY kernel: item i, integer parameters p, operands t. */
typedef void BodyFn(int64_t i, const int64_t *p, const double *q, Tensor *t);
typedef struct {
    const char *name, *text;
    BodyFn *ref;
} Body;

/* A body's computation written by hand in C for the vectors of a CPU: all items at once, for f32
 * and f64.  A source in codegen/prelude, which sees parameters as macros (attention_kernel.h), but the last
 * integer as an argument: a key, so that layers of one shape share one compiled text. */
typedef enum { NATIVE_NONE, NATIVE_ATTENTION } NativeText;

typedef enum {
    LIB_NONE,
    LIB_MATMUL,
    LIB_MATMUL_ADD, /* a third operand is added, whose memory may be the result's, and a fourth to each row */
    LIB_CONV,
    LIB_CONV_BWD_DATA,
    LIB_CONV_BWD_WEIGHTS,
    LIB_COPY, /* strided copies; every back end has it, so its body carries no text */
} LibOp;

/* How GELU, in its tanh form, is applied to a product: the result is gelu(x), where x, a second result, is
 * the sum; or it is the sum times gelu'(x), where x is the third operand. */
typedef enum { GELU_NONE, GELU_OF_SUM, GELU_BWD } GeluOf;

/* A product or convolution as a library has to know it, without the graph: operands as in attrs.h.
 * Unused bytes are zero, so that descriptions compare as memory. */
typedef struct {
    LibOp op; /* LIB_MATMUL with a third operand adds it, and a fourth to each row */
    int nin;
    Type in[4]; /* dt DT_NONE: absent (bias; what a product is added to) */
    Type out;
    MatmulAttrs matmul;
    ConvAttrs conv;
    int64_t rows; /* rows of the result to make, of LIB_MATMUL (2-D) or LIB_CONV_BWD_WEIGHTS; 0: all */
    int64_t gelu; /* LIB_MATMUL: a GeluOf */
    int64_t panels; /* LIB_MATMUL: the second operand lies in panels, as for matmul_panels */
    double flops;
} LibDesc;

struct Kernel {
    Arena *arena;
    int noperands;
    DType *operand; /* element type by operand; DT_NONE: absent */
    bool f64;       /* a value of its nodes is f64, maybe in registers alone */
    bool unaligned; /* operands may begin at any of their elements; else at 16 bytes */
    int calls;      /* calls in one launch, which has a table of their operands (CUDA); this is the largest.
                     * 0 and 1: one */
    /* DAG */
    int rank;
    int64_t extent[K_DIMS];
    uint32_t red;
    uint32_t apart; /* kernel_dims_apart() of all that its nodes access, dead or not */
    KInst *ins;
    uint32_t nins, cins;
    /* BODY */
    const Body *body;
    NativeText native; /* the C printer prefers it to the body */
    bool wgmma;        /* its products are those of warpgroups: a choice of the plan (codegen/codegen.h) */
    bool small_tiles;  /* attention in small tiles, for less shared memory: a choice of the plan, too */
    int64_t items;
    int64_t gathers; /* bytes of operand 0 that a body that gathers some of it reads; 0: all */
    int64_t threads; /* that share its operations on the plan's device, for the roofline; 0: enough of them */
    int64_t p[K_PARAMS]; /* integer parameters, read as p[k] by the text */
    double q[8];         /* real parameters, read as q[k] */
    int np;
    /* library routine with the same meaning; attributes are those of the node */
    LibOp lib;
    bool tf32;    /* it may round f32 factors (attrs.h) */
    double flops; /* operations, roughly; 0: count the instructions */
};

/* ---- building (each returns the instruction's index) ---------------------- */

void k_init(Kernel *k, Arena *a, const Graph *g, const Node *n); /* operands from the node */
void k_space(Kernel *k, const Type *shape, uint32_t red);        /* iteration space = shape */
/* Operand broadcast (numpy rules, right-aligned) into the space. */
int k_load(Kernel *k, int operand, const Type *t);
/* k_load() with KInst.rounded: for values that passes behind a reduction need again (early_stores.c). */
int k_load_rounded(Kernel *k, int operand, const Type *t);
/* k_load() of a value that is compared with one that another kernel made of it, such as its extremum: it is
 * rounded to the narrowest type that it has had in memory, though registers may be wider. */
int k_load_compared(Kernel *k, const Graph *g, const Node *n, int operand);
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
/* Stores to part of an operand; the stores of one operand do not overlap. */
void k_store_at(Kernel *k, int operand, int v, int64_t offset, const int64_t *stride);

/* BODY operators are written once, with KERNEL(name, text).  Inside the text:
 *   i            the item;  p[..], q[..]  integer and real parameters
 *   F(k, j)      element j of operand k as REAL       I(k, j)  as int64_t
 *   SETF(k,j,v)  store                                SETI(k,j,v)
 *   REAL         the arithmetic type; write constants as R(0.5)
 *   Operands are named by literals, no two share memory, and every element is stored.
 *   Absent operands are not accessed, nor are results that the operator has less than the text.
 *   EXP LOG TANH SQRT ERF POW FLOOR ... as in exprs (kernel_math.h lists them)
 *   EACH_LANE(l) JOIN_LANES(v)   a loop in which each l of 32 may set its bit of v, and v of all of them: on
 *                a GPU the lanes of a warp, all of which have to come there (codegen/cuda_sample.c)
 * No preprocessor lines and no // comments inside the text. */
#define KERNEL(id, ...)                                                                      \
    static void id##_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)            \
    {                                                                                        \
        (void)i, (void)p, (void)q, (void)t;                                                  \
        __VA_ARGS__                                                                          \
    }                                                                                        \
    static const Body id##_body = {#id, #__VA_ARGS__, id##_ref};
/* KERNEL_BEHIND: a KERNEL whose text follows `head`, a macro of statements that several texts share, without
 * F, SETF, REAL and functions. */
#define KERNEL_HEAD(...) #__VA_ARGS__
#define KERNEL_HEAD_TEXT(...) KERNEL_HEAD(__VA_ARGS__)
#define KERNEL_BEHIND(id, head, ...)                                                                         \
    static void id##_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)                            \
    {                                                                                                        \
        (void)i, (void)p, (void)q, (void)t;                                                                  \
        head __VA_ARGS__                                                                                     \
    }                                                                                                        \
    static const Body id##_body = {#id, "{ " KERNEL_HEAD_TEXT(head) " " #__VA_ARGS__ " }", id##_ref};
/* KERNEL_BEHIND with names for parameters: the macro `names` declares, in the text, the enumerators of C. */
#define KERNEL_NAMED(id, names, head, ...)                                                                   \
    static void id##_ref(int64_t i, const int64_t *p, const double *q, Tensor *t)                            \
    {                                                                                                        \
        (void)i, (void)p, (void)q, (void)t;                                                                  \
        head __VA_ARGS__                                                                                     \
    }                                                                                                        \
    static const Body id##_body = {                                                                          \
        #id, "{ " KERNEL_HEAD_TEXT(names) " " KERNEL_HEAD_TEXT(head) " " #__VA_ARGS__ " }", id##_ref};
void k_body(Kernel *k, const Body *b, int64_t items);
static inline void k_param(Kernel *k, int64_t v) { k->p[k->np++] = v; }

/* ---- using ------------------------------------------------------------------ */

/* Part of a concatenation: rows of `bytes` bytes of an operand, packed there. */
typedef struct {
    int operand;
    int64_t rows, bytes, at, stride; /* at, stride: first byte in the result, bytes from row to row */
} CopyRows;

/* One kernel of a loop's body. */
typedef struct {
    Kernel k;           /* kernel for all rows */
    const LibDesc *lib; /* routine for all rows; NULL: none */
    const Node *split;  /* the operator that is split; NULL: fused ones */
    SplitAxis axis;
    /* Of a sum, for the blocks after the first: the kernel that has the result so far as one more operand, in
     * front of the result.  NULL: their results go to a buffer, and are added from there. */
    const Kernel *add;
    const LibDesc *add_lib;
    int nread;
    /* Per operand of k, reads first: */
    int *operand;       /* operand of the command or, behind its last, buffer of the loop; -1: absent */
    int64_t *row_bytes; /* bytes from a row of the loop to the next; 0: every block sees the same */
    bool *rows_apart;   /* other rows lie between the bytes of one */
} Stage;

/* A group around operators that are split (split.c): its kernels run for `block` of the `rows` rows at a
 * time.  What one of them hands over to another is in a buffer that has a block's rows. */
typedef struct {
    int64_t extent;     /* of the split axis; a row of the loop is one or several indices of it */
    int64_t rows, block;
    Stage *stage;
    int nstage;
    int64_t *buffer_bytes; /* per buffer: bytes of a row */
    int nbuffer;
} Loop;

/* What runs in place of nodes: a kernel, or a loop, and the values it runs on.  Operand i of the kernel is
 * vals[i], reads first, then writes; {0}: absent. */
typedef struct {
    Kernel k;             /* unset if there is a loop */
    const Loop *loop;     /* NULL: none */
    const LibDesc *lib;   /* description of the routine that the kernel names; NULL: it names none */
    const CopyRows *copy; /* LIB_COPY: one per operand that is read */
    Val *vals;
    int nread, nwrite;
    const Graph *g;
    const NodeId *nodes;
    int n;
} Command;
static inline const Node *command_node(const Command *c) { return &c->g->nodes[c->nodes[0].i]; }

/* Lower one node, or merge all nodes of a fusion group (in schedule order) into one kernel.  A value
 * used only inside the group is no operand.  live_out: value is read outside.  Allocated in a. */
bool lower(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out,
           Diag *d);
/* Description of the routine that the kernel names, if it is one node's; else NULL.  Allocated in a. */
const LibDesc *kernel_describe(const Kernel *k, const Graph *g, const Node *n, Arena *a);
/* Does it compute in double? */
bool kernel_is_f64(const Kernel *k);
/* Per instruction of a DAG, how many reductions one after the other it takes, itself included (eval.c);
 * returns the most: so many passes over the reduced dimensions, and one more where something is stored along
 * them. */
int kernel_levels(const Kernel *k, int *level);
/* Do a and b have the same address at each point of the space? */
bool kernel_same_map(const Kernel *k, const KInst *a, const KInst *b);
/* Can `write` be in the memory of `read` (same bytes, element for element)? */
bool kernel_inplace(const Kernel *k, int read, int write);
/* kernel_inplace(), where a plan may choose it because the bits do not depend on it.  They do where a matrix
 * is added to a product of 16-bit factors: cuBLASLt (13.1, on an H200) gives other bits in place, with the
 * same algorithm. */
static inline bool kernel_takes_over(const Kernel *k, int read, int write)
{
    bool apart = k->lib == LIB_MATMUL_ADD && read == 2 && dtype_size[k->operand[0]] <= 2;
    return !apart && kernel_inplace(k, read, write);
}
/* kernel_takes_over() of a command, for all its operands with the value of `read`; or loop_inplace(). */
bool command_inplace(const Command *c, int read, int write);
/* Bytes of a loop's own buffers, without the library's workspace; 0: it is no loop. */
int64_t command_workspace_bytes(const Command *c);
int64_t command_blocks(const Command *c); /* 1: it is no loop */
int64_t command_launch_count(const Command *c, int64_t blocks); /* launches of that many blocks */

/* lower() of nodes none of which is split, or of a single node as a whole; `also` is stored in addition to
 * what live_out says, and so are the values that a sum of columns waits for (column_sums.c). */
bool lower_fused(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out,
                 const Val *also, int nalso, Diag *d);

/* ---- sum_order.c -------------------------------------------------------------- */

/* Bit mask of dimensions d such that d and d + 1 are reduced and some access does not step through them as
 * through one dimension. */
uint32_t kernel_dims_apart(const Kernel *k);
/* Do both add up their sums in the same order? */
bool kernel_reduces_alike(const Kernel *a, const Kernel *b);

/* ---- early_stores.c ----------------------------------------------------------- */

/* Value v as memory of that type holds it: rounded to 16 bits, an integer wrapped around; v itself if it is
 * so narrow already, or registers have the type's width. */
int kernel_narrow(Kernel *k, int v, DType dt);
/* Is instruction i a store that the first pass makes, so that later passes have less to read?  They read
 * instruction i back from the store if kernel_is_read_back(). */
bool kernel_stores_early(const Kernel *k, uint32_t i);
bool kernel_is_read_back(const Kernel *k, uint32_t store, uint32_t i);
/* Per operand, how many passes over the reduced dimensions read it, or read it back; allocated in a. */
int *kernel_readings(const Kernel *k, Arena *a);

/* ---- deviations.c ------------------------------------------------------------- */

/* k without K_DEVIATION, allocated in a; k itself if it has none. */
const Kernel *kernel_without_deviations(const Kernel *k, Arena *a);

/* ---- column_sums.c ------------------------------------------------------------ */

bool kernel_has_column_sums(const Kernel *k);
/* Prepare two kernels in one space, one that reduces rows and one that sums columns, for merging: the sums
 * of the latter become K_COLUMN_SUM.  False: they are not such a pair. */
bool kernels_join_columns(Kernel *a, Kernel *b);
enum { KERNEL_PARTS = 3 };
/* Splits a kernel that has K_COLUMN_SUM into ones that have none and do the same if they run one after the
 * other, on k's operands; any other kernel is its own only part.  Allocated in a; returns their number. */
int kernel_split_columns(const Kernel *k, Kernel part[KERNEL_PARTS], Arena *a);
/* False: a sum of columns needs a value that depends on a reduction and is not stored. */
bool kernel_can_split_columns(const Kernel *k);
/* The stored values that depend on a reduction and that sums of columns read, at most one per instruction,
 * into awaited; vals: the operands' values.  Returns their number. */
int kernel_awaited(const Kernel *k, const Val *vals, Val *awaited);

/* ---- split.c ------------------------------------------------------------------ */

enum { LOOP_OPERANDS = 64, LOOP_LAUNCHES = 1 << 16 }; /* most values and launches of a loop */
/* The way to split n along dimension 0 of both operands, so that what makes one of them can be a prologue;
 * SPLIT_NONE: there is none. */
SplitBy node_split_rows(const Graph *g, const Node *n);
/* lower() where nodes are split, along axes of one extent. */
bool lower_split(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out,
                 Diag *d);
bool stage_adds(const Loop *l, const Stage *s); /* do later blocks add to the result so far? */
/* Kernel and routine for a block of `rows` rows, made from the stage's k and lib, or its add and add_lib. */
Kernel stage_kernel(const Loop *l, const Stage *s, const Kernel *k, int64_t rows);
const LibDesc *stage_routine(const Loop *l, const Stage *s, const LibDesc *lib, int64_t rows, Arena *a);
bool loop_inplace(const Command *c, int read, int write); /* command_inplace() of a loop */

#endif
