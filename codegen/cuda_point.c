/* cuda_point.c -- pointwise kernels as CUDA C: a thread has some chunks of the innermost dimension and loads
 * all of them before it computes; where an operand is transposed, a block has a tile, which it transposes in
 * shared memory. */
#include "cuda_int.h"

enum { TILE = 32, LARGE_TILE = 64, WIDE_BYTES = 16, LARGE_WIDTH = 8, SHARED_MOST = 40000 };
enum { FLIGHT_BYTES = 64, MAX_FLIGHT = 4, MAX_INSTS = 64 };

/* ---- chunks ------------------------------------------------------------------------------------- */

static int64_t chunks_of_space(const Sched *s, const Vector *v)
{
    int64_t n = s->extent[s->vec];
    return v->flat ? ceil_div(s->nitem * n, v->width) : s->nitem * ceil_div(n, v->width);
}

/* Chunks of a thread: enough for FLIGHT_BYTES of loads in flight, unless too few threads would remain. */
static int chunks_in_flight(const Sched *s, const Vector *v)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (v->wide[i] && s->ins[i].kind == K_LOAD)
            bytes += v->width * dtype_size[s->k->operand[s->ins[i].operand]];
    int n = 1;
    while (n < MAX_FLIGHT && bytes > 0 && 2 * n * bytes <= FLIGHT_BYTES && s->n <= MAX_INSTS)
        n *= 2;
    while (n > 1 && chunks_of_space(s, v) / n < (int64_t)BLOCKS * FLAT_THREADS)
        n /= 2;
    return n;
}

/* The first transposed loads are staged, as many as have room in shared memory; others read with strides. */
bool cuda_is_staged(const Sched *s, uint32_t i)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k <= i; k++)
        if (sched_is_staged(s, k))
            bytes += TILE * (TILE + 1) * dtype_size[s->k->operand[s->ins[k].operand]];
    return sched_is_staged(s, i) && bytes <= SHARED_MOST;
}

/* Elements per access to a staged operand along its own rows. */
int staged_width(const Sched *s, uint32_t i)
{
    const KInst *in = &s->ins[i];
    int width = s->k->unaligned ? 1 : WIDE_BYTES / dtype_size[s->k->operand[in->operand]];
    for (int d = 0; d < s->rank; d++)
        while (width > LARGE_WIDTH || (d == s->tile ? s->extent[d] : in->stride[d]) % width ||
               in->offset % width)
            width /= 2;
    return width;
}

/* A tile's elements along the result's rows (across), and along the rows of staged operands (down); `pad`
 * elements follow each row in shared memory, so that neighbouring threads access different banks. */
typedef struct {
    int across, down, pad;
} Tile;

static int64_t items_of_tiles(const Sched *s, Tile t)
{
    if (s->nitem * s->extent[s->vec] == 0)
        return 0;
    return s->nitem / s->extent[s->tile] * ceil_div(s->extent[s->tile], t.down) *
           ceil_div(s->extent[s->vec], t.across);
}

/* A tile of side * side elements.  Where a dimension is shorter than the side, as with images of three
 * channels, the tile is shorter along it and longer along the other one. */
static Tile tile_of_side(const Sched *s, int side, int width, int staged)
{
    enum { SHORTEST = 4 };
    Tile t = {side, side, 1};
    while (t.across > SHORTEST && t.across > width && t.across / 2 >= s->extent[s->vec] &&
           2 * t.down <= FLAT_THREADS * staged)
        t.across /= 2, t.down *= 2;
    while (t.down > SHORTEST && t.down > staged && t.down / 2 >= s->extent[s->tile] &&
           2 * t.across <= FLAT_THREADS * width)
        t.down /= 2, t.across *= 2;
    t.pad = t.across < WARP ? WARP / t.across : 1;
    return t;
}

/* The tile of a kernel: a large one where 16 bytes are 8 elements and there are many tiles. */
static Tile tile_of(const Sched *s, const Vector *v)
{
    int64_t shared = 0;
    bool large = v->width == LARGE_WIDTH;
    int staged = LARGE_WIDTH;
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_is_staged(s, i)) {
            int width = staged_width(s, i);
            large |= width == LARGE_WIDTH;
            staged = width < staged ? width : staged;
            shared += LARGE_TILE * (LARGE_TILE + 1) * dtype_size[s->k->operand[s->ins[i].operand]];
        }
    Tile t = tile_of_side(s, LARGE_TILE, v->width, staged);
    return large && shared <= SHARED_MOST && items_of_tiles(s, t) >= BLOCKS
               ? t
               : tile_of_side(s, TILE, v->width, staged);
}

