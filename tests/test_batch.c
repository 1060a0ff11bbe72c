/* test_batch.c -- --accumulate auto, ckc oom and ckc sweep --batch agree on which dimension is the batch. */
#include "tests.h"
#include "command.h"
#include "onnx_builder.h"
#include <string.h>

/* Writes m.onnx: layers on the sum of two inputs, whose first dimensions are the two letters of `batch`. */
static void make_model(const char *batch)
{
    static Builder b;
    static float scale[4][9];
    Arena a = {0};
    const char *last = "s";
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, arena_printf(&a, "%c9", batch[0]), true);
    add_value(&b, &a, "y", FLOAT, arena_printf(&a, "%c9", batch[1]), true);
    add_value(&b, &a, "z", FLOAT, arena_printf(&a, "%c9", batch[0]), false);
    add_node(&b, &a, "Add", "x y", "s");
    for (int i = 0; i < 4; i++) {
        const char *tanh = i < 3 ? arena_printf(&a, "t%d", i) : "z", *mul = arena_printf(&a, "m%d", i);
        for (int k = 0; k < 9; k++)
            scale[i][k] = 0.5f + 0.1f * (float)((k * k + 3 * i) % 7);
        add_tensor(&b, arena_printf(&a, "p%d", i), 1, (int64_t[]){9}, scale[i]);
        add_node(&b, &a, "Mul", arena_printf(&a, "%s p%d", last, i), mul);
        add_node(&b, &a, "Tanh", mul, tanh);
        last = tanh;
    }
    save(&b, &a, "m.onnx");
    arena_free(&a);
}

#define DEVICE "m.onnx --device fake --optimizer sgd --moves 5000 "

/* The letters of a model, a --bind that makes 64 rows its batch, the option with which ckc oom proposes fewer
 * rows, and what stands in front of the range in --batch. */
static const struct {
    const char *model, *bind, *smaller, *swept;
} said[] = {
    {"NN", "N=64", "--bind N=", ""},
    {"NN", "batch=64", "--bind batch=", "batch="},
    {"??", "x.0=64,y.0=64", "--bind x.0=", ""},
    {"??", "x.0=64,y.0=64", "--bind x.0=", "y.0="},
    {"??", "batch=64", "--bind batch=", "batch="},
    {"N?", "N=64,y.0=64", "--bind N=", ""},
    {"?N", "x.0=64,N=64", "--bind x.0=", "N="},
};

static json_t *way_of(json_t *oom, const char *name)
{
    json_t *w;
    size_t i;
    json_array_foreach(json_object_get(oom, "ways"), i,
                       w) if (strcmp(json_string_value(json_object_get(w, "name")), name) == 0) return w;
    return NULL;
}

START_TEST(the_batch_is_found)
{
    make_model(said[_i].model);
    ckc_accepts(
        format("plan " DEVICE "--json --bind %s --budget 45%% --accumulate auto -o o", said[_i].bind));
    json_t *plan = read_json("out");
    ck_assert(real_of(plan, "accumulate") > 1);
    json_decref(plan);

    ckc_accepts(format("oom " DEVICE "--json --bind %s --budget 8kB", said[_i].bind));
    json_t *oom = read_json("out"), *less = way_of(oom, "smaller batch");
    ck_assert(way_of(oom, "micro-batches") && json_is_true(json_object_get(less, "fits")));
    const char *how = json_string_value(json_object_get(less, "options"));
    ck_assert_msg(strstr(how, said[_i].smaller) != NULL, "%s", how);
    ckc_accepts(format("plan " DEVICE "%s -o o", how));
    json_decref(oom);

    ckc_accepts(format("sweep " DEVICE "--json --batch %s4..64 --budget 8kB", said[_i].swept));
    json_t *sweep = read_json("out");
    ck_assert_int_gt(json_integer_value(json_object_get(sweep, "best_batch")), 4);
    json_decref(sweep);
}
END_TEST

START_TEST(two_may_be_the_batch)
{
    make_model("NM");
    ckc_refuses("plan " DEVICE "--bind N=64,M=64 --budget 45% --accumulate auto -o o", 1, "auto:N");
    ckc_refuses("sweep " DEVICE "--batch 4..64 --budget 8kB", 1, "Say --batch N=1..64");
    ckc_refuses("sweep " DEVICE "--batch K=4..64 --budget 8kB", 1, "K is the first dimension of no input");
    ckc_refuses("sweep " DEVICE "--bind N=64,M=64 --batch 4..64 --budget 8kB", 1, "leave it out");
    make_model("??");
    ckc_refuses("plan " DEVICE "--bind x.0=1,y.0=64 --budget 45% --accumulate auto -o o", 1, "auto:x.0");
    ckc_refuses("sweep " DEVICE "--bind x.0=64,y.0=64 --batch 4..64 --budget 8kB", 1, "leave it out");
}
END_TEST

Suite *suite_batch(void)
{
    Suite *s = suite_create("batch");
    TCase *t = command_case(s, "batch");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_batch_is_found, 0, sizeof said / sizeof *said);
    tcase_add_test(t, two_may_be_the_batch);
    return s;
}
