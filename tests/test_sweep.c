/* test_sweep.c -- ckc sweep: plans at many budgets, and for many sizes of the batch. */
#include "cli/cli.h"
#include "cli/parallel.h"
#include "tests.h"
#include "command.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

static json_t *sweep(const char *args)
{
    ckc_accepts(format("sweep " MLP " --device fake --moves 5000 --json %s", args));
    return read_json("out");
}

START_TEST(less_memory_is_never_faster)
{
    json_t *s = sweep("--bind batch=64 --budgets 5"), *points = json_object_get(s, "points");
    ck_assert_uint_eq(json_array_size(points), 5);
    ck_assert(real_of(json_array_get(points, 0), "budget_bytes") == real_of(s, "keep_all_bytes"));
    ck_assert(real_of(json_array_get(points, 0), "overhead") == 0);
    for (size_t i = 0; i < 5; i++) {
        json_t *p = json_array_get(points, i), *more = json_array_get(points, i ? i - 1 : 0);
        ck_assert(real_of(p, "peak_bytes") <= real_of(p, "budget_bytes"));
        ck_assert(real_of(p, "predicted_ms") >= real_of(more, "predicted_ms"));
        ck_assert(real_of(p, "bound_ms") >= real_of(more, "bound_ms"));
        ck_assert(real_of(p, "predicted_ms") >= real_of(p, "bound_ms") * (1 - 1e-9));
    }
    json_t *last = json_array_get(points, 4);
    ck_assert(real_of(last, "redone") > 0);
    /* The last budget is the least: 1000 bytes less are refused. */
    long long least = (long long)real_of(last, "budget_bytes");
    ckc_refuses(
        format("plan " MLP " --device fake --moves 5000 --bind batch=64 --budget %lldB", least - 1000), 3,
        "cannot be met");
    json_decref(s);
}
END_TEST

static json_t *point_of(json_t *s, int batch)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(s, "points"), i, p) if ((int)real_of(p, "batch") == batch) return p;
    ck_abort_msg("no batch %d", batch);
}

START_TEST(larger_batches)
{
    json_t *s = sweep("--batch 4..64 --budget 65kB --offload no");
    int largest = (int)real_of(s, "largest_batch");
    ck_assert_int_gt(largest, 16);
    ck_assert_int_lt(largest, 32);
    json_t *four = json_object_get(point_of(s, 4), "one_batch"),
           *most = json_object_get(point_of(s, largest), "one_batch");
    ck_assert(real_of(four, "redone") == 0 && real_of(most, "redone") > 0);
    ck_assert(real_of(most, "peak_bytes") <= 65000);
    ck_assert(json_is_null(json_object_get(point_of(s, 32), "one_batch")));
    ck_assert(fabs(real_of(four, "samples_per_second") * real_of(four, "predicted_ms") / 4000 - 1) < 1e-6);
    ck_assert_str_eq(json_string_value(json_object_get(s, "symbol")), "batch");
    const char *verdict = json_string_value(json_object_get(s, "verdict"));
    ck_assert_msg(strncmp(verdict, "Recomputing for a larger batch pays: batch ", 43) == 0, "%s", verdict);
    json_decref(s);
}
END_TEST

/* Writes the description of a device without a link to the host, whose driver reserves so many bytes. */
static void write_device(const char *name, int reserved)
{
    FILE *f = fopen(name, "w");
    ck_assert(f != NULL);
    fprintf(f,
            "device plain \"plain\"\nmemory 1 GB\nvector f32 10 GFLOP/s\n"
            "matrix f32 50 GFLOP/s\nmemory_bandwidth 10 GB/s\nlaunch 1 us\n%s",
            reserved ? format("reserved %d B\n", reserved) : "");
    ck_assert_int_eq(fclose(f), 0);
}

/* Bytes that a driver reserves count once: a sweep whose budget includes them has the verdict of one without,
 * and a plan at a budget in percent the same arena.  A batch that fits only in micro-batches is drawn. */
START_TEST(micro_batches_alone_fit)
{
    enum { RESERVED = 100000, ROOM = 110000 };
    char verdict[200] = "";
    double arena = 0;
    for (int with = 0; with < 2; with++) {
        write_device("device.txt", with * RESERVED);
        ckc_accepts(format("sweep " MLP
                           " --device device.txt --moves 5000 --json --batch 256..256 --budget %dB "
                           "--plot sweep.svg",
                           ROOM + with * RESERVED));
        json_t *s = read_json("out"), *p = point_of(s, 256), *micro = json_object_get(p, "micro_batches");
        ck_assert(json_is_null(json_object_get(p, "one_batch")));
        ck_assert(json_is_object(micro));
        ck_assert(real_of(micro, "peak_bytes") <= ROOM + with * RESERVED);
        const char *told = json_string_value(json_object_get(s, "verdict"));
        ck_assert(strstr(told, "No batch fits as a whole") != NULL);
        ck_assert(!with || strcmp(told, verdict) == 0);
        snprintf(verdict, sizeof verdict, "%s", told);
        json_decref(s);
        ckc_accepts("train " MLP " --device device.txt --moves 5000 --json --bind batch=256 --budget 45% "
                    "--accumulate auto --steps 0");
        s = read_json("out");
        ck_assert(real_of(s, "accumulate") > 1);
        ck_assert(!with || real_of(s, "arena_bytes") == arena);
        arena = real_of(s, "arena_bytes");
        json_decref(s);
    }
    char *svg = read_text("sweep.svg");
    ck_assert(strstr(svg, "no batch fits as a whole") != NULL);
    free(svg);
}
END_TEST

