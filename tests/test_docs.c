/* test_docs.c -- what README.md, docs/ and the walk-throughs of examples/ say is true: links, commands,
 * options, files, keys of report.json, and printed output. */
#include "tests.h"
#include "cli/cli.h"
#include "command.h"
#include "markdown.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* No document has a fault; the failure's text lists all that are found. */
START_TEST(documents)
{
    static const char *const pattern[] = {"README.md", "docs/*.md", "examples/*/README.md"};
    char *faults;
    size_t size;
    Markdown m = {.root = CKC_SOURCE_DIR, .faults = open_memstream(&faults, &size)};
    markdown_begin(&m);
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        glob_t found;
        ck_assert_int_eq(glob(format("%s/%s", m.root, pattern[i]), 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++)
            markdown_check(&m, found.gl_pathv[k] + strlen(m.root) + 1);
        globfree(&found);
    }
    fclose(m.faults);
    printf("docs: %d links, %d commands, %d files looked up\n", m.links, m.commands, m.names);
    ck_assert_msg(m.nfault == 0, "%s", faults);
    ck_assert_int_gt(m.links, 20);
    ck_assert_int_gt(m.commands, 100);
    ck_assert_int_gt(m.names, 100);
    free(faults);
    arena_free(&m.arena);
}
END_TEST

/* Texts with one fault or none; a fault is found and reported with its line, and nothing else is. */
static const struct {
    const char *text, *says; /* says: the report; NULL: the text has no fault */
} planted[] = {
    {"# A `b`: c_d, e-f\n\n[x](#a-b-c_d-e-f), [y](docs/y.md#two-words)\n", NULL},
    {"one\n[x](docs/none.md)\n", "README.md:2: link to docs/none.md: there is no docs/none.md"},
    {"[x](docs/y.md#three)", "README.md:1: link to docs/y.md#three: no such heading"},
    {"[a\nb](#none)", "README.md:2: link to #none: no such heading in README.md"},
    {"```\n# no heading\n```\n\n[x](#no-heading)", "README.md:5: link to #no-heading"},
    {"    ckc plan m.onnx --budget 50% \\\n        --device h200\n", NULL},
    {"text\n\n    $ ckc plan m.onnx --bugdet 50%\n",
     "README.md:3: ckc plan: ckc plan has no option '--bugdet'"},
    {"```\n$ ckc m.onnx \\\n    --steps many\n```\n",
     "README.md:2: ckc train: --steps: 'many' is not a number"},
    {"    $ ckc m.onnx 2>&1 | grep x && build/release/ckc sovle a.dag\n",
     "README.md:1: ckc sovle: no such command"},
    {"    $ ckc solve a.dag --policy 'chen-sqrt' >out; ckc solve a.dag --polcy x\n", "no option '--polcy'"},
    {"    $ for b in 1 2; do ckc plan m.onnx --bind b=$b --mory; done\n", "ckc plan has no option '--mory'"},
    {"    $ for p in dtr x; do ckc plan m.onnx --policy $p; done; ckc plan m.onnx --policy $p\n", NULL},
    {"    $ for p in x dtr; do ckc plan m.onnx --policy $p; done\n", "'x' is none of"},
    {"    $ ckc plan ir/none.onnx\n", "README.md:1: there is no ir/none.onnx"},
    {"    $ ckc compare a.dag\n    ckc     8 B\n\n    ckc pack a.csv # ckc nothing\n", NULL},
    {"`ckc sweep --budgets\nN`, `ckc COMMAND --help`, `--no-decay GLOB,...`, `ckc [train] M --lr=X`", NULL},
    {"x\ny `ckc sweep --budget-list N`", "README.md:2: sweep has no option --budget-list"},
    {"`--emitt onnx`", "README.md:1: ckc has no option --emitt"},
    {"`--seed` `--lr X --wramup N`", "README.md:1: ckc has no option --wramup"},
    {"`ckc plann M`", "README.md:1: ckc plann: no such command"},
    {"`ir/y.c`, `y.c`, `ir/*.c`, `*.h`, `ir/`, (ir/y.c, `none.x`, ir/y.c.", NULL},
    {"`./ir/y.c x`, `./y.c`", NULL},
    {"`./ir/z.c x`", "README.md:1: there is no ir/z.c"},
    {"a\nb\nc ir/z.c:", "README.md:3: there is no ir/z.c"},
    {"`z.c`", "README.md:1: there is no z.c"},
    {"`ir/*.def`", "README.md:1: there is no ir/*.def"},
    {"(see ir/none)", "README.md:1: there is no ir/none"},
    {"x\n\n| a | b |\n|---|---|\n| `\\|` | \\| |\n", NULL},
    {"x\n\n| a | b |\n|---|---|\n| c | d | e |\n", "README.md:5: a table of 2 columns has 3 here"},
};

