/* cuda_conv.c -- convolutions as CUDA C: the choice of a text (prelude/conv*.h), of tiles and launches. */
#include "cuda_int.h"
#include "cuda_conv.h"
#include "ir/integer.h"

enum {
    THREADS = 256,
    STAGES = 3,
    WIDE_BYTES = 16,
    STRIP = 4,
    ROW_TAPS = 8,
    ROW_VALUES = 40, /* most values, taps of a row times channels, in a thread's registers */
    SLICE_BYTES = 32 << 10,
    FLUSH = 4096,
    WHOLE = 64, /* a part's places are a multiple of this */
    WAVES = 3,
    WGMMA_ROWS = 64, /* least rows of a tile with wgmma */
    FLAT_BLOCKS = 8 * 132,
    LIMIT = 1 << 30
};
typedef enum { FORWARD, DATA, WEIGHTS } Kind;

typedef struct {
    Kind kind;
    bool half, direct, bias, wgmma;
    bool far; /* positions do not fit 32 bits */
    DType dt, out;
    int64_t jump[3];                /* per dimension: distance of the taps that meet places of one residue */
    int64_t taps, most;             /* taps of the window; most of them that places of one residue meet */
    int64_t groups, rows, channels; /* rows, channels: those of a group that are made, and gathered */
    int64_t places, all;            /* places of one residue, and of all, in all images */
    int64_t residues;
    int64_t terms;           /* terms of a sum: channels times taps that a residue meets */
    int64_t tm, tn, tiles;   /* rows and columns of a tile; tiles of all groups and residues */
    int64_t splits, chunk;   /* for gradients of weights: parts of the places, and places of a part */
    int64_t wide;            /* channels stored together */
    int64_t copy, copy_rows; /* channels read together: of what is gathered, of the result's gradient */
    int64_t lanes;           /* direct: threads along the channels */
    int64_t strip, strips;   /* places of a thread, along the last dimension; number of such strips */
    int64_t row_taps;        /* taps of a row of the window that a thread takes at a time */
} Conv;

/* ---- shape -------------------------------------------------------------------------------- */

static void window_of(Conv *c, const Kernel *k)
{
    const int64_t *in = k->p, *out = k->p + 3, *kernel = k->p + 6, *stride = k->p + 9;
    const int64_t *dilation = k->p + 15, images = k->p[22];
    c->taps = c->most = c->residues = 1;
    c->places = c->all = images;
    for (int d = 0; d < 3; d++) {
        bool data = c->kind == DATA;
        c->jump[d] = data ? stride[d] / gcd(stride[d], dilation[d]) : 1;
        c->taps *= kernel[d];
        c->most *= ceil_div(kernel[d], c->jump[d]);
        c->residues *= data ? stride[d] : 1;
        c->places *= data ? ceil_div(in[d], stride[d]) : out[d];
        c->all *= data ? in[d] : out[d];
    }
}

/* Are the shapes not empty, and small enough that positions in an image fit 32 bits? */
static bool fits(Conv *c, const Kernel *k)
{
    int64_t in = k->p[18], out = k->p[19];
    for (int d = 0; d < 3; d++) {
        in *= k->p[d];
        out *= k->p[3 + d];
    }
    c->far = in * k->p[22] >= LIMIT || out * k->p[22] >= LIMIT;
    return in > 0 && out > 0 && c->taps > 0 && in < LIMIT && out < LIMIT && c->all > 0 && c->all < LIMIT &&
           c->places * c->residues < LIMIT && c->rows > 0 && c->channels > 0 &&
           c->rows * c->channels * c->groups * c->taps < LIMIT / 4;
}

/* ---- tiles -------------------------------------------------------------------------------- */

static int64_t columns_of(const Conv *c) { return c->kind == WEIGHTS ? c->terms : c->places; }

static int64_t tiles_of(const Conv *c, int64_t tm, int64_t tn)
{
    return ceil_div(c->rows, tm) * ceil_div(columns_of(c), tn) * c->groups * c->residues;
}

