/* roles.c -- which float tensors of the file train (the rule is stated in onnx.h).
 *
 * Decided by evidence, not by names: how a tensor is used, and whether its values can be
 * the outcome of training at all.  A rotary table obeys x[p+1] + x[p-1] = 2 cos(w) x[p] in
 * every column; a mask holds 0, 1 and large negative numbers only; random weights do
 * neither.  PyTorch's exporters testify, too: one writes down what were parameters and what
 * buffers, the other keeps a module's path for their name. */
#include "onnx_int.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Onnx__NodeProto *node;
    int slot;
    uint32_t next; /* another use of the same value, 0: none */
} NodeUse;

struct Roles {
    NodeUse *use; /* numbered from 1 on */
    uint32_t n, cap;
    NameMap last; /* value name to the number of its last use */
    bool nothing_else; /* no initializer or input trains */
    bool exported;     /* torch.export's names: nodes "node_add_3", what they compute "add_3" */
    bool closed_over;  /* no parameter of the signature is in the file, or read by a node's record */
    const Signature *signature;
};

/* Number of the value's last use; 0: none. */
static uint32_t last_use(const Roles *r, const char *name)
{
    const uint32_t *use = name_get(&r->last, name);
    return use ? *use : 0;
}

/* Adds the uses in a graph, and in bodies of control flow in it. */
static void add_uses(Import *x, Roles *r, const Onnx__GraphProto *gp, int depth)
{
    for (size_t i = 0; i < gp->n_node; i++) {
        const Onnx__NodeProto *node = gp->node[i];
        for (size_t k = 0; k < node->n_input; k++) {
            const char *name = pb(node->input[k]);
            r->use = arena_grow(x->a, r->use, r->n + 1, &r->cap, sizeof *r->use);
            r->use[++r->n] = (NodeUse){node, (int)k, last_use(r, name)};
            name_put(&r->last, name, r->n);
        }
        for (size_t k = 0; k < node->n_attribute && depth < MAX_NESTING; k++)
            if (node->attribute[k]->g)
                add_uses(x, r, node->attribute[k]->g, depth + 1);
    }
}

/* ---- what the exporter says ---------------------------------------------- */

bool role_is_frozen(const Import *x, const char *name, bool noted)
{
    const Signature *s = x->roles->signature;
    return s->n ? declared(s, name) != NULL : noted;
}

/* What the signature declares of a tensor; NULL: nothing.  A program that closes over its weights (Keras's on
 * PyTorch) has them as constants, and parameters that nothing reads. */
static const Declared *said_of(const Import *x, const char *name)
{
    const char *parameter = transposed_parameter(x->m, name, x->opt->untie);
    const Declared *said = declared(x->roles->signature, parameter ? parameter : name);
    return said && said->constant && x->roles->closed_over ? NULL : said;
}

bool role_is_transient(const Import *x, const char *name)
{
    const Declared *said = said_of(x, name);
    return said && (said->transient || said->constant);
}

static bool is_closed_over(OnnxModel *m)
{
    const Signature *s = model_signature(m);
    model_merged(m); /* reads the records */
    for (uint32_t i = 0; i < s->n; i++)
        if (s->by_symbol[i].parameter &&
            (s->by_symbol[i].mentioned || model_initializer(m, s->by_symbol[i].name)))
            return false;
    return true;
}

static bool from_pytorch(const Import *x)
{
    return x->roles->signature->n || strcmp(pb(x->m->proto->producer_name), "pytorch") == 0;
}

/* Is it a parameter by the signature?  TorchScript's exporter writes none, but names what a
 * module holds by the module's path, and constants of its own "onnx::Mul_12",
 * "/layer/Constant_output_0" or "12".  Where a tool has dropped the signature of torch.export, a
 * path with a dot is left to tell by.  tf2onnx names what was a variable by the node that read it. */
bool role_is_held(const Import *x, const char *name)
{
    const Declared *said = said_of(x, name);
    if (x->roles->signature->n)
        return said && said->parameter;
    if (!from_pytorch(x))
        return strstr(name, "/ReadVariableOp") != NULL;
    return x->roles->exported ? strchr(name, '.') != NULL
                              : !(*name >= '0' && *name <= '9') && !strpbrk(name, ":/");
}

/* Is anything else read that the nearest module around the norm (of name length len) holds?  A norm of a part
 * that the program does not run is not folded. */
