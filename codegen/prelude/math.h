/* math.h -- functions of generated kernels, one source for C and CUDA C.
 *
 * Branch free, so that loops over them vectorise: range reduction, a minimax polynomial (fitted
 * by Chebyshev approximation at 40 digits), selects for the special values.  Errors against the
 * true value stay within 3 ulp (tests/test_codegen.c measures them).  Multiplications and
 * additions fuse only where fmaf/fma is written.  Rarely used functions (pow, sin, atan, ...) compute
 * in double, which leaves them correctly rounded nearly everywhere. */

#define LIMIT(x, lo, hi) ((x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x)) /* NaN passes */

/* The smaller of two by one comparison: compilers make two in a row one condition of ten instructions. */
FN float at_most(float x, float hi) { return x > hi ? hi : x; }

/* x = k ln2 + r with |r| <= ln2/2; k is read from the low bits of a sum with 1.5 * 2^23. */
typedef struct {
    float r;
    int32_t k;
} SplitF;

FN SplitF split_exp(float x)
{
    float t = fmaf(x, 1.44269504f, 12582912.0f), k = t - 12582912.0f;
    SplitF s;
    s.r = fmaf(k, 2.12194440e-4f, fmaf(k, -0.693359375f, x));
    s.k = (int32_t)(bits_of_float(t) - 0x4B400000u);
    return s;
}

/* e^r - 1 on the reduced range.  Polynomials here are evaluated in pairs of terms (Estrin's scheme), as loops
 * spend most of their time waiting for the step before. */
FN float expm1_reduced(float r)
{
    float s = r * r, p = fmaf(1.98919813e-4f, r, 1.39345419e-3f), q = fmaf(8.33331002e-3f, r, 4.16664568e-2f);
    p = fmaf(fmaf(p, s, q), s, fmaf(1.66666667e-1f, r, 5.00000001e-1f));
    return fmaf(p, s, r);
}

FN float power_of_two(int32_t k) { return float_of_bits(((uint32_t)k + 127u) << 23); }

#ifndef DEVICE_EXP
/* 2^k is two factors, about 2^(k/2) each, so that overflow and denormal results round once. */
FN float exp_float(float x)
{
    SplitF s = split_exp(at_most(x, 89.0f));
    int32_t h = s.k >> 1;
    float y = (1.0f + expm1_reduced(s.r)) * power_of_two(h) * power_of_two(s.k - h);
    return x < -104.0f ? 0.0f : y;
}
#endif

FN float expm1_float(float x)
{
    SplitF s = split_exp(at_most(x, 89.0f));
    float half = power_of_two((int32_t)((uint32_t)s.k - 1u));
    float y = 2.0f * fmaf(expm1_reduced(s.r), half, half - 0.5f);
    return x < -25.0f ? -1.0f : y;
}

/* x = m 2^e with m near 1: log x = e ln2 + log m. */
FN float log_float(float x)
{
    bool tiny = x < 1.17549435e-38f;
    float scaled = tiny ? x * 8388608.0f : x;
    int32_t i = (int32_t)(bits_of_float(scaled) - 0x3F3504F3u);
    float e = (float)((i >> 23) - (tiny ? 23 : 0));
    float f = float_of_bits((uint32_t)(i & 0x7FFFFF) + 0x3F3504F3u) - 1.0f, z = f * f;
    float p = fmaf(6.98070196e-2f, f, -1.14945466e-1f);
    p = fmaf(p, f, 1.16890711e-1f);
    p = fmaf(p, f, -1.24240377e-1f);
    p = fmaf(p, f, 1.42485513e-1f);
    p = fmaf(p, f, -1.66678510e-1f);
    p = fmaf(p, f, 2.00007305e-1f);
    p = fmaf(p, f, -2.49999966e-1f);
    p = fmaf(p, f, 3.33333311e-1f);
    float y = fmaf(p * f, z, fmaf(e, -2.12194440e-4f, -0.5f * z));
    float r = fmaf(e, 0.693359375f, f + y);
    r = x < 0.0f ? NAN : x == 0.0f ? -INFINITY : r;
    return x < INFINITY ? r : x; /* infinity and NaN */
}

