/* merged.c -- initializers that stand for several parameters, told apart by the exporter's records.
 *
 * When it exports, PyTorch merges tensors with equal values (all norms of a fresh model) and drops biases
 * that are zero.  What the program read is still written in the file: each node's record (records.c) has
 * the parameters that its call reads, and its module.  A parameter that the program itself reads twice has
 * one name there: a genuine tie.  TorchScript's exporter leaves an Identity that makes one the other. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

/* An operand that is an initializer, and the parameter it stands for. */
typedef struct {
    const Onnx__TensorProto *of;
    uint32_t node;
    int slot;
    const char *param; /* of's own name unless told apart */
    const char *name;  /* the parameter's, or one made from it */
    bool weak;         /* only the scope says which parameter it is */
    bool created;      /* it is no parameter for this node */
    bool identity;     /* an Identity makes the tensor that parameter */
} Read;

typedef struct {
    OnnxModel *m;
    const Signature *signature;
    const Record *record;  /* per node */
    NameMap lacking;       /* modules that have a parameter which the file lacks */
    enum { NOT_LOOKED, VARIED, UNIFORM } *values; /* per initializer */
    Read *read;
    uint32_t nread, cread;
    NameMap known;  /* parameters that are read */
    NameMap turned; /* parameters whose transpose is read, to the first read of that */
    Merged *out;
} Finder;

/* ---- names -------------------------------------------------------------- */

static const Onnx__TensorProto *tensor_of(const Finder *f, const char *name)
{
    return model_initializer(f->m, name);
}

static const char *leaf(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_bias(const char *name) { return strstr(leaf(name), "bias") != NULL; }

static bool is_op(const Onnx__NodeProto *p, const char *type) { return strcmp(pb(p->op_type), type) == 0; }

/* One of the call's parameters that is not in the file and may be this tensor, by its last
 * name or its rank; NULL: none or several. */
static const char *absent(const Finder *f, uint32_t node, const Onnx__TensorProto *t, bool by_leaf)
{
    const Record *r = &f->record[node];
    bool grouped = is_group_norm(r), shifts = grouped && is_op(f->m->proto->graph->node[node], "Add");
    const char *only = NULL;
    for (int i = 0; i < r->nparam; i++) {
        const char *name = r->param[i]->name;
        bool other = (grouped || t->n_dims > 1) && is_bias(name) != shifts;
        if ((by_leaf ? strcmp(leaf(name), leaf(t->name)) != 0 : other) || tensor_of(f, name))
            continue;
        if (only)
            return NULL;
        only = name;
    }
    return only;
}

/* The call's parameter, which the file lacks, of which alone the exporter has made a tensor that it takes
 * rows of; NULL: none. */
static const char *origin(const Finder *f, uint32_t node, const Onnx__TensorProto *t)
{
    const Record *r = &f->record[node];
    const Folded *from = is_op(f->m->proto->graph->node[node], "GatherND") ? folded(f->m, t->name) : NULL;
    for (int i = 0; i < r->nparam && from && from->n == 1; i++)
        if (strcmp(r->param[i]->name, from->of[0]->name) == 0 && !tensor_of(f, r->param[i]->name))
            return r->param[i]->name;
    return NULL;
}

static void find_lacking(Finder *f)
{
    f->lacking = name_map(&f->m->arena);
    for (uint32_t i = 0; i < f->signature->n; i++) {
        const Declared *d = &f->signature->by_name[i];
        const char *dot = strrchr(d->name, '.');
        if (d->parameter && dot && !tensor_of(f, d->name))
            name_put(&f->lacking, arena_strndup(&f->m->arena, d->name, (size_t)(dot - d->name)), i);
    }
}

/* The name of what the node's module holds under the tensor's own last name; own: it holds none. */
static const char *name_in_scope(const Finder *f, const char *own, const char *scope)
{
    bool held = strchr(own, '.') && !strpbrk(own, ":/");
    if (!scope || (f->signature->n ? !name_get(&f->lacking, scope) : !held))
        return own;
    const char *name = arena_printf(&f->m->arena, "%s.%s", scope, leaf(own));
    return tensor_of(f, name) ? own : name;
}

/* Is it what the program makes of nothing ("zeros_like_3" by torch.export), such as a scan's first state? */
static bool is_created(const Finder *f, const char *name)
{
    static const char *const makers[] = {"zeros",     "ones",      "full",     "zeros_like", "ones_like",
                                         "full_like", "new_zeros", "new_ones", "new_full"};
    size_t n = call_name_length(name);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strlen(makers[i]) == n && strncmp(name, makers[i], n) == 0)
            return f->signature->n && !declared(f->signature, name);
    return false;
}

