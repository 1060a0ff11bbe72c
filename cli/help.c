/* help.c -- the help pages, made from the tables of commands and options.  They are at most 80 columns wide.
 *
 * -h is one screen with the options that people need.  --help has every option with its full text. */
#include "option.h"
#include <string.h>

enum { WIDTH = 79, INDENT = 26 };

const char *const help_status = "Exit status: 0 done, 1 bad input or usage, 2 unsupported operators, 3 "
                                "budget infeasible, 4 device or runtime "
                                "failure (a full disk, a loss that is not finite), 130, 143 or 129 ended by "
                                "SIGINT, SIGTERM or SIGHUP, the step "
                                "finished and saved.";

static void print_usage(FILE *f, const Subcommand *c)
{
    const char *name = strcmp(c->name, "train") == 0 ? "[train]" : c->name;
    fprintf(f, "Usage: ckc %s %s [OPTION]...\n", name, c->args);
}

static void print_commands(FILE *f)
{
    fputs("\nCommands:\n", f);
    for (const Subcommand *c = commands; c->name; c++)
        fprintf(f, "  %-9s %s%s\n", c->name, c->brief, strcmp(c->name, "train") == 0 ? " (default)" : "");
}

/* Prints "  -b, --budget=SIZE" and n bytes of the row's doc in a column of its own. */
static void print_row(FILE *f, const Row *r, size_t n)
{
    char letter[8] = "", left[80];
    if (r->key)
        snprintf(letter, sizeof letter, "-%c, ", r->key);
    int at = snprintf(left, sizeof left, "  %4s--%s%s%s", letter, r->name, r->arg ? "=" : "",
                      r->arg ? r->arg : "");
    fprintf(f, "%s%s%*s", left, at < INDENT ? "" : "\n", at < INDENT ? INDENT - at : INDENT, "");
    print_words(f, r->doc, n, INDENT, WIDTH, INDENT);
    fputc('\n', f);
}

/* Prints all rows of a command under their titles; often: only those that people need, in brief. */
static void print_rows(FILE *f, const Subcommand *c, bool often)
{
    static const Row options = {.doc = "Options:"};
    const Row *title = &options;
    for (const Row *r = option_rows; r < option_rows + option_count; r++) {
        title = r->kind == TITLE && !often ? r : title;
        if (!(r->groups & c->groups) || (often && !(r->groups & OPTIONS_OFTEN)))
            continue;
        if (title)
            fprintf(f, "\n%s\n", title->doc);
        title = NULL;
        print_row(f, r, often ? (size_t)row_brief(r) : strlen(r->doc));
    }
}

void help_short(FILE *f, const Subcommand *c)
{
    bool train = strcmp(c->name, "train") == 0;
    print_usage(f, c);
    fprintf(f, "%s.\n", c->brief);
    if (train)
        print_commands(f);
    print_rows(f, c, true);
    fprintf(f, "\nExamples:\n%s\n", c->examples);
    fprintf(f, "ckc %s --help shows all options%s.\n", c->name,
            train ? ", ckc COMMAND -h those of a command" : "");
}

static void print_paragraph(FILE *f, const char *text)
{
    fputc('\n', f);
    print_words(f, text, strlen(text), 0, WIDTH, 0);
    fputc('\n', f);
}

void help_long(FILE *f, const Subcommand *c)
{
    print_usage(f, c);
    print_paragraph(f, c->about);
    if (strcmp(c->name, "train") == 0)
        print_commands(f);
    fprintf(f, "\nExamples:\n%s", c->examples);
    print_rows(f, c, false);
    print_paragraph(f, help_status);
}

int cmd_help(Options *o)
{
    const Subcommand *c = command_find(o->path ? o->path : "train");
    if (!c) {
        command_unknown(o->path, &o->diag);
        return report_error(&o->diag, NULL);
    }
    if (o->man)
        man_print(stdout);
    else if (o->shell)
        completion_print(stdout, o->shell);
    else
        help_long(stdout, c);
    return EXIT_OK;
}
