/* kernel_math.h -- the vocabulary of kernel text, compiled here as the double reference.
 *
 * Expression texts (pointwise rows: a, b, c, al, be) and BODY texts (KERNEL: i, p, q, F, I, SETF,
 * SETI) are written once in these names.  Generated C and CUDA C define the same names for REAL =
 * float or double (codegen/prelude); here REAL is double.  The arguments of an expression keep
 * their own types, so an expression over integers only is integer arithmetic.
 *
 * INT_OF truncates: out of range is the nearest integer, NaN is INT64_MIN; integers stay.
 * FMAX and FMIN propagate NaN and are integer on integers; RINT rounds half to even;
 * PHILOX_UNIFORM is in [0, 1) with 24 random bits, PHILOX_NORMAL is standard normal.
 * Include this last: texts mix integer and real types on purpose, so the conversion warnings
 * are off from here on. */
#ifndef CKC_KERNEL_MATH_H
#define CKC_KERNEL_MATH_H

#include <math.h>
#include <stdint.h>

#include "philox.h"

#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-function"

#define REAL double
#define R(x) ((REAL)(x))
#define UNROLLED /* a loop whose variable indexes arrays: on a GPU these are to be in registers */

#define EXP(x) exp(R(x))
#define EXPM1(x) expm1(R(x))
#define LOG(x) log(R(x))
#define LOG1P(x) log1p(R(x))
#define TANH(x) tanh(R(x))
#define SQRT(x) sqrt(R(x))
#define RSQRT(x) (R(1) / sqrt(R(x)))
#define ERF(x) erf(R(x))
#define SIN(x) sin(R(x))
#define COS(x) cos(R(x))
#define TAN(x) tan(R(x))
#define ASIN(x) asin(R(x))
#define ACOS(x) acos(R(x))
#define ATAN(x) atan(R(x))
#define SINH(x) sinh(R(x))
#define COSH(x) cosh(R(x))
#define ASINH(x) asinh(R(x))
#define ACOSH(x) acosh(R(x))
#define ATANH(x) atanh(R(x))
#define FLOOR(x) floor(R(x))
#define CEIL(x) ceil(R(x))
#define RINT(x) rint(R(x))
#define TRUNC(x) trunc(R(x))
#define FABS(x) fabs(R(x))
#define FMOD(x, y) fmod(R(x), R(y)) /* sign of x */
#define FMA(x, y, z) fma(R(x), R(y), R(z))
#define INT_OF(x) _Generic((x), float: int_of, double: int_of, default: int_itself)(x)
#define ISNAN(x) (R(x) != R(x))
#define ISINF(x) (fabs(R(x)) == INF_)
#define INF_ R(HUGE_VAL)
#define NAN_ R(NAN)

static inline int64_t int_itself(int64_t x)
{
    return x;
}
static inline double max_real(double x, double y)
{
    return x > y || x != x ? x : y;
}
static inline double min_real(double x, double y)
{
    return x < y || x != x ? x : y;
}
static inline int64_t max_int(int64_t x, int64_t y)
{
    return x > y ? x : y;
}
static inline int64_t min_int(int64_t x, int64_t y)
{
    return x < y ? x : y;
}
#define PICK(c, x, y) ((c) ? (x) : (y))
#define FMAX(x, y) _Generic((x) + (y), double: max_real, default: max_int)(x, y)
#define FMIN(x, y) _Generic((x) + (y), double: min_real, default: min_int)(x, y)

/* Division truncates on integers (0 where the divisor is 0), so that most negative powers are 0; REM has the
 * sign of x, MOD of y. */
static inline double div_real(double x, double y)
{
    return x / y;
}
static inline int64_t div_int(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
static inline int64_t rem_int(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}
static inline double mod_real(double x, double y)
{
    double r = fmod(x, y);
    return r == 0 ? copysign(0.0, y) : (r < 0) != (y < 0) ? r + y : r;
}
static inline int64_t mod_int(int64_t x, int64_t y)
{
    int64_t r = rem_int(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline int64_t pow_int(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 || x == -1 ? (y & 1 ? x : 1) : 0;
    uint64_t p = 1, b = (uint64_t)x;
    for (; y; y >>= 1, b *= b)
        p *= y & 1 ? b : 1;
    return (int64_t)p;
}
#define DIV(x, y) _Generic((x) + (y), double: div_real, default: div_int)(x, y)
#define REM(x, y) _Generic((x) + (y), double: fmod, default: rem_int)(x, y)
#define POW(x, y) _Generic((x) + (y), double: pow, default: pow_int)(x, y)
#define MOD(x, y) _Generic((x) + (y), double: mod_real, default: mod_int)(x, y)
#define BITOP(x, op, y) ((int64_t)((uint64_t)(int64_t)(x) op (uint64_t)(int64_t)(y)))

#define PHILOX_UNIFORM(seed, key, step, index)                                               \
    (R(philox_bits((int64_t)(seed), (int64_t)(key), (int64_t)(step), (int64_t)(index))) *    \
     R(0x1p-24))

static inline double normal_real(int64_t seed, int64_t key, int64_t step, int64_t index)
{
    double u = (philox_bits(seed, key, step, 2 * index) + 1) * 0x1p-24;
    double v = philox_bits(seed, key, step, 2 * index + 1) * 0x1p-24;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
#define PHILOX_NORMAL(seed, key, step, index)                                                \
    normal_real((int64_t)(seed), (int64_t)(key), (int64_t)(step), (int64_t)(index))

/* A loop over 32 lanes l, each of which sets its bit of a number, and the bits of all of them. */
#define EACH_LANE(l) for (int64_t l = 0; l < 32; l++)
#define JOIN_LANES(bits) (bits)

/* Element j of operand k, for BODY texts (t: the operands). */
#define F(k, j) tensor_f(&t[k], (j))
#define I(k, j) tensor_i(&t[k], (j))
#define SETF(k, j, v) tensor_set_f(&t[k], (j), (double)(v))
#define SETI(k, j, v) tensor_set_i(&t[k], (j), INT_OF(v))

#endif
