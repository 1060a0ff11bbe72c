/* merged_import.c -- initializers that stand for several parameters, or were computed from some (merged.c),
 * in the graph: what the nodes read, under which names weights are saved, and notes. */
#include "onnx_int.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

void merged_prepare(Import *x)
{
    Onnx__GraphProto *gp = x->m->proto->graph;
    const Merged *merged = model_merged(x->m);
    bool apart = x->opt->untie;
    gp->n_initializer = merged->ninitializer + merged->nstatistic + (apart ? merged->nadded : 0);
    for (uint32_t i = 0; i < merged->n; i++) {
        const Separate *s = &merged->read[i];
        Onnx__NodeProto *p = gp->node[s->node];
        if (s->identity)
            continue;
        if (s->kept)
            p->input[s->slot] = (char *)(uintptr_t)(apart || s->statistic ? s->name : s->kept);
        else
            p->n_input = apart ? 3 : 2;
    }
}

bool made_by_exporter(OnnxModel *m, const char *name)
{
    const Signature *s = model_signature(m);
    return s->n && !declared(s, name);
}

static const Transposed *transposed(OnnxModel *m, const char *name, bool apart)
{
    const Merged *merged = model_merged(m);
    const uint32_t *i = name_get(&merged->transposed_at, name);
    const Transposed *t = i ? &merged->transposed[*i] : NULL;
    return t && !(t->merged && apart) ? t : NULL;
}

const char *transposed_parameter(OnnxModel *m, const char *name, bool apart)
{
    const Transposed *t = transposed(m, name, apart);
    return t ? t->parameter : NULL;
}

bool name_of_transposed(Import *x, Val v, const char *name, bool apart)
{
    const Transposed *t = transposed(x->m, name, apart);
    if (!t)
        return false;
    const Type *type = val_type(x->g, v);
    Type *shape = NEW(x->g->arena, Type, 1);
    *shape = type_make(type->dt, 1, (int64_t[]){type_count(type)});
    graph_name_in_model(x->g, v,
                        (ModelName){.name = arena_strndup(x->g->arena, t->parameter, strlen(t->parameter)),
                                    .of = NAME_OF_MODULE,
                                    .transposed = !t->vector,
                                    .shape = t->vector ? shape : NULL});
    return true;
}

const char *moved_parameter(OnnxModel *m, const char *name)
{
    const Merged *merged = model_merged(m);
    const uint32_t *i = name_get(&merged->moved, name);
    return i ? merged->hidden.name[*i] : NULL;
}

/* "a, b, c and 7 more" */
static const char *listing(Import *x, const char *const *name, uint32_t n)
{
    enum { SHOWN = 4 };
    const char *text = "";
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const char *transposed = transposed_parameter(x->m, name[i], true);
        text = arena_printf(x->a, "%s%s%s", text, i ? ", " : "", transposed ? transposed : name[i]);
    }
    return n > SHOWN ? arena_printf(x->a, "%s and %u more", text, n - SHOWN) : text;
}

/* The names of parameters that one tensor of the file (NULL: none) stands for, from read *i on; returns their
 * number. */
static uint32_t group(Import *x, const Merged *merged, uint32_t *i, const char **name)
{
    const char *kept = merged->read[*i].kept;
    NameMap seen = name_map(x->a);
    for (; *i < merged->n && merged->read[*i].kept == kept; ++*i)
        if (name_add(&seen, merged->read[*i].name, *i))
            name[seen.n - 1] = merged->read[*i].name;
    return seen.n;
}

/* The parameter that a tensor of the file is, or repeats; {0}: it is none. */
static Val parameter_of(const Import *x, const char *name)
{
    Val v = {0};
    if (!scope_find(x, name, &v))
        return v;
    Val one = repeated_one(x, v);
    v = one.i ? one : v;
    return x->g->vals[v.i].kind == VAL_PARAM ? v : (Val){0};
}

static bool trains(const Import *x, const char *name)
{
    return parameter_of(x, name).i && (x->opt->ntrain == 0 || role_is_chosen(x, name));
}

