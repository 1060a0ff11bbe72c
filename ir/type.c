/* type.c -- element types, shapes, and element access in any dtype. */
#include "ir.h"
#include <math.h>
#include <string.h>

const char *const dtype_name[DT_COUNT] = {
    [DT_NONE] = "?",  [DT_F32] = "f32", [DT_F64] = "f64", [DT_BF16] = "bf16", [DT_F16] = "f16",
    [DT_I64] = "i64", [DT_I32] = "i32", [DT_U8] = "u8",   [DT_BOOL] = "bool",
    [DT_I8] = "i8",
};
const int8_t dtype_size[DT_COUNT] = {
    [DT_F32] = 4, [DT_F64] = 8, [DT_BF16] = 2, [DT_F16] = 2,
    [DT_I64] = 8, [DT_I32] = 4, [DT_U8] = 1,   [DT_BOOL] = 1,
    [DT_I8] = 1,
};

Type type_make(DType dt, int rank, const int64_t *dim)
{
    Type t = {.dt = dt, .rank = rank};
    for (int i = 0; i < rank; i++)
        t.dim[i] = dim[i];
    return t;
}

Type type_scalar(DType dt) { return (Type){.dt = dt}; }

Type type_with(Type t, DType dt)
{
    t.dt = dt;
    return t;
}

int64_t type_count(const Type *t)
{
    int64_t c = 1;
    for (int i = 0; i < t->rank; i++)
        c *= t->dim[i];
    return c;
}

bool type_valid(const Type *t)
{
    int64_t c = 1;
    if (t->dt <= DT_NONE || t->dt >= DT_COUNT || t->rank < 0 || t->rank > MAX_RANK)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || __builtin_mul_overflow(c, t->dim[i] ? t->dim[i] : 1, &c) || c > MAX_ELEMENTS)
            return false;
    return true;
}

int64_t type_bytes(const Type *t) { return type_count(t) * dtype_size[t->dt]; }

bool type_same_shape(const Type *a, const Type *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

bool type_equal(const Type *a, const Type *b) { return a->dt == b->dt && type_same_shape(a, b); }

void type_strides(const Type *t, int64_t *stride)
{
    int64_t s = 1;
    for (int i = t->rank; i-- > 0; s *= t->dim[i])
        stride[i] = s;
}

bool type_broadcast(Type *acc, const Type *t)
{
    Type r = {.dt = acc->dt, .rank = acc->rank > t->rank ? acc->rank : t->rank};
    for (int i = 0; i < r.rank; i++) {
        int ia = i - (r.rank - acc->rank), it = i - (r.rank - t->rank);
        int64_t a = ia < 0 ? 1 : acc->dim[ia], b = it < 0 ? 1 : t->dim[it];
        if (a != b && a != 1 && b != 1)
            return false;
        r.dim[i] = a == 1 ? b : a;
    }
    *acc = r;
    return true;
}

const char *type_str(const Type *t, char buf[160])
{
    int n = snprintf(buf, 160, "%s[", dtype_name[t->dt]);
    for (int i = 0; i < t->rank; i++)
        n += snprintf(buf + n, 160 - (size_t)n, "%s%lld", i ? "," : "", (long long)t->dim[i]);
    snprintf(buf + n, 160 - (size_t)n, "]");
    return buf;
}

/* ---- 16-bit floats ---------------------------------------------------------- */

float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (isnan(f))
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff, u;
    if (e == 0) {
        float f = ldexpf((float)m, -24);
        return sign ? -f : f;
    }
    u = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    float a = fabsf(f);
    if (isnan(f))
        return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0f)
        return (uint16_t)(sign | 0x7c00);
    if (a < 6.103515625e-05f) /* subnormal: units of 2^-24, nearest even */
        return (uint16_t)(sign | (uint16_t)lrintf(a * 16777216.0f));
    memcpy(&u, &a, sizeof u);
    u += 0xfff + ((u >> 13) & 1);
    return (uint16_t)(sign | (uint16_t)((u - (112u << 23)) >> 13));
}

/* ---- elements ----------------------------------------------------------------- */

/* Weights are read where they lie in a mapped file, at any alignment. */
#define LOADER(T)                                                                            \
    static inline T load_##T(const void *data, int64_t i)                                    \
    {                                                                                        \
        T v;                                                                                 \
        memcpy(&v, (const char *)data + i * (int64_t)sizeof v, sizeof v);                    \
        return v;                                                                            \
    }
LOADER(float)
LOADER(double)
LOADER(uint16_t)
LOADER(int64_t)
LOADER(int32_t)
#define LOAD(T) load_##T(t->data, i)

double tensor_f(const Tensor *t, int64_t i)
{
    switch (t->type.dt) {
    case DT_F32: return LOAD(float);
    case DT_F64: return LOAD(double);
    case DT_BF16: return bf16_to_f32(LOAD(uint16_t));
    case DT_F16: return f16_to_f32(LOAD(uint16_t));
    default: return (double)tensor_i(t, i);
    }
}

int64_t int_of(double v)
{
    if (!(v >= -9223372036854775808.0))
        return INT64_MIN;
    return v >= 9223372036854775808.0 ? INT64_MAX : (int64_t)v;
}

int64_t tensor_i(const Tensor *t, int64_t i)
{
    switch (t->type.dt) {
    case DT_I64: return LOAD(int64_t);
    case DT_I32: return LOAD(int32_t);
    case DT_I8: return ((const int8_t *)t->data)[i];
    case DT_U8:
    case DT_BOOL: return ((const uint8_t *)t->data)[i];
    case DT_NONE:
    case DT_COUNT: return 0;
    default: return int_of(tensor_f(t, i));
    }
}

