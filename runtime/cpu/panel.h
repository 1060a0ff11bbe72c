/* panel.h -- two packed panels of a product multiplied in vector registers. */
#ifndef CKC_PANEL_H
#define CKC_PANEL_H

#include <stdbool.h>
#include <stdint.h>

enum { PANEL_ROWS = 12 /* at most */, FEW_PANEL_ROWS = 4 };

/* Panels lie term by term: `rows` elements of a, `columns` of b, those `every` elements from one term to the
 * next; of pairs, terms counts these.  c, whose rows are a stride apart, is the sum over all terms, in their
 * order, or that is added to it; rounded to bf16 it is that and a bias of each row, NULL: none. */
typedef void PanelFn(int64_t terms, const float *a, const float *b, int64_t every, float *c,
                     int64_t stride, bool add);
typedef void PanelBf16Fn(int64_t terms, const float *a, const float *b, int64_t every, uint16_t *c,
                         int64_t stride, const float *bias);

typedef struct {
    PanelFn *multiply, *multiply_few; /* all rows of a; the first FEW_PANEL_ROWS of them */
    PanelBf16Fn *multiply_bf16, *multiply_few_bf16;
    int rows, columns;
} Panel;

/* For vectors of so many bytes: 16, 32 (AVX2) or 64 (AVX-512). */
Panel panel_of(int vector, bool pairs);

#endif
