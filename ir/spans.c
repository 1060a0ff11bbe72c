/* spans.c -- disjoint spans of bytes in a sorted array. */
#include "spans.h"
#include "mem.h"
#include <stdlib.h>
#include <string.h>

/* Index of the first span that ends behind `at`. */
static uint32_t span_at(const Spans *m, int64_t at)
{
    uint32_t lo = 0, hi = m->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (m->s[mid].hi > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void insert(Spans *m, uint32_t at, Span s)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 256;
        m->s = mem_grow(m->s, m->cap, sizeof *m->s);
    }
    memmove(m->s + at + 1, m->s + at, (m->n - at) * sizeof *m->s);
    m->s[at] = s;
    m->n++;
}

static void split(Spans *m, int64_t at)
{
    uint32_t i = span_at(m, at);
    if (i == m->n || m->s[i].lo >= at)
        return;
    Span below = m->s[i];
    below.hi = at;
    m->s[i].lo = at;
    insert(m, i, below);
}

Span *spans_cover(Spans *m, int64_t lo, int64_t hi, uint32_t *count)
{
    split(m, lo);
    split(m, hi);
    uint32_t first = span_at(m, lo), i = first;
    for (int64_t at = lo; at < hi; at = m->s[i++].hi)
        if (i == m->n || m->s[i].lo > at)
            insert(m, i, (Span){.lo = at, .hi = i < m->n && m->s[i].lo < hi ? m->s[i].lo : hi});
    *count = i - first;
    return m->s + first;
}

void spans_write(Spans *m, int64_t lo, int64_t hi, uint32_t number)
{
    if (lo >= hi)
        return;
    split(m, lo);
    split(m, hi);
    uint32_t first = span_at(m, lo), end = first;
    while (end < m->n && m->s[end].lo < hi)
        end++;
    Span whole = {.lo = lo, .hi = hi, .write = number};
    if (end == first) {
        insert(m, first, whole);
        return;
    }
    m->s[first] = whole;
    memmove(m->s + first + 1, m->s + end, (m->n - end) * sizeof *m->s);
    m->n -= end - first - 1;
}

bool spans_hold(const Spans *m, int64_t lo, int64_t hi, uint32_t number)
{
    uint32_t i = span_at(m, lo);
    for (int64_t at = lo; at < hi; at = m->s[i++].hi)
        if (i == m->n || m->s[i].lo > at || m->s[i].write != number)
            return false;
    return true;
}

void spans_free(Spans *m)
{
    free(m->s);
    *m = (Spans){0};
}
