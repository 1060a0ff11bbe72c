/* imported.c -- imports models for tests. */
#include "tests.h"
#include "imported.h"
#include <stdlib.h>
#include <string.h>

Imported import_file(const char *path)
{
    Imported r = {.m = NULL};
    r.m = onnx_open(path, &r.d);
    r.ok = r.m != NULL;
    return r;
}

bool build_graph(Imported *r, const OnnxOptions *opt)
{
    graph_init(&r->g, &r->arena, &r->d);
    r->ok = r->m && onnx_import(r->m, opt, &r->g, &r->d) && graph_verify(&r->g, &r->d);
    return r->ok;
}

void release(Imported *r)
{
    onnx_close(r->m);
    arena_free(&r->arena);
}

const float *output_of(Imported *r, Arena *a, int n, const Fed *in)
{
    void **data = NEW(a, void *, r->g.nvals);
    for (int i = 0; i < n; i++)
        data[graph_find(&r->g, in[i].name).i] = in[i].data;
    ck_assert_msg(graph_eval(&r->g, data, a, &r->d), "%s", r->d.msg);
    return data[r->g.out[0].i];
}

const char *shared(Arena *a, const char *name)
{
    const char *path = shared_path(name);
    return path ? arena_strndup(a, path, strlen(path)) : NULL;
}

bool noted(const OnnxModel *m, OnnxNoteKind kind, const char *name, const char *part)
{
    uint32_t n;
    const OnnxNote *note = onnx_notes(m, &n);
    for (uint32_t i = 0; i < n; i++)
        if (note[i].kind == kind && strcmp(note[i].name, name) == 0 &&
            strstr(note[i].text, part))
            return true;
    return false;
}

ValKind kind_of(const Graph *g, const char *name)
{
    Val v = graph_find(g, name);
    ck_assert_msg(v.i, "no value %s", name);
    return g->vals[v.i].kind;
}

int params_of(const Graph *g)
{
    int n = 0;
    for (uint32_t i = 1; i < g->nvals; i++)
        n += g->vals[i].kind == VAL_PARAM;
    return n;
}

int params_with(Imported *r, bool untie)
{
    arena_free(&r->arena);
    ck_assert_msg(build_graph(r, &(OnnxOptions){.untie = untie}), "%s", r->d.msg);
    return params_of(&r->g);
}

Tensor array_of(DataFile *f, const char *name)
{
    Tensor t;
    Diag d = {0};
    int k = data_find(f, name);
    ck_assert_msg(k >= 0, "there is no %s", name);
    ck_assert(data_tensor(f, k, &t, &d));
    return t;
}
