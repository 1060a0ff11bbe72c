/* device.c -- devices from text, and the one roofline. */
#include "device.h"
#include "attention_kernel.h"
#include "gemm.h"
#include "file.h"
#include "lex.h"
#include "plan.h"
#include <math.h>
#include <string.h>

const char *const unit_name[UNIT_COUNT] = {
    "vector", "matrix", "attention", "attention_grad", "wgmma_attention", "wgmma_attention_grad",
    "convolution"};

/* Two cores with AVX-512, measured: in-cache rates are higher, cold ones lower. */
#define EVERY_TYPE(rate) {0, rate, rate, rate, rate, rate, rate, rate, rate}
const DeviceInfo device_cpu = {
    .name = "cpu",
    .title = "this machine",
    .align = ARENA_ALIGN,
    .flops = {EVERY_TYPE(250), EVERY_TYPE(250)},
    .compute_efficiency = 1,
    .memory_bandwidth = 20,
    .memory_efficiency = 1,
    .launch_ns = 1000,
    .head_bytes = 32 << 20, /* smaller results stay in caches */
    .head_rows = 256,
    .update_bytes = 4 << 20,
    .factor_bytes = 1 << 20,
};

/* ---- roofline ------------------------------------------------------------------------------- */

static Unit attention_unit(const DeviceInfo *d, const Kernel *k)
{
    bool grad = k->p[P_PHASE] != PHASE_FORWARD;
    Unit wgmma = grad ? UNIT_WGMMA_ATTENTION_GRAD : UNIT_WGMMA_ATTENTION;
    if (k->wgmma && d->flops[wgmma][k->operand[0]] > 0)
        return wgmma;
    return grad ? UNIT_ATTENTION_GRAD : UNIT_ATTENTION;
}

/* The unit that a kernel runs on; a convolution that is a matrix product counts as one. */
static Unit unit_of(const DeviceInfo *d, const Kernel *k, const LibDesc *lib)
{
    if (k->native == NATIVE_ATTENTION)
        return attention_unit(d, k);
    if (k->lib == LIB_CONV || k->lib == LIB_CONV_BWD_DATA || k->lib == LIB_CONV_BWD_WEIGHTS)
        return gemm_describe(&(Gemms){0}, lib) ? UNIT_MATRIX : UNIT_CONVOLUTION;
    return k->lib == LIB_NONE || k->lib == LIB_COPY ? UNIT_VECTOR : UNIT_MATRIX;
}

/* Operations per ns, for the type of the factors; pointwise arithmetic is in f32, or f64 (kernel.h). */
static double rate_of(const DeviceInfo *d, const Kernel *k, const LibDesc *lib)
{
    Unit unit = unit_of(d, k, lib);
    DType dt = DT_F32;
    for (int i = 0; i < k->noperands && unit == UNIT_VECTOR; i++)
        dt = k->operand[i] == DT_F64 ? DT_F64 : dt;
    if (unit != UNIT_VECTOR && k->noperands > 0)
        dt = k->operand[0];
    if (unit > UNIT_MATRIX && d->flops[unit][dt] > 0)
        return d->flops[unit][dt];
    double rate = d->flops[unit == UNIT_VECTOR ? UNIT_VECTOR : UNIT_MATRIX][dt];
    if (unit == UNIT_MATRIX && k->tf32 && dt == DT_F32 && d->tf32 > 0)
        rate = d->tf32;
    rate = rate > 0 ? rate : d->flops[UNIT_VECTOR][dt];
    return (rate > 0 ? rate : d->flops[UNIT_VECTOR][DT_F32]) * d->compute_efficiency;
}

/* Upper limit of a command's time, 37 minutes: more says nothing, and sums could overflow. */
static const double NS_MOST = 0x1p41;

/* The share of its threads that a device can have busy with a kernel: each thread makes its operations one
 * after the other, so that fewer threads have less of the rate. */
static double occupancy(const DeviceInfo *d, const Kernel *k)
{
    double most = (double)d->processors * (double)d->threads;
    return k->threads > 0 && (double)k->threads < most ? (double)k->threads / most : 1;
}

static double kernel_ns(const DeviceInfo *d, const Kernel *k, const LibDesc *lib)
{
    double points = k->nins;
    for (int i = 0; i < k->rank; i++)
        points *= (double)k->extent[i];
    double flops = k->flops > 0 ? k->flops : k->body ? (double)k->items * 8 : points;
    return flops / (rate_of(d, k, lib) * occupancy(d, k));
}