CudaLaunch point_launch(const Sched *s, const Vector *v)
{
    if (s->tile >= 0)
        return one_phase(blocks_for(items_of_tiles(s, tile_of(s, v)), 1), FLAT_THREADS);
    int64_t work = ceil_div(chunks_of_space(s, v), chunks_in_flight(s, v));
    unsigned threads = FLAT_THREADS;
    while (threads > 2 * WARP && work / threads < BLOCKS)
        threads /= 2;
    return one_phase(blocks_for(work, threads), threads);
}

/* Prints the indices of chunk q. */
static void unpack_chunk(Printer *pr)
{
    const Sched *s = pr->s;
    int64_t along = ceil_div(s->extent[s->vec], pr->v.width);
    const char *index = pr->w.index;
    if (pr->v.flat || s->rank == 1) {
        LINE("const %s j = q * %d;", index, pr->v.width);
        return;
    }
    LINE("const %s j = q %% %" PRId64 " * %d, item = q / %" PRId64 ";", index, along, pr->v.width, along);
    text_unpack(&pr->w, s, "item", ((1u << s->rank) - 1) & ~(1u << s->vec));
}

/* Prints the test that a chunk exists.  It is never left out, as a call in a batch has as many blocks as the
 * largest one. */
static void skip_unless(Printer *pr, const char *chunk, const char *how)
{
    if (pr->counted)
        LINE("if (%s * %d >= n)", chunk, pr->v.width);
    else
        LINE("if (%s >= %" PRId64 ")", chunk, chunks_of_space(pr->s, &pr->v));
    LINE("    %s;", how);
}

static void open_chunk(Printer *pr, int chunks)
{
    const char *index = pr->w.index;
    if (chunks > 1) {
        LINE("#pragma unroll");
        OPEN("for (int c = 0; c < %d; c++)", chunks);
        LINE("const %s q = first + c * (%s)blockDim.x;", index, index);
        skip_unless(pr, "q", "continue");
    } else {
        text_block(&pr->w);
        LINE("const %s q = first;", index);
    }
    unpack_chunk(pr);
}

/* Does the value of instruction i differ between the elements of a chunk? */
static bool in_chunk(const Printer *pr, uint32_t i)
{
    return pr->v.flat ? pr->s->dep[i] != 0 : pr->s->dep[i] >> pr->s->vec & 1;
}

static void element_value(Printer *pr, uint32_t i)
{
    const Sched *s = pr->s;
    if (cuda_is_staged(s, i))
        LINE("const %s v%u = LD_%s(u%u[j - c0 + e], r);", text_type(&s->ins[i]), i,
             dtype_name[s->k->operand[s->ins[i].operand]], i);
    else
        chunk_value(pr, i);
}

/* Prints the values and stores of the elements of a chunk. */
static void chunk_text(Printer *pr)
{
    const Sched *s = pr->s;
    chunk_begin(pr, s->live);
    chunk_open(pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_plain(&s->ins[i]) && in_chunk(pr, i))
            element_value(pr, i);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ins[i].kind == K_STORE)
            chunk_store(pr, i);
    CLOSE();
    chunk_end(pr, s->live);
}

static void chunks_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    int chunks = chunks_in_flight(s, &pr->v);
    bool *held = pr->mark;
    for (uint32_t i = 0; i < s->n; i++)
        held[i] = pr->v.wide[i] && s->ins[i].kind == K_LOAD;
    pr->rows.held = chunks > 1 ? held : NULL;
    LINE("const %s first = (%s)%s * (%d * blockDim.x) + threadIdx.x;", pr->w.index, pr->w.index,
         s->k->calls > 1 ? "block" : "blockIdx.x", chunks);
    if (chunks == 1) /* before it reads anything that a thread with a chunk may write */
        skip_unless(pr, "first", "return");
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_plain(&s->ins[i]) && !s->dep[i])
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++)
        if (held[i]) {
            any = true;
            chunk_declare(pr, i, chunks > 1 ? chunks : 0);
        }
    if (any) {
        open_chunk(pr, chunks);
        for (uint32_t i = 0; i < s->n; i++)
            if (held[i])
                chunk_load(pr, i, chunks > 1 ? "[c]" : "");
        CLOSE();
    }
    open_chunk(pr, chunks);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_plain(&s->ins[i]) && s->dep[i] && !in_chunk(pr, i))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    chunk_text(pr);
    CLOSE();
}

