/* kernel_math_f32.c -- the mathematical functions of generated kernels, compiled as in generated C. */
#include "codegen/prelude/c.h"
#include "ir/philox.h"
#include "codegen/prelude/math.h"
#include "kernel_math_f32.h"

const MathCase math_cases[] = {
    {"exp", exp_float, exp, -104, 89, 2},
    {"expm1", expm1_float, expm1, -30, 89, 3},
    {"log", log_float, log, 0, 3e38, 2},
    {"log1p", log1p_float, log1p, -0.999999, 1e6, 3},
    {"tanh", tanh_float, tanh, -12, 12, 3},
    {"erf", erf_float, erf, -5, 5, 3},
    {"sin", sin_float, sin, -1e5, 1e5, 2},
    {"cos", cos_float, cos, -1e5, 1e5, 2},
    {"tan", tan_float, tan, -1e5, 1e5, 2},
    {"asin", asin_float, asin, -1, 1, 2},
    {"acos", acos_float, acos, -1, 1, 2},
    {"atan", atan_float, atan, -1e4, 1e4, 2},
    {"sinh", sinh_float, sinh, -90, 90, 2},
    {"cosh", cosh_float, cosh, -90, 90, 2},
    {"asinh", asinh_float, asinh, -1e6, 1e6, 2},
    {"acosh", acosh_float, acosh, 1, 1e6, 2},
    {"atanh", atanh_float, atanh, -1, 1, 2},
    {"rsqrt", rsqrt_float, NULL, 1e-30, 1e30, 2},
    {NULL, NULL, NULL, 0, 0, 0},
};

float math_pow(float x, float y) { return pow_float(x, y); }
uint16_t math_bf16_store(float x) { return bf16_store(x); }
float math_bf16_load(uint16_t h) { return bf16_load(h); }
uint16_t math_f16_store(float x) { return f16_store(x); }
float math_f16_load(uint16_t h) { return f16_load(h); }
void math_philox(const uint32_t c[4], const uint32_t k[2], uint32_t out[4])
{
    PhiloxWords w = philox4x32(c[0], c[1], c[2], c[3], k[0], k[1]);
    out[0] = w.w0, out[1] = w.w1, out[2] = w.w2, out[3] = w.w3;
}