/* Are all its values equal?  Else it may be made of several parameters, as a convolution with a norm folded
 * in. */
static bool initially_uniform(const Import *x, const char *name)
{
    Val v;
    Tensor t = {.data = NULL};
    if (scope_find(x, name, &v))
        t = graph_tensor(x->g, v);
    return t.data && tensor_is_uniform(&t);
}

/* Does another tensor than `kept`, which is v, stand for that name, too?  So do two weights that one module
 * reads itself where records name only the module. */
static bool ambiguous(const Import *x, const Merged *merged, Val v, const char *kept, const char *name)
{
    bool any = false;
    for (uint32_t i = 0; i < merged->n; i++)
        any |= merged->read[i].kept != kept && strcmp(merged->read[i].name, name) == 0;
    for (uint32_t i = 0; i < merged->nalias; i++)
        any |= strcmp(merged->alias[i].copy, name) == 0 && parameter_of(x, merged->alias[i].kept).i != v.i;
    return any;
}

/* Has the parameter `kept` saved under `name` as well. */
static void add_weight_name(Import *x, const Merged *merged, const char *kept, const char *name)
{
    Val v = parameter_of(x, kept);
    if (!v.i || ambiguous(x, merged, v, kept, name))
        return;
    if (name_of_transposed(x, v, name, true))
        return;
    const ModelName *module = graph_module_name(x->g, v);
    if (module) {
        ModelName other = *module; /* of the same shape */
        other.name = arena_strndup(x->g->arena, name, strlen(name));
        graph_name_in_model(x->g, v, other);
    } else if (made_by_exporter(x->m, kept)) {
        name_value_of(x, v, kept, NAME_OF_FILE, false);
        name_value_of(x, v, name, NAME_OF_MODULE, false);
    } else {
        name_value(x, v, name);
    }
}

static void report_merged(Import *x, const Merged *merged)
{
    const char **name = NEW(x->a, const char *, merged->n + 1);
    bool apart = x->opt->untie;
    uint32_t first = 0;
    while (first < merged->n && merged->read[first].statistic)
        first++;
    for (uint32_t i = first; i < merged->n;) {
        const char *kept = merged->read[i].kept;
        uint32_t n = group(x, merged, &i, name);
        const char *list = listing(x, name, n), *s = n > 1 ? "s" : "";
        if (!kept)
            note(x, ONNX_REMARK, name[0], "%u bias%s of zeros %s (%s)%s", n, n > 1 ? "es" : "",
                 apart ? "restored" : "left out by the exporter, not trained", list,
                 apart ? "" : "; --untie restores them");
        else {
            for (uint32_t k = 0; k < n && !apart && initially_uniform(x, kept); k++)
                add_weight_name(x, merged, kept, name[k]);
            if (!apart && !trains(x, kept))
                continue;
            note(x, ONNX_REMARK, kept, "%s %u more parameter%s with the same initial values (%s)%s",
                 apart ? "trains apart from" : "stands for", n, s, list,
                 apart ? ""
                       : ": merged by the exporter, they train as one; --untie separates "
                         "them");
        }
    }
}

/* Does it train and have no name but those of the file? --tie gives it that of a parameter that no node
 * reads; blocks of it may have theirs. */
static bool trains_unnamed(const Import *x, const char *name)
{
    if (!trains(x, name))
        return false;
    const ModelName *m = x->g->vals[parameter_of(x, name).i].in_model;
    while (m && !m->blocks && !onnx_is_unread(x->m, m->name))
        m = m->next;
    return !m;
}

/* The names under which a tensor of the file trains: those that it was told apart into, else its own.  What
 * is tied is no parameter by now.  Returns their number. */
static uint32_t trained_as(Import *x, const Merged *merged, const char *of, const char **name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < merged->n; i++) {
        const Separate *s = &merged->read[i];
        if (!s->identity && s->kept && strcmp(s->kept, of) == 0 && trains_unnamed(x, s->name) &&
            *name_get(&merged->apart, s->name) == i)
            name[n++] = s->name;
    }
    if (!n && trains_unnamed(x, of))
        name[n++] = of;
    return n;
}

