/* onnx_int.h -- private to ir/onnx: the open model, the state of an import, a node's view.
 *
 * An importer builds native nodes for one ONNX node.  It reads operands n->in[k] ({0}:
 * absent), attributes through attr_*, compile-time operands through static_*, and sets
 * n->out[k].  It returns false after refuse() (the node is listed with all others that are
 * unsupported) or after a builder's error. */
#ifndef CKC_ONNX_INT_H
#define CKC_ONNX_INT_H

#include "../attrs.h"
#include "../file.h"
#include "../integer.h"
#include "../names.h"
#include "data_type.h"
#include "onnx.h"
#include "onnx.pb-c.h"

/* ---- limits: what a file may ask for (of a tensor: MAX_RANK, MAX_ELEMENTS) -- */

enum {
    MAX_DEPTH = 64,          /* messages within each other */
    MAX_MESSAGES = 1 << 23,  /* messages in all */
    UNPACK_BYTES = 64 << 20, /* most bytes of the unpacked model: these, */
    UNPACK_FACTOR = 16,      /* and this many times the bytes that are unpacked */
    MAX_OPSETS = 256,        /* opset imports of the model, or of a function */
    MAX_NESTING = 24,        /* bodies and function calls within each other */
    MAX_EXPANDED = 1 << 17,  /* nodes in them, and unrolled steps: trip counts and calls multiply */
    MAX_TRIPS = 4096,        /* trips of one loop; steps of a recurrence */
    MAX_FOLDED = 1 << 30,    /* bytes of a constant computed while importing */
    MAX_FOLD_DEPTH = 4000,   /* nodes in a chain that it is computed by */
    MAX_BIAS = 1 << 24,      /* elements of a bias that --untie restores */
    MAX_STEP = 1 << 22,      /* strides, dilations, blocks: times a dimension they are within 64 bits */
    MAX_HEADS = 1 << 20,     /* heads of attention */
};

/* ---- wire.c ------------------------------------------------------------- */

/* Check the wire form of a ModelProto (or TensorProto) and copy what is needed; *copy is
 * malloc'ed.  raw_data fields of the copy hold {offset, bytes} in the file. */
bool wire_copy(const uint8_t *data, size_t size, bool tensor, uint8_t **copy, size_t *ncopy,
               Diag *d);

/* ---- text.c ------------------------------------------------------------- */

/* All strings of a message and those within it are printable text. */
bool text_check(const ProtobufCMessage *m, Diag *d);

/* ---- model.c, external.c ------------------------------------------------ */

typedef struct External {
    struct External *next;
    const char *location;
    FileMap map;
} External;

/* A tensor of the exported program: its name in the PyTorch model, and its symbol in the program. */
typedef struct {
    const char *name, *symbol;
    bool parameter, constant; /* neither: a buffer */
    bool transient; /* a buffer that is not persistent: no state_dict has it */
    bool mentioned; /* in by_symbol: some node's record names it (read_records) */
    bool folded;    /* in by_name: the exporter has computed a tensor from it (read_records) */
} Declared;
typedef struct {
    Declared *by_name, *by_symbol;
    uint32_t n;
} Signature;

struct OnnxModel {
    Arena arena; /* everything that lives as long as the model */
    size_t left; /* bytes protobuf-c may still take from it */
    ProtobufCAllocator alloc;
    const char *path;
    const char *const *allow; /* folders of external data besides the model's */
    int nallow;
    FileMap map;
    Onnx__ModelProto *proto;
    External *external;
    OnnxNote *notes;
    uint32_t nnotes, cnotes;
    Signature *signature;
    struct Merged *merged;
    const struct Record *record;                    /* read_records() */
    struct Folded *folded;                          /* read_records(), folded_at: by the tensors' names */
    uint32_t nfolded, cfolded;
    NameMap folded_at;
    bool norm_trains; /* read_records(): a batch norm of the exported program is in training mode */
    enum { DRAWS_UNKNOWN, DRAWS, DRAWS_NOT } draws; /* does a node draw random numbers? */
    const char **input; /* names of the inputs that have no initializer */
    uint32_t ninput;
    uint32_t *output; /* per output of the graph: its index in the file */
    /* Names in the main graph as the file has it: initializers, and nodes by their results. */
    NameMap initializers, producers;
    NameMap functions; /* "domain:name:overload" to the index in proto->functions */
};
/* NULL: none of that name. */
const Onnx__TensorProto *model_initializer(const OnnxModel *m, const char *name);
const Onnx__NodeProto *model_producer(const OnnxModel *m, const char *name);
const Onnx__FunctionProto *model_function(const OnnxModel *m, const Onnx__NodeProto *call, Arena *a);

