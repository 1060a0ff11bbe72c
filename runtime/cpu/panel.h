/* panel.h -- multiplies two packed panels of a product in vector registers or in tiles (AMX). */
#ifndef CKC_PANEL_H
#define CKC_PANEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PANEL_ROWS = 32, /* at most */
    TILE_PAIRS = 16, /* pairs in a row of a tile */
    SPLIT_PARTS = 3  /* parts of bf16 that a float is the sum of */
};

/* How panels hold elements: as floats; bf16 as pairs of terms in each 32 bits; such pairs in tiles; floats as
 * sums of three bf16 each, in tiles.  Six of the nine products of such parts are added, those that are not
 * below the rounding of f32 (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype
 * for Higher-Precision Computations, 2019). */
typedef enum { PANEL_FLOATS, PANEL_PAIRS, PANEL_TILES, PANEL_SPLIT } PanelKind;

/* Panels are stored term by term: a has `rows` elements of each, b `columns`, the terms of b `every` elements
 * apart; `terms` counts pairs if the panels hold pairs.  In tiles it is a multiple of TILE_PAIRS, and a has
 * TILE_PAIRS pairs of each row together; with floats in parts, `terms` counts the pairs of all three, which
 * take turns every TILE_PAIRS, the first parts first.  PanelFn stores in c, whose rows are `stride` apart,
 * the sum over all terms in their order, or adds it; PanelBf16Fn stores it plus the row's bias (NULL: none)
 * as bf16. */
typedef void PanelFn(int64_t terms, const float *a, const float *b, int64_t every, float *c,
                     int64_t stride, bool add);
typedef void PanelBf16Fn(int64_t terms, const float *a, const float *b, int64_t every, uint16_t *c,
                         int64_t stride, const float *bias);

typedef struct {
    PanelFn *multiply, *multiply_few; /* for all rows of a; for the first `few` of them */
    PanelBf16Fn *multiply_bf16, *multiply_few_bf16;
    int rows, few, columns;
    PanelKind kind;
} Panel;

/* The panels for vectors of `vector` bytes: 16, 32 (AVX2) or 64 (AVX-512), which pairs and tiles need. */
Panel panel_of(int vector, PanelKind kind);

/* Set up and release the calling thread's tiles, around its multiplications; no effect without tiles. */
void panel_begin(const Panel *p);
void panel_end(const Panel *p);

#endif
