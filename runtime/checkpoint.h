/* checkpoint.h -- a training run on disk: everything that a step changes, to resume bit for bit.
 *
 * A folder holds files DIR/step-N.safetensors: weights under their names in the model, other state under its
 * name in the graph, and strings that identify the run and have a hash of the tensors.  A file gets its name
 * only when it is complete and on disk; the last two intact ones are kept.  Random numbers and the order of
 * the data follow from seed and step, so the number of the step suffices for them. */
#ifndef CKC_CHECKPOINT_H
#define CKC_CHECKPOINT_H

#include "runtime.h"

typedef struct {
    char *folder; /* owned; NULL: there is none */
    int lock;     /* file descriptor that holds the folder's lock */
    bool made;    /* this run made the folder: it is removed on closing if it is empty */
    int64_t intact; /* step of the last checkpoint read or written; 0: none; those behind it are damaged */
} Checkpoints;

/* Locks the folder, made first if only its parent exists.  On failure there is nothing to close. */
bool checkpoints_open(Checkpoints *c, const char *folder, Diag *d);
void checkpoints_close(Checkpoints *c); /* {0} is fine */
/* The step of the newest checkpoint; 0: there is none. */
int64_t checkpoints_newest(const Checkpoints *c);

/* Identifies a run: keys with their values, the last without a name.  A run can only resume from a checkpoint
 * whose keys have the same values, but for those that may change. */
typedef struct {
    const char *name, *value;
    bool may_change;
} RunKey;
typedef const RunKey *RunKeys;

/* Writes a checkpoint after `step` steps, while nothing runs, and then removes older and damaged ones. */
bool checkpoint_write(Checkpoints *c, Executor *x, int64_t step, RunKeys keys, Diag *d);
/* Reads the newest intact checkpoint into the executor; *step: the number of steps made until it, 0: there is
 * none.  *damaged: the name, in a, of the newest file if that is incomplete or altered; else NULL.
 * *changed: the keys that have other values now, in words, in a; NULL: none. */
bool checkpoint_read(Checkpoints *c, Executor *x, RunKeys keys, int64_t *step, const char **damaged,
                     const char **changed, Arena *a, Diag *d);

#endif
