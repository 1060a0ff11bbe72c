/* markdown.c -- reads the part of Markdown that the documentation uses: headings, paragraphs with `code` and
 * [links](to), tables, blocks of code, indented or in fences. */
#include "markdown.h"
#include "command.h"
#include "cli/option.h"
#include <ctype.h>
#include <fnmatch.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fault(Markdown *m, const char *fmt, ...) PRINTF(2, 3);
static void fault(Markdown *m, const char *fmt, ...)
{
    va_list ap;
    fprintf(m->faults, "%s:%d: ", m->path, m->line);
    va_start(ap, fmt);
    vfprintf(m->faults, fmt, ap);
    va_end(ap);
    fputc('\n', m->faults);
    m->nfault++;
}

static char *read_whole(Markdown *m, const char *path)
{
    char *text = read_text(arena_printf(&m->arena, "%s/%s", m->root, path));
    char *copy = arena_strndup(&m->arena, text, strlen(text));
    free(text);
    return copy;
}

/* ---- files of the repository ------------------------------------------------------------------- */

static Markdown *listing; /* whose files list_one() lists: nftw passes it no argument */

static int list_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    const char *name = path + at->base;
    if (type == FTW_D && at->level == 1 && (*name == '.' || strcmp(name, "build") == 0))
        return FTW_SKIP_SUBTREE;
    Markdown *m = listing;
    if (at->level) {
        m->file = arena_grow(&m->arena, m->file, m->nfile, &m->cap, sizeof *m->file);
        m->file[m->nfile++] = arena_printf(&m->arena, "%s", path + strlen(m->root) + 1);
    }
    return FTW_CONTINUE;
}

void markdown_begin(Markdown *m)
{
    listing = m;
    nftw(m->root, list_one, 16, FTW_PHYS | FTW_ACTIONRETVAL);
}

/* Is `name`, which may have wildcards, the path of a file or folder from the root on, or the end of one? */
static bool in_tree(const Markdown *m, const char *name)
{
    char anywhere[512];
    size_t n = strlen(name);
    snprintf(anywhere, sizeof anywhere, "*/%.*s", (int)(n && name[n - 1] == '/' ? n - 1 : n), name);
    for (uint32_t i = 0; i < m->nfile; i++)
        if (fnmatch(anywhere + 2, m->file[i], 0) == 0 || fnmatch(anywhere, m->file[i], 0) == 0)
            return true;
    return false;
}

/* Does the word begin with one of our folders, as "ir/ir.h" and "tests/" do? */
static bool is_path(const char *word)
{
    static const char *const folders[] = {"ir/",    "passes/",   "codegen/", "runtime/", "cli/",
                                          "tests/", "examples/", "docs/",    "devices/", NULL};
    for (int i = 0; folders[i]; i++)
        if (strncmp(word, folders[i], strlen(folders[i])) == 0)
            return true;
    return false;
}

static bool is_source(const char *word)
{
    size_t n = strcspn(word, "/*");
    const char *dot = strrchr(word, '.');
    return dot > word && n &&
           (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 || strcmp(dot, ".def") == 0 ||
            strcmp(dot, ".sh") == 0);
}

static void check_file(Markdown *m, const char *name)
{
    m->names++;
    if (!in_tree(m, name))
        fault(m, "there is no %s", name);
}

/* ---- links -------------------------------------------------------------------------------------- */

/* Writes the anchor that GitHub makes of a heading of n characters. */
static void slug(char *to, size_t room, const char *heading, size_t n)
{
    char *end = to + room - 1;
    for (size_t i = 0; i < n && to < end; i++) {
        int c = tolower((unsigned char)heading[i]);
        if (isalnum(c) || c == '-' || c == '_')
            *to++ = (char)c;
        else if (c == ' ')
            *to++ = '-';
    }
    *to = 0;
}

static bool has_anchor(const char *text, const char *anchor)
{
    bool code = false;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        char name[256];
        size_t mark = strspn(text, "#"), n = strcspn(text, "\n");
        code ^= strncmp(text, "```", 3) == 0;
        if (code || !mark || text[mark] != ' ')
            continue;
        slug(name, sizeof name, text + mark + 1, n - mark - 1);
        if (strcmp(name, anchor) == 0)
            return true;
    }
    return false;
}

/* The path from the root on of a link's target, whose first n characters name a file relative to the folder
 * of m->path; n = 0: the target is in m->path itself. */
static char *join(Markdown *m, const char *target, size_t n)
{
    const char *slash = strrchr(m->path, '/');
    int folder = n && slash ? (int)(slash + 1 - m->path) : 0;
    char *path = n ? arena_printf(&m->arena, "%.*s%.*s", folder, m->path, (int)n, target)
                   : arena_strndup(&m->arena, m->path, strlen(m->path));
    for (char *up; (up = strstr(path, "/../")) != NULL;) {
        char *from = up;
        while (from > path && from[-1] != '/')
            from--;
        memmove(from, up + 4, strlen(up + 4) + 1);
    }
    return path;
}

