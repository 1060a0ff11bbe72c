/* cuda_gather.c -- CUDA C for bodies that gather rows, and for those that add rows by index: rows are moved
 * 16 bytes at a time, and sums are made in phases from a sorted list (prelude/gather.h). */
#include "cuda_int.h"

enum { WIDE_BYTES = 16, PIECE = 32, WARPS = 8, MOST_OWN = 4096, SUM_THREADS = 32, LEAST_BYTES = 250000,
       BLOCK_BYTES = 7500 };

/* The kernel's parameters, named as in gather.c. */
typedef struct {
    int64_t inner, rows, count, outer;
} Shape;

static Shape shape_of(const Kernel *k, int64_t items_per_outer)
{
    return (Shape){k->p[0], k->p[1], k->p[2], items_per_outer ? k->items / items_per_outer : 0};
}

static bool fits(const Shape *s)
{
    int64_t most = INT32_MAX / 4;
    return s->inner > 0 && s->rows > 0 && s->count > 0 && s->outer > 0 && s->rows < most && s->count < most;
}

/* Bytes per access along rows of n elements of the result. */
static int access_bytes(const Kernel *k, int64_t n)
{
    int size = dtype_size[k->operand[2]], bytes = WIDE_BYTES;
    if (k->unaligned)
        return size;
    while (n * size % bytes)
        bytes /= 2;
    return bytes;
}

/* ---- rows by index ------------------------------------------------------------------------------ */

bool cuda_is_gather(const Kernel *k)
{
    Shape s = {0};
    if (cuda_is_body(k, "gather"))
        s = shape_of(k, k->p[2] * k->p[3]);
    return fits(&s) && k->operand[0] == k->operand[2];
}

static int64_t accesses(const Kernel *k, const Shape *s)
{
    return s->outer * s->count * s->inner * dtype_size[k->operand[0]] / access_bytes(k, s->inner);
}

CudaLaunch gather_launch(const Kernel *k)
{
    Shape s = shape_of(k, k->p[2] * k->p[3]);
    return one_phase(blocks_for(accesses(k, &s), FLAT_THREADS), FLAT_THREADS);
}

void gather_kernel(Printer *pr, const Kernel *k)
{
    Shape s = shape_of(k, k->p[2] * k->p[3]);
    int bytes = access_bytes(k, s.inner);
    int64_t along = s.inner * dtype_size[k->operand[0]] / bytes;
    LINE("const int64_t q = (int64_t)blockIdx.x * %d + threadIdx.x;", FLAT_THREADS);
    LINE("if (q >= %" PRId64 ")", accesses(k, &s));
    LINE("    return;");
    LINE("const int64_t at = q / %" PRId64 ", v = q %% %" PRId64 ";", along, along);
    LINE("int64_t row = LD_%s(p1, at %% %" PRId64 ");", dtype_name[k->operand[1]], s.count);
    LINE("row += row < 0 ? %" PRId64 " : 0;", s.rows);
    LINE("ALIGNED_16 int64_t u[2] = {0, 0};");
    LINE("if (row >= 0 && row < %" PRId64 ")", s.rows);
    LINE("    wide_copy(u, (const char *)p0 + ((at / %" PRId64 " * %" PRId64 " + row) * %" PRId64
         " + v) * %d, %d);", s.count, s.rows, along, bytes, bytes);
    LINE("wide_copy((char *)p2 + q * %d, u, %d);", bytes, bytes);
}

/* ---- sums by index ------------------------------------------------------------------------------ */

static int64_t bytes_of(const Kernel *k, const Shape *s)
{
    return (s->rows + s->count) * s->inner * s->outer * dtype_size[k->operand[2]];
}

bool cuda_is_gather_sum(const Kernel *k)
{
    Shape s = {0};
    if (cuda_is_body(k, "gather_bwd"))
        s = shape_of(k, k->p[3] * k->p[4]);
    return fits(&s) && k->operand[2] == dtype_sum(k->operand[0]) && bytes_of(k, &s) >= LEAST_BYTES;
}

/* Rows of the table that a block owns. */
static int64_t own_rows(const Kernel *k, const Shape *s)
{
    int64_t blocks = bytes_of(k, s) / BLOCK_BYTES, n = ceil_div(s->rows, blocks < BLOCKS ? blocks : BLOCKS);
    return n < MOST_OWN ? n : MOST_OWN;
}

/* Bytes that an array of n elements takes in the workspace. */
static int64_t room(int64_t n, int64_t size) { return align_up(n * size, CUDA_WORKSPACE_ALIGN); }

static int64_t found_room(const Kernel *k, const Shape *s)
{
    return room(ceil_div(s->rows, own_rows(k, s)) * WARPS + 1, 4);
}

CudaLaunch gather_sum_launch(const Kernel *k)
{
    Shape s = shape_of(k, k->p[3] * k->p[4]);
    int64_t size = dtype_size[k->operand[2]], pieces = ceil_div(s.count, PIECE);
    int64_t threads = s.outer * pieces * s.inner * size / access_bytes(k, s.inner);
    unsigned blocks = (unsigned)ceil_div(s.rows, own_rows(k, &s)), sums = blocks_for(threads, SUM_THREADS);
    CudaLaunch l = {.phase = {{blocks, FLAT_THREADS, 0}, {blocks, FLAT_THREADS, 0}, {sums, SUM_THREADS, 0},
                              {sums, SUM_THREADS, 0}},
                    .n = 4};
    l.workspace = found_room(k, &s) + 4 * room(s.count, 4) + room(s.outer * pieces * 2 * s.inner, size);
    return l;
}

void gather_sum_kernel(Printer *pr, const Kernel *k)
{
    Shape s = shape_of(k, k->p[3] * k->p[4]);
    int64_t own = own_rows(k, &s), list = room(s.count, 4), at = found_room(k, &s);
    int size = dtype_size[k->operand[2]], bytes = access_bytes(k, s.inner), width = bytes / size, digits = 0;
    const char *type = text_element(k->operand[2]);
    for (int64_t n = own - 1; n > 0; n /= 16)
        digits++;
    LINE("const Gather g = {p1, %d, %" PRId64 ", %" PRId64 ", %" PRId64 ", %d, %" PRId64 ", %" PRId64
         ", %" PRId64 ",", dtype_size[k->operand[1]], s.count, s.rows, own, digits, ceil_div(s.rows, own),
         s.outer, s.inner / width);
    LINE("    (int *)workspace, (int *)(workspace + %" PRId64 "), (int *)(workspace + %" PRId64 "),", at,
         at + list);
    LINE("    (int *)(workspace + %" PRId64 "), (int *)(workspace + %" PRId64 ")};", at + 2 * list,
         at + 3 * list);
    LINE("%s *const partial = (%s *)(workspace + %" PRId64 ");", type, type, at + 4 * list);
    LINE("(void)partial;");
    switch (pr->phase) {
    case 0: LINE("gather_count(&g);"); break;
    case 1: LINE("gather_lists(&g, p2, %d);", bytes); break;
    case 2:
        LINE("gather_sum_%s%d(&g, p0, p2, partial);", dtype_name[k->operand[0]], width);
        break;
    default: LINE("gather_join_%s%d(&g, p2, partial);", type, width); break;
    }
}
