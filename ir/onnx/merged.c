/* merged.c -- initializers that stand for several parameters, told apart by the exporter's
 * records.
 *
 * When it exports, PyTorch merges tensors with equal values (all norms of a fresh model)
 * and drops biases that are zero.  What the program read is still written in the file: each
 * node has the call it comes from with its operands ("fx_node"), whose parameters the
 * signature names, and its module ("name_scopes", or the path that is the node's name).  A
 * parameter that the program itself reads twice has one name there: a genuine tie.
 * TorchScript's exporter leaves an Identity that makes the one tensor the other. */
#include "onnx_int.h"
#include "protobuf.h"
#include <stdlib.h>
#include <string.h>

enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, NODE_METADATA = 9, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { MOST_READ = 8, LONGEST = 256, LARGEST_BIAS = 1 << 24 };

/* What a node's records say. */
typedef struct {
    const Declared *param[MOST_READ]; /* that the call reads */
    int nparam;
    const char *scope; /* path of the module, NULL: not known */
} Record;

/* An operand that is an initializer, and the parameter it stands for. */
typedef struct {
    const Onnx__TensorProto *of;
    uint32_t node;
    int slot;
    const char *param; /* of's own name unless told apart */
    const char *name;  /* the parameter's, or one made from it */
    bool weak;         /* told by the scope alone */
    bool identity;     /* an Identity makes it that */
} Read;

typedef struct {
    OnnxModel *m;
    const Signature *signature;
    const Onnx__TensorProto **tensor; /* the initializers by name */
    size_t ntensor;
    Record *record; /* per node */
    Read *read;
    uint32_t nread, cread;
    const char **known; /* sorted names of the parameters that are read */
    bool *mentioned;    /* by some record, in the order of by_symbol */
    Merged *out;
} Finder;

/* ---- the file's records ------------------------------------------------- */

static void add_symbols(Finder *f, Record *r, const char *text, size_t size)
{
    char symbol[LONGEST];
    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        while (text[i] == '%' && i + 1 + n < size && n + 1 < sizeof symbol &&
               !strchr(" ,()[]:", text[i + 1 + n]))
            symbol[n] = text[i + 1 + n], n++;
        symbol[n] = 0;
        const Declared *d = n ? declared_symbol(f->signature, symbol) : NULL;
        bool again = false;
        for (int k = 0; k < r->nparam; k++)
            again |= r->param[k] == d;
        if (d)
            f->mentioned[d - f->signature->by_symbol] = true;
        if (d && d->parameter && !again && r->nparam < MOST_READ)
            r->param[r->nparam++] = d;
    }
}

/* ['', 'layer', 'layer.norm', 'layer_norm']: the last but one; repeated calls add "@1". */
static const char *last_scope(Finder *f, const char *text, size_t size)
{
    size_t begin[3] = {0}, end[3] = {0};
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\'')
            continue;
        size_t start = ++i;
        while (i < size && text[i] != '\'')
            i++;
        begin[0] = begin[1], end[0] = end[1];
        begin[1] = start, end[1] = i;
    }
    const char *s = arena_strndup(&f->m->arena, text + begin[0], end[0] - begin[0]);
    return *s ? arena_strndup(&f->m->arena, s, strcspn(s, "@")) : NULL;
}

/* "/layer/norm/LayerNormalization" */
static const char *scope_of_path(Finder *f, const char *path)
{
    const char *end = *path == '/' ? strrchr(path + 1, '/') : NULL;
    if (!end)
        return NULL;
    char *s = arena_strndup(&f->m->arena, path + 1, (size_t)(end - path - 1));
    for (char *c = s; *c; c++)
        *c = *c == '/' ? '.' : *c;
    return s;
}

static void read_entry(Finder *f, Record *r, const WireField *entry)
{
    WireField key = {0}, value = {0}, part;
    Wire w = wire_of(entry->data, entry->size);
    while (wire_next(&w, &part))
        if (part.type == WIRE_BYTES)
            *(part.number == ENTRY_KEY ? &key : &value) = part;
    if (wire_is(&key, "pkg.torch.onnx.fx_node"))
        add_symbols(f, r, (const char *)value.data, value.size);
    else if (wire_is(&key, "pkg.torch.onnx.name_scopes"))
        r->scope = last_scope(f, (const char *)value.data, value.size);
}

