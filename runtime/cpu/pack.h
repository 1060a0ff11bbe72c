/* pack.h -- the factors of a product (product.c) as panels: term by term the elements of so many lanes as a
 * kernel multiplies at a time. */
#ifndef CKC_PACK_H
#define CKC_PACK_H

#include "ir/integer.h"
#include "ir/ir.h"
#include "vectors.h"

enum {
    DIGITS = 4,       /* of a column or term of a convolution: channel or image, position */
    WINDOW = 3,       /* dimensions of an image */
    MAX_COLUMNS = 32, /* of a panel */
    PACK_SPARE = 16   /* elements that may be written behind panels no multiple of a vector wide */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A factor by lanes (rows of A, columns of B) and terms.  Either the element of a lane and a term lies
 * at the sum of their strides; or the digits 1.. are positions in an image, as steps that add up to
 * steps of `each`; what lies between them or outside is 0. */
typedef struct {
    int64_t lane[DIGITS], term[DIGITS];   /* strides */
    int64_t lanes[DIGITS], terms[DIGITS]; /* extents */
    bool window;
    int64_t pad[WINDOW], each[WINDOW], size[WINDOW], stride[WINDOW];
} Factor;

/* Panels of `width` of the lanes [lane, lane + n), one behind the other, of the terms from the first on.
 * What is missing in the last panel is 0. */
typedef void PackFn(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                    int64_t terms, float *to);

/* For elements of f32, bf16 or f16, which become f32; vector: bytes, 16, 32 (AVX2) or 64 (AVX-512). */
PackFn *pack_function(DType dt, int vector);

/* Panels of two terms of bf16 in each 32 bits, the first in the low ones, for AVX-512; terms: of the factor,
 * of which a panel has half as many, rounded up, and zeros behind them up to `depth`.  widened: scratch for
 * width * terms + PACK_SPARE elements.
 */
void pack_pairs(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                int64_t terms, int64_t depth, float *to, float *widened);

/* The same as tiles hold them: panels of PANEL_ROWS lanes, of TILE_PAIRS pairs one lane behind the other;
 * what is missing of lanes and of the last pairs is 0.  joined: of elements of 32 bits, NULL: the terms of f
 * do not lie in pairs.  room: for PANEL_ROWS * TILE_PAIRS * ceil(terms / 2 / TILE_PAIRS) elements. */
void pack_tiles(const Factor *f, const Factor *joined, const void *at, int64_t lane, int64_t n, int64_t first,
                int64_t terms, float *to, float *room, float *widened);

/* Whether two terms of a factor of 16-bit elements always lie together; then it has elements of 32 bits. */
bool pack_joins(const Factor *f, Factor *joined);

/* n sums as elements of a type. */
typedef void NarrowFn(void *to, const float *from, int64_t n);
NarrowFn *narrow_function(DType dt, int vector);

#endif
