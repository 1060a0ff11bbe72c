/* test_pack.c -- the static memory allocator: its arenas against those of brute force, the check of offsets
 * by pack_verify, and `ckc pack`. */
#include "tests.h"
#include "command.h"
#include "passes/plan/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* ---- brute force ------------------------------------------------------------------- */

enum { SMALL = 7 };

static bool live_together(const PackBuffer *a, const PackBuffer *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

/* Returns the lowest multiple of align at which b overlaps none of the first n of `placed`. */
static int64_t lowest_offset(const PackBuffer *placed, int n, const PackBuffer *b,
                             int64_t align)
{
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        const PackBuffer *p = &placed[k];
        if (live_together(p, b) && p->offset < at + b->size && at < p->offset + p->size) {
            at = (p->offset + p->size + align - 1) / align * align;
            k = -1; /* look at all again */
        }
    }
    return at;
}

/* Returns the bytes of the least arena for n buffers, of which the first `placed` lie in `arena` bytes: tries
 * all orders of the others, each buffer at its lowest offset, of which one reaches the least arena. */
static int64_t least_arena(PackBuffer *b, int placed, int n, int64_t align, int64_t arena)
{
    if (placed == n)
        return arena;
    int64_t best = INT64_MAX;
    for (int k = placed; k < n; k++) {
        PackBuffer chosen = b[k], displaced = b[placed];
        b[k] = displaced;
        b[placed] = chosen;
        b[placed].offset = lowest_offset(b, placed, &chosen, align);
        int64_t end = b[placed].offset + chosen.size;
        int64_t a = least_arena(b, placed + 1, n, align, end > arena ? end : arena);
        best = a < best ? a : best;
        b[placed] = displaced;
        b[k] = chosen;
    }
    return best;
}

static int random_buffers(PackBuffer *b, int64_t align, int fixed)
{
    int n = 2 + (int)random_below(SMALL - 1);
    int steps = 2 + (int)random_below(8);
    int64_t floor = 0;
    for (int i = 0; i < n; i++) {
        int32_t lower = (int32_t)random_below((uint32_t)steps);
        int32_t upper = lower + 1 + (int32_t)random_below((uint32_t)(steps - lower));
        b[i] = (PackBuffer){1 + random_below(40), lower, upper, -1};
        if (i < fixed) {
            b[i].size *= align;
            b[i].offset = floor + random_below(3) * align;
            floor = b[i].offset + b[i].size;
        }
    }
    return n;
}

static void check_optimum(int64_t align, int fixed)
{
    PackBuffer b[SMALL], copy[SMALL];
    int n = random_buffers(b, align, fixed);
    fixed = fixed < n ? fixed : n;
    memcpy(copy, b, sizeof b);
    int64_t arena = 0;
    for (int i = 0; i < fixed; i++)
        arena = b[i].offset + b[i].size > arena ? b[i].offset + b[i].size : arena;
    int64_t best = least_arena(copy, fixed, n, align, arena);
    PackResult r;
    char err[PACK_ERR_SIZE];
    memcpy(copy, b, sizeof b);
    ck_assert_msg(pack_solve(b, n, &(PackOptions){.align = align}, &r, err), "%s", err);
    ck_assert_msg(pack_verify(b, n, r.arena, err), "%s", err);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(b[i].offset % align, 0);
        if (i < fixed)
            ck_assert_int_eq(b[i].offset, copy[i].offset);
    }
    ck_assert_int_le(r.bound, best);
    ck_assert_int_le(r.max_load, r.bound);
    if (align == 1)
        ck_assert_int_eq(r.arena, best);
    else /* the last unit may be partly filled: optimal up to that */
        ck_assert_int_eq((r.arena + align - 1) / align, (best + align - 1) / align);
}

START_TEST(test_optimum)
{
    random_state = (uint64_t)_i;
    for (int k = 0; k < 60; k++) {
        check_optimum(1, 0);
        check_optimum(16, 0);
        check_optimum(1, 2);
        check_optimum(8, 1);
    }
}
END_TEST

/* ---- the referee ------------------------------------------------------------------- */

