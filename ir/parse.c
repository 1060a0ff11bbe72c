/* parse.c -- recursive-descent reader for the text form.
 *
 *   graph   = "graph" "{" { source | node | update | output } "}"
 *   source  = ("input" | "param" | "state" | "const") name ":" type [ "host" ] [ "#" integer ]
 *             [ "batch" ] [ names ] [ data ]
 *   names   = "as" name { "," name }, name = string [ "transposed" ] [ "file" | "module" ]
 *             [ "shape" type [ "blocks" ints ] ]
 *   data    = "@" string integer | "=" "{" [ number { "," number } ] "}" | "cast" name
 *   node    = def { "," def } "=" op [ use { "," use } ] [ attrs ] [ "#" integer ]
 *             [ "split" ident integer ] [ "remat" name ] [ string ]
 *   def     = name ":" type          use = name | "_"          name = "%" chars
 *   attrs   = "{" attr { "," attr } "}"
 *   attr    = ident "=" ( number | dtype | ints )
 *   type    = dtype ints             ints = "[" [ integer { "," integer } ] "]"
 *   update  = "update" name "=" name          output = "output" name
 *
 * A '#' at the start of a line begins a comment.  Every function advances past what it
 * read. */
#include "lex.h"
#include <string.h>

enum { MAX_LIST = 4096, MAX_INLINE = 1 << 20, MAX_GROUP = 1 << 22 };
typedef struct {
    Lex lex;
    Graph *g;
    Val *in; /* operands of the node being read: room for MAX_LIST */
} P;

/* "%name" after its '%': up to a blank or one of ,(){}#="%@, without a ':' in front of a blank. */
static bool value_name(P *p, const char **name)
{
    size_t n = 0;
    while ((unsigned char)p->lex.s[n] > ' ' && !strchr(",(){}#=\"%@", p->lex.s[n]))
        n++;
    while (n && p->lex.s[n - 1] == ':' && (p->lex.s[n] == ' ' || !p->lex.s[n]))
        n--;
    if (!n)
        return lex_bad(&p->lex, "a value name");
    *name = arena_strndup(p->g->arena, p->lex.s, n);
    p->lex.s += n;
    return true;
}

static bool integer(P *p, int64_t *v) { return lex_integer(&p->lex, INT64_MIN, INT64_MAX, v); }

static bool dtype(P *p, DType *dt)
{
    for (int i = DT_F32; i < DT_COUNT; i++)
        if (lex_accept(&p->lex, dtype_name[i])) {
            *dt = (DType)i;
            return true;
        }
    return lex_bad(&p->lex, "a dtype");
}

static bool type(P *p, Type *t)
{
    *t = (Type){0};
    TRY(dtype(p, &t->dt) && lex_expect(&p->lex, "["));
    while (!lex_accept(&p->lex, "]")) {
        if (t->rank == MAX_RANK)
            return lex_bad(&p->lex, "at most 8 dimensions");
        TRY(integer(p, &t->dim[t->rank++]));
        lex_accept(&p->lex, ",");
    }
    return type_valid(t) || lex_bad(&p->lex, "a shape of at most 2^40 elements");
}

/* "a: f32[2]" after its '%': declares a new value. */
static bool def(P *p, ValKind kind, Val *v)
{
    const char *name = NULL;
    Type t = {0};
    TRY(value_name(p, &name));
    if (graph_find(p->g, name).i)
        return fail(p->lex.d, "line %d: %%%s is defined twice", lex_line(&p->lex), name);
    TRY(lex_expect(&p->lex, ":") && type(p, &t));
    *v = graph_value(p->g, name, t, kind);
    return true;
}

/* "%a" or "_": a value declared earlier, or none. */
static bool use(P *p, Val *v)
{
    const char *name = NULL;
    *v = (Val){0};
    if (lex_accept(&p->lex, "_"))
        return true;
    TRY(lex_expect(&p->lex, "%") && value_name(p, &name));
    *v = graph_find(p->g, name);
    return v->i ? true
                : fail(p->lex.d, "line %d: %%%s is used before it is defined", lex_line(&p->lex), name);
}

