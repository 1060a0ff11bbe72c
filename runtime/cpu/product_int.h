/* product_int.h -- a product of our own: product.c, product_factors.c. */
#ifndef CKC_PRODUCT_INT_H
#define CKC_PRODUCT_INT_H

#include "depthwise.h"
#include "pack.h"
#include "panel.h"
#include "tiled_weights.h"
#include "winograd.h"

enum {
    BATCH = LAYOUT_DIMS,
    FEW_ROWS = 3 /* that are not worth packing the other factor for */
};

struct Product {
    int a, b, c; /* slots */
    Factor fa, fb;
    int64_t rows, columns, terms, row_stride;
    int64_t image_columns, image_stride; /* columns of one image; from one's result to the next one's */
    bool is_phase;                       /* see product_cut_phase() */
    int64_t offset[SLOTS];               /* of its tensors */
    int64_t extent[WINDOW], place[WINDOW]; /* positions of the result, their strides */
    struct Product *next;                  /* the next phase */
    int64_t cleared; /* bytes of the result that are 0 where no phase makes them */
    int64_t batch[BATCH], step[3][BATCH], nbatch; /* of a, b, c */
    bool bias, few, is_depthwise, is_winograd, is_tiled;
    PanelKind kind;
    bool joins[2]; /* of a, b: terms of bf16 lie in pairs */
    Factor joined[2];
    PackFn *pack_joined;
    Depthwise depthwise;
    Winograd winograd;
    TiledWeights tiled;
    DType in, out;
    Panel panel;
    bool in_panels; /* factor b lies as it is multiplied */
    bool rounds; /* sums are complete, and rounded to bf16, as soon as they are made */
    PackFn *pack;
    NarrowFn *narrow;
    int mr, nr, threads, vector; /* vector: bytes */
    int64_t block_rows, block_columns, block_terms;
    int64_t shared, members;                 /* that have a in common; of a block */
    int64_t unit_rows, nrows, ncolumns, units;
};

/* The extents of digits, multiplied. */
static inline int64_t digits_count(const int64_t extent[DIGITS])
{
    return extent[0] * extent[1] * extent[2] * extent[3];
}

/* Factors, result and batch; p->nr: columns of a panel. */
void product_describe(Product *p, const Problem *q);

/* A member of the batch: where its factors, result and bias (NULL: none) lie. */
typedef struct {
    const char *a, *b, *bias;
    char *c;
} Member;
Member product_member(const Product *p, char *const at[SLOTS], int64_t i);

/* Element (row, column) of a member's result; *n: columns from there that lie together, of a phase evenly. */
int64_t product_place(const Product *p, int64_t row, int64_t column, int64_t *n);

/* few_rows.c: a product that is not worth packing a factor for, which takes no scratch. */
bool few_rows_fit(const Product *p);
void few_rows_run(const Product *p, char *const at[SLOTS], bool add);

/* Of the gradient of data of a convolution with strides that from `phase` on, strides apart, along dimension
 * i of images: one of a convolution without, of the taps that meet it.  offset: of the tensors, moves on.
 * False: there are no taps, or no positions. */
bool product_cut_phase(Problem *q, int64_t offset[SLOTS], int i, int64_t phase);

#endif