/* A float that rounds to 16 bits as v itself does: v rounded toward zero, its last bit set if v is no float
 * (Boldo and Melquiond, "When double rounding is odd", 2005). */
static float rounded_to_odd(double v)
{
    float f = (float)v;
    if ((double)f == v || isnan(v))
        return f;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u = (u - (fabs((double)f) > fabs(v))) | 1;
    memcpy(&f, &u, sizeof f);
    return f;
}

void tensor_set_f(Tensor *t, int64_t i, double v)
{
    switch (t->type.dt) {
    case DT_F32: ((float *)t->data)[i] = (float)v; break;
    case DT_F64: ((double *)t->data)[i] = v; break;
    case DT_BF16: ((uint16_t *)t->data)[i] = f32_to_bf16(rounded_to_odd(v)); break;
    case DT_F16: ((uint16_t *)t->data)[i] = f32_to_f16(rounded_to_odd(v)); break;
    case DT_BOOL: ((uint8_t *)t->data)[i] = v != 0; break;
    default: tensor_set_i(t, i, int_of(v)); break;
    }
}

void tensor_cast(const Tensor *from, Tensor *to)
{
    int64_t n = type_count(&to->type);
    DType dt = to->type.dt;
    uint16_t *half = from->type.dt == DT_F32 && dtype_is_half(dt) ? to->data : NULL;
    if (dt == from->type.dt) {
        memcpy(to->data, from->data, (size_t)type_bytes(&to->type));
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        if (half)
            half[i] = dt == DT_BF16 ? f32_to_bf16(load_float(from->data, i))
                                    : f32_to_f16(load_float(from->data, i));
        else
            tensor_set_f(to, i, tensor_f(from, i));
}

void tensor_set_i(Tensor *t, int64_t i, int64_t v)
{
    switch (t->type.dt) {
    case DT_I64: ((int64_t *)t->data)[i] = v; break;
    case DT_I32: ((int32_t *)t->data)[i] = (int32_t)(uint32_t)(uint64_t)v; break;
    case DT_U8:
    case DT_I8: ((uint8_t *)t->data)[i] = (uint8_t)(uint64_t)v; break;
    case DT_BOOL: ((uint8_t *)t->data)[i] = v != 0; break;
    case DT_NONE:
    case DT_COUNT: break;
    default: tensor_set_f(t, i, (double)v); break;
    }
}

Tensor tensor_transposed(const Tensor *t, Arena *a)
{
    enum { TILE = 32 };
    int64_t rows = t->type.dim[1], columns = t->type.dim[0];
    size_t size = (size_t)dtype_size[t->type.dt];
    Tensor r = {type_make(t->type.dt, 2, (int64_t[]){rows, columns}),
                arena_alloc(a, (size_t)type_bytes(&t->type) + 1, 1)};
    for (int64_t top = 0; top < rows; top += TILE)
        for (int64_t left = 0; left < columns; left += TILE)
            for (int64_t i = top; i < rows && i < top + TILE; i++)
                for (int64_t k = left; k < columns && k < left + TILE; k++)
                    memcpy((char *)r.data + (size_t)(i * columns + k) * size,
                           (const char *)t->data + (size_t)(k * rows + i) * size, size);
    return r;
}

/* Does `to` have the dimensions of `slice`, but others where that has extent 1? */
static bool expands_to(const Type *slice, const Type *to)
{
    bool fits = slice->rank == to->rank && slice->dt == to->dt;
    for (int i = 0; i < slice->rank && fits; i++)
        fits = slice->dim[i] == to->dim[i] || slice->dim[i] == 1;
    return fits;
}

/* Where element i of a tensor lies in one of other extents: along dimensions of extent 1 at 0. */
static int64_t element_in(const Type *other, const Type *of, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int axis = of->rank - 1; axis >= 0; axis--) {
        at += other->dim[axis] == 1 ? 0 : i % of->dim[axis] * stride;
        stride *= other->dim[axis];
        i /= of->dim[axis];
    }
    return at;
}

static void copy_elements(const Tensor *from, Tensor *to)
{
    size_t size = (size_t)dtype_size[to->type.dt];
    int64_t n = type_count(&to->type);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to->data + (size_t)i * size,
               (const char *)from->data + (size_t)element_in(&from->type, &to->type, i) * size, size);
}

bool tensor_slice(const Tensor *t, const Type *slice, Arena *a, Tensor *first)
{
    int64_t n = type_count(&t->type), last = type_count(slice) - 1;
    size_t size = (size_t)dtype_size[slice->dt];
    if (!expands_to(slice, &t->type) || n == 0)
        return false;
    *first = (Tensor){*slice, t->data};
    if (element_in(&t->type, slice, last) != last) { /* its elements do not lie together */
        first->data = arena_alloc(a, (size_t)type_bytes(slice), 1);
        copy_elements(t, first);
    }
    bool equal = true;
    for (int64_t i = 0; i < n && equal; i++)
        equal = memcmp((const char *)t->data + (size_t)i * size,
                       (const char *)first->data + (size_t)element_in(slice, &t->type, i) * size, size) == 0;
    return equal;
}

bool tensor_expand(const Tensor *t, const Type *to, Arena *a, Tensor *all)
{
    if (!expands_to(&t->type, to))
        return false;
    *all = (Tensor){*to, arena_alloc(a, (size_t)type_bytes(to) + 1, 1)};
    copy_elements(t, all);
    return true;
}