static bool source_data(P *p, Value *v)
{
    if (lex_accept(&p->lex, "@")) {
        const char *file = NULL;
        TRY(lex_string(&p->lex, &file) && integer(p, &v->offset));
        v->file = strcmp(file, "-") == 0 ? NULL : file;
        return true;
    }
    if (lex_accept(&p->lex, "cast"))
        return use(p, &v->cast_of);
    if (!lex_accept(&p->lex, "="))
        return true;
    int64_t n = type_count(&v->type);
    if (n > MAX_INLINE)
        return lex_bad(&p->lex, "fewer inline elements");
    Tensor t = {v->type, NEW(p->g->arena, char, type_bytes(&v->type) + 1)};
    TRY(lex_expect(&p->lex, "{"));
    for (int64_t i = 0; i < n; i++) {
        if (i)
            TRY(lex_expect(&p->lex, ","));
        double f = 0;
        int64_t k = 0;
        if (dtype_is_float(v->type.dt)) {
            TRY(lex_number(&p->lex, &f));
            tensor_set_f(&t, i, f);
        } else {
            TRY(integer(p, &k));
            tensor_set_i(&t, i, k);
        }
    }
    v->data = t.data;
    return lex_expect(&p->lex, "}");
}

static bool ints(P *p, Ints *l)
{
    l->n = 0;
    TRY(lex_expect(&p->lex, "["));
    while (!lex_accept(&p->lex, "]")) {
        if (l->n == MAX_INTS)
            return lex_bad(&p->lex, "at most 16 integers");
        TRY(integer(p, &l->v[l->n++]));
        lex_accept(&p->lex, ",");
    }
    return true;
}

/* "shape f32[24]" or "shape f32[8] blocks [2, 0]": what a name stands for. */
static bool model_shape(P *p, Val v, ModelName *name)
{
    int64_t elements = type_count(val_type(p->g, v));
    if (!lex_accept(&p->lex, "shape"))
        return true;
    Type *shape = NEW(p->g->arena, Type, 1);
    TRY(type(p, shape));
    name->shape = shape;
    int64_t n = type_count(shape);
    if (!lex_accept(&p->lex, "blocks"))
        return n == elements || fail(p->lex.d, "line %d: %%%s has another number of elements",
                                     lex_line(&p->lex), p->g->vals[v.i].name);
    Ints *blocks = NEW(p->g->arena, Ints, 1);
    TRY(ints(p, blocks));
    name->blocks = blocks;
    bool fit = blocks->n > 0 && n > 0 && n % blocks->n == 0;
    for (int i = 0; i < blocks->n && fit; i++)
        fit = blocks->v[i] >= 0 && blocks->v[i] < elements / (n / blocks->n);
    return fit || fail(p->lex.d, "line %d: %%%s has no such blocks", lex_line(&p->lex), p->g->vals[v.i].name);
}

static bool model_names(P *p, Val v)
{
    if (!lex_accept(&p->lex, "as"))
        return true;
    do {
        ModelName name = {.of = NAME_OF_BOTH};
        TRY(lex_string(&p->lex, &name.name));
        name.transposed = lex_accept(&p->lex, "transposed");
        for (int i = NAME_OF_FILE; i < NAME_HOLDERS && !name.of; i++)
            name.of = lex_accept(&p->lex, name_holder[i]) ? (NameHolder)i : NAME_OF_BOTH;
        if (name.transposed && val_type(p->g, v)->rank != 2)
            return fail(p->lex.d, "line %d: %%%s is no matrix that is held transposed", lex_line(&p->lex),
                        p->g->vals[v.i].name);
        TRY(model_shape(p, v, &name));
        graph_name_in_model(p->g, v, name);
    } while (lex_accept(&p->lex, ","));
    return true;
}

/* "#2": the input's place among the model's inputs, from 0. */
static bool input_place(P *p, uint32_t *place)
{
    int64_t k = 0;
    if (!lex_accept(&p->lex, "#"))
        return true;
    TRY(integer(p, &k));
    *place = (uint32_t)k + 1;
    return (k >= 0 && k <= MAX_GROUP) || lex_bad(&p->lex, "the number of an input");
}

static bool source(P *p, ValKind kind)
{
    Val v = {0};
    TRY(lex_expect(&p->lex, "%") && def(p, kind, &v));
    if (kind == VAL_STATE && lex_accept(&p->lex, "host"))
        p->g->vals[v.i].space = SPACE_HOST;
    if (kind == VAL_INPUT) {
        TRY(input_place(p, &p->g->vals[v.i].place));
        p->g->vals[v.i].batch = lex_accept(&p->lex, "batch");
    }
    TRY(model_names(p, v));
    return source_data(p, &p->g->vals[v.i]);
}

static bool attr_value(P *p, const AttrDef *a, void *attr)
{
    void *at = (char *)attr + a->off;
    DType dt = DT_NONE;
    if (a->type == AT_F64)
        return lex_number(&p->lex, at);
    if (a->type == AT_DTYPE) {
        TRY(dtype(p, &dt));
        *(int64_t *)at = dt;
        return true;
    }
    if (a->type == AT_I64)
        return integer(p, at);
    return ints(p, at);
}

