/* slots.h -- sorted lists of slots, which are short. */
#ifndef CKC_REMAT_SLOTS_H
#define CKC_REMAT_SLOTS_H
#include "remat_int.h"

#include <assert.h>

typedef struct {
    int32_t *at, n, cap;
} Slots;

static inline Slots *slots_new(int32_t n)
{
    Slots *s = RM_NEW(Slots, n);
    for (int32_t i = 0; i < n; i++)
        s[i] = (Slots){RM_NEW(int32_t, 4), 0, 4};
    return s;
}

/* Index of the first element >= t. Lists are short: counting beats a search that the
 * processor cannot predict. */
static inline int32_t slots_lower(const Slots *s, int32_t t)
{
    int32_t lo = 0, n = s->n;
    while (n > 16) {
        int32_t half = n / 2;
        lo = s->at[lo + half] < t ? lo + half : lo;
        n -= half;
    }
    const int32_t *at = s->at + lo;
    int32_t below = 0;
    for (int32_t i = 0; i < n; i++)
        below += at[i] < t;
    return lo + below;
}

static inline void slots_insert(Slots *s, int32_t t)
{
    if (s->n == s->cap) {
        s->cap *= 2;
        s->at = mem_grow(s->at, (size_t)s->cap, sizeof *s->at);
    }
    int32_t i = s->n++;
    for (; i > 0 && s->at[i - 1] > t; i--)
        s->at[i] = s->at[i - 1];
    s->at[i] = t;
}

static inline void slots_delete(Slots *s, int32_t t)
{
    int32_t i = slots_lower(s, t);
    assert(i < s->n && s->at[i] == t);
    s->n--;
    for (; i < s->n; i++)
        s->at[i] = s->at[i + 1];
}

/* Is there an entry in (lo, hi)? */
static inline bool slots_between(const Slots *s, int32_t lo, int32_t hi)
{
    int32_t i = slots_lower(s, lo + 1);
    return i < s->n && s->at[i] < hi;
}

/* An entry goes from one slot to another. */
static inline void slots_replace(Slots *s, int32_t from, int32_t to)
{
    int32_t i = slots_lower(s, from);
    for (; i + 1 < s->n && s->at[i + 1] < to; i++)
        s->at[i] = s->at[i + 1];
    for (; i > 0 && s->at[i - 1] > to; i--)
        s->at[i] = s->at[i - 1];
    s->at[i] = to;
}
#endif
