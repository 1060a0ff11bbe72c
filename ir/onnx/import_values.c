/* import_values.c -- what a graph starts from: initializers and inputs become values, symbols get
 * their sizes, and what is remembered of values: notes, names in the file, element types. */
#include "onnx_int.h"
#include <stdarg.h>
#include <string.h>

void note(Import *x, OnnxNoteKind kind, const char *name, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    OnnxModel *m = x->m;
    m->notes = arena_grow(x->a, m->notes, m->nnotes, &m->cnotes, sizeof *m->notes);
    m->notes[m->nnotes++] = (OnnxNote){kind, arena_strndup(x->a, name, strlen(name)),
                                       arena_strndup(x->a, text, strlen(text))};
}

void name_value(Import *x, Val v, const char *name) { name_value_of(x, v, name, NAME_OF_BOTH, false); }

void name_value_of(Import *x, Val v, const char *name, NameHolder of, bool transposed)
{
    name = arena_strndup(x->g->arena, name, strlen(name));
    graph_name_in_model(x->g, v, (ModelName){.name = name, .of = of, .transposed = transposed});
}

void set_data_type(Import *x, Val v, int32_t data_type)
{
    if (!data_type_is_widened(data_type))
        return;
    while (x->ntypes <= v.i) {
        x->data_type = arena_grow(x->a, x->data_type, x->ntypes, &x->ctypes, sizeof *x->data_type);
        x->data_type[x->ntypes++] = 0;
    }
    x->data_type[v.i] = data_type;
}

/* ---- initializers ------------------------------------------------------- */

static const Tensor *find_feed(const Import *x, const char *input)
{
    const uint32_t *i = name_get(&x->feeds, input);
    return i ? &x->opt->feed[*i].t : NULL;
}

static void refer_to_file(Import *x, Val v, const OnnxTensor *t)
{
    x->g->vals[v.i].file = t->file;
    x->g->vals[v.i].offset = t->offset;
}

/* Integers of less than 8 bits.  Many of them stay packed in memory, and a node of the graph unpacks them. */
static bool packed_value(Import *x, const char *name, const Onnx__TensorProto *p, Val *v)
{
    OnnxTensor t;
    Type type;
    TRY(tensor_type_of(p, &type, x->d) && tensor_load_packed(x->m, p, &t, x->d));
    Val bytes = graph_value(x->g, name, t.t.type, VAL_CONST);
    x->g->vals[bytes.i].data = t.t.data;
    refer_to_file(x, bytes, &t);
    *v = unpack_elements(x->g, bytes, &type, p->data_type);
    return v->i;
}

/* Makes a value of a tensor of the file: weights and bytes refer to the mapping, other constants are copied.
 * Constants that are no weights, by the exporter's signature or a note, or that PyTorch does not save, have
 * no name to be saved under. */
static bool tensor_value(Import *x, const char *name, const Onnx__TensorProto *p, Val *v)
{
    OnnxTensor t = {0};
    int bits = data_type_bits(p->data_type);
    if (bits && bits < 8) {
        TRY(packed_value(x, name, p, v));
        set_data_type(x, *v, p->data_type);
        return true;
    }
    const char *lacks = x->opt->weightless ? tensor_lacks(x->m, p) : NULL;
    TRY(lacks ? tensor_type_of(p, &t.t.type, x->d) : tensor_load(x->m, p, &t, x->d));
    uint32_t notes = x->m->nnotes;
    ValKind kind = dtype_is_float(t.t.type.dt) ? role_of(x, name, &t.t) : VAL_CONST;
    if (lacks && kind == VAL_CONST)
        return tensor_load(x->m, p, &t, x->d); /* reports that */
    if (lacks)
        note(x, ONNX_REMARK, name, "its values should lie in '%s', which is not there: a run needs them",
             lacks);
    bool weight = kind != VAL_CONST || role_is_frozen(x, name, x->m->nnotes > notes);
    if (kind == VAL_PARAM && (import_gates(x, name, &t, v) || import_moved(x, name, &t, v))) {
        set_data_type(x, *v, p->data_type);
        return true;
    }
    const char *module = x->depth == 0 ? transposed_parameter(x->m, name, x->opt->untie) : NULL;
    const char *shown = module ? module : name;
    bool refers = kind != VAL_CONST || (t.t.data && dtype_size[t.t.type.dt] == 1); /* at any address */
    *v = refers ? graph_value(x->g, shown, t.t.type, kind) : graph_const(x->g, shown, t.t.type, t.t.data);
    if (refers)
        x->g->vals[v->i].data = t.t.data;
    if (refers || weight)
        refer_to_file(x, *v, &t);
    if (weight && (kind != VAL_CONST || !role_is_transient(x, name))) {
        name_value_of(x, *v, name, module ? NAME_OF_FILE : NAME_OF_BOTH, false);
        if (module)
            name_of_transposed(x, *v, name, x->opt->untie);
    }
    set_data_type(x, *v, p->data_type);
    return true;
}

