/* names.h -- a map from names to numbers: open addressing, FNV-1a. */
#ifndef CKC_NAMES_H
#define CKC_NAMES_H

#include "ir.h"

typedef struct {
    Arena *arena;
    struct NameSlot {
        const char *name; /* NULL: free.  Not owned */
        uint32_t value;
    } *slot;
    uint32_t n, cap;
} NameMap;

NameMap name_map(Arena *a);
uint32_t name_hash(const char *s);
/* NULL: there is no such name. */
const uint32_t *name_get(const NameMap *m, const char *name);
/* Replaces what the name stood for. */
void name_put(NameMap *m, const char *name, uint32_t value);
/* false, and nothing changes, if the name is there already. */
bool name_add(NameMap *m, const char *name, uint32_t value);

#endif
