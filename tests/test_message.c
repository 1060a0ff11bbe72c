/* test_message.c -- what a user is told: text of files is escaped, a similar name is proposed, lines fit the
 * terminal, and a line of progress tells what is being done; and which steps exceed the machine's memory. */
#include "tests.h"
#include "cli/cli.h"
#include "command.h"
#include "passes/passes.h"
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

static void escaped(const char *text, const char *wanted)
{
    char *got = text_escape(text, NULL);
    ck_assert_ptr_nonnull(got);
    ck_assert_msg(strcmp(got, wanted) == 0, "'%s' instead of '%s'", got, wanted);
    free(got);
}

START_TEST(escapes)
{
    static const char *const plain = "plain, gr\xc3\xbc\xc3\x9f, \xe6\xbc\xa2, \xf0\x9f\x98\x80";
    escaped(plain, plain);
    escaped("x\nckc: forged\r\033[2J\x7f", "x\\x0ackc: forged\\x0d\\x1b[2J\\x7f");
    escaped("\xc2\x9b" "1A", "\\xc2\\x9b1A");                 /* a control character of two bytes */
    escaped("\xe2\x80\xae", "\\xe2\\x80\\xae");              /* a character that reverses the text */
    escaped("\xff \xc3", "\\xff \\xc3");                       /* not UTF-8; a sequence cut off */
    escaped("\xc0\xaf \xed\xa0\x80", "\\xc0\\xaf \\xed\\xa0\\x80"); /* an overlong sequence; half a pair */
}
END_TEST

/* What message_print writes at a width; the caller frees it. */
static char *printed(const char *text, int width)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    ck_assert_ptr_nonnull(f);
    message_print(f, text, width);
    fclose(f);
    return out;
}

START_TEST(one_line_or_a_table)
{
    const char *text = "ckc: it does not fit:\tparameters 10,\tactivations 20";
    char *line = printed(text, 0), *table = printed(text, 80), *forged = printed("a\nckc: b", 80);
    ck_assert_str_eq(line, "ckc: it does not fit: parameters 10, activations 20\n");
    ck_assert_str_eq(table, "ckc: it does not fit:\n  parameters 10,\n  activations 20\n");
    ck_assert_str_eq(forged, "a\\x0ackc: b\n");
    free(line);
    free(table);
    free(forged);
    char *list = printed("2 unsupported nodes:\n  one\n  two", 0);
    ck_assert_str_eq(list, "2 unsupported nodes:\n  one\n  two\n");
    free(list);
}
END_TEST

/* An error's line names the file once, also if the message begins with it or with the same letters. */
START_TEST(errors_name_the_file)
{
    static const char *const line[] = {"b: budget of 10", "b: no such file"};
    static const Diag said[] = {{.msg = "budget of 10"}, {.msg = "b: no such file"}};
    for (int i = 0; i < 2; i++) {
        char *text = error_line(&said[i], "b");
        ck_assert_str_eq(text, line[i]);
        free(text);
    }
}
END_TEST

START_TEST(lines_as_wide_as_the_terminal)
{
    char *text = printed("ckc: words of a message that is wider than the terminal is, and "
                         "averyveryveryverylongwordthatfitsnowhere at its end", 24);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        ck_assert_msg(strlen(line) < 24 || strstr(line, "averyvery"), "%s", line);
    free(text);
}
END_TEST

static void meant(const char *typed, const char *hint)
{
    static const char *const names[] = {
        "wte.weight", "h.0.attn.weight", "h.0.mlp.weight", "batch", "keep-batch-norm", "tie", "lr"};
    char got[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, typed);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nearest_try(&near, names[i]);
    ck_assert_msg(strcmp(nearest_hint(&near, got), hint) == 0, "%s: %s", typed, got);
}

START_TEST(names_that_were_meant)
{
    meant("btach", "; did you mean 'batch'?");
    meant("batc", "; did you mean 'batch'?");
    meant("wte.wieght", "; did you mean 'wte.weight'?");
    meant("*.attn", "; did you mean 'h.0.attn.weight'?");
    meant("norm-batch", ""); /* far-fetched: more than a third of the letters are others */
    meant("keep", "");
    meant("teh", "");
    meant("tei", "; did you mean 'tie'?");
    meant("lrr", "; did you mean 'lr'?");
    meant("nothing like it", "");
    meant("", "");
}
END_TEST

/* ---- on a terminal -------------------------------------------------------------------------- */

/* All that "ckc ARGS" writes on a terminal with so many columns; the caller frees it.  *status: the exit
 * status, -1 if a signal ended it. */