/* Is the value of operand i that of an operand before it? */
static bool seen_before(const Command *c, int i)
{
    int k = 0;
    while (k < i && c->vals[k].i != c->vals[i].i)
        k++;
    return k < i;
}

/* Bytes that stages of a loop write and read in its buffers, if these are larger than the cache; else 0. */
static double handed_on(const DeviceInfo *d, const Command *c)
{
    int64_t bytes = c->loop && d->cache > 0 ? command_workspace_bytes(c) : 0;
    return bytes > d->cache ? 2 * (double)bytes * (double)command_blocks(c) : 0;
}

/* Bytes that a reduction of columns reads again, of operands that are larger than the cache. */
static double read_again(const DeviceInfo *d, const Command *c)
{
    const Kernel *k = &c->k;
    int inner = k->rank - 1;
    while (inner > 0 && k->extent[inner] == 1)
        inner--;
    if (c->loop || k->body || k->lib || !k->red || k->red >> inner & 1 || d->cache <= 0)
        return 0;
    Arena a = {0};
    double bytes = 0;
    const int *readings = kernel_readings(k, &a);
    for (int i = 0; i < c->nread + c->nwrite; i++) {
        int again = i < c->nread && readings[i] ? readings[i] - 1 : readings[i];
        int64_t all = again > 0 ? type_bytes(val_type(c->g, c->vals[i])) : 0;
        bytes += all > d->cache ? (double)all * again : 0;
    }
    arena_free(&a);
    return bytes;
}

/* Bytes of operand i's value that the command reads or writes: of what is sliced or gathered, these parts. */
static double touched(const Command *c, int i)
{
    const Kernel *k = &c->k;
    int64_t all = type_bytes(val_type(c->g, c->vals[i])), bytes = 0;
    if (c->loop || k->body || k->lib)
        return (double)(i == 0 && k->gathers > 0 && k->gathers < all ? k->gathers : all);
    for (uint32_t j = 0; j < k->nins && bytes < all; j++) {
        const KInst *in = &k->ins[j];
        int64_t part = in->kind == K_LOAD || in->kind == K_STORE ? dtype_size[k->operand[in->operand]] : 0;
        if (!part || c->vals[in->operand].i != c->vals[i].i)
            continue;
        for (uint32_t b = 0; b < j; b++)
            if (k->ins[b].kind == in->kind && k->ins[b].operand == in->operand &&
                kernel_same_map(k, &k->ins[b], in))
                part = 0;
        for (int d = 0; d < k->rank; d++)
            part *= in->stride[d] ? k->extent[d] : 1;
        bytes += part;
    }
    return (double)(bytes < all ? bytes : all);
}

/* ns to move the operands of a command; where no link is known the host's memory counts as the device's. */
static double move_ns(const DeviceInfo *d, const Command *c)
{
    double all = handed_on(d, c) + read_again(d, c), host = 0;
    for (int i = 0; i < c->nread + c->nwrite; i++)
        if (c->vals[i].i && !seen_before(c, i)) {
            double bytes = touched(c, i);
            all += bytes;
            host += val_space(c->g, c->vals[i]) == SPACE_HOST ? bytes : 0;
        }
    double ns = all / (d->memory_bandwidth * d->memory_efficiency);
    return d->host_link > 0 ? fmax(ns, host / d->host_link) : ns;
}

double device_ns(const DeviceInfo *d, const Command *c)
{
    double compute = c->loop ? 0 : kernel_ns(d, &c->k, c->lib);
    double launches = (double)command_launch_count(c, command_blocks(c));
    for (int i = 0; c->loop && i < c->loop->nstage; i++)
        compute += kernel_ns(d, &c->loop->stage[i].k, c->loop->stage[i].lib);
    return fmin(fmax(move_ns(d, c), compute), NS_MOST) + launches * d->launch_ns;
}

/* ---- text ----------------------------------------------------------------------------------- */

typedef enum { BYTES, BANDWIDTH, RATE, TIME, SHARE, COUNT } Quantity;

typedef struct {
    const char *name;
    double factor;
} UnitName;