/* The body of unknown field i if its number is `tag`, else NULL: what libonnx's schema is too
 * old to know, protobuf-c keeps as bytes with their length in front. */
const uint8_t *newer_field(const ProtobufCMessage *m, unsigned i, uint32_t tag, size_t *len);
/* Allocator of the model's arena, under the cap that its size sets. */
ProtobufCAllocator *model_allocator(OnnxModel *m);
/* Put "PATH: " before the message. */
void diag_prefix(Diag *d, const char *path);
/* The path of external data: beside the model, or if it is not there and the model is a link, beside what
 * that leads to. */
const char *external_path(OnnxModel *m, const char *location);
/* Map the external file at a location, relative to the model's folder; it must lie in there or in an
 * allowed one (cached). */
bool external_is_there(OnnxModel *m, const char *location); /* false: it does not exist */
bool external_map(OnnxModel *m, const char *location, FileMap *map, Diag *d);

/* ---- tensor.c ----------------------------------------------------------- */

typedef struct {
    Tensor t;         /* data lies in the mapping, in the arena, or NULL: no elements */
    const char *file; /* path of the mapped file that data lies in; else NULL */
    int64_t offset;   /* bytes */
} OnnxTensor;

bool tensor_is_uniform(const Tensor *t); /* all elements the same */
bool tensor_load(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, Diag *d);
/* Elements of less than 8 bits as they lie in bytes: u8[bytes]. */
bool tensor_load_packed(OnnxModel *m, const Onnx__TensorProto *p, OnnxTensor *out, Diag *d);
/* As a dense one. */
bool tensor_load_sparse(OnnxModel *m, const Onnx__SparseTensorProto *p, Tensor *out, Diag *d);
bool tensor_type_of(const Onnx__TensorProto *p, Type *t, Diag *d);
/* The external file of its data if that does not exist; NULL: its data is there. */
const char *tensor_lacks(OnnxModel *m, const Onnx__TensorProto *p);

/* ---- import.c ----------------------------------------------------------- */

typedef struct Scope {
    struct Scope *outer;
    NameMap names; /* value name to Val.i */
} Scope;

typedef struct OnnxNode OnnxNode;
typedef struct Roles Roles;
typedef struct Record Record;

/* A call of a function body: nodes inside see the call's attributes through
 * ref_attr_name. */
typedef struct {
    const OnnxNode *call;
    const Onnx__FunctionProto *function;
    Onnx__AttributeProto **dflt; /* declared defaults */
    size_t ndflt;
} Frame;

/* Sequences exist while importing: a Val from FIRST_SEQUENCE on names one. */
enum { FIRST_SEQUENCE = 1 << 30 };
typedef struct Masked Masked;
typedef struct {
    int n;
    Val *v;
    const Masked *masked; /* not NULL: a tensor whose size depends on data (import_masked.c) instead */
} Sequence;

typedef struct {
    OnnxModel *m;
    const OnnxOptions *opt;
    Graph *g;
    Diag *d;
    Arena *a; /* the model's */
    Scope *scope;
    const Frame *frame; /* the function body being imported, or NULL */
    Roles *roles;
    int32_t *data_type; /* per value: element type in the file if widened, else 0 */
    uint32_t ntypes, ctypes;
    Val *real; /* per value: what an integer of quantization stands for, with a gradient, else {0} */
    uint32_t nreals, creals;
    bool *open; /* per value: can it not be known when compiling? */
    uint32_t nopen, copen; /* nopen: nodes looked at */
    int depth; /* nesting of graphs and functions */
    Sequence *sequence;
    uint32_t nsequence, csequence;
    int64_t nkeys; /* random operators so far */
    NameMap feeds; /* names of opt->feed */
    uint32_t expanded; /* nodes in bodies and functions so far, and how often bodies ran */
    bool located;  /* the error names its node */
    uint32_t nrefused;
    struct Refusal *refusals;
    NameMap needed;       /* needed_find(): values of the main graph */
    bool optional;        /* the node of the main graph that is imported is not needed */
    const char *left_out; /* why the last one of those was not imported */
} Import;

