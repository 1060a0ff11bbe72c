/* golden.h -- golden files of passes: a graph and, as a comment, what becomes of it.
 *
 *   # One behaviour, in words.
 *   graph { ... }
 *   # >>> PASS[,PASS...] [OPTION=VALUE...]
 *   # graph { ... }                      the graph afterwards, and the plan if there is one
 *   # <<<
 *
 * Options: loss, loss_output, optim, train, freeze, budget (bytes), grads=1, epilogues=1, bits=1 (values are
 * equal bit for bit).  CKC_UPDATE=1 in the environment rewrites what is expected. */
#ifndef CKC_TESTS_GOLDEN_H
#define CKC_TESTS_GOLDEN_H
#include "ir/kernel.h"
#include "passes/passes.h"

typedef struct {
    Arena arena, tmp;
    Diag diag;
    Graph g;
    StepOptions opt;
    StepInfo info;
    const char *train, *freeze;
    DeviceInfo device;
    bool bits;
} Golden;

/* The graph of `text` (everything before # >>>), with f32 replaced by f64 if asked for. */
bool golden_parse(Golden *s, const char *text, bool wide);
/* Run the passes the file names; a budget is for f32, twice that if wide. */
bool golden_run(Golden *s, const char *text, bool wide);
void golden_free(Golden *s);

/* The text form after the passes, as it stands in the file (malloc). */
char *golden_result(const Golden *s);
/* Everything one file promises; ends the test on a difference. */
void golden_check(const char *path);
/* Values given to a source: the same for the same name, element and element type. */
void **golden_data(const Graph *g, Arena *a);
char *golden_read(const char *path);
/* What a command runs, interpreted in double precision; t: its operands. */
void command_interpret(const Command *c, Tensor *t);
#endif