static bool names_a_value(const Graph *g, const char *name)
{
    bool found = false;
    for (uint32_t i = 1; i < g->nvals; i++)
        for (const ModelName *m = g->vals[i].in_model; m && !found; m = m->next)
            found = strcmp(m->name, name) == 0;
    return found;
}

/* The parameters behind what the exporter computed, as far as nothing is saved under their names. */
static const char *list_behind(Import *x, const Merged *merged)
{
    const Names *hidden = &merged->hidden, *lost = &merged->lost;
    const char **of = NEW(x->a, const char *, hidden->n + lost->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < hidden->n; i++)
        if (!names_a_value(x->g, hidden->name[i]))
            of[n++] = hidden->name[i];
    for (uint32_t i = 0; i < lost->n; i++)
        of[n++] = lost->name[i];
    return n ? listing(x, of, n) : listing(x, hidden->name, hidden->n);
}

static bool report_computed(Import *x, const Merged *merged)
{
    const Names *list[] = {&merged->remade, &merged->computed, &merged->constant};
    const char **name = NEW(x->a, const char *, list[0]->n + list[1]->n + list[2]->n + merged->n + 1);
    uint32_t n = 0, hidden = merged->hidden.n;
    for (int k = 0; k < (hidden ? 3 : 1); k++)
        for (uint32_t i = 0; i < list[k]->n; i++)
            n += trained_as(x, merged, list[k]->name[i], name + n);
    if (!n)
        return false;
    note(x, ONNX_REMARK, name[0],
         "%s computed by the exporter and train%s in place of parameters that no node reads "
         "(of %s); export with optimize=False to train those%s",
         n > 1 ? arena_printf(x->a, "and %s: were", listing(x, name + 1, n - 1)) : "was", n > 1 ? "" : "s",
         list_behind(x, merged),
         hidden ? "; --tie TENSOR=PARAMETER saves one that is only reshaped as PARAMETER" : "");
    return true;
}

/* Lists parameters that no node reads, under whose names nothing is saved; chosen: those alone that --train
 * names. */
static uint32_t list_unread(Import *x, const Merged *merged, bool chosen, const char **name)
{
    const Names *list[] = {&merged->unread, &merged->lost};
    uint32_t n = 0;
    for (int k = 0; k < (chosen ? 2 : 1); k++)
        for (uint32_t i = 0; i < list[k]->n; i++)
            if (!names_a_value(x->g, list[k]->name[i]) && (!chosen || role_is_chosen(x, list[k]->name[i])))
                name[n++] = list[k]->name[i];
    return n;
}

static void report_unread(Import *x, const Merged *merged)
{
    const char **name = NEW(x->a, const char *, merged->unread.n + merged->lost.n + 1);
    uint32_t n = list_unread(x, merged, true, name), chosen = n;
    if (!chosen)
        n = list_unread(x, merged, false, name);
    if (n)
        note(x, ONNX_REMARK, name[0],
             "no node reads %s%s: tied to or merged with another (--tie OTHER=%s saves it), made a constant "
             "by the exporter (optimize=False keeps it), or not used",
             listing(x, name, n), chosen ? ", which --train names" : "", name[0]);
}

/* Does a parameter that the file has have as many elements? */
static bool as_large_as_a_parameter(Import *x, int64_t elements)
{
    const Signature *s = model_signature(x->m);
    for (uint32_t i = 0; i < s->n; i++) {
        const Declared *d = &s->by_symbol[i];
        Val v;
        if (d->parameter && scope_find(x, d->name, &v) && type_count(val_type(x->g, v)) == elements)
            return true;
    }
    return false;
}

static bool is_float_constant(const Import *x, const char *name)
{
    Val v;
    return scope_find(x, name, &v) && x->g->vals[v.i].kind == VAL_CONST &&
           dtype_is_float(val_type(x->g, v)->dt) && !role_fixed_by(x, name);
}

