/* product_int.h -- our own products, shared by product.c, product_factors.c and few_rows.c. */
#ifndef CKC_PRODUCT_INT_H
#define CKC_PRODUCT_INT_H

#include "depthwise.h"
#include "pack.h"
#include "panel.h"
#include "tiled_weights.h"
#include "winograd.h"

enum {
    BATCH = LAYOUT_DIMS,
    FEW_ROWS = 3 /* up to so many rows are not worth packing the other factor */
};

struct Product {
    int a, b, c; /* slots of the factors and the result */
    Factor fa, fb;
    int64_t rows, columns, terms, row_stride;
    int64_t image_columns, image_stride; /* columns of one image; stride from image to image in the result */
    bool is_phase;                       /* see product_cut_phase() */
    int64_t offset[SLOTS];               /* of the phase in its tensors, in elements */
    int64_t extent[WINDOW], place[WINDOW]; /* extents of the result's positions, and their strides */
    struct Product *next;                  /* the next phase */
    int64_t cleared; /* bytes of the result to clear first, as no phase makes some of its positions */
    int64_t batch[BATCH], step[3][BATCH], nbatch; /* extents of the batch, and strides of a, b and c in it */
    bool bias, few, is_depthwise, is_winograd, is_tiled;
    PanelKind kind;
    bool joins[2]; /* of a and b: terms of bf16 lie in pairs */
    Factor joined[2];
    PackFn *pack_joined;
    Depthwise depthwise;
    Winograd winograd;
    TiledWeights tiled;
    DType in, out;
    Panel panel;
    bool in_panels; /* factor b is stored in panels and needs no packing */
    bool rounds; /* one block has all terms, and its sums are rounded to bf16 in registers */
    PackFn *pack;
    NarrowFn *narrow;
    int mr, nr, threads, vector; /* vector: bytes */
    int64_t block_rows, block_columns, block_terms;
    int64_t shared, members;                 /* members of the batch that share a; those in a block */
    int64_t unit_rows, nrows, ncolumns, units;
};

/* Product of the extents of all digits. */
static inline int64_t digits_count(const int64_t extent[DIGITS])
{
    return extent[0] * extent[1] * extent[2] * extent[3];
}

/* Sets factors, result and batch; p->nr, the columns of a panel, is set before. */
void product_describe(Product *p, const Problem *q);

/* Addresses of the factors, result and bias (NULL: none) of a member of the batch. */
typedef struct {
    const char *a, *b, *bias;
    char *c;
} Member;
Member product_member(const Product *p, char *const at[SLOTS], int64_t i);

/* Offset of element (row, column) in a member's result; *n: number of columns from there on that are adjacent
 * or, in a phase, evenly spaced. */
int64_t product_place(const Product *p, int64_t row, int64_t column, int64_t *n);

/* few_rows.c: a product of so few rows that packing a factor is not worth it; takes no scratch. */
bool few_rows_fit(const Product *p);
void few_rows_run(const Product *p, char *const at[SLOTS], bool add);

/* Cuts the data gradient of a convolution with strides to one phase: the positions from `phase` on, a stride
 * apart, along dimension i of the images.  It is the data gradient of a convolution of stride 1 with the taps
 * that meet these positions.  Adds the start of the phase to the offsets of the tensors.  False: there are no
 * taps, or no positions. */
bool product_cut_phase(Problem *q, int64_t offset[SLOTS], int i, int64_t phase);

#endif