/* Chooses the tile with the least time.  The table has the time per element relative to the largest tile; for
 * warpgroups it follows from what they read of shared memory, 0: no such tile.  Blocks run in waves. */
static void choose_tile(Conv *c)
{
    static const struct {
        int64_t m, n;
        double time, wgmma;
    } tile[] = {{128, 128, 1, 1}, {128, 64, 1.2, 1.4}, {64, 128, 1.2, 1.4},
                {64, 64, 1.5, 0}, {32, 128, 2, 0},     {16, 128, 3, 0}};
    double best = 0;
    for (size_t i = 0; i < sizeof tile / sizeof *tile; i++) {
        double each = c->wgmma ? tile[i].wgmma : tile[i].time;
        int64_t n = tiles_of(c, tile[i].m, tile[i].n);
        int64_t waves = c->kind == WEIGHTS ? n : ceil_div(n, BLOCKS) * BLOCKS;
        double time = (double)(waves * tile[i].m * tile[i].n) * each;
        bool registers = c->half || tile[i].m * tile[i].n <= 128 * 64;
        if (each == 0 || !registers || (best > 0 && time >= best))
            continue;
        best = time;
        c->tm = tile[i].m;
        c->tn = tile[i].n;
        c->tiles = n;
    }
}

static void split_places(Conv *c, int64_t n)
{
    c->chunk = ceil_div(ceil_div(c->places, n), WHOLE) * WHOLE;
    c->splits = ceil_div(c->places, c->chunk);
}

/* Splits the places so that all slices together have about BLOCKS blocks of at least `least` places each. */
static void split_slices(Conv *c, int64_t slices, int64_t least)
{
    int64_t n = ceil_div(BLOCKS, slices), most = ceil_div(c->places, least);
    split_places(c, n < most ? n : most);
}

/* Splits the places into as many parts as take the least time.  Blocks run in waves of BLOCKS, and each
 * writes its result in the time of `written` places, which bounds the number of parts; so does the workspace,
 * which is for at most WAVES waves. */
static void split_tiles(Conv *c)
{
    int64_t best = 0, parts = 1, written = c->wgmma ? 512 : c->half ? 256 : 32;
    for (int64_t n = 1; n == 1 || (n * written <= c->places && n * c->tiles <= WAVES * BLOCKS); n++) {
        int64_t time = ceil_div(c->tiles * n, BLOCKS) * (ceil_div(c->places, n) + written);
        if (best > 0 && time >= best)
            continue;
        best = time;
        parts = n;
    }
    split_places(c, parts);
}

/* Channels of a group that are accessed together, if elements have so many bytes. */
static int64_t widest(const Kernel *k, int64_t channels, int64_t bytes)
{
    int64_t n = k->unaligned ? 1 : WIDE_BYTES / bytes;
    while (channels % n)
        n /= 2;
    return n;
}

/* Bytes of the depthwise weights of a slice of the channels, which lie in shared memory. */
static int64_t slice_bytes(const Conv *c, int64_t lanes, int64_t copy)
{
    return c->kind == WEIGHTS ? 0 : lanes * copy * c->taps * c->channels * (int64_t)sizeof(float);
}

static void choose_lanes(Conv *c)
{
    int64_t made = c->groups * c->rows * (c->kind == WEIGHTS ? c->channels : 1);
    c->copy = c->rows * c->channels > 1 ? 1 : c->copy < c->wide ? c->copy : c->wide;
    c->copy = c->kind == WEIGHTS && c->copy_rows < c->copy ? c->copy_rows : c->copy;
    while (c->copy > 1 && c->copy * c->row_taps > ROW_VALUES)
        c->copy /= 2;
    c->lanes = next_power_of_2(ceil_div(made, c->copy), WARP);
    while (c->lanes > 1 && slice_bytes(c, c->lanes, c->copy) > SLICE_BYTES)
        c->lanes /= 2;
    while (c->copy > 1 && slice_bytes(c, c->lanes, c->copy) > CUDA_SHARED_LEAST)
        c->copy /= 2;
}

