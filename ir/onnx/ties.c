/* ties.c -- weights that share memory in the model: restored on request, suspected
 * otherwise.
 *
 * Exporters cut ties: a head that reuses the embedding matrix becomes a transposed copy of
 * it. Two parameters with the same values, or transposed ones, where the values are not all
 * the same (as after an initialisation to 0 or 1) are reported.  Only those with the same ends are
 * compared, so this costs little where nothing is tied. */
#include "onnx_int.h"
#include <stdlib.h>
#include <string.h>

static bool transposes(const Type *a, const Type *b)
{
    return a->dt == b->dt && a->rank == 2 && b->rank == 2 && a->dim[0] == b->dim[1] && a->dim[1] == b->dim[0];
}

static bool same_values(const Tensor *a, const Tensor *b, bool turned)
{
    int64_t n = type_count(&a->type), columns = a->type.dim[1];
    if (!turned)
        return memcmp(a->data, b->data, (size_t)type_bytes(&a->type)) == 0;
    for (int64_t i = 0; i < n; i++)
        if (tensor_f(a, i) != tensor_f(b, i % columns * a->type.dim[0] + i / columns))
            return false;
    return true;
}

/* Properties that a weight shares with its transpose: only weights with equal ones are compared. */
typedef struct {
    uint32_t val;
    int64_t count;
    double first, last;
} Mark;

static int by_mark(const void *a, const void *b)
{
    const Mark *x = a, *y = b;
    int order = (x->count > y->count) - (x->count < y->count);
    order = order ? order : (x->first > y->first) - (x->first < y->first);
    order = order ? order : (x->last > y->last) - (x->last < y->last);
    return order ? order : (x->val > y->val) - (x->val < y->val);
}

static bool report_tie(Import *x, uint32_t kept, uint32_t copy)
{
    const Graph *g = x->g;
    Tensor a = graph_tensor(g, (Val){kept}), b = graph_tensor(g, (Val){copy});
    bool same = type_equal(&a.type, &b.type) && same_values(&a, &b, false);
    bool turned = !same && transposes(&a.type, &b.type) && same_values(&a, &b, true);
    const char *of = g->vals[kept].name, *name = g->vals[copy].name;
    if (same || turned)
        note(x, ONNX_REMARK, name,
             "has the %svalues of '%s': if they are one weight, restore the tie with --tie %s=%s",
             turned ? "transposed " : "", of, of, name);
    return same || turned;
}

void report_ties(Import *x)
{
    const Graph *g = x->g;
    Mark *mark = NEW(x->a, Mark, g->nvals);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->nvals; i++) {
        Tensor t = graph_tensor(g, (Val){i});
        int64_t count = type_count(&t.type);
        if (g->vals[i].kind == VAL_PARAM && t.data && t.type.rank > 0 && !tensor_is_uniform(&t))
            mark[n++] = (Mark){i, count, tensor_f(&t, 0), tensor_f(&t, count - 1)};
    }
    qsort(mark, n, sizeof *mark, by_mark);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n && mark[j].count == mark[i].count &&
                                 mark[j].first == mark[i].first && mark[j].last == mark[i].last;
             j++)
            if (mark[i].val && mark[j].val && report_tie(x, mark[i].val, mark[j].val))
                mark[j].val = 0; /* once */
}

/* The file's name for a weight, which may be named as in its module. */
static const char *name_in_file(const Import *x, const char *name)
{
    const Merged *merged = model_merged(x->m);
    for (uint32_t i = 0; i < merged->ntransposed; i++) {
        const Transposed *t = &merged->transposed[i];
        if (strcmp(t->parameter, name) == 0 && !(t->merged && x->opt->untie))
            return t->name;
    }
    const Onnx__GraphProto *gp = x->m->proto->graph;
    for (size_t i = 0; i < gp->n_initializer; i++) {
        const char *moved = moved_parameter(x->m, pb(gp->initializer[i]->name));
        if (moved && strcmp(moved, name) == 0)
            return pb(gp->initializer[i]->name);
    }
    return name;
}

/* The weight that v is, or that an earlier tie transposes; *turned changes if it does. */
static Val untied(const Import *x, Val v, bool *turned)
{
    const Node *made = graph_def(x->g, v);
    bool transposed = made && made->op == OP_transpose;
    *turned ^= transposed;
    return transposed ? made->in[0] : v;
}

/* Has a weight a name that the program knows? */
static bool is_named(Import *x, Val a)
{
    const ModelName *m = x->g->vals[a.i].in_model;
    while (m && (m->of == NAME_OF_FILE || made_by_exporter(x->m, m->name)))
        m = m->next;
    return m;
}

/* Lets a name of the file stand for a, or for a transposed; the exporter's copies are the file's alone. */
static void rename_tied(Import *x, const char *name, Val a, bool turned)
{
    bool copied = turned || (made_by_exporter(x->m, name) && is_named(x, a));
    name_value_of(x, a, name, copied ? NAME_OF_FILE : NAME_OF_BOTH, turned);
    scope_set(x, name, turned ? build_transpose(x->g, a, (int[]){1, 0}) : a);
}