static char *on_terminal(const char *args, unsigned short columns, int *status)
{
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    char command[2048], *out = calloc(1, 1 << 20);
    int fd, st;
    snprintf(command, sizeof command, "exec '%s' %s", ckc_binary, args);
    pid_t pid = forkpty(&fd, NULL, NULL, &size);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    size_t n = 0;
    for (ssize_t got; n < (1 << 20) - 1; n += (size_t)got)
        if ((got = read(fd, out + n, (1 << 20) - 1 - n)) <= 0)
            break; /* EIO: the other side is closed */
    close(fd);
    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    *status = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
    return out;
}

/* Puts a slow compiler in PATH, since progress is shown only for what takes longer than half a second. */
static void slow_compiler(void)
{
    ck_assert_int_eq(shell("mkdir bin"), 0);
    write_text("bin/cc", "#!/bin/sh\nsleep 0.8\nPATH=${PATH#*:} exec cc \"$@\"\n");
    ck_assert_int_eq(shell("chmod +x bin/cc"), 0);
    char cwd[4096], *path;
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    ck_assert_int_ge(asprintf(&path, "%s/bin:%s", cwd, getenv("PATH")), 0);
    setenv("PATH", path, 1);
    free(path);
}

START_TEST(planning_is_not_silent)
{
    int status;
    slow_compiler();
    static const char args[] = MLP " --bind batch=4 --steps 0 --output x --budget 10B --cache fresh";
    char *out = on_terminal(args, 60, &status);
    ck_assert_msg(status == 3, "status %d: %s", status, out);
    ck_assert_msg(strstr(out, "\rckc: compiling "), "%s", out);
    char *last = strstr(out, "\r\033[K" "ckc: "); /* the message follows once the line is erased */
    ck_assert_msg(last && strstr(last, "cannot be met"), "%s", out);
    ck_assert_msg(strstr(last, "\n  parameters ") != NULL, "%s", last);
    for (char *line = strtok(last + 4, "\r\n"); line; line = strtok(NULL, "\r\n"))
        ck_assert_msg(strlen(line) < 60, "'%s'", line);
    free(out);
}
END_TEST

/* What lines of progress show: rate and time left; a bar.  progress_lines() returns the bits that it saw. */
enum { SAID = 1, BAR = 2 };

static int progress_lines(unsigned short columns, int steps)
{
    char args[256];
    int status, seen = 0;
    snprintf(args, sizeof args, MLP " --bind batch=64 --threads 1 --steps %d --output x", steps);
    char *out = on_terminal(args, columns, &status), end[32];
    snprintf(end, sizeof end, "/%d, loss ", steps);
    ck_assert_msg(status == 0, "%s", out);
    for (char *line = strtok(out, "\r\n"); line; line = strtok(NULL, "\r\n")) {
        if (!strstr(line, end))
            continue;
        ck_assert_msg(strcspn(line, "\033") < columns, "'%s'", line);
        seen |= strncmp(line, "ckc: [", 6) == 0 && strstr(line, "] ") ? BAR : 0;
        seen |= strstr(line, " samples/s, ") && strstr(line, " left") ? SAID : 0;
    }
    free(out);
    return seen;
}

/* A run shows its rate, the time left and, if there is room, a bar.  What takes less than half a second shows
 * nothing, so the number of steps grows until this machine takes longer. */
START_TEST(progress_of_a_run)
{
    for (unsigned short columns = 80; columns >= 60; columns -= 20) {
        int steps = 4000, seen = 0;
        for (; !(seen & SAID) && steps <= 1024000; steps *= 4)
            seen = progress_lines(columns, steps);
        ck_assert_msg(seen & SAID && (seen & BAR || columns < 80), "%d columns: %d", columns, seen);
    }
}
END_TEST

