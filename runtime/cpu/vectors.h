/* vectors.h -- macros for vectors of any number of lanes; the vector types are arguments. */
#ifndef CKC_VECTORS_H
#define CKC_VECTORS_H

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Converts floats to bf16 in the lower halves of words, rounded as bf16_store() does. */
#define BF16_WORDS(Words, x)                                                                                 \
    (((Words)((x) != (x)) & ((Words)(x) >> 16 | 0x40)) |                                                     \
     (~(Words)((x) != (x)) & (((Words)(x) + 0x7FFF + ((Words)(x) >> 16 & 1)) >> 16)))

/* Shuffle indices for lane i of the results of SWAP, for the lower and for the higher of two vectors whose
 * numbers differ in bit h. */
#define FROM_LOW(lanes, h, i) ((i) & (h) ? (lanes) + (i) - (h) : (i))
#define FROM_HIGH(lanes, h, i) (((i) & (h) ? (lanes) + (i) : (i) + (h)) % (2 * (lanes)))
#define LANES_4(F, lanes, h, i)                                                                              \
    F(lanes, h, i), F(lanes, h, (i) + 1), F(lanes, h, (i) + 2), F(lanes, h, (i) + 3)
#define ALL_4(F, h) LANES_4(F, 4, h, 0)
#define ALL_8(F, h) LANES_4(F, 8, h, 0), LANES_4(F, 8, h, 4)
#define ALL_16(F, h) LANES_4(F, 16, h, 0), LANES_4(F, 16, h, 4), LANES_4(F, 16, h, 8), LANES_4(F, 16, h, 12)

/* TRANSPOSE transposes as many vectors r as each has lanes.  SWAP exchanges bit h of the lane's number with
 * bit h of the vector's number. */
#define SWAP(V, r, lanes, ALL, h)                                                                            \
    UNROLL for (int i = 0; i < (lanes); i++) if ((h) < (lanes) && !(i & (h)))                                \
    {                                                                                                        \
        const V a_ = r[i], b_ = r[(i + (h)) % (lanes)];                                                      \
        r[i] = __builtin_shufflevector(a_, b_, ALL(FROM_LOW, h));                                            \
        r[(i + (h)) % (lanes)] = __builtin_shufflevector(a_, b_, ALL(FROM_HIGH, h));                         \
    }
#define TRANSPOSE(V, r, lanes, ALL)                                                                          \
    SWAP(V, r, lanes, ALL, 1)                                                                                \
    SWAP(V, r, lanes, ALL, 2)                                                                                \
    SWAP(V, r, lanes, ALL, 4)                                                                                \
    SWAP(V, r, lanes, ALL, 8)

#endif
