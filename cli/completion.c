/* completion.c -- `ckc help --completion SHELL`: scripts that complete commands, options and the names that
 * options take, made from the tables of commands and options. */
#include "option.h"
#include <limits.h>
#include <string.h>

/* How the script of one shell is printed: what it has for a command and for each of its options. */
typedef struct {
    void (*begin)(FILE *f), (*command)(FILE *f, const Subcommand *c),
        (*option)(FILE *f, const Subcommand *c, const Row *r), (*command_end)(FILE *f), (*end)(FILE *f);
} Script;

static void print_names(FILE *f, const char *const *names, char separator)
{
    for (int i = 0; names[i]; i++) {
        if (i)
            fputc(separator, f);
        fputs(names[i], f);
    }
}

/* Prints text escaped for single quotes and, for zsh, brackets. */
static void print_quoted(FILE *f, const char *text, int n)
{
    for (int i = 0; i < n && text[i]; i++)
        if (text[i] == '\'')
            fputs("'\\''", f);
        else
            fprintf(f, "%s%c", strchr("[]", text[i]) ? "\\" : "", text[i]);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_names(FILE *f)
{
    for (const Row *r = option_rows; r < option_rows + option_count; r++)
        if (r->names) {
            fprintf(f, "    --%s) words='", r->name);
            print_names(f, r->names, ' ');
            fputs("' ;;\n", f);
        }
}

static void bash_begin(FILE *f)
{
    fputs("# bash completion of ckc; made by ckc help --completion bash\n"
          "_ckc()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "    if [[ $word == = ]]; then\n        word=\n"
          "    elif [[ $before == = ]]; then\n        before=${COMP_WORDS[COMP_CWORD-2]}\n    fi\n"
          "    case $before in\n",
          f);
    bash_names(f);
    fputs("    esac\n"
          "    if [[ -z $words && $word == -* ]]; then\n"
          "        case ${COMP_WORDS[1]} in\n",
          f);
}

static void bash_command(FILE *f, const Subcommand *c)
{
    fprintf(f, "        %s) words='", c == command_find("train") ? "*" : c->name);
}

static void bash_option(FILE *f, const Subcommand *c, const Row *r)
{
    (void)c;
    fprintf(f, "--%s ", r->name);
}

static void bash_command_end(FILE *f) { fputs("--help' ;;\n", f); }

static void bash_end(FILE *f)
{
    fputs("        esac\n"
          "    elif [[ -z $words && $COMP_CWORD == 1 ]]; then\n        words='",
          f);
    for (const Subcommand *c = commands; c->name; c++)
        fprintf(f, "%s%s", c == commands ? "" : " ", c->name);
    fputs("'\n    fi\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -o default -F _ckc ckc\n",
          f);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static void zsh_begin(FILE *f)
{
    fputs("#compdef ckc\n# zsh completion of ckc; made by ckc help --completion zsh\n"
          "_ckc()\n{\n"
          "    local -a list\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        list=(\n",
          f);
    for (const Subcommand *c = commands; c->name; c++) {
        fprintf(f, "            '%s:", c->name);
        print_quoted(f, c->brief, INT_MAX);
        fputs("'\n", f);
    }
    fputs("        )\n"
          "        _describe command list\n        _files\n        return\n"
          "    fi\n"
          "    case $words[2] in\n",
          f);
}

static void zsh_command(FILE *f, const Subcommand *c)
{
    fprintf(f, "    %s)\n        list=(\n", c == command_find("train") ? "*" : c->name);
}

static void zsh_option(FILE *f, const Subcommand *c, const Row *r)
{
    (void)c;
    fprintf(f, "            '--%s%s[", r->name, r->arg ? "=" : "");
    print_quoted(f, r->doc, row_brief(r));
    fputc(']', f);
    if (r->names) {
        fputs(":name:(", f);
        print_names(f, r->names, ' ');
        fputc(')', f);
    } else if (r->arg) {
        fputs(strstr(r->arg, "FILE") || strstr(r->arg, "DIR") ? ":file:_files" : ":value:", f);
    }
    fputs("'\n", f);
}

static void zsh_command_end(FILE *f) { fputs("            '--help[Show all options]'\n        ) ;;\n", f); }

static void zsh_end(FILE *f)
{
    fputs("    esac\n"
          "    _arguments $list '*:file:_files'\n"
          "}\n"
          "if [[ $funcstack[1] == _ckc ]]; then\n    _ckc \"$@\"\nelse\n    compdef _ckc ckc\nfi\n",
          f);
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_begin(FILE *f)
{
    fputs("# fish completion of ckc; made by ckc help --completion fish\n", f);
    for (const Subcommand *c = commands; c->name; c++) {
        fprintf(f, "complete -c ckc -n __fish_is_first_arg -a %s -d '", c->name);
        print_quoted(f, c->brief, INT_MAX);
        fputs("'\n", f);
    }
}

static void fish_command(FILE *f, const Subcommand *c) { (void)f, (void)c; }

static void fish_option(FILE *f, const Subcommand *c, const Row *r)
{
    fputs("complete -c ckc -n '", f);
    if (c == command_find("train")) { /* its options are also those without a command */
        fputs("not __fish_seen_subcommand_from", f);
        for (const Subcommand *other = commands; other->name; other++)
            if (other != c)
                fprintf(f, " %s", other->name);
    } else {
        fprintf(f, "__fish_seen_subcommand_from %s", c->name);
    }
    fprintf(f, "' -l %s%s -d '", r->name, r->names ? " -x" : r->arg ? " -r" : "");
    print_quoted(f, r->doc, row_brief(r));
    fputc('\'', f);
    if (r->names) {
        fputs(" -a '", f);
        print_names(f, r->names, ' ');
        fputc('\'', f);
    }
    fputc('\n', f);
}

static void fish_end(FILE *f) { (void)f; }

/* ---- all of them: in the order of shell_name -------------------------------------------------- */

static const Script scripts[] = {
    {bash_begin, bash_command, bash_option, bash_command_end, bash_end},
    {zsh_begin, zsh_command, zsh_option, zsh_command_end, zsh_end},
    {fish_begin, fish_command, fish_option, fish_end, fish_end},
};

static void print_command(FILE *f, const Script *s, const Subcommand *c)
{
    s->command(f, c);
    for (const Row *r = option_rows; r < option_rows + option_count; r++)
        if (r->groups & c->groups)
            s->option(f, c, r);
    s->command_end(f);
}

/* train is last, as its case also matches when there is no command. */
void completion_print(FILE *f, const char *shell)
{
    const Subcommand *train = command_find("train");
    size_t k = 0;
    while (strcmp(shell_name[k], shell) != 0)
        k++;
    scripts[k].begin(f);
    for (const Subcommand *c = commands; c->name; c++)
        if (c != train)
            print_command(f, &scripts[k], c);
    print_command(f, &scripts[k], train);
    scripts[k].end(f);
}
