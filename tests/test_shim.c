/* test_shim.c -- the shim that runs CUDA kernels in place of a GPU: the order of threads, what the lanes of a
 * warp do together, copies that land when they are waited for; and the mistakes of kernels that it finds. */
#include "tests.h"
#include "shim/fiber.h"
#include "shim/shadow.h"
#include <math.h>
#include <stdlib.h>

static ShimState state;
static int order_seen[64];
static int order_count;

static void record_order(void *const *arg)
{
    (void)arg;
    order_seen[order_count++] = (int)state.thread.x;
    state.barrier();
}

static void skip_barrier(void *const *arg)
{
    (void)arg;
    if (state.thread.x != 5)
        state.barrier();
}

static void butterfly(void *const *arg)
{
    int v = (int)state.thread.x;
    for (unsigned m = 16; m > 0; m /= 2) {
        WarpShuffle in = {(uint64_t)v, (state.thread.x ^ m) & 31};
        int other;
        state.warp(WARP_SHUFFLE, &in, sizeof in, &other, sizeof other);
        v += other;
    }
    ((int *)arg[0])[state.thread.x] = v;
}

static void mixed(void *const *arg)
{
    (void)arg;
    state.warp(state.thread.x == 3 ? WARP_SYNC : WARP_LDMATRIX, NULL, 0, NULL, 0);
}

static bool launch(void (*body)(void *const *), void *const *arg, unsigned shared)
{
    return fiber_launch(&state, body, arg, 1, 64, shared, 3);
}

/* A kernel whose threads wait for each other is found out when its threads are run one after another. */
START_TEST(waits_alone_are_found)
{
    void *op[FIBER_ARGS] = {NULL};
    void (*waits)(void *const *) = skip_barrier;
    const void *kernel;
    memcpy(&kernel, &waits, sizeof kernel);
    ck_assert(!thread_launch_kernel(&state, kernel, op, 1, 64, 3));
    ck_assert_str_eq(state.error, "a thread that runs alone waits for others");
}
END_TEST

START_TEST(shuffles_and_finds_divergence)
{
    int sum[64];
    void *op[] = {sum};
    ck_assert(launch(record_order, NULL, 0));
    int in_order = 0;
    for (int i = 0; i < 64; i++)
        in_order += order_seen[i] == i;
    ck_assert_int_lt(in_order, 20);
    ck_assert(!launch(skip_barrier, NULL, 0));
    ck_assert_str_eq(state.error, "threads are stuck");
    ck_assert(!launch(mixed, NULL, 0));
    ck_assert_str_eq(state.error, "lanes of a warp do not do the same");
    ck_assert(launch(butterfly, op, 0));
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(sum[i], i < 32 ? 496 : 496 + 32 * 32);
}
END_TEST

/* ---- tensor cores --------------------------------------------------------------------------------- */

static uint32_t bf16_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u >> 16;
}

static float bf16_value(uint32_t bits)
{
    float x;
    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Shared memory holds a as [16][16], b transposed as [8][16], and b as [16][8].  Writes the product a b, with
 * b read from its transpose, to arg[0], and with b read as it is to arg[1]. */
static void product(void *const *arg)
{
    const unsigned l = state.thread.x % 32;
    uint32_t a[4], b[4], at = (l & 15) * 32 + (l >> 4) * 16;
    state.warp(WARP_LDMATRIX, &at, sizeof at, a, sizeof a);
    at = 512 + (l & 7) * 32 + (l >> 3 & 1) * 16;
    state.warp(WARP_LDMATRIX, &at, sizeof at, b, sizeof b);
    WarpMma in = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {0}};
    float c[2][4];
    state.warp(WARP_MMA_BF16, &in, sizeof in, c[0], sizeof c[0]);
    at = 768 + (l & 15) * 16;
    state.warp(WARP_LDMATRIX_TRANS, &at, sizeof at, b, sizeof b);
    in.b[0] = b[0], in.b[1] = b[1];
    state.warp(WARP_MMA_BF16, &in, sizeof in, c[1], sizeof c[1]);
    for (int n = 0; n < 2; n++)
        for (unsigned i = 0; i < 4; i++)
            ((float *)arg[n])[(l / 4 + 8 * (i >> 1)) * 8 + l % 4 * 2 + (i & 1)] = c[n][i];
}

