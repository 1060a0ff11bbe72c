/* test_compare.c -- ckc compare, named policies and the search in one table; and options of ckc solve. */
#include "tests.h"
#include "command.h"
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"
#define TRACE CKC_SOURCE_DIR "/examples/trace4/trace4.dag"

static double number(json_t *row, const char *key)
{
    json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* The JSON of ckc compare with these arguments; the caller releases it. */
static json_t *compare(const char *args)
{
    ckc_accepts(format("compare %s --json", args));
    return read_json("out");
}

static json_t *row_of(json_t *table, size_t i)
{
    json_t *row = json_array_get(json_object_get(table, "policies"), i);
    ck_assert_ptr_nonnull(row);
    return row;
}

/* Peaks and recomputations of the four-layer trace are those counted by hand (examples/trace4/README.md). */
START_TEST(four_layers_by_hand)
{
    static const struct {
        const char *policy;
        int peak, redone;
    } trace[] = {{"keep-all", 18, 0},     {"every-1", 9, 4},        {"every-2", 11, 4},
                 {"segments=1-2", 11, 2}, {"segments=1,2,3", 9, 3}, {"segments=1,3", 12, 2},
                 {"segments=1-4", 18, 4}};
    enum { N = sizeof trace / sizeof *trace };
    char args[600] = TRACE;
    for (int i = 0; i < N; i++)
        strcat(strcat(args, " --policy "), trace[i].policy);
    json_t *table = compare(strcat(args, " --policy ckc --moves 10000"));
    for (size_t i = 0; i < N; i++) {
        json_t *row = row_of(table, i);
        ck_assert_str_eq(json_string_value(json_object_get(row, "policy")), trace[i].policy);
        ck_assert_int_eq((int)number(row, "peak_bytes"), trace[i].peak);
        ck_assert_int_eq((int)number(row, "redone"), trace[i].redone);
        ck_assert_int_eq((int)number(row, "cost"), 12 + trace[i].redone);
        ck_assert(json_is_true(json_object_get(row, "fits")) == (trace[i].peak <= 9));
    }
    json_t *ckc = row_of(table, N);
    ck_assert_int_eq((int)number(ckc, "peak_bytes"), 9);
    ck_assert_int_eq((int)number(ckc, "cost"), 15);
    ck_assert(number(ckc, "gap") == 0);
    json_decref(table);
}
END_TEST

/* The field `layer` of an instance decides what its layers are: here two, of two operators each. */
START_TEST(layers_by_field)
{
    char *text = read_text(TRACE), *to = NULL;
    size_t size;
    FILE *f = open_memstream(&to, &size);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        int n = (int)strcspn(line, "\n#"), layer = *line >= '1' && *line <= '4' ? (*line - '1') / 2 + 1 : 0;
        fprintf(f, "%.*s", n, line);
        fprintf(f, layer ? " layer=%d\n" : "\n", layer);
    }
    fclose(f);
    write_text("two.dag", to);
    json_t *table = compare("two.dag --policy every-1 --policy segments=2");
    ck_assert_int_eq((int)number(row_of(table, 0), "peak_bytes"), 11);
    ck_assert_int_eq((int)number(row_of(table, 1), "redone"), 2);
    ckc_refuses("compare two.dag --policy segments=3", 1, "does not suit 2 layers");
    json_decref(table);
    free(text);
    free(to);
}
END_TEST

/* The layers of ResNet-18 are its eight numbered blocks; operators before and after them are in no layer. */
START_TEST(layers_by_name)
{
    const char *args = "compare " CKC_SOURCE_DIR
                       "/examples/resnet18/model.onnx --bind batch=2 --device h200 --policy segments=%s";
    ckc_accepts(format(args, "1-8"));
    ckc_refuses(format(args, "1-9"), 1, "does not suit 8 layers");
}
END_TEST