static bool has_read_neighbours(const Roles *r, const char *norm, size_t len)
{
    const Signature *said = r->signature;
    bool any = false, read = false;
    for (size_t around = len; around > 0 && !any;) {
        for (around--; around > 0 && norm[around] != '.';)
            around--;
        for (uint32_t i = 0; i < said->n; i++) {
            const char *name = said->by_name[i].name;
            bool own = strncmp(name, norm, len) == 0 && name[len] == '.';
            bool beside = !own && strncmp(name, norm, around) == 0 && (around == 0 || name[around] == '.');
            any |= beside;
            read |= beside && last_use(r, name);
        }
    }
    return read;
}

/* Counts running means of the exported program that no node reads. */
int roles_lost_norms(const Import *x)
{
    static const char end[] = ".running_mean";
    const Roles *r = x->roles;
    const Signature *said = r->signature;
    int lost = 0;
    for (uint32_t i = 0; i < said->n; i++) {
        const char *name = said->by_name[i].name;
        size_t n = strlen(name);
        bool mean = n >= strlen(end) && strcmp(name + n - strlen(end), end) == 0;
        lost += mean && !last_use(r, name) && has_read_neighbours(r, name, n - strlen(end));
    }
    return lost;
}

Roles *roles_find(Import *x)
{
    const Onnx__GraphProto *gp = x->m->proto->graph;
    Roles *r = NEW(x->a, Roles, 1);
    r->last = name_map(x->a);
    add_uses(x, r, gp, 0);
    r->signature = model_signature(x->m);
    r->closed_over = is_closed_over(x->m);
    for (size_t i = 0; i < gp->n_node && !r->exported; i++)
        r->exported = strncmp(pb(gp->node[i]->name), "node_", 5) == 0;
    x->roles = r;
    r->nothing_else = true;
    for (size_t i = 0; i < gp->n_initializer; i++)
        if (dtype_is_float(onnx_dtype(gp->initializer[i]->data_type)) &&
            (role_is_weight(x, pb(gp->initializer[i]->name)) ||
             role_is_held(x, pb(gp->initializer[i]->name))))
            r->nothing_else = false;
    return r;
}

/* ---- use ---------------------------------------------------------------- */

static bool moves_data(const char *op)
{
    static const char *const ops[] = {"Identity", "Transpose", "Reshape", "Unsqueeze",
                                      "Squeeze",  "Cast",      "Concat",  "Slice"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(op, ops[i]) == 0)
            return true;
    return false;
}

/* Does an operator that has weights compute it?  Exporters of Keras move channels, cast, and give dimensions
 * back in between. */
static bool computed_by_weights(const Import *x, const char *value)
{
    const Onnx__NodeProto *p = model_producer(x->m, value);
    for (int depth = 0; p && p->n_input && moves_data(pb(p->op_type)) && depth < 4; depth++)
        p = model_producer(x->m, pb(p->input[0]));
    const OnnxOp *op = p ? onnx_op_find("", pb(p->op_type)) : NULL;
    return op && op->weights;
}

static bool is_weight(const Import *x, const char *name, int depth)
{
    const Roles *r = x->roles;
    for (uint32_t i = last_use(r, name); i; i = r->use[i].next) {
        const NodeUse *u = &r->use[i];
        const char *type = pb(u->node->op_type);
        const OnnxOp *op = onnx_op_find(canonical_domain(pb(u->node->domain)), type);
        if (op && u->slot < 32 && op->weights >> u->slot & 1)
            return true;
        if (strcmp(type, "Add") == 0 && computed_by_weights(x, pb(u->node->input[!u->slot])))
            return true; /* a bias */
        if (moves_data(type) && u->slot == 0 && depth < 4 && u->node->n_output &&
            is_weight(x, pb(u->node->output[0]), depth + 1))
            return true;
    }
    return false;
}

const char *role_fixed_by(const Import *x, const char *name)
{
    const Roles *r = x->roles;
    for (uint32_t i = last_use(r, name); i; i = r->use[i].next) {
        const NodeUse *u = &r->use[i];
        const OnnxOp *op = onnx_op_find(canonical_domain(pb(u->node->domain)), pb(u->node->op_type));
        if (op && u->slot < 32 && op->fixed >> u->slot & 1)
            return op->name;
    }
    return NULL;
}

bool role_is_weight(const Import *x, const char *name) { return is_weight(x, name, 0); }

/* Is it one of these operands of a recurrent network? */
enum { BIAS = 1 << 3, STATES = 1 << 5 | 1 << 6 };
static bool is_recurrent(const Import *x, const char *name, uint32_t slots)
{
    const Roles *r = x->roles;
    for (uint32_t i = last_use(r, name); i; i = r->use[i].next) {
        const char *type = pb(r->use[i].node->op_type);
        bool recurrent = !strcmp(type, "LSTM") || !strcmp(type, "GRU") || !strcmp(type, "RNN");
        if (recurrent && r->use[i].slot < 32 && slots >> r->use[i].slot & 1)
            return true;
    }
    return false;
}