START_TEST(test_verify)
{
    char err[PACK_ERR_SIZE];
    PackBuffer b[] = {{10, 0, 4, 0}, {10, 4, 6, 5}, {20, 2, 5, 15}, {0, 0, 9, 3}};
    ck_assert_msg(pack_verify(b, 4, 35, err), "%s", err);
    ck_assert_int_eq(pack_max_load(b, 4), 30);
    b[3].offset = 40; /* no bytes are nowhere outside */
    ck_assert_msg(pack_verify(b, 4, 35, err), "%s", err);
    ck_assert(!pack_verify(b, 4, 34, err)); /* buffer 2 ends outside */
    ck_assert(strstr(err, "buffer 2"));
    b[2].offset = 14; /* buffer 2 overlaps the end of buffer 1; both live at step 4 */
    ck_assert(!pack_verify(b, 4, 35, err));
    ck_assert(strstr(err, "buffers 2") && strstr(err, "and 1"));
    b[2].offset = -1;
    ck_assert(!pack_verify(b, 4, 35, err));
    ck_assert(pack_verify(NULL, 0, 0, err));
}
END_TEST

/* pack_verify, which sweeps over the steps, agrees with a comparison of all pairs on random placements. */
START_TEST(test_verify_pairs)
{
    random_state = (uint64_t)_i + 1000;
    for (int round = 0; round < 500; round++) {
        PackBuffer b[12];
        int n = 2 + (int)random_below(11);
        bool clash = false;
        for (int i = 0; i < n; i++) {
            int32_t lower = (int32_t)random_below(20);
            b[i] = (PackBuffer){random_below(8), lower,
                                lower + 1 + (int32_t)random_below(6), random_below(60)};
            for (int j = 0; j < i; j++)
                clash |= live_together(&b[i], &b[j]) &&
                         b[i].offset < b[j].offset + b[j].size &&
                         b[j].offset < b[i].offset + b[i].size && b[i].size && b[j].size;
        }
        char err[PACK_ERR_SIZE];
        ck_assert_int_eq(pack_verify(b, n, 100, err), !clash);
    }
}
END_TEST

/* ---- options and errors ------------------------------------------------------------ */

START_TEST(test_off_grid)
{
    char err[PACK_ERR_SIZE];
    PackResult r;
    PackBuffer b[] = {{10, 0, 9, 60}, {7, 0, 9, 70}, {100, 1, 4, -1},
                      {30, 2, 6, -1}, {0, 0, 1, -1}, {0, 0, 1, 999}};
    ck_assert_msg(pack_solve(b, 6, &(PackOptions){.align = 64}, &r, err), "%s", err);
    ck_assert_msg(pack_verify(b, 6, r.arena, err), "%s", err);
    ck_assert_int_eq(b[0].offset, 60);
    ck_assert_int_eq(b[1].offset, 70);
    ck_assert_int_eq(b[2].offset % 64, 0);
    ck_assert_int_eq(b[3].offset % 64, 0);
    ck_assert_int_le(r.bound, r.arena);
}
END_TEST

START_TEST(test_capacity)
{
    char err[PACK_ERR_SIZE];
    PackResult r;
    PackBuffer b[] = {{100, 0, 2, -1}, {50, 1, 3, -1}, {100, 2, 4, -1}};
    ck_assert(pack_solve(b, 3, &(PackOptions){.capacity = 150}, &r, err));
    ck_assert(r.fits && r.arena == 150 && r.max_load == 150);
    for (int i = 0; i < 3; i++)
        b[i].offset = -1;
    ck_assert(pack_solve(b, 3, &(PackOptions){.capacity = 149}, &r, err));
    ck_assert(!r.fits && r.arena == 150 && r.bound == 150);
    ck_assert(pack_solve(NULL, 0, NULL, &r, err));
    ck_assert(r.fits && r.arena == 0);
}
END_TEST