/* Chooses the consecutive places, and the taps of a row, that a thread takes at a time: few enough for its
 * registers, and for gradients of data multiples of the stride, so that taps and places meet regularly. */
static void choose_strip(Conv *c, const Kernel *k)
{
    int64_t taps = k->p[8], s = c->kind == DATA ? k->p[11] : 1, last = c->kind == DATA ? k->p[2] : k->p[5];
    c->strip = STRIP < s ? s : STRIP / s * s;
    c->row_taps = taps <= ROW_TAPS ? taps : ROW_TAPS < s ? s : ROW_TAPS / s * s;
    c->strips = c->all / last * ceil_div(last, c->strip);
}

/* Bytes of a line of a tile in shared memory. */
static int64_t line_bytes(const Conv *c) { return c->wgmma ? 128 : 64; }
static int64_t term_step(const Conv *c) { return line_bytes(c) / dtype_size[c->dt]; }
static int64_t depth_of(const Conv *c) { return ceil_div(c->terms, term_step(c)) * term_step(c); }
static int64_t all_rows(const Conv *c) { return ceil_div(c->rows, c->tm) * c->tm; }
static int64_t packed_elements(const Conv *c) { return c->residues * c->groups * all_rows(c) * depth_of(c); }
static int64_t slices_of(const Conv *c)
{
    return ceil_div(c->groups * c->rows * (c->kind == WEIGHTS ? c->channels : 1), c->lanes * c->copy);
}

static bool conv_of(Conv *c, const Kernel *k)
{
    *c = (Conv){.kind = k->lib == LIB_CONV ? FORWARD : k->lib == LIB_CONV_BWD_DATA ? DATA : WEIGHTS,
                .wgmma = k->wgmma};
    if (k->lib < LIB_CONV || k->lib > LIB_CONV_BWD_WEIGHTS || k->operand[0] == DT_F64 || k->p[20] == 0 ||
        !k->p[23])
        return false;
    c->dt = k->operand[0];
    c->out = k->operand[k->noperands - 1];
    c->half = dtype_is_half(c->dt);
    c->bias = k->noperands > 3 && k->operand[2] != DT_NONE;
    c->groups = k->p[18] / k->p[20];
    c->rows = c->kind == DATA ? k->p[20] : k->p[21];
    c->channels = c->kind == DATA ? k->p[21] : k->p[20];
    if (c->kind == WEIGHTS && c->groups == 1)
        c->rows = k->items / k->p[20]; /* a split's rows */
    window_of(c, k);
    if ((c->dt != DT_F32 && !c->half) || !fits(c, k))
        return false;
    c->terms = c->channels * c->most;
    c->wide = widest(k, c->rows, dtype_size[c->out]);
    c->copy = widest(k, c->channels, dtype_size[c->dt]);
    c->copy_rows = widest(k, c->kind == WEIGHTS ? gcd(c->rows, k->p[21]) : c->rows, dtype_size[c->dt]);
    c->direct = c->groups > 1 && c->rows * c->channels <= 4 && slice_bytes(c, 1, 1) <= CUDA_SHARED_LEAST;
    if (c->direct) {
        c->wide = widest(k, c->groups, c->kind == WEIGHTS ? dtype_size[c->dt] : dtype_size[c->out]);
        c->copy = c->copy_rows = widest(k, c->groups, dtype_size[c->dt]);
        choose_strip(c, k);
        choose_lanes(c);
        c->places = c->strips;
        split_slices(c, slices_of(c), 2 * (THREADS / c->lanes));
    } else {
        choose_tile(c);
        split_tiles(c);
    }
    return c->direct || c->kind == WEIGHTS || packed_elements(c) < LIMIT;
}

bool cuda_conv_has(const Kernel *k)
{
    Conv c;
    return conv_of(&c, k);
}

/* Is it a window of one position that moves by one, which is a matrix product of the library? */
static bool is_product(const Conv *c, const Kernel *k)
{
    bool moves = false;
    for (int d = 0; d < 3; d++)
        moves |= k->p[9 + d] > 1 || k->p[12 + d] > 0;
    return c->taps == 1 && !moves && c->groups == 1;
}