FN float log1p_float(float x)
{
    float u = 1.0f + x, r = log_float(u) + (x - (u - 1.0f)) / u;
    return ((u > 0.0f) & (u < INFINITY)) ? r : log_float(u);
}

FN float tanh_float(float x)
{
    float a = fabsf(x), t = expm1_float(2.0f * at_most(a, 10.0f));
    return copysignf(t / (t + 2.0f), x);
}

/* Below 1 an odd polynomial; above 1 it is 1 - exp(-q(|x|)). */
FN float erf_float(float x)
{
    float t = at_most(fabsf(x), 4.0f), s = t * t;
    float p = fmaf(7.875875063e-5f, s, -8.016864287e-4f);
    p = fmaf(p, s, 5.189087423e-3f);
    p = fmaf(p, s, -2.685421201e-2f);
    p = fmaf(p, s, 1.128359472e-1f);
    p = fmaf(p, s, -3.761262667e-1f);
    p = fmaf(p, s, 1.28379166e-1f);
    float q = fmaf(fmaf(1.327236181e-5f, t, -3.169370225e-4f), s, fmaf(3.432351381e-3f, t, -2.260477224e-2f));
    q = fmaf(q, s * s,
             fmaf(fmaf(1.032811176e-1f, t, 6.391412576e-1f), s, fmaf(1.125893652f, t, 7.658977797e-4f)));
    SplitF e = split_exp(-q); /* -q is in [-17, 0]: no limit is needed, no result is denormal */
    float small = fmaf(p, t, t), large = 1.0f - (1.0f + expm1_reduced(e.r)) * power_of_two(e.k);
    return copysignf(t < 1.0f ? small : large, x);
}

FN float sqrt_float(float x) { return sqrtf(x); }
FN float rsqrt_float(float x) { return 1.0f / sqrtf(x); }
FN float floor_float(float x) { return floorf(x); }
FN float ceil_float(float x) { return ceilf(x); }
FN float rint_float(float x) { return rintf(x); }
FN float trunc_float(float x) { return truncf(x); }
FN float fabs_float(float x) { return fabsf(x); }
FN float fma_float(float x, float y, float z) { return fmaf(x, y, z); }
FN float fmod_float(float x, float y) { return fmodf(x, y); }

/* ---- functions that compute in double ---------------------------------------------------- */

FN double exp_wide(double x)
{
    double c = LIMIT(x, -700.0, 700.0);
    double t = fma(c, 1.4426950408889634, 6755399441055744.0), k = t - 6755399441055744.0;
    double r = fma(k, -2.3190468138462996e-17, fma(k, -0.6931471805599453, c));
    double p = fma(2.7614931875440475e-7, r, 2.7626466044935e-6);
    p = fma(p, r, 2.4801534341237886e-5);
    p = fma(p, r, 1.9841206274785362e-4);
    p = fma(p, r, 1.3888888906916629e-3);
    p = fma(p, r, 8.3333333549719012e-3);
    p = fma(p, r, 4.1666666666650099e-2);
    p = fma(p, r, 1.6666666666646781e-1);
    p = fma(p, r, 0.5);
    p = fma(p, r * r, r) + 1.0;
    uint64_t e = bits_of_double(t) - 0x4338000000000000u; /* k as an integer */
    return p * double_of_bits((e + 1023) << 52);
}