bool import_initializers(Import *x, const Onnx__GraphProto *gp)
{
    for (size_t i = 0; i < gp->n_initializer; i++) {
        const Onnx__TensorProto *p = gp->initializer[i];
        const Tensor *feed = x->depth == 0 ? find_feed(x, pb(p->name)) : NULL;
        Val v = {0};
        if (feed) /* an input whose default value is overridden */
            v = graph_const(x->g, pb(p->name), feed->type, feed->data);
        else if (!tensor_value(x, pb(p->name), p, &v)) {
            TRY(x->depth == 0 && !is_needed(x, pb(p->name)) && leave_out(x));
            v.i = UINT32_MAX;
        }
        if (!scope_add(x, pb(p->name), v))
            return fail(x->d, "two initializers are named '%s'", pb(p->name));
    }
    for (size_t i = 0; i < gp->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *p = gp->sparse_initializer[i];
        const char *name = p->values ? pb(p->values->name) : "";
        Val v = import_sparse(x, name, p);
        TRY(v.i);
        if (dtype_is_float(val_type(x->g, v)->dt))
            note(x, ONNX_FROZEN, name, "a sparse tensor, whose zeros stay");
        if (!scope_add(x, name, v))
            return fail(x->d, "two initializers are named '%s'", name);
    }
    return true;
}

Val import_constant(Import *x, const char *name, const Onnx__TensorProto *p)
{
    OnnxTensor t;
    if (!tensor_load(x->m, p, &t, x->d))
        return (Val){0};
    Val v = graph_const(x->g, *name ? name : "c", t.t.type, t.t.data);
    set_data_type(x, v, p->data_type);
    return v;
}

Val import_sparse(Import *x, const char *name, const Onnx__SparseTensorProto *p)
{
    Tensor t;
    if (!tensor_load_sparse(x->m, p, &t, x->d))
        return (Val){0};
    Val v = graph_const(x->g, *name ? name : "c", t.type, t.data);
    set_data_type(x, v, p->values->data_type);
    return v;
}

/* ---- inputs: binding symbols -------------------------------------------- */

typedef struct {
    const char *symbol;
    char inputs[200]; /* names of the inputs that have it, for the message */
} Unbound;

/* The size that a symbol has in the data of an input. */
typedef struct {
    const char *symbol, *input;
    int64_t size;
} Fed;

typedef struct {
    Import *x;
    bool *used; /* per --bind option: has an input asked for it? */
    const char **symbol; /* symbols that inputs have asked for */
    uint32_t nsymbol, csymbol;
    Unbound unbound[32];
    int nunbound;
    Fed *fed;
    uint32_t nfed, cfed;
    bool has_batch; /* some dimension is called batch */
} Binder;

static const OnnxBind *find_bind(const OnnxOptions *opt, const char *symbol)
{
    for (int i = 0; i < opt->nbind; i++)
        if (strcmp(opt->bind[i].symbol, symbol) == 0)
            return &opt->bind[i];
    return NULL;
}

/* Sets *value if there is such a --bind. */
static bool use_bind(Binder *b, const OnnxBind *bind, int64_t *value)
{
    if (!bind)
        return false;
    b->used[bind - b->x->opt->bind] = true;
    *value = bind->value;
    return true;
}

/* Remembers a name that --bind may have, for the hint where none fits. */
static void ask_for(Binder *b, const char *symbol)
{
    b->symbol = arena_grow(b->x->a, b->symbol, b->nsymbol, &b->csymbol, sizeof *b->symbol);
    b->symbol[b->nsymbol++] = arena_strndup(b->x->a, symbol, strlen(symbol));
}

