/* parse.c -- recursive-descent reader for the text form.
 *
 *   graph   = "graph" "{" { source | node | update | output } "}"
 *   source  = ("input" | "param" | "state" | "const") name ":" type [ names ] [ data ]
 *   names   = "as" string [ "transposed" ] { "," string [ "transposed" ] }
 *   data    = "@" string integer | "=" "{" [ number { "," number } ] "}"
 *   node    = def { "," def } "=" op [ use { "," use } ] [ attrs ] [ "#" integer ]
 *             [ "remat" name ] [ string ]
 *   def     = name ":" type          use = name | "_"          name = "%" chars
 *   attrs   = "{" attr { "," attr } "}"
 *   attr    = ident "=" ( number | dtype | "[" [ integer { "," integer } ] "]" )
 *   type    = dtype "[" [ integer { "," integer } ] "]"
 *   update  = "update" name "=" name          output = "output" name
 *
 * A '#' at the start of a line begins a comment.  Every function advances P.s past what it read. */
#include "ir.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 4096, MAX_INLINE = 1 << 20, MAX_GROUP = 1 << 22 };
typedef struct {
    const char *s, *start;
    Graph *g;
    Diag *d;
    Val *in; /* of the node being read: room for MAX_LIST */
} P;

static int line_of(const P *p)
{
    int line = 1;
    for (const char *c = p->start; c < p->s; c++)
        line += *c == '\n';
    return line;
}

static bool bad(P *p, const char *what)
{
    return fail(p->d, "line %d: expected %s", line_of(p), what);
}

static void skip(P *p)
{
    for (;; p->s++) {
        bool line_start = p->s == p->start || p->s[-1] == '\n';
        if (*p->s == '#' && line_start)
            p->s += strcspn(p->s, "\n");
        if (!isspace((unsigned char)*p->s))
            return;
    }
}

static bool accept(P *p, const char *tok)
{
    skip(p);
    size_t n = strlen(tok);
    if (strncmp(p->s, tok, n) != 0)
        return false;
    if (isalpha((unsigned char)*tok) && (isalnum((unsigned char)p->s[n]) || p->s[n] == '_'))
        return false; /* a keyword ends where its word ends */
    p->s += n;
    return true;
}

static bool expect(P *p, const char *tok) { return accept(p, tok) || bad(p, tok); }

static bool ident(P *p, const char **name)
{
    skip(p);
    size_t n = 0;
    while (isalnum((unsigned char)p->s[n]) || p->s[n] == '_')
        n++;
    if (!n)
        return bad(p, "a name");
    *name = arena_strndup(p->g->arena, p->s, n);
    p->s += n;
    return true;
}

/* "%name" after its '%': up to a blank or one of ,:={}()#" */
static bool value_name(P *p, const char **name)
{
    size_t n = 0;
    while ((unsigned char)p->s[n] > ' ' && !strchr(",(){}#=\"%@", p->s[n]))
        n++;
    while (n && p->s[n - 1] == ':' && (p->s[n] == ' ' || !p->s[n]))
        n--;
    if (!n)
        return bad(p, "a value name");
    *name = arena_strndup(p->g->arena, p->s, n);
    p->s += n;
    return true;
}

static bool integer(P *p, int64_t *v)
{
    skip(p);
    char *end;
    errno = 0;
    *v = strtoll(p->s, &end, 10);
    if (end == p->s || errno)
        return bad(p, "an integer");
    p->s = end;
    return true;
}

static bool number(P *p, double *v)
{
    skip(p);
    char *end;
    *v = strtod(p->s, &end);
    if (end == p->s)
        return bad(p, "a number");
    p->s = end;
    return true;
}

