/* lex.c -- tokens of the text forms. */
#include "lex.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lex_line(const Lex *l)
{
    int line = 1;
    for (const char *c = l->start; c < l->s; c++)
        line += *c == '\n';
    return line;
}

bool lex_bad(Lex *l, const char *what) { return fail(l->d, "line %d: expected %s", lex_line(l), what); }

void lex_skip(Lex *l)
{
    for (;; l->s++) {
        bool line_start = l->s == l->start || l->s[-1] == '\n';
        if (*l->s == '#' && (line_start || l->trailing))
            l->s += strcspn(l->s, "\n");
        if (!isspace((unsigned char)*l->s))
            return;
    }
}

bool lex_accept(Lex *l, const char *token)
{
    lex_skip(l);
    size_t n = strlen(token);
    if (strncmp(l->s, token, n) != 0)
        return false;
    if (isalpha((unsigned char)*token) && (isalnum((unsigned char)l->s[n]) || l->s[n] == '_'))
        return false;
    l->s += n;
    return true;
}

bool lex_expect(Lex *l, const char *token) { return lex_accept(l, token) || lex_bad(l, token); }

bool lex_ident(Lex *l, const char **name)
{
    lex_skip(l);
    size_t n = 0;
    while (isalnum((unsigned char)l->s[n]) || l->s[n] == '_')
        n++;
    if (!n)
        return lex_bad(l, "a name");
    *name = arena_strndup(l->a, l->s, n);
    l->s += n;
    return true;
}

bool lex_integer(Lex *l, int64_t low, int64_t high, int64_t *v)
{
    lex_skip(l);
    char *end;
    errno = 0;
    *v = strtoll(l->s, &end, 10);
    if (end == l->s || errno || *v < low || *v > high)
        return lex_bad(l, low == INT64_MIN && high == INT64_MAX ? "an integer" : "an integer in range");
    l->s = end;
    return true;
}

bool lex_number(Lex *l, double *v)
{
    lex_skip(l);
    char *end;
    *v = strtod(l->s, &end);
    if (end == l->s)
        return lex_bad(l, "a number");
    l->s = end;
    return true;
}

void print_quoted(const char *s, FILE *f)
{
    fputc('"', f);
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            fprintf(f, "\\x%02x", (unsigned char)*s);
        else
            fputc(*s, f);
    fputc('"', f);
}

bool lex_string(Lex *l, const char **out)
{
    TRY(lex_expect(l, "\""));
    size_t n = 0, k = 0;
    while (l->s[n] && l->s[n] != '"' && l->s[n] != '\n')
        n += l->s[n] == '\\' && l->s[n + 1] ? 2 : 1;
    char *buf = NEW(l->a, char, n + 1);
    for (; *l->s && *l->s != '"' && *l->s != '\n'; l->s++) {
        if (*l->s == '\\' && l->s[1] == 'x' && isxdigit((unsigned char)l->s[2]) &&
            isxdigit((unsigned char)l->s[3])) {
            buf[k++] = (char)strtol((char[]){l->s[2], l->s[3], 0}, NULL, 16);
            l->s += 3;
            continue;
        }
        if (*l->s == '\\' && l->s[1])
            l->s++;
        buf[k++] = *l->s;
    }
    *out = buf;
    return *l->s == '"' ? (l->s++, true) : lex_bad(l, "\"");
}