/* Are these the ones or the zeros of a group norm? */
static bool is_plain_affine(const Onnx__NodeProto *p, size_t slot, const Record *r)
{
    return slot > 0 && is_op(p, "InstanceNormalization") && is_group_norm(r);
}

/* The parameter that the tensor is for this node. */
static const char *parameter_read(const Finder *f, const Onnx__TensorProto *t, uint32_t node)
{
    const Record *r = &f->record[node];
    const char *own = t->name;
    if (reads_result(f->m, r, own))
        return own;
    if (r->nparam == 0)
        return is_created(f, own) ? own : name_in_scope(f, own, r->scope);
    for (int i = 0; i < r->nparam; i++)
        if (strcmp(r->param[i]->name, own) == 0)
            return own;
    const char *name = origin(f, node, t);
    if (!name)
        name = absent(f, node, t, true);
    if (!name)
        name = absent(f, node, t, false);
    return name ? name : own;
}

/* ---- ties that the exporter cut ----------------------------------------- */

static void add_tie(Finder *f, const char *kept, const char *copy)
{
    Merged *out = f->out;
    out->tie = arena_grow(&f->m->arena, out->tie, out->ntie, &out->ctie, sizeof *out->tie);
    out->tie[out->ntie++] = (OnnxTie){kept, copy};
}

static bool has_transposed_shape(const Onnx__TensorProto *p, const Onnx__TensorProto *t)
{
    return p->n_dims == 2 && t->n_dims == 2 && p->dims[0] == t->dims[1] && p->dims[1] == t->dims[0] &&
           p->data_type == t->data_type;
}

/* Adds a tie if the call reads an undeclared tensor as the transpose of a parameter in the file. */
static void find_cut_tie(Finder *f, const Onnx__TensorProto *t, const Record *r)
{
    for (int i = 0; i < r->nparam && !declared(f->signature, t->name); i++) {
        const Onnx__TensorProto *p = tensor_of(f, r->param[i]->name);
        if (p && has_transposed_shape(p, t))
            add_tie(f, p->name, t->name);
    }
}

/* ---- reads -------------------------------------------------------------- */

static int64_t elements(const Onnx__TensorProto *t)
{
    int64_t n = 1;
    for (size_t i = 0; i < t->n_dims && n; i++)
        n = t->dims[i] < 1 || t->dims[i] > INT32_MAX / n ? 0 : n * t->dims[i];
    return n;
}

static bool is_uniform(const Finder *f, const Onnx__TensorProto *p)
{
    OnnxTensor t;
    Diag d = {0};
    uint32_t i = *name_get(&f->m->initializers, pb(p->name));
    if (f->values[i] == NOT_LOOKED)
        f->values[i] = tensor_load(f->m, p, &t, &d) && t.t.data && tensor_is_uniform(&t.t) ? UNIFORM : VARIED;
    return f->values[i] == UNIFORM;
}

static bool made_by_identity(const Finder *f, const Onnx__NodeProto *p, const Onnx__TensorProto *t)
{
    return is_op(p, "Identity") && p->n_output == 1 && is_uniform(f, t);
}

/* The parameter that the exporter has only reshaped or repeated in the tensor; NULL: none. */
static const Declared *moved_from(const Finder *f, const Onnx__TensorProto *t)
{
    const Folded *from = folded(f->m, t->name);
    bool only = from && from->n == 1 && !(from->does & (FOLDED_OTHER | FOLDED_DETACHES));
    return only && from->of[0]->parameter ? from->of[0] : NULL;
}

/* Adds a tie if the program has moved a parameter in the file, and the exporter that: a head that reads
 * embedding.weight.t(), a token that is expanded and also read itself. */
static bool find_moved_tie(Finder *f, const Onnx__TensorProto *t)
{
    const Declared *from = moved_from(f, t);
    const Onnx__TensorProto *p = from ? tensor_of(f, from->name) : NULL;
    bool turned = p && folded(f->m, t->name)->does & FOLDED_TURNS;
    if (!p || (turned && !has_transposed_shape(p, t)) || is_uniform(f, t))
        return false;
    add_tie(f, p->name, t->name);
    return true;
}