struct OnnxNode {
    Import *x;
    const struct OnnxOp *row; /* its row of the table */
    Graph *g;
    const Onnx__NodeProto *proto;
    const Record *record; /* the exporter's, of a node of the main graph; NULL: none */
    const Frame *frame;
    const char *op, *domain, *name;
    int opset;
    int nin, nout;
    Val *in, *out;
};

/* A value that stands for the result of a refused node. */
static inline bool val_is_poison(Val v) { return v.i == UINT32_MAX; }
static inline bool val_is_sequence(Val v)
{
    return v.i >= FIRST_SEQUENCE && v.i != UINT32_MAX;
}

/* Counts nodes of bodies and functions and unrolled steps, of which a small file can make many.  false
 * with a message: too many. */
bool expand_more(Import *x, size_t nodes);
bool import_nodes(Import *x, size_t n, Onnx__NodeProto *const *node);
/* Record why this node cannot be imported; false. */
bool refuse(OnnxNode *n, const char *fmt, ...) PRINTF(2, 3);

/* ---- needed.c: what outputs need that a loss may be on ------------------- */

void needed_find(Import *x);
bool is_needed(const Import *x, const char *name);
bool node_is_needed(const Import *x, const Onnx__NodeProto *p);
/* Takes back an error that says what is not supported, for something that is not needed; false: there is
 * another. */
bool leave_out(Import *x);

/* ---- scope.c ------------------------------------------------------------ */

Scope *scope_push(Import *x);
void scope_set(Import *x, const char *name, Val v);
bool scope_add(Import *x, const char *name, Val v); /* false: this scope has the name already */
bool scope_find(const Import *x, const char *name, Val *v);

/* ---- import_values.c ---------------------------------------------------- */

/* Import initializers and inputs into the current scope. */
bool import_initializers(Import *x, const Onnx__GraphProto *gp);
bool import_inputs(Import *x, const Onnx__GraphProto *gp);
bool type_is_integer(const Type *t); /* one integer, which --bind may know */
Val import_constant(Import *x, const char *name, const Onnx__TensorProto *t);
Val import_sparse(Import *x, const char *name, const Onnx__SparseTensorProto *p);
void set_data_type(Import *x, Val v, int32_t data_type);
/* The type that a value is declared to have; false: none, or one that depends on symbols. */
bool declared_type(const Onnx__ValueInfoProto *v, Type *t);
/* Says that the value has this name in the file, under which it is saved. */
void name_value(Import *x, Val v, const char *name);
/* A name that only the file or only the module has, whose tensor may be transposed. */
void name_value_of(Import *x, Val v, const char *name, NameHolder of, bool transposed);
void note(Import *x, OnnxNoteKind kind, const char *name, const char *fmt, ...)
    PRINTF(4, 5);

/* ---- signature.c: what torch.export says of the tensors ------------------ */

const Signature *model_signature(OnnxModel *m);
const Declared *declared(const Signature *s, const char *name); /* NULL: not declared */
const Declared *declared_symbol(const Signature *s, const char *symbol);

/* ---- records.c: what PyTorch's exporters say of each node ---------------- */

typedef struct Record {
    const Declared *param[8]; /* parameters that the call it comes from reads, the first 8 */
    int nparam;
    bool called;       /* the record names the call of the program that the node computes */
    bool linear;       /* the call is torch.nn.functional.linear */
    bool detach;       /* the call is Tensor.detach */
    bool detached;     /* an operand of the call is a result of Tensor.detach */
    const char *call;  /* its text, of call_size bytes */
    size_t call_size;
    const char *scope; /* path of the module, NULL: not known */
} Record;

