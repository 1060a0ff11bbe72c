/* cuda_pool.c -- CUDA C for pools (prelude/pool.h) and for copies into zeros (pad, slice_bwd), in which a
 * thread makes 16 bytes of the result along the last dimension, or, of a pool along it, too, an element. */
#include "cuda_int.h"

enum { WIDE_BYTES = 16, MOST = INT32_MAX / 2 };

/* The number of elements of a row of n that are accessed together. */
static int64_t width_of(const Kernel *k, int64_t n)
{
    int64_t size = dtype_size[k->operand[1]], width = k->unaligned ? 1 : WIDE_BYTES / size;
    while (n % width)
        width /= 2;
    return width;
}

/* ---- pools ---------------------------------------------------------------------------------------- */

typedef enum { MAX_POOL, MAX_POOL_BWD, AVG_POOL, AVG_POOL_BWD, NO_POOL } Pool;

static Pool pool_of(const Kernel *k)
{
    static const char *const name[] = {"max_pool", "max_pool_bwd", "avg_pool", "avg_pool_bwd"};
    Pool p = MAX_POOL;
    while (p < NO_POOL && !cuda_is_body(k, name[p]))
        p++;
    return p;
}

static bool makes_data(Pool p) { return p == MAX_POOL_BWD || p == AVG_POOL_BWD; }

static int64_t planes(const Kernel *k, Pool p)
{
    return p == MAX_POOL_BWD   ? k->items / k->p[24]
           : p == AVG_POOL_BWD ? k->items / (k->p[0] * k->p[1])
                               : k->items / (k->p[3] * k->p[4]);
}

/* The extents of the side that is the result. */
static const int64_t *extents(const Kernel *k, Pool p) { return makes_data(p) ? k->p : k->p + 3; }

/* Does the window move along the last dimension?  Else it is one position there. */
static bool along_last(const Kernel *k)
{
    return k->p[8] != 1 || k->p[11] != 1 || k->p[14] != 0 || k->p[2] != k->p[5];
}

/* The number of elements of the result that a thread makes. */
static int64_t pool_width(const Kernel *k) { return along_last(k) ? 1 : width_of(k, k->p[2]); }

static int64_t threads_of(const Kernel *k, Pool p)
{
    const int64_t *extent = extents(k, p);
    return planes(k, p) * extent[0] * extent[1] * (extent[2] / pool_width(k));
}

bool cuda_is_pool(const Kernel *k)
{
    Pool p = pool_of(k);
    if (p == NO_POOL || k->items == 0)
        return false;
    for (int i = 0; i < 6; i++)
        if (k->p[i] == 0)
            return false;
    const int64_t *extent = extents(k, p);
    return planes(k, p) * extent[0] * extent[1] < MOST;
}

int pool_results(const Kernel *k) { return pool_of(k) == MAX_POOL ? 2 : 1; }

CudaLaunch pool_launch(const Kernel *k)
{
    Pool p = pool_of(k);
    return one_phase(blocks_for(threads_of(k, p), FLAT_THREADS), FLAT_THREADS);
}

void pool_prelude(Printer *pr, const Kernel *k)
{
    Pool p = pool_of(k);
    DType type = k->operand[1]; /* element type of the data */
    int64_t width = pool_width(k), data = k->p[0] * k->p[1] * k->p[2], pooled = k->p[3] * k->p[4] * k->p[5];
    bool far = planes(k, p) * (data > pooled ? data : pooled) >= MOST;
    const Writer *w = &pr->w;
    text_parameters(w, k);
    text_int(w, "POOL_KIND", p);
    text_int(w, "POOL_WIDTH", width);
    if (p == MAX_POOL || p == MAX_POOL_BWD)
        text_define(w, "POOL_PLACE", "%s", text_element(k->operand[p == MAX_POOL ? 2 : 0]));
    text_define(w, "POOL_T", "%s", text_element(type));
    text_define(w, "POOL_INDEX", far ? "int64_t" : "int");
    text_define(w, "POOL_LOAD", type == DT_BF16 && width > 1 ? "%s_of_chunk" : "LD_%s", dtype_name[type]);
    text_define(w, "POOL_STORE", "ST_%s", dtype_name[type]);
    text_define(w, "AT(of)", "%s_##of", pr->name);
    text_prelude(w->f, prelude_pool);
}