static const char *trained_origin(const Import *x, const Folded *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->of[i]->parameter && trains(x, f->of[i]->name))
            return f->of[i]->name;
    return NULL;
}

/* Notes constants that the exporter has computed from a parameter that trains, as the file says: 1 - p. */
static void report_folded(Import *x)
{
    const OnnxModel *m = x->m;
    const char **name = NEW(x->a, const char *, m->nfolded + 1), *of = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nfolded; i++) {
        const Folded *f = &m->folded[i];
        const char *origin = f->does & FOLDED_DETACHES ? NULL : trained_origin(x, f);
        if (!origin || !is_float_constant(x, f->name))
            continue;
        of = of ? of : origin;
        name[n++] = f->name;
    }
    if (n)
        note(x, ONNX_REMARK, name[0],
             "%s computed by the exporter from parameters (%s%s) and do%s not train with them; export with "
             "optimize=False",
             n > 1 ? arena_printf(x->a, "and %s: were", listing(x, name + 1, n - 1)) : "was", of,
             n > 1 ? ", ..." : "", n > 1 ? "" : "es");
}

/* Notes constants of which the file does not say from what they were computed, and which may be made of
 * parameters that are read elsewhere, too, such as a scaled copy of an embedding. */
static void report_constants(Import *x, const Merged *merged)
{
    const char **name = NEW(x->a, const char *, merged->constant.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < merged->constant.n; i++) {
        const char *constant = merged->constant.name[i];
        Val v;
        if (folded(x->m, constant) || !is_float_constant(x, constant) || !scope_find(x, constant, &v))
            continue;
        Tensor t = graph_tensor(x->g, v);
        int64_t elements = type_count(&t.type);
        if (t.data && elements > 1 && !tensor_is_uniform(&t) && as_large_as_a_parameter(x, elements))
            name[n++] = constant;
    }
    if (n)
        note(x, ONNX_REMARK, name[0],
             "%s not train; if parameters are behind %s, export with optimize=False",
             n > 1 ? arena_printf(x->a, "and %s: were computed by the exporter and do",
                                  listing(x, name + 1, n - 1))
                   : "was computed by the exporter and does",
             n > 1 ? "them" : "it");
}

static bool names_any(const Import *x, const char *glob)
{
    bool any = false;
    for (uint32_t i = 1; i < x->g->nvals && !any; i++) {
        const Value *v = &x->g->vals[i];
        any = v->name && fnmatch(glob, v->name, 0) == 0;
        for (const ModelName *m = v->in_model; m && !any; m = m->next)
            any = fnmatch(glob, m->name, 0) == 0;
    }
    return any;
}

/* Fails if --train names nothing but parameters that no node reads. */
static bool check_chosen(Import *x, const Merged *merged)
{
    const char **name = NEW(x->a, const char *, merged->unread.n + 1);
    for (int k = 0; k < x->opt->ntrain; k++) {
        const char *glob = x->opt->train[k];
        uint32_t n = 0;
        for (uint32_t i = 0; i < merged->unread.n; i++)
            if (fnmatch(glob, merged->unread.name[i], 0) == 0)
                name[n++] = merged->unread.name[i];
        if (n && !names_any(x, glob))
            return fail(x->d,
                        "--train %s: no node reads %s: the exporter has computed what the program makes of "
                        "such parameters (optimize=False keeps them), or they are not used",
                        glob, listing(x, name, n));
    }
    return true;
}

bool merged_report(Import *x)
{
    const Merged *merged = model_merged(x->m);
    for (uint32_t i = 0; i < merged->nalias; i++)
        add_weight_name(x, merged, merged->alias[i].kept, merged->alias[i].copy);
    report_merged(x, merged);
    if (!report_computed(x, merged))
        report_unread(x, merged);
    report_folded(x);
    report_constants(x, merged);
    return check_chosen(x, merged);
}
