/* test_cli.c -- the command as its users meet it: an error is one line on standard error, the documented exit
 * status, and no file written; a success gives the same bits again. */
#include "tests.h"
#include "cli/cli.h"
#include "command.h"
#include "step.h"
#include "imported.h"
#include "ir/file.h"
#include "onnx_builder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

/* ---- data ----------------------------------------------------------------------------------------- */

/* Writes m.onnx: y = OP(x, w) in a node of that name, with the values of w[4] in the file `location`. */
static void write_external(const char *op, const char *node, const char *location)
{
    Arena a = {0};
    Builder b;
    start(&b, 17);
    add_value(&b, &a, "x", FLOAT, "4", true);
    add_value(&b, &a, "y", FLOAT, "4", false);
    add_node(&b, &a, op, "x w", "y")->name = (char *)(uintptr_t)node;
    add_external(&b, &a, "w", 4, location, NULL, NULL);
    save(&b, &a, "m.onnx");
    arena_free(&a);
}

/* ---- what goes wrong ----------------------------------------------------------------------------------- */

START_TEST(usage)
{
    ckc_refuses("", 1, "no model");
    ckc_refuses(MLP " " MLP, 1, "one file");
    ckc_refuses(MLP " --nonsense", 1, "nonsense");
    ckc_refuses(MLP " --lr", 1, "lr");
    ckc_refuses(MLP " --lr fast", 1, "--lr");
    ckc_refuses(MLP " --steps -1", 1, "--steps");
    ckc_refuses(MLP " --steps 1e15", 1, "--steps: '1e15' is not a number from 0 to 1000000000000000");
    ckc_refuses(MLP " --threads 0", 1, "--threads");
    ckc_refuses(MLP " --bind batch", 1, "--bind");
    ckc_refuses(MLP " --bind batch=-1", 1, "--bind");
    ckc_refuses(MLP " --budget 10XB", 1, "--budget");
    ckc_refuses(MLP " --budget 0", 1, "--budget");
    ckc_refuses(MLP " --budget 40", 1, "40GB");
    ckc_refuses(MLP " --policy kepe-all", 1, "did you mean 'keep-all'?");
    ckc_refuses(MLP " --optimizer adamv", 1, "did you mean 'adam");
    ckc_refuses(MLP " --budget nan", 1, "--budget");
    ckc_refuses(MLP " --budget 101%", 1, "--budget");
    ckc_refuses(MLP " --overhead 2", 1, "--overhead");
    ckc_refuses(MLP " --overhead -1%", 1, "--overhead");
    ckc_refuses(MLP " --overhead nan%", 1, "--overhead");
    ckc_refuses(MLP " --overhead 2% --budget 1MB", 1, "--budget");
    ckc_refuses(MLP " --overhead 2% --policy dtr", 1, "--policy");
    ckc_refuses(MLP " --device cpu --host-memory 1GB", 1, "no memory but the host's");
    ckc_refuses(MLP " --device h200 --steps 0 --overhead 2% --offload only", 1, "--overhead");
    ckc_refuses(MLP " --emit cuda --host-memory 1GB", 1, "prints no copies");
    ckc_refuses(MLP " --bind batch=99999999999", 1, "a whole number below 2^31");
    ckc_refuses(MLP " --loss hinge", 1, "mse");
    ckc_refuses(MLP " --optimizer muon", 1, "adamw");
    ckc_refuses(MLP " --init random", 1, "init");
    ckc_refuses(CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=1,seq=257", 1,
                "index 256 is outside 256");
    ckc_refuses(MLP " --emit ptx", 1, "cuda");
    ckc_refuses(MLP " --dump nothing", 1, "nothing");
    ckc_refuses(MLP " --save weights.bin", 1, ".safetensors");
    ckc_refuses(MLP " --momentum 0.9", 1, "--optimizer momentum");
    ckc_refuses(MLP " --optimizer sgd --beta1 0.9", 1, "--beta1");
    ckc_refuses(MLP " --beta1 1", 1, "below 1");
    ckc_refuses("no/such/m.onnx", 1, "no/such/m.onnx: No such file");
    ckc_refuses(MLP " --optimizer lion --beta2 1", 1, "below 1");
    ckc_refuses(MLP " --bind x.0=4,batch=5", 1, "--bind batch: other sizes");
    ckc_refuses(MLP " --bind batch=4 --output no/such/folder", 1, "no/such/folder");
    ck_assert_int_eq(shell("cp " MLP " m.onnx && : >m.ckc"), 0);
    ckc_refuses("m.onnx --bind batch=4", 1, "m.ckc: Not a directory; --output DIR names another folder");
    ckc_refuses(MLP " --bind batch=4 --grads no/such/folder.npz", 1, "no/such");
    ckc_refuses("run", 1, "no schedule");
    ckc_refuses("eval", 1, "no model");
    ckc_refuses("opt", 1, "no graph");
    ckc_refuses("opt --passes=sort x.ckg", 1, "sort");
    ckc_refuses("opt --passes=simplfy x.ckg", 1, "did you mean 'simplify'?");
}
END_TEST