static bool string(P *p, const char **out)
{
    TRY(expect(p, "\""));
    size_t n = 0, k = 0;
    while (p->s[n] && p->s[n] != '"' && p->s[n] != '\n')
        n += p->s[n] == '\\' && p->s[n + 1] ? 2 : 1;
    char *buf = NEW(p->g->arena, char, n + 1);
    for (; *p->s && *p->s != '"' && *p->s != '\n'; p->s++) {
        if (*p->s == '\\' && p->s[1] == 'x' && isxdigit((unsigned char)p->s[2]) &&
            isxdigit((unsigned char)p->s[3])) {
            buf[k++] = (char)strtol((char[]){p->s[2], p->s[3], 0}, NULL, 16);
            p->s += 3;
            continue;
        }
        if (*p->s == '\\' && p->s[1])
            p->s++;
        buf[k++] = *p->s;
    }
    *out = buf;
    return expect(p, "\"");
}

static bool dtype(P *p, DType *dt)
{
    for (int i = DT_F32; i < DT_COUNT; i++)
        if (accept(p, dtype_name[i])) {
            *dt = (DType)i;
            return true;
        }
    return bad(p, "a dtype");
}

static bool type(P *p, Type *t)
{
    *t = (Type){0};
    TRY(dtype(p, &t->dt) && expect(p, "["));
    while (!accept(p, "]")) {
        if (t->rank == MAX_RANK)
            return bad(p, "at most 8 dimensions");
        TRY(integer(p, &t->dim[t->rank++]));
        accept(p, ",");
    }
    return type_valid(t) || bad(p, "a shape of at most 2^40 elements");
}

/* "a: f32[2]" after its '%': declares a new value. */
static bool def(P *p, ValKind kind, Val *v)
{
    const char *name = NULL;
    Type t = {0};
    TRY(value_name(p, &name));
    if (graph_find(p->g, name).i)
        return fail(p->d, "line %d: %%%s is defined twice", line_of(p), name);
    TRY(expect(p, ":") && type(p, &t));
    *v = graph_value(p->g, name, t, kind);
    return true;
}

/* "%a" or "_": a value declared earlier, or none. */
static bool use(P *p, Val *v)
{
    const char *name = NULL;
    *v = (Val){0};
    if (accept(p, "_"))
        return true;
    TRY(expect(p, "%") && value_name(p, &name));
    *v = graph_find(p->g, name);
    return v->i ? true : fail(p->d, "line %d: %%%s is used before it is defined", line_of(p), name);
}

static bool source_data(P *p, Value *v)
{
    if (accept(p, "@")) {
        const char *file = NULL;
        TRY(string(p, &file) && integer(p, &v->offset));
        v->file = strcmp(file, "-") == 0 ? NULL : file;
        return true;
    }
    if (!accept(p, "="))
        return true;
    int64_t n = type_count(&v->type);
    if (n > MAX_INLINE)
        return bad(p, "fewer inline elements");
    Tensor t = {v->type, NEW(p->g->arena, char, type_bytes(&v->type) + 1)};
    TRY(expect(p, "{"));
    for (int64_t i = 0; i < n; i++) {
        if (i)
            TRY(expect(p, ","));
        double f = 0;
        int64_t k = 0;
        if (dtype_is_float(v->type.dt)) {
            TRY(number(p, &f));
            tensor_set_f(&t, i, f);
        } else {
            TRY(integer(p, &k));
            tensor_set_i(&t, i, k);
        }
    }
    v->data = t.data;
    return expect(p, "}");
}

static bool model_names(P *p, Val v)
{
    if (!accept(p, "as"))
        return true;
    do {
        const char *name = NULL;
        TRY(string(p, &name));
        graph_name_in_model(p->g, v, name, accept(p, "transposed"));
    } while (accept(p, ","));
    return true;
}

static bool source(P *p, ValKind kind)
{
    Val v = {0};
    TRY(expect(p, "%") && def(p, kind, &v) && model_names(p, v));
    return source_data(p, &p->g->vals[v.i]);
}

