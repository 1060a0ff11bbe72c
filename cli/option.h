/* option.h -- an option as a row of one table (options.c): the parser, the help pages, the man page and the
 * shells' completion are all made of it. */
#ifndef CKC_OPTION_H
#define CKC_OPTION_H

#include "cli.h"

typedef enum { TITLE, FLAG, TEXT, REAL, INTEGER, CHOICE, OTHER } Kind;

typedef struct {
    unsigned groups;       /* OPTIONS_*: the commands that have it */
    const char *name;      /* NULL: a title, of the rows that follow */
    int key;               /* one letter; 0: none */
    const char *arg, *doc; /* its value, NULL: none; a title's text.  What is before ; : or ( is brief */
    Kind kind;
    size_t off;               /* in Options */
    double low, high;         /* of numbers */
    const char *const *names; /* of its values; a CHOICE is the place there, an int; NULL: any text */
    bool (*parse)(Options *o, const char *arg); /* of OTHER */
} Row;

extern const Row option_rows[];
extern const size_t option_count;

int row_brief(const Row *r); /* bytes of its doc */

extern const char *const help_status; /* a paragraph on exit statuses */

/* ---- option_values.c: each false with a message in o->diag ------------------------------------ */

bool parse_real(const char *text, double low, double high, double *v);
bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *v);
/* The place in a list of names that ends with NULL. */
bool parse_name(Options *o, const char *option, const char *const *names, const char *text, int *k);

/* Its sizes of symbols become a copy of them, in a, in which that one has this size. */
void set_bind(OnnxOptions *im, const char *symbol, int64_t size, Arena *a);

bool parse_accumulate(Options *o, const char *text);
bool parse_allow(Options *o, const char *text);
bool parse_batches(Options *o, const char *text);
bool parse_bind(Options *o, const char *text);
bool parse_budget(Options *o, const char *text);
/* Into step.budget what --budget, which may be no share here, says in bytes; without it the memory of a
 * device that is named.  what: the command that needs one. */
bool budget_bytes(Options *o, const char *what);
bool parse_choices(Options *o, const char *text);
bool parse_compared(Options *o, const char *text);
bool parse_device(Options *o, const char *text);
bool parse_disable(Options *o, const char *text);
bool parse_dump(Options *o, const char *text);
bool parse_emit(Options *o, const char *text);
bool parse_freeze(Options *o, const char *text);
bool parse_gap(Options *o, const char *text);
bool parse_grads(Options *o, const char *text);
bool parse_host_memory(Options *o, const char *text);
bool parse_init(Options *o, const char *text);
bool parse_no_decay(Options *o, const char *text);
bool parse_only(Options *o, const char *text);
bool parse_plot(Options *o, const char *text);
bool parse_overhead(Options *o, const char *text);
bool parse_policy(Options *o, const char *text);
bool parse_save(Options *o, const char *text);
bool parse_seed(Options *o, const char *text);
bool parse_threads(Options *o, const char *text);
bool parse_tie(Options *o, const char *text);
bool parse_train(Options *o, const char *text);

extern const char *const choices_name[], *const emit_name[], *const shell_name[];

#endif