START_TEST(models)
{
    ckc_refuses("missing.onnx", 1, "missing.onnx");
    ckc_refuses("/dev/null", 1, "/dev/null: not a regular file");
    ckc_refuses("opt /dev/null", 1, "/dev/null: not a regular file");
    ckc_refuses("pack /dev/null", 1, "/dev/null: not a regular file");
    ckc_refuses("solve /dev/null --budget 9", 1, "/dev/null: not a regular file");
    ckc_refuses("/tmp", 1, "/tmp");
    ckc_refuses(MLP " --output x", 1, "batch");
    ckc_refuses(MLP " --bind batch=4,seq=3 --output x", 1, "seq");
    ckc_refuses(MLP " --bind btach=4 --output x", 1, "btach");
    ckc_refuses(MLP " --bind batch=4,bathc=3 --output x", 1, "did you mean 'batch'?");
    ckc_refuses(MLP " --bind batch=4 --train 'nothing*' --output x", 1, "no parameter");
    ckc_refuses(MLP " --bind batch=4 --freeze '*.wieght' --output x", 1, "no parameter");
    ckc_refuses(CKC_SOURCE_DIR "/CMakeLists.txt --output x", 1, "CMakeLists.txt");
    ckc_refuses(MLP " --bind batch=4 --loss-output nowhere --output x", 1, "nowhere");
    ckc_refuses(MLP " --bind batch=4 --freeze '*' --output x", 1, "--train and --freeze leave");
    Arena a = {0};
    Builder b;
    start(&b, 13);
    add_value(&b, &a, "x", FLOAT, "23", true);
    add_value(&b, &a, "y", FLOAT, "23", false);
    add_node(&b, &a, "Relu", "x", "y");
    save(&b, &a, "weightless.onnx");
    ckc_refuses("weightless.onnx --output x", 1, "of a quantized model train the one that it was made from");
    arena_free(&a);
}
END_TEST

START_TEST(truncated)
{
    FileMap m;
    Diag d = {0};
    ck_assert(file_map(&m, MLP, &d));
    for (size_t n = 0; n < m.size; n += m.size / 7) {
        write_bytes("cut.onnx", m.data, n);
        ckc_refuses("cut.onnx --bind batch=4", 1, "cut.onnx");
    }
    file_unmap(&m);
}
END_TEST

START_TEST(malformed_fixtures)
{
    static const char *const names[] = {"mnist_truncated_13000", "nest_100", "nest_1000",
                                        "nest_3000"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = shared_path(format("fixtures/malformed/%s.onnx", names[i]));
        if (path)
            ckc_refuses(format("%s --output x", path), 1, names[i]);
    }
}
END_TEST

/* Names are printed with escapes for line breaks, control characters and bytes that are not UTF-8. */
START_TEST(names_are_text)
{
    write_external("Mul\nckc: done", "the node", "w.bin");
    ckc_refuses("m.onnx --loss mse", 1, "\\x0ackc: done");
    write_external("\033[2J", "the node", "w.bin");
    ckc_refuses("m.onnx --loss mse", 1, "\\x1b[2J");
    write_external("\xff", "the node", "w.bin");
    ckc_refuses("m.onnx --loss mse", 1, "\\xff");
    write_external("Mul", "the node", "a\nckc: done");
    ckc_refuses("m.onnx --loss mse", 1, "\\x0ackc: done");
    write_external("Mul", "the node", "data");
    write_bytes("data", (float[4]){0}, 16);
    ck_assert_int_eq(rename("m.onnx", "\xff.onnx"), 0);
    write_text("\xff.csv", "lower,upper,size\n0,1,8\n");
    ck_assert_int_eq(shell("cp '" CKC_SOURCE_DIR "/tests/fuzz/seeds/fuzz_solve/small.dag' '\xff.dag'"), 0);
    ckc_prints("eval '\xff.onnx' --json", "\"model\": \"\\\\xff.onnx\"");
    ckc_prints("pack '\xff.csv' --json", "\"file\": \"\\\\xff.csv\"");
    ckc_prints("solve '\xff.dag' --budget 100% --json", "\"instance\": \"\\\\xff.dag\"");
    ckc_prints("'\xff.onnx' --loss mse -o m.ckc", "model       \\xff.onnx\n");
    ck_assert_int_eq(shell("sed -i 's/^  model \"/&\\\\x0a/' m.ckc/step.ckp"), 0);
    ckc_prints("run m.ckc/step.ckp", ", from m.ckc/\\x0a");
}
END_TEST