/* Warpgroups need channels that are read 16 bytes at a time, and more than half of a tile's rows. */
bool cuda_conv_has_wgmma(const Kernel *k)
{
    Conv c;
    if (!conv_of(&c, k) || !c.half || c.direct || is_product(&c, k))
        return false;
    int64_t wide = WIDE_BYTES / dtype_size[c.dt];
    return c.rows > WGMMA_ROWS / 2 && c.copy == wide && (c.kind != WEIGHTS || c.copy_rows == wide);
}

/* ---- launches ----------------------------------------------------------------------------- */

static CudaPhase flat(int64_t work)
{
    int64_t n = ceil_div(work, THREADS);
    return (CudaPhase){(unsigned)(n < FLAT_BLOCKS ? n : FLAT_BLOCKS), THREADS, 0};
}

/* Bytes of shared memory of a block: the buffers of its steps, or the staged result if that is larger. */
static unsigned shared_bytes(const Conv *c)
{
    int64_t padding = c->kind == WEIGHTS && !c->half ? 8 : 0, stage = c->tm < 64 ? c->tm : 64;
    int64_t buffers = STAGES * line_bytes(c) * (c->tm + c->tn + padding), out = (stage + 4) * c->tn * 4;
    return (unsigned)(c->kind != WEIGHTS && out > buffers ? out : buffers);
}

static CudaLaunch direct_launch(const Conv *c)
{
    int64_t pairs = c->groups * c->rows * c->channels, side = THREADS / c->lanes, slices = slices_of(c);
    int64_t blocks = ceil_div(c->strips, side), most = ceil_div(FLAT_BLOCKS, slices);
    int64_t weights = c->taps * c->channels * c->lanes * c->copy;
    CudaLaunch l = {.n = 1};
    l.phase[0] = (CudaPhase){(unsigned)(slices * (blocks < most ? blocks : most)), THREADS,
                             (unsigned)(weights * (int64_t)sizeof(float))};
    if (c->kind != WEIGHTS)
        return l;
    l.n = 2;
    l.phase[0] = (CudaPhase){(unsigned)(slices * c->splits), THREADS,
                             (unsigned)(THREADS * c->copy * (int64_t)sizeof(float))};
    l.phase[1] = flat(pairs * c->taps);
    l.workspace = c->splits * pairs * c->taps * (int64_t)sizeof(float);
    return l;
}

CudaLaunch cuda_conv_launch(const Kernel *k)
{
    Conv c;
    CudaLaunch l = {.n = 2};
    conv_of(&c, k);
    if (c.direct)
        return direct_launch(&c);
    if (c.kind == WEIGHTS) {
        l.phase[0] = (CudaPhase){(unsigned)(c.tiles * c.splits), THREADS, shared_bytes(&c)};
        l.phase[1] = flat(c.tiles * c.tm * c.tn / 4);
        l.workspace = c.splits * c.tiles * c.tm * c.tn * (int64_t)sizeof(float);
    } else {
        l.workspace = packed_elements(&c) * dtype_size[c.dt];
        l.phase[0] = flat(l.workspace / WIDE_BYTES);
        l.phase[1] = (CudaPhase){(unsigned)c.tiles, THREADS, shared_bytes(&c)};
    }
    return l;
}

/* ---- text --------------------------------------------------------------------------------- */