uint32_t role_readers(const Import *x, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = last_use(x->roles, name); i; i = x->roles->use[i].next)
        n++;
    return n;
}

const Onnx__NodeProto *role_reader(const Import *x, const char *name, int *slot)
{
    const NodeUse *use = NULL;
    for (uint32_t i = last_use(x->roles, name); i; i = x->roles->use[i].next) {
        const NodeUse *u = &x->roles->use[i];
        if (use && (u->slot != use->slot || strcmp(pb(u->node->op_type), pb(use->node->op_type)) != 0))
            return NULL;
        use = u;
    }
    *slot = use ? use->slot : 0;
    return use ? use->node : NULL;
}

bool role_is_stripped_weight(const Import *x, const char *name)
{
    return role_is_weight(x, name) && (!from_pytorch(x) || role_is_held(x, name));
}
bool role_promotes_constants(const Import *x) { return x->roles->nothing_else; }

/* ---- values ------------------------------------------------------------- */

enum { MASKED = -50 }; /* at or below: "minus infinity" of an additive mask */

static bool looks_like_mask(const Tensor *t)
{
    int64_t n = type_count(&t->type), zeros = 0, ones = 0, low = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = tensor_f(t, i);
        if (v != 0 && v != 1 && !(v <= MASKED))
            return false;
        zeros += v == 0;
        ones += v == 1;
        low += v <= MASKED;
    }
    return low > 0 || (t->type.rank >= 2 && zeros > 0 && ones > 0);
}

/* PyTorch's modules hold parameters under this name; a fresh one may be an identity, as in ConViT. */
static bool is_named_weight(const Import *x, const char *name)
{
    const char *last = strrchr(name, '.');
    return from_pytorch(x) && last && strcmp(last, ".weight") == 0;
}

static bool looks_like_progression(const Tensor *t)
{
    int64_t n = type_count(&t->type), widest = 0;
    for (int i = 0; i < t->type.rank; i++)
        widest = t->type.dim[i] > widest ? t->type.dim[i] : widest;
    if (n < 4 || widest != n)
        return false;
    double a = tensor_f(t, 0), b = tensor_f(t, 1), step = b - a, ratio = b / a;
    bool arithmetic = step != 0, geometric = a != 0 && b != 0 && ratio != 1;
    for (int64_t i = 1; i < n && (arithmetic || geometric); i++) {
        double p = tensor_f(t, i - 1), q = tensor_f(t, i);
        arithmetic &= fabs(q - p - step) <= 1e-4 * fabs(step);
        geometric &= fabs(q - p * ratio) <= 1e-3 * fabs(q - p); /* equal values are no progression */
    }
    return arithmetic || geometric;
}

/* Is a column of n elements a sampled sinusoid, or constant?  Sets *moves if it is not
 * constant. */
static bool is_wave(const Tensor *t, int64_t at, int64_t stride, int64_t n, bool *moves)
{
    double xy = 0, xx = 0, top = 0, lo = INFINITY, hi = -INFINITY, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = tensor_f(t, at + i * stride);
        lo = fmin(lo, v);
        hi = fmax(hi, v);
        top = fmax(top, fabs(v));
    }
    if (!isfinite(top))
        return false;
    for (int64_t i = 1; i < n - 1; i++) {
        double v = tensor_f(t, at + i * stride);
        xx += v * v;
        xy += v * (tensor_f(t, at + (i - 1) * stride) + tensor_f(t, at + (i + 1) * stride));
    }
    double k = xx > 0 ? xy / xx : 2;
    for (int64_t i = 1; i < n - 1; i++)
        worst = fmax(worst, fabs(tensor_f(t, at + (i - 1) * stride) + tensor_f(t, at + (i + 1) * stride) -
                                 k * tensor_f(t, at + i * stride)));
    *moves |= hi - lo > 0.1 * top;
    return fabs(k) <= 2.001 && worst <= 2e-3 * top;
}

static bool looks_like_waves(const Tensor *t)
{
    int64_t stride[MAX_RANK], n = type_count(&t->type);
    type_strides(&t->type, stride);
    for (int axis = 0; axis < t->type.rank; axis++) {
        int64_t extent = t->type.dim[axis];
        bool wave = extent >= 6, moves = false;
        for (int64_t i = 0; i < n && wave; i++)
            if (i / stride[axis] % extent == 0)
                wave = is_wave(t, i, stride[axis], extent, &moves);
        if (wave && moves)
            return true;
    }
    return false;
}