static const UnitName units[][9] = {
    [BYTES] = {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 0x1p10},
               {"MiB", 0x1p20}, {"GiB", 0x1p30}},
    [BANDWIDTH] = {{"GB/s", 1}, {"TB/s", 1e3}},
    [RATE] = {{"GFLOP/s", 1}, {"TFLOP/s", 1e3}, {"PFLOP/s", 1e6}},
    [TIME] = {{"ns", 1}, {"us", 1e3}},
    [SHARE] = {{"%", 0.01}},
    [COUNT] = {{"", 1}},
};
static const char *const unit_wanted[] = {"B, kB, MB, GB, TB, KiB, MiB or GiB", "GB/s or TB/s",
                                          "GFLOP/s, TFLOP/s or PFLOP/s", "ns or us", "%", ""};
static const double least[] = {1, 1e-3, 1e-3, 1e-3, 1e-3, 1}, most[] = {0x1p60, 1e9, 1e12, 1e9, 1, 1e9};

typedef struct {
    const char *key;
    Quantity quantity;
    size_t off;
    bool whole; /* int64_t, not double */
} Property;

#define REAL_OF(key, quantity) {#key, quantity, offsetof(DeviceInfo, key), false}
#define WHOLE_OF(key, quantity) {#key, quantity, offsetof(DeviceInfo, key), true}
static const Property properties[] = {
    WHOLE_OF(memory, BYTES),
    WHOLE_OF(reserved, BYTES),
    WHOLE_OF(align, BYTES),
    REAL_OF(compute_efficiency, SHARE),
    REAL_OF(memory_bandwidth, BANDWIDTH),
    REAL_OF(memory_efficiency, SHARE),
    WHOLE_OF(cache, BYTES),
    REAL_OF(cache_bandwidth, BANDWIDTH),
    REAL_OF(host_link, BANDWIDTH),
    REAL_OF(network, BANDWIDTH),
    {"launch", TIME, offsetof(DeviceInfo, launch_ns), false},
    WHOLE_OF(processors, COUNT),
    WHOLE_OF(threads, COUNT),
    WHOLE_OF(shared_memory, BYTES),
    WHOLE_OF(capability, COUNT),
    WHOLE_OF(epilogues, COUNT),
    WHOLE_OF(panel_columns, COUNT),
    WHOLE_OF(head_bytes, BYTES),
    WHOLE_OF(head_rows, COUNT),
    WHOLE_OF(update_bytes, BYTES),
    WHOLE_OF(factor_bytes, BYTES),
};
enum { NPROPERTIES = sizeof properties / sizeof *properties };

/* "4.8 TB/s" */
static bool quantity(Lex *l, const char *key, Quantity q, double *v)
{
    TRY(lex_number(l, v));
    const char *end = l->s;
    const UnitName *u = units[q];
    while (u->name && !lex_accept(l, u->name))
        u++;
    if (!u->name) {
        l->s = end; /* the line of the number, not of what follows */
        return lex_bad(l, unit_wanted[q]);
    }
    *v *= u->factor;
    return (*v >= least[q] && *v <= most[q]) || fail(l->d, "line %d: %s is out of range", lex_line(l), key);
}

static bool twice(const Lex *l, const char *key)
{
    return fail(l->d, "line %d: %s is given twice", lex_line(l), key);
}

static bool rate(Lex *l, DeviceInfo *d, Unit unit)
{
    DType dt = DT_F32;
    if (unit == UNIT_MATRIX && lex_accept(l, "tf32"))
        return d->tf32 > 0 ? twice(l, "tf32") : quantity(l, unit_name[unit], RATE, &d->tf32);
    while (dt < DT_COUNT && !(dtype_is_float(dt) && lex_accept(l, dtype_name[dt])))
        dt++;
    if (dt == DT_COUNT)
        return lex_bad(l, "f32, f64, bf16 or f16");
    double *at = &d->flops[unit][dt];
    return *at > 0 ? twice(l, dtype_name[dt]) : quantity(l, unit_name[unit], RATE, at);
}

static bool property(Lex *l, DeviceInfo *d, const Property *p)
{
    void *at = (char *)d + p->off;
    double v = 0;
    if (p->whole ? *(int64_t *)at > 0 : *(double *)at > 0)
        return twice(l, p->key);
    TRY(quantity(l, p->key, p->quantity, &v));
    if (p->whole)
        *(int64_t *)at = (int64_t)v;
    else
        *(double *)at = v;
    return true;
}

