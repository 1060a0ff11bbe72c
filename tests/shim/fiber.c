/* fiber.c -- runs a CUDA launch on the CPU, one fiber per thread of a block.
 *
 * Fibers are made with makecontext and switched with setjmp/longjmp, which unlike swapcontext
 * makes no system call.  Between barriers the scheduler either runs the threads of the block in
 * random order until each waits, or one random warp after another as far as it gets; when none is
 * ready, full warps at a shuffle go on, then a full block at a barrier.  Values of a shuffle lie
 * in two slots used in turn: nobody is two shuffles ahead of a lane of its warp. */
#include "fiber.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { MAX_BLOCK = 1024, STACK = 64 * 1024, LANES = 32, SLOT = 8, MAX_SHARED = 227 << 10,
       SHARED_ALIGN = 1024, SHARED_ROOM = (MAX_SHARED + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN };
typedef enum { READY, AT_BARRIER, AT_SHUFFLE, DONE } Wait;

typedef struct {
    ucontext_t start;
    jmp_buf at;
    bool started;
    Wait wait;
    unsigned shuffles;
} Fiber;

static Fiber fiber[MAX_BLOCK];
static unsigned char slot[MAX_BLOCK][2][SLOT];
static char *stacks;
static unsigned char *shared_memory;
static jmp_buf scheduler;
static ShimState *state;
static unsigned current, threads;
static void (*run_body)(void *const *);
static void *const *run_arg;

static void wait_for(Wait w)
{
    unsigned me = current;
    fiber[me].wait = w;
    if (_setjmp(fiber[me].at) == 0)
        _longjmp(scheduler, 1);
}

static void barrier(void) { wait_for(AT_BARRIER); }

static void exchange(void *value, size_t size, int mask)
{
    unsigned me = current, turn = fiber[me].shuffles++ & 1;
    memcpy(slot[me][turn], value, size);
    wait_for(AT_SHUFFLE);
    memcpy(value, slot[me ^ (unsigned)mask][turn], size);
}

static void entry(void)
{
    run_body(run_arg);
    wait_for(DONE);
}

/* Functions that return twice keep to frames of their own. */
__attribute__((noinline)) static void resume(unsigned t)
{
    static ucontext_t here;
    current = t;
    state->thread.x = t;
    if (_setjmp(scheduler) != 0)
        return;
    if (fiber[t].started)
        _longjmp(fiber[t].at, 1);
    fiber[t].started = true;
    swapcontext(&here, &fiber[t].start);
}

/* Let a whole warp past its shuffle. */
static bool release_warp(unsigned w)
{
    unsigned n = 0;
    for (unsigned l = 0; l < LANES; l++)
        n += fiber[w * LANES + l].wait == AT_SHUFFLE;
    for (unsigned l = 0; l < LANES && n == LANES; l++)
        fiber[w * LANES + l].wait = READY;
    return n == LANES;
}

/* Let whole warps past a shuffle; failing that, the whole block past a barrier. */
static bool release(void)
{
    bool any = false;
    unsigned at_barrier = 0;
    for (unsigned w = 0; w < threads / LANES; w++)
        any |= release_warp(w);
    for (unsigned t = 0; t < threads; t++)
        at_barrier += fiber[t].wait == AT_BARRIER;
    for (unsigned t = 0; t < threads && at_barrier == threads; t++)
        fiber[t].wait = READY;
    return any || at_barrier == threads;
}

/* One warp as far as it gets alone: the others see it far ahead. */
static void run_warp(unsigned w, unsigned mix)
{
    do
        for (unsigned l = 0; l < LANES; l++)
            if (fiber[w * LANES + (l ^ mix)].wait == READY)
                resume(w * LANES + (l ^ mix));
    while (release_warp(w));
}

static void shuffle_order(unsigned *order, uint64_t *seed)
{
    for (unsigned i = threads; i-- > 1;) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        unsigned j = (unsigned)(*seed >> 33) % (i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
}

__attribute__((noinline)) static void prepare(Fiber *f, char *stack)
{
    f->started = false;
    f->wait = READY;
    f->shuffles = 0;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack;
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = NULL;
    makecontext(&f->start, entry, 0);
}

static bool run_block(uint64_t *seed)
{
    static unsigned order[MAX_BLOCK];
    for (unsigned t = 0; t < threads; t++) {
        prepare(&fiber[t], stacks + (size_t)t * STACK);
        order[t] = t;
    }
    for (;;) {
        unsigned done = 0;
        shuffle_order(order, seed);
        bool warps = *seed >> 40 & 1; /* threads of all warps in turn, or warp after warp */
        for (unsigned i = 0; i < threads; i++)
            if (warps)
                run_warp(order[i] / LANES, order[i] % LANES);
            else if (fiber[order[i]].wait == READY)
                resume(order[i]);
        for (unsigned t = 0; t < threads; t++)
            done += fiber[t].wait == DONE;
        if (done == threads)
            return true;
        if (!release())
            return false;
    }
}

bool fiber_launch(ShimState *st, void (*body)(void *const *), void *const *arg, unsigned grid,
                  unsigned block, unsigned shared, uint64_t seed)
{
    if (block > MAX_BLOCK || block % LANES || shared > MAX_SHARED)
        return false;
    stacks = stacks ? stacks : malloc((size_t)MAX_BLOCK * STACK);
    shared_memory = shared_memory ? shared_memory : aligned_alloc(SHARED_ALIGN, SHARED_ROOM);
    if (!stacks || !shared_memory)
        return false;
    st->shared = shared_memory;
    state = st;
    threads = block;
    run_body = body;
    run_arg = arg;
    st->block_dim.x = block;
    st->grid_dim.x = grid;
    st->barrier = barrier;
    st->exchange = exchange;
    for (unsigned b = 0; b < grid; b++) {
        st->block.x = b;
        memset(shared_memory, 0xFF, shared);
        if (!run_block(&seed))
            return false;
    }
    return true;
}

/* ---- kernels by address ------------------------------------------------------------------- */

static const void *run_kernel;

#define ARGS4(a) a[0], a[1], a[2], a[3]
#define ARGS16(a) ARGS4(a), ARGS4((a + 4)), ARGS4((a + 8)), ARGS4((a + 12))
#define ARGS64(a) ARGS16(a), ARGS16((a + 16)), ARGS16((a + 32)), ARGS16((a + 48))
#define P4 void *, void *, void *, void *
#define P16 P4, P4, P4, P4

/* Surplus arguments do no harm in this machine's calling convention. */
static void call_kernel(void *const *a)
{
    void (*fn)(P16, P16, P16, P16);
    memcpy(&fn, &run_kernel, sizeof fn);
    fn(ARGS64(a));
}

bool fiber_launch_kernel(ShimState *st, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, unsigned shared, uint64_t seed)
{
    run_kernel = kernel;
    return fiber_launch(st, call_kernel, operand, grid, block, shared, seed);
}

/* From a place on, in steps that come to every number below n: 2^k and an odd one. */
bool thread_launch_kernel(ShimState *st, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, uint64_t seed)
{
    run_kernel = kernel;
    st->block_dim.x = block;
    st->grid_dim.x = grid;
    for (unsigned b = 0; b < grid; b++) {
        st->block.x = seed & 1 ? grid - 1 - b : b;
        for (unsigned t = 0; t < block; t++) {
            st->thread.x = (unsigned)((seed >> 1) + t * (2 * (seed >> 8) + 1)) % block;
            call_kernel(operand);
        }
    }
    return true;
}