void pool_kernel(Printer *pr, const Kernel *k)
{
    Pool p = pool_of(k);
    const int64_t *extent = extents(k, p), chunks = extent[2] / pool_width(k);
    const char *read = p == MAX_POOL_BWD ? "p0, p1" : "p0", *places = p == MAX_POOL ? ", &places" : "";
    LINE("const POOL_INDEX i = (POOL_INDEX)blockIdx.x * %d + threadIdx.x;", FLAT_THREADS);
    LINE("if (i >= %" PRId64 ")", threads_of(k, p));
    LINE("    return;");
    LINE("const int x = (int)(i %% %" PRId64 "), at = (int)(i / %" PRId64 ");", chunks, chunks);
    LINE("const %s_Place place = {(int)(at / %" PRId64 " %% %" PRId64 "), (int)(at %% %" PRId64 "), x};",
         pr->name, extent[1], extent[0], extent[1]);
    LINE("const POOL_INDEX plane = at / %" PRId64 ";", extent[0] * extent[1]);
    LINE("REAL v[POOL_WIDTH] = {0};");
    if (p == MAX_POOL)
        LINE("%s_Places places;", pr->name);
    LINE("%s_make(%s, plane, place, v%s);", pr->name, read, places);
    LINE("%s_Some to;", pr->name);
    LINE("for (int e = 0; e < POOL_WIDTH; e++)");
    LINE("    POOL_STORE(to.v, e, v[e]);");
    LINE("((%s_Some *)p%d)[i] = to;", pr->name, p == MAX_POOL_BWD ? 2 : 1);
    if (p == MAX_POOL)
        LINE("((%s_Places *)p2)[i] = places;", pr->name);
}

/* ---- into zeros ----------------------------------------------------------------------------------- */

/* A dimension and its extents: element start + step * i of the result is element i of the operand. */
typedef struct {
    int64_t out, in, start, step;
} Along;

static int along_of(const Kernel *k, Along *a)
{
    bool pad = cuda_is_body(k, "pad");
    int rank = (int)k->p[0] + pad;
    for (int d = 0; d < rank; d++) {
        const int64_t *p = pad ? d < rank - 1 ? k->p + 6 + 3 * d : k->p + 3 : k->p + 1 + 4 * d;
        a[d] = pad ? (Along){p[2], p[1], p[0], 1} : (Along){p[0], p[3], p[1], p[2]};
    }
    return rank;
}

static int64_t elements(const Along *a, int rank)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= a[d].out;
    return n;
}

bool cuda_is_pad(const Kernel *k)
{
    Along a[MAX_RANK];
    bool zeros = cuda_is_body(k, "pad") && k->p[1] == 0 && k->q[0] == 0;
    if ((!zeros && !cuda_is_body(k, "slice_bwd")) || k->items == 0)
        return false;
    int rank = along_of(k, a);
    int64_t all = elements(a, rank);
    return all > 0 && all < MOST;
}

CudaLaunch pad_launch(const Kernel *k)
{
    Along a[MAX_RANK];
    int64_t last = a[along_of(k, a) - 1].out;
    return one_phase(blocks_for(k->items * (last / width_of(k, last)), FLAT_THREADS), FLAT_THREADS);
}

void pad_kernel(Printer *pr, const Kernel *k)
{
    Along a[MAX_RANK];
    int last = along_of(k, a) - 1, size = dtype_size[k->operand[0]];
    int64_t width = width_of(k, a[last].out), chunks = a[last].out / width, scale = 1;
    bool whole = a[last].in == a[last].out && a[last].start == 0 && a[last].step == 1;
    const char *type = text_element(k->operand[0]);
    LINE("const int i = (int)blockIdx.x * %d + (int)threadIdx.x;", FLAT_THREADS);
    LINE("if (i >= %" PRId64 ")", k->items * chunks);
    LINE("    return;");
    LINE("const int first = (int)(i %% %" PRId64 " * %" PRId64 ");", chunks, width);
    LINE("int row = (int)(i / %" PRId64 "), from = 0, at;", chunks);
    LINE("bool inside = true;");
    for (int d = last - 1; d >= 0; d--) {
        LINE("at = row %% (int)%" PRId64 " - (int)%" PRId64 ";", a[d].out, a[d].start);
        LINE("row /= (int)%" PRId64 ";", a[d].out);
        LINE("inside &= at %% (int)%" PRId64 " == 0 && at / (int)%" PRId64 " >= 0 && at / (int)%" PRId64
             " < (int)%" PRId64 ";",
             a[d].step, a[d].step, a[d].step, a[d].in);
        LINE("from += at / (int)%" PRId64 " * (int)%" PRId64 ";", a[d].step, scale);
        scale *= a[d].in;
    }
    LINE("ALIGNED_16 %s u[%" PRId64 "] = {0};", type, width);
    if (whole) {
        LINE("if (inside)");
        LINE("    wide_copy(u, p0 + ((int64_t)from * %" PRId64 " + first), %" PRId64 ");", a[last].in,
             width * size);
    } else {
        LINE("#pragma unroll");
        OPEN("for (int e = 0; e < %" PRId64 "; e++)", width);
        LINE("at = first + e - (int)%" PRId64 ";", a[last].start);
        LINE("if (inside && at %% (int)%" PRId64 " == 0 && at / (int)%" PRId64 " >= 0 && at / (int)%" PRId64
             " < (int)%" PRId64 ")",
             a[last].step, a[last].step, a[last].step, a[last].in);
        LINE("    u[e] = p0[(int64_t)from * %" PRId64 " + at / (int)%" PRId64 "];", a[last].in, a[last].step);
        CLOSE();
    }
    LINE("wide_copy(p1 + (int64_t)i * %" PRId64 ", u, %" PRId64 ");", width, width * size);
}