/* Adds a tie of what a linear has made of zeros, which is its bias, as in the first step of an nn.RNN. */
static void find_bias_tie(Finder *f, const Onnx__TensorProto *t)
{
    const Folded *from = is_uniform(f, t) ? NULL : folded(f->m, t->name);
    for (uint32_t i = 0; from && from->last & FOLDED_LINEAR && i < from->n; i++)
        if (is_bias(from->of[i]->name) && tensor_of(f, from->of[i]->name))
            add_tie(f, from->of[i]->name, t->name);
}

/* The parameter that the tensor is to the call, which may read `param`; NULL: it is none, or part of one. */
static const char *known_parameter(const Finder *f, const Onnx__TensorProto *t, const Record *r,
                                   const char *param)
{
    const Declared *from = moved_from(f, t);
    for (int i = 0; i < r->nparam; i++)
        if (strcmp(r->param[i]->name, param) == 0)
            return param;
    return !f->signature->n ? t->name : from ? from->name : NULL;
}

/* Is it a parameter that no call reads? */
static bool is_idle(const Finder *f, const char *name)
{
    const Declared *d = declared(f->signature, name);
    return d && !d->folded && !declared_symbol(f->signature, d->symbol)->mentioned;
}

/* Adds an alias if a parameter that is not uniform is read under another module's name: a tie. */
static void find_alias(Finder *f, const Onnx__TensorProto *t, const Record *r, const char *own)
{
    Merged *out = f->out;
    const char *name = own ? name_in_scope(f, own, r->scope) : own;
    size_t n = r->scope ? strlen(r->scope) : 0;
    bool around = own && strncmp(own, pb(r->scope), n) == 0 && own[n] == '.';
    if (name == own || around || (f->signature->n && !is_idle(f, name)) || is_uniform(f, t))
        return;
    out->alias = arena_grow(&f->m->arena, out->alias, out->nalias, &out->calias, sizeof *out->alias);
    out->alias[out->nalias++] = (OnnxTie){t->name, name};
}

static void separate(Finder *f, const Read *r, int32_t data_type, int64_t count)
{
    Merged *out = f->out;
    out->read = arena_grow(&f->m->arena, out->read, out->n, &out->cap, sizeof *out->read);
    out->read[out->n++] = (Separate){.node = r->node,
                                     .slot = r->slot,
                                     .name = r->name,
                                     .kept = r->of ? r->of->name : NULL,
                                     .identity = r->identity,
                                     .data_type = data_type,
                                     .count = count};
}

/* Separates a running statistic that the exporter has merged with equal ones, or with weights of ones. */
static void separate_statistic(Finder *f, const Onnx__TensorProto *t, uint32_t node, int slot, const char *is)
{
    if (strcmp(is, t->name) == 0 || tensor_of(f, is))
        return;
    separate(f, &(Read){.of = t, .node = node, .slot = slot, .name = is}, t->data_type, 0);
    f->out->read[f->out->n - 1].statistic = true;
}

static void find_reads(Finder *f)
{
    const Onnx__GraphProto *gp = f->m->proto->graph;
    for (uint32_t i = 0; i < gp->n_node; i++)
        for (size_t k = 0; k < gp->node[i]->n_input; k++) {
            const Onnx__NodeProto *p = gp->node[i];
            const Onnx__TensorProto *t = tensor_of(f, pb(p->input[k]));
            const Record *r = &f->record[i];
            const char *statistic = t ? statistic_read(f->m, p, r, (int)k) : NULL;
            if (statistic)
                separate_statistic(f, t, i, (int)k, statistic);
            bool plain = is_plain_affine(p, k, r);
            if (!t || statistic || !dtype_is_float(onnx_dtype(t->data_type)) ||
                (elements(t) < 2 && !plain && !declared(f->signature, t->name)))
                continue;
            Read read = {.of = t, .node = i, .slot = (int)k, .weak = r->nparam == 0};
            const char *own = read.name = read.param = parameter_read(f, t, i);
            read.identity = !r->called && made_by_identity(f, p, t);
            read.created = plain || is_created(f, t->name) || reads_result(f->m, r, t->name);
            if (plain)
                read.name = read.param = declared(f->signature, t->name)
                                             ? arena_printf(&f->m->arena, "%s.%zu", pb(p->output[0]), k)
                                             : t->name;
            else if (read.identity)
                read.name = read.param = p->output[0];
            else if (!read.weak && read.name != t->name && !declared(f->signature, t->name))
                read.name = arena_printf(&f->m->arena, "%s.%s", read.param, t->name);
            f->read = arena_grow(&f->m->arena, f->read, f->nread, &f->cread, sizeof read);
            f->read[f->nread++] = read;
            find_cut_tie(f, t, r);
            find_alias(f, t, r, known_parameter(f, t, r, own));
        }
}