static void define_conv(const Writer *w, const Conv *c)
{
    const struct {
        const char *name;
        int64_t v;
    } number[] = {{"CONV_KIND", c->kind},     {"CONV_HALF", c->half},
                  {"CONV_WGMMA", c->wgmma},
                  {"CONV_BIAS", c->bias},     {"CONV_ROWS", c->rows},
                  {"CONV_COPY", c->copy},     {"CONV_TM", c->tm},
                  {"CONV_TN", c->tn},         {"CONV_DEPTH", depth_of(c)},
                  {"CONV_SPLITS", c->splits}, {"CONV_CHUNK", c->chunk},
                  {"CONV_FLUSH", FLUSH},      {"CONV_WIDE", c->wide},
                  {"CONV_STAGES", STAGES},    {"CONV_COPY_ROWS", c->copy_rows},
                  {"CONV_LANES", c->lanes},   {"CONV_STRIP", c->strip},
                  {"CONV_ROW_TAPS", c->row_taps}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        text_int(w, number[i].name, number[i].v);
    text_define(w, "CONV_JUMP", "%" PRId64 ", %" PRId64 ", %" PRId64, c->jump[0], c->jump[1], c->jump[2]);
    text_define(w, "CONV_T", "%s", text_element(c->dt));
    text_define(w, "CONV_Y", "%s", text_element(c->out));
    text_define(w, "CONV_LOAD", "LD_%s", dtype_name[c->dt]);
    text_define(w, "CONV_STORE", "ST_%s", dtype_name[c->out]);
    text_define(w, "CONV_INDEX", c->far ? "int64_t" : "int");
    if (c->wgmma)
        text_define(w, "CONV_MMA", "wgmma_%s%s_n%d", c->kind == WEIGHTS ? "turned_" : "", dtype_name[c->dt],
                    c->tm == WGMMA_ROWS ? (int)c->tn / 2 : (int)c->tn);
    else
        text_define(w, "CONV_MMA", "mma_%s", dtype_name[c->dt]);
}

/* Prints "GLOBAL void ... NAME(operands, workspace) { SHARED_BYTES; call; }". */
static void phase(Writer *w, const Kernel *k, const Conv *c, const CudaPhase *p, const char *name,
                  const char *call)
{
    fprintf(w->f, "GLOBAL void __launch_bounds__(%u, 2) %s(", p->block, name);
    for (int i = 0; i < k->noperands; i++) {
        bool made = i == k->noperands - 1;
        const char *type = k->operand[i] == DT_NONE ? "void" : text_element(made ? c->out : c->dt);
        fprintf(w->f, "%s%s%s *p%d", i ? ", " : "", made ? "" : "const ", type, i);
    }
    fprintf(w->f, "%s)\n", c->direct && c->kind != WEIGHTS ? "" : ", unsigned char *workspace");
    text_block(w);
    if (p->shared)
        text_line(w, "SHARED_BYTES(shared, 1024);");
    text_line(w, "%s", call);
    text_close(w);
}

/* Writes the call that a phase makes.  `bias` is the bias's operand, or another one, which is not read. */
static void call_of(char call[128], const Kernel *k, const Conv *c, int phase)
{
    int bias = c->bias ? 2 : 0, out = k->noperands - 1;
    if (c->kind == WEIGHTS)
        snprintf(call, 128,
                 phase ? "AT(sum)((const float *)workspace, p%d);"
                       : "AT(partial)(p0, p1, (float *)workspace, shared);",
                 out);
    else if (c->direct)
        snprintf(call, 128, "AT(direct)(p0, p1, p%d, p%d, shared);", bias, out);
    else if (phase == 0)
        snprintf(call, 128, "AT(pack)(p1, (CONV_T *)workspace);");
    else
        snprintf(call, 128, "AT(product)(p0, (const CONV_T *)workspace, p%d, p%d, shared);", bias, out);
}

void cuda_conv_print(Writer *w, const Kernel *k, const char *name)
{
    Conv c;
    conv_of(&c, k);
    text_parameters(w, k);
    define_conv(w, &c);
    text_define(w, "AT(of)", "%s_##of", name);
    text_prelude(w->f, prelude_conv);
    text_prelude(w->f, c.direct ? prelude_conv_direct : prelude_conv_tiles);
    CudaLaunch l = cuda_conv_launch(k);
    for (int i = 0; i < l.n; i++) {
        char call[128], buf[CUDA_NAME];
        call_of(call, k, &c, i);
        phase(w, k, &c, &l.phase[i], cuda_phase_name(name, i, buf), call);
    }
}