static void add_unbound(Binder *b, const char *symbol, const char *input)
{
    int i = 0;
    while (i < b->nunbound && strcmp(b->unbound[i].symbol, symbol) != 0)
        i++;
    if (i == (int)(sizeof b->unbound / sizeof b->unbound[0]))
        return;
    Unbound *u = &b->unbound[i];
    if (i == b->nunbound)
        *u = (Unbound){.symbol = symbol}, b->nunbound++;
    size_t n = strlen(u->inputs);
    snprintf(u->inputs + n, sizeof u->inputs - n, "%s%s", n ? ", " : "", input);
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *in)
{
    bool tensor = in->type && in->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? in->type->tensor_type : NULL;
}

static bool is_symbolic(const Onnx__ValueInfoProto *in)
{
    const Onnx__TypeProto__Tensor *p = tensor_type(in);
    for (size_t k = 0; p && p->shape && k < p->shape->n_dim; k++)
        if (p->shape->dim[k]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            return true;
    return false;
}

bool onnx_output_open(const OnnxModel *m, const char *name)
{
    const Onnx__GraphProto *gp = m->proto->graph;
    bool open = false;
    for (size_t i = 0; i < gp->n_output; i++)
        open |= strcmp(pb(gp->output[i]->name), name) == 0 && is_symbolic(gp->output[i]);
    return open;
}

bool declared_type(const Onnx__ValueInfoProto *v, Type *t)
{
    const Onnx__TypeProto__Tensor *p = tensor_type(v);
    if (!p || !p->shape || p->shape->n_dim > MAX_RANK || is_symbolic(v))
        return false;
    *t = (Type){.dt = onnx_dtype(p->elem_type), .rank = (int)p->shape->n_dim};
    for (int k = 0; k < t->rank; k++)
        t->dim[k] = p->shape->dim[k]->dim_value;
    return type_valid(t);
}

static bool has_batch(const Onnx__GraphProto *gp)
{
    for (size_t i = 0; i < gp->n_input; i++) {
        const Onnx__TypeProto__Tensor *p = tensor_type(gp->input[i]);
        for (size_t k = 0; p && p->shape && k < p->shape->n_dim; k++)
            if (p->shape->dim[k]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                strcmp(pb(p->shape->dim[k]->dim_param), "batch") == 0)
                return true;
    }
    return false;
}

/* The --bind of dimension k of an input; the first is the batch unless a dimension is called so. */
static const OnnxBind *size_bind(const OnnxOptions *opt, bool has_batch, const char *by_place,
                                 const char *symbol, int k)
{
    const OnnxBind *place = find_bind(opt, by_place), *named = find_bind(opt, symbol);
    return place ? place : named || k || has_batch ? named : find_bind(opt, "batch");
}

const OnnxBind *onnx_batch_bind(const OnnxModel *m, uint32_t k, const OnnxOptions *opt, Arena *a)
{
    const char *name = onnx_input_batch(m, k, a);
    return name ? size_bind(opt, has_batch(m->proto->graph), arena_printf(a, "%s.0", m->input[k]), name, 0)
                : NULL;
}

static bool find_size(Binder *b, const char *by_place, const char *symbol, int k, int64_t *value)
{
    ask_for(b, by_place);
    ask_for(b, symbol);
    if (k == 0 && !b->has_batch)
        ask_for(b, "batch");
    return use_bind(b, size_bind(b->x->opt, b->has_batch, by_place, symbol, k), value);
}

/* Are the data of a dimension as large as --bind says, and as those of others that have its symbol?  The
 * latter unless --bind gives it by its place. */
static void check_fed(Binder *b, const char *by_place, Fed now, int k)
{
    const OnnxOptions *opt = b->x->opt;
    int64_t said = now.size;
    if (find_size(b, by_place, now.symbol, k, &said) && said != now.size)
        diag_set(b->x->d, "input '%s' has %s = %lld in the data, and --bind says %lld", now.input, now.symbol,
                 (long long)now.size, (long long)said);
    for (uint32_t i = 0; i < b->nfed && !find_bind(opt, by_place); i++)
        if (strcmp(b->fed[i].symbol, now.symbol) == 0 && b->fed[i].size != now.size)
            diag_set(b->x->d,
                     "input '%s' has %s = %lld in the data, and input '%s' has %lld (--bind %s=%lld tells "
                     "them apart)",
                     now.input, now.symbol, (long long)now.size, b->fed[i].input, (long long)b->fed[i].size,
                     by_place, (long long)now.size);
    b->fed = arena_grow(b->x->a, b->fed, b->nfed, &b->cfed, sizeof *b->fed);
    b->fed[b->nfed++] = now;
}

static void bind_dim(Binder *b, const char *input, int k,
                     const Onnx__TensorShapeProto__Dimension *dim, int64_t *value)
{
    char by_place[300];
    snprintf(by_place, sizeof by_place, "%s.%d", input, k);
    *value = 1;
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dim->dim_value >= 0) {
        *value = dim->dim_value;
        return;
    }
    const char *symbol = by_place;
    const Tensor *feed = find_feed(b->x, input);
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *pb(dim->dim_param))
        symbol = dim->dim_param;
    if (feed && k < feed->type.rank) {
        *value = feed->type.dim[k];
        Fed now = {arena_strndup(b->x->a, symbol, strlen(symbol)), input, *value};
        check_fed(b, by_place, now, k);
        return;
    }
    if (!find_size(b, by_place, symbol, k, value))
        add_unbound(b, arena_strndup(b->x->a, symbol, strlen(symbol)), input);
    else if (*value < (k == 0)) /* a past of no positions is usual, a batch of nothing a mistake */
        diag_set(b->x->d, "--bind %s=%lld: a dimension has a size from %d on", symbol, (long long)*value,
                 k == 0);
}