START_TEST(external_data)
{
    write_external("Mul", "the node", "gone.bin");
    ckc_refuses("m.onnx --loss mse", 1, "gone.bin");
    ckc_accepts("m.onnx --loss mse --steps 0 -o p"); /* a plan needs only the sizes */
    ck_assert_int_eq(shell("grep -q \"^note .* w: its values should lie in 'gone.bin'\" out"), 0);
    ckc_refuses("run p/step.ckp", 1, "parameter w has no value");
    ck_assert_int_eq(shell("rm -r p"), 0);
    write_external("Mul", "the node", "../../../../etc/hostname");
    ckc_refuses("m.onnx --loss mse", 1, "hostname");
    write_external("Mul", "the node", "short.bin");
    write_text("short.bin", "123");
    ckc_refuses("m.onnx --loss mse", 1, "'w'");
}
END_TEST

START_TEST(external_data_is_hashed)
{
    write_external("Mul", "the node", "w.bin");
    write_bytes("w.bin", (float[4]){0}, 16);
    ckc_accepts("m.onnx --loss mse --steps 0 --quiet -o deep");
    ckc_accepts("run deep/step.ckp --quiet --save out.onnx");
    ck_assert_int_eq(shell("printf 1 >>w.bin"), 0);
    ckc_refuses("run deep/step.ckp", 1, "w.bin: is not the file");
    write_external("Mul", "the node", "m.onnx.data");
    write_bytes("m.onnx.data", (float[4]){0}, 16);
    ckc_accepts("m.onnx --loss mse --quiet -o deep --save m.onnx"); /* the data file gets another name */
    ckc_refuses("run deep/step.ckp", 1, "deep/../m.onnx.data: No such file");
}
END_TEST

/* Names in a model do not reach the generated source. */
START_TEST(names_reach_no_source)
{
    write_external("Mul", "*/q;\"#/*", "w.bin");
    write_bytes("w.bin", (float[4]){0}, 16);
    ckc_accepts("m.onnx --loss mse --steps 0 --quiet -o p --emit cuda");
    ck_assert_int_eq(shell("grep -q 'q;.*#/' p/step.ckp && ! grep -q 'q;.*#/' p/kernels.*"), 0);
}
END_TEST

/* The message about unsupported operators lists them node by node; it alone may have several lines. */
START_TEST(unsupported)
{
    write_bytes("w.bin", (float[4]){0}, 16);
    write_external("Frobnicate", "the node", "w.bin");
    int before = files_here();
    ck_assert_int_eq(ckc("m.onnx --loss mse"), 2);
    ck_assert_int_eq(files_here(), before);
    char *err = read_text("err");
    ck_assert_msg(strncmp(err, "ckc: m.onnx: ", 13) == 0, "%s", err);
    ck_assert_ptr_nonnull(strstr(err, "the node"));
    ck_assert_ptr_nonnull(strstr(err, "Frobnicate"));
    ck_assert_ptr_nonnull(strstr(err, "17"));
    free(err);
}
END_TEST

