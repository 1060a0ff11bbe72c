/* nodes_random.c -- the draws of ir/philox.h in integer operators: i64, as few back ends have u64.
 *
 * Words are numbers below 2^32.  A product by a multiplier, whose halves are m1 and m0, is taken in two parts
 * that stay below 2^49: a = c m0, b = c m1 + a / 2^16; its upper word is b / 2^16, its lower one
 * (b mod 2^16) 2^16 + a mod 2^16. */
#include "nodes_int.h"

static OnnxVal number(OnnxNodes *o, int64_t v) { return onnx_table(o, &(Tensor){type_scalar(DT_I64), &v}); }

static OnnxVal with(OnnxNodes *o, const char *op, OnnxVal a, int64_t v)
{
    return onnx_op2(o, op, a, number(o, v));
}

enum { HALF = 1 << 16 };
static const int64_t word = (int64_t)1 << 32;

static OnnxVal low_word(OnnxNodes *o, OnnxVal v) { return with(o, "Mod", v, word); }
static OnnxVal high_word(OnnxNodes *o, OnnxVal v) { return with(o, "Div", v, word); }

typedef struct {
    OnnxVal high, low;
} Product;

static Product product(OnnxNodes *o, OnnxVal c, int64_t m)
{
    OnnxVal a = with(o, "Mul", c, m % HALF);
    OnnxVal b = onnx_op2(o, "Add", with(o, "Mul", c, m / HALF), with(o, "Div", a, HALF));
    OnnxVal low = with(o, "Mul", with(o, "Mod", b, HALF), HALF);
    return (Product){with(o, "Div", b, HALF), onnx_op2(o, "Add", low, with(o, "Mod", a, HALF))};
}

static OnnxVal exclusive_or(OnnxNodes *o, OnnxVal a, OnnxVal b, OnnxVal c)
{
    return onnx_op2(o, "BitwiseXor", onnx_op2(o, "BitwiseXor", a, b), c);
}

static void rounds(OnnxNodes *o, OnnxVal c[4], OnnxVal k0, int64_t k1)
{
    for (int i = 0; i < 10; i++) {
        Product p0 = product(o, c[0], 0xD2511F53), p1 = product(o, c[2], 0xCD9E8D57);
        c[0] = exclusive_or(o, p1.high, c[1], k0);
        c[2] = exclusive_or(o, p0.high, c[3], number(o, k1));
        c[1] = p1.low;
        c[3] = p0.low;
        k0 = low_word(o, with(o, "Add", k0, 0x9E3779B9));
        k1 = (k1 + 0xBB67AE85) % word;
    }
}

static OnnxVal pick(OnnxNodes *o, OnnxVal condition, OnnxVal a, OnnxVal b)
{
    return onnx_op(o, "Where", DT_I64, 3, (OnnxVal[]){condition, a, b});
}

/* philox_bits(): 24 random bits. */
static OnnxVal bits(OnnxNodes *o, OnnxVal seed, int64_t key, OnnxVal step, OnnxVal index)
{
    OnnxVal group = with(o, "Div", index, 4), place = with(o, "Mod", index, 4), is[3];
    OnnxVal c[4] = {low_word(o, group), high_word(o, group), low_word(o, step), high_word(o, step)};
    OnnxVal k0 = onnx_op2(o, "BitwiseXor", low_word(o, seed), high_word(o, seed));
    rounds(o, c, k0, (key ^ key >> 32) % word);
    for (int i = 0; i < 3; i++)
        is[i] = onnx_op(o, "Equal", DT_BOOL, 2, (OnnxVal[]){place, number(o, i)});
    return with(o, "Div", pick(o, is[0], c[0], pick(o, is[1], c[1], pick(o, is[2], c[2], c[3]))), 256);
}

/* 24 random bits as a number in [0, 1) of type `real`. */
static OnnxVal unit(OnnxNodes *o, OnnxVal b, DType real)
{
    return onnx_op2(o, "Mul", onnx_cast(o, b, real), onnx_scalar(o, real, 0x1p-24));
}

OnnxVal onnx_uniform(OnnxNodes *o, OnnxVal seed, int64_t key, OnnxVal step, OnnxVal index, DType real)
{
    return unit(o, bits(o, seed, key, step, index), real);
}

OnnxVal onnx_normal(OnnxNodes *o, OnnxVal seed, int64_t key, OnnxVal step, OnnxVal index, DType real)
{
    OnnxVal twice = with(o, "Mul", index, 2), first = bits(o, seed, key, step, twice);
    OnnxVal u = unit(o, with(o, "Add", first, 1), real);
    OnnxVal v = unit(o, bits(o, seed, key, step, with(o, "Add", twice, 1)), real);
    OnnxVal radius = onnx_op2(o, "Mul", onnx_scalar(o, real, -2), onnx_op1(o, "Log", u));
    OnnxVal angle = onnx_op2(o, "Mul", onnx_scalar(o, real, 6.283185307179586), v);
    return onnx_op2(o, "Mul", onnx_op1(o, "Sqrt", radius), onnx_op1(o, "Cos", angle));
}