static int by_tensor(const void *a, const void *b)
{
    const Read *x = a, *y = b;
    int order = strcmp(x->of->name, y->of->name);
    return order                ? order
           : x->node != y->node ? (x->node < y->node ? -1 : 1)
                                : x->slot - y->slot;
}

/* Separates the n reads of one tensor.  Where only scopes speak, and where all say the same, weights of
 * one value are meant: other values that two modules read are a tie, and a weight that one
 * call reads under another name has been folded with that (a batch norm's). */
static void tell_apart(Finder *f, Read *r, uint32_t n)
{
    const char *own = r->of->name;
    bool uniform = is_uniform(f, r->of), differ = false;
    for (uint32_t i = 0; i < n; i++)
        r[i].name = r[i].weak && !uniform ? own : r[i].name;
    for (uint32_t i = 1; i < n; i++)
        differ |= strcmp(r[i].name, r->name) != 0;
    bool told = differ || (uniform && declared(f->signature, own));
    for (uint32_t i = 0; i < n; i++) {
        r[i].name = told || r[i].identity ? r[i].name : own;
        if (strcmp(r[i].name, own) != 0)
            separate(f, &r[i], r->of->data_type, 0);
    }
}

/* What kind of parameter is the tensor made of, by the node that reads it? */
typedef enum { NOT_KNOWN, A_MATRIX, A_VECTOR } Origin;
static Origin made_of(const Finder *f, const Read *r)
{
    const Onnx__NodeProto *p = f->m->proto->graph->node[r->node];
    if (f->record[r->node].linear && is_op(p, "MatMul"))
        return r->of->n_dims == 2 ? A_MATRIX : NOT_KNOWN;
    bool column = r->of->n_dims && elements(r->of) == r->of->dims[0];
    bool affine = is_group_norm(&f->record[r->node]) && (is_op(p, "Mul") || is_op(p, "Add"));
    return column && affine ? A_VECTOR : NOT_KNOWN;
}

/* Adds a parameter that is made of one read; from: the first read of the tensor that it is, or is told apart
 * from. */
static void add_transposed(Finder *f, uint32_t from, const char *name, const char *parameter, bool merged)
{
    Merged *out = f->out;
    const uint32_t *other = name_get(&f->turned, parameter);
    if (other && *other != from)
        return; /* a second copy of it: a layer applied repeatedly */
    name_put(&f->turned, parameter, from);
    if (!name_add(&out->transposed_at, name, out->ntransposed))
        return;
    out->transposed = arena_grow(&f->m->arena, out->transposed, out->ntransposed, &out->ctransposed,
                                 sizeof *out->transposed);
    bool vector = made_of(f, &f->read[from]) == A_VECTOR;
    out->transposed[out->ntransposed++] = (Transposed){name, parameter, merged, vector};
}

/* Finds the transpose that PyTorch makes of a Linear's weight by default, or the columns that it makes of the
 * weight and bias of a group norm, under a name such as val_7.  All that reads it says which parameter it
 * was; equal ones are merged, as adapters that begin with zeros. */
static void find_transposed(Finder *f, uint32_t from, uint32_t n)
{
    const Read *r = &f->read[from];
    const char *own = r->of->name;
    bool merged = false;
    for (uint32_t i = 0; i < n; i++) {
        if (r[i].weak || r[i].slot != 1 || r[i].param == own || !made_of(f, &r[i]) ||
            made_of(f, &r[i]) != made_of(f, r))
            return;
        merged |= strcmp(r[i].param, r->param) != 0;
    }
    if (declared(f->signature, own))
        return;
    add_transposed(f, from, own, r->param, merged);
    for (uint32_t i = 0; i < n && merged; i++)
        if (strcmp(r[i].name, own) != 0)
            add_transposed(f, from, r[i].name, r[i].param, false);
}