START_TEST(faults_are_found)
{
    ck_assert_int_eq(shell("mkdir docs ir && touch ir/y.c ir/y.h && printf '# Two words\\n' >docs/y.md"), 0);
    write_text("README.md", planted[_i].text);
    char *faults;
    size_t size;
    Markdown m = {.root = folder_path(), .faults = open_memstream(&faults, &size)};
    markdown_begin(&m);
    markdown_check(&m, "README.md");
    fclose(m.faults);
    const char *says = planted[_i].says;
    ck_assert_msg(m.nfault == (says != NULL), "%s\n%s", planted[_i].text, faults);
    ck_assert_msg(!says || strstr(faults, says), "'%s' does not say '%s'", faults, says);
    free(faults);
    arena_free(&m.arena);
}
END_TEST

/* README.md has at most 120 lines, and shows how to run the quick start and the tests. */
START_TEST(front_page)
{
    char *text = read_text(CKC_SOURCE_DIR "/README.md");
    int lines = 0;
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    ck_assert_int_le(lines, 120);
    ck_assert(strstr(text, "\n    ./examples/quickstart.sh ") != NULL);
    ck_assert(strstr(text, "\n    ./tests/run.sh ") != NULL);
    free(text);
}
END_TEST

START_TEST(guide_has_every_command)
{
    char *text = read_text(CKC_SOURCE_DIR "/docs/guide.md");
    for (const Subcommand *c = commands; c->name; c++)
        if (strcmp(c->name, "train") != 0) /* ckc without a command is ckc train */
            ck_assert_msg(strstr(text, format("`ckc %s ", c->name)) ||
                              strstr(text, format("`ckc %s`", c->name)),
                          "%s", c->name);
    free(text);
}
END_TEST

/* The section on report.json in docs/formats.md has all keys of a report, and its tables have no others. */
START_TEST(report_keys)
{
    ckc_accepts(CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=4 --profile -o m.ckc");
    json_t *report = read_json("m.ckc/report.json");
    char *text = read_text(CKC_SOURCE_DIR "/docs/formats.md");
    char *from = strstr(text, "\n## report.json\n"), *end = from ? strstr(from + 1, "\n## ") : NULL;
    ck_assert(end != NULL);
    *end = 0;
    const char *key;
    json_t *value;
    json_object_foreach(report, key, value)
        ck_assert_msg(strstr(from, format("`%s`", key)) != NULL, "docs/formats.md does not have '%s'", key);
    for (char *row = strstr(from, "\n| `"); row; row = strstr(row + 1, "\n| `"))
        for (char *s = row + 3, *stop = strstr(s, " |"); *s == '`' && s < stop;) {
            size_t n = strcspn(s + 1, "`");
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)n, s + 1);
            ck_assert_msg(json_object_get(report, name) != NULL, "report.json has no '%s'", name);
            s += n + 2;
            s += strspn(s, ", ");
        }
    json_decref(report);
    free(text);
}
END_TEST

/* Two documents show the rows that ckc compare prints for the trace of four layers. */
START_TEST(output_is_current)
{
    ckc_accepts("compare " CKC_SOURCE_DIR "/examples/trace4/trace4.dag --policy keep-all --policy every-1 "
                "--policy every-2 --policy segments=1-2 --policy segments=1,2,3 --policy segments=1,3 "
                "--policy segments=1-4 --policy ckc");
    char *out = read_text("out"), *rest;
    char *trace = read_text(CKC_SOURCE_DIR "/examples/trace4/README.md");
    char *concepts = read_text(CKC_SOURCE_DIR "/docs/concepts.md");
    int rows = 0;
    for (char *line = strtok_r(out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strstr(line, " B ") || strncmp(line, "budget", 6) == 0)
            continue;
        ck_assert_msg(strstr(trace, line) != NULL, "examples/trace4/README.md does not have '%s'", line);
        ck_assert_msg(strstr(concepts, line) != NULL, "docs/concepts.md does not have '%s'", line);
        rows++;
    }
    ck_assert_int_eq(rows, 8);
    free(out);
    free(trace);
    free(concepts);
}
END_TEST