START_TEST(progress_goes_on)
{
    int st;
    pid_t pid = forkpty(&(int){-1}, NULL, NULL, NULL);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        Progress planning = progress_begin(false), running = progress_begin(false);
        _exit(planning.say && running.say ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    ck_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}
END_TEST

START_TEST(quiet_is_silent)
{
    int status;
    char *out = on_terminal(MLP " --bind batch=4 --steps 0 -o x --budget 100% -q --time 1", 60, &status);
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(out, "");
    free(out);
}
END_TEST

/* Commands that plan nothing print lines of at most 80 columns, without escape sequences. */
START_TEST(tables_fit_80_columns)
{
    static const char *const pages[] = {"opt --list", "devices",
                                        "eval " MLP " --bind batch=4",
                                        "solve " CKC_SOURCE_DIR "/examples/trace4/trace4.dag --budget 50%",
                                        "solve " CKC_SOURCE_DIR "/examples/trace4/trace4.dag --budget 1"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        int status;
        char *out = on_terminal(pages[i], 80, &status), *last = out;
        for (char *at = out; (at = strstr(at, "\r\033[K")) != NULL;)
            last = at += 4;
        for (char *line = strtok(last, "\r\n"); line; line = strtok(NULL, "\r\n"))
            ck_assert_msg(strlen(line) <= 80, "ckc %s: '%s'", pages[i], line);
        ck_assert_msg(!strstr(last, "\033"), "ckc %s: %s", pages[i], last);
        free(out);
    }
}
END_TEST

/* Lines of a summary and of the list of devices are wrapped, and continue below their own column. */
START_TEST(summaries_as_wide_as_the_terminal)
{
    static const char *const pages[] = {"devices", "plan " MLP " --bind batch=4 --device h200 --output x"};
    for (int i = 0; i < 2; i++) {
        int status;
        char *out = on_terminal(pages[i], 60, &status), *last = out;
        ck_assert_int_eq(status, 0);
        for (char *at = out; (at = strstr(at, "\r\033[K")) != NULL;)
            last = at += 4; /* skips the line of progress */
        ck_assert_msg(strstr(last, i ? "\n            " : "\n         ") != NULL, "%s", last);
        for (char *line = strtok(last, "\r\n"); line; line = strtok(NULL, "\r\n"))
            ck_assert_msg(strlen(line) < 60, "'%s'", line);
        free(out);
    }
}
END_TEST

/* ---- memory of the machine ------------------------------------------------------------------- */

static bool default_costs(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)user, (void)c, (void)n, (void)out;
    return !d->failed;
}

/* Checks that pass cost accepts a product with a [64,64] parameter if `fits`, else refuses it, on a machine
 * with so many bytes of memory, 0: unknown, and within a budget in bytes, 0: none. */
static void planned_within(int64_t memory, int64_t budget, bool fits)
{
    Arena a = {0}, tmp = {0};
    Diag d = {0};
    Graph g;
    graph_init(&g, &a, &d);
    StepInfo info = {0};
    StepOptions opt = {.memory = memory, .budget = budget, .cost = default_costs};
    PassCtx cx = {.diag = &d, .tmp = &tmp, .opt = &opt, .info = &info};
    ck_assert_msg(graph_parse(&g, "graph {\n"
                                  "  param %w: f32[64,64]\n"
                                  "  input %x: f32[64,64]\n"
                                  "  %y: f32[64,64] = matmul %x, %w\n"
                                  "  %z: f32[64,64] = tanh %y\n"
                                  "  output %y\n"
                                  "  output %z\n"
                                  "}\n", &d), "%s", d.msg);
    bool ok = pass_cost(&g, &cx);
    ck_assert_msg(ok == fits, "%lld bytes of memory: %s", (long long)memory, d.msg);
    if (!fits) {
        ck_assert_int_eq(d.status, EXIT_DEVICE);
        ck_assert_msg(strstr(d.msg, "ckc plan") != NULL, "%s", d.msg);
    }
    arena_free(&tmp);
    arena_free(&a);
}

/* A step of ten seconds and more is no power of ten: "1.283e+05 ms". */
START_TEST(long_times_are_plain)
{
    static const struct {
        int64_t ns;
        const char *text;
    } wanted[] = {{51730, "0.05173 ms"},
                  {286996000, "287 ms"},
                  {9999600000, "10000 ms"},
                  {INT64_C(128345678901), "128346 ms"}};
    char got[32];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        ck_assert_str_eq(ms_str(wanted[i].ns, got), wanted[i].text);
}
END_TEST

START_TEST(what_no_memory_holds_is_refused_early)
{
    enum { MATRIX = 64 * 64 * 4 };
    planned_within(0, 0, true);
    planned_within(4 * MATRIX, 0, true);
    planned_within(4 * MATRIX - 1, 0, false);
    planned_within(4 * MATRIX - 1, 3 * MATRIX, true); /* recomputation may meet the budget */
    planned_within(2 * MATRIX - 1, 1, false);         /* parameter and input are always there */
}
END_TEST

Suite *suite_message(void)
{
    Suite *s = suite_create("message");
    TCase *t = tcase_create("text");
    tcase_add_test(t, escapes);
    tcase_add_test(t, one_line_or_a_table);
    tcase_add_test(t, errors_name_the_file);
    tcase_add_test(t, lines_as_wide_as_the_terminal);
    tcase_add_test(t, names_that_were_meant);
    tcase_add_test(t, what_no_memory_holds_is_refused_early);
    tcase_add_test(t, long_times_are_plain);
    suite_add_tcase(s, t);
    t = tcase_create("terminal");
    tcase_add_unchecked_fixture(t, make_empty_cache, remove_cache);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, planning_is_not_silent);
    tcase_add_test(t, progress_of_a_run);
    tcase_add_test(t, progress_goes_on);
    tcase_add_test(t, quiet_is_silent);
    tcase_add_test(t, tables_fit_80_columns);
    tcase_add_test(t, summaries_as_wide_as_the_terminal);
    suite_add_tcase(s, t);
    return s;
}
