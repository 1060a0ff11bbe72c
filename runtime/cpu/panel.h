/* panel.h -- two packed panels of a product multiplied in vector registers, or in tiles (AMX). */
#ifndef CKC_PANEL_H
#define CKC_PANEL_H

#include <stdbool.h>
#include <stdint.h>

enum { PANEL_ROWS = 32 /* at most */, TILE_PAIRS = 16 /* of a tile's row */ };

/* How panels hold bf16: widened; pairs of terms in each 32 bits; those in tiles. */
typedef enum { PANEL_FLOATS, PANEL_PAIRS, PANEL_TILES } PanelKind;

/* Panels lie term by term: `rows` elements of a, `columns` of b, those `every` elements from one term to the
 * next; of pairs, terms counts these.  In tiles, terms is a multiple of TILE_PAIRS, and of so many a has one
 * row behind the other.  c, whose rows are a stride apart, is the sum over all terms, in their
 * order, or that is added to it; rounded to bf16 it is that and a bias of each row, NULL: none. */
typedef void PanelFn(int64_t terms, const float *a, const float *b, int64_t every, float *c,
                     int64_t stride, bool add);
typedef void PanelBf16Fn(int64_t terms, const float *a, const float *b, int64_t every, uint16_t *c,
                         int64_t stride, const float *bias);

typedef struct {
    PanelFn *multiply, *multiply_few; /* all rows of a; the first few of them */
    PanelBf16Fn *multiply_bf16, *multiply_few_bf16;
    int rows, few, columns;
    PanelKind kind;
} Panel;

/* For vectors of so many bytes: 16, 32 (AVX2) or 64 (AVX-512), which pairs and tiles need. */
Panel panel_of(int vector, PanelKind kind);

/* A thread's tiles, around what it multiplies; nothing where there are none. */
void panel_begin(const Panel *p);
void panel_end(const Panel *p);

#endif