/* Per node of the main graph, read once; NULL: the file's nodes are not those of the model. */
const Record *read_records(OnnxModel *m);
void report_detached(Import *x);
/* Is it of a group norm, of which the exporter makes an InstanceNormalization by ones and zeros, a Mul and an
 * Add? */
bool is_group_norm(const Record *r);
/* Is that result of the program ("where_1") an operand of the call? */
bool call_reads(const Record *r, const char *symbol);
/* The name of the running statistic that an operand of a batch norm is to the program; NULL: it is none. */
const char *statistic_read(OnnxModel *m, const Onnx__NodeProto *p, const Record *r, int slot);
/* The length of the name of a call's result without its number: 6 of "expand_1". */
size_t call_name_length(const char *name);

/* What an operand of the call that a node comes from says and the node does not, as exporters leave it out.
 * True is 1.  otherwise: the node comes from no call of `function` ("embedding.default"), or the operand is
 * no number. */
double call_number(const OnnxNode *n, const char *function, int operand, double otherwise);
/* Does the node come from a call of that function, in whose text this stands? */
bool call_says(const OnnxNode *n, const char *function, const char *text);

/* ---- folded.c: what the exporter has computed ahead ----------------------- */

enum {
    FOLDED_REPEATS = 1, /* or may do so */
    FOLDED_VIEWS = 2,
    FOLDED_TURNS = 4, /* exchanges dimensions */
    FOLDED_DETACHES = 8,
    FOLDED_OTHER = 16, /* computes */
    FOLDED_ADDS = 32,  /* a dimension of extent 1 */
    FOLDED_REMOVES = 64,
    FOLDED_LINEAR = 128,
};
typedef struct Folded {
    const char *name;
    const Declared **of; /* the tensors of the program that it was computed from */
    const char **result; /* and results of its calls */
    uint32_t n, cap, nresult, cresult;
    uint32_t does, last; /* what all calls, and the last one, did: FOLDED_* */
    uint32_t calls;      /* what those before the last one did */
    int added;           /* dimensions of extent 1 */
} Folded;

/* The computed tensor's origin; NULL: it was not, or its origin is not known. */
const Folded *folded(OnnxModel *m, const char *name);
/* Was it computed from no parameter, and does the call read it, by its name or that of a result that it is
 * made of, not another of equal values? */
bool reads_result(OnnxModel *m, const Record *r, const char *name);
/* Keeps what a ValueInfoProto says of it. */
void add_folded(OnnxModel *m, const uint8_t *info, size_t size);

/* ---- merged.c: initializers that stand for several parameters ------------ */

/* An operand of a node of the main graph that is a parameter of its own. */
typedef struct {
    uint32_t node;
    int slot;
    const char *name; /* name of the parameter */
    const char *kept; /* the initializer it is in the file; NULL: a bias of zeros, left out */
    int32_t data_type;
    int64_t count; /* elements of a bias that was left out */
    bool identity; /* the node is an Identity whose result has the parameter's name */
    bool statistic; /* a running one, which is apart in any case; these come first */
    uint32_t next; /* the next one of the same node, numbered as in Merged.first */
} Separate;

typedef struct {
    const char **name;
    uint32_t n, cap;
} Names;

/* An initializer that is the transpose, or a column, of a parameter which the file has not itself. */
typedef struct {
    const char *name, *parameter;
    bool merged; /* it stands for several, of which `parameter` is the first, unless they are told apart */
    bool vector; /* it is a column, of shape [n, 1, ...] */
} Transposed;

