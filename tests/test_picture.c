/* test_picture.c -- report.html, --plot and --trace write well-formed files that show the plan's numbers. */
#include "cli/plot.h"
#include "command.h"
#include "onnx_builder.h"
#include "tests.h"
#include "xml.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=64 --moves 5000 --device fake "
#define HERE CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=64 --moves 5000 --device cpu "
#define MOVED                                                                                                \
    CKC_SOURCE_DIR "/examples/decoder/model.onnx --bind batch=4,seq=64 --device h200 --budget 80% "          \
                   "--offload only --moves 1000 "

static int64_t sum_of(const json_t *o, const char *key)
{
    const char *name;
    json_t *v;
    int64_t sum = 0;
    json_object_foreach(json_object_get(o, key), name, v) sum += json_integer_value(v);
    return sum;
}

/* ---- the page ---------------------------------------------------------------------------------------- */

static json_t *curve_of(const char *page)
{
    const char *from = strstr(page, "id=\"curve\">");
    ck_assert(from);
    from += strlen("id=\"curve\">");
    json_error_t e;
    json_t *curve = json_loadb(from, (size_t)(strstr(from, "</script>") - from), 0, &e);
    ck_assert_msg(curve != NULL, "%s", e.text);
    return curve;
}

/* Checks that the highest points of the page's memory curves are the peaks of the plan, and of the plan that
 * stores everything, in the report. */
static void check_curve(const char *page, const json_t *report)
{
    enum { ALL = 2, HELD = 3 };
    json_t *curve = curve_of(page), *at;
    int64_t most = 0, all = 0;
    size_t i;
    json_array_foreach(json_object_get(curve, "at"), i, at)
    {
        int64_t held = 0, other = json_integer_value(json_array_get(at, ALL));
        for (size_t k = HELD; k < json_array_size(at); k++)
            held += json_integer_value(json_array_get(at, k));
        most = held > most ? held : most;
        all = other > all ? other : all;
    }
    ck_assert_int_gt(most, 0);
    ck_assert_int_eq(most, json_integer_value(json_object_get(report, "live_bytes")));
    ck_assert_int_eq(most, sum_of(report, "memory"));
    ck_assert_int_eq(all, sum_of(report, "keep_all_memory"));
    json_decref(curve);
}

START_TEST(page_has_the_numbers)
{
    static const char *const args[] = {"plan " MLP, "plan " MLP "--budget 85%", "plan " MOVED,
                                       "plan " MLP "--accumulate 4 --disable cost",
                                       "train " HERE "--budget 85% --steps 3 --profile"};
    ckc_accepts(format("%s -o p --json", args[_i]));
    check_xml("p/report.html");
    json_t *report = read_json("p/report.json");
    char *page = read_text("p/report.html");
    check_curve(page, report);
    ck_assert_int_eq(count_elements(page, "html"), 1);
    ck_assert(strstr(page, "http://www.w3.org/2000/svg"));
    for (const char *s = page; (s = strstr(s, "http")) != NULL; s++) /* the page fetches nothing */
        ck_assert(strncmp(s, "http://www.w3.org/2000/svg", 26) == 0 || strncmp(s, "http-equiv", 10) == 0);
    ck_assert(!strstr(page, " src=") && !strstr(page, "url(") && !strstr(page, "@import"));
    ck_assert_int_lt((int64_t)strlen(page), 300000);
    bool again = json_integer_value(json_object_get(report, "recomputed_steps")) > 0;
    ck_assert(again == (strstr(page, "<h2>Computed again</h2>") != NULL));
    ck_assert((_i == 4) == (strstr(page, ">measured</th>") != NULL));
    ck_assert((_i == 4) == (strstr(page, "<h2>Loss</h2>") != NULL));
    free(page);
    json_decref(report);
}
END_TEST

static void check_page(const char *heading, const char *shown)
{
    check_xml("p/report.html");
    char *page = read_text("p/report.html");
    ck_assert_msg(strstr(page, heading) && strstr(page, shown), "%s", page);
    ck_assert(strstr(page, "<h2>Memory over the step</h2>") &&
              strstr(page, ">the plan of this report</text>"));
    ck_assert(!strstr(page, "nan") && !strstr(page, "inf\""));
    free(page);
}