/* Of all nodes, from the mapped file: protobuf-c has not kept them. */
static bool read_records(Finder *f)
{
    const Onnx__GraphProto *gp = f->m->proto->graph;
    Wire w = wire_of(f->m->map.data, f->m->map.size), nodes = {0}, node;
    WireField field;
    while (wire_next(&w, &field))
        if (field.number == MODEL_GRAPH && field.type == WIRE_BYTES)
            nodes = wire_of(field.data, field.size);
    size_t i = 0;
    while (wire_next(&nodes, &field)) {
        if (field.number != GRAPH_NODE || field.type != WIRE_BYTES)
            continue;
        if (i == gp->n_node)
            return false;
        Record *r = &f->record[i];
        node = wire_of(field.data, field.size);
        while (wire_next(&node, &field))
            if (field.number == NODE_METADATA && field.type == WIRE_BYTES)
                read_entry(f, r, &field);
        if (!r->scope)
            r->scope = scope_of_path(f, pb(gp->node[i]->name));
        i++;
    }
    return i == gp->n_node;
}

/* ---- names -------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const Onnx__TensorProto *const *x = a, *const *y = b;
    return strcmp(pb((*x)->name), pb((*y)->name));
}

static const Onnx__TensorProto *tensor_of(const Finder *f, const char *name)
{
    Onnx__TensorProto key = {.name = (char *)(uintptr_t)name}, *at = &key;
    const Onnx__TensorProto **found =
        f->ntensor ? bsearch(&at, f->tensor, f->ntensor, sizeof *f->tensor, by_name) : NULL;
    return found ? *found : NULL;
}

static const char *leaf(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_bias(const char *name) { return strstr(leaf(name), "bias") != NULL; }

/* One of the call's parameters that is not in the file and may be this tensor, by its last
 * name or its rank; NULL: none or several. */
static const char *absent(const Finder *f, const Record *r, const Onnx__TensorProto *t,
                          bool by_leaf)
{
    const char *only = NULL;
    for (int i = 0; i < r->nparam; i++) {
        const char *name = r->param[i]->name;
        if ((by_leaf ? strcmp(leaf(name), leaf(t->name)) != 0
                     : t->n_dims > 1 && is_bias(name)) ||
            tensor_of(f, name))
            continue;
        if (only)
            return NULL;
        only = name;
    }
    return only;
}

/* Does the module have a parameter of its own that the file has not? */
static bool lacks_one(const Finder *f, const char *scope)
{
    size_t n = strlen(scope);
    for (uint32_t i = 0; i < f->signature->n; i++) {
        const Declared *d = &f->signature->by_name[i];
        if (d->parameter && strncmp(d->name, scope, n) == 0 && d->name[n] == '.' &&
            !strchr(d->name + n + 1, '.') && !tensor_of(f, d->name))
            return true;
    }
    return false;
}

/* By the node's module: what it holds under the tensor's own last name. */
static const char *name_in_scope(const Finder *f, const char *own, const char *scope)
{
    bool held = strchr(own, '.') && !strpbrk(own, ":/");
    if (!scope || (f->signature->n ? !lacks_one(f, scope) : !held))
        return own;
    const char *name = arena_printf(&f->m->arena, "%s.%s", scope, leaf(own));
    return tensor_of(f, name) ? own : name;
}

/* The parameter that the tensor is for this node. */
static const char *parameter_read(const Finder *f, const Onnx__TensorProto *t,
                                  const Record *r)
{
    const char *own = t->name;
    if (r->nparam == 0)
        return name_in_scope(f, own, r->scope);
    for (int i = 0; i < r->nparam; i++)
        if (strcmp(r->param[i]->name, own) == 0)
            return own;
    const char *name = absent(f, r, t, true);
    if (!name)
        name = absent(f, r, t, false);
    return name ? name : own;
}

/* ---- ties that the exporter cut ----------------------------------------- */

static void add_tie(Finder *f, const char *kept, const char *copy)
{
    Merged *out = f->out;
    out->tie = arena_grow(&f->m->arena, out->tie, out->ntie, &out->ctie, sizeof *out->tie);
    out->tie[out->ntie++] = (OnnxTie){kept, copy};
}

