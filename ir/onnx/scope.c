/* scope.c -- names of the file while importing: what a value name stands for, seen from inside
 * out through bodies and functions.  Open-addressing hash tables, one per scope. */
#include "onnx_int.h"
#include <string.h>

uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

struct Binding *scope_slot(const Scope *s, const char *name)
{
    uint32_t i = name_hash(name) & (s->cap - 1);
    while (s->slot[i].name && strcmp(s->slot[i].name, name) != 0)
        i = (i + 1) & (s->cap - 1);
    return &s->slot[i];
}

Scope *scope_push(Import *x)
{
    Scope *s = NEW(x->a, Scope, 1);
    *s = (Scope){.outer = x->scope, .cap = 16, .slot = NEW(x->a, struct Binding, 16)};
    x->scope = s;
    return s;
}

void scope_set(Import *x, const char *name, Val v)
{
    Scope *s = x->scope;
    if (s->n * 2 >= s->cap) {
        Scope old = *s;
        s->cap *= 2;
        s->slot = NEW(x->a, struct Binding, s->cap);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slot[i].name)
                *scope_slot(s, old.slot[i].name) = old.slot[i];
    }
    struct Binding *b = scope_slot(s, name);
    s->n += !b->name;
    *b = (struct Binding){name, v};
}

bool scope_find(const Import *x, const char *name, Val *v)
{
    for (const Scope *s = x->scope; s; s = s->outer) {
        const struct Binding *b = scope_slot(s, name);
        if (b->name) {
            *v = b->v;
            return true;
        }
    }
    return false;
}