/* The page of a sweep shows its frontier and, in full, the plan of one of its points. */
START_TEST(page_of_a_sweep)
{
    ckc_accepts("sweep " MLP "--budgets 4 -o p --json");
    json_t *report = read_json("p/report.json"), *sweep = json_object_get(report, "sweep"), *p,
           *printed = read_json("out"), *budget = json_object_get(report, "budget_bytes");
    int same = 0;
    size_t i;
    ck_assert(
        json_equal(json_object_get(sweep, "keep_all_bytes"), json_object_get(printed, "keep_all_bytes")));
    ck_assert_uint_eq(json_array_size(json_object_get(sweep, "points")), 4);
    json_array_foreach(json_object_get(sweep, "points"), i, p) same +=
        json_equal(json_object_get(p, "budget_bytes"), budget);
    ck_assert_int_eq(same, 1);
    check_page("<h2>What less memory costs</h2>", "All else on this page is the plan for ");
    ck_assert_int_eq(files_like("p/step.ckp"), 1);
    json_decref(report);
    json_decref(printed);
    ckc_accepts(
        "sweep " CKC_SOURCE_DIR
        "/examples/mlp/model.onnx --device fake --offload no --moves 5000 --batch 4..32 --budget 65kB "
        "-o p");
    char *out = read_text("out"), wrote[80];
    report = read_json("p/report.json");
    sweep = json_object_get(report, "sweep");
    snprintf(wrote, sizeof wrote, "the plan of batch %d in one batch",
             (int)json_integer_value(json_object_get(sweep, "best_batch")));
    ck_assert_msg(strstr(out, wrote), "%s", out);
    check_page("<h2>What a larger batch brings</h2>", wrote);
    ck_assert_int_eq(json_integer_value(json_object_get(report, "budget_bytes")), 65000);
    json_decref(report);
    free(out);
}
END_TEST

/* ---- pictures ------------------------------------------------------------------------------------------ */

static int pixels_of(const Png *p, Paint paint)
{
    uint32_t rgb = paint_color[paint].light;
    int n = 0;
    for (size_t i = 0; i < (size_t)p->width * p->height; i++)
        n += p->rgb[3 * i] == rgb >> 16 && p->rgb[3 * i + 1] == (rgb >> 8 & 255) &&
             p->rgb[3 * i + 2] == (rgb & 255);
    return n;
}

static void check_png(const char *path, Paint has)
{
    Png p = read_png(path);
    ck_assert_uint_eq(p.width, 2 * PLOT_WIDTH);
    ck_assert_uint_eq(p.height, 2 * PLOT_HEIGHT);
    ck_assert_int_gt(pixels_of(&p, PAINT_SURFACE), 1000);
    ck_assert_int_gt(pixels_of(&p, PAINT_INK), 100);
    ck_assert_int_gt(pixels_of(&p, has), 200);
    free(p.rgb);
}

/* Returns the y coordinate, in pixels from the top, of the element of the SVG that ends with this text. */
static double level_of(const char *svg, const char *text)
{
    const char *end = strstr(svg, text), *y = NULL;
    ck_assert(end);
    for (const char *s = svg; (s = strstr(s, " y=\"")) != NULL && s < end; s++)
        y = s + strlen(" y=\"");
    ck_assert(y);
    return strtod(y, NULL);
}