/* ---- the rule ----------------------------------------------------------- */

bool role_is_chosen(const Import *x, const char *name)
{
    const char *parameter = transposed_parameter(x->m, name, x->opt->untie);
    if (!parameter)
        parameter = moved_parameter(x->m, name);
    for (int i = 0; i < x->opt->ntrain; i++)
        if (fnmatch(x->opt->train[i], name, 0) == 0 ||
            (parameter && fnmatch(x->opt->train[i], parameter, 0) == 0))
            return true;
    return false;
}

/* Has the exporter computed it from what it says no gradient goes through?  Equal values may stand for
 * others, too. */
static bool is_detached(const Import *x, const char *name, const Tensor *t)
{
    const Folded *from = t->data && !tensor_is_uniform(t) ? folded(x->m, name) : NULL;
    return from && from->n == 1 && from->does & FOLDED_DETACHES && !(from->does & FOLDED_OTHER);
}

ValKind role_of(Import *x, const char *name, const Tensor *t)
{
    const char *why = NULL, *reader = role_fixed_by(x, name);
    int64_t n = type_count(&t->type);
    if (role_is_chosen(x, name)) {
        note(x, ONNX_TRAINED, name, "chosen");
        return VAL_PARAM;
    }
    const Declared *said = said_of(x, name);
    if (said && !said->parameter)
        why = "the exporter says it is a buffer";
    else if (is_detached(x, name, t))
        why = "the program detaches it";
    else if (reader)
        why = arena_printf(x->a, "an operand of %s that does not train", reader);
    else if (t->data && is_own_constant(x, name, t))
        why = "a constant of the exporter's";
    else if (n == 0)
        return VAL_CONST;
    else if (n == 1 && !role_is_held(x, name) && !(t->type.rank > 0 && role_is_weight(x, name)))
        return VAL_CONST; /* too many of them to be worth a note */
    else if (t->data && n > 1 && !(tensor_is_uniform(t) && tensor_f(t, 0) > MASKED)) {
        /* a bias of zeros and ones may look so */
        bool may_be_mask = !said && !is_recurrent(x, name, BIAS) && !is_named_weight(x, name);
        why = looks_like_progression(t) ? (said ? NULL : "its values are a progression")
              : looks_like_waves(t)     ? "its values are sampled sinusoids"
              : may_be_mask && looks_like_mask(t) ? "its values are a mask"
                                                  : NULL;
    } else if (t->data && n > 1 && tensor_f(t, 0) == 0 && is_recurrent(x, name, STATES) &&
             !role_is_held(x, name))
        why = "the zeros that a recurrent network begins with";
    if (why) {
        note(x, ONNX_FROZEN, name, "%s", why);
        return VAL_CONST;
    }
    note(x, ONNX_TRAINED, name, t->data ? "initializer" : "input without data");
    return VAL_PARAM;
}

/* ---- gradient paths ----------------------------------------------------- */

/* Backwards over the schedule: does a differentiable path lead from a value to an
 * output? */
void roles_finish(Import *x)
{
    Graph *g = x->g;
    bool *reach = NEW(x->a, bool, g->nvals);
    for (uint32_t i = 0; i < g->nout; i++)
        reach[g->out[i].i] = dtype_is_float(val_type(g, g->out[i])->dt);
    for (uint32_t k = g->norder; k-- > 0;) {
        const Node *n = &g->nodes[g->order[k].i];
        bool live = false;
        for (int i = 0; i < n->nout; i++)
            live |= reach[n->out[i].i];
        if (!live || node_def(n)->traits & (OPT_NOGRAD | OPT_ZEROGRAD))
            continue;
        for (int i = 0; i < n->nin; i++)
            reach[n->in[i].i] |= dtype_is_float(val_type(g, n->in[i])->dt);
    }
    for (uint32_t i = 1; i < g->nvals; i++) {
        Value *v = &g->vals[i];
        if (v->kind != VAL_PARAM || reach[i] || !v->data)
            continue;
        v->kind = VAL_CONST;
        note(x, ONNX_FROZEN, v->name, "no gradient reaches it");
    }
}

/* No file says what PyTorch has frozen, but adapters have been put beside weights that are. */
void report_adapters(Import *x)
{
    const Graph *g = x->g;
    for (uint32_t i = 1; i < g->nvals && x->opt->ntrain == 0; i++)
        if (g->vals[i].kind == VAL_PARAM && strstr(g->vals[i].name, ".lora_A.")) {
            note(x, ONNX_REMARK, g->vals[i].name,
                 "is of an adapter, but all weights train: --train '*lora_*' trains adapters alone, as "
                 "PyTorch does");
            return;
        }
}