static void check_link(Markdown *m, const char *target)
{
    if (strstr(target, "://"))
        return;
    m->links++;
    size_t n = strcspn(target, "#");
    const char *path = join(m, target, n);
    if (access(arena_printf(&m->arena, "%s/%s", m->root, path), R_OK) != 0)
        fault(m, "link to %s: there is no %s", target, path);
    else if (target[n] && !has_anchor(read_whole(m, path), target + n + 1))
        fault(m, "link to %s: no such heading in %s", target, path);
}

/* ---- commands ----------------------------------------------------------------------------------- */

enum { MAX_WORDS = 128 };

/* Returns the next word of a command in a line of the shell, without its quotes, and moves *line behind it.
 * NULL: the command has no more words. */
static char *next_word(Markdown *m, const char **line)
{
    const char *s = *line + strspn(*line, " \n");
    if (!*s || strchr("|;&><#", *s) || strncmp(s, "2>", 2) == 0) {
        *line = s;
        return NULL;
    }
    char *word = arena_alloc(&m->arena, strlen(s) + 1, 1), *to = word, quote = 0;
    for (; *s && (quote || !strchr(" \n|;&><", *s)); s++)
        if (quote ? *s == quote : *s == '\'' || *s == '"')
            quote = quote ? 0 : *s;
        else
            *to++ = *s;
    *line = s;
    return word;
}

static bool is_ckc(const char *word)
{
    const char *slash = strrchr(word, '/');
    return strcmp(slash ? slash + 1 : word, "ckc") == 0;
}

static bool is_page(const char *word)
{
    return strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "--version") == 0;
}

/* The word as it is in the first round of `for NAME in WORD...`: with the first WORD for $NAME.  loop: the
 * words of that command; *loop is NULL outside of a loop. */
static char *first_round(Markdown *m, char *const *loop, char *word)
{
    char *at = *loop ? strstr(word, arena_printf(&m->arena, "$%s", loop[1])) : NULL;
    if (!at)
        return word;
    return arena_printf(&m->arena, "%.*s%s%s", (int)(at - word), word, loop[3], at + 1 + strlen(loop[1]));
}

/* Checks the words of a command of ckc with ckc's own parser. */
static void check_words(Markdown *m, int argc, char **argv)
{
    m->commands++;
    const Subcommand *c = argc > 1 ? command_find(argv[1]) : NULL;
    if (!c && argc > 1 && *argv[1] != '-' && !strpbrk(argv[1], "./")) {
        fault(m, "ckc %s: no such command", argv[1]);
        return;
    }
    for (int i = 1; i < argc; i++)
        if (is_page(argv[i]))
            return;
    Options o;
    if (!options_parse(&o, c ? c : command_find("train"), argc - !!c, argv + !!c))
        fault(m, "ckc %s: %s", c ? c->name : "train", o.diag.msg);
    else if (o.path && is_path(o.path) && !strstr(o.path, ".ckc/"))
        check_file(m, o.path);
    options_free(&o);
}

/* Checks the commands of ckc in a line of the shell. */
static void check_commands(Markdown *m, const char *line)
{
    char *loop[4] = {0};
    while (*line) {
        char *argv[MAX_WORDS + 1];
        int argc = 0;
        for (char *word; argc < MAX_WORDS && (word = next_word(m, &line)) != NULL;)
            argv[argc++] = first_round(m, loop, word);
        argv[argc] = NULL;
        if (argc >= 4 && strcmp(argv[0], "for") == 0)
            memcpy(loop, argv, sizeof loop);
        int skip = argc && strcmp(argv[0], "do") == 0;
        if (argc > skip && is_ckc(argv[skip]))
            check_words(m, argc - skip, argv + skip);
        if (*line == '#')
            return;
        line += strcspn(line, "|;&"); /* skips redirections */
        line += strspn(line, "|;&");
    }
}

/* Checks that an option that is mentioned in prose exists, for the command c unless that is NULL. */
static void check_option(Markdown *m, const Subcommand *c, const char *word)
{
    size_t n = strcspn(word, "= ,|[]).;\n");
    for (const Row *r = option_rows; r < option_rows + option_count; r++)
        if (r->kind != TITLE && (!c || r->groups & c->groups) && strlen(r->name) + 2 == n &&
            strncmp(r->name, word + 2, n - 2) == 0)
            return;
    if (strncmp(word, "--help", n) != 0 && strncmp(word, "--version", n) != 0)
        fault(m, "%s has no option %.*s", c ? c->name : "ckc", (int)n, word);
}

/* Checks the command's name and the options in a mention like `ckc sweep --budgets N`, whose values may be
 * placeholders. */
static void check_mention(Markdown *m, const char *span)
{
    const Subcommand *c = NULL;
    m->commands++;
    if (strncmp(span, "ckc ", 4) == 0) {
        const char *word = span + 4;
        char *name = arena_strndup(&m->arena, word, strcspn(word, " \n"));
        c = command_find(name);
        if (!c && islower((unsigned char)*name) && !strpbrk(name, "./"))
            fault(m, "ckc %s: no such command", name);
    }
    for (const char *s = span; (s = strstr(s, "--")) != NULL; s += 2)
        if ((s == span || strchr(" [\n", s[-1])) && isalpha((unsigned char)s[2]))
            check_option(m, c, s);
}

