/* names.c -- a map from names to numbers. */
#include "names.h"
#include <string.h>

enum { FIRST = 16 };

uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

NameMap name_map(Arena *a)
{
    return (NameMap){.arena = a, .slot = NEW(a, struct NameSlot, FIRST), .cap = FIRST};
}

/* The slot of the name, or the free slot where it belongs. */
static struct NameSlot *find(const NameMap *m, const char *name)
{
    uint32_t i = name_hash(name) & (m->cap - 1);
    while (m->slot[i].name && strcmp(m->slot[i].name, name) != 0)
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

const uint32_t *name_get(const NameMap *m, const char *name)
{
    const struct NameSlot *s = find(m, name);
    return s->name ? &s->value : NULL;
}

static void grow(NameMap *m)
{
    NameMap old = *m;
    m->cap *= 2;
    m->slot = NEW(m->arena, struct NameSlot, m->cap);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.slot[i].name)
            *find(m, old.slot[i].name) = old.slot[i];
}

void name_put(NameMap *m, const char *name, uint32_t value)
{
    if (m->n * 2 >= m->cap)
        grow(m);
    struct NameSlot *s = find(m, name);
    m->n += !s->name;
    *s = (struct NameSlot){name, value};
}

bool name_add(NameMap *m, const char *name, uint32_t value)
{
    if (name_get(m, name))
        return false;
    name_put(m, name, value);
    return true;
}