typedef struct Merged {
    Separate *read; /* by initializer, the biases last */
    uint32_t n, cap;
    uint32_t *first; /* per node: 1 + the first of read that is an operand of it; 0: none */
    NameMap apart;   /* names of all of read but Identities */
    OnnxTie *tie; /* copies that may be transposed weights, by what their nodes read */
    uint32_t ntie, ctie;
    OnnxTie *alias; /* second names of weights that two modules hold; the file has one */
    uint32_t nalias, calias;
    Transposed *transposed;
    uint32_t ntransposed, ctransposed;
    NameMap transposed_at; /* name to index in transposed */
    NameMap moved; /* tensors that are hidden parameters, reshaped or repeated, to index in hidden */
    Names unread;   /* parameters of the program that no node has read */
    Names hidden;   /* those of them that are no second name of a weight: tensors may be computed from them */
    Names computed; /* tensors of no known origin that may be computed from hidden parameters */
    Names constant; /* tensors of no known origin in modules without hidden parameters */
    Names remade;   /* tensors of no known origin that stand for several parameters, of `lost` */
    Names lost;     /* parameters that nodes have read, and no tensor of the file is told to be */
    size_t ninitializer, nstatistic, nadded; /* initializers: the file's; those added for what was merged */
} Merged;

const Merged *model_merged(OnnxModel *m);
/* Number of elements of the bias of a product or convolution with these weights; 0: it is neither. */
int64_t bias_count(const Onnx__NodeProto *p, const Onnx__TensorProto *w);
Onnx__TensorProto zero_bias(Arena *a, int32_t data_type, int64_t count);
/* The parameter that an initializer is the transpose or a column of and the file has not itself; NULL: none.
 * apart: what was merged has been told apart. */
const char *transposed_parameter(OnnxModel *m, const char *name, bool apart);
/* Gives v the name of that parameter; false: there is none. */
bool name_of_transposed(Import *x, Val v, const char *name, bool apart);
/* The parameter, which the file has not itself, that an initializer only reshapes or repeats; NULL: none. */
const char *moved_parameter(OnnxModel *m, const char *name);
/* Is it no tensor of the program, by the signature? */
bool made_by_exporter(OnnxModel *m, const char *name);
/* Let nodes read, and the graph have, the initializers that the options ask for. */
void merged_prepare(Import *x);
/* Notes what was found; fails if --train names nothing that the file has. */
bool merged_report(Import *x);
/* May the exporter have computed it from a parameter that no node reads? */
bool is_computed(OnnxModel *m, const char *name);
/* Is an initializer a constant that the exporter made, such as a mask that masks nothing? */
bool is_own_constant(Import *x, const char *name, const Tensor *t);

/* ---- repeated.c: parameters that the exporter has reshaped and repeated --- */

/* *v: the tensor, a parameter, as what it repeats, and an Expand; false: it is none of these. */
bool import_moved(Import *x, const char *name, const OnnxTensor *t, Val *v);
/* The parameter of that name if another tensor of the file, with the same elements, is it, too; {0}: none. */
Val same_parameter(const Graph *g, const char *name, const Tensor *one);
/* The parameter that a value repeats so; {0}: none. */
Val repeated_one(const Import *x, Val v);
/* The tensor `copy` as a parameter that it reshapes and repeats, in *one a slice of it; {0}: it does not. */
Val moved_again(const Import *x, Val kept, const Tensor *copy, Type *one);

/* ---- gates.c: weights of recurrent networks in ONNX's order -------------- */

/* *v: the tensor, a parameter, under the names of those that its blocks are; false: it is none of these. */
bool import_gates(Import *x, const char *name, const OnnxTensor *t, Val *v);

/* ---- roles.c: which tensors train --------------------------------------- */

Roles *roles_find(Import *x);
/* The operator that reads it as an operand that never trains; NULL: none. */
const char *role_fixed_by(const Import *x, const char *name);
/* Number of batch normalizations that PyTorch's exporter folded away, as its signature tells. */
int roles_lost_norms(const Import *x);
/* Kind of an initializer (t->data given) or of a graph input without data (NULL). */
ValKind role_of(Import *x, const char *name, const Tensor *t);
/* Does --train name it, or the parameter that it is the transpose of? */
bool role_is_chosen(const Import *x, const char *name);
/* Is the constant a tensor of the model: does the signature declare it, or, without a signature, `noted`? */
bool role_is_frozen(const Import *x, const char *name, bool noted);
/* Is it a buffer that is not persistent, or a constant of the program: does no state_dict have it? */
bool role_is_transient(const Import *x, const char *name);
/* Do PyTorch's exporters say that a module holds it, by the signature or its path as the name? */
bool role_is_held(const Import *x, const char *name);
uint32_t role_readers(const Import *x, const char *name); /* how many operands it is */
/* A node that reads it as operand *slot; NULL: none does, or several of other operators or as other operands.
 */