#define RESNET CKC_SOURCE_DIR "/examples/resnet18/model.onnx --moves 2000 --device l4 -o m.ckc --quiet "
START_TEST(device_as_budget)
{
    const int64_t memory = 24152899584;
    ckc_accepts("plan " RESNET "--bind batch=23500");
    ck_assert_int_eq(json_number("m.ckc/report.json", "budget_bytes"), memory);
    ck_assert_int_le(json_number("m.ckc/report.json", "arena_bytes"),
                     memory - json_number("m.ckc/report.json", "reserved_bytes"));
    ck_assert_int_eq(
        shell("grep -q 'recomputes nothing takes .* planned within its memory' m.ckc/report.json"), 0);
    ckc_accepts("plan " RESNET "--bind batch=16");
    ck_assert_int_ne(shell("grep -q 'planned within' m.ckc/report.json"), 0);
    ckc_accepts("plan " RESNET "--bind batch=16 --budget 500GB");
    ck_assert_int_eq(shell("grep -q 'budget is more than .* planned within' m.ckc/report.json"), 0);
    ckc_fails("", "plan " RESNET "--bind batch=65536 --offload no", 3, "(ckc oom finds what fits)");
    ckc_fails("", "plan " RESNET "--bind batch=9000000", 4, "too much; ckc oom finds what fits");
}
END_TEST

START_TEST(budgets)
{
    ckc_refuses(MLP " --bind batch=4 --output x --moves 100000 --budget 10B", 3,
                "smallest known to be feasible");
    ckc_refuses(MLP " --bind batch=4 --output x --moves 100000 --budget 1%", 3,
                "smallest known to be feasible");
}
END_TEST

START_TEST(data)
{
    int64_t t[8];
    float y[80];
    write_equal_rows("nan.npz", 4, 16, NAN, rows_of_class(4, t, 3));
    ckc_refuses(MLP " --bind batch=4 --output x --data nan.npz", 1, "x");
    write_equal_rows("shape.npz", 4, 15, 1, rows_of_class(4, t, 3));
    ckc_refuses(MLP " --bind batch=4 --output x --data shape.npz", 1, "x");
    write_equal_rows("few.npz", 3, 16, 1, rows_of_class(3, t, 3));
    ckc_refuses(MLP " --bind batch=4 --output x --data few.npz", 1, "few.npz");
    write_equal_rows("class.npz", 4, 16, 1, rows_of_class(4, t, 10));
    ckc_refuses(MLP " --bind batch=4 --output x --data class.npz", 1, "target");
    write_equal_rows("none.npz", 4, 16, 1, (Tensor){{0}, NULL});
    ckc_refuses(MLP " --bind batch=4 --output x --data none.npz", 1, "target");
    for (int i = 0; i < 40; i++)
        y[i] = NAN;
    write_equal_rows("target.npz", 4, 16, 1, (Tensor){type_make(DT_F32, 2, (int64_t[]){4, 10}), y});
    ckc_refuses(MLP " --bind batch=4 --output x --data target.npz --loss mse", 1, "target");
    ckc_refuses(MLP " --bind batch=4 --output x --data target.npz", 1, "target");
    ckc_refuses(MLP " --bind batch=4 --output x --data missing.npz", 1, "missing.npz");
}
END_TEST

static void prints_as_parsed(const char *path)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    Plan p = {.g = &g};
    char *text = read_text(path);
    graph_init(&g, &a, &d);
    ck_assert_msg(plan_parse(&p, text, &d), "%s", d.msg);
    char *again = plan_text(&p);
    ck_assert_str_eq(text, again);
    free(text);
    free(again);
    arena_free(&a);
}

START_TEST(schedules)
{
    write_text("bad.ckp",
               "plan 6 {\n  threads 2\n}\ngraph {\n  input %x: f32[2]\n  %y: f32[3] = relu %x\n}\n");
    ckc_refuses("run bad.ckp", 1, "bad.ckp");
    ckc_refuses("run /dev/null", 1, "/dev/null");
    ckc_refuses("run " MLP, 1, "model.onnx");
    write_text("old.ckp", "plan {\n  threads 2\n}\n");
    ckc_refuses("run old.ckp", 1, "version 1 of its form");
    write_text("new.ckp", "plan 7 {\n  unknown 2\n}\n");
    ckc_refuses("run new.ckp", 1, "plan the model again");
    ckc_accepts(MLP " --bind batch=4 --steps 0 --output m.ckc --quiet");
    prints_as_parsed("m.ckc/step.ckp");
    ck_assert_int_eq(shell("sed 's/arena [0-9]*/arena 64/' m.ckc/step.ckp >m.ckc/small.ckp"), 0);
    ckc_refuses("run m.ckc/small.ckp", 1, "small.ckp: line");
    ck_assert_int_eq(shell("sed 's/ scratch=[0-9]* / scratch=9000000 /' m.ckc/step.ckp "
                            ">m.ckc/scratch.ckp"), 0);
    ckc_refuses("run m.ckc/scratch.ckp", 1, "scratch.ckp: plan");
    ck_assert_int_eq(shell("sed 's/choice=[^-][^ ]*/choice=wave/' m.ckc/step.ckp "
                           ">m.ckc/wave.ckp"), 0);
    ckc_refuses("run m.ckc/wave.ckp", 4, "wave.ckp: plan: step ");
    ckc_refuses("run m.ckc/wave.ckp", 4, "there is no routine 'wave' on this device: plan the model again");
}
END_TEST