/* ---- blocks ------------------------------------------------------------------------------------- */

static void check_span(Markdown *m, const char *span)
{
    if (strncmp(span, "ckc ", 4) == 0 || strncmp(span, "--", 2) == 0) {
        check_mention(m, span);
        return;
    }
    span += strncmp(span, "./", 2) == 0 ? 2 : 0;
    char *word = arena_strndup(&m->arena, span, strcspn(span, " \n"));
    if (is_path(word) || is_source(word))
        check_file(m, word);
}

/* Checks a word outside of `code`: if it is a path, the file exists. */
static void check_word(Markdown *m, const char *s, size_t n)
{
    while (n && strchr("([", *s))
        s++, n--;
    while (n && strchr(".,;:)", s[n - 1]))
        n--;
    char *word = arena_strndup(&m->arena, s, n);
    if (is_path(word))
        check_file(m, word);
}

static void check_prose(Markdown *m, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, " \n`]");
        check_word(m, s, n);
        s += n;
        m->line += *s == '\n';
        const char *end = *s == '`' ? strchr(s + 1, '`') : strncmp(s, "](", 2) == 0 ? strchr(s, ')') : NULL;
        if (end) {
            int skip = *s == '`' ? 1 : 2;
            char *inner = arena_strndup(&m->arena, s + skip, (size_t)(end - s - skip));
            skip == 1 ? check_span(m, inner) : check_link(m, inner);
            for (; s < end; s++)
                m->line += *s == '\n';
        }
        s += *s != 0;
    }
}

/* Counts the bars that end cells in a line of a table: all that are not escaped, also those within `code`. */
static int count_bars(const char *s)
{
    int bars = 0;
    for (char before = 0; *s && *s != '\n'; before = *s++)
        bars += *s == '|' && before != '\\';
    return bars;
}

/* Checks that every line of a table has as many columns as its first. */
static void check_table(Markdown *m, const char *s)
{
    int first = m->line, bars = count_bars(s);
    for (; *s == '|'; s += strcspn(s, "\n") + 1, m->line++)
        if (count_bars(s) != bars)
            fault(m, "a table of %d columns has %d here", bars - 1, count_bars(s) - 1);
    m->line = first;
}

/* Checks the commands in a block of code: the lines that begin with "$ ", or if there are none, all lines if
 * the first is a command of ckc. */
static void check_code(Markdown *m, const char *text)
{
    bool prompts = strncmp(text, "$ ", 2) == 0 || strstr(text, "\n$ ");
    bool listing_of = !prompts && is_ckc(arena_strndup(&m->arena, text, strcspn(text, " \n")));
    while (*text) {
        bool command = prompts ? strncmp(text, "$ ", 2) == 0 : listing_of;
        char *line = arena_strndup(&m->arena, text, strlen(text)), *end = line + strcspn(line, "\n");
        int lines = 1;
        for (; *end && end > line && end[-1] == '\\'; lines++) {
            end[-1] = ' ';
            end += 1 + strcspn(end + 1, "\n");
        }
        text += end - line + (*end == '\n');
        *end = 0;
        if (command)
            check_commands(m, line + 2 * prompts);
        m->line += lines;
    }
}

/* ---- lines -------------------------------------------------------------------------------------- */

typedef struct {
    bool fence, code; /* fence: the line is between lines of ```; code: the block is code */
    char *block;      /* its lines so far; those of code without their indentation */
    size_t size;
    int first; /* number of the block's first line */
} Reader;

static void block_end(Markdown *m, Reader *r)
{
    m->line = r->first;
    r->block[r->size] = 0;
    if (r->size && !r->code)
        check_table(m, r->block);
    if (r->size)
        r->code ? check_code(m, r->block) : check_prose(m, r->block);
    r->size = 0;
}

static void block_line(Markdown *m, Reader *r, int line, bool code, const char *s, size_t n)
{
    if (r->code != code || !n)
        block_end(m, r);
    if (!r->size)
        r->first = line;
    r->code = code;
    if (n) {
        memcpy(r->block + r->size, s, n);
        r->size += n;
        r->block[r->size++] = '\n';
    }
}

void markdown_check(Markdown *m, const char *path)
{
    Reader r = {0};
    m->path = path;
    const char *s = read_whole(m, path);
    r.block = arena_alloc(&m->arena, strlen(s) + 2, 1);
    bool blank = true;
    for (int line = 1; *s; line++) {
        size_t n = strcspn(s, "\n");
        bool indented = !r.fence && strncmp(s, "    ", 4) == 0 && (blank || r.code);
        size_t skip = indented ? 4 : 0;
        if (strncmp(s, "```", 3) == 0)
            r.fence = !r.fence;
        else
            block_line(m, &r, line, r.fence || indented, s + skip, n - skip);
        blank = !n;
        s += n + (s[n] == '\n');
    }
    block_end(m, &r);
}
