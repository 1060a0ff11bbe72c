/* test_help.c -- pages made from the tables of commands and options (help, man page, completion), and errors
 * about words of the command line. */
#include "tests.h"
#include "cli/option.h"
#include "command.h"
#include <stdlib.h>
#include <string.h>

#define MLP CKC_SOURCE_DIR "/examples/mlp/model.onnx"

/* Runs ckc, which must succeed, and returns what it prints; the caller frees it. */
static char *page(const char *args)
{
    ckc_accepts(args);
    return read_text("out");
}

static void narrow(const char *text, const char *args)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 80, "ckc %s: wider than 80 columns: %.90s", args, line);
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

START_TEST(every_page)
{
    for (const Subcommand *c = commands; c->name; c++) {
        char args[64];
        snprintf(args, sizeof args, "%s -h", c->name);
        char *brief = page(args);
        narrow(brief, args);
        ck_assert_int_le(lines(brief), 40);
        snprintf(args, sizeof args, "%s --help", c->name);
        char *all = page(args);
        narrow(all, args);
        for (const Row *r = option_rows; r < option_rows + option_count; r++)
            if (r->groups & c->groups)
                ck_assert_msg(strstr(all, format("--%s", r->name)) != NULL, "ckc %s: no --%s", args, r->name);
        char *same = page(format("help %s", c->name));
        ck_assert_str_eq(all, same);
        free(brief);
        free(all);
        free(same);
    }
}
END_TEST

/* The front page lists all commands, and ckc help prints that of ckc --help. */
START_TEST(front_page)
{
    char *brief = page("-h"), *all = page("--help"), *train = page("help"), *version = page("--version");
    for (const Subcommand *c = commands; c->name; c++) {
        ck_assert_msg(strstr(brief, format("\n  %s ", c->name)) != NULL, "%s", c->name);
        ck_assert_msg(strstr(all, format("\n  %s ", c->name)) != NULL, "%s", c->name);
    }
    ck_assert_str_eq(all, train);
    ck_assert(strncmp(version, "ckc ", 4) == 0);
    free(version);
    free(brief);
    free(all);
    free(train);
}
END_TEST

START_TEST(man_page)
{
    char *text = page("help --man");
    for (const Row *r = option_rows; r < option_rows + option_count; r++) {
        if (r->kind == TITLE)
            continue;
        char name[64] = "\\fB\\-\\-", *to = name + strlen(name);
        for (const char *s = r->name; *s; s++)
            to = stpcpy(to, *s == '-' ? "\\-" : (char[]){*s, 0});
        ck_assert_msg(strstr(text, name) != NULL, "no --%s", r->name);
    }
    static const char *const known[] = {".TH ", ".SH ", ".SS ", ".TP\n", ".PP\n", ".nf\n", ".fi\n", ".br\n"};
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        bool ok = *line != '.';
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            ok |= strncmp(line, known[i], 4) == 0;
        ck_assert_msg(ok, "%.40s", line);
    }
    free(text);
}
END_TEST

/* Checks what bash proposes for the words of a command line, of which the last is not finished. */
static void completes(const char *words, const char *with)
{
    write_text("words.sh",
               format("source ./ckc.bash; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                      "_ckc; echo \"${COMPREPLY[*]}\" >proposed\n",
                      words));
    ck_assert_int_eq(shell("bash words.sh"), 0);
    char *got = read_text("proposed");
    got[strcspn(got, "\n")] = 0;
    ck_assert_str_eq(got, with);
    free(got);
}

START_TEST(completion)
{
    ck_assert_int_eq(ckc("help --completion bash >ckc.bash"), 0);
    ck_assert_int_eq(shell("bash -n ckc.bash"), 0);
    completes("ckc pl", "plan");
    completes("ckc plan model.onnx --budg", "--budget");
    completes("ckc model.onnx --optimizer mo", "momentum");
    completes("ckc model.onnx --optimizer = sg", "sgd");
    completes("ckc pack file.csv --c", "--capacity");
    completes("ckc plan mod", "");
    for (int i = 1; shell_name[i]; i++) { /* the other shells check their scripts if they are installed */
        ckc_accepts(format("help --completion %s", shell_name[i]));
        ck_assert_int_eq(
            shell(format("! command -v %s >/dev/null || %s -n out", shell_name[i], shell_name[i])), 0);
    }
    ckc_refuses("help --completion tcsh", 1, "none of bash, zsh, fish");
}
END_TEST

