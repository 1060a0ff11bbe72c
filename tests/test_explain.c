/* test_explain.c -- ckc explain, whose numbers are those of the plan, and ckc oom, whose proposals fit. */
#include "tests.h"
#include "command.h"
#include <stdlib.h>
#include <string.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"
#define STEP MLP " --bind batch=64 --device fake --moves 5000 "

static const char *string(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    ck_assert_msg(s, "no text '%s'", key);
    return s;
}

static void narrow(const char *path)
{
    char *text = read_text(path);
    const char *line = text + strcspn(text, "\n");
    for (; *line; line += strcspn(line, "\n"))
        ck_assert_msg(strcspn(++line, "\n") <= 80, "%.90s", line);
    free(text);
}

/* ---- ckc explain ------------------------------------------------------------------------------- */

/* Kept and recomputed results add up to all results, in the numbers, bytes and times of the plan's report. */
START_TEST(every_result_has_a_fate)
{
    ckc_accepts("plan " STEP "--budget 75% --offload no --json -o p");
    json_t *plan = read_json("out");
    ckc_accepts("explain " STEP "--budget 75% --offload no --json");
    json_t *e = read_json("out"), *results = json_object_get(e, "results"), *r;
    double redone = 0, bytes = 0, paid = 0, kept = 0;
    size_t i;
    json_array_foreach(results, i, r)
    {
        redone += real_of(r, "redone");
        bytes += real_of(r, "bytes");
        paid += real_of(r, "paid_ms");
        kept += strcmp(string(r, "decision"), "kept") == 0;
        ck_assert(real_of(r, "until") >= real_of(r, "made") && real_of(r, "last") >= real_of(r, "until"));
        json_t *again = json_object_get(r, "again");
        ck_assert((real_of(r, "redone") > 0) == json_is_integer(again));
        ck_assert(!json_is_integer(again) || json_integer_value(again) > real_of(r, "until"));
        ck_assert(json_is_null(json_object_get(r, "why")) == (real_of(r, "redone") > 0));
    }
    json_t *k = json_object_get(e, "kept"), *d = json_object_get(e, "redone");
    ck_assert(redone > 0 && redone == real_of(plan, "recomputed_steps"));
    ck_assert(kept > 0 && kept == real_of(k, "kernels"));
    ck_assert(bytes == real_of(k, "bytes") + real_of(d, "bytes"));
    ck_assert_double_eq_tol(paid, real_of(d, "paid_ms"), 1e-9);
    ck_assert_double_eq_tol(paid, real_of(plan, "predicted_ms") - real_of(plan, "keep_all_ms"), 1e-3);
    ck_assert_double_eq_tol(real_of(e, "again_ms"), paid, 1e-9);
    ck_assert(real_of(e, "forward_ms") > 0 && real_of(e, "backward_ms") > 0 && real_of(e, "update_ms") > 0);
    ck_assert_double_eq_tol(real_of(e, "forward_ms") + real_of(e, "backward_ms") + real_of(e, "update_ms"),
                            real_of(e, "keep_all_ms"), 1e-3);
    json_t *more = json_object_get(e, "more");
    ck_assert(real_of(more, "predicted_ms") <= real_of(e, "predicted_ms"));
    ck_assert(real_of(more, "ms_per_gib") >= 0);
    json_decref(plan);
    json_decref(e);
}
END_TEST

START_TEST(memory_has_its_price_at_an_overhead)
{
    ckc_accepts("explain " STEP "--moves 100000 --overhead 5% --offload no --json");
    json_t *e = read_json("out"), *less = json_object_get(e, "less");
    ck_assert(real_of(less, "predicted_ms") > real_of(e, "predicted_ms"));
    ck_assert(real_of(less, "ms_per_gib") > 0);
    json_decref(e);
}
END_TEST

START_TEST(one_value_and_one_module)
{
    ckc_prints("explain " STEP "--budget 75% --offload no --value 4.weight", "always there, at byte");
    ckc_accepts("explain " STEP "--budget 75% --offload no --json");
    json_t *e = read_json("out"), *r = json_array_get(json_object_get(e, "results"), 0);
    ck_assert_str_eq(string(r, "decision"), "redone");
    ckc_accepts(format("explain " STEP "--budget 75%% --offload no --value '%s'", string(r, "value")));
    char *text = read_text("out");
    ck_assert(strstr(text, format("made        step %d, ", (int)real_of(r, "made"))));
    ck_assert(strstr(
        text, format("there again from step %d to %d", (int)real_of(r, "again"), (int)real_of(r, "last"))));
    free(text);
    ckc_prints("explain " STEP "--budget 75% --offload no --node 4", "of 4\n");
    json_decref(e);
    ckc_refuses("explain " STEP "--value nothing.of.it", 1, "no value of that name");
    ckc_fails("", "explain " STEP "--value 4.weight --json", 1, "without --json");
    ckc_refuses("explain " STEP "--value 4.weight --node 4", 1, "without --node");
    ckc_refuses("explain " STEP "--node 44", 1, "such a name");
    ckc_refuses("explain " STEP "--accumulate auto", 1, "--accumulate");
    ckc_refuses("explain " STEP "--budget 1kB", 3, "model.onnx: budget of 1000 bytes cannot be met");
}
END_TEST

START_TEST(nothing_is_computed_again)
{
    ckc_accepts("explain " STEP);
    narrow("out");
    ckc_accepts("explain " STEP "--json");
    json_t *e = read_json("out"), *r;
    size_t i;
    ck_assert_uint_gt(json_array_size(json_object_get(e, "results")), 3);
    json_array_foreach(json_object_get(e, "results"), i, r) ck_assert_str_eq(string(r, "decision"), "kept");
    ck_assert(json_is_null(json_object_get(e, "more")));
    json_decref(e);
}
END_TEST