bool onnx_is_unread(OnnxModel *m, const char *name)
{
    const Names *unread = &model_merged(m)->unread;
    bool found = false;
    for (uint32_t i = 0; i < unread->n; i++)
        found |= strcmp(unread->name[i], name) == 0;
    return found;
}

/* Has a, which is `kept` in the file, saved under the name of a parameter that the file does not have. */
static void tie_unread(Import *x, Val a, const char *kept, const char *name)
{
    bool turned = false;
    Val one = repeated_one(x, a);
    a = one.i ? one : untied(x, a, &turned);
    const ModelName *module = graph_module_name(x->g, a);
    bool made = made_by_exporter(x->m, kept);
    if (!module && made)
        name_value_of(x, a, kept, NAME_OF_FILE, turned);
    name_value_of(x, a, name, module || made || turned ? NAME_OF_MODULE : NAME_OF_BOTH,
                  module ? module->transposed : turned);
}

/* Carries out --tie a=b: b becomes a, or a transposed, with what was tied to b before. */
static bool tie(Import *x, const OnnxTie *t)
{
    Val a, b;
    bool kept = scope_find(x, t->kept, &a), copy = scope_find(x, t->copy, &b);
    if (kept && !copy && onnx_is_unread(x->m, t->copy)) {
        tie_unread(x, a, t->kept, t->copy);
        return true;
    }
    if (!kept || !copy)
        return fail(x->d, "--tie %s=%s: no such weights", t->kept, t->copy);
    if (repeated_one(x, a).i || repeated_one(x, b).i)
        return fail(x->d, "--tie %s=%s: what the file repeats can only be a parameter that no node reads",
                    t->kept, t->copy);
    const Type *ta = val_type(x->g, a), *tb = val_type(x->g, b);
    bool turned = !type_equal(ta, tb), of_b = false;
    if (turned && !transposes(ta, tb))
        return fail(x->d, "--tie %s=%s: the shapes do not fit", t->kept, t->copy);
    a = untied(x, a, &turned);
    b = untied(x, b, &of_b);
    if (a.i == b.i)
        return true; /* they are tied already */
    const ModelName *name = x->g->vals[b.i].in_model;
    x->g->vals[b.i].kind = VAL_CONST; /* read by nothing from now on */
    x->g->vals[b.i].in_model = NULL;
    rename_tied(x, t->copy, a, turned);
    for (; name; name = name->next) {
        bool other = name->transposed ^ of_b ^ turned;
        if (name->of == NAME_OF_MODULE)
            graph_name_in_model(x->g, a,
                                (ModelName){name->name, name->of, other, name->shape, name->blocks, NULL});
        else if (strcmp(name->name, t->copy) != 0)
            rename_tied(x, name->name, a, other);
        if (name->of == NAME_OF_FILE)
            name_value_of(x, a, name->name, name->of, other);
    }
    note(x, ONNX_REMARK, t->copy, "tied to '%s'", t->kept);
    return true;
}

/* Ties a copy that is the kept weight in another shape, or repeats it. */
static void tie_moved(Import *x, const OnnxTie *t, Val a, Val b)
{
    Graph *g = x->g;
    Tensor copy = graph_tensor(g, b);
    Type *one = NEW(g->arena, Type, 1);
    Val v = moved_again(x, a, &copy, one);
    if (!v.i)
        return;
    g->vals[b.i].kind = VAL_CONST; /* read by nothing from now on */
    g->vals[b.i].in_model = NULL;
    const char *name = arena_strndup(g->arena, t->copy, strlen(t->copy));
    graph_name_in_model(g, a, (ModelName){.name = name, .of = NAME_OF_FILE, .shape = one});
    scope_set(x, t->copy, v);
    note(x, ONNX_REMARK, t->copy, "tied to '%s'", t->kept);
}

/* Ties a copy that the exporter made if the values are equal: in the program its nodes read the kept one. */
static bool tie_if_equal(Import *x, const OnnxTie *t)
{
    Val a, b;
    if (!scope_find(x, t->kept, &a) || !scope_find(x, t->copy, &b) || x->g->vals[a.i].kind != VAL_PARAM)
        return true;
    ValKind kind = x->g->vals[b.i].kind; /* a call's result that has a weight's values may be a constant */
    Tensor kept = graph_tensor(x->g, a), copy = graph_tensor(x->g, b);
    bool straight = type_equal(&kept.type, &copy.type);
    bool same = kind == VAL_PARAM && kept.data && copy.data && a.i != b.i &&
                (straight || transposes(&kept.type, &copy.type)) && same_values(&kept, &copy, !straight);
    if (!same && a.i != b.i && (kind == VAL_PARAM || kind == VAL_CONST))
        tie_moved(x, t, a, b);
    return !same || tie(x, t);
}

bool restore_ties(Import *x)
{
    const Merged *merged = model_merged(x->m);
    for (int i = 0; i < x->opt->nties; i++) {
        const OnnxTie *t = &x->opt->tie[i];
        TRY(tie(x, &(OnnxTie){name_in_file(x, t->kept), name_in_file(x, t->copy)}));
    }
    for (uint32_t i = 0; i < merged->ntie; i++)
        TRY(tie_if_equal(x, &merged->tie[i]));
    return true;
}
