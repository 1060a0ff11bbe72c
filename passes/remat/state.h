/* state.h -- a schedule that can be changed one execution at a time; see state.c. */
#ifndef CKC_REMAT_STATE_H
#define CKC_REMAT_STATE_H
#include "levels.h"
#include "remat_int.h"
#include "slots.h"

typedef enum {
    ADDED,
    REMOVED,
    SLID,  /* the run at slot went to slot `to` */
    OPENED, /* the runs behind slot up to slot `to` were shifted */
    CHOSEN  /* the run at slot had another kernel */
} ChangeKind;

typedef struct {
    ChangeKind kind;
    int32_t slot;
    union {
        int32_t op, to;
    };
    uint8_t kernel;
} Change;

typedef struct {
    const Problem *p;
    int32_t T;       /* slots; a multiple of the block size */
    int64_t shifted; /* runs that made room for others since they were spread last */
    int32_t *op;     /* per slot: the operator that runs there, -1 = free */
    uint8_t *kernel; /* per slot */
    int64_t cost;
    int64_t link;    /* sum of RematOp.link over the fetches */
    int64_t host;    /* bytes of all values that are fetched, each counted once */
    int64_t quantum; /* bytes are counted in quanta, rounded up */
    Levels levels; /* per slot, in quanta; the limit is budget - persistent, rounded down */
    int32_t *bytes;  /* per value, in quanta */
    int32_t *kfirst; /* per op: its first row of kcost and kws: one for each kernel, and one with the least */
    int64_t *kcost;
    int32_t *kws;
    bool lean; /* every run counts by its operator's last row: a search for bytes does not choose kernels */
    int32_t *saving; /* per slot: in-place savings included in its level */

    Slots *runs;  /* per op: its executions and those of its fetch */
    int32_t *fetches; /* per op: how many of these are its fetch's */
    Slots *reads; /* per value: executions that read it, T for keep_to_end */
    int32_t *event, *event_at, nevents; /* occupied slots in any order, and where each is */
    int32_t *multi, *multi_at, nmulti;  /* operators that run more than once */

    int32_t held[2]; /* slots that a move remembers: they follow when runs are shifted */
    Change *log; /* changes since state_begin */
    int32_t nlog, caplog;
    int32_t *dirty, ndirty, capdirty; /* slots whose in-place savings may have changed */
} State;

void state_init(State *st, const Problem *p, int64_t budget);
void state_free(State *st);
void state_set_budget(State *st, int64_t budget); /* the state must be empty or reloaded after */

/* Replaces the content by a schedule, evenly spaced; kernels NULL = the cheapest. */
void state_load(State *st, const Seq *s, const uint8_t *kernels);
void state_store(const State *st, Seq *s);
void state_respread(State *st);

/* Is there enough of the link, and of the host's memory, for one more fetch? */
static inline bool state_fetch_fits(const State *st, int32_t fetch)
{
    const RematOp *o = &st->p->inst->ops[fetch];
    return rm_fetch_fits(st->p->inst, o, st->link, st->host, st->fetches[o->fetch_of] > 0);
}

/* Primitive changes. Adding fails (and changes nothing) where the slot is taken, an input
 * is not there yet, or a barrier or `once` forbids it. Removing fails where a reader would
 * be left without its value. */
bool state_add(State *st, int32_t op, int32_t kernel, int32_t slot);
bool state_remove(State *st, int32_t slot);
/* Moves a run within the window that its inputs and readers leave; on failure the caller
 * must undo. */
bool state_move(State *st, int32_t from, int32_t to);
void state_set_kernel(State *st, int32_t slot, int32_t kernel);
/* Gives the run at slot the cheapest kernel that its level allows, if one fits. */
void state_fit_kernel(State *st, int32_t slot);

/* Makes the slot free: the runs at and before it, up to the nearest free slot, move one to
 * the left. */
bool state_open(State *st, int32_t slot);

/* state_undo takes back all changes since state_begin. */
static inline void state_begin(State *st)
{
    st->nlog = 0;
}
void state_undo(State *st);

/* Last run of the value's producer before slot; -1 = none. */
int32_t state_copy_start(const State *st, int32_t value, int32_t slot);
/* Last reader of the copy made at start; start if none. */
int32_t state_last_read(const State *st, int32_t value, int32_t start);
/* First reader of any output of the run at slot; T if none. */
int32_t state_first_reader(const State *st, int32_t slot);
/* The free slot in (lo, hi) that is nearest; -1 = none. */
int32_t state_free_slot(const State *st, int32_t lo, int32_t hi, int32_t near);
/* Is this a run of an operator that runs elsewhere too, and that nothing reads? */
bool state_unread(const State *st, int32_t slot);
#endif