/* ---- what goes right ------------------------------------------------------------------------- */

START_TEST(report)
{
    static const char *const keys[] = {
        "model", "model_hash", "budget_bytes", "arena_bytes", "live_bytes", "keep_all_bytes",
        "min_feasible_bytes", "memory", "keep_all_memory", "predicted_ms", "keep_all_ms", "bound_ms",
        "overhead", "lower_bound", "measured_ms", "steps", "recomputed_steps", "recomputed", "losses",
        "trainable", "frozen", "notes", "loss", "optimizer", "lr", "seed", "threads", "init", "data",
        "plan_seconds", "solve_seconds", "version", "peak", "accumulate", "clip_norm", "bytes_per_sample",
        "bytes_per_token", "resident_bytes", "offloaded", "fetched", "fetched_bytes", "host_bytes"};
    ckc_accepts(MLP " --bind batch=4 --output m.ckc --steps 3 --json");
    json_t *j = read_json("out");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_msg(json_object_get(j, keys[i]) != NULL, "no key '%s'", keys[i]);
    json_t *layer, *peak = json_object_get(j, "peak"), *kinds = json_object_get(j, "memory"), *kind;
    int64_t held = 0, sum = 0;
    size_t i;
    const char *name;
    json_array_foreach(json_object_get(peak, "layers"), i, layer)
    {
        held += json_integer_value(json_object_get(layer, "bytes"));
        ck_assert_str_ne(json_string_value(json_object_get(layer, "layer")), "c"); /* constants of ours */
    }
    json_object_foreach(kinds, name, kind)
        sum += json_integer_value(kind);
    ck_assert_msg(held <= sum && held > sum * 9 / 10, "%lld bytes by layer, %lld by kind",
                  (long long)held, (long long)sum); /* held does not include what alignment adds */
    ck_assert_uint_eq(json_array_size(json_object_get(j, "losses")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "trainable")), 10);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "arena_bytes")),
                     json_integer_value(json_object_get(j, "keep_all_bytes")));
    json_decref(j);
    same_file("out", "m.ckc/report.json");
    ck_assert_int_eq(access("m.ckc/step.ckp", R_OK), 0);
    ck_assert_int_eq(access("m.ckc/kernels.c", R_OK), 0);
    ckc_accepts(MLP " --bind batch=4 --output m.ckc --quiet --emit cuda");
    ck_assert_int_eq(access("m.ckc/kernels.cu", R_OK), 0);
    ckc_refuses(MLP " --bind batch=4 --device cpu --emit cuda", 1, "cpu is no NVIDIA GPU");
    ckc_refuses(MLP " --bind batch=4 --emit cuda --epochs 2 --data d.npz", 1, "--steps N says");
    ckc_accepts(MLP " --bind batch=4 --output m.ckc --quiet");
    char *out = read_text("out");
    ck_assert_str_eq(out, "");
    free(out);
    ckc_accepts(MLP " --bind batch=4 --output m.ckc --freeze '0.*'");
    ckc_refuses(MLP " --bind batch=4 --freeze '0.*,no.such'", 1, "--freeze no.such");
}
END_TEST

/* The average of live bytes is below their peak, and lower with recomputation than without. */
START_TEST(average)
{
    int64_t bytes[2];
    for (int k = 0; k < 2; k++) {
        ckc_prints(format("plan " MLP " --bind batch=16384 --device h200 --memory -o m.ckc --policy %s",
                          k ? "selective" : "keep-all"),
                   "on average  ");
        bytes[k] = json_number("m.ckc/report.json", "average_bytes");
        ck_assert_int_gt(bytes[k], 0);
        ck_assert_int_lt(bytes[k], json_number("m.ckc/report.json", "live_bytes"));
    }
    ck_assert_int_lt(bytes[1], bytes[0]);
}
END_TEST