static void fill_and_multiply(void *const *arg)
{
    uint16_t *x = (uint16_t *)(void *)state.shared;
    for (unsigned i = state.thread.x; i < 256; i += 64)
        x[i] = (uint16_t)bf16_bits((float)(i * 7 % 23) - 9);
    for (unsigned i = state.thread.x; i < 128; i += 64) {
        x[256 + i] = (uint16_t)bf16_bits((float)(i * 5 % 19) - 8);
        x[384 + i % 16 * 8 + i / 16] = x[256 + i];
    }
    state.barrier();
    product(arg);
}

START_TEST(fragments_are_where_they_belong)
{
    float got[2][128];
    void *arg[] = {got[0], got[1]};
    for (state.capability = 80; state.capability <= 90; state.capability += 10) {
        ck_assert_msg(launch(fill_and_multiply, arg, 1024), "%s", state.error);
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < 8; c++) {
                float want = 0;
                for (int k = 0; k < 16; k++)
                    want += (float)((r * 16 + k) * 7 % 23 - 9) * (float)((c * 16 + k) * 5 % 19 - 8);
                ck_assert_float_eq(got[0][r * 8 + c], want);
                ck_assert_float_eq(got[1][r * 8 + c], want);
            }
    }
    ck_assert(!launch(product, arg, 512));
    ck_assert_str_eq(state.error, "ldmatrix of address 512 of 512");
}
END_TEST

/* Sets x[3] of x = arg[0] to c plus the sum of 16 products a * b, with a, b, c = x[0], x[1], x[2]. */
static void repeat(void *const *arg)
{
    const float *x = arg[0];
    uint32_t a = bf16_bits(x[0]) * 0x10001, b = bf16_bits(x[1]) * 0x10001;
    WarpMma in = {{a, a, a, a}, {b, b}, {x[2], x[2], x[2], x[2]}};
    float c[4];
    ck_assert_float_eq(bf16_value(bf16_bits(x[0])), x[0]);
    state.warp(WARP_MMA_BF16, &in, sizeof in, c, sizeof c);
    ((float *)arg[0])[3] = c[0];
}

