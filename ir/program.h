/* program.h -- what a device executes: launches on byte offsets, in order, without the graph.
 *
 * A command (kernel.h) that runs as a loop over blocks of rows is unrolled: a launch is one call of a
 * kernel, or of the library routine or copies that stand for it.  Executors and printers read a Program
 * and nothing above it. */
#ifndef CKC_PROGRAM_H
#define CKC_PROGRAM_H

#include "plan.h"

/* Launches of one lane run one after another; those of different lanes in any order unless one waits. */
typedef enum { LANE_COMPUTE, LANE_OUT, LANE_IN, LANES } Lane; /* kernels; copies to the host, from it */

enum { PROGRAM_LAUNCHES = 1 << 20 }; /* most launches: a schedule may come from anywhere */

/* Bytes that a launch reads or writes. */
typedef struct {
    int base; /* whose memory: in a Program a Space; from command_launches() an operand of the command or,
               * behind the last, its workspace; -1: absent */
    bool write;
    int64_t at, bytes; /* at: first byte, from the start of that memory */
} Slice;

typedef struct {
    uint32_t kernel;      /* index in Launches.kernel; 0 where there are copies */
    const LibDesc *lib;   /* routine that a library may run instead of the kernel; NULL: none */
    const CopyRows *copy; /* not NULL: ncopy copies into the last operand, and no kernel */
    int ncopy;
    int stage;            /* index in Loop.stage; without a loop 0 */
    int nop;
    const Slice *op;      /* operands of the kernel; of a library routine the last is written */
    Slice workspace;      /* of a library routine: its place in a Program, else only the bytes it asks for */
    Lane lane;
    uint32_t wait[LANES - 1]; /* launches of other lanes that end before this one begins */
    int nwait;
} Launch;

typedef struct {
    Arena *arena;
    Launch *launch;
    uint32_t n, cap;
    const Kernel **kernel; /* one for all blocks of one size */
    uint32_t nkernel, ckernel;
} Launches;

/* Appends the launches of a command; their bases are its own operands.  Kernels are the command's or
 * live in l->arena. */
void command_launches(const Command *c, Launches *l);
/* Runs a launch in double precision (eval.c).  k: its kernel, NULL where there are copies; op: operands. */
void launch_run_ref(const Launch *l, const Kernel *k, Tensor *op);

typedef struct {
    Launches l;
    int64_t bytes[SPACES];  /* size of each space's arena */
    int64_t align;          /* bytes, of all places in the arenas; 0: as in Plan.align */
    const Command *command; /* per step of the plan */
    uint32_t *first;        /* per step, and one more: the step's launches are [first[s], first[s + 1]) */
    uint32_t updates[3];    /* copies of updates that are not in place: [0] to [1] after each micro-batch,
                             * [1] to [2] after the step */
} Program;

/* Checks that operands lie in their memory, aligned to their elements, whole values and workspaces as the
 * device wants (a loop goes through them row by row), and are written over only where a kernel allows it;
 * that copies are whole; and that every access to a byte is ordered with those that it conflicts with, by
 * lanes and waits alone: a copy in flight holds what it reads and writes.  By vector clocks (C. Fidge, 1988;
 * F. Mattern, 1989).  The message names the launch. */
bool program_verify(const Program *p, Diag *d);
void program_add_waits(Program *p); /* adds the waits that make it so; program_make() does */

/* Lowers every step of a plan.  Everything lies within the arena of the plan, or it fails.  Allocated in
 * a; refers to the plan's graph for messages only. */
bool program_make(Program *out, const Plan *p, Arena *a, Diag *d);
typedef struct {
    int64_t begin, end; /* ns */
    Lane lane;
} StepTime;

/* Time in ns that steps [from, to) of a plan take if nothing is in flight when they begin: lanes run in
 * parallel, but for waits.  step_ns: time of every step in its lane.  times: when each of the steps runs, by
 * its number in the plan; may be NULL. */
int64_t program_ns(const Program *p, const int64_t *step_ns, uint32_t from, uint32_t to, StepTime *times);

#endif