static bool statement(Lex *l, DeviceInfo *d)
{
    for (int u = 0; u < UNIT_COUNT; u++)
        if (lex_accept(l, unit_name[u]))
            return rate(l, d, (Unit)u);
    for (const Property *p = properties; p < properties + NPROPERTIES; p++)
        if (lex_accept(l, p->key))
            return property(l, d, p);
    return lex_bad(l, "vector, matrix or another property of a device (ir/device.h)");
}

static bool complete(const DeviceInfo *d, Diag *diag)
{
    const char *missing = d->memory <= 0                       ? "memory"
                          : d->memory_bandwidth <= 0           ? "memory_bandwidth"
                          : d->launch_ns <= 0                  ? "launch"
                          : d->flops[UNIT_VECTOR][DT_F32] <= 0 ? "vector f32"
                                                               : NULL;
    if (missing)
        return fail(diag, "%s is missing", missing);
    if (d->reserved >= d->memory)
        return fail(diag, "more is reserved than there is memory");
    if (d->align && (d->align & (d->align - 1) || d->align < ARENA_ALIGN || d->align > PLAN_ALIGN))
        return fail(diag, "align is no power of 2 from %d B to %d B", ARENA_ALIGN, PLAN_ALIGN);
    return strcmp(d->name, device_cpu.name) != 0 || fail(diag, "'%s' is this machine", d->name);
}

static void or_else(int64_t *v, int64_t otherwise) { *v = *v > 0 ? *v : otherwise; }

/* Sets what the text leaves open.  Splitting costs launches and makes products smaller, which fill a
 * large device less; what is below a thousandth of the memory hardly decides a peak.  A block of
 * logits has 6 k n operations a row, k n weights are read twice and their gradient is read and
 * written: with 20 rows for each operation per byte, that takes about a twentieth of a block's time. */
static void fill(DeviceInfo *d)
{
    enum { PART = 1024, ROWS = 20, ROW_UNIT = 256 };
    d->compute_efficiency = d->compute_efficiency > 0 ? d->compute_efficiency : 1;
    d->memory_efficiency = d->memory_efficiency > 0 ? d->memory_efficiency : 1;
    double best = d->flops[UNIT_VECTOR][DT_F32];
    for (int dt = DT_F32; dt <= DT_F16; dt++)
        best = fmax(best, d->flops[UNIT_MATRIX][dt]);
    double ridge = best * d->compute_efficiency / (d->memory_bandwidth * d->memory_efficiency);
    int64_t part = d->memory / PART > 1 ? d->memory / PART : 1;
    or_else(&d->align, ARENA_ALIGN);
    or_else(&d->head_bytes, part);
    or_else(&d->update_bytes, part);
    or_else(&d->factor_bytes, part);
    or_else(&d->head_rows, (int64_t)ceil(fmin(ROWS * ridge, 1e9) / ROW_UNIT) * ROW_UNIT);
}

bool device_parse(DeviceInfo *d, const char *text, Arena *a, Diag *diag)
{
    Lex l = {text, text, a, diag, true};
    *d = (DeviceInfo){0};
    TRY(lex_expect(&l, "device") && lex_ident(&l, &d->name) && lex_string(&l, &d->title));
    while (lex_skip(&l), *l.s)
        TRY(statement(&l, d));
    TRY(complete(d, diag));
    fill(d);
    return true;
}

/* ---- finding a device ----------------------------------------------------------------------- */

static bool no_device(const char *name, Diag *diag)
{
    char hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, name);
    for (const DeviceText *t = device_texts; t->name; t++)
        nearest_try(&near, t->name);
    return fail(diag, "'%s' is no device that is known (see ckc devices), nor a file%s", name,
                nearest_hint(&near, hint));
}

bool device_find(DeviceInfo *d, const char *name_or_path, Arena *a, Diag *diag)
{
    enum { MOST = 1 << 20 };
    FileMap m;
    Diag why = {0};
    for (const DeviceText *t = device_texts; t->name; t++)
        if (strcmp(t->name, name_or_path) == 0)
            return device_parse(d, t->text, a, diag);
    if (!file_map(&m, name_or_path, &why))
        return strchr(name_or_path, '/') ? fail(diag, "%s", why.msg) : no_device(name_or_path, diag);
    size_t n = m.size < MOST ? m.size : MOST;
    const char *text = arena_strndup(a, n ? (const char *)m.data : "", n);
    file_unmap(&m);
    return device_parse(d, text, a, &why) || fail(diag, "%s: %s", name_or_path, why.msg);
}
