/* wgmma.c -- products of warpgroups, made as late as they may be: factors in shared memory are read, and
 * results written, when a warp waits for them.  Until then results are NaN, and nobody may touch them or
 * write over the factors (shadow.c).
 *
 * Each warp makes its 16 of the 64 rows at its own time; at the end all four have to have done the same. */
#include "wgmma.h"
#include "shadow.h"

enum { LANES = 32, WARPS = 32, GROUP = 4, RESULTS = 4, PRODUCTS = 64, COLUMNS = 256, K = 16, CHUNK = 8 };

/* A result: per lane, where its n elements are to go, and their values so far. */
typedef struct {
    float *at[LANES], value[LANES][COLUMNS / 2];
    int n;
} Result;

typedef struct {
    WarpWgmma of;
    uint16_t left[16][K]; /* the warp's rows of the left factor; from shared memory only when it is made */
    int result, group;    /* index of the result; how many groups were committed before it */
} Product;

typedef struct {
    Result result[RESULTS];
    Product product[PRODUCTS];
    int nresult, nproduct, groups;
    bool fenced;
    uint64_t did; /* a hash of all that it has done */
} Warp;

static Warp warp[WARPS];

void wgmma_block(void)
{
    for (int w = 0; w < WARPS; w++) {
        warp[w].nresult = warp[w].nproduct = warp[w].groups = 0;
        warp[w].fenced = false;
        warp[w].did = 0;
    }
}

static void remember(Warp *w, uint64_t what) { w->did = (w->did ^ what) * 0x100000001B3 + 1; }

/* ---- factors in shared memory ------------------------------------------------------------------- */

/* A factor, as its descriptor tells. */
typedef struct {
    uint32_t at, lead, stride, width; /* bytes; width: of the swizzled lines */
    int first, rows; /* along its other side than k: the first row, and how many */
    bool by_k; /* it is transposed: k is not along its width */
} Factor;

static bool decode(Factor *f, uint64_t d, int first, int rows, bool by_k)
{
    static const uint32_t width[] = {0, 128, 64, 32};
    *f = (Factor){.at = (uint32_t)(d & 0x3FFF) * 16,
                  .lead = (uint32_t)(d >> 16 & 0x3FFF) * 16,
                  .stride = (uint32_t)(d >> 32 & 0x3FFF) * 16,
                  .width = width[d >> 62],
                  .first = first,
                  .rows = rows,
                  .by_k = by_k};
    uint64_t known = 0x3FFF | (uint64_t)0x3FFF << 16 | (uint64_t)0x3FFF << 32 | (uint64_t)3 << 62;
    if (d & ~known || !f->width)
        fiber_fault("a descriptor of a matrix says %llx", (unsigned long long)d);
    return !(d & ~known) && f->width;
}

static int chunks(const Factor *f) { return f->rows * K / CHUNK; }

/* Returns the address of chunk i, and sets row and k of its first element; the others follow along k, or if
 * by_k along the rows.  The swizzle is one of addresses: bits from 7 on are added to those from 4 on. */
static uint32_t chunk_at(const Factor *f, int i, int *row, int *k)
{
    const uint32_t across = f->width / 2;
    *row = f->by_k ? i / K * CHUNK : i / 2;
    *k = f->by_k ? i % K : i % 2 * CHUNK;
    const uint32_t r = (uint32_t)(f->first + *row), c = (uint32_t)*k;
    const uint32_t in = f->by_k ? r / across * f->lead + r % across * 2 + c % 8 * f->width + c / 8 * f->stride
                                : r / 8 * f->stride + r % 8 * f->width + c * 2;
    const uint32_t at = f->at + in;
    return at ^ (at >> 7 & (f->width / 16 - 1)) << 4;
}

/* Tells the shadow that the warp's lanes will read the factor (hold 1), or do it now (-1). */
static void look_at(const Factor *f, unsigned w, const unsigned char *shared, unsigned bytes, int hold,
                    unsigned block)
{
    int row, k;
    for (int i = 0; i < chunks(f); i++) {
        const uint32_t at = chunk_at(f, i, &row, &k);
        if (at + 16 > bytes) {
            fiber_fault("a product reads shared memory at %u of %u", at, bytes);
            return;
        }
        shadow_product(shared + at, 16, w * LANES + (unsigned)i % LANES, block, hold);
    }
}

static void read_factor(const Factor *f, uint16_t (*to)[K], const unsigned char *shared, unsigned bytes)
{
    int row, k;
    for (int i = 0; i < chunks(f); i++) {
        uint16_t x[CHUNK] = {0};
        const uint32_t at = chunk_at(f, i, &row, &k);
        if (at + sizeof x <= bytes)
            memcpy(x, shared + at, sizeof x);
        for (int j = 0; j < CHUNK; j++)
            to[f->by_k ? row + j : row][f->by_k ? k : k + j] = x[j];
    }
}

/* The part of the left factor that warp w reads of shared memory; false: it reads none. */
static bool left_factor(Factor *f, const WarpWgmma *of, unsigned w)
{
    return !of->in_registers && decode(f, of->a, (int)(w % GROUP) * 16, 16, of->turned);
}

static bool right_factor(Factor *f, const WarpWgmma *of)
{
    return decode(f, of->b, 0, of->n, of->in_registers || of->turned);
}

/* ---- products ----------------------------------------------------------------------------------- */

static int result_of(Warp *w, const Lane *lane)
{
    int i = 0;
    while (i < w->nresult && w->result[i].at[0] != lane->in.wgmma.c)
        i++;
    if (i < w->nresult)
        return i;
    Result *r = &w->result[w->nresult++];
    r->n = lane->in.wgmma.n / 2;
    for (int l = 0; l < LANES; l++) {
        r->at[l] = lane[l].in.wgmma.c;
        memcpy(r->value[l], r->at[l], (size_t)r->n * sizeof(float));
        memset(r->at[l], 0xFF, (size_t)r->n * sizeof(float));
    }
    return i;
}