/* A tensor of no name that the call reads as a parameter of the file, transposed. */
static void find_cut_tie(Finder *f, const Onnx__TensorProto *t, const Record *r)
{
    for (int i = 0; i < r->nparam && !declared(f->signature, t->name); i++) {
        const Onnx__TensorProto *p = tensor_of(f, r->param[i]->name);
        if (!p || p->n_dims != 2 || t->n_dims != 2 || p->dims[0] != t->dims[1] ||
            p->dims[1] != t->dims[0] || p->data_type != t->data_type)
            continue;
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
    return tensor_load(f->m, p, &t, &d) && t.t.data && tensor_is_uniform(&t.t);
}

static bool made_by_identity(const Finder *f, const Onnx__NodeProto *p,
                             const Onnx__TensorProto *t)
{
    return strcmp(pb(p->op_type), "Identity") == 0 && p->n_output == 1 && is_uniform(f, t);
}

/* Values of its own under another module's name: a tie. */
static void find_alias(Finder *f, const Onnx__TensorProto *t, const Record *r)
{
    Merged *out = f->out;
    const char *name = name_in_scope(f, t->name, r->scope);
    size_t n = r->scope ? strlen(r->scope) : 0;
    bool called = !f->signature->n; /* with it: as that parameter, not one folded into it */
    for (int i = 0; i < r->nparam; i++)
        called |= strcmp(r->param[i]->name, t->name) == 0;
    bool around = strncmp(t->name, pb(r->scope), n) == 0 && t->name[n] == '.';
    if (name == t->name || around || !called || (f->signature->n && !declared(f->signature, name)) ||
        is_uniform(f, t))
        return;
    out->alias =
        arena_grow(&f->m->arena, out->alias, out->nalias, &out->calias, sizeof *out->alias);
    out->alias[out->nalias++] = (OnnxTie){t->name, name};
}

static void find_reads(Finder *f)
{
    const Onnx__GraphProto *gp = f->m->proto->graph;
    for (uint32_t i = 0; i < gp->n_node; i++)
        for (size_t k = 0; k < gp->node[i]->n_input; k++) {
            const Onnx__TensorProto *t = tensor_of(f, pb(gp->node[i]->input[k]));
            if (!t || !dtype_is_float(onnx_dtype(t->data_type)) ||
                (elements(t) < 2 && !declared(f->signature, t->name)))
                continue;
            const Record *r = &f->record[i];
            Read read = {.of = t, .node = i, .slot = (int)k, .weak = r->nparam == 0};
            read.name = read.param = parameter_read(f, t, r);
            read.identity = made_by_identity(f, gp->node[i], t);
            if (read.identity)
                read.name = read.param = gp->node[i]->output[0];
            else if (!read.weak && read.name != t->name && !declared(f->signature, t->name))
                read.name = arena_printf(&f->m->arena, "%s.%s", read.param, t->name);
            f->read = arena_grow(&f->m->arena, f->read, f->nread, &f->cread, sizeof read);
            f->read[f->nread++] = read;
            find_cut_tie(f, t, r);
            find_alias(f, t, r);
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

/* All reads of one tensor.  Where only scopes speak, and where all say the same, weights of
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

static int by_param(const void *a, const void *b)
{
    const Read *x = *(const Read *const *)a, *y = *(const Read *const *)b;
    int order = strcmp(x->param, y->param);
    return order ? order : x < y ? -1 : x > y;
}

/* Several tensors made from one parameter that the file has not: a layer applied repeatedly. */
static void find_copies(Finder *f)
{
    const Read **made = NEW(&f->m->arena, const Read *, f->nread + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->nread; i++)
        if (!f->read[i].weak && f->read[i].param != f->read[i].of->name &&
            !declared(f->signature, f->read[i].of->name))
            made[n++] = &f->read[i];
    qsort(made, n, sizeof *made, by_param);
    for (uint32_t i = 1, first = 0; i < n; i++)
        if (strcmp(made[i]->param, made[first]->param) != 0)
            first = i;
        else if (made[i]->of != made[first]->of)
            add_tie(f, made[first]->of->name, made[i]->of->name);
}

/* ---- biases that were zero ---------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_read(const Finder *f, const char *param)
{
    return f->nread && bsearch(&param, f->known, f->nread, sizeof param, by_text);
}

static const char *dropped_bias(const Finder *f, const Record *r)
{
    const char *only = NULL;
    for (int i = 0; i < r->nparam; i++) {
        const char *name = r->param[i]->name;
        if (!is_bias(name) || is_read(f, name))
            continue;
        if (only)
            return NULL;
        only = name;
    }
    return only;
}

static int64_t int_attribute(const Onnx__NodeProto *p, const char *name, int64_t dflt)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (strcmp(pb(p->attribute[i]->name), name) == 0)
            return p->attribute[i]->i;
    return dflt;
}

/* Elements of the bias of a product or convolution with these weights; 0: it is neither. */
static int64_t bias_count(const Onnx__NodeProto *p, const Onnx__TensorProto *w)
{
    const char *op = pb(p->op_type);
    if (w->n_dims == 2 && strcmp(op, "Gemm") == 0)
        return w->dims[!int_attribute(p, "transB", 0)];
    if (w->n_dims > 2 && strcmp(op, "Conv") == 0)
        return w->dims[0];
    bool transposed = w->n_dims > 2 && strcmp(op, "ConvTranspose") == 0;
    int64_t groups = transposed ? int_attribute(p, "group", 1) : 0;
    return transposed && groups > 0 && w->dims[1] <= INT32_MAX / groups
               ? w->dims[1] * groups
               : 0;
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
        if (count > 0 && count <= LARGEST_BIAS)
            separate(f, &r, w->data_type, count);
    }
}

/* ---- the model with all names ------------------------------------------- */

static void put_zeros(Finder *f, Onnx__TensorProto *t, size_t n)
{
    if (t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        t->float_data = NEW(&f->m->arena, float, n), t->n_float_data = n;
    else if (t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE)
        t->double_data = NEW(&f->m->arena, double, n), t->n_double_data = n;
    else
        t->int32_data = NEW(&f->m->arena, int32_t, n), t->n_int32_data = n;
}

static Onnx__TensorProto *named_tensor(Finder *f, const Separate *s)
{
    Onnx__TensorProto *t = NEW(&f->m->arena, Onnx__TensorProto, 1);
    if (s->kept) {
        *t = *tensor_of(f, s->kept);
    } else {
        onnx__tensor_proto__init(t);
        t->has_data_type = true;
        t->data_type = s->data_type;
        t->n_dims = 1;
        t->dims = NEW(&f->m->arena, int64_t, 1);
        t->dims[0] = s->count;
        put_zeros(f, t, (size_t)s->count);
    }
    t->name = (char *)(uintptr_t)s->name;
    return t;
}

static int by_parameter(const void *a, const void *b)
{
    return strcmp((*(const Separate *const *)a)->name, (*(const Separate *const *)b)->name);
}

/* Behind the initializers of the file those of the names that were told apart. */
static void add_tensors(Finder *f)
{
    Onnx__GraphProto *gp = f->m->proto->graph;
    Merged *out = f->out;
    size_t n = out->ninitializer = gp->n_initializer;
    Onnx__TensorProto **all = NEW(&f->m->arena, Onnx__TensorProto *, n + out->n + 1);
    const Separate **s = NEW(&f->m->arena, const Separate *, out->n + 1);
    for (size_t i = 0; i < n; i++)
        all[i] = gp->initializer[i];
    for (uint32_t i = 0; i < out->n; i++)
        s[i] = &out->read[i];
    qsort(s, out->n, sizeof *s, by_parameter);
    for (uint32_t i = 0; i < out->n; i++)
        if ((!i || strcmp(s[i]->name, s[i - 1]->name) != 0) && !s[i]->identity &&
            !tensor_of(f, s[i]->name))
            all[n + out->nadded++] = named_tensor(f, s[i]);
    gp->initializer = all;
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

/* Room for the operand of a dropped bias. */
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

static void sort_tensors(Finder *f)
{
    const Onnx__GraphProto *gp = f->m->proto->graph;
    f->ntensor = gp->n_initializer;
    f->tensor = NEW(&f->m->arena, const Onnx__TensorProto *, f->ntensor + 1);
    for (size_t i = 0; i < f->ntensor; i++)
        f->tensor[i] = gp->initializer[i];
    qsort(f->tensor, f->ntensor, sizeof *f->tensor, by_name);
}

static void add_name(Finder *f, Names *list, const char *name)
{
    list->name =
        arena_grow(&f->m->arena, list->name, list->n, &list->cap, sizeof *list->name);
    list->name[list->n++] = name;
}

/* Can the node have read what the exporter made of a parameter that no record mentions? */
static bool lies_under(const Merged *out, const char *scope)
{
    size_t n = scope ? strlen(scope) : 0;
    bool found = false;
    for (uint32_t i = 0; i < out->unread.n; i++) {
        const char *name = out->unread.name[i];
        found |= !scope || (strncmp(name, scope, n) == 0 && name[n] == '.');
    }
    return found;
}

/* Parameters that no record mentions: the exporter has computed what the program makes of
 * them (positions looked up in a table).  Tensors of no known origin may be that. */
static void find_computed(Finder *f)
{
    const Signature *s = f->signature;
    Merged *out = f->out;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->by_symbol[i].parameter && !f->mentioned[i] &&
            !tensor_of(f, s->by_symbol[i].name))
            add_name(f, &out->unread, s->by_symbol[i].name);
    for (uint32_t i = 0, n; i < f->nread && s->n; i += n) {
        const char *own = f->read[i].of->name;
        bool named = declared(s, own) != NULL, under = false;
        for (n = 0; i + n < f->nread && f->read[i + n].of == f->read[i].of; n++) {
            const Read *r = &f->read[i + n];
            named |= r->param != own || !r->weak;
            under |= lies_under(out, f->record[r->node].scope);
        }
        if (!named)
            add_name(f, under ? &out->computed : &out->constant, own);
    }
}

const Merged *model_merged(OnnxModel *m)
{
    if (m->merged)
        return m->merged;
    const Onnx__GraphProto *gp = m->proto->graph;
    m->merged = NEW(&m->arena, Merged, 1);
    Finder f = {.m = m, .signature = model_signature(m), .out = m->merged};
    f.record = NEW(&m->arena, Record, gp->n_node + 1);
    f.mentioned = NEW(&m->arena, bool, f.signature->n + 1);
    sort_tensors(&f);
    if (read_records(&f))
        find_reads(&f);
    if (f.nread)
        qsort(f.read, f.nread, sizeof *f.read, by_tensor);
    for (uint32_t i = 0, n; i < f.nread; i += n) {
        for (n = 1; i + n < f.nread && f.read[i + n].of == f.read[i].of; n++) {
        }
        tell_apart(&f, &f.read[i], n);
    }
    f.known = NEW(&m->arena, const char *, f.nread + 1);
    for (uint32_t i = 0; i < f.nread; i++)
        f.known[i] = f.read[i].param;
    qsort(f.known, f.nread, sizeof *f.known, by_text);
    find_copies(&f);
    find_dropped(&f);
    find_computed(&f);
    add_tensors(&f);
    index_reads(&f);
    widen_nodes(&f);
    return m->merged;
}

/* ---- importing ---------------------------------------------------------- */

void merged_prepare(Import *x)
{
    Onnx__GraphProto *gp = x->m->proto->graph;
    const Merged *merged = model_merged(x->m);
    bool apart = x->opt->untie;
    gp->n_initializer = merged->ninitializer + (apart ? merged->nadded : 0);
    for (uint32_t i = 0; i < merged->n; i++) {
        const Separate *s = &merged->read[i];
        Onnx__NodeProto *p = gp->node[s->node];
        if (s->identity)
            continue;
        if (s->kept)
            p->input[s->slot] = (char *)(uintptr_t)(apart ? s->name : s->kept);
        else
            p->n_input = apart ? 3 : 2;
    }
}

/* "a, b, c and 7 more" */
static const char *listing(Import *x, const char *const *name, uint32_t n)
{
    enum { SHOWN = 4 };
    const char *text = "";
    for (uint32_t i = 0; i < n && i < SHOWN; i++)
        text = arena_printf(x->a, "%s%s%s", text, i ? ", " : "", name[i]);
    return n > SHOWN ? arena_printf(x->a, "%s and %u more", text, n - SHOWN) : text;
}

/* Names of the parameters that one tensor of the file (NULL: none) stands for from *i on.
 */
static uint32_t group(const Merged *merged, uint32_t *i, const char **name)
{
    const char *kept = merged->read[*i].kept;
    uint32_t n = 0;
    for (; *i < merged->n && merged->read[*i].kept == kept; ++*i) {
        bool again = false;
        for (uint32_t k = 0; k < n; k++)
            again |= strcmp(name[k], merged->read[*i].name) == 0;
        if (!again)
            name[n++] = merged->read[*i].name;
    }
    return n;
}

static bool trains(const Import *x, const char *name)
{
    Val v;
    return scope_find(x, name, &v) && x->g->vals[v.i].kind == VAL_PARAM;
}

/* Else it may be made of several parameters, as a convolution with a norm folded in. */
static bool initially_uniform(const Import *x, const char *name)
{
    Val v;
    Tensor t = {.data = NULL};
    if (scope_find(x, name, &v))
        t = graph_tensor(x->g, v);
    return t.data && tensor_is_uniform(&t);
}

/* It is saved under this name as well. */
static void add_weight_name(Import *x, const char *kept, const char *name)
{
    Val v;
    if (scope_find(x, kept, &v) && x->g->vals[v.i].kind == VAL_PARAM)
        name_value(x, v, name);
}

static void report_merged(Import *x, const Merged *merged)
{
    const char **name = NEW(x->a, const char *, merged->n + 1);
    bool apart = x->opt->untie;
    for (uint32_t i = 0; i < merged->n;) {
        const char *kept = merged->read[i].kept;
        uint32_t n = group(merged, &i, name);
        const char *list = listing(x, name, n), *s = n > 1 ? "s" : "";
        if (!kept)
            note(x, ONNX_REMARK, name[0], "%u bias%s of zeros %s (%s)%s", n,
                 n > 1 ? "es" : "",
                 apart ? "restored" : "left out by the exporter, not trained", list,
                 apart ? "" : "; --untie restores them");
        else if (apart || trains(x, kept)) {
            for (uint32_t k = 0; k < n && !apart && initially_uniform(x, kept); k++)
                add_weight_name(x, kept, name[k]);
            note(x, ONNX_REMARK, kept,
                 "%s %u more parameter%s with the same initial values (%s)%s",
                 apart ? "trains apart from" : "stands for", n, s, list,
                 apart ? ""
                       : ": merged by the exporter, they train as one; --untie separates "
                         "them");
        }
    }
}

/* What is tied is no parameter by now. */
static bool report_computed(Import *x, const Merged *merged)
{
    const Names *list[] = {&merged->computed, &merged->constant};
    const char **name = NEW(x->a, const char *, list[0]->n + list[1]->n + 1);
    uint32_t n = 0;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < list[k]->n; i++)
            if (trains(x, list[k]->name[i]))
                name[n++] = list[k]->name[i];
    if (!n || !merged->unread.n)
        return false;
    note(
        x, ONNX_REMARK, name[0],
        "%s computed by the exporter and train%s in place of parameters that no node reads "
        "(of %s)",
        n > 1 ? arena_printf(x->a, "and %s: were", listing(x, name + 1, n - 1)) : "was",
        n > 1 ? "" : "s", listing(x, merged->unread.name, merged->unread.n));
    return true;
}

/* The exporter's own: no parameter of the program can be behind it. */
bool is_own_constant(Import *x, const char *name, const Tensor *t)
{
    const Merged *merged = model_merged(x->m);
    bool own = false;
    for (uint32_t i = 0; i < merged->constant.n && !own; i++)
        own = strcmp(merged->constant.name[i], name) == 0;
    return own && (merged->unread.n == 0 || tensor_is_uniform(t));
}

/* Where equal tensors were merged, so were equal nodes that read them. */
static void report_unread(Import *x, const Merged *merged)
{
    if (merged->n && merged->unread.n)
        note(x, ONNX_REMARK, merged->unread.name[0],
             "no node reads %s: tied to or merged with another, or not used",
             listing(x, merged->unread.name, merged->unread.n));
}

void merged_report(Import *x)
{
    const Merged *merged = model_merged(x->m);
    for (uint32_t i = 0; i < merged->nalias; i++)
        add_weight_name(x, merged->alias[i].kept, merged->alias[i].copy);
    report_merged(x, model_merged(x->m));
    if (!report_computed(x, model_merged(x->m)))
        report_unread(x, model_merged(x->m));
}
