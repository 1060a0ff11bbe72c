/* pack.h -- packs the factors of a product (product.c) into panels, which have, term by term, the elements of
 * as many lanes as a kernel multiplies at a time. */
#ifndef CKC_PACK_H
#define CKC_PACK_H

#include "ir/integer.h"
#include "ir/ir.h"
#include "vectors.h"

enum {
    DIGITS = 4,       /* indices of a lane or term: channel or image, then the position */
    WINDOW = 3,       /* dimensions of an image, at most */
    MAX_COLUMNS = 32, /* width of a panel, at most */
    PACK_SPARE = 16   /* elements behind the last panel that packing may overwrite */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A factor, indexed by lane (row of A, column of B) and term, each of which is split into digits.  The
 * element lies at the sum of digits times strides; or, with `window`, the digits from 1 on add up to a
 * position in an image, in steps of which `each` are one position of the image; elements between or outside
 * those are 0. */
typedef struct {
    int64_t lane[DIGITS], term[DIGITS];   /* strides */
    int64_t lanes[DIGITS], terms[DIGITS]; /* extents */
    bool window;
    int64_t pad[WINDOW], each[WINDOW], size[WINDOW], stride[WINDOW];
} Factor;

/* Packs the lanes [lane, lane + n), for `terms` terms from `first` on, into consecutive panels of `width`
 * lanes.  Missing lanes of the last panel are 0. */
typedef void PackFn(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                    int64_t terms, float *to);

/* The function that packs f32, bf16 or f16 elements as f32; vector: bytes, 16, 32 (AVX2) or 64 (AVX-512). */
PackFn *pack_function(DType dt, int vector);

/* Packs panels with two terms of bf16 in each 32 bits, the first in the low half, for AVX-512.  `terms` terms
 * of the factor give half as many pairs, rounded up, followed by zeros up to `depth` pairs.  widened: scratch
 * for width * terms + PACK_SPARE elements. */
void pack_pairs(const Factor *f, const void *at, int64_t lane, int64_t n, int width, int64_t first,
                int64_t terms, int64_t depth, float *to, float *widened);

/* Packs pairs in the layout of tiles: panels of PANEL_ROWS lanes, in which TILE_PAIRS pairs of each lane are
 * consecutive; missing lanes and pairs are 0.  joined: from pack_joins(), or NULL if the terms of f do not
 * lie in pairs.  room: scratch for PANEL_ROWS * TILE_PAIRS * ceil(terms / 2 / TILE_PAIRS) elements. */
void pack_tiles(const Factor *f, const Factor *joined, const void *at, int64_t lane, int64_t n, int64_t first,
                int64_t terms, float *to, float *room, float *widened);

/* Packs floats as three bf16 each, whose sum they are, in panels of PANEL_ROWS lanes: pairs of terms,
 * TILE_PAIRS of the first parts, then of the second and of the third; in the layout of tiles or, of factor b,
 * pair by pair.  Missing lanes and terms are 0.  room: scratch for PANEL_ROWS * (ceil(terms / 32) * 80)
 * elements and PACK_SPARE.  False: an element is not finite, or 2^127 or more. */
bool pack_split(const Factor *f, bool of_b, const void *at, int64_t lane, int64_t n, int64_t first,
                int64_t terms, float *to, float *room);

/* Do the terms of a factor of 16-bit elements lie in pairs?  Then *joined is the factor of 32-bit pairs. */
bool pack_joins(const Factor *f, Factor *joined);

/* Converts n sums to elements of the type that the function is for. */
typedef void NarrowFn(void *to, const float *from, int64_t n);
NarrowFn *narrow_function(DType dt, int vector);

#endif