static bool same(const WarpWgmma *x, const WarpWgmma *y)
{
    return x->n == y->n && x->f16 == y->f16 && x->adds == y->adds && x->in_registers == y->in_registers &&
           x->turned == y->turned && x->a == y->a && x->b == y->b;
}

static bool begins(const Warp *w, const Lane *lane)
{
    const WarpWgmma *of = &lane->in.wgmma;
    bool uniform = true;
    for (int l = 0; l < LANES; l++)
        uniform &= same(of, &lane[l].in.wgmma);
    if (!uniform || of->n % 8 || of->n < 8 || of->n > COLUMNS)
        fiber_fault("lanes of a warp have other products");
    else if (!w->fenced)
        fiber_fault("a product of registers without a fence");
    else if (w->nproduct == PRODUCTS || w->nresult == RESULTS)
        fiber_fault("more products than the shim has room for");
    else
        return true;
    return false;
}

static void begin(unsigned number, const Lane *lane, const unsigned char *shared, unsigned bytes,
                  unsigned block)
{
    Warp *w = &warp[number];
    Factor f;
    if (!begins(w, lane))
        return;
    Product *p = &w->product[w->nproduct++];
    p->of = lane->in.wgmma;
    p->group = w->groups;
    p->result = result_of(w, lane);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 8; i++)
            p->left[l / 4 + 8 * (i >> 1 & 1)][l % 4 * 2 + (i & 1) + 8 * (i >> 2)] =
                (uint16_t)(lane[l].in.wgmma.left[i / 2] >> 16 * (i & 1));
    if (left_factor(&f, &p->of, number))
        look_at(&f, number, shared, bytes, 1, block);
    if (right_factor(&f, &p->of))
        look_at(&f, number, shared, bytes, 1, block);
    remember(w, p->of.a ^ p->of.b * 3 ^ (uint64_t)p->of.n << 8 ^ (uint64_t)p->of.adds);
}

static void make(unsigned number, Product *p, const unsigned char *shared, unsigned bytes,
                 const ShimState *state)
{
    static uint16_t right[COLUMNS][K];
    Factor f;
    Result *r = &warp[number].result[p->result];
    if (left_factor(&f, &p->of, number)) {
        look_at(&f, number, shared, bytes, -1, state->block.x);
        read_factor(&f, p->left, shared, bytes);
    }
    if (right_factor(&f, &p->of)) {
        look_at(&f, number, shared, bytes, -1, state->block.x);
        read_factor(&f, right, shared, bytes);
    }
    tile_set(p->left, right, p->of.n, p->of.f16);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < r->n; i++) {
            float *c = &r->value[l][i];
            *c = tile_add(p->of.adds ? *c : 0, l / 4 + 8 * (i >> 1 & 1), i / 4 * 8 + l % 4 * 2 + (i & 1),
                          state->capability);
        }
}

/* Writes the results to which no product is left, and drops them. */
static void write_results(Warp *w)
{
    int kept = 0, to[RESULTS];
    for (int i = 0; i < w->nresult; i++) {
        bool left = false;
        for (int k = 0; k < w->nproduct; k++)
            left |= w->product[k].result == i;
        for (int l = 0; l < LANES && !left; l++)
            memcpy(w->result[i].at[l], w->result[i].value[l], (size_t)w->result[i].n * sizeof(float));
        to[i] = kept;
        if (left)
            w->result[kept++] = w->result[i];
    }
    w->nresult = kept;
    for (int k = 0; k < w->nproduct; k++)
        w->product[k].result = to[w->product[k].result];
}

static void wait_for_all_but(unsigned number, int groups, const unsigned char *shared, unsigned bytes,
                             const ShimState *state)
{
    Warp *w = &warp[number];
    int left = 0;
    for (int i = 0; i < w->nproduct; i++)
        if (w->product[i].group + groups < w->groups)
            make(number, &w->product[i], shared, bytes, state);
        else
            w->product[left++] = w->product[i];
    w->nproduct = left;
    write_results(w);
}

void wgmma_run(unsigned number, const Lane lane[LANES], const unsigned char *shared, unsigned bytes,
               const ShimState *state)
{
    Warp *w = &warp[number];
    if (lane->op == WARP_WGMMA) {
        begin(number, lane, shared, bytes, state->block.x);
        return;
    }
    if (lane->op == WARP_WGMMA_COMMIT)
        w->groups++;
    if (lane->op == WARP_WGMMA_WAIT)
        wait_for_all_but(number, lane->in.wgmma.n, shared, bytes, state);
    w->fenced = lane->op == WARP_WGMMA_FENCE;
    remember(w, (uint64_t)lane->op);
}

bool wgmma_holds(unsigned thread, const void *at, size_t bytes)
{
    const Warp *w = &warp[thread / LANES];
    const char *p = at;
    for (int i = 0; i < w->nresult; i++) {
        const char *c = (const char *)w->result[i].at[thread % LANES];
        if (p < c + (size_t)w->result[i].n * sizeof(float) && c < p + bytes)
            return true;
    }
    return false;
}

void wgmma_end(unsigned warps)
{
    for (unsigned w = 0; w < warps; w++) {
        if (warp[w].nproduct)
            fiber_fault("nobody waits for a product");
        if (warp[w].did != warp[w / GROUP * GROUP].did || (warp[w].did && warps % GROUP))
            fiber_fault("warps of a warpgroup do not do the same");
    }
}
