/* man.c -- `ckc help --man`: the man page ckc(1), made from the tables of commands and options. */
#include "option.h"
#include <string.h>

/* Prints text for roff, where - and \ are escaped and lines must not begin with a dot or a quote. */
static void print_roff(FILE *f, const char *s)
{
    for (bool first = true; *s; first = *s++ == '\n') {
        if (first && (*s == '.' || *s == '\''))
            fputs("\\&", f);
        if (*s == '-' || *s == '\\')
            fputs(*s == '-' ? "\\-" : "\\e", f);
        else
            fputc(*s, f);
    }
}

static void print_commands(FILE *f)
{
    fputs(".SH COMMANDS\n", f);
    for (const Subcommand *c = commands; c->name; c++) {
        fprintf(f, ".SS ckc %s ", c->name);
        print_roff(f, c->args);
        fputc('\n', f);
        print_roff(f, c->about);
        fputs("\n.PP\n.nf\n", f);
        print_roff(f, c->examples);
        fputs(".fi\n", f);
    }
}

/* Prints the names of the commands that have an option. */
static void print_owners(FILE *f, const Row *r)
{
    const char *separator = "";
    fputs("\n.br\nOf ", f);
    for (const Subcommand *c = commands; c->name; c++)
        if (r->groups & c->groups) {
            fprintf(f, "%s%s", separator, c->name);
            separator = ", ";
        }
    fputs(".\n", f);
}

static void print_row(FILE *f, const Row *r)
{
    fputs(".TP\n", f);
    if (r->key)
        fprintf(f, "\\fB\\-%c\\fR, ", r->key);
    fputs("\\fB\\-\\-", f);
    print_roff(f, r->name);
    fputs("\\fR", f);
    if (r->arg) {
        fputs("=\\fI", f);
        print_roff(f, r->arg);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    print_roff(f, r->doc);
    print_owners(f, r);
}

void man_print(FILE *f)
{
    fputs(".TH CKC 1 \"\" \"ckc " CKC_VERSION "\" \"User Commands\"\n"
          ".SH NAME\nckc \\- train an ONNX model within a memory budget\n"
          ".SH SYNOPSIS\n\\fBckc\\fR [\\fICOMMAND\\fR] \\fIFILE\\fR [\\fIOPTION\\fR]...\n"
          ".SH DESCRIPTION\nWithout a command ckc trains.\n",
          f);
    print_commands(f);
    fputs(".SH OPTIONS\n", f);
    for (const Row *r = option_rows; r < option_rows + option_count; r++)
        if (r->kind == TITLE)
            fprintf(f, ".SS %.*s\n", (int)strcspn(r->doc, ":"), r->doc);
        else
            print_row(f, r);
    fputs(".SH \"EXIT STATUS\"\n", f);
    print_roff(f, help_status);
    fputc('\n', f);
}
