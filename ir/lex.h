/* lex.h -- what the readers of the text forms share: a token is read where it is expected,
 * and a failure names the line. */
#ifndef CKC_LEX_H
#define CKC_LEX_H

#include "ir.h"

typedef struct {
    const char *s, *start; /* what is left of the text, and the text; ends with 0 */
    Arena *a;              /* arena of the names and strings that are read */
    Diag *d;
    bool trailing; /* '#' begins a comment anywhere, not only at the start of a line */
} Lex;

/* All but lex_line and lex_bad skip blanks and comments first, and advance s past what they read. */
int lex_line(const Lex *l);             /* line number of s, from 1 */
bool lex_bad(Lex *l, const char *what); /* false: "line N: expected WHAT" */
void lex_skip(Lex *l);
/* Is the token next?  A word is no part of a longer one. */
bool lex_accept(Lex *l, const char *token);
bool lex_expect(Lex *l, const char *token);
bool lex_ident(Lex *l, const char **name); /* letters, digits and '_' */
bool lex_integer(Lex *l, int64_t low, int64_t high, int64_t *v);
bool lex_number(Lex *l, double *v); /* may be infinite or no number */
/* "...", where \xHH is a byte and \c is c. */
bool lex_string(Lex *l, const char **out);
void print_quoted(const char *s, FILE *f); /* as lex_string() reads it */

#endif