/* ---- tiles -------------------------------------------------------------------------------------- */

/* Opens the loop over a tile's n rows along dimension d; in each row, `length` elements along dimension w, a
 * thread has `width` elements from j on. */
static void open_tile(Printer *pr, int n, int d, const char *d0, int length, int w, const char *w0, int width)
{
    const Sched *s = pr->s;
    int lanes = length / width;
    OPEN("for (int r = threadIdx.x / %d; r < %d; r += %d)", lanes, n, FLAT_THREADS / lanes);
    LINE("const %s i%d = %s + r, j = %s + (int)threadIdx.x %% %d * %d;", pr->w.index, d, d0, w0, lanes,
         width);
    LINE("if (i%d >= %" PRId64 " || j >= %" PRId64 ")", d, s->extent[d], s->extent[w]);
    LINE("    continue;");
}

/* Prints the copy of a tile of a staged operand, along the operand's own rows. */
static void stage(Printer *pr, Tile t, uint32_t i)
{
    const Sched *s = pr->s;
    const KInst *in = &s->ins[i];
    int width = staged_width(s, i);
    char at[512];
    open_tile(pr, t.across, s->vec, "c0", t.down, s->tile, "t0", width);
    LINE("const %s i%d = j;", pr->w.index, s->tile);
    text_address(s, in, at, sizeof at);
    LINE("ALIGNED_16 %s u[%d];", text_element(s->k->operand[in->operand]), width);
    LINE("wide_copy(u, p%d + (%s), sizeof u);", in->operand, at);
    LINE("#pragma unroll");
    LINE("for (int e = 0; e < %d; e++)", width);
    LINE("    u%u[r][j - t0 + e] = u[e];", i);
    CLOSE();
}

static void tile_text(Printer *pr)
{
    const Sched *s = pr->s;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && sched_is_plain(&s->ins[i]) && !in_chunk(pr, i))
            text_value(&pr->w, s, (int)i, cuda_name_of, pr);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->live[i] && s->ins[i].kind == K_LOAD && pr->v.wide[i] && !cuda_is_staged(s, i)) {
            chunk_declare(pr, i, 0);
            chunk_load(pr, i, "");
        }
    chunk_text(pr);
}

/* Prints a kernel that reads staged operands along their own rows and uses them along those of the result. */
static void tile_kernel(Printer *pr)
{
    const Sched *s = pr->s;
    Tile t = tile_of(s, &pr->v);
    int64_t across = ceil_div(s->extent[s->vec], t.across), down = ceil_div(s->extent[s->tile], t.down);
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_is_staged(s, i))
            LINE("__shared__ %s u%u[%d][%d];", text_element(s->k->operand[s->ins[i].operand]), i,
                 t.across, t.down + t.pad);
    LINE("const %s c0 = blockIdx.x %% %" PRId64 " * %d;", pr->w.index, across, t.across);
    LINE("const %s t0 = blockIdx.x / %" PRId64 " %% %" PRId64 " * %d;", pr->w.index, across, down,
         t.down);
    LINE("const %s item = blockIdx.x / %" PRId64 ";", pr->w.index, across * down);
    text_unpack(&pr->w, s, "item", ((1u << s->rank) - 1) & ~(1u << s->vec) & ~(1u << s->tile));
    for (uint32_t i = 0; i < s->n; i++)
        if (cuda_is_staged(s, i))
            stage(pr, t, i);
    LINE("__syncthreads();");
    open_tile(pr, t.down, s->tile, "t0", t.across, s->vec, "c0", pr->v.width);
    tile_text(pr);
    CLOSE();
}

void point_kernel(Printer *pr)
{
    if (pr->s->nitem * pr->s->extent[pr->s->vec] == 0)
        LINE("return;");
    else
        (pr->s->tile >= 0 ? tile_kernel : chunks_kernel)(pr);
}