START_TEST(plots)
{
    ckc_accepts("plan " MLP "--budget 85% -o p --quiet --plot a.svg");
    check_xml("a.svg");
    char *svg = read_text("a.svg");
    ck_assert(strstr(svg, "class=\"f-again\""));
    /* Both labels stand above the plot area, where no curve crosses them. */
    ck_assert(fabs(level_of(svg, ">everything stored</text>") - level_of(svg, ">budget ")) <= 40);
    free(svg);
    ckc_accepts("plan " MLP "--budget 85% -o p --quiet --plot a.png");
    check_png("a.png", PAINT_LIMIT);
    ckc_accepts("plan " MOVED "-o p --quiet --plot b.png");
    check_png("b.png", PAINT_COPY);
    ckc_accepts("sweep " MLP "--budgets 4 --plot s.svg");
    check_xml("s.svg");
    ckc_accepts("sweep " CKC_SOURCE_DIR
                "/examples/mlp/model.onnx --moves 5000 --device fake --budget 1GB --batch "
                "4..32 --plot s.png");
    check_png("s.png", PAINT_KIND + MEM_ACTIVATION);
}
END_TEST

static void check_printed(const char *text)
{
    char *out = read_text("out");
    ck_assert_msg(strstr(out, text), "%s", out);
    free(out);
}

/* A sweep of a single point is drawn; one without a point is refused, and its table is printed. */
START_TEST(few_points)
{
    static const char sweep[] =
        "sweep " CKC_SOURCE_DIR "/examples/mlp/model.onnx --device fake --batch 8..8 ";
    ckc_accepts(format("%s --budget 1GB --plot s.svg", sweep));
    check_xml("s.svg");
    char *svg = read_text("s.svg");
    ck_assert(!strstr(svg, "nan") && !strstr(svg, "inf") && strstr(svg, ">8<") && strstr(svg, ">16<"));
    free(svg);
    ckc_fails("", format("%s --budget 1kB --plot t.svg", sweep), 3,
              "no batch of these fits: there is nothing for --plot to draw");
    check_printed("       8           -");
    ckc_fails("", format("%s --budget 1kB -o t", sweep), 3, "there is nothing for --output");
    check_printed("No batch of these fits.");
    ck_assert_int_eq(files_like("t*"), 0);
}
END_TEST

/* ---- shapes -------------------------------------------------------------------------------------------- */

/* Areas and lines cover the pixels that they should, and no others. */
START_TEST(pixels)
{
    Arena a = {0};
    Diag d = {0};
    Picture p = {.a = &a, .width = 40, .height = 20, .title = "t"};
    picture_rect(&p, PAINT_AGAIN, 2, 3, 10, 5);
    picture_line(&p, PAINT_INK, 2, false, (PlotPoint[]){{20, 10}, {30, 10}}, 2);
    picture_area(&p, PAINT_COPY, (PlotPoint[]){{20, 12}, {30, 12}, {20, 18}, {30, 18}},
                 4); /* crosses itself */
    ck_assert(picture_write(&p, "p.png", &d) && picture_write(&p, "p.svg", &d));
    check_xml("p.svg");
    Png png = read_png("p.png");
    ck_assert_int_eq(pixels_of(&png, PAINT_AGAIN), 20 * 10);
    ck_assert_int_ge(pixels_of(&png, PAINT_INK), 20 * 4);
    ck_assert_int_le(pixels_of(&png, PAINT_INK), 24 * 4);
    ck_assert_int_ge(pixels_of(&png, PAINT_COPY), 80); /* half of 20 by 12, less the edges */
    ck_assert_int_le(pixels_of(&png, PAINT_COPY), 120);
    free(png.rgb);
    arena_free(&a);
}
END_TEST

/* Every byte above a blank is drawn, whether or not it is a character by itself. */
START_TEST(letters)
{
    enum { FIRST = '!', LAST = 0xff, CELL = 20 };
    Arena a = {0};
    Diag d = {0};
    Picture p = {.a = &a, .width = CELL * (LAST - FIRST + 1), .height = CELL, .title = "t"};
    for (int c = FIRST; c <= LAST; c++)
        picture_text(&p, PAINT_INK, CELL * (c - FIRST) + 5, 15, ALIGN_LEFT, 12, (char[]){(char)c, 0});
    ck_assert(picture_write(&p, "p.png", &d) && picture_write(&p, "p.svg", &d));
    check_xml("p.svg");
    Png png = read_png("p.png");
    for (int c = FIRST; c <= LAST; c++) {
        bool drawn = false;
        for (size_t y = 0; y < 2 * CELL; y++)
            for (size_t x = 0; x < 2 * CELL; x++)
                drawn |= png.rgb[3 * (y * png.width + (size_t)(c - FIRST) * 2 * CELL + x)] < 128;
        ck_assert_msg(drawn, "nothing is drawn of 0x%x", (unsigned)c);
    }
    free(png.rgb);
    arena_free(&a);
}
END_TEST