static bool bind_input(Binder *b, const Onnx__ValueInfoProto *in, Type *t)
{
    Import *x = b->x;
    const char *name = pb(in->name);
    const Onnx__TypeProto__Tensor *p = tensor_type(in);
    if (!p)
        return fail_status(x->d, EXIT_UNSUPPORTED, "input '%s' is not a tensor", name);
    DType dt = onnx_dtype(p->elem_type);
    if (dt == DT_NONE)
        return fail_status(x->d, EXIT_UNSUPPORTED, "input '%s': element type %s is not supported", name,
                           onnx_dtype_name(p->elem_type));
    const Tensor *feed = find_feed(x, name);
    if (!p->shape && feed) {
        *t = type_with(feed->type, dt);
        return true;
    }
    if (!p->shape)
        return fail(x->d, "input '%s' has no shape", name);
    if (p->shape->n_dim > MAX_RANK)
        return fail(x->d, "input '%s' has more than %d dimensions", name, MAX_RANK);
    *t = (Type){.dt = dt, .rank = (int)p->shape->n_dim};
    for (int k = 0; k < t->rank; k++)
        bind_dim(b, name, k, p->shape->dim[k], &t->dim[k]);
    TRY(!x->d->failed);
    return type_valid(t) || fail(x->d, "input '%s' has impossible dimensions", name);
}

static bool no_such_symbol(const Binder *b, const char *bound)
{
    char hint[NEAREST_HINT];
    Nearest near;
    for (uint32_t i = 0; i < b->nsymbol; i++)
        if (strcmp(b->symbol[i], bound) == 0)
            return fail(b->x->d, "--bind %s: other sizes that --bind gives leave no such dimension open",
                        bound);
    nearest_init(&near, bound);
    for (uint32_t i = 0; i < b->nsymbol; i++)
        nearest_try(&near, b->symbol[i]);
    return fail(b->x->d, "--bind %s: no input has such a dimension, or is such an integer%s", bound,
                nearest_hint(&near, hint));
}

static bool report_unbound(Binder *b)
{
    char text[3000] = "";
    size_t n = 0;
    for (int i = 0; i < b->nunbound && n < sizeof text - 300; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s (of %s)", i ? ", " : "",
                              b->unbound[i].symbol, b->unbound[i].inputs);
    const char *unused = NULL;
    for (int i = b->x->opt->nbind; i-- > 0;)
        unused = b->used[i] ? unused : b->x->opt->bind[i].symbol;
    if (b->nunbound)
        return fail(b->x->d, "unbound dimensions: %s; give --bind %s=N%s%s%s%s", text,
                    b->unbound[0].symbol, b->nunbound > 1 ? ",..." : "",
                    unused ? " (no input has a dimension " : "", unused ? unused : "", unused ? ")" : "");
    return !unused || no_such_symbol(b, unused);
}

static bool is_named_data(const OnnxOptions *opt, const char *name)
{
    for (int i = 0; i < opt->ndata; i++)
        if (strcmp(opt->data[i], name) == 0)
            return true;
    return false;
}