const Onnx__NodeProto *role_reader(const Import *x, const char *name, int *slot);
/* Does the value feed an operand that is a weight by role? */
bool role_is_weight(const Import *x, const char *name);
/* Does a ConstantOfShape stand for a weight?  In PyTorch's files only if a module holds it: programs have
 * constants of their own. */
bool role_is_stripped_weight(const Import *x, const char *name);
/* Are weights in Constant nodes parameters, because there is nothing else to train? */
bool role_promotes_constants(const Import *x);
/* Makes constants of parameters that no gradient can reach. */
void roles_finish(Import *x);
void report_adapters(Import *x);

/* import_conv.c: the windows of a convolution of operand 0 with these weights. */
bool read_conv(OnnxNode *n, int weights, ConvAttrs *at);

/* Importers with which those of fused forms (import_vendor.c) begin. */
bool import_conv(OnnxNode *n);
bool import_gemm(OnnxNode *n);
/* import_attention.c: the pairs (a, b) of x's last dimension become (a cos - b sin, a sin + b cos);
 * pairs are halves, or neighbours if interleaved, and what is beyond the tables stays.  x[batch,
 * heads, sequence, size], or with heads third; tables [batch or 1, sequence, half]. */
Val build_rotary(Graph *g, Val x, bool heads_first, Val cosine, Val sine, bool interleaved);

/* ---- inference.c: nodes as they are when nothing trains ----------------- */

/* The operand that a product of the main graph multiplies by a dropout mask; -1: it is none. */
int dropped_operand(OnnxModel *m, const Onnx__NodeProto *p);

typedef struct {
    bool changes;
    int ninput, noutput; /* those that it keeps; a batch norm's results beyond are its statistics */
    bool training_mode;  /* leave out the attribute training_mode */
    bool is_test;        /* set the attribute is_test */
    int identity_of;     /* it is the identity of this operand; -1: it is not */
} NodeForm;
/* opset: of the main graph or function it is in.  in_main: not in a function or a body of control flow. */
NodeForm inference_form(OnnxModel *m, const Onnx__NodeProto *p, int opset, bool in_main);

/* ---- import_norm.c ------------------------------------------------------ */

typedef struct {
    Val x, scale, bias, mean, var; /* mean and var: of any shape, one element per channel */
    int64_t axis;                  /* dimension of the channels in x */
    double eps, momentum;          /* running = running * momentum + batch * (1 - momentum) */
} BatchNorm;

/* Builds the norm of a batch, whose running statistics are updated if the file holds them: the native
 * operator's results, and the running mean and variance. */
bool batch_norm_of_batch(const Import *x, const BatchNorm *b, Val out[4], Val mean_var[2]);
void note_batch_norm(OnnxNode *n); /* notes that it is not what the file says */
/* written_norm.c: imports an Add as the batch norm that it ends; false without an error: it ends none. */
bool batch_norm_written_out(OnnxNode *n);
void report_folded_norms(Import *x);

/* ---- import_rnn.c: activation functions by their ONNX names -------------- */

typedef struct {
    const char *name;
    Op op;
    int constants; /* how many it has: alpha, beta */
    double al, be; /* their defaults */
} Activation;
const Activation *activation_find(const char *name); /* NULL: none of this name */
Val activation_build(Graph *g, const Activation *a, Val x, double al, double be);

/* ---- ties.c ------------------------------------------------------------- */

bool restore_ties(Import *x); /* ties weights as the options say, before nodes are imported */
void report_ties(Import *x);  /* those that may have been cut, after nodes are imported */

/* ---- node.c: attributes and compile-time operands ----------------------- */

