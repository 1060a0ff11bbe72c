/* weights.c -- initial values of parameters and random data, from the counter-based generator with the hash
 * of the name as key.
 *
 * Xavier: X. Glorot, Y. Bengio, AISTATS 2010.  Kaiming: K. He et al., ICCV 2015.  Normal numbers:
 * G. Box, M. Muller, 1958, in double precision; one draw gives two. */
#include "weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ir/philox.h"

static int64_t name_key(const char *name)
{
    return (int64_t)XXH64(name, strlen(name), 0);
}

/* A number in (0, 1] from 53 of the random bits. */
static double unit(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

static void fill_normal(Tensor *t, int64_t key, int64_t seed, int64_t first, double deviation)
{
    int64_t end = first + type_count(&t->type);
#pragma omp parallel for schedule(static)
    for (int64_t i = first & ~1LL; i < end; i += 2) {
        PhiloxWords w = philox_draw(seed, key, 0, i / 2);
        double r = deviation * sqrt(-2 * log(unit(w.w0, w.w1)));
        double angle = 2 * M_PI * unit(w.w2, w.w3);
        if (i >= first)
            tensor_set_f(t, i - first, r * cos(angle));
        if (i + 1 < end)
            tensor_set_f(t, i + 1 - first, r * sin(angle));
    }
}

static void fill_uniform(Tensor *t, int64_t key, int64_t seed, double limit)
{
    int64_t n = type_count(&t->type);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        PhiloxWords w = philox_draw(seed, key, 0, i);
        tensor_set_f(t, i, limit * (2 * unit(w.w0, w.w1) - 1));
    }
}

static void fill_same(Tensor *t, double v)
{
    int64_t n = type_count(&t->type);
    for (int64_t i = 0; i < n; i++)
        tensor_set_f(t, i, v);
}

/* Does the last part of the name ("block.3.norm.weight") say that this is a scale? */
static bool is_scale(const char *name)
{
    static const char *const scales[] = {"weight", "scale", "gamma"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        size_t k = strlen(scales[i]);
        if (n >= k && strcmp(name + n - k, scales[i]) == 0)
            return true;
    }
    return n > 0 && name[n - 1] == 'g' && (n == 1 || strchr("./_:", name[n - 2]));
}

static bool init_deviation(const char *text, Init *init, Diag *d)
{
    char *end;
    init->deviation = strtod(text, &end);
    return (end > text && *end == '\0' && isfinite(init->deviation) && init->deviation > 0) ||
           fail(d, "--init normal:%s: expected a positive number", text);
}

bool init_parse(const char *text, Init *init, Diag *d)
{
    *init = (Init){INIT_NORMAL, 0.02};
    if (strncmp(text, "normal:", 7) == 0)
        return init_deviation(text + 7, init, d);
    if (strcmp(text, "normal") == 0)
        return true;
    init->kind = strcmp(text, "xavier") == 0 ? INIT_XAVIER : INIT_KAIMING;
    return init->kind == INIT_XAVIER || strcmp(text, "kaiming") == 0 ||
           fail(d, "--init %s: expected normal:DEVIATION, xavier or kaiming", text);
}

void init_fill(Tensor *t, const Init *init, const char *name, bool input_first, int64_t seed)
{
    const Type *type = &t->type;
    if (type->rank < 2) {
        fill_same(t, is_scale(name) ? 1 : 0);
        return;
    }
    double out = (double)type->dim[input_first], in = (double)type->dim[!input_first];
    for (int i = 2; i < type->rank; i++) {
        in *= (double)type->dim[i];
        out *= (double)type->dim[i];
    }
    int64_t key = name_key(name);
    if (init->kind == INIT_NORMAL)
        fill_normal(t, key, seed, 0, init->deviation);
    else if (init->kind == INIT_KAIMING)
        fill_normal(t, key, seed, 0, sqrt(2 / in));
    else
        fill_uniform(t, key, seed, sqrt(6 / (in + out)));
}

void random_fill(Tensor *t, const char *name, int64_t limit, int64_t seed, int64_t first)
{
    int64_t n = type_count(&t->type), key = name_key(name);
    if (dtype_is_float(t->type.dt) && limit == 0) {
        fill_normal(t, key, seed, first, 1);
        return;
    }
    uint64_t range = t->type.dt == DT_BOOL || limit == 0 ? 2 : (uint64_t)limit;
    for (int64_t i = 0; i < n; i++) {
        PhiloxWords w = philox_draw(seed, key, 0, first + i);
        int64_t drawn = (int64_t)(((uint64_t)w.w0 << 32 | w.w1) % range);
        if (dtype_is_float(t->type.dt))
            tensor_set_f(t, i, (double)drawn);
        else
            tensor_set_i(t, i, drawn);
    }
}
