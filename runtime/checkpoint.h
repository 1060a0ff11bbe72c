/* checkpoint.h -- a training run on disk: all that a step changes, to go on with the same bits.
 *
 * A folder holds DIR/step-N.safetensors: weights under their names in the model, other state under its name
 * in the graph, and strings that tell which run it is of, with a hash of its tensors.  A file has its name
 * only when it is complete and on the disk; the last two are kept.  Random numbers and the order of the data
 * follow from seed and step, so the step is all there is to know about them. */
#ifndef CKC_CHECKPOINT_H
#define CKC_CHECKPOINT_H

#include "runtime.h"

typedef struct {
    char *folder; /* owned; NULL: there is none */
    int lock;     /* nobody else writes here meanwhile */
    bool made;    /* by this run: goes again if it stays empty */
} Checkpoints;

/* Make the folder unless it is there (its parent must be), and lock it.  On failure there is nothing to
 * close. */
bool checkpoints_open(Checkpoints *c, const char *folder, Diag *d);
void checkpoints_close(Checkpoints *c); /* {0} is fine */
/* The step of the newest one; 0: there is none. */
int64_t checkpoints_newest(const Checkpoints *c);

/* Which run: keys, each with its value behind it, and NULL.  Those of a checkpoint must be those of the run
 * that goes on with it. */
typedef const char *const *RunKeys;

/* After `step` steps, while nothing runs; then older ones go. */
bool checkpoint_write(const Checkpoints *c, Executor *x, int64_t step, RunKeys keys, Diag *d);
/* The state of the newest good one into the executor; *step: how many steps it has behind it, 0: there is
 * none.  *damaged: the name of a newer file that is not complete or has other bytes, in a; NULL: none is. */
bool checkpoint_read(const Checkpoints *c, Executor *x, RunKeys keys, int64_t *step, const char **damaged,
                     Arena *a, Diag *d);

#endif