static inline const char *pb(const char *s) { return s ? s : ""; }
const Onnx__AttributeProto *attr_find(const OnnxNode *n, const char *name);
int64_t attr_int(const OnnxNode *n, const char *name, int64_t dflt);
double attr_float(const OnnxNode *n, const char *name, double dflt);
const char *attr_str(const OnnxNode *n, const char *name, const char *dflt);
bool attr_is(const OnnxNode *n, const char *name, const char *dflt, const char *want);
/* Index of the attribute's value among `count` of them; -1: it has another. */
int attr_which(const OnnxNode *n, const char *name, const char *dflt, const char *const *value, int count);
static inline bool has_attr(const OnnxNode *n, const char *name) { return attr_find(n, name) != NULL; }
/* These refuse the node and name the attribute: one that is missing, an integer out of bounds, a list
 * that is too long for Ints (absent: an empty one), a list that has other than count numbers or one out of
 * bounds, an element type that is not supported.  What dflt gives where it is absent is not checked. */
bool attr_needed(OnnxNode *n, const char *name);
bool attr_int_in(OnnxNode *n, const char *name, int64_t dflt, int64_t min, int64_t max, int64_t *v);
bool attr_ints(OnnxNode *n, const char *name, Ints *v);
bool attr_ints_in(OnnxNode *n, const char *name, int count, int64_t dflt, int64_t min, int64_t max, Ints *v);
bool attr_data_type(OnnxNode *n, const char *name, int32_t dflt, int32_t *v);
static inline bool has_in(const OnnxNode *n, int k) { return k < n->nin && n->in[k].i; }
static inline bool has_out(const OnnxNode *n, int k)
{
    return k < n->nout && n->proto->output[k] && *n->proto->output[k];
}

/* Operands that must be known at compile time: folded constants, or tensors computed from
 * initializers, which then no longer train.  They refuse the node when the value depends on
 * data. */
bool static_tensor(OnnxNode *n, int k, Tensor *t);
bool static_ints(OnnxNode *n, int k, Ints *v);
bool static_int(OnnxNode *n, int k, int64_t *v);
bool static_float(OnnxNode *n, int k, double *v);
bool is_static(OnnxNode *n, int k); /* can operand k, which is a tensor, be known? */
/* Axes from attribute `axes` before the version, from operand k since: normalised, as a
 * list. */
bool node_axes(OnnxNode *n, int since, int k, int rank, Ints *axes, bool *given);
bool axis_in(OnnxNode *n, int64_t axis, int rank, int64_t *out); /* normalise or refuse */

/* Can a tensor have these dimensions?  Else the error says so. */
bool shape_valid(OnnxNode *n, const Ints *dim);
/* Is it small enough to be computed while importing?  Else the node is refused. */
bool small_enough(OnnxNode *n, const Type *t);

/* Element type in the file of an operand that lives in a wider native type, else 0. */
int32_t data_type_of(const OnnxNode *n, int k);
/* y, which holds elements of `from` and has the same element type in the file. */
Val with_data_type(const OnnxNode *n, Val y, Val from);
int32_t element_type(const OnnxNode *n, int k); /* element type in the file of any operand */

/* ---- shorthands for building -------------------------------------------- */

static inline const Type *in_type(const OnnxNode *n, int k)
{
    return val_type(n->g, n->in[k]);
}
static inline Val one(Graph *g, Op op, Val a) { return build1(g, op, a); }
Val with_consts(Graph *g, Op op, Val a, double al, double be);
Val scalar_like(Graph *g, Val like, double v);
Val add_scalar(Graph *g, Val a, double v);
Val mul_scalar(Graph *g, Val a, double v);
Val mean_over(Graph *g, Val a, uint32_t axes, bool keepdims);
Val random_input(Import *x); /* the "rng" input */
Val reshape_ints(Graph *g, Val a, const Ints *dim);
Val drop_axis(Graph *g, Val a, int axis);   /* the axis has one element */
Val insert_axis(Graph *g, Val a, int axis); /* one of one element; {0}: a is a sequence or of rank MAX_RANK */
Val move_axis(Graph *g, Val a, int from, int to); /* the others keep their order */
/* The results of n steps, of type t each, joined along an axis; without a step there is nothing along it. */
Val join_steps(Graph *g, int64_t n, const Val *v, int axis, Type t);
/* x[C] shaped so that it broadcasts along dimension `axis` of rank. */
Val along_axis(Graph *g, Val a, int axis, int rank);
/* Repeats every index of an axis `times` times in a row (whole: the whole axis again and again). */
Val repeat_each(Graph *g, Val a, int axis, int64_t times);
Val repeat_whole(Graph *g, Val a, int axis, int64_t times);
Val iota(Graph *g, int64_t n);                      /* i64: 0 1 2 ... */
Val negative_wraps(Graph *g, Val index, int64_t n); /* python's negative indices */
Val narrow(OnnxNode *n, Val v, int32_t data_type);  /* convert to an ONNX element type */
/* Makes a result of arithmetic on integers that live in a wider type wrap around; false: there is none. */
bool wrapped(OnnxNode *n);

