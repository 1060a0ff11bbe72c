/* message.c -- text for people: nothing that comes from a file reaches the terminal raw.
 *
 * Names and paths may hold any bytes.  Control characters and bytes that are not UTF-8 are written as \xHH,
 * so that no file moves the cursor or begins a line of its own.  A message breaks its line only at a newline
 * that two spaces follow (lists), or at a tab, which separates the rows of a table: on a terminal they are
 * lines, elsewhere tabs become spaces, so that an error is one line. */
#include "message.h"
#include "ir/mem.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------------------------ */

static bool is_break(const char *at) { return *at == '\t' || strncmp(at, "\n  ", 3) == 0; }

/* Columns that n bytes of UTF-8 take. */
static int columns(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++)
        c += (s[i] & 0xc0) != 0x80;
    return c;
}

void print_words(FILE *f, const char *s, size_t n, int at, int width, int indent)
{
    for (size_t i = 0; i < n;) {
        size_t word = i;
        while (word < n && s[word] == ' ')
            word++;
        size_t end = word;
        while (end < n && s[end] != ' ')
            end++;
        if (at > indent && at + columns(s + i, end - i) > width) {
            fprintf(f, "\n%*s", indent, "");
            at = indent;
            i = word;
        }
        fwrite(s + i, 1, end - i, f);
        at += columns(s + i, end - i);
        i = end;
    }
}

/* Prints a message wrapped at the width, with the rows of its table on lines of their own. */
static void print_wrapped(FILE *f, const char *s, int width)
{
    for (int row = 0;; row++) {
        size_t n = strcspn(s, "\t\n");
        fputs(row ? "  " : "", f);
        print_words(f, s, n, 0, row ? width - 2 : width, row ? 6 : 4);
        fputc('\n', f);
        if (!s[n])
            return;
        s += n + 1;
        s += strspn(s, " ");
    }
}

static void breaks_to_blanks(char *text, const char *breaks)
{
    while ((text = strpbrk(text, breaks)) != NULL)
        *text = ' ';
}

void message_print(FILE *f, const char *text, int width)
{
    char *shown = text_escape(text, is_break);
    if (width > 0) {
        print_wrapped(f, shown, width - 1);
    } else {
        breaks_to_blanks(shown, "\t");
        fprintf(f, "%s\n", shown);
    }
    free(shown);
}

static bool errors_as_json;

void report_errors_as_json(void) { errors_as_json = true; }

static void error_json(const char *text, const char *file, int status)
{
    char *shown = mem_strdup(text);
    breaks_to_blanks(shown, "\t");
    json_t *o = json_pack("{s:o, s:o, s:i}", "error", text_json(shown), "file",
                          file ? text_json(file) : json_null(), "status", status);
    json_print(o, 17);
    json_decref(o);
    free(shown);
}

/* `before`, the file's name unless the message already begins with it, and the message.  malloc'ed. */
static char *error_text(const char *before, const Diag *d, const char *file)
{
    size_t n = file ? strlen(file) : 0;
    bool named = !file || (strncmp(d->msg, file, n) == 0 && d->msg[n] == ':');
    return mem_printf("%s%s%s%s", before, named ? "" : file, named ? "" : ": ", d->msg);
}

char *error_line(const Diag *d, const char *file)
{
    char *text = error_text("", d, file), *shown = text_escape(text, is_break);
    breaks_to_blanks(shown, "\t\n");
    free(text);
    return shown;
}

int report_error(const Diag *d, const char *file)
{
    progress_end();
    char *text = error_text("ckc: ", d, file);
    int status = d->status ? d->status : EXIT_BAD_INPUT;
    if (*d->msg)
        message_print(stderr, text, stream_width(stderr));
    if (*d->msg && errors_as_json)
        error_json(d->msg, file, status);
    free(text);
    return status;
}

void print_lines(FILE *f, const char *text, int indent)
{
    int width = stream_width(f);
    for (const char *line = text; *line; line += line[0] == '\n') {
        size_t n = strcspn(line, "\n");
        if (width > 0)
            print_words(f, line, n, 0, width - 1, indent);
        else
            fwrite(line, 1, n, f);
        fputc('\n', f);
        line += n;
    }
}

/* ---- summaries ------------------------------------------------------------------------------- */

void print_line(FILE *f, const char *fmt, ...)
{
    char *text, *shown;
    va_list ap;
    va_start(ap, fmt);
    text = mem_vprintf(fmt, ap);
    va_end(ap);
    shown = text_escape(text, NULL);
    fprintf(f, "%s\n", shown);
    free(shown);
    free(text);
}

void json_print(const json_t *o, size_t digits)
{
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    putchar('\n');
}