START_TEST(test_invalid)
{
    static const PackBuffer cases[][2] = {
        {{-1, 0, 1, -1}, {1, 0, 1, -1}},
        {{1, 1, 1, -1}, {1, 0, 1, -1}},
        {{1, 0, 1, -2}, {1, 0, 1, -1}},
        {{8, 0, 2, 0}, {8, 1, 3, 7}},
        {{INT64_MAX, 0, 2, -1}, {INT64_MAX, 1, 3, -1}},
        {{8, 0, 2, INT64_MAX - 1}, {8, 1, 3, -1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        PackBuffer b[2];
        char err[PACK_ERR_SIZE] = "";
        PackResult r;
        memcpy(b, cases[k], sizeof b);
        ck_assert_msg(!pack_solve(b, 2, NULL, &r, err), "case %zu", k);
        ck_assert(err[0]);
        ck_assert_int_eq(memcmp(b, cases[k], sizeof b), 0);
    }
}
END_TEST

/* Buffers that tile a square without waste are packed without waste, with the same offsets every time. */
START_TEST(test_tiling)
{
    enum { SIDE = 64, PARTS = 60 };
    PackBuffer b[PARTS + 1] = {{SIDE, 0, SIDE, -1}}, again[PARTS + 1];
    int n = 1;
    random_state = (uint64_t)_i + 7;
    while (n < PARTS) {
        PackBuffer *p = &b[random_below((uint32_t)n)];
        if (random_below(2) && p->size > 1) {
            int64_t part = 1 + random_below((uint32_t)(p->size - 1));
            b[n++] = (PackBuffer){p->size - part, p->lower, p->upper, -1};
            p->size = part;
        } else if (p->upper - p->lower > 1) {
            int32_t at =
                p->lower + 1 + (int32_t)random_below((uint32_t)(p->upper - p->lower - 1));
            b[n++] = (PackBuffer){p->size, at, p->upper, -1};
            p->upper = at;
        }
    }
    memcpy(again, b, sizeof b);
    char err[PACK_ERR_SIZE];
    PackResult r;
    PackOptions opt = {.max_steps = 200000000, .seed = 5};
    ck_assert(pack_solve(b, n, &opt, &r, err));
    ck_assert_msg(pack_verify(b, n, r.arena, err), "%s", err);
    ck_assert_int_eq(r.arena, SIDE);
    ck_assert(pack_solve(again, n, &opt, &r, err));
    ck_assert_int_eq(memcmp(b, again, (size_t)n * sizeof *b), 0);
}
END_TEST

/* ---- the command ------------------------------------------------------------------- */

START_TEST(test_bad_csv)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", ":1: empty file"},
        {"id,lower,upper\n", ":1: no column named size"},
        {"lower,upper,size,size\n", ":1: two columns named size"},
        {"id,lower,upper,size\n0,1,2\n", ":2: 4 columns expected"},
        {"id,lower,upper,size\n0,1,2,3\n1,1,2,3,4\n", ":3: 4 columns expected"},
        {"id,lower,upper,size\n0,1,2,3x\n", ":2: size '3x' is not a number"},
        {"id,lower,upper,size\n0,1,2,-3\n", ":2: size '-3' is not a number from 0"},
        {"id,lower,upper,size\n0,,2,3\n", ":2: lower '' is not a number"},
        {"id,lower,upper,size\n\n0,2,2,3\n", ":3: lower 2 is not below upper 2"},
        {"lower,upper,size\n0,99999999999999999999,3\n",
         ":2: upper '99999999999999999999'"},
        {"lower,upper,size,offset\n0,1,3,-2\n", ":2: offset '-2' is not a number"},
        {"lower,upper,size,offset\n0,2,3,0\n0,2,3,2\n", "share bytes"},
        {"lower,upper,size\n0,2,9223372036854775807\n", "too many bytes"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_text("in.csv", cases[k].text);
        ckc_refuses("pack in.csv", 1, cases[k].reason);
    }
    write_text("in.csv", "\xEF\xBB\xBFlower,upper,size\n0,1,2\n");
    ckc_accepts("pack in.csv");
    write_bytes("in.csv", "lower,upper,size\n0,1,2\0\n", 24);
    ckc_refuses("pack in.csv", 1, ":2: a NUL byte");
    ckc_refuses("pack /nonexistent.csv", 1, "/nonexistent.csv");
    ckc_refuses("pack /tmp", 1, "/tmp");
}
END_TEST

START_TEST(test_command)
{
    static const char text[] =
        "size, upper,lower,name,id\r\n100,20000000000,10000000000,x,a\r\n"
        "50,30000000000,10000000000,y,b\r\n100,30000000000,20000000000,z,c\r\n";
    char line[3][128];
    write_text("in.csv", text);
    ckc_prints("pack in.csv -o out.csv", "arena 150 bytes, maximum load 150 bytes");
    FILE *f = fopen("out.csv", "r");
    ck_assert(f && fgets(line[0], 128, f) && fgets(line[1], 128, f) &&
              fgets(line[2], 128, f));
    fclose(f);
    ck_assert_str_eq(line[0], "id,lower,upper,size,offset\n");
    ck_assert(strncmp(line[1], "a,10000000000,20000000000,100,", 30) == 0);
    ck_assert(strncmp(line[2], "b,10000000000,30000000000,50,", 29) == 0);
    ckc_prints("pack in.csv --json", "\"arena\": 150");
    ckc_prints("pack in.csv --json", "\"fits\": true");
    ck_assert_int_eq(ckc("pack in.csv --capacity 149"), 3);
    ck_assert_int_eq(shell("grep -q 'does not fit 149 bytes: nothing does' out"), 0);
    ckc_refuses("pack in.csv --capacity many", 1, "--capacity: 'many' is not a number");
    ckc_refuses("solve in.dag --moves many", 1, "--moves: 'many' is not a number");
    ckc_refuses("solve in.dag", 1, "--budget is missing");
    ckc_refuses("solve in.dag --nonsense", 1, "--nonsense");
    ckc_refuses("pack in.csv -o /no/such/out.csv", 1, "/no/such/out.csv");
}
END_TEST

/* ---- published instances ----------------------------------------------------------- */

/* Each published instance fits its capacity or, without one, has an arena at most `percent` above the maximum
 * load. */
START_TEST(test_published)
{
    static const struct {
        const char *name, *capacity;
        double percent;
    } cases[] = {
        {"minimalloc_A", "1048576", 0}, {"minimalloc_B", "1048576", 0},
        {"minimalloc_C", "1048576", 0}, {"minimalloc_E", "1048576", 0},
        {"minimalloc_G", "1048576", 0}, {"G_1", NULL, 0.5},
        {"resnet50", NULL, 0.5},        {"S_1", NULL, 0.5},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *path = shared_path(format("bench/dsa/%s.csv", cases[k].name));
        if (!path)
            return;
        const char *capacity = cases[k].capacity;
        ckc_accepts(capacity ? format("pack '%s' --capacity %s", path, capacity) : format("pack '%s'", path));
        char *out = read_text("out"), *over = strstr(out, "(+");
        ck_assert_ptr_nonnull(over);
        if (!capacity)
            ck_assert_msg(strtod(over + 2, NULL) <= cases[k].percent, "%s: %s", cases[k].name, out);
        free(out);
    }
}
END_TEST

Suite *suite_pack(void)
{
    Suite *s = suite_create("pack");
    TCase *solver = tcase_create("solver");
    tcase_add_loop_test(solver, test_optimum, 0, 4);
    tcase_add_test(solver, test_off_grid);
    tcase_add_test(solver, test_capacity);
    tcase_add_test(solver, test_invalid);
    tcase_add_loop_test(solver, test_tiling, 0, 4);
    suite_add_tcase(s, solver);
    TCase *referee = tcase_create("referee");
    tcase_add_test(referee, test_verify);
    tcase_add_loop_test(referee, test_verify_pairs, 0, 4);
    suite_add_tcase(s, referee);
    TCase *command = tcase_create("command");
    tcase_add_checked_fixture(command, make_folder, remove_folder);
    tcase_add_test(command, test_bad_csv);
    tcase_add_test(command, test_command);
    tcase_add_test(command, test_published);
    suite_add_tcase(s, command);
    return s;
}