/* ---- import_quant.c ------------------------------------------------------ */

void set_real(Import *x, Val q, Val real);         /* q, an integer, stands for real */
Val real_cast(const OnnxNode *n, Val v, DType dt); /* with the gradient that v has if it was quantized */
/* Nodes from first_node on that move elements of quantized values do so with what these stand for, too. */
void move_reals(Import *x, uint32_t first_node);

/* ---- import_sequence.c, import_masked.c, import_index.c ------------------ */

Val new_sequence(Import *x, int n, const Val *v);

const Masked *masked_in(const OnnxNode *n, int k); /* NULL: operand k has a known size */
/* Imports a node that reads one, on the way to a write to the positions of a mask; else refuses its maker. */
bool import_masked(OnnxNode *n, bool poisoned);
bool refuse_masked(const Masked *m); /* list what made it, once; false */
bool nonzero_of_data(OnnxNode *n);
bool expand_of_data(OnnxNode *n);

/* `index` without the dimensions behind axis, if it is the same everywhere along these; else {0}. */
Val index_of_rows(Graph *g, Val index, int axis);

/* Checks indices that are known: so a sequence longer than the table of positions is found.  They come in
 * tuples, into extent[0] ... extent[tuple - 1]. */
bool indices_inside(OnnxNode *n, int operand, const int64_t *extent, int64_t tuple);

/* ---- import_packed.c ---------------------------------------------------- */

/* Unpacks elements of less than 8 bits, from u8[bytes], into the native type that holds them. */
Val unpack_elements(Graph *g, Val bytes, const Type *type, int32_t data_type);

/* ---- the table ---------------------------------------------------------- */

typedef struct OnnxOp {
    const char *name;
    int since; /* oldest opset it reads */
    bool (*import)(OnnxNode *n);
    unsigned weights;    /* operands that are trainable weights by role: bit mask */
    unsigned fixed; /* operands that never train (scales of integers or images, weights of classes): a mask */
    const char *domain;  /* NULL: ai.onnx */
    Op native;           /* native operator, for an importer of many operators */
    const char *al, *be; /* attributes that become its constants, with their defaults */
    double al0, be0;
    bool sequences; /* takes sequences as operands */
    unsigned typed; /* results whose element type is not that of an operand: bit mask */
} OnnxOp;

/* One array per family (import_*.c), ended by a NULL name. */
extern const OnnxOp onnx_pointwise[], onnx_shape[], onnx_reduce[], onnx_linear[],
    onnx_conv[], onnx_norm[], onnx_index[], onnx_loss[], onnx_random[], onnx_constant[],
    onnx_attention[], onnx_rnn[], onnx_control[], onnx_image[], onnx_quant[], onnx_vendor[],
    onnx_resize[], onnx_sequence[], onnx_training[], onnx_state[], onnx_signal[],
    onnx_static[], onnx_packed[];
const char *canonical_domain(const char *domain); /* "" for ai.onnx */
/* The domain's version in a function (NULL: the main graph); 1 if the file does not say. */
int opset_of(const OnnxModel *m, const Onnx__FunctionProto *f, const char *domain);
const OnnxOp *onnx_op_find(const char *domain, const char *name);

#endif