/* ---- output of plans for named devices ------------------------------------------------------------- */

/* Joins the lines of a command, which begins behind its "$ "; *output: where its output begins. */
static char *join_command(char *line, char **output)
{
    char *end = line;
    while ((end = strchr(end, '\n')) && end[-1] == '\\')
        end[-1] = *end = ' ';
    ck_assert(end != NULL);
    *end = 0;
    *output = end + 1;
    return line;
}

/* A copy of the text without each line's second percentage, which belongs to a lower bound and differs
 * without GLPK; the caller frees it. */
static char *without_bounds(const char *text)
{
    char *out = calloc(1, strlen(text) + 3), *end = out;
    bool seen = false;
    for (; *text; *end++ = *text++) {
        seen &= *text != '\n';
        if (strncmp(text, " %", 2) == 0 && seen)
            while (end > out && strchr("0123456789.+- ", end[-1]))
                end--;
        seen |= *text == '%';
    }
    return out;
}

/* Runs the command, and checks that it prints the indented lines below it in that order. */
static void check_output(const char *path, const char *command, const char *below)
{
    char printed[1 << 16] = "\n";
    FILE *f = popen(format("cd '%.*s' && %s", (int)(strrchr(path, '/') - path), path, command), "r");
    ck_assert(f != NULL);
    ck_assert_int_gt((int)fread(printed + 1, 1, sizeof printed - 2, f), 0);
    ck_assert_int_eq(pclose(f), 0);
    char *out = without_bounds(printed), *rest = out, *doc = without_bounds(below), *block = doc;
    for (char *end; (end = strchr(block, '\n')) != NULL; block = end + 1) {
        bool indented = strncmp(block, "    ", 4) == 0;
        if ((block != end && !indented) || strncmp(block, "    $", 5) == 0)
            break;
        const char *line = format("\n%.*s\n", indented ? (int)(end - block) - 4 : 0, block + 4);
        char *at = indented ? strstr(rest, line) : rest;
        ck_assert_msg(at != NULL, "%s: %s does not print, or not there:%s", path, command, line);
        rest = indented ? at + strlen(line) - 1 : at;
    }
    free(out);
    free(doc);
}

START_TEST(plans_are_current)
{
    static const char *const pattern[] = {"README.md", "examples/*/README.md"};
    int n = 0;
#if defined(__SANITIZE_ADDRESS__)
    if (!getenv("CKC_PLAIN")) {
        skipped("it takes minutes with sanitizers: CKC_PLAIN names a ckc without");
        return;
    }
#endif
    const char *ckc = getenv("CKC_PLAIN") ? getenv("CKC_PLAIN") : CKC_BINARY;
    setenv("PATH", format("%.*s:%s", (int)(strrchr(ckc, '/') - ckc), ckc, getenv("PATH")), 1);
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        glob_t found;
        ck_assert_int_eq(glob(format("%s/%s", CKC_SOURCE_DIR, pattern[i]), 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++) {
            char *text = read_text(found.gl_pathv[k]), *output;
            for (char *at = text; (at = strstr(at, "\n    $ ckc ")) != NULL; at = output) {
                char *command = join_command(at + strlen("\n    $ "), &output);
                const char *device = strstr(command, "--device ");
                if (!device || strncmp(device, "--device cpu", strlen("--device cpu")) == 0)
                    continue;
                if (strncmp(command, "ckc sweep", 9) == 0 && !getenv("CKC_LONG")) {
                    skipped("a sweep takes 20 s: CKC_LONG=1");
                    continue;
                }
                check_output(found.gl_pathv[k], command, output);
                n++;
            }
            free(text);
        }
        globfree(&found);
    }
    ck_assert_int_ge(n, 4);
}
END_TEST

Suite *suite_docs(void)
{
    Suite *s = suite_create("docs");
    TCase *all = command_case(s, "all");
    tcase_add_test(all, documents);
    tcase_add_loop_test(all, faults_are_found, 0, sizeof planted / sizeof *planted);
    tcase_add_test(all, front_page);
    tcase_add_test(all, guide_has_every_command);
    tcase_add_test(all, report_keys);
    tcase_add_test(all, output_is_current);
    tcase_add_test(all, plans_are_current);
    return s;
}
