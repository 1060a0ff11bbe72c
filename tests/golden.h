/* golden.h -- golden files of passes: a graph and, as a comment, the graph that passes make of it.
 *
 *   # One behaviour, in words.
 *   graph { ... }
 *   # >>> PASS[,PASS...] [OPTION=VALUE...]
 *   # graph { ... }                      the graph afterwards, and the plan if there is one
 *   # <<<
 *
 * Options, mostly of StepOptions: loss, loss_output, optim, precision, channels_last, either_order=1, budget
 * (bytes), grads=1, head (rows), update, factor (bytes), train, freeze; of a device that is otherwise the
 * processor: one of epilogues, panel_columns, capability; bits=1: values must be equal bit for bit.
 * CKC_UPDATE=1 in the environment rewrites the expected text. */
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

/* Parses and verifies the graph of `text`, which is all before "# >>>"; wide: f32 is replaced by f64.  False:
 * s->diag says why.  The caller frees s with golden_free() in either case. */
bool golden_parse(Golden *s, const char *text, bool wide);
/* Runs the passes that the file names, with its options; its budget is for f32, and is doubled if wide. */
bool golden_run(Golden *s, const char *text, bool wide);
void golden_free(Golden *s);

/* The graph after the passes, with its plan if there is one, in the file's form; the caller frees it. */
char *golden_result(const Golden *s);
/* Checks the text of one file's result, and in f32 and f64 that it can be parsed and printed again, and that
 * its values and kernels are right.  A difference ends the test. */
void golden_check(const char *path);
/* Per value, data for graph_eval(): inputs and parameters get numbers that depend on name and element only,
 * states 0; NULL where the graph has data or a node computes it. */
void **golden_data(const Graph *g, Arena *a);
char *golden_read(const char *path); /* the file's text; the caller frees it */
/* Interprets the launches of a command in double precision; t: its operands, inputs before results. */
void command_interpret(const Command *c, Tensor *t);
#endif