/* A larger --overhead gives a smaller arena; predicted time stays within it, and bits stay the same. */
START_TEST(overhead)
{
    static const char *const percent[] = {"0", "5", "20"};
    int64_t last = INT32_MAX;
    ckc_accepts(MLP " --bind batch=64 --output m.ckc --grads a.npz --quiet");
    for (int k = 0; k < 3; k++) {
        ckc_accepts(format(MLP " --bind batch=64 --output o.ckc --grads b.npz --quiet "
                           "--moves 100000 --overhead %s%%", percent[k]));
        same_file("a.npz", "b.npz");
        json_t *j = read_json("o.ckc/report.json");
        double over = json_number_value(json_object_get(j, "overhead"));
        int64_t arena = json_integer_value(json_object_get(j, "arena_bytes"));
        int64_t budget = json_integer_value(json_object_get(j, "budget_bytes"));
        int64_t all = json_integer_value(json_object_get(j, "keep_all_bytes"));
        ck_assert_msg(over <= strtod(percent[k], NULL) / 100, "--overhead %s%%: %g", percent[k], over);
        ck_assert_int_le(arena, budget);
        ck_assert_int_le(arena, last + last / 50);
        ck_assert_int_le(arena, all);
        last = arena;
        json_decref(j);
    }
}
END_TEST

/* Checks in the report at path that --accumulate auto chose the fastest of the numbers of micro-batches that
 * it tried, and meets the budget; returns the number chosen. */
static int64_t check_choice(const char *path)
{
    json_t *j = read_json(path), *t, *tried = json_object_get(j, "accumulate_tried");
    double best = json_number_value(json_object_get(j, "predicted_ms"));
    int64_t k = json_integer_value(json_object_get(j, "accumulate")), last = 0;
    bool chosen = false;
    size_t i;
    json_array_foreach(tried, i, t) {
        int64_t n = json_integer_value(json_object_get(t, "accumulate"));
        json_t *ms = json_object_get(t, "predicted_ms");
        ck_assert_int_gt(n, last);
        ck_assert(json_is_null(ms) == json_is_string(json_object_get(t, "reason")));
        ck_assert(json_is_null(ms) || best <= json_number_value(ms));
        chosen |= n == k && json_number_value(ms) == best;
        last = n;
    }
    ck_assert(chosen);
    ck_assert_int_le(json_integer_value(json_object_get(j, "arena_bytes")),
                     json_integer_value(json_object_get(j, "budget_bytes")));
    json_decref(j);
    return k;
}

/* A plan for a device with a link to host memory offloads values; its report counts them and their bytes. */
START_TEST(offloaded)
{
    ckc_accepts(CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=64,seq=128 --optimizer sgd "
                "--device h200 --moves 10000 --steps 0 --budget 50% --output m.ckc --quiet");
    ck_assert_int_gt(json_number("m.ckc/report.json", "offloaded"), 0);
    ck_assert_int_ge(json_number("m.ckc/report.json", "fetched"),
                     json_number("m.ckc/report.json", "offloaded"));
    ck_assert_int_gt(json_number("m.ckc/report.json", "fetched_bytes"), 0);
    ck_assert_int_gt(json_number("m.ckc/report.json", "host_bytes"), 0);
}
END_TEST

/* --accumulate auto combines micro-batches with recomputation under one budget.  The decoder is planned for a
 * device of given rates, so that the number it chooses is known. */
START_TEST(accumulate_auto)
{
    static const char decoder[] = CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=64,seq=128 "
        "--optimizer sgd --device h200 --moves 10000 --steps 0 --accumulate auto --output m.ckc --quiet";
    ckc_refuses(MLP " --bind batch=4 --accumulate autos --output x", 1, "--accumulate");
    ckc_refuses(MLP " --bind batch=4 --accumulate auto:seq --budget 50% --output x", 1, "by seq");
    ckc_refuses(MLP " --bind batch=4 --accumulate auto --budget 50% --instance x.dag --output x", 1,
                "--instance");
    ckc_refuses(MLP " --bind batch=4 --accumulate auto --overhead 5% --output x", 1, "--overhead");
    ckc_refuses(MLP " --bind batch=4 --accumulate auto --budget 1B --moves 10000 --output x", 3,
                "micro-batches");
    ckc_refuses("plan " MLP " --bind batch=512 --device h200 --budget 670.1MB --accumulate auto --output x",
                3, "the least is that of 512: budget of 670100000 bytes");
    ckc_accepts(format("%s --budget 100%%", decoder));
    ck_assert_int_eq(check_choice("m.ckc/report.json"), 1);
    ckc_accepts(format("%s --budget 40%%", decoder)); /* both together are faster than either alone */
    ck_assert_int_eq(check_choice("m.ckc/report.json"), 2);
    ck_assert_int_gt(json_number("m.ckc/report.json", "recomputed_steps"), 0);
    /* recomputation alone cannot meet this budget */
    ckc_accepts(MLP " --bind batch=512 --budget 50% --moves 10000 --accumulate auto:batch --steps 2 --quiet "
                "--output m.ckc --save a.safetensors");
    ck_assert_int_gt(check_choice("m.ckc/report.json"), 1);
    ckc_accepts("run m.ckc/step.ckp --steps 2 --save b.safetensors --quiet");
    same_file("a.safetensors", "b.safetensors");
}
END_TEST

