/* spans.h -- the bytes of a memory as sorted disjoint spans, with who wrote and read each last. */
#ifndef CKC_SPANS_H
#define CKC_SPANS_H

#include <stdbool.h>
#include <stdint.h>

enum { SPAN_READERS = 3 };

/* write and read: numbers chosen by the user, such as a value's or a launch's, from 1 on; 0: nobody. */
typedef struct {
    int64_t lo, hi; /* bytes [lo, hi) */
    uint32_t write, read[SPAN_READERS];
} Span;

/* {0}: nothing is known of any byte. */
typedef struct {
    Span *s;
    uint32_t n, cap;
} Spans;

/* Splits spans so that *count of them cover [lo, hi) and nothing else.  Returns the first, which is valid
 * until the next call. */
Span *spans_cover(Spans *m, int64_t lo, int64_t hi, uint32_t *count);
/* Makes the bytes one span, written by this number and read by nobody. */
void spans_write(Spans *m, int64_t lo, int64_t hi, uint32_t number);
/* Has this number written each of the bytes, and nobody since? */
bool spans_hold(const Spans *m, int64_t lo, int64_t hi, uint32_t number);
void spans_free(Spans *m);

#endif