/* ---- the trace ----------------------------------------------------------------------------------------- */

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }
static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* Checks what the trace format demands of an event, and that the event's thread has a name: it is in `named`,
 * as "PROCESS.THREAD". */
static void check_event(const json_t *e, const json_t *named)
{
    const char *ph = text(e, "ph"), *key;
    json_t *args = json_object_get(e, "args"), *v;
    ck_assert(ph && strlen(ph) == 1 && strchr("MXC", *ph));
    ck_assert(text(e, "name") && json_is_integer(json_object_get(e, "pid")) && json_is_object(args));
    ck_assert(*ph == 'C' || json_is_integer(json_object_get(e, "tid")));
    ck_assert(*ph == 'M' || number(e, "ts") >= 0);
    if (*ph == 'M')
        ck_assert(text(args, "name") && strlen(text(args, "name")));
    if (*ph == 'X')
        ck_assert(text(e, "cat") && json_is_real(json_object_get(e, "dur")) && number(e, "dur") >= 0 &&
                  json_object_get(named, format("%g.%g", number(e, "pid"), number(e, "tid"))));
    json_object_foreach(args, key, v)
        ck_assert(*ph != 'C' || json_is_integer(v));
}

/* Returns a time of an event in nanoseconds, as Perfetto reads it. */
static int64_t read_time(const json_t *e, const char *key) { return (int64_t)(number(e, key) * 1000); }

/* Checks that in each thread one event ends before the next begins, else Perfetto drops it, and that the
 * steps and the most bytes held are those of the report. */
static void check_trace(const json_t *trace, const json_t *report, bool measured)
{
    enum { THREADS = 4 };
    double last = 0;
    int64_t end[3][THREADS] = {0}, most = 0;
    int steps[3] = {0};
    size_t i;
    json_t *e, *named = json_object();
    json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
    {
        int pid = (int)number(e, "pid"), tid = (int)number(e, "tid");
        check_event(e, named);
        ck_assert(pid >= 1 && pid <= 2 && tid >= 0 && tid < THREADS);
        if (*text(e, "ph") == 'M') {
            ck_assert(steps[pid] == 0);
            json_object_set_new(named, format("%d.%d", pid, tid), json_true());
            continue;
        }
        ck_assert(number(e, "ts") >= last);
        last = number(e, "ts");
        if (*text(e, "ph") == 'X') {
            ck_assert_msg(read_time(e, "ts") >= end[pid][tid], "%s begins too early", text(e, "name"));
            end[pid][tid] = read_time(e, "ts") + read_time(e, "dur");
            steps[pid]++;
        } else {
            int64_t held = strcmp(text(e, "name"), "memory") == 0 ? sum_of(e, "args") : 0;
            most = held > most ? held : most;
        }
    }
    ck_assert_int_eq(most, (int64_t)number(report, "live_bytes"));
    ck_assert_int_eq(steps[1], (int)number(report, "steps"));
    ck_assert_int_eq(steps[2], measured ? steps[1] : 0);
    ck_assert_double_le(1e-6 * (double)end[1][1], number(report, "predicted_ms") + 1e-6);
    json_decref(named);
}

START_TEST(traces)
{
    static const char *const args[] = {"plan " MLP "--budget 85%", "plan " MOVED,
                                       "plan " MLP "--accumulate 4", "train " HERE "--steps 2 --profile"};
    ckc_accepts(format("%s -o p --quiet --trace t.json", args[_i]));
    json_t *trace = read_json("t.json"), *report = read_json("p/report.json");
    check_trace(trace, report, _i == 3);
    json_decref(trace);
    json_decref(report);
}
END_TEST

/* ---- hostile names ------------------------------------------------------------------------------------- */