static bool attr_value(P *p, const AttrDef *a, void *attr)
{
    void *at = (char *)attr + a->off;
    DType dt = DT_NONE;
    if (a->type == AT_F64)
        return number(p, at);
    if (a->type == AT_DTYPE) {
        TRY(dtype(p, &dt));
        *(int64_t *)at = dt;
        return true;
    }
    if (a->type == AT_I64)
        return integer(p, at);
    Ints *l = at;
    l->n = 0;
    TRY(expect(p, "["));
    while (!accept(p, "]")) {
        if (l->n == MAX_INTS)
            return bad(p, "at most 16 integers");
        TRY(integer(p, &l->v[l->n++]));
        accept(p, ",");
    }
    return true;
}

static bool attrs(P *p, Node *n)
{
    const OpDef *od = node_def(n);
    if (!accept(p, "{"))
        return true;
    do {
        const char *name = NULL;
        TRY(ident(p, &name) && expect(p, "="));
        size_t i = 0;
        while (i < od->nattrs && strcmp(od->attrs[i].name, name) != 0)
            i++;
        if (i == od->nattrs)
            return fail(p->d, "line %d: %s has no attribute '%s'", line_of(p), od->name, name);
        TRY(attr_value(p, &od->attrs[i], n->attr));
    } while (accept(p, ","));
    return expect(p, "}");
}

static bool node_tail(P *p, Node *n)
{
    int64_t group = 0;
    TRY(attrs(p, n));
    if (accept(p, "#")) {
        TRY(integer(p, &group));
        if (group < 0 || group > MAX_GROUP)
            return bad(p, "a group number");
        n->group = (uint32_t)group;
        if (p->g->ngroups < n->group)
            p->g->ngroups = n->group;
    }
    if (accept(p, "remat"))
        TRY(expect(p, "%") && value_name(p, &n->remat));
    skip(p);
    return *p->s != '"' || string(p, &n->name);
}

static bool node(P *p)
{
    Val out[MAX_OUT];
    int nout = 0, nin = 0;
    const char *name = NULL;
    do {
        if (nout == MAX_OUT)
            return bad(p, "at most 4 results");
        TRY(expect(p, "%") && def(p, VAL_TEMP, &out[nout++]));
    } while (accept(p, ","));
    TRY(expect(p, "=") && ident(p, &name));
    Op op = op_find(name);
    if (op == OP_NONE)
        return fail(p->d, "line %d: unknown operator '%s'", line_of(p), name);
    if (nout != op_table[op]->nout)
        return fail(p->d, "line %d: %s has %d results", line_of(p), name, op_table[op]->nout);
    skip(p);
    if (*p->s == '%' || *p->s == '_')
        do {
            if (nin == MAX_LIST)
                return bad(p, "fewer operands");
            TRY(use(p, &p->in[nin++]));
        } while (accept(p, ","));
    if (nin < op_table[op]->min_in || (op_table[op]->max_in >= 0 && nin > op_table[op]->max_in))
        return fail(p->d, "line %d: %s given %d operands", line_of(p), name, nin);
    return node_tail(p, graph_node(p->g, op, nin, p->in, nout, out));
}

static bool update(P *p)
{
    Val state = {0}, value = {0};
    TRY(use(p, &state) && expect(p, "=") && use(p, &value));
    if (!state.i || !value.i)
        return bad(p, "two values");
    graph_add_update(p->g, state, value);
    return true;
}

static bool output(P *p)
{
    Val v = {0};
    TRY(use(p, &v));
    if (!v.i)
        return bad(p, "a value");
    graph_add_out(p->g, v);
    return true;
}

static bool statement(P *p)
{
    for (int k = VAL_INPUT; k < VAL_KIND_COUNT; k++)
        if (accept(p, val_kind_name[k]))
            return source(p, (ValKind)k);
    if (accept(p, "update"))
        return update(p);
    if (accept(p, "output"))
        return output(p);
    return node(p);
}

bool graph_parse(Graph *g, const char *text, Diag *d)
{
    P p = {text, text, g, d, NEW(g->arena, Val, MAX_LIST)};
    TRY(expect(&p, "graph") && expect(&p, "{"));
    while (!accept(&p, "}"))
        TRY(statement(&p));
    return true;
}
