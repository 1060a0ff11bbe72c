/* weights.c -- --weights FILE: parameters and running statistics from a file instead of the model, by name.
 *
 * Tensors of the value's type are used in the file itself, and a schedule refers to them there.  The file
 * must have everything that the model trains, and no other floats but parameters that the program does not
 * read: a name that is spelt differently is more likely than a tensor that is not meant.  Its names may be
 * those within a wrapper that was exported: 'lm_head.weight' of a checkpoint is the model's
 * 'wrapped.lm_head.weight'. */
#include "cli.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Options *o;
    DataFile *f;
    bool *used; /* per tensor of the file */
    Graph *g;
    const char *wrapper; /* what only the model's names begin with: "", or modules with a '.' at the end */
    bool *updated;       /* per value: an update changes it; NULL: the graph has no updates (yet) */
    Diag *d;
} Given;

/* The name that the file has for one of the model. */
static const char *in_file(const Given *x, const char *name)
{
    size_t n = strlen(x->wrapper);
    return strncmp(name, x->wrapper, n) == 0 ? name + n : name;
}

/* The name without the outermost modules, as few as give one that the file has; NULL: there is none. */
static const char *inner_name(DataFile *f, const char *name)
{
    const char *dot = strchr(name, '.');
    while (dot && data_find(f, dot + 1) < 0)
        dot = strchr(dot + 1, '.');
    return dot ? dot + 1 : NULL;
}

/* Finds x->wrapper: "" if any weight has its whole name in the file. */
static const char *find_wrapper(const Given *x)
{
    const char *found = "";
    for (uint32_t i = 1; i < x->g->nvals; i++) {
        const Value *v = &x->g->vals[i];
        for (const ModelName *m = value_is_weight(v) ? v->in_model : NULL; m; m = m->next) {
            if (data_find(x->f, m->name) >= 0)
                return "";
            const char *inner = *found ? NULL : inner_name(x->f, m->name);
            if (inner)
                found = arena_strndup(x->g->arena, m->name, (size_t)(inner - m->name));
        }
    }
    return found;
}

/* Has the tensor the value's shape, and a type that is no wider than the value's? */
static bool fits(const Type *t, const Type *want)
{
    return type_same_shape(t, want) && dtype_is_float(t->dt) == dtype_is_float(want->dt) &&
           dtype_size[t->dt] <= dtype_size[want->dt];
}

/* Have they the same dimensions but for some of extent 1, as a parameter that the program reshapes? */
static bool is_reshaped(const Type *t, const Type *want)
{
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < t->rank && t->dim[i] == 1)
            i++;
        while (k < want->rank && want->dim[k] == 1)
            k++;
        if (i == t->rank || k == want->rank || t->dim[i] != want->dim[k])
            return i == t->rank && k == want->rank;
    }
}

static Tensor widen(Arena *a, const Tensor *t, DType dt)
{
    Tensor wide = {type_with(t->type, dt),
                   arena_alloc(a, (size_t)type_count(&t->type) + 1, (size_t)dtype_size[dt])};
    tensor_cast(t, &wide);
    return wide;
}

/* Gives the name its tensor's shape in the file: a model may not tell what expand() has put in front of a
 * module's own. */
static void reshape_name(Given *x, const Value *v, const ModelName *m, const Type *t)
{
    if (m->of != NAME_OF_MODULE || m->transposed || type_same_shape(t, m->shape ? m->shape : &v->type))
        return;
    Type *shape = NEW(x->g->arena, Type, 1);
    *shape = type_with(*t, v->type.dt);
    ModelName name = *m;
    name.shape = shape;
    graph_name_in_model(x->g, (Val){(uint32_t)(v - x->g->vals)}, name);
}

/* The tensor of one of a value's names; data NULL: the file does not have that name. */
static bool find(Given *x, const Value *v, const ModelName *m, Tensor *out)
{
    char is[160], want[160];
    Tensor t, slice;
    int k = data_find(x->f, in_file(x, m->name));
    *out = (Tensor){.data = NULL};
    if (k < 0)
        return true;
    x->used[k] = true;
    TRY(data_tensor(x->f, k, &t, x->d));
    if (m->transposed && t.type.rank == 2)
        t = tensor_transposed(&t, x->g->arena);
    Type one = type_with(m->blocks ? *m->shape : v->type, t.type.dt), type = type_with(one, v->type.dt);
    if (is_reshaped(&t.type, &one)) {
        reshape_name(x, v, m, &t.type);
        t.type = one;
    }
    if (!type_same_shape(&t.type, &one) && tensor_slice(&t, &one, x->g->arena, &slice))
        t = slice;
    if (!fits(&t.type, &type))
        return fail(x->d, "%s: '%s' is %s, in the model %s", x->o->weights, m->name, type_str(&t.type, is),
                    type_str(&type, want));
    *out = t.type.dt == v->type.dt ? t : widen(x->g->arena, &t, v->type.dt);
    return true;
}

static bool in_model(const Given *x, const char *name)
{
    for (uint32_t i = 1; i < x->g->nvals; i++)
        for (const ModelName *m = x->g->vals[i].in_model; m; m = m->next)
            if (strcmp(in_file(x, m->name), name) == 0)
                return true;
    return false;
}

