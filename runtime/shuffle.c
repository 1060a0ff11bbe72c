/* shuffle.c -- the order of rows in an epoch: a permutation computed element by element, without a table.
 *
 * A Feistel network of counter-based random rounds permutes the numbers of an even count of bits; a result
 * outside the range goes through it again until it is inside (cycle walking: J. Black, P. Rogaway, Ciphers
 * with Arbitrary Finite Domains, CT-RSA 2002).  The domain is at most four times the range. */
#include "ir/philox.h"
#include "runtime_int.h"

enum { ROUNDS = 6 };

static uint64_t permute(uint64_t v, int half, int64_t seed, int64_t epoch)
{
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = v >> half, right = v & mask;
    for (int round = 0; round < ROUNDS; round++) {
        PhiloxWords w = philox_draw(seed, 0x73687566 + round, epoch, (int64_t)right);
        uint64_t next = left ^ (((uint64_t)w.w0 << 32 | w.w1) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t shuffled(int64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    int half = 1;
    while (half < 31 && (uint64_t)n > (uint64_t)1 << 2 * half)
        half++;
    uint64_t v = (uint64_t)i;
    do
        v = permute(v, half, seed, epoch);
    while (v >= (uint64_t)n);
    return (int64_t)v;
}