/* Training gives the same bits at any budget and when a saved schedule runs; a saved model trains again. */
START_TEST(same_bits)
{
    ckc_accepts(MLP " --bind batch=8 --output m.ckc --steps 4 --json --grads a.npz "
                 "--save a.safetensors --save a.onnx --seed 7 --quiet");
    int64_t all = json_number("m.ckc/report.json", "keep_all_bytes");
    ck_assert_int_eq(ckc(MLP " --bind batch=8 --grads x.npz --output x.ckc --moves 100000 --budget 1B"), 3);
    int64_t bytes = ckc_least_budget();
    ck_assert_int_le(bytes, all);
    for (int k = 0; k < 2; k++) {
        ckc_accepts(format(MLP " --bind batch=8 --output b.ckc --steps 4 --grads b.npz --save b.safetensors "
                               "--save b.onnx --seed 7 --quiet --moves 100000 --budget %lld",
                           (long long)(k ? (all + bytes) / 2 : bytes)));
        same_file("a.npz", "b.npz");
        same_file("a.safetensors", "b.safetensors");
        same_file("a.onnx", "b.onnx");
    }
    ckc_accepts("run m.ckc/step.ckp --steps 4 --save c.safetensors --save c.onnx --quiet");
    same_file("a.safetensors", "c.safetensors");
    same_file("a.onnx", "c.onnx");
    ckc_accepts("run b.ckc/step.ckp --steps 4 --save c.safetensors --quiet");
    same_file("a.safetensors", "c.safetensors");
    ckc_accepts("a.onnx --bind batch=8 --steps 1 --quiet");
}
END_TEST

/* The header of a .safetensors file, which has its names and shapes; the caller releases it. */
static json_t *saved_names(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t size = 0;
    ck_assert(f && fread(&size, sizeof size, 1, f) == 1 && size < 1 << 16);
    json_t *j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
    ck_assert_ptr_nonnull(j);
    fclose(f);
    return j;
}

/* Writes stateful.onnx, which has running statistics with and without values in the file, a frozen mask, a
 * tied weight, and names that are not valid in a schedule. */