static bool missing(Given *x, const char *lacks)
{
    char hint[NEAREST_HINT];
    Nearest near;
    const char *name = in_file(x, lacks);
    nearest_init(&near, name);
    for (int k = 0; k < data_count(x->f); k++)
        if (!in_model(x, data_name(x->f, k)))
            nearest_try(&near, data_name(x->f, k));
    return fail(x->d, "%s: has no '%s'%s", x->o->weights, name, nearest_hint(&near, hint));
}

static bool is_same(const Value *v, const Tensor *t)
{
    return v->data && memcmp(v->data, t->data, (size_t)type_bytes(&v->type)) == 0;
}

/* Is the weight frozen?  In a schedule no update changes it; in a model --train names only others. */
static bool is_frozen(const Given *x, const Value *v)
{
    const StepOptions *o = &x->o->step;
    if (x->updated)
        return !x->updated[v - x->g->vals];
    return o->ntrain > 0 && !glob_any(o->train, o->ntrain, v);
}

/* Joins the value's tensor from those of names that have blocks of it.  Data NULL: the file does not have the
 * one called *lacks, or the value has no such names. */
static bool join_blocks(Given *x, const Value *v, Tensor *whole, const char **lacks)
{
    Tensor part;
    *whole = (Tensor){.type = v->type};
    for (const ModelName *m = v->in_model; m; m = m->next) {
        if (!m->blocks)
            continue;
        TRY(find(x, v, m, &part));
        if (!part.data && !*lacks)
            *lacks = m->name;
        if (!whole->data)
            whole->data = arena_alloc(x->g->arena, (size_t)type_bytes(&v->type) + 1, 1);
        if (part.data)
            tensor_put_blocks(m, &part, whole->data);
    }
    if (*lacks)
        whole->data = NULL;
    return true;
}

/* Gives a value its tensor, which must be equal under all of the value's names.  Constants must keep their
 * values, as the importer has computed with them. */
static bool give(Given *x, Value *v)
{
    const char *lacks = NULL;
    Tensor t, next;
    TRY(join_blocks(x, v, &t, &lacks));
    for (const ModelName *m = v->in_model; m; m = m->next) {
        if (m->blocks || (m->transposed && m->of == NAME_OF_FILE)) /* a copy that the exporter made */
            continue;
        TRY(find(x, v, m, &next));
        if (t.data && next.data && memcmp(t.data, next.data, (size_t)type_bytes(&v->type)) != 0)
            return fail(x->d, "%s: '%s' and '%s' are one weight in the model, but differ there",
                        x->o->weights, v->in_model->name, m->name);
        t = t.data ? t : next;
    }
    if (v->kind == VAL_CONST)
        return !t.data || is_same(v, &t) ||
               fail(x->d,
                    "%s: '%s' is a constant of the model, which has other values: --train '%s' makes it a "
                    "weight",
                    x->o->weights, v->in_model->name, v->in_model->name);
    if (!t.data)
        return (is_frozen(x, v) && (v->data || v->file)) || missing(x, lacks ? lacks : v->in_model->name);
    v->data = t.data;
    v->offset = data_offset(x->f, t.data);
    v->file = v->offset >= 0 ? x->o->weights : NULL;
    return true;
}

/* Fails if the file has floats that are not in the model, but for parameters of the program that no node
 * reads. */
static bool check_unused(Given *x, OnnxModel *model)
{
    char hint[NEAREST_HINT];
    Tensor t;
    for (int k = 0; k < data_count(x->f); k++) {
        const char *name = data_name(x->f, k);
        TRY(data_tensor(x->f, k, &t, x->d));
        if (x->used[k] || !dtype_is_float(t.type.dt) ||
            (model && onnx_is_unread(model, arena_printf(x->g->arena, "%s%s", x->wrapper, name))))
            continue;
        Nearest near;
        nearest_init(&near, name);
        for (uint32_t i = 1; i < x->g->nvals; i++)
            for (const ModelName *m = x->g->vals[i].in_model; m; m = m->next)
                nearest_try(&near, in_file(x, m->name));
        return fail(x->d, "%s: the model has no '%s'%s", x->o->weights, name, nearest_hint(&near, hint));
    }
    return true;
}

bool weights_give(Job *j)
{
    Options *o = j->o;
    if (!o->weights)
        return true;
    j->blame = NULL;
    TRY(j->weights || (j->weights = data_open(o->weights, &o->diag)) != NULL);
    if (data_text_bytes(j->weights) >= 0)
        return fail(&o->diag, "%s: --weights takes .safetensors or .npz", o->weights);
    Given x = {.o = o,
               .f = j->weights,
               .used = NEW(&j->arena, bool, data_count(j->weights) + 1),
               .g = j->plan ? j->plan->g : &j->graph,
               .d = &o->diag};
    x.wrapper = find_wrapper(&x);
    x.updated = x.g->nupdate ? graph_updated(x.g, &j->arena) : NULL;
    for (uint32_t i = 1; i < x.g->nvals; i++) {
        Value *v = &x.g->vals[i];
        if (value_is_weight(v))
            TRY(give(&x, v));
    }
    return check_unused(&x, j->model);
}