FN double log_wide(double x) /* normal x >= 0, infinity, NaN */
{
    uint64_t b = bits_of_double(x), i = b - 0x3FE6A09E667F3BCDu;
    uint64_t biased = (uint64_t)((int64_t)i >> 52) + 0x4338000000000000u;
    double e = double_of_bits(biased) - 6755399441055744.0;
    double m = double_of_bits((i & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = fma(0.16629002884512723, z, 0.1813971689908729);
    p = fma(p, z, 0.22222873219300911);
    p = fma(p, z, 0.2857142403753307);
    p = fma(p, z, 0.40000000011524782);
    p = fma(p, z, 0.66666666666661927);
    double r = fma(e, 0.6931471805599453, fma(p * z, s, 2.0 * s));
    r = x == 0.0 ? -INFINITY : r;
    return x < INFINITY ? r : x;
}

FN float pow_float(float x, float y)
{
    float a = fabsf(x);
    double t = (double)y * log_wide((double)a);
    float r = (float)exp_wide(t);
    bool whole = truncf(y) == y, odd = whole && truncf(0.5f * y) * 2.0f != y;
    r = odd && (bits_of_float(x) >> 31) ? -r : r;
    r = x < 0.0f && !whole && a < INFINITY && fabsf(y) < INFINITY ? NAN : r;
    r = t != t ? (a == 1.0f && y == y ? 1.0f : NAN) : r; /* 1^inf = 1 */
    return y == 0.0f || x == 1.0f ? 1.0f : r;
}

/* Sine and cosine of r, and q, where x = q pi/2 + r and |r| <= pi/4.  Exact enough while |x| < 2^40. */
typedef struct {
    double sin, cos;
    float q; /* 0..3 */
} SinCos;

FN SinCos sincos_wide(float x)
{
    double k = rint((double)x * 0.6366197723675814);
    double r = fma(k, -6.123233995736766e-17, fma(k, -1.5707963267948966, (double)x));
    r = LIMIT(r, -1.0, 1.0);
    double z = r * r;
    double s = fma(-2.4792457274380838e-8, z, 2.7555844826072268e-6);
    s = fma(s, z, -1.984126642102243e-4);
    s = fma(s, z, 8.3333333305552868e-3);
    s = fma(s, z, -0.16666666666663055);
    double c = fma(2.0691175383466892e-9, z, -2.7556265209252663e-7);
    c = fma(c, z, 2.4801584856307102e-5);
    c = fma(c, z, -1.3888888886902664e-3);
    c = fma(c, z, 4.1666666666664085e-2);
    SinCos v;
    v.sin = fma(s * z, r, r);
    v.cos = fma(c * z, z, fma(-0.5, z, 1.0));
    v.q = (float)(k - 4.0 * floor(0.25 * k));
    return v;
}

FN float sin_float(float x)
{
    SinCos v = sincos_wide(x);
    double r = v.q == 1.0f || v.q == 3.0f ? v.cos : v.sin;
    return fabsf(x) < INFINITY ? (float)(v.q >= 2.0f ? -r : r) : NAN;
}

FN float cos_float(float x)
{
    SinCos v = sincos_wide(x);
    double r = v.q == 1.0f || v.q == 3.0f ? v.sin : v.cos;
    return fabsf(x) < INFINITY ? (float)(v.q == 1.0f || v.q == 2.0f ? -r : r) : NAN;
}

FN float tan_float(float x)
{
    SinCos v = sincos_wide(x);
    double r = v.q == 1.0f || v.q == 3.0f ? -v.cos / v.sin : v.sin / v.cos;
    return fabsf(x) < INFINITY ? (float)r : NAN;
}

FN double atan_wide(double x)
{
    double a = fabs(x), base = 0.0, u = a;
    u = a > 2.414213562373095 ? -1.0 / a : a > 0.41421356237309503 ? (a - 1.0) / (a + 1.0) : a;
    base = a > 2.414213562373095 ? 1.5707963267948966
                                 : a > 0.41421356237309503 ? 0.7853981633974483 : 0.0;
    double z = u * u;
    double p = fma(0.04707002731990736, z, -0.08456029383539527);
    p = fma(p, z, 0.11040460424915558);
    p = fma(p, z, -0.14281586455512275);
    p = fma(p, z, 0.19999883773230159);
    p = fma(p, z, -0.33333332096528894);
    p = fma(p, z, 0.99999999997837648);
    return copysign(fma(p, u, base), x);
}

FN float atan_float(float x) { return (float)atan_wide((double)x); }
FN double asin_wide(double x) { return atan_wide(x / sqrt((1.0 - x) * (1.0 + x))); }
FN float asin_float(float x) { return (float)asin_wide((double)x); }
FN float acos_float(float x)
{
    return (float)(2.0 * atan_wide(sqrt((1.0 - (double)x) / (1.0 + (double)x))));
}

FN float sinh_float(float x)
{
    double a = fabs((double)x), e = exp_wide(a), z = a * a;
    double small = a * fma(z, fma(z, fma(z, 1.0 / 5040.0, 1.0 / 120.0), 1.0 / 6.0), 1.0);
    return copysignf((float)(a < 0.3 ? small : 0.5 * (e - 1.0 / e)), x);
}

FN float cosh_float(float x)
{
    double e = exp_wide(fabs((double)x));
    return (float)(0.5 * (e + 1.0 / e));
}

FN float asinh_float(float x)
{
    double a = fabs((double)x), r = log_wide(a + sqrt(fma(a, a, 1.0)));
    return copysignf((float)(a < 1e-4 ? a - a * a * a / 6.0 : r), x);
}

FN float acosh_float(float x)
{
    double w = (double)x;
    return x < 1.0f ? NAN : (float)log_wide(w + sqrt((w - 1.0) * (w + 1.0)));
}

FN float atanh_float(float x)
{
    double w = fabs((double)x), r = 0.5 * log_wide((1.0 + w) / (1.0 - w));
    return w > 1.0 ? NAN : copysignf((float)(w < 1e-4 ? w : r), x);
}

/* ---- REAL = double: the functions of the library ---------------------------------------------- */

#define WIDE1(name) FN double name##_double(double x) { return name(x); }
WIDE1(exp) WIDE1(expm1) WIDE1(log) WIDE1(log1p) WIDE1(tanh) WIDE1(erf) WIDE1(sqrt)
WIDE1(sin) WIDE1(cos) WIDE1(tan) WIDE1(asin) WIDE1(acos) WIDE1(atan)
WIDE1(sinh) WIDE1(cosh) WIDE1(asinh) WIDE1(acosh) WIDE1(atanh)
WIDE1(floor) WIDE1(ceil) WIDE1(rint) WIDE1(trunc) WIDE1(fabs)
#undef WIDE1
FN double rsqrt_double(double x) { return 1.0 / sqrt(x); }
FN double pow_double(double x, double y) { return pow(x, y); }
FN double fmod_double(double x, double y) { return fmod(x, y); }
FN double fma_double(double x, double y, double z) { return fma(x, y, z); }

/* ---- types with their own rule ------------------------------------------------------------------ */

/* One condition per ?:, here and in ir/ops: && and || may leave branches, which prevent vectorisation. */
#define EXTREMUM(name, type, beyond)                                                         \
    FN type name(type x, type y)                                                             \
    {                                                                                        \
        type m = x beyond y ? x : y;                                                         \
        return x != x ? x : m;                                                               \
    }
#ifndef DEVICE_MATH
EXTREMUM(max_float, float, >)
EXTREMUM(min_float, float, <)
#endif
EXTREMUM(max_double, double, >)
EXTREMUM(min_double, double, <)

FN int64_t max_int(int64_t x, int64_t y) { return x > y ? x : y; }
FN int64_t min_int(int64_t x, int64_t y) { return x < y ? x : y; }

/* x truncated; the nearest integer if that is out of range, INT64_MIN for NaN: the same on every device. */
FN int64_t int_of_double(double x)
{
    if (!(x >= -9223372036854775808.0))
        return INT64_MIN;
    return x >= 9223372036854775808.0 ? INT64_MAX : (int64_t)x;
}
FN int64_t int_of_float(float x)
{
    if (!(x >= -9223372036854775808.0f))
        return INT64_MIN;
    return x >= 9223372036854775808.0f ? INT64_MAX : (int64_t)x;
}
FN int64_t int_of_int(int64_t x) { return x; }

FN float div_float(float x, float y) { return x / y; }
FN double div_double(double x, double y) { return x / y; }
FN int64_t div_int(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
FN int64_t pow_int(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 || x == -1 ? (y & 1 ? x : 1) : 0;
    uint64_t p = 1, b = (uint64_t)x;
    for (; y; y >>= 1, b *= b)
        p *= y & 1 ? b : 1;
    return (int64_t)p;
}
FN int64_t fmod_int(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }

/* Modulus with the sign of the divisor, even if it is 0. */
FN float mod_float(float x, float y)
{
    float r = fmodf(x, y);
    return r == 0 ? copysignf(0.0f, y) : (r < 0) != (y < 0) ? r + y : r;
}
FN double mod_double(double x, double y)
{
    double r = fmod(x, y);
    return r == 0 ? copysign(0.0, y) : (r < 0) != (y < 0) ? r + y : r;
}
FN int64_t mod_int(int64_t x, int64_t y)
{
    int64_t r = fmod_int(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* ---- half precision in memory: integer arithmetic, round to nearest even ------------------------- */

FN float bf16_load(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

#ifndef DEVICE_MATH
FN uint16_t bf16_store(float x)
{
    uint32_t b = bits_of_float(x);
    uint32_t r = (b + 0x7FFFu + (b >> 16 & 1u)) >> 16;
    return (uint16_t)(x != x ? (b >> 16) | 0x40u : r);
}

/* Denormal halves are computed through a normal float, so that a flush-to-zero mode does not change them. */
FN float f16_load(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, m = h & 0x7FFFu;
    float normal = float_of_bits((m << 13) + 0x38000000u);
    float denormal = float_of_bits(m + 0x3F000000u) - 0.5f; /* m 2^-24 */
    float f = m >= 0x7C00u ? float_of_bits((m << 13) + 0x70000000u) : m < 0x400u ? denormal : normal;
    return float_of_bits(bits_of_float(f) | sign);
}

FN uint16_t f16_store(float x)
{
    uint32_t b = bits_of_float(x), sign = b >> 16 & 0x8000u, a = b & 0x7FFFFFFFu;
    uint32_t normal = (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13;
    uint32_t denormal = bits_of_float(float_of_bits(a) + 0.5f) - 0x3F000000u;
    uint32_t r = a < 0x38800000u ? denormal : normal;
    r = a >= 0x477FF000u ? 0x7C00u : r;
    r = a > 0x7F800000u ? (0x7E00u | (a >> 13 & 0x3FFu)) : r;
    return (uint16_t)(r | sign);
}
#endif

#define F32(x) ((float)(x))
#define BF16(x) bf16_load(bf16_store((float)(x)))
#define F16(x) f16_load(f16_store((float)(x)))
#define I32(x) ((int64_t)(int32_t)INT_OF(x))
#define I8(x) ((int64_t)(int8_t)INT_OF(x))
#define U8(x) ((int64_t)(uint8_t)INT_OF(x))

/* ---- the names that kernel texts use ---------------------------------------------------------------- */

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define FN1(name, x) CAT(name, REAL)(R(x))
#define R(x) ((REAL)(x))

#define EXP(x) FN1(exp_, x)
#define EXPM1(x) FN1(expm1_, x)
#define LOG(x) FN1(log_, x)
#define LOG1P(x) FN1(log1p_, x)
#define TANH(x) FN1(tanh_, x)
#define SQRT(x) FN1(sqrt_, x)
#define RSQRT(x) FN1(rsqrt_, x)
#define ERF(x) FN1(erf_, x)
#define SIN(x) FN1(sin_, x)
#define COS(x) FN1(cos_, x)
#define TAN(x) FN1(tan_, x)
#define ASIN(x) FN1(asin_, x)
#define ACOS(x) FN1(acos_, x)
#define ATAN(x) FN1(atan_, x)
#define SINH(x) FN1(sinh_, x)
#define COSH(x) FN1(cosh_, x)
#define ASINH(x) FN1(asinh_, x)
#define ACOSH(x) FN1(acosh_, x)
#define ATANH(x) FN1(atanh_, x)
#define FLOOR(x) FN1(floor_, x)
#define CEIL(x) FN1(ceil_, x)
#define RINT(x) FN1(rint_, x)
#define TRUNC(x) FN1(trunc_, x)
#define FABS(x) FN1(fabs_, x)
#define FMOD(x, y) CAT(fmod_, REAL)(R(x), R(y))
#define FMA(x, y, z) CAT(fma_, REAL)(R(x), R(y), R(z))
#define INF_ R(INFINITY)
#define NAN_ R(NAN)
#define ISNAN(x) (R(x) != R(x))
#define ISINF(x) (FABS(x) == INF_)
#define BITOP(x, op, y) ((int64_t)((uint64_t)(int64_t)(x) op (uint64_t)(int64_t)(y)))
#define FMAX(x, y) BY_TYPE(max_, x, y)
#define FMIN(x, y) BY_TYPE(min_, x, y)
#define DIV(x, y) BY_TYPE(div_, x, y)
#define REM(x, y) BY_TYPE(fmod_, x, y)
#define POW(x, y) BY_TYPE(pow_, x, y)
#define MOD(x, y) BY_TYPE(mod_, x, y)

#define PHILOX_BITS(seed, key, step, index)                                                  \
    R(philox_bits((int64_t)(seed), (int64_t)(key), (int64_t)(step), (int64_t)(index)))
#define PHILOX_UNIFORM(seed, key, step, index)                                               \
    (PHILOX_BITS(seed, key, step, index) * R(5.9604644775390625e-8))
#define PHILOX_NORMAL(seed, key, step, index)                                                \
    (SQRT(R(-2) * LOG((PHILOX_BITS(seed, key, step, 2 * (index)) + 1) *                      \
                      R(5.9604644775390625e-8))) *                                           \
     COS(R(6.283185307179586 * 5.9604644775390625e-8) *                                      \
         PHILOX_BITS(seed, key, step, 2 * (index) + 1)))

#define LD_f32(p, i) ((p)[i])
#define LD_f64(p, i) ((p)[i])
#define LD_bf16(p, i) bf16_load((p)[i])
#define LD_f16(p, i) f16_load((p)[i])
#define LD_i64(p, i) ((p)[i])
#define LD_i32(p, i) ((int64_t)(p)[i])
#define LD_u8(p, i) ((int64_t)(p)[i])
#define LD_i8(p, i) ((int64_t)(p)[i])
#define LD_bool(p, i) ((int64_t)(p)[i])
#define ST_f32(p, i, v) ((p)[i] = (float)(v))
#define ST_f64(p, i, v) ((p)[i] = (double)(v))
#define ST_bf16(p, i, v) ((p)[i] = bf16_store((float)(v)))
#define ST_f16(p, i, v) ((p)[i] = f16_store((float)(v)))
#define ST_i64(p, i, v) ((p)[i] = INT_OF(v))
#define ST_i32(p, i, v) ((p)[i] = (int32_t)INT_OF(v))
#define ST_u8(p, i, v) ((p)[i] = (uint8_t)INT_OF(v))
#define ST_i8(p, i, v) ((p)[i] = (int8_t)INT_OF(v))
#define ST_bool(p, i, v) ((p)[i] = (v) != 0)