/* Finds a weight of which a call takes rows (tokens their experts), copied by default under a name such as
 * val_0.  With an index of the first axis, not None, the copy's axes are the parameter's. */
static void find_indexed(Finder *f, const Read *r)
{
    Merged *out = f->out;
    const Record *c = &f->record[r->node];
    const char *op = pb(f->m->proto->graph->node[r->node]->op_type);
    if (r->weak || r->slot != 0 || r->name != r->of->name || r->param == r->of->name || c->nparam != 1 ||
        declared(f->signature, r->of->name) || strcmp(op, "GatherND") != 0)
        return;
    const char *call = arena_printf(&f->m->arena, "[target=torch.ops.aten.index.Tensor](args = (%%%s, [%%",
                                    c->param[0]->symbol);
    if (!memmem(c->call, c->call_size, call, strlen(call)))
        return;
    out->alias = arena_grow(&f->m->arena, out->alias, out->nalias, &out->calias, sizeof *out->alias);
    out->alias[out->nalias++] = (OnnxTie){r->of->name, r->param};
}

/* Ties tensors that were made from one parameter which the file has not: a layer applied repeatedly. */
static void find_copies(Finder *f)
{
    NameMap made = name_map(&f->m->arena); /* parameter to the first read of it */
    for (uint32_t i = 0; i < f->nread; i++) {
        const Read *r = &f->read[i];
        if (r->weak || r->param == r->of->name || declared(f->signature, r->of->name))
            continue;
        const uint32_t *first = name_get(&made, r->param);
        if (!first)
            name_put(&made, r->param, i);
        else if (f->read[*first].of != r->of)
            add_tie(f, f->read[*first].of->name, r->of->name);
    }
}

/* ---- biases that were zero ---------------------------------------------- */

static const char *dropped_bias(const Finder *f, const Record *r)
{
    const char *only = NULL;
    for (int i = 0; i < r->nparam; i++) {
        const char *name = r->param[i]->name;
        if (!is_bias(name) || name_get(&f->known, name))
            continue;
        if (only)
            return NULL;
        only = name;
    }
    return only;
}

static void find_dropped(Finder *f)
{
    const Onnx__GraphProto *gp = f->m->proto->graph;
    for (uint32_t i = 0; i < gp->n_node; i++) {
        const Onnx__NodeProto *p = gp->node[i];
        if (p->n_input != 2 || !f->record[i].nparam)
            continue;
        const Onnx__TensorProto *w = tensor_of(f, pb(p->input[1]));
        Read r = {.node = i, .slot = 2, .name = dropped_bias(f, &f->record[i])};
        int64_t count = w && r.name ? bias_count(p, w) : 0;
        if (count > 0 && count <= MAX_BIAS)
            separate(f, &r, w->data_type, count);
    }
}

/* ---- the model with all names ------------------------------------------- */

static Onnx__TensorProto *named_tensor(Finder *f, const Separate *s)
{
    Onnx__TensorProto *t = NEW(&f->m->arena, Onnx__TensorProto, 1);
    *t = s->kept ? *tensor_of(f, s->kept) : zero_bias(&f->m->arena, s->data_type, s->count);
    t->name = (char *)(uintptr_t)s->name;
    return t;
}

static void index_reads(Finder *f)
{
    Merged *out = f->out;
    out->apart = name_map(&f->m->arena);
    out->first = NEW(&f->m->arena, uint32_t, f->m->proto->graph->n_node + 1);
    for (uint32_t i = out->n; i-- > 0;) {
        Separate *r = &out->read[i];
        r->next = out->first[r->node];
        out->first[r->node] = i + 1;
        if (!r->identity)
            name_put(&out->apart, r->name, i);
    }
}

/* Appends tensors for the parameters that were told apart to the initializers of the file. */
static void add_tensors(Finder *f)
{
    Onnx__GraphProto *gp = f->m->proto->graph;
    Merged *out = f->out;
    size_t n = out->ninitializer = gp->n_initializer;
    Onnx__TensorProto **all = NEW(&f->m->arena, Onnx__TensorProto *, n + out->n + 1);
    for (size_t i = 0; i < n; i++)
        all[i] = gp->initializer[i];
    for (uint32_t i = 0; i < out->n; i++) { /* statistics come first */
        const Separate *r = &out->read[i];
        if (r->identity || *name_get(&out->apart, r->name) != i || tensor_of(f, r->name))
            continue;
        all[n + out->nstatistic + out->nadded] = named_tensor(f, r);
        ++*(r->statistic ? &out->nstatistic : &out->nadded);
    }
    gp->initializer = all;
}

