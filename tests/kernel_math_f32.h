/* kernel_math_f32.h -- the mathematical functions of generated kernels, for test_codegen.c. */
#ifndef CKC_TESTS_KERNEL_MATH_F32_H
#define CKC_TESTS_KERNEL_MATH_F32_H
#include <stdint.h>

typedef struct {
    const char *name;
    float (*f)(float);
    double (*ref)(double); /* what f approximates; NULL: 1 / sqrt(x) */
    double lo, hi;          /* f is tested between these */
    double ulp; /* the error allowed, in units of the last place */
} MathCase;
extern const MathCase math_cases[], cuda_math_cases[];

float math_pow(float x, float y);
uint16_t math_bf16_store(float x);
float math_bf16_load(uint16_t h);
uint16_t math_f16_store(float x);
float math_f16_load(uint16_t h);
void math_philox(const uint32_t c[4], const uint32_t k[2], uint32_t out[4]);
#endif
