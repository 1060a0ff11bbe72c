/* cuda_gather.c -- CUDA C for bodies that gather rows, and for those that add rows by index, or combine them
 * in other ways: rows are moved 16 bytes at a time, and sums are made in phases from a sorted list
 * (prelude/gather.h, gather_sum.h). */
#include "cuda_int.h"

enum {
    WIDE_BYTES = 16,
    PIECE = 32,
    WARPS = 8,
    MOST_OWN = 4096,
    SUM_THREADS = 32,
    MOST_TUPLE = 8,
    LEAST_BYTES = 250000,
    BLOCK_BYTES = 7500
};

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
static int access_bytes(const Kernel *k, int result, int64_t n)
{
    int size = dtype_size[k->operand[result]], bytes = WIDE_BYTES;
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
    return s->outer * s->count * s->inner * dtype_size[k->operand[0]] / access_bytes(k, 2, s->inner);
}

CudaLaunch gather_launch(const Kernel *k)
{
    Shape s = shape_of(k, k->p[2] * k->p[3]);
    return one_phase(blocks_for(accesses(k, &s), FLAT_THREADS), FLAT_THREADS);
}

void gather_kernel(Printer *pr, const Kernel *k)
{
    Shape s = shape_of(k, k->p[2] * k->p[3]);
    int bytes = access_bytes(k, 2, s.inner);
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

/* Rows that are combined by index: the gradient of a gather, and scatter_nd. */
typedef struct {
    Shape s;                           /* rows and tuples of all batches */
    int64_t batch, tuple;              /* tuples of a batch; indices of a tuple */
    const int64_t *extent;             /* that they count to */
    int64_t how;                       /* SCATTER_ADD and so on */
    int start, index, updates, result; /* operands; start -1: zeros */
} Sums;

static Sums sums_of(const Kernel *k)
{
    if (cuda_is_body(k, "gather_bwd"))
        return (Sums){shape_of(k, k->p[3] * k->p[4]), k->p[2], 1, k->p + 1, SCATTER_ADD, -1, 1, 0, 2};
    const int64_t batches = k->p[3] && k->p[5] ? k->items / (k->p[3] * k->p[5]) : 0;
    const Shape s = {k->p[0], batches * k->p[1], batches * k->p[2], batches ? 1 : 0};
    return (Sums){s, k->p[2], k->p[4], k->p + 16, k->p[8], 0, 1, 2, 3};
}

/* The type in which rows are combined; what is written as it is, by its size. */
static DType type_of(const Kernel *k, const Sums *x)
{
    static const DType by_size[] = {[1] = DT_U8, [2] = DT_BF16, [4] = DT_F32, [8] = DT_F64};
    const DType type = k->operand[x->result];
    return x->how == SCATTER_SET ? by_size[dtype_size[type]] : type;
}

static int64_t bytes_of(const Kernel *k, const Sums *x)
{
    return (x->s.rows + x->s.count) * x->s.inner * x->s.outer * dtype_size[k->operand[x->result]];
}

/* Else each column looks at all indices, which takes less than the four launches. */
static bool has_much(const Kernel *k, const Sums *x)
{
    enum { LEAST_INDICES = 512 };
    return x->s.count >= LEAST_INDICES || bytes_of(k, x) >= LEAST_BYTES;
}

bool cuda_is_gather_sum(const Kernel *k)
{
    const bool scatters = cuda_is_body(k, "scatter_nd");
    if (!scatters && !cuda_is_body(k, "gather_bwd"))
        return false;
    const Sums x = sums_of(k);
    const DType type = k->operand[x.result];
    return fits(&x.s) && x.tuple > 0 && x.tuple <= MOST_TUPLE && has_much(k, &x) &&
           (scatters ? type == DT_F32 || type == DT_F64 || x.how == SCATTER_SET
                     : type == dtype_sum(k->operand[x.updates]));
}

/* Rows of the table that a block owns. */
static int64_t own_rows(const Kernel *k, const Sums *x)
{
    int64_t blocks = bytes_of(k, x) / BLOCK_BYTES + 1;
    int64_t n = ceil_div(x->s.rows, blocks < BLOCKS ? blocks : BLOCKS);
    return n < MOST_OWN ? n : MOST_OWN;
}

/* Bytes that an array of n elements takes in the workspace. */
static int64_t room(int64_t n, int64_t size) { return align_up(n * size, CUDA_WORKSPACE_ALIGN); }

static int64_t found_room(const Kernel *k, const Sums *x)
{
    return room(ceil_div(x->s.rows, own_rows(k, x)) * WARPS + 1, 4);
}

CudaLaunch gather_sum_launch(const Kernel *k)
{
    const Sums x = sums_of(k);
    const Shape *s = &x.s;
    int64_t size = dtype_size[k->operand[x.result]], pieces = ceil_div(s->count, PIECE);
    int64_t threads = s->outer * pieces * s->inner * size / access_bytes(k, x.result, s->inner);
    unsigned blocks = (unsigned)ceil_div(s->rows, own_rows(k, &x)), sums = blocks_for(threads, SUM_THREADS);
    CudaLaunch l = {.phase = {{blocks, FLAT_THREADS, 0}, {blocks, FLAT_THREADS, 0}, {sums, SUM_THREADS, 0},
                              {sums, SUM_THREADS, 0}},
                    .n = 4};
    l.workspace = found_room(k, &x) + 4 * room(s->count, 4) + room(s->outer * pieces * 2 * s->inner, size);
    return l;
}

/* Each block looks at all indices, twice. */
double gather_sum_flops(const Kernel *k)
{
    const Sums x = sums_of(k);
    const double blocks = (double)ceil_div(x.s.rows, own_rows(k, &x)), count = (double)x.s.count;
    return (double)(x.s.outer * x.s.inner) * ((double)x.s.rows + 4 * count) +
           2 * blocks * count * (double)(2 * x.tuple + 2);
}

void cuda_define_join(const Writer *w, const char *macro, int64_t how, DType type)
{
    static const char *const join[] = {"(b)", "((a) + (b))", "((a) * (b))", "FMAX(a, b)", "FMIN(a, b)"};
    static const char *const wrapping[] = {[SCATTER_ADD] = "((int64_t)((uint64_t)(a) + (uint64_t)(b)))",
                                           [SCATTER_MUL] = "((int64_t)((uint64_t)(a) * (uint64_t)(b)))"};
    const bool wraps = !dtype_is_float(type) && (how == SCATTER_ADD || how == SCATTER_MUL);
    text_define(w, macro, "%s", (wraps ? wrapping : join)[how]);
}

void gather_sum_prelude(Printer *pr, const Kernel *k)
{
    static const char *const first[] = {"0", "0", "1", "-INFINITY", "INFINITY"};
    const Sums x = sums_of(k);
    const Writer *w = &pr->w;
    const DType type = type_of(k, &x), from = x.how == SCATTER_SET ? type : k->operand[x.updates];
    text_define(w, "GATHER_T", "%s", text_element(type));
    text_define(w, "GATHER_S", "%s", text_element(from));
    text_define(w, "GATHER_LOAD(p, i)", x.how == SCATTER_SET ? "((p)[i])" : "LD_%s(p, i)", dtype_name[from]);
    cuda_define_join(w, "GATHER_JOIN(a, b)", x.how, type);
    text_define(w, "GATHER_FIRST", "%s", first[x.how]);
    text_int(w, "GATHER_STARTS", x.start >= 0);
    text_int(w, "GATHER_WIDTH", access_bytes(k, x.result, x.s.inner) / dtype_size[type]);
    text_define(w, "AT(of)", "%s_##of", pr->name);
    text_prelude(w->f, prelude_gather_sum);
}

void gather_sum_kernel(Printer *pr, const Kernel *k)
{
    const Sums x = sums_of(k);
    int64_t own = own_rows(k, &x), list = room(x.s.count, 4), at = found_room(k, &x);
    int bytes = access_bytes(k, x.result, x.s.inner), digits = 0;
    const char *type = text_element(type_of(k, &x));
    char start[NAME_LEN] = "0";
    if (x.start >= 0)
        snprintf(start, sizeof start, "(const %s *)p%d", type, x.start);
    for (int64_t n = own - 1; n > 0; n /= 16)
        digits++;
    LINE("const Gather g = {p%d, %d, %" PRId64 ", %" PRId64 ", %" PRId64 ", {", x.index,
         dtype_size[k->operand[x.index]], x.s.count, x.batch, x.tuple);
    for (int64_t i = 0; i < x.tuple; i++)
        LINE("    %" PRId64 ",", x.extent[i]);
    LINE("    }, %" PRId64 ", %" PRId64 ", %d, %" PRId64 ", %" PRId64 ", %" PRId64 ",", x.s.rows, own, digits,
         ceil_div(x.s.rows, own), x.s.outer, x.s.inner * dtype_size[k->operand[x.result]] / bytes);
    LINE("    (int *)workspace, (int *)(workspace + %" PRId64 "), (int *)(workspace + %" PRId64 "),", at,
         at + list);
    LINE("    (int *)(workspace + %" PRId64 "), (int *)(workspace + %" PRId64 ")};", at + 2 * list,
         at + 3 * list);
    LINE("%s *const partial = (%s *)(workspace + %" PRId64 "), *const to = (%s *)p%d;", type, type,
         at + 4 * list, type, x.result);
    LINE("(void)partial, (void)to;");
    switch (pr->phase) {
    case 0: LINE("gather_count(&g);"); break;
    case 1:
        LINE("gather_lists(&g, %s, to, %d);", start, bytes);
        break;
    case 2:
        LINE("%s_sum(&g, (const GATHER_S *)p%d, %s, to, partial);", pr->name, x.updates, start);
        break;
    default:
        LINE("%s_join(&g, %s, to, partial);", pr->name, start);
        break;
    }
}
