/* spans.h -- bytes of a memory as disjoint spans in order, and who touched each last. */
#ifndef CKC_SPANS_H
#define CKC_SPANS_H

#include <stdbool.h>
#include <stdint.h>

enum { SPAN_READERS = 3 };

/* Numbers are the user's, such as a value's or a launch's, counted from 1; 0: nobody. */
typedef struct {
    int64_t lo, hi; /* bytes [lo, hi) */
    uint32_t write, read[SPAN_READERS];
} Span;

/* {0}: nothing is known of any byte. */
typedef struct {
    Span *s;
    uint32_t n, cap;
} Spans;

/* Spans that cover [lo, hi) and nothing else: the first of *count; valid until the next call. */
Span *spans_cover(Spans *m, int64_t lo, int64_t hi, uint32_t *count);
/* The bytes are one span, written by this number and read by nobody. */
void spans_write(Spans *m, int64_t lo, int64_t hi, uint32_t number);
/* Has this number written each of the bytes, and nobody since? */
bool spans_hold(const Spans *m, int64_t lo, int64_t hi, uint32_t number);
void spans_free(Spans *m);

#endif