START_TEST(unknown_words)
{
    ckc_refuses("trian", 1, "did you mean 'train'?");
    ckc_refuses("pln " MLP, 1, "did you mean 'plan'?");
    ckc_refuses("help slove", 1, "did you mean 'solve'?");
    ckc_refuses("no/such", 1, "no/such");
    ckc_refuses("p/step.ckp", 1, "ckc train takes MODEL.onnx; ckc run takes SCHEDULE.ckp");
    ckc_refuses("run " MLP, 1, "ckc run takes SCHEDULE.ckp; ckc plan takes MODEL.onnx");
    ckc_refuses("sweep i.dag --budgets 3", 1, "ckc compare takes MODEL.onnx|INSTANCE.dag");
    ckc_refuses(MLP " --bugdet 1GB", 1, "did you mean 'budget'?");
    ckc_refuses(MLP " --batch 3", 1, "no option '--batch'; did you mean 'bind'?");
    ckc_refuses("plan " MLP " --save w.onnx", 1, "no option '--save'; ckc train has it");
    ckc_refuses(MLP " --foo", 1, "no option '--foo'");
    ckc_refuses(MLP " --lo 1", 1, "--loss or --loss-output");
    ckc_refuses(MLP " --budget", 1, "--budget: its value is missing");
    ckc_refuses(MLP " -b", 1, "--budget: its value is missing");
    ckc_refuses(MLP " --json=yes", 1, "takes no value");
    ckc_refuses(MLP " -z", 1, "has no option '-z'");
    ckc_refuses("plan " MLP " --steps 3", 1, "has no option '--steps'");
}
END_TEST

static void fails_as_json(const char *args, int status, const char *file, const char *says)
{
    ckc_fails("", args, status, says); /* standard error has the same line as without --json */
    json_t *o = read_json("out");
    ck_assert_int_eq(json_integer_value(json_object_get(o, "status")), status);
    const char *text = json_string_value(json_object_get(o, "error"));
    ck_assert_msg(text && strstr(text, says) && !strchr(text, '\t'), "%s", text);
    const char *name = json_string_value(json_object_get(o, "file"));
    ck_assert_msg(file ? name && strcmp(name, file) == 0 : !name, "%s", name);
    json_decref(o);
}

START_TEST(errors_as_json)
{
    fails_as_json(MLP " --json --steps -1", 1, NULL, "--steps");
    fails_as_json(MLP " --bugdet 1 --json", 1, NULL, "'budget'");
    fails_as_json("trian --json", 1, NULL, "'train'");
    fails_as_json("missing.onnx --json", 1, NULL, "missing.onnx: No such file");
    fails_as_json("plan " MLP " --bind batch=4 -o m.ckc --budget 1kB --json", 3, MLP, "smallest");
}
END_TEST

/* ckc plan writes the schedule of a run without steps, and it can be run. */
START_TEST(plan_alone)
{
    ckc_accepts("plan " MLP " --bind batch=4 --device h200 -o a.ckc");
    ckc_accepts(MLP " --bind batch=4 --device h200 --steps 0 -o b.ckc");
    same_file("a.ckc/step.ckp", "b.ckc/step.ckp");
    ckc_accepts("plan " MLP " --bind batch=4 --device cpu -o c.ckc");
    ckc_accepts("run c.ckc/step.ckp --quiet");
}
END_TEST

Suite *suite_help(void)
{
    Suite *s = suite_create("help");
    TCase *pages = command_case(s, "pages");
    tcase_set_timeout(pages, 60);
    tcase_add_test(pages, every_page);
    tcase_add_test(pages, front_page);
    tcase_add_test(pages, man_page);
    tcase_add_test(pages, completion);
    tcase_add_test(pages, unknown_words);
    tcase_add_test(pages, errors_as_json);
    tcase_add_test(pages, plan_alone);
    return s;
}
