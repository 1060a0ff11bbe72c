/* option.h -- the table of options (options.c), a row for each: the parser, the help pages, the man page and
 * the shells' completion are all made from it. */
#ifndef CKC_OPTION_H
#define CKC_OPTION_H

#include "cli.h"

typedef enum { TITLE, FLAG, TEXT, REAL, INTEGER, CHOICE, OTHER } Kind;

typedef struct {
    unsigned groups;       /* OPTIONS_*: the commands that have it */
    const char *name;      /* NULL: the row is the title of those that follow */
    int key;               /* its one-letter form; 0: none */
    const char *arg, *doc; /* arg: name of its value, NULL: none; doc: help text, brief up to ; : or ( */
    Kind kind;
    size_t off;               /* offset of its member in Options */
    double low, high;         /* range of a number */
    const char *const *names; /* names of its values, of which a CHOICE stores the index; NULL: any text */
    bool (*parse)(Options *o, const char *arg); /* for OTHER */
} Row;

extern const Row option_rows[];
extern const size_t option_count;

int row_brief(const Row *r); /* bytes of the brief part of its doc */

extern const char *const help_status; /* a paragraph on exit statuses */

/* ---- option_values.c: those that have o return false with a message in o->diag ---------------- */

bool parse_real(const char *text, double low, double high, double *v);
bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *v);
/* Sets *k to the index of text in a list of names that ends with NULL. */
bool parse_name(Options *o, const char *option, const char *const *names, const char *text, int *k);

/* Replaces im->bind by a copy, allocated in a, in which the symbol has this size. */
void set_bind(OnnxOptions *im, const char *symbol, int64_t size, Arena *a);

/* ---- batch.c: which dimension is the batch --------------------------------------------------------- */

typedef struct {
    const char *const *name; /* what --bind calls it; n: 0 if it was not found */
    int n;
    const char *symbol; /* the one of them that is not INPUT.0; NULL: there is none */
    int64_t size;
    const char *other; /* a name that may be the batch instead; NULL: there is none */
} Batch;

/* Finds the batch that --bind gives, or if not `bound` the one that it does not give.  only: by this name and
 * those that go with it; NULL: by any. */
Batch batch_find(const OnnxModel *m, const OnnxOptions *im, const char *only, bool bound, Arena *a);
/* Like set_bind. */
void batch_set(OnnxOptions *im, const Batch *b, int64_t size, Arena *a);
const char *batch_text(const Batch *b, int64_t size, Arena *a); /* a value of --bind */

/* ---- values ----------------------------------------------------------------------------------------- */

bool parse_accumulate(Options *o, const char *text);
bool parse_allow(Options *o, const char *text);
bool parse_batches(Options *o, const char *text);
bool parse_bind(Options *o, const char *text);
bool parse_budget(Options *o, const char *text);
/* Sets step.budget to the bytes of --budget, which may not be a percentage here; without --budget, or
 * where it is more, to the memory of the named device.  what: the command that needs a budget, for messages.
 */
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