START_TEST(the_picture_holds_every_point)
{
    write_device("device.txt", 0);
    ckc_accepts("sweep " MLP " --device device.txt --moves 5000 --json --batch 16..128 --budget 90kB "
                "--plot sweep.svg");
    json_t *s = read_json("out");
    ck_assert(json_is_object(json_object_get(point_of(s, 128), "micro_batches")));
    ck_assert(real_of(s, "largest_batch") < 128 && real_of(s, "best_batch") < 128);
    json_decref(s);
    char *svg = read_text("sweep.svg");
    ck_assert(strstr(svg, ">128</text>") != NULL);
    free(svg);
}
END_TEST

START_TEST(nothing_to_recompute)
{
    json_t *s = sweep("--batch 4..8 --budget 100MB");
    ck_assert_int_eq((int)real_of(s, "best_batch"), 8);
    ck_assert(
        strncmp(json_string_value(json_object_get(s, "verdict")), "Nothing has to be recomputed.", 29) == 0);
    json_decref(s);
    ckc_accepts("sweep " MLP " --device fake --batch 4..8 --budget 100MB");
    char *text = read_text("out");
    for (const char *line = strchr(text, '\n') + 1; *line; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 80, "%.90s", line);
    free(text);
}
END_TEST

/* Where kernels were measured, it is printed that others used much of the processors; elsewhere there is
 * nothing to print. */
START_TEST(busy_machine)
{
    char *text;
    size_t size;
    for (int busy = 0; busy < 2; busy++) {
        FILE *f = open_memstream(&text, &size);
        others_print(f, busy ? 0.344 : 0.05);
        fclose(f);
        ck_assert_str_eq(text, busy ? "measured while others used up to 34 % of the processors\n" : "");
        free(text);
    }
    ckc_accepts("sweep " MLP " --device cpu --moves 5000 --json --bind batch=64 --budgets 2");
    json_t *s = read_json("out");
    ck_assert(real_of(s, "others") >= 0 && real_of(s, "others") <= 1);
    json_decref(s);
    s = sweep("--bind batch=64 --budgets 2");
    ck_assert(real_of(s, "others") == 0); /* nothing was measured */
    json_decref(s);
}
END_TEST

START_TEST(what_is_no_sweep)
{
    ckc_refuses("sweep " MLP " --batch 4..8", 1, "needs --budget");
    ckc_refuses("sweep " MLP " --batch 8..4 --budget 1MB", 1, "FROM..TO");
    ckc_refuses("sweep " MLP " --batch 8 --budget 1MB", 1, "FROM..TO");
    ckc_refuses("sweep " MLP " --batch 4..8 --budget 50%", 1, "in bytes");
    ckc_refuses("sweep " MLP " --batch 4..8 --budgets 3 --budget 1MB", 1, "two sweeps");
    ckc_refuses("sweep " MLP " --batch 4..8 --budget 1MB --accumulate 4", 1, "what --batch tries anyway");
    ckc_refuses("sweep " MLP " --budget 1MB", 1, "--batch");
    ckc_refuses("sweep " MLP " --bind batch=4 --batch 4..8 --budget 1MB", 1, "leave it out");
    ckc_refuses("sweep", 1, "no model");
}
END_TEST

typedef struct {
    int64_t square;
    pid_t by;
} Squared;

/* In another process the third call dies. */
static void square(void *user, int i, void *result)
{
    if (i == 2 && getpid() != *(pid_t *)user)
        raise(SIGKILL);
    *(Squared *)result = (Squared){(int64_t)i * i, getpid()};
}

/* Calls run in processes of their own; one that a process does not finish runs here. */
START_TEST(in_processes)
{
    enum { CALLS = 9 };
    Squared out[CALLS];
    pid_t here = getpid();
    for (int apart = 0; apart < 2; apart++) {
        parallel_run(CALLS, apart, square, &here, out, sizeof *out);
        for (int i = 0; i < CALLS; i++) {
            ck_assert_int_eq(out[i].square, i * i);
            ck_assert_int_eq(out[i].by == here, !apart || i == 2);
        }
    }
}
END_TEST

/* Planned side by side, or one by one as --output keeps the plans, budgets have the same plans. */
START_TEST(one_by_one)
{
    json_t *s = sweep("--bind batch=64 --budgets 4"), *kept = sweep("--bind batch=64 --budgets 4 -o kept");
    ck_assert(json_equal(json_object_get(s, "points"), json_object_get(kept, "points")));
    json_decref(s);
    json_decref(kept);
}
END_TEST

Suite *suite_sweep(void)
{
    Suite *s = suite_create("sweep");
    TCase *t = command_case(s, "sweeps");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, less_memory_is_never_faster);
    tcase_add_test(t, larger_batches);
    tcase_add_test(t, micro_batches_alone_fit);
    tcase_add_test(t, the_picture_holds_every_point);
    tcase_add_test(t, nothing_to_recompute);
    tcase_add_test(t, busy_machine);
    tcase_add_test(t, what_is_no_sweep);
    tcase_add_test(t, in_processes);
    tcase_add_test(t, one_by_one);
    return s;
}