/* Is the input fed for certain: named so by the user, of symbolic size, or not float? */
static bool is_data(const Import *x, const Onnx__ValueInfoProto *in)
{
    const Onnx__TypeProto__Tensor *p = tensor_type(in);
    return !p || is_named_data(x->opt, pb(in->name)) || is_symbolic(in) ||
           !dtype_is_float(onnx_dtype(p->elem_type));
}

/* Per input: is it a weight?  Models exported without weights have them as inputs: float, static, with data
 * among the others. */
static bool *find_weights(Import *x, const Onnx__GraphProto *gp)
{
    bool *weight = NEW(x->a, bool, gp->n_input + 1), any_data = x->opt->init;
    bool have_weights = false;
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < gp->n_initializer; i++)
        have_weights |= dtype_is_float(onnx_dtype(gp->initializer[i]->data_type)) &&
                        gp->initializer[i]->n_dims > 0;
    for (size_t i = 0; i < gp->n_input; i++) {
        Val v;
        if (scope_find(x, pb(gp->input[i]->name), &v))
            continue;
        any_data |= is_data(x, gp->input[i]);
        first = first == SIZE_MAX ? i : first;
    }
    for (size_t i = 0; i < gp->n_input; i++)
        weight[i] = any_data && !is_data(x, gp->input[i]) &&
                    (x->opt->init ? i != first || x->opt->ndata
                                  : !have_weights && (!x->opt->forward_only || x->opt->weights));
    return weight;
}

/* Sets the value of an integer input if --bind gives it. */
static bool find_number(Binder *b, const char *name, int64_t *value)
{
    ask_for(b, name);
    return use_bind(b, find_bind(b->x->opt, name), value);
}

bool type_is_integer(const Type *t) { return !dtype_is_float(t->dt) && type_count(t) == 1; }

/* Marks the first input whose first dimension has a symbol, where that is not the model's first input. */
static void mark_batch(Import *x, Val v, bool *found)
{
    Value *val = &x->g->vals[v.i];
    if (*found || val->kind != VAL_INPUT || !onnx_input_batch(x->m, val->place - 1, x->a))
        return;
    val->batch = val->place > 1;
    *found = true;
}

/* An integer input that --bind names becomes a constant. */
bool import_inputs(Import *x, const Onnx__GraphProto *gp)
{
    Binder b = {.x = x, .used = NEW(x->a, bool, x->opt->nbind + 1), .has_batch = has_batch(gp)};
    bool *weight = find_weights(x, gp);
    bool batch_found = false;
    uint32_t place = 0;
    for (size_t i = 0; i < gp->n_input; i++) {
        const char *name = pb(gp->input[i]->name);
        Val v;
        Type t;
        if (scope_find(x, name, &v))
            continue; /* an initializer, repeated as input */
        place++;
        TRY(bind_input(&b, gp->input[i], &t));
        const Tensor *feed = find_feed(x, name);
        char have[160], want[160];
        if (feed && !type_equal(&feed->type, &t))
            return fail(x->d, "input '%s' is %s, its data are %s", name, type_str(&t, want),
                        type_str(&feed->type, have));
        int64_t number;
        if (type_is_integer(&t) && find_number(&b, name, &number)) {
            if (feed && tensor_i(feed, 0) != number)
                return fail(x->d, "input '%s' is %lld in the data, and --bind says %lld", name,
                            (long long)tensor_i(feed, 0), (long long)number);
            Tensor bound = {t, arena_alloc(x->g->arena, (size_t)type_bytes(&t) + 1, 1)};
            tensor_set_i(&bound, 0, number);
            if (tensor_i(&bound, 0) != number)
                return fail(x->d, "--bind %s=%lld: input '%s' is %s, which has no such value", name,
                            (long long)number, name, type_str(&t, want));
            v = graph_const(x->g, name, t, bound.data);
            set_data_type(x, v, tensor_type(gp->input[i])->elem_type);
            scope_set(x, name, v);
            continue;
        }
        v = graph_value(x->g, name, t, weight[i] ? role_of(x, name, &(Tensor){.type = t}) : VAL_INPUT);
        x->g->vals[v.i].data = feed ? feed->data : NULL;
        x->g->vals[v.i].place = place;
        mark_batch(x, v, &batch_found);
        name_value(x, v, name);
        set_data_type(x, v, tensor_type(gp->input[i])->elem_type);
        scope_set(x, name, v);
    }
    return report_unbound(&b);
}
