/* kernel_math_cuda.c -- functions that generated CUDA C has otherwise than C, compiled through the shim. */
#include "codegen/prelude/cuda.h"
#include "ir/philox.h"
#include "codegen/prelude/math.h"
#include "kernel_math_f32.h"

const MathCase cuda_math_cases[] = {
    {"exp", exp_float, exp, -87.3, 88.7, 3},
    {NULL, NULL, NULL, 0, 0, 0},
};