/* ---- ckc oom ------------------------------------------------------------------------------------ */

START_TEST(what_is_first_fits)
{
    ckc_accepts("oom " STEP "--budget 90kB");
    narrow("out");
    ckc_accepts("oom " STEP "--budget 90kB --json");
    json_t *o = read_json("out"), *ways = json_object_get(o, "ways"), *w;
    ck_assert(!json_is_true(json_object_get(o, "fits")));
    ck_assert(real_of(o, "keep_all_bytes") > 90000);
    size_t i, n = 0;
    json_array_foreach(ways, i, w)
    {
        if (!json_is_true(json_object_get(w, "fits")))
            continue;
        n++;
        ckc_accepts(format("plan " STEP "%s --json -o p", string(w, "options")));
        json_t *plan = read_json("out");
        ck_assert(real_of(plan, "arena_bytes") + real_of(plan, "reserved_bytes") <= 90000);
        ck_assert(real_of(plan, "arena_bytes") + real_of(plan, "reserved_bytes") == real_of(w, "peak_bytes"));
        ck_assert_double_eq_tol(real_of(plan, "predicted_ms"), real_of(w, "predicted_ms"), 1e-6);
        json_decref(plan);
    }
    ck_assert_uint_ge(n, 5);
    w = json_array_get(ways, 0);
    ck_assert_str_eq(string(w, "changes"), "nothing");
    ckc_accepts(format("train " STEP "%s --steps 2 -o p -q", string(w, "options")));
    json_decref(o);
}
END_TEST

/* A percentage is that of ckc plan; the options that are proposed say it in bytes, the first of them without
 * copies to the host. */
START_TEST(what_fits_a_percentage)
{
    ckc_accepts("plan " STEP "--budget 80% --offload no --json -o p");
    json_t *plan = read_json("out");
    ckc_accepts("oom " STEP "--budget 80% --json");
    json_t *o = read_json("out"), *w = json_array_get(json_object_get(o, "ways"), 0);
    ck_assert(real_of(o, "budget_bytes") == real_of(plan, "budget_bytes"));
    ck_assert(real_of(w, "peak_bytes") == real_of(plan, "arena_bytes") + real_of(plan, "reserved_bytes"));
    ck_assert(!strchr(string(w, "options"), '%') && strstr(string(w, "options"), "--offload no"));
    json_decref(plan);
    json_decref(o);
}
END_TEST

/* The options of the command are kept where another optimizer has them; it is said which it has not. */
START_TEST(what_another_optimizer_has_not)
{
    ckc_accepts("oom " STEP "--budget 90kB --json --beta1 0.8 --lr 0.1 --no-decay auto");
    json_t *o = read_json("out"), *w;
    size_t i, n = 0;
    json_array_foreach(json_object_get(o, "ways"), i, w)
    {
        const char *without = json_string_value(json_object_get(w, "without"));
        if (!json_is_true(json_object_get(w, "fits")))
            continue;
        bool beta = !without || !strstr(without, "--beta1"),
             decay = !without || !strstr(without, "--no-decay");
        n += !beta && !decay;
        ckc_accepts(format("plan " STEP "%s -o p -q --lr 0.1 %s %s", string(w, "options"),
                           beta ? "--beta1 0.8" : "", decay ? "--no-decay auto" : ""));
    }
    ck_assert_uint_ge(n, 2);
    json_decref(o);
    ckc_prints("oom " STEP "--budget 90kB --beta1 0.8", "--budget 90kB --optimizer sgd, without --beta1");
}
END_TEST

START_TEST(what_cannot_fit)
{
    ck_assert_int_eq(ckc("oom " STEP "--budget 5kB"), 3);
    char *text = read_text("out");
    ck_assert(strstr(text, "Nothing of this fits") && strstr(text, "does not fit: takes"));
    free(text);
    ckc_prints("oom " MLP " --bind batch=1 --device h200 --budget 670.06MB --moves 5000",
               "--budget 670.06MB --choices budget --precision bf16 --optimizer sgd\n");
    ckc_prints("oom " MLP " --bind batch=512 --device h200 --budget 670.1MB --moves 5000",
               "--budget 670.1MB --choices budget --accumulate auto\n");
    ckc_prints("oom " STEP "--budget 1MB", "It fits: ");
    ckc_prints("oom " MLP " --bind batch=64 --device h200", "It fits: ");
    ckc_prints("oom " MLP " --bind batch=64 --device h200 --budget 1TB", "less than there is (150.75 GB)");
    ckc_refuses("oom " MLP " --bind batch=64", 1, "needs --budget");
    ckc_refuses("oom " MLP " --bind batch=64 --device h200 --budget 1MB", 3, "take 670000000");
    ckc_refuses("oom " STEP "--budget 150%", 1, "more than everything stored takes");
    ckc_refuses("oom " STEP "--budget 90kB --accumulate auto", 1, "anyway");
    ckc_refuses("oom", 1, "no model");
}
END_TEST

Suite *suite_explain(void)
{
    Suite *s = suite_create("explain");
    TCase *t = command_case(s, "why");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_result_has_a_fate);
    tcase_add_test(t, memory_has_its_price_at_an_overhead);
    tcase_add_test(t, one_value_and_one_module);
    tcase_add_test(t, nothing_is_computed_again);
    tcase_add_test(t, what_is_first_fits);
    tcase_add_test(t, what_fits_a_percentage);
    tcase_add_test(t, what_another_optimizer_has_not);
    tcase_add_test(t, what_cannot_fit);
    return s;
}
