/* cuda_scan.c -- CUDA C for cumulative sums (prelude/scan.h): blocks have parts of neighbouring lines. */
#include "cuda_int.h"

enum {
    THREADS = FLAT_THREADS,
    WIDE_BYTES = 16,
    LEAST_WIDTH = 4,
    MOST_WIDTH = 8,
    LEAST_TILES = 4,
    PARTS = 4 * BLOCKS
};

/* How threads share the lines; parameters as in ir/ops/scan.c. */
typedef struct {
    int64_t extent, inner, outer;
    int64_t width, lanes, span; /* elements of a thread; lines side by side; threads of those */
    int64_t parts, part;        /* parts of a line; elements of one */
    int64_t blocks;             /* of each part */
} Shape;

static Shape shape_of(const Kernel *k)
{
    Shape s = {.extent = k->p[0], .inner = k->p[1], .outer = k->items / k->p[2]};
    const int64_t width = WIDE_BYTES / dtype_size[k->operand[0]];
    s.width = width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
    s.lanes = next_power_of_2(s.inner, WARP);
    const int64_t rows = next_power_of_2(ceil_div(s.extent, s.width), THREADS / s.lanes);
    const int64_t tile = rows * s.width;
    s.span = rows * s.lanes;
    s.blocks = ceil_div(s.outer * ceil_div(s.inner, s.lanes), THREADS / s.span);
    const int64_t tiles = ceil_div(s.extent, tile), most = s.blocks < BLOCKS ? PARTS / s.blocks : 1;
    s.part = tiles <= LEAST_TILES || most <= 1 ? s.extent : ceil_div(tiles, most) * tile;
    s.parts = ceil_div(s.extent, s.part);
    return s;
}

static bool is_float(const Kernel *k) { return cuda_is_body(k, "cumsum"); }

bool cuda_is_scan(const Kernel *k)
{
    if ((!is_float(k) && !cuda_is_body(k, "cumsum_int")) || k->items == 0 || k->p[0] == 0)
        return false;
    const Shape s = shape_of(k);
    return s.blocks < INT32_MAX / s.parts;
}

/* The type of sums. */
static DType sum_type(const Kernel *k) { return is_float(k) ? dtype_sum(k->operand[0]) : DT_I64; }

CudaLaunch scan_launch(const Kernel *k)
{
    const Shape s = shape_of(k);
    CudaLaunch l = one_phase((unsigned)(s.blocks * s.parts), THREADS);
    if (s.parts > 1) {
        l.phase[l.n++] = l.phase[0];
        l.workspace = (s.parts - 1) * s.outer * s.inner * dtype_size[sum_type(k)];
    }
    return l;
}

void scan_prelude(Printer *pr, const Kernel *k)
{
    const Shape s = shape_of(k);
    const Writer *w = &pr->w;
    const char *type = dtype_name[k->operand[0]];
    text_parameters(w, k);
    text_define(w, "SCAN_T", "%s", text_element(sum_type(k)));
    text_define(w, "SCAN_ELEMENT", "%s", text_element(k->operand[0]));
    text_define(w, "SCAN_LOAD", "LD_%s", type);
    text_define(w, "SCAN_STORE", "ST_%s", type);
    text_define(w, "SCAN_ADD(a, b)",
                is_float(k) ? "((a) + (b))" : "((int64_t)((uint64_t)(a) + (uint64_t)(b)))");
    text_int(w, "SCAN_THREADS", THREADS);
    text_int(w, "SCAN_WIDTH", s.width);
    text_int(w, "SCAN_LANES", s.lanes);
    text_int(w, "SCAN_SPAN", s.span);
    text_int(w, "SCAN_WIDE", s.inner == 1 && s.extent % s.width == 0 && !k->unaligned);
    text_int(w, "SCAN_PARTS", s.parts);
    text_integer(w, "SCAN_PART", s.part);
    text_integer(w, "SCAN_OUTER", s.outer);
    text_integer(w, "SCAN_LINES", s.outer * s.inner);
    text_define(w, "AT(of)", "%s_##of", pr->name);
    text_prelude(w->f, prelude_scan);
}

void scan_kernel(Printer *pr, const Kernel *k)
{
    const char *type = text_element(sum_type(k)), *sums = pr->launches.workspace ? "workspace" : "0";
    LINE("__shared__ %s part[%d];", type, THREADS);
    if (pr->phase + 1 < pr->launches.n)
        LINE("%s_parts(p0, (%s *)%s, part);", pr->name, type, sums);
    else
        LINE("%s_scan(p0, p1, (const %s *)%s, part);", pr->name, type, sums);
}
