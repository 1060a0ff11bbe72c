/* cuda_attention.c -- phases, tiles and launches of attention on a GPU.
 *
 * Tiles are as large as registers (255 a thread without spills) and shared memory (163 KiB of a block on an
 * A100) allow, if possible with two blocks or more on a multiprocessor; they are smaller where rows are few,
 * or where the plan chose so.  With products of warpgroups a block is one or two warpgroups. */
#include "cuda_attention.h"
#include "attention_text.h"
#include "ir/attention_kernel.h"
#include <inttypes.h>
#include <math.h>

/* A launch makes one of these: the output, the gradient of q, those of k and v, or that of the bias. */
typedef enum { FORWARD, QUERIES, KEYS, BIASES } Part;
static const char *const part_name[] = {"A_FORWARD", "A_QUERIES", "A_KEYS", "A_BIASES"};
enum { ROW_TILE = 16, WARP = 32, COLUMNS = 32, STAGES = 2, GRADIENT = 10 };

typedef struct {
    int own, other, warps, split; /* rows of both tiles; warps; blocks that share a result's columns */
} Tiles;

static bool is_half(const Kernel *k) { return dtype_is_half(k->operand[0]); }

bool cuda_attention_has(const Kernel *k)
{
    const int64_t *p = k->p;
    if (k->native != NATIVE_ATTENTION || !(is_half(k) || k->operand[0] == DT_F32))
        return false;
    return p[P_PHASE] != PHASE_BIAS ||
           (p[P_BIAS_EXTENT_ROW] == p[P_ROWS] && p[P_BIAS_EXTENT_COL] == p[P_COLS]);
}