/* Checks that all lines but the first are shorter than 80 columns. */
static void is_narrow(const char *text)
{
    for (const char *line = strchr(text, '\n') + 1; *line; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") < 80, "%.90s", line);
}

START_TEST(table_is_narrow)
{
    ckc_accepts("compare " TRACE " --budget 60% --moves 10000");
    char *text = read_text("out");
    is_narrow(text);
    ckc_accepts("solve " TRACE " --budget 60% --policy all --moves 10000");
    char *same = read_text("out");
    ck_assert_str_eq(text, same);
    free(text);
    free(same);
    write_text("w.dag", "loss 2\n1 300000000000000 10\n2 1000000000000 10 1\n3 3000000000000 1 2\n"
                        "4 3000000000000 1 3 1\n");
    ckc_accepts("compare w.dag --budget 20B");
    text = read_text("out");
    is_narrow(text);
    ck_assert_msg(strstr(text, " 6.07000e+14  +97.72 %") != NULL, "%s", text);
    free(text);
}
END_TEST

/* The plans of one comparison do not influence each other: a policy named twice has the same row twice, and
 * the search's row is that of ckc plan. */
START_TEST(plans_are_apart)
{
    json_t *table = compare(MLP " --bind batch=256 --device fake --budget 85% --policy every-2 --policy ckc "
                                "--policy keep-all --policy every-2 --policy ckc");
    ck_assert(json_equal(row_of(table, 0), row_of(table, 3)));
    ck_assert(json_equal(row_of(table, 1), row_of(table, 4)));
    json_t *ckc = row_of(table, 1), *all = row_of(table, 2);
    ck_assert(number(ckc, "redone") > 0 && number(all, "redone") == 0);
    ck_assert(number(ckc, "predicted_ms") > number(all, "predicted_ms"));
    ck_assert(number(ckc, "predicted_ms") >= number(table, "bound_ms"));
    ck_assert(number(ckc, "peak_bytes") <= number(table, "budget_bytes"));
    ckc_accepts("plan " MLP " --bind batch=256 --device fake --budget 85% -o m.ckc");
    json_t *report = read_json("m.ckc/report.json");
    ck_assert(number(report, "arena_bytes") + number(report, "reserved_bytes") == number(ckc, "peak_bytes"));
    ck_assert(fabs(number(report, "predicted_ms") / number(ckc, "predicted_ms") - 1) < 1e-6);
    json_decref(report);
    json_decref(table);
}
END_TEST

START_TEST(what_fits_is_measured)
{
    json_t *table =
        compare(MLP " --bind batch=8 --device cpu --budget 100% --measure --policy ckc --policy dtr");
    for (size_t i = 0; i < 2; i++)
        ck_assert(number(row_of(table, i), "measured_ms") > 0);
    json_decref(table);
    ckc_refuses("compare " MLP " --bind batch=8 --device h200 --measure", 1, "--measure");
}
END_TEST

static bool runs_kernels(pid_t pid)
{
    char line[PATH_MAX + 100];
    bool found = false;
    FILE *f = fopen(format("/proc/%d/maps", (int)pid), "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, getenv("XDG_CACHE_HOME")) != NULL;
    if (f)
        fclose(f);
    return found;
}

/* SIGINT ends a comparison at once: there is no result that is worth waiting for. */
START_TEST(interrupted)
{
    char args[4000] = "compare " MLP " --bind batch=8 --device cpu --budget 100% --measure";
    ckc_accepts(format("%s --policy keep-all", args)); /* fills the cache with all that planning needs */
    while (strlen(args) < sizeof args - 100)
        strcat(args, " --policy keep-all");
    pid_t pid = ckc_start("", args);
    for (int i = 0; i < 6000 && !runs_kernels(pid); i++)
        usleep(10000);
    kill(pid, SIGINT);
    ckc_ends(pid, 130, "ended by SIGINT");
}
END_TEST

/* A policy that cannot meet the budget has a row as well, with the reason. */
START_TEST(no_plan_is_a_row)
{
    json_t *table = compare(MLP " --bind batch=8 --device fake --budget 100% --policy ckc");
    ck_assert(json_is_true(json_object_get(row_of(table, 0), "fits")));
    json_decref(table);
    table = compare(MLP " --bind batch=8 --device fake --budget 40% --policy ckc");
    ck_assert_ptr_nonnull(
        strstr(json_string_value(json_object_get(row_of(table, 0), "reason")), "cannot be met"));
    json_decref(table);
}
END_TEST

START_TEST(policies_that_are_none)
{
    ckc_refuses("compare " TRACE " --policy every-0", 1, "every-0");
    ckc_refuses("compare " TRACE " --policy every-", 1, "none of keep-all");
    ckc_refuses("compare " TRACE " --policy segments=2-1", 1, "does not suit 4 layers");
    ckc_refuses("compare " TRACE " --policy segments=1,1", 1, "does not suit 4 layers");
    ckc_refuses("compare " TRACE " --policy segments=1-5", 1, "does not suit 4 layers");
    ckc_refuses("compare " TRACE " --policy ratio=2", 1, "does not suit");
    ckc_refuses("compare " TRACE " --policy ratio=x", 1, "does not suit");
    ckc_refuses("compare " MLP " --bind batch=8 --policy sleective", 1, "did you mean 'selective'?");
    ckc_refuses("compare", 1, "no model");
    ckc_refuses("compare missing.dag", 1, "missing.dag");
    ckc_refuses("compare " TRACE " --measure", 1, "--measure needs a model");
    ckc_refuses("compare " TRACE " --gap 1 --lr 0.1 --seed 2", 1, "--lr needs a model");
    write_text("empty.dag", "# of nothing\n");
    ckc_refuses("compare empty.dag", 1, "empty.dag: has no operators");
}
END_TEST

/* The gap is the one to the bound for the budget, of a named policy and in a row of budgets as well: a larger
 * budget's bound, which here reaches a smaller one's cost, makes that optimal. */
START_TEST(solve_tells_what_is_optimal)
{
    write_text("a.dag", "0 10 100\n1 10 100 0\n2 10 100 1\n3 10 100 2\n4 20 100 3 2\n5 20 100 4 1\n"
                        "6 20 50 5 0 ; keep\n");
    ckc_prints("solve a.dag --budget 400 --policy dtr",
               "cost 110 (+10.0000 %), bound +10.0000 %, gap 0.0000 % "
               "(optimal)");
    ckc_prints("solve a.dag --budget 400 --policy every-2", "bound +10.0000 %, gap 18.1818 %, ");
    ckc_accepts("solve a.dag --pareto 4 --moves 1000 --json");
    json_t *all = read_json("out"), *r;
    size_t i;
    ck_assert_uint_eq(json_array_size(all), 4);
    json_array_foreach(all, i, r)
    {
        bool reached = number(r, "cost") <= number(r, "bound");
        ck_assert_msg(json_is_true(json_object_get(r, "proved_optimal")) == reached, "%zu", i);
    }
    json_decref(all);
}
END_TEST

/* A budget in percent refers to the instance's `whole`, even if its given order holds less; options that ask
 * for several schedules exclude each other. */
START_TEST(solve_answers_one_question)
{
    write_text("w.dag", "persistent 10\nwhole 200\nloss 1\n0 10 50 ;\n1 10 50 0 ;\n2 10 50 1 0 ; keep\n");
    ckc_prints("solve w.dag --budget 80%", "budget 160 (80.00 %): cost 30 ");
    ckc_refuses("solve w.dag --budget 80%%", 1, "--budget: '80%%' is no number of bytes, nor a percentage");
    ck_assert_int_eq(ckc("solve w.dag --pareto 2 --budget 50%"), 3);
    ck_assert_int_eq(ckc("solve w.dag --pareto 2 --budget 50% --json"), 3);
    ckc_accepts("solve w.dag --pareto 2 --budget 80%");
    ckc_refuses("solve w.dag --budget 80% --policy all -o s.txt", 1, "--policy all finds several");
    ckc_refuses("solve w.dag --pareto 2 -o s.txt", 1, "--pareto finds several");
    ckc_refuses("solve w.dag --min-budget --pareto 2", 1, "exclude each other");
    ckc_refuses("solve w.dag --min-budget --budget 80% --policy all", 1, "exclude each other");
    ckc_refuses("solve w.dag --pareto 2 --budget 80% --policy dtr", 1, "exclude each other");
    ckc_refuses("solve w.dag --min-budget --budget 80%", 1, "leave that out");
    ckc_accepts("solve w.dag --min-budget");
    ckc_accepts("solve w.dag --policy all --budget 80%");
    ck_assert_int_eq(ckc("solve w.dag --policy all --budget 50%"), 3);
    ckc_accepts("compare w.dag --budget 50%");
}
END_TEST

/* A NUL byte in an instance is refused, since text behind it would be ignored. */
START_TEST(instance_with_a_nul_byte)
{
    write_bytes("nul.dag", "0 1 1\n1 1 1\0 0\n2 1 1 0\n", 23);
    ckc_refuses("solve nul.dag --budget 100%", 1, "nul.dag: line 2: a NUL byte");
    ckc_refuses("compare nul.dag", 1, "nul.dag: line 2: a NUL byte");
}
END_TEST

Suite *suite_compare(void)
{
    Suite *s = suite_create("compare");
    TCase *t = command_case(s, "tables");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, four_layers_by_hand);
    tcase_add_test(t, layers_by_field);
    tcase_add_test(t, layers_by_name);
    tcase_add_test(t, table_is_narrow);
    tcase_add_test(t, plans_are_apart);
    tcase_add_test(t, what_fits_is_measured);
    tcase_add_test(t, interrupted);
    tcase_add_test(t, no_plan_is_a_row);
    tcase_add_test(t, policies_that_are_none);
    tcase_add_test(t, solve_tells_what_is_optimal);
    tcase_add_test(t, solve_answers_one_question);
    tcase_add_test(t, instance_with_a_nul_byte);
    return s;
}