static bool attrs(P *p, Node *n)
{
    const OpDef *od = node_def(n);
    if (!lex_accept(&p->lex, "{"))
        return true;
    do {
        const char *name = NULL;
        TRY(lex_ident(&p->lex, &name) && lex_expect(&p->lex, "="));
        size_t i = 0;
        while (i < od->nattrs && strcmp(od->attrs[i].name, name) != 0)
            i++;
        if (i == od->nattrs)
            return fail(p->lex.d, "line %d: %s has no attribute '%s'", lex_line(&p->lex), od->name, name);
        TRY(attr_value(p, &od->attrs[i], n->attr));
    } while (lex_accept(&p->lex, ","));
    return lex_expect(&p->lex, "}");
}

static bool node_split(P *p, Split *s)
{
    const char *by = NULL;
    TRY(lex_ident(&p->lex, &by));
    for (s->by = SPLIT_ROWS; s->by < SPLIT_COUNT && strcmp(split_name[s->by], by) != 0; s->by++)
        continue;
    if (s->by == SPLIT_COUNT)
        return lex_bad(&p->lex, "'rows' or 'sum'");
    TRY(integer(p, &s->block));
    return s->block >= 0 || lex_bad(&p->lex, "the rows of a block");
}

static bool node_tail(P *p, Node *n)
{
    int64_t group = 0;
    TRY(attrs(p, n));
    if (lex_accept(&p->lex, "#")) {
        TRY(integer(p, &group));
        if (group < 0 || group > MAX_GROUP)
            return lex_bad(&p->lex, "a group number");
        n->group = (uint32_t)group;
        if (p->g->ngroups < n->group)
            p->g->ngroups = n->group;
    }
    if (lex_accept(&p->lex, "split"))
        TRY(node_split(p, &n->split));
    if (lex_accept(&p->lex, "remat"))
        TRY(lex_expect(&p->lex, "%") && value_name(p, &n->remat));
    lex_skip(&p->lex);
    return *p->lex.s != '"' || lex_string(&p->lex, &n->name);
}

static bool node(P *p)
{
    Val out[MAX_OUT];
    int nout = 0, nin = 0;
    const char *name = NULL;
    do {
        if (nout == MAX_OUT)
            return lex_bad(&p->lex, "at most 4 results");
        TRY(lex_expect(&p->lex, "%") && def(p, VAL_TEMP, &out[nout++]));
    } while (lex_accept(&p->lex, ","));
    TRY(lex_expect(&p->lex, "=") && lex_ident(&p->lex, &name));
    Op op = op_find(name);
    if (op == OP_NONE)
        return fail(p->lex.d, "line %d: unknown operator '%s'", lex_line(&p->lex), name);
    if (nout != op_table[op]->nout)
        return fail(p->lex.d, "line %d: %s has %d results", lex_line(&p->lex), name, op_table[op]->nout);
    lex_skip(&p->lex);
    if (*p->lex.s == '%' || *p->lex.s == '_')
        do {
            if (nin == MAX_LIST)
                return lex_bad(&p->lex, "fewer operands");
            TRY(use(p, &p->in[nin++]));
        } while (lex_accept(&p->lex, ","));
    if (nin < op_table[op]->min_in || (op_table[op]->max_in >= 0 && nin > op_table[op]->max_in))
        return fail(p->lex.d, "line %d: %s given %d operands", lex_line(&p->lex), name, nin);
    return node_tail(p, graph_node(p->g, op, nin, p->in, nout, out));
}

static bool update(P *p)
{
    Val state = {0}, value = {0};
    TRY(use(p, &state) && lex_expect(&p->lex, "=") && use(p, &value));
    if (!state.i || !value.i)
        return lex_bad(&p->lex, "two values");
    graph_add_update(p->g, state, value);
    return true;
}

static bool output(P *p)
{
    Val v = {0};
    TRY(use(p, &v));
    if (!v.i)
        return lex_bad(&p->lex, "a value");
    graph_add_out(p->g, v);
    return true;
}

static bool statement(P *p)
{
    for (int k = VAL_INPUT; k < VAL_KIND_COUNT; k++)
        if (lex_accept(&p->lex, val_kind_name[k]))
            return source(p, (ValKind)k);
    if (lex_accept(&p->lex, "update"))
        return update(p);
    if (lex_accept(&p->lex, "output"))
        return output(p);
    return node(p);
}

bool graph_parse(Graph *g, const char *text, Diag *d)
{
    P p = {{text, text, g->arena, d, false}, g, NEW(g->arena, Val, MAX_LIST)};
    TRY(lex_expect(&p.lex, "graph") && lex_expect(&p.lex, "{"));
    while (!lex_accept(&p.lex, "}"))
        TRY(statement(&p));
    return true;
}