int cuda_attention_keys(const Kernel *k, int64_t *key)
{
    bool has = cuda_attention_has(k) && k->p[P_DROPOUT];
    if (has && key)
        *key = k->p[P_KEY];
    return has;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* What the columns of tiles are a multiple of. */
static int step_of(const Kernel *k)
{
    int64_t both = round_up(k->p[P_SIZE], COLUMNS) + round_up(k->p[P_V_SIZE], COLUMNS);
    return both > 8 * COLUMNS ? 2 * COLUMNS : COLUMNS;
}

/* Columns of tiles of q and k (p: P_SIZE), or of v and o (P_V_SIZE). */
static int columns_of(const Kernel *k, int p) { return (int)round_up(k->p[p], step_of(k)); }

/* The columns of heads of one size that need as much of registers and shared memory as these in a part. */
static int equal_columns(const Kernel *k, Part part)
{
    int columns = columns_of(k, P_SIZE), v_columns = columns_of(k, P_V_SIZE);
    int mean = (columns + v_columns) / 2;
    switch (part) {
    case FORWARD: return columns > v_columns ? columns : v_columns;
    case QUERIES: return columns > mean ? columns : mean;
    default: return mean;
    }
}

static bool is_limited(const int64_t *p) { return p[P_RIGHT] < p[P_COLS] - 1 || p[P_LEFT] < p[P_ROWS] - 1; }

/* Are scores nothing but scaled products, or -inf? */
static bool is_plain(const Kernel *k)
{
    const int64_t *p = k->p;
    bool hides = p[P_MASK] || is_limited(p);
    return is_half(k) && !p[P_BIAS] && !p[P_SINK] && k->q[Q_CAP] == 0 && k->q[Q_SCALE] > 0 &&
           (!hides || k->q[Q_FILL] == -INFINITY);
}

/* Products of warpgroups are for plain scores in 16 bits (no bias, sinks or cap) without a mask, for aligned
 * heads, and for more than 32 rows and columns.  Heads that are summed up in registers, of v or, of
 * gradients, of k as well, have 33 to 64 or 97 to 128 elements; with dropout gradients of the larger ones
 * would need a few registers more than there are.  All other kernels multiply warp by warp. */
bool cuda_attention_has_wgmma(const Kernel *k)
{
    enum { FEW = 32 };
    const int64_t *p = k->p;
    if (!cuda_attention_has(k) || p[P_PHASE] == PHASE_BIAS)
        return false;
    int columns = columns_of(k, P_SIZE), v_columns = columns_of(k, P_V_SIZE);
    bool fits = columns % 64 == 0 && (v_columns == 64 || v_columns == 128);
    if (p[P_PHASE] == PHASE_BACKWARD)
        fits &= columns <= 128 && (!p[P_DROPOUT] || (columns == 64 && v_columns == 64));
    return is_plain(k) && !p[P_MASK] && fits && !k->unaligned && p[P_SIZE] % 8 == 0 &&
           p[P_V_SIZE] % 8 == 0 && p[P_ROWS] > FEW && p[P_COLS] > FEW;
}

/* Tiles for warpgroups: two of them share the other tile where their registers allow two blocks. */
static Tiles group_tiles(int columns)
{
    return columns > 64 ? (Tiles){64, 64, 4, 1} : (Tiles){128, 64, 8, 1};
}

/* Tiles for 16-bit operands: a warp holds own / warps rows of results, and of scores and slopes against the
 * other tile; operations on the scores take registers as well. */
static Tiles half_tiles(const Kernel *k, Part part, int columns)
{
    bool wide = columns >= 128, drop = k->p[P_DROPOUT];
    bool simple = is_plain(k) || (k->q[Q_CAP] == 0 && !k->p[P_BIAS] && !(wide && (drop || k->p[P_MASK])));
    int other = wide ? simple ? 32 : 16 : simple ? 64 : 32, split = columns > 128 ? simple ? 2 : 4 : 1;
    switch (part) {
    case FORWARD: return (Tiles){columns <= 64 && simple && !drop ? 128 : 64, 64, 4, 1};
    case KEYS: return (Tiles){64, other, 4, split};
    case QUERIES: return (Tiles){64, other, 4, split / 2 ? split / 2 : 1};
    default: return (Tiles){64, 32, 4, 1};
    }
}

static Tiles wide_tiles(Part part, int columns)
{
    switch (part) {
    case FORWARD: return (Tiles){64, columns <= 64 ? 64 : 32, 4, 1};
    case KEYS:
        return (Tiles){columns <= 64 ? 64 : 32, columns <= 128 ? 32 : 16, columns <= 64 ? 4 : 2,
                       columns > 128 ? 2 : 1};
    case QUERIES:
        return (Tiles){columns <= 64 ? 64 : 32, columns <= 128 ? 32 : 16, columns <= 64 ? 4 : 2, 1};
    default:
        return (Tiles){columns <= 128 ? 64 : 32, columns <= 128 ? 32 : 16,
                       columns <= 128 ? 4 : 2, 1};
    }
}

static int64_t shared_of(const Kernel *k, Part part, const Tiles *t)
{
    const int bytes = is_half(k) ? 2 : 4, more = k->wgmma ? 0 : 16;
    int row = columns_of(k, P_SIZE) * bytes + more, v_row = columns_of(k, P_V_SIZE) * bytes + more;
    int both = row + v_row;
    switch (part) {
    case FORWARD: return row * t->own + both * t->other;
    case KEYS:
        return both * t->own +
               STAGES * align_up(t->other * (both + 3 * (int)sizeof(float)), k->wgmma ? 1024 : 16);
    case QUERIES: return both * (t->own + STAGES * t->other);
    default:
        return both * (t->own + t->other);
    }
}

static void halve_own(Tiles *t)
{
    t->own /= 2;
    t->warps = t->warps < t->own / ROW_TILE ? t->warps : t->own / ROW_TILE;
}

/* The tiles of a launch: rows, and warps, are halved while half of them holds all rows that there are, and
 * where tiles are to be small. */
static Tiles tiles_for(const Kernel *k, Part part)
{
    int64_t own = k->p[part == KEYS ? P_COLS : P_ROWS], other = k->p[part == KEYS ? P_ROWS : P_COLS];
    int columns = equal_columns(k, part);
    Tiles t = k->wgmma     ? group_tiles(columns)
              : is_half(k) ? half_tiles(k, part, columns)
                           : wide_tiles(part, columns);
    while (t.own > ROW_TILE && own <= t.own / 2)
        halve_own(&t);
    while (t.other > ROW_TILE && other <= t.other / 2)
        t.other /= 2;
    while (k->small_tiles && t.other > ROW_TILE && shared_of(k, part, &t) > CUDA_SHARED_LEAST)
        t.other /= 2;
    while (k->small_tiles && t.own > ROW_TILE && shared_of(k, part, &t) > CUDA_SHARED_LEAST)
        halve_own(&t);
    return t;
}

/* ---- launches ------------------------------------------------------------------------------- */

static int64_t lines(const Kernel *k) { return k->p[P_BATCH] * k->p[P_HEADS] * k->p[P_ROWS]; }

static int64_t grid_of(const Kernel *k, Part part, const Tiles *t)
{
    const int64_t *p = k->p, rows = ceil_div(p[P_ROWS], t->own);
    switch (part) {
    case KEYS: return p[P_BATCH] * p[P_GROUPS] * ceil_div(p[P_COLS], t->own) * t->split;
    case BIASES: return p[P_BIAS_EXTENT_BATCH] * p[P_BIAS_EXTENT_HEAD] * rows * ceil_div(p[P_COLS], t->other);
    default: return p[P_BATCH] * p[P_HEADS] * rows * t->split;
    }
}

static CudaPhase phase_of(const Kernel *k, Part part)
{
    Tiles t = tiles_for(k, part);
    return (CudaPhase){(unsigned)grid_of(k, part, &t), (unsigned)(t.warps * WARP),
                       (unsigned)shared_of(k, part, &t)};
}

/* Writes the parts of a kernel in order of their launches; returns their number. */
static int parts_of(const Kernel *k, Part part[CUDA_PHASES])
{
    static const Part order[][2] = {
        [PHASE_FORWARD] = {FORWARD}, [PHASE_BACKWARD] = {QUERIES, KEYS}, [PHASE_BIAS] = {BIASES}};
    int64_t phase = k->p[P_PHASE];
    int n = phase == PHASE_BACKWARD ? 2 : 1;
    for (int i = 0; i < n; i++)
        part[i] = order[phase][i];
    return n;
}

CudaLaunch cuda_attention_launch(const Kernel *k)
{
    Part part[CUDA_PHASES];
    CudaLaunch l = {.n = parts_of(k, part)};
    for (int i = 0; i < l.n; i++)
        l.phase[i] = phase_of(k, part[i]);
    l.workspace = l.n > 1 ? 2 * lines(k) * (int64_t)sizeof(float) : 0;
    return l;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void definitions(const Writer *w, const Kernel *k, Part part)
{
    Tiles t = tiles_for(k, part);
    attention_macros(w, k);
    attention_type(w, k, "A_GRADIENT_TYPE", part == FORWARD ? 0 : GRADIENT);
    text_int(w, "A_ROWS", k->p[P_ROWS]); /* from here to A_LEFT as int, 32 bits */
    text_int(w, "A_COLS", k->p[P_COLS]);
    text_int(w, "A_SIZE", k->p[P_SIZE]);
    text_int(w, "A_V_SIZE", k->p[P_V_SIZE]);
    text_int(w, "A_RIGHT", k->p[P_RIGHT]);
    text_int(w, "A_LEFT", k->p[P_LEFT]);
    for (Part i = FORWARD; i <= BIASES; i++)
        text_int(w, part_name[i], i);
    text_int(w, "A_PART", part);
    /* Unrolled in a loop over batches and heads, or of gradients whose rows have two lengths, copies would
     * keep more addresses in registers than there are. */
    bool rolled = part == BIASES || (part != FORWARD && k->p[P_SIZE] != k->p[P_V_SIZE]);
    text_define(w, "A_EACH_COPY", rolled ? "ROLLED" : "UNROLL");
    text_int(w, "A_BYTES", is_half(k) ? 2 : 4);
    text_int(w, "A_UNALIGNED", k->unaligned);
    text_int(w, "A_WGMMA", k->wgmma);
    text_int(w, "A_STEP", step_of(k));
    text_int(w, "A_OWN", t.own);
    text_int(w, "A_OTHER", t.other);
    text_int(w, "A_WARPS", t.warps);
    text_int(w, "A_SPLIT", t.split);
    text_int(w, "A_PLAIN", is_plain(k));
    text_int(w, "A_CAPPED", k->q[Q_CAP] > 0);
    text_int(w, "A_DROPPED", (int64_t)ceil((double)(float)k->q[Q_DROP_BELOW] * (1 << 24)));
}

/* ", 1" tells ptxas that one block a multiprocessor is enough.  Without it ptxas aims at 128 registers, which
 * are too few for tiles that do more to scores, but enough for narrow ones, which would spill with it. */
static const char *least_blocks(const Kernel *k, Part part)
{
    bool narrow = tiles_for(k, part).split == (part == KEYS ? 4 : 2);
    return is_plain(k) || narrow ? "" : ", 1";
}

static void print_part(Writer *w, const Kernel *k, const char *name, Part part, CudaPhase phase)
{
    int n = k->noperands + (part == QUERIES || part == KEYS); /* the last of them is the workspace */
    text_define(w, "AT(name)", "%s_##name", name);
    text_define(w, "A_KEY", "((int64_t)op[%d]) /* of dropout */", n);
    definitions(w, k, part);
    text_prelude(w->f, prelude_attention_tile);
    text_prelude(w->f, part == FORWARD ? prelude_attention_forward : prelude_attention_backward);
    fprintf(w->f, "GLOBAL void __launch_bounds__(%u%s) %s(", phase.block, least_blocks(k, part), name);
    for (int i = 0; i < n; i++)
        fprintf(w->f, "%svoid *p%d", i ? ", " : "", i);
    fputs(k->p[P_DROPOUT] ? ", int64_t key0)\n" : ")\n", w->f);
    text_block(w);
    fputs("    void *const op[] = {", w->f);
    for (int i = 0; i < n; i++)
        fprintf(w->f, "%sp%d", i ? ", " : "", i);
    fputs(k->p[P_DROPOUT] ? ", (void *)key0};\n" : "};\n", w->f);

    text_line(w, "SHARED_BYTES(shared, 1024);");
    text_line(w, "AT(run)(op, shared);");
    text_close(w);
}

void cuda_attention_print(Writer *w, const Kernel *k, const char *name)
{
    Part part[CUDA_PHASES];
    char buf[CUDA_NAME];
    int n = parts_of(k, part);
    text_real_type(w, k);
    for (int i = 0; i < n; i++)
        print_part(w, k, cuda_phase_name(name, i, buf), part[i], phase_of(k, part[i]));
}
