/* philox.h -- Philox4x32-10, the counter-based generator behind dropout and random values.
 *
 * A draw is a pure function of (seed, key, step, index), so recomputing a node or resuming a run
 * reproduces it.  Real source for the reference evaluator; the same file is pasted in front of
 * generated C and CUDA C, which is why it is not Random123's (tests compare the two).  Rounds are
 * written out because loops inside a loop body keep compilers from vectorising.
 * J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef CKC_PHILOX_H
#define CKC_PHILOX_H

#include <stdint.h>

#ifndef FN
#define FN static inline
#endif

#define PHILOX_ROUND(c0, c1, c2, c3, k0, k1)                                                 \
    do {                                                                                     \
        uint64_t p0_ = (uint64_t)0xD2511F53u * c0, p1_ = (uint64_t)0xCD9E8D57u * c2;         \
        c0 = (uint32_t)(p1_ >> 32) ^ c1 ^ k0;                                                \
        c2 = (uint32_t)(p0_ >> 32) ^ c3 ^ k1;                                                \
        c1 = (uint32_t)p1_;                                                                  \
        c3 = (uint32_t)p0_;                                                                  \
        k0 += 0x9E3779B9u;                                                                   \
        k1 += 0xBB67AE85u;                                                                   \
    } while (0)

#define PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1)                                            \
    do {                                                                                     \
        uint64_t p0_ = c0 * 0xD2511F53u, p1_ = c2 * 0xCD9E8D57u;                             \
        c0 = (p1_ >> 32) ^ c1 ^ k0;                                                          \
        c2 = (p0_ >> 32) ^ c3 ^ k1;                                                          \
        c1 = p1_ & low;                                                                      \
        c3 = p0_ & low;                                                                      \
        k0 = (k0 + 0x9E3779B9u) & low;                                                       \
        k1 = (k1 + 0xBB67AE85u) & low;                                                       \
    } while (0)

#define PHILOX_WIDE_ROUNDS(c0, c1, c2, c3, k0, k1)                                           \
    do {                                                                                     \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
        PHILOX_WIDE_ROUND(c0, c1, c2, c3, k0, k1);                                           \
    } while (0)

typedef struct {
    uint32_t w0, w1, w2, w3;
} PhiloxWords;

FN PhiloxWords philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                          uint32_t k1)
{
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PHILOX_ROUND(c0, c1, c2, c3, k0, k1);
    PhiloxWords w = {c0, c1, c2, c3};
    return w;
}

/* Counter = (element index, training step), key = (seed, node key), 64-bit keys folded. */
FN PhiloxWords philox_draw(int64_t seed, int64_t key, int64_t step, int64_t index)
{
    uint64_t s = (uint64_t)seed, k = (uint64_t)key, t = (uint64_t)step, i = (uint64_t)index;
    return philox4x32((uint32_t)i, (uint32_t)(i >> 32), (uint32_t)t, (uint32_t)(t >> 32),
                      (uint32_t)(s ^ (s >> 32)), (uint32_t)(k ^ (k >> 32)));
}

/* 24 random bits: 0 .. 2^24 - 1, exact as a float.  A draw serves four consecutive elements. */
FN int32_t philox_bits(int64_t seed, int64_t key, int64_t step, int64_t index)
{
    PhiloxWords w = philox_draw(seed, key, step, index >> 2);
    uint32_t even = index & 2 ? w.w2 : w.w0, odd = index & 2 ? w.w3 : w.w1;
    return (int32_t)((index & 1 ? odd : even) >> 8);
}

/* philox_bits of n consecutive elements from `first`: out[0] belongs to element first & ~3, so
 * out has room for n + 6.  Words in 64-bit lanes: no packing between the rounds when vectorised. */
FN void philox_fill(int32_t *out, int64_t n, int64_t seed, int64_t key, int64_t step,
                    int64_t first)
{
    const uint64_t low = 0xFFFFFFFFu, t = (uint64_t)step, s = (uint64_t)seed, k = (uint64_t)key;
    const uint64_t start = (uint64_t)first >> 2;
    const int64_t groups = (int64_t)(((uint64_t)first + (uint64_t)n + 3) >> 2) - (int64_t)start;
    for (int64_t g = 0; g < groups; g++) {
        uint64_t i = start + (uint64_t)g;
        uint64_t c0 = i & low, c1 = i >> 32, c2 = t & low, c3 = t >> 32;
        uint64_t k0 = (s ^ (s >> 32)) & low, k1 = (k ^ (k >> 32)) & low;
        PHILOX_WIDE_ROUNDS(c0, c1, c2, c3, k0, k1);
        out[4 * g] = (int32_t)(c0 >> 8);
        out[4 * g + 1] = (int32_t)(c1 >> 8);
        out[4 * g + 2] = (int32_t)(c2 >> 8);
        out[4 * g + 3] = (int32_t)(c3 >> 8);
    }
}

#endif