static void build_stateful(Arena *a)
{
    static float ones[3] = {1, 1, 1}, zeros[3], mask[3] = {0, -100, 0}, w[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static int64_t three[1] = {3}, square[2] = {3, 3};
    Builder *b = calloc(1, sizeof *b);
    ck_assert_ptr_nonnull(b);
    start(b, 15);
    b->model.producer_name = (char[]){"pytorch"};
    add_value(b, a, "x", FLOAT, "N3", true);
    add_value(b, a, "late_mean", FLOAT, "3", true);
    add_value(b, a, "late var", FLOAT, "3", true);
    add_tensor(b, "scale", 1, three, ones);
    add_tensor(b, "bias", 1, three, zeros);
    add_tensor(b, "mean", 1, three, zeros);
    add_tensor(b, "var", 1, three, ones);
    add_tensor(b, "mask", 1, three, mask);
    add_tensor(b, "w {1}", 2, square, w);
    add_node(b, a, "BatchNormalization", "x scale bias mean var", "n1");
    add_node(b, a, "Identity", "scale", "tied.scale");
    add_node(b, a, "BatchNormalization", "n1 tied.scale bias late_mean late#var", "n2");
    b->operand[2][4] = (char[]){"late var"};
    add_node(b, a, "Add", "n2 mask", "n3");
    add_node(b, a, "MatMul", "n3 w", "n4");
    b->operand[4][1] = (char[]){"w {1}"};
    add_value(b, a, "n4", FLOAT, "N3", false);
    save(b, a, "stateful.onnx");
    free(b);
}

START_TEST(saves_all_state)
{
    static const char *const names[] = {"scale", "bias", "mean", "var", "late_mean",
                                        "late var", "mask", "tied.scale", "w {1}"};
    Arena a = {0};
    build_stateful(&a);
    ckc_accepts(
        "stateful.onnx --bind N=4 --init kaiming --output s.ckc --steps 2 --quiet --save a.safetensors "
        "--save a.onnx");
    ckc_accepts("run s.ckc/step.ckp --steps 2 --quiet --save b.safetensors --save b.onnx");
    same_file("a.safetensors", "b.safetensors");
    same_file("a.onnx", "b.onnx");
    json_t *j = saved_names("b.safetensors");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(json_object_get(j, names[i]) != NULL, "'%s' is not saved", names[i]);
    json_decref(j);
    Imported m = import_file("b.onnx");
    ck_assert(m.ok && build_graph(&m, &(OnnxOptions){.bind = &(OnnxBind){"N", 4}, .nbind = 1}));
    for (uint32_t i = 1; i < m.g.nvals; i++)
        ck_assert_msg(m.g.vals[i].kind != VAL_INPUT || strcmp(m.g.vals[i].name, "x") == 0,
                      "'%s' is an input still", m.g.vals[i].name);
    release(&m);
    arena_free(&a);
}
END_TEST

START_TEST(passes)
{
    write_text("g.ckg", "graph {\n  input %x: f32[2,3]\n  %a: f32[2,3] = relu %x\n  %b: f32[2,3] = relu %x\n"
                        "  %c: f32[2,3] = add %a, %b\n  output %c\n}\n");
    ckc_accepts("opt --list");
    ckc_accepts("opt g.ckg");
    same_file("out", "g.ckg");
    ckc_accepts("opt --passes=simplify,fuse g.ckg");
    char *out = read_text("out");
    ck_assert_ptr_nonnull(strstr(out, "relu %x"));
    ck_assert_msg(strstr(out, "%b") == NULL, "not merged:\n%s", out);
    free(out);
    ckc_refuses(MLP " --bind batch=4 --disable plan", 1, "the passes bind and plan");
    ckc_refuses("plan " MLP " --bind batch=4 --disable fuse,all", 1, "the passes bind and plan");
    ckc_refuses(MLP " --bind batch=4 --disable remat --budget 100%", 1, "need that pass");
    ckc_refuses("eval " MLP " --disable plan", 1, "the passes bind and plan");
    ckc_refuses("eval --suite .", 1, ".: no model.onnx in it");
}
END_TEST

START_TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"1000000", 1000000},    {"40GB", 40000000000}, {"1.5GiB", 1610612736},
                {"512MiB", 536870912},   {"2kB", 2000},         {"3 MB", 3000000},
                {"1KiB", 1024},          {"7B", 7},
                {"40gb", 40000000000},   {"24G", 24000000000},  {"24g", 24000000000},
                {"512mib", 536870912},   {"2Ki", 2048}};
    static const char *const bad[] = {"", "GB", "-1", "0", "40", "1000", "1iB", "1GBs", "inf", "nan", "1e30"};
    int64_t v = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(parse_bytes(good[i].text, &v), "%s", good[i].text);
        ck_assert_int_eq(v, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!parse_bytes(bad[i], &v), "%s", bad[i]);
}
END_TEST

Suite *suite_cli(void)
{
    Suite *s = suite_create("cli");
    TCase *c = command_case(s, "commands");
    tcase_add_test(c, sizes);
    tcase_add_test(c, usage);
    tcase_add_test(c, models);
    tcase_add_test(c, truncated);
    tcase_add_test(c, malformed_fixtures);
    tcase_add_test(c, names_are_text);
    tcase_add_test(c, external_data);
    tcase_add_test(c, external_data_is_hashed);
    tcase_add_test(c, names_reach_no_source);
    tcase_add_test(c, unsupported);
    tcase_add_test(c, device_as_budget);
    tcase_add_test(c, budgets);
    tcase_add_test(c, overhead);
    tcase_add_test(c, accumulate_auto);
    tcase_add_test(c, offloaded);
    tcase_add_test(c, data);
    tcase_add_test(c, schedules);
    tcase_add_test(c, report);
    tcase_add_test(c, average);
    tcase_add_test(c, same_bits);
    tcase_add_test(c, saves_all_state);
    tcase_add_test(c, passes);
    return s;
}
