/* pack.c -- panels of factors, for each type of element and each width of vectors.  Elements are moved and
 * widened only: all widths give the same. */
#include "pack.h"
#include "codegen/prelude/c.h"
#include "ir/philox.h"
#include "codegen/prelude/math.h"

#include <string.h>

enum { LINE = 64 /* of a cache */, AHEAD = 16 /* terms */ };

typedef struct {
    int64_t digit[DIGITS];
} Count;

static Count count_from(int64_t i, const int64_t extent[DIGITS])
{
    Count c;
    for (int d = DIGITS - 1; d >= 0; d--) {
        c.digit[d] = i % extent[d];
        i /= extent[d];
    }
    return c;
}

static void count_on(Count *c, const int64_t extent[DIGITS], int64_t by)
{
    c->digit[DIGITS - 1] += by;
    for (int d = DIGITS - 1; d > 0 && c->digit[d] >= extent[d]; d--) {
        c->digit[d] -= extent[d];
        c->digit[d - 1]++;
    }
}

static int64_t dot(const Count *c, const int64_t stride[DIGITS])
{
    int64_t sum = 0;
    for (int d = 0; d < DIGITS; d++)
        sum += c->digit[d] * stride[d];
    return sum;
}

static void clear_rest(float *to, int n, int width, int64_t terms)
{
    for (int64_t t = 0; n < width && t < terms; t++)
        memset(to + t * width + n, 0, (size_t)(width - n) * sizeof *to);
}

/* A factor with a window: along the last digit of lanes or terms, whichever is longer, positions
 * advance by one step.  The elements of such a run, `every` apart in the panel. */
typedef struct {
    int64_t n, by;
    int every;
} Run;

/* ---- for each type and width ---- */

static float as_is(float x) { return x; }

/* A shuffle of vectors a and b: the lanes of a without bit h, behind each those of b; the others likewise. */
#define FROM_LOW(h, i) ((i) & (h) ? LANES + (i) - (h) : (i))
#define FROM_HIGH(h, i) (((i) & (h) ? LANES + (i) : (i) + (h)) % (2 * LANES))
#define LANES_4(F, h, i) F(h, i), F(h, (i) + 1), F(h, (i) + 2), F(h, (i) + 3)
#define LANES_16(F, h) LANES_4(F, h, 0), LANES_4(F, h, 4), LANES_4(F, h, 8), LANES_4(F, h, 12)

#define ISA
#define LANES 4
#define ALL_LANES(F, h) LANES_4(F, h, 0)
#define NAMED(name, type) name##_##type##_16
#include "pack_types.h"

#ifdef __x86_64__
#define ISA __attribute__((target("avx2")))
#define LANES 8
#define ALL_LANES(F, h) LANES_4(F, h, 0), LANES_4(F, h, 4)
#define NAMED(name, type) name##_##type##_32
#include "pack_types.h"
#define ISA __attribute__((target("avx512f")))
#define LANES 16
#define ALL_LANES(F, h) LANES_16(F, h)
#define NAMED(name, type) name##_##type##_64
#include "pack_types.h"
#endif

#define OF_TYPE(name, bytes)                                                                                 \
    (dt == DT_F32 ? name##_f32_##bytes : dt == DT_BF16 ? name##_bf16_##bytes : name##_f16_##bytes)
#ifdef __x86_64__
#define OF_WIDTH(name)                                                                                       \
    (vector == 64 ? OF_TYPE(name, 64) : vector == 32 ? OF_TYPE(name, 32) : OF_TYPE(name, 16))
#else
#define OF_WIDTH(name) ((void)vector, OF_TYPE(name, 16))
#endif

PackFn *pack_function(DType dt, int vector) { return OF_WIDTH(pack); }

NarrowFn *narrow_function(DType dt, int vector) { return OF_WIDTH(narrow); }