#define EVIL "</script><script>alert(1)</script><!--\"'&amp;]]>"

static void write_evil(void)
{
    Arena a = {0};
    Builder b;
    static float w[64] = {1, 2, 3};
    char longer[400];
    memset(longer, 'n', sizeof longer);
    memcpy(longer + sizeof longer - 8, ".weight", 8);
    start(&b, 17);
    add_value(&b, &a, EVIL "x", FLOAT, "N8", true);
    add_tensor(&b, EVIL "\xe2\x80\xae.weight", 2, (int64_t[]){8, 8}, w);
    add_tensor(&b, longer, 2, (int64_t[]){8, 8}, w);
    add_node(&b, &a, "MatMul", EVIL "x " EVIL "\xe2\x80\xae.weight", "h")->name = EVIL "/node";
    add_node(&b, &a, "Tanh", "h", EVIL "t")->name = "a/\xef\xbf\xbf\xc3\xa4/Tanh";
    add_node(&b, &a, "MatMul", format(EVIL "t %s", longer), "y")->name = longer;
    add_value(&b, &a, "y", FLOAT, "N8", false);
    save(&b, &a, "<b>&.onnx");
    arena_free(&a);
}

START_TEST(names_are_escaped)
{
    write_evil();
    ckc_accepts(
        "plan '<b>&.onnx' --loss mse --bind N=64 --device fake -o p --quiet --trace t.json --plot a.svg");
    check_xml("p/report.html");
    check_xml("a.svg");
    char *page = read_text("p/report.html");
    ck_assert(!strstr(page, "<script>alert") && !strstr(page, "<!--") && !strstr(page, "<b>&"));
    ck_assert(strstr(page, "&lt;script&gt;alert_1_"));
    ck_assert_int_eq(count_elements(page, "script"), 2);
    json_t *curve = curve_of(page), *trace = read_json("t.json");
    json_decref(curve);
    json_decref(trace);
    free(page);
    ckc_accepts("plan '<b>&.onnx' --loss mse --bind N=64 --device fake -o p --quiet --plot a.png");
    check_png("a.png", PAINT_KIND + MEM_ACTIVATION);
}
END_TEST

/* ---- errors -------------------------------------------------------------------------------------------- */

START_TEST(mistakes)
{
    ckc_refuses("plan " MLP "--plot a.pdf", 1, "'a.pdf' ends in neither .svg nor .png");
    ckc_refuses("sweep " MLP "--plot a", 1, "'a' ends in neither .svg nor .png");
    ckc_refuses("plan " MLP "--plot none/a.svg", 1, "none/a.svg: the folder it would lie in is not there");
    ckc_refuses("plan " MLP "--trace /proc/t.json", 1, "/proc/t.json");
    ckc_refuses("sweep " MLP "--budgets 2 --plot none/a.png", 1,
                "none/a.png: the folder it would lie in is not there");
    ck_assert_int_eq(shell("ln -s /dev/full full.svg; ln -s /dev/full full.png; ln -s /dev/full full.json"),
                     0);
    ckc_fails("", "plan " MLP "-o p --plot full.svg", 4, "full.svg: No space left");
    ckc_fails("", "plan " MLP "-o p --plot full.png", 4, "full.png: No space left");
    ckc_fails("", "plan " MLP "-o p --trace full.json", 4, "full.json: No space left");
    ckc_fails("", "sweep " MLP "--budgets 2 --plot full.svg", 4, "full.svg: No space left");
}
END_TEST

Suite *suite_picture(void)
{
    Suite *s = suite_create("picture");
    TCase *t = command_case(s, "picture");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, page_has_the_numbers, 0, 5);
    tcase_add_test(t, page_of_a_sweep);
    tcase_add_test(t, plots);
    tcase_add_test(t, few_points);
    tcase_add_test(t, pixels);
    tcase_add_test(t, letters);
    tcase_add_loop_test(t, traces, 0, 4);
    tcase_add_test(t, names_are_escaped);
    tcase_add_test(t, mistakes);
    return s;
}