/* Gives nodes a third operand for a bias that was dropped. */
static void widen_nodes(Finder *f)
{
    for (uint32_t i = 0; i < f->out->n; i++) {
        Onnx__NodeProto *p = f->m->proto->graph->node[f->out->read[i].node];
        if (f->out->read[i].kept)
            continue;
        char **input = NEW(&f->m->arena, char *, 3);
        input[0] = p->input[0], input[1] = p->input[1];
        input[2] = (char *)(uintptr_t)f->out->read[i].name;
        p->input = input;
    }
}

static void add_name(Finder *f, Names *list, const char *name)
{
    list->name = arena_grow(&f->m->arena, list->name, list->n, &list->cap, sizeof *list->name);
    list->name[list->n++] = name;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_prefix(const void *prefix, const void *name)
{
    return strncmp(prefix, *(const char *const *)name, strlen(prefix));
}

/* Is the name in a list that is sorted, as the reads that it comes from? */
static bool holds(const Names *list, const char *name)
{
    return list->n && bsearch(&name, list->name, list->n, sizeof name, by_text);
}

/* Is it a parameter that the file does not have, and no tensor is told to be? */
static bool is_lost(const Finder *f, const char *name)
{
    return !tensor_of(f, name) && !name_get(&f->known, name);
}

/* Has the call read a lost parameter that is no bias, which the exporter leaves out if it is zero? */
static bool lost_weight(const Finder *f, const Record *r)
{
    bool any = false;
    for (int i = 0; i < r->nparam; i++)
        any |= is_lost(f, r->param[i]->name) && !is_bias(r->param[i]->name);
    return any;
}

/* Finds what the exporter made of several parameters of a call: the gates of an LSTM in ONNX's order. */
static void find_remade(Finder *f)
{
    NameMap seen = name_map(&f->m->arena);
    for (uint32_t i = 0, n; i < f->nread && f->signature->n; i += n) {
        const char *own = f->read[i].of->name;
        const Record *call = &f->record[f->read[i].node];
        bool unknown = !declared(f->signature, own);
        for (n = 0; i + n < f->nread && f->read[i + n].of == f->read[i].of; n++)
            unknown &= !f->read[i + n].weak && !f->read[i + n].created && f->read[i + n].param == own;
        if (!unknown || !lost_weight(f, call))
            continue;
        add_name(f, &f->out->remade, own);
        for (int k = 0; k < call->nparam; k++)
            if (is_lost(f, call->param[k]->name) && name_add(&seen, call->param[k]->name, 0))
                add_name(f, &f->out->lost, call->param[k]->name);
    }
}

/* Can the node have read what the exporter made of a parameter that no record mentions? */
static bool lies_under(const Finder *f, const char *scope)
{
    const Names *hidden = &f->out->hidden;
    if (!scope || !hidden->n)
        return hidden->n > 0;
    const char *prefix = arena_printf(&f->m->arena, "%s.", scope);
    return bsearch(prefix, hidden->name, hidden->n, sizeof *hidden->name, by_prefix);
}

/* Is it a second name of one weight, such as of an embedding that is the head's? */
static bool is_alias(const Finder *f, const char *name)
{
    const Merged *out = f->out;
    const char *kept = NULL;
    for (uint32_t i = 0; i < out->nalias; i++) {
        if (strcmp(out->alias[i].copy, name) != 0)
            continue;
        if (kept && kept != out->alias[i].kept)
            return false;
        kept = out->alias[i].kept;
    }
    return kept;
}

/* Is the tensor computed from a parameter that no record mentions?  What the exporter merges, tensors of
 * equal values, has the origin of one of them alone: there, and where it says none, the reader's module
 * tells. */
static bool is_from_hidden(Finder *f, const Read *r)
{
    const Folded *from = folded(f->m, r->of->name);
    bool any = false;
    for (uint32_t i = 0; from && i < from->n; i++)
        any |= holds(&f->out->hidden, from->of[i]->name);
    return any || ((!from || is_uniform(f, r->of)) && lies_under(f, f->record[r->node].scope));
}

/* Finds a tensor that only is a hidden parameter in another shape.  One of equal values may stand for another
 * parameter, too, of which the file then says nothing. */
static void find_moved(Finder *f, const Onnx__TensorProto *t)
{
    const Names *hidden = &f->out->hidden;
    const Declared *from = moved_from(f, t);
    bool only = from;
    for (uint32_t i = 0; i < hidden->n && only && is_uniform(f, t); i++)
        only &= declared(f->signature, hidden->name[i])->folded;
    for (uint32_t i = 0; i < hidden->n && only; i++)
        if (strcmp(hidden->name[i], from->name) == 0)
            name_put(&f->out->moved, t->name, i);
}

/* Finds parameters that no record mentions: they are tied to others, or the exporter has computed what the
 * program makes of them (positions looked up in a table).  Tensors of no known origin may be that. */
static void find_computed(Finder *f)
{
    const Signature *s = f->signature;
    Merged *out = f->out;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->by_symbol[i].parameter && !s->by_symbol[i].mentioned && !tensor_of(f, s->by_symbol[i].name))
            add_name(f, &out->unread, s->by_symbol[i].name);
    if (out->unread.n)
        qsort(out->unread.name, out->unread.n, sizeof *out->unread.name, by_text);
    for (uint32_t i = 0; i < out->unread.n; i++)
        if (!is_alias(f, out->unread.name[i]))
            add_name(f, &out->hidden, out->unread.name[i]);
    for (uint32_t i = 0, n; i < f->nread && s->n; i += n) {
        const char *own = f->read[i].of->name;
        bool named = declared(s, own) != NULL, in_scope = false, under = false;
        for (n = 0; i + n < f->nread && f->read[i + n].of == f->read[i].of; n++) {
            const Read *r = &f->read[i + n];
            bool here = !r->created && is_from_hidden(f, r);
            named |= r->param != own ? !r->weak || declared(s, r->param) : !r->weak && !here && !r->created;
            in_scope |= r->param != own; /* a name made of a module's that lacks a parameter */
            under |= here;
        }
        bool known = folded(f->m, own) && !is_uniform(f, f->read[i].of);
        find_bias_tie(f, f->read[i].of);
        if (named || (!under && in_scope && !known) || holds(&out->remade, own) ||
            find_moved_tie(f, f->read[i].of))
            continue;
        add_name(f, under ? &out->computed : &out->constant, own);
        find_moved(f, f->read[i].of);
    }
}