START_TEST(sums_are_cut_as_on_the_device)
{
    static const struct {
        float a, b, c, a100, h100;
    } want[] = {{0x1p-12f, 0x1p-12f, 1, 1 + 0x1p-20f, 1 + 0x1p-20f},
                {0x1p-12f, 0x1p-13f, 1, 1, 1 + 0x1p-21f}, /* the H100 keeps one bit more */
                {0x1p-13f, 0x1p-13f, 1, 1, 1},
                {0x1p-12f, -0x1p-12f, 1, 1 - 0x1p-20f, 1 - 0x1p-20f},
                {1, 1, 0x1p-40f, 16, 16},
                {0, INFINITY, 1, NAN, NAN},
                {-2, INFINITY, 1, -INFINITY, -INFINITY}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (state.capability = 80; state.capability <= 90; state.capability += 10) {
            float x[4] = {want[i].a, want[i].b, want[i].c, -1};
            void *arg[] = {x};
            float w = state.capability == 80 ? want[i].a100 : want[i].h100;
            ck_assert(launch(repeat, arg, 0));
            ck_assert_msg(x[3] == w || (isnan(w) && isnan(x[3])), "%zu: %a, not %a", i, (double)x[3],
                          (double)w);
        }
}
END_TEST

/* ---- copies that land later ---------------------------------------------------------------------- */

static void copies(void *const *arg)
{
    const float *from = (const float *)arg[0] + 4 * state.thread.x;
    float *to = (float *)(void *)state.shared + 8 * state.thread.x;
    float *seen = (float *)arg[1] + 8 * state.thread.x;
    state.copy(to, from, 16, 16);
    state.copy_commit();
    state.copy(to + 4, from, 16, 8);
    state.copy_wait(0); /* the second copy is in no group yet */
    seen[0] = to[0], seen[1] = to[4];
    state.copy_commit();
    state.copy_wait(1);
    seen[2] = to[4];
    state.copy_wait(0);
    memcpy(seen + 3, to + 3, 5 * sizeof *to);
}

static void copies_badly(void *const *arg)
{
    const char *from = arg[0];
    const int64_t *how = arg[1];
    state.copy(state.shared + how[0], from + how[1], 16, (int)how[2]);
}

START_TEST(copies_land_when_they_are_waited_for)
{
    static _Alignas(16) float from[256], seen[512];
    void *arg[] = {from, seen};
    for (int i = 0; i < 256; i++)
        from[i] = (float)i;
    ck_assert_msg(launch(copies, arg, 2048), "%s", state.error);
    for (int t = 0; t < 64; t++) {
        const float *s = seen + 8 * t, f = (float)(4 * t);
        ck_assert(s[0] == f && isnan(s[1]) && isnan(s[2]));
        ck_assert(s[3] == f + 3 && s[4] == f && s[5] == f + 1 && s[6] == 0 && s[7] == 0);
    }
    static const struct {
        int64_t how[3];
        const char *why;
    } bad[] = {{{2040, 0, 16}, "a copy leaves shared memory"},
               {{8, 0, 16}, "a copy of 16 bytes is not aligned"},
               {{0, 4, 16}, "a copy of 16 bytes is not aligned"},
               {{0, 0, 20}, "a copy of 20 bytes to 16, behind 0 others"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *wrong[] = {from, (void *)(uintptr_t)bad[i].how};
        ck_assert(!launch(copies_badly, wrong, 2048));
        ck_assert_str_eq(state.error, bad[i].why);
    }
}
END_TEST

/* ---- products of warpgroups ---------------------------------------------------------------------- */

enum { SIDE = 64, STEP = 16, RIGHT_AT = 8192, GROUP_BYTES = 16384 };

typedef struct {
    unsigned width; /* of the swizzle, in bytes: 32, 64 or 128 */
    bool left;      /* a in registers, b [STEP, SIDE] in memory; else both in memory, b transposed */
    enum { GOOD, UNFENCED, NO_COMMIT, NO_WAIT, APART, TOUCHED, WRITTEN, HIDDEN } how;
} GroupCase;

/* Returns the offset in bytes of element [r][c] of a swizzled matrix with so many rows. */
static unsigned swizzled(unsigned width, unsigned rows, unsigned r, unsigned c)
{
    unsigned panel = c / (width / 2), chunk = c % (width / 2) / 8, line = (panel * rows + r) * width;
    return line + (chunk ^ (line / 128 % (width / 16))) * 16 + c % 8 * 2;
}

static uint64_t descriptor(unsigned width, unsigned rows, unsigned at)
{
    uint64_t mode = width == 128 ? 1 : width == 64 ? 2 : 3;
    return at / 16 | (uint64_t)(rows * width / 16) << 16 | (uint64_t)(8 * width / 16) << 32 | mode << 62;
}

static float left_value(unsigned r, unsigned k) { return (float)((r * 7 + k * 3) % 23) - 9; }
static float right_value(unsigned k, unsigned c) { return (float)((c * 5 + k * 11) % 19) - 8; }

static void put(unsigned at, float x)
{
    uint16_t v = (uint16_t)bf16_bits(x);
    state.access(state.shared + at, sizeof v, true);
    memcpy(state.shared + at, &v, sizeof v);
}

static void fill(const GroupCase *x)
{
    for (unsigned i = state.thread.x; i < SIDE * STEP; i += 128) {
        const unsigned n = i / STEP, k = i % STEP;
        put(swizzled(x->width, SIDE, n, k), left_value(n, k));
        put(RIGHT_AT + (x->left ? swizzled(x->width, STEP, k, n) : swizzled(x->width, SIDE, n, k)),
            right_value(k, n));
    }
    if (x->how != HIDDEN)
        state.fence();
    state.barrier();
}

static void wait_for(int groups)
{
    WarpWgmma in = {.n = groups};
    state.warp(WARP_WGMMA_WAIT, &in, sizeof in, NULL, 0);
}

/* Writes a b, 64 x 64, to arg[0], or makes the mistake that the case arg[1] names. */
static void warpgroup(void *const *arg)
{
    const GroupCase *x = arg[1];
    const unsigned t = state.thread.x, g = t / 32 * 16 + t % 32 / 4, k = t % 4 * 2;
    float c[SIDE / 2];
    fill(x);
    WarpWgmma in = {.c = c, .n = SIDE, .in_registers = x->left, .b = descriptor(x->width, SIDE, RIGHT_AT)};
    in.a = x->left ? 0 : descriptor(x->width, SIDE, 0);
    if (x->left)
        in.b = descriptor(x->width, STEP, RIGHT_AT);
    for (unsigned i = 0; i < 8 && x->left; i++) {
        const unsigned row = g + 8 * (i >> 1 & 1), column = k + (i & 1) + 8 * (i >> 2);
        in.left[i / 2] |= bf16_bits(left_value(row, column)) << 16 * (i & 1);
    }
    if (x->how == APART && t / 32 == 3)
        in.a += 64;
    if (x->how != UNFENCED)
        state.warp(WARP_WGMMA_FENCE, NULL, 0, NULL, 0);
    state.warp(WARP_WGMMA, &in, sizeof in, NULL, 0);
    if (x->how != NO_COMMIT)
        state.warp(WARP_WGMMA_COMMIT, NULL, 0, NULL, 0);
    wait_for(1);
    ck_assert(isnan(c[0]) && isnan(c[SIDE / 2 - 1]));
    if (x->how == TOUCHED)
        state.access(&c[3], sizeof *c, false);
    if (x->how == WRITTEN && t == 0)
        put(RIGHT_AT, 0);
    if (x->how != NO_WAIT)
        wait_for(0);
    for (unsigned i = 0; i < SIDE / 2 && x->how == GOOD; i++)
        ((float *)arg[0])[(g + 8 * (i >> 1 & 1)) * SIDE + i / 4 * 8 + k + (i & 1)] = c[i];
}

static bool launch_group(float *got, const GroupCase *x)
{
    void *arg[] = {got, (void *)(uintptr_t)x};
    state.capability = 90;
    return fiber_launch(&state, warpgroup, arg, 1, 128, GROUP_BYTES, 5);
}

START_TEST(warpgroups_multiply_what_lies_swizzled)
{
    static float got[SIDE * SIDE];
    for (unsigned i = 0; i < 6; i++) {
        const GroupCase x = {32u << i / 2, i % 2, GOOD};
        ck_assert_msg(launch_group(got, &x), "%s", state.error);
        for (unsigned at = 0; at < SIDE * SIDE; at++) {
            float want = 0;
            for (unsigned k = 0; k < STEP; k++)
                want += left_value(at / SIDE, k) * right_value(k, at % SIDE);
            ck_assert_msg(got[at] == want, "%u: %u: %g, not %g", i, at, (double)got[at], (double)want);
        }
    }
}
END_TEST

START_TEST(warpgroups_wait_for_their_products)
{
    static const char *const why[] = {[UNFENCED] = "a product of registers without a fence",
                                      [NO_COMMIT] = "nobody waits for a product",
                                      [NO_WAIT] = "nobody waits for a product",
                                      [APART] = "warps of a warpgroup do not do the same",
                                      [TOUCHED] = "a product is not waited for",
                                      [WRITTEN] = "a race for shared memory with a product",
                                      [HIDDEN] = "a product reads what no fence shows it"};
    static float got[SIDE * SIDE];
    shadow_add(got, sizeof got, SHADOW_GLOBAL);
    GroupCase x = {128, false, GOOD};
    ck_assert_msg(launch_group(got, &x), "%s", state.error);
    for (x.how = UNFENCED; x.how <= HIDDEN; x.how++) {
        ck_assert(!launch_group(got, &x));
        ck_assert_msg(strstr(state.error, why[x.how]), "%s", state.error);
    }
    shadow_remove(got);
}
END_TEST

Suite *suite_shim(void)
{
    Suite *s = suite_create("shim");
    TCase *t = tcase_create("shim");
    tcase_add_test(t, shuffles_and_finds_divergence);
    tcase_add_test(t, waits_alone_are_found);
    tcase_add_test(t, fragments_are_where_they_belong);
    tcase_add_test(t, sums_are_cut_as_on_the_device);
    tcase_add_test(t, copies_land_when_they_are_waited_for);
    tcase_add_test(t, warpgroups_multiply_what_lies_swizzled);
    tcase_add_test(t, warpgroups_wait_for_their_products);
    suite_add_tcase(s, t);
    return s;
}
