/* scope.c -- names of the file while importing: what a value name stands for, seen from inside
 * out through bodies and functions. */
#include "onnx_int.h"

Scope *scope_push(Import *x)
{
    Scope *s = NEW(x->a, Scope, 1);
    *s = (Scope){x->scope, name_map(x->a)};
    x->scope = s;
    return s;
}

void scope_set(Import *x, const char *name, Val v) { name_put(&x->scope->names, name, v.i); }

bool scope_add(Import *x, const char *name, Val v) { return name_add(&x->scope->names, name, v.i); }

bool scope_find(const Import *x, const char *name, Val *v)
{
    for (const Scope *s = x->scope; s; s = s->outer) {
        const uint32_t *found = name_get(&s->names, name);
        if (found) {
            v->i = *found;
            return true;
        }
    }
    return false;
}