const Merged *model_merged(OnnxModel *m)
{
    if (m->merged)
        return m->merged;
    const Onnx__GraphProto *gp = m->proto->graph;
    m->merged = NEW(&m->arena, Merged, 1);
    Finder f = {.m = m, .signature = model_signature(m), .out = m->merged};
    f.record = read_records(m);
    f.values = arena_alloc(&m->arena, gp->n_initializer + 1, sizeof *f.values);
    f.turned = name_map(&m->arena);
    f.out->transposed_at = name_map(&m->arena);
    f.out->moved = name_map(&m->arena);
    find_lacking(&f);
    if (f.record)
        find_reads(&f);
    if (f.nread)
        qsort(f.read, f.nread, sizeof *f.read, by_tensor);
    for (uint32_t i = 0, n; i < f.nread; i += n) {
        for (n = 1; i + n < f.nread && f.read[i + n].of == f.read[i].of; n++) {
        }
        tell_apart(&f, &f.read[i], n);
        find_transposed(&f, i, n);
        for (uint32_t k = 0; k < n; k++)
            find_indexed(&f, &f.read[i + k]);
    }
    f.known = name_map(&m->arena);
    for (uint32_t i = 0; i < f.nread; i++)
        name_put(&f.known, f.read[i].param, i);
    find_copies(&f);
    if (f.record)
        find_dropped(&f);
    find_remade(&f);
    find_computed(&f);
    index_reads(&f);
    add_tensors(&f);
    widen_nodes(&f);
    return m->merged;
}

bool is_computed(OnnxModel *m, const char *name) { return holds(&model_merged(m)->computed, name); }

/* It is the exporter's own constant if no parameter of the program can be behind it. */
bool is_own_constant(Import *x, const char *name, const Tensor *t)
{
    const Merged *merged = model_merged(x->m);
    return holds(&merged->constant, name) &&
           (merged->hidden.n == 0 || tensor_is_uniform(t) || folded(x->m, name));
}
