/* fiber.c -- runs a CUDA launch on the CPU, one fiber per thread of a block.
 *
 * Fibers are made with makecontext, stay for all launches, and are switched with the compiler's own setjmp
 * and longjmp: no system calls, and nothing of the address sanitizer's, to which a longjmp leaves frames.
 * Between barriers the scheduler either runs the threads of the block in random order until each waits, or
 * one random warp after another as far as it gets; when none is ready, full warps that do something together
 * (warp.c) go on, then a full block at a barrier. */
#include "fiber.h"
#include "shadow.h"
#include "wgmma.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { DEEP = 1 << 20 /* bytes below a frame for its callees */, MAX_BLOCK = 1024, STACK = 64 * 1024,
       LANES = 32, ROW = 16, COPIES = 256, MAX_SHARED = 227 << 10,
       SHARED_ALIGN = 1024, SHARED_ROOM = (MAX_SHARED + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN };
typedef enum { READY, AT_BARRIER, AT_WARP, DONE } Wait;

/* A copy that its thread has still to wait for. */
typedef struct {
    void *to;
    const void *from;
    int bytes, from_bytes, group;
} Copy;

typedef void *Place[5]; /* what __builtin_setjmp fills in */

typedef struct {
    Place at;
    bool made, says;
    Wait wait;
    Copy *copy; /* room for COPIES */
    int ncopy, groups;
} Fiber;

static Fiber fiber[MAX_BLOCK];
static Lane lane[MAX_BLOCK];
static unsigned shared_bytes;
static bool somebody; /* a thread `says` so: what any() returns after a barrier */
static char *stacks;
static unsigned char *shared_memory;
static Place scheduler;
static ShimState *state;
static unsigned current, threads;
static void (*run_body)(void *const *);
static void *const *run_arg;

void fiber_fault(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!*state->error)
        vsnprintf(state->error, sizeof state->error, fmt, ap);
    va_end(ap);
}

/* Functions that return twice or never are not inlined, to keep to frames of their own. */
#define SWITCHES __attribute__((noinline, no_sanitize("address")))

SWITCHES static void go_to(Place p) { __builtin_longjmp(p, 1); }

SWITCHES static void wait_for(Wait w)
{
    fiber[current].wait = w;
    if (__builtin_setjmp(fiber[current].at) == 0)
        go_to(scheduler);
}

static void barrier(void) { wait_for(AT_BARRIER); }

/* All come back from the barrier before anybody can say something new at the next one. */
static int any(int mine)
{
    fiber[current].says = mine != 0;
    wait_for(AT_BARRIER);
    return somebody;
}

static void warp(WarpOp op, const void *in, size_t bytes, void *out, size_t out_bytes)
{
    Lane *me = &lane[current];
    me->op = op;
    if (bytes)
        memcpy(&me->in, in, bytes);
    wait_for(AT_WARP);
    if (out_bytes)
        memcpy(out, &me->out, out_bytes);
}

/* Checks an access to memory.  Reads of *state, where a thread's index and the like are, do not count. */
static void access(const void *at, size_t bytes, bool write)
{
    if (wgmma_holds(current, at, bytes))
        fiber_fault("thread %u of block %u: a product is not waited for", state->thread.x, state->block.x);
    if ((size_t)((const char *)at - (const char *)state) >= sizeof *state)
        shadow_access(at, bytes, write, state->thread.x, state->block.x);
}

/* ---- cp.async -------------------------------------------------------------------------------- */

/* Begins a copy: NaN lies where it is to land until its thread waits for it. */
static void copy(void *to, const void *from, int bytes, int from_bytes)
{
    Fiber *f = &fiber[current];
    const unsigned char *at = to;
    if (at < shared_memory || at + bytes > shared_memory + shared_bytes)
        fiber_fault("a copy leaves shared memory");
    else if ((uintptr_t)to % (unsigned)bytes || (from_bytes && (uintptr_t)from % (unsigned)bytes))
        fiber_fault("a copy of %d bytes is not aligned", bytes);
    else if (from_bytes < 0 || from_bytes > bytes || f->ncopy == COPIES)
        fiber_fault("a copy of %d bytes to %d, behind %d others", from_bytes, bytes, f->ncopy);
    else {
        shadow_access(to, (size_t)bytes, true, current, state->block.x);
        shadow_pending(to, (size_t)bytes);
        memset(to, 0xFF, (size_t)bytes);
        f->copy[f->ncopy++] = (Copy){to, from, bytes, from_bytes, f->groups};
    }
}

static void copy_commit(void) { fiber[current].groups++; }

static void fence(void) { shadow_fence(current); }

static void land(const Copy *c)
{
    shadow_landed(c->to, (size_t)c->bytes, current);
    shadow_access(c->to, (size_t)c->bytes, true, current, state->block.x);
    memset(c->to, 0, (size_t)c->bytes);
    if (c->from_bytes) {
        shadow_access(c->from, (size_t)c->from_bytes, false, current, state->block.x);
        memcpy(c->to, c->from, (size_t)c->from_bytes);
    }
}

static void copy_wait(int groups)
{
    Fiber *f = &fiber[current];
    int left = 0;
    for (int i = 0; i < f->ncopy; i++) {
        const Copy *c = &f->copy[i];
        if (c->group + groups >= f->groups) {
            f->copy[left++] = *c;
            continue;
        }
        land(c);
    }
    f->ncopy = left;
}

/* ---- the scheduler --------------------------------------------------------------------------- */

static void entry(void)
{
    for (;;) {
        run_body(run_arg);
        if (fiber[current].ncopy)
            fiber_fault("a thread ends before its copies");
        wait_for(DONE);
    }
}

SWITCHES static void make(unsigned t)
{
    static ucontext_t here, start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + (size_t)t * STACK;
    start.uc_stack.ss_size = STACK;
    start.uc_link = NULL;
    makecontext(&start, entry, 0);
    fiber[t].made = true;
    swapcontext(&here, &start);
}

SWITCHES static void resume(unsigned t)
{
    current = t;
    state->thread.x = t;
    if (__builtin_setjmp(scheduler) != 0)
        return;
    if (fiber[t].made)
        go_to(fiber[t].at);
    make(t);
}

static void run_together(unsigned w)
{
    const Lane *l = &lane[w * LANES];
    if (l->op == WARP_SYNC)
        shadow_warp(w);
    if (l->op >= WARP_WGMMA) {
        wgmma_run(w, l, shared_memory, shared_bytes, state);
        return;
    }
    for (unsigned i = 0; i < LANES && (l->op == WARP_LDMATRIX || l->op == WARP_LDMATRIX_TRANS); i++)
        shadow_access(shared_memory + l[i].in.address, ROW, false, w * LANES + i, state->block.x);
    warp_run(&lane[w * LANES], shared_memory, shared_bytes, state->capability);
}

/* If all lanes of the warp have come to something that they do together, does it, and lets them go on. */
static bool release_warp(unsigned w)
{
    const unsigned first = w * LANES;
    unsigned same = 0;
    for (unsigned l = 0; l < LANES; l++) {
        if (fiber[first + l].wait != AT_WARP)
            return false;
        same += lane[first + l].op == lane[first].op;
    }
    if (same < LANES)
        fiber_fault("lanes of a warp do not do the same");
    else
        run_together(w);
    for (unsigned l = 0; l < LANES; l++)
        fiber[first + l].wait = READY;
    return true;
}

/* Lets whole warps go on, and the block if all its threads are at a barrier; false: nobody can go on. */
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
    if (at_barrier == threads) {
        shadow_barrier();
        somebody = false;
        for (unsigned t = 0; t < threads; t++)
            somebody |= fiber[t].says;
    }
    return any || at_barrier == threads;
}

/* Runs one warp as far as it gets alone, far ahead of the others. */
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

static void prepare(Fiber *f)
{
    f->says = false;
    f->wait = READY;
    f->ncopy = f->groups = 0;
    f->copy = f->copy ? f->copy : malloc(COPIES * sizeof *f->copy);
}

static bool run_block(uint64_t *seed)
{
    static unsigned order[MAX_BLOCK];
    for (unsigned t = 0; t < threads; t++) {
        prepare(&fiber[t]);
        order[t] = t;
    }
    for (;;) {
        unsigned done = 0;
        shuffle_order(order, seed);
        bool warps = *seed >> 40 & 1; /* warp after warp, else threads of all warps in turn */
        for (unsigned i = 0; i < threads; i++)
            if (warps)
                run_warp(order[i] / LANES, order[i] % LANES);
            else if (fiber[order[i]].wait == READY)
                resume(order[i]);
        for (unsigned t = 0; t < threads; t++)
            done += fiber[t].wait == DONE;
        if (done == threads) {
            wgmma_end(threads / LANES);
            return !*state->error;
        }
        if (!release())
            fiber_fault("threads are stuck");
        if (*state->error)
            return false;
    }
}

/* Drops the fibers, which stand somewhere in a launch that failed; the next launch makes new ones. */
static void forget_fibers(void)
{
    for (unsigned t = 0; t < MAX_BLOCK; t++)
        fiber[t].made = false;
    free(stacks);
    stacks = NULL;
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
    shared_bytes = shared;
    state = st;
    threads = block;
    run_body = body;
    run_arg = arg;
    st->block_dim.x = block;
    st->grid_dim.x = grid;
    st->barrier = barrier;
    st->any = any;
    st->access = access;
    st->warp = warp;
    st->copy = copy;
    st->copy_commit = copy_commit;
    st->copy_wait = copy_wait;
    st->fence = fence;
    *st->error = '\0';
    shadow_launch(stacks, (size_t)MAX_BLOCK * STACK);
    if (shadow_used())
        shadow_add(shared_memory, shared, SHADOW_SHARED);
    bool ok = true;
    for (unsigned b = 0; b < grid && ok; b++) {
        st->block.x = b;
        shadow_block();
        wgmma_block();
        memset(shared_memory, 0xFF, shared);
        ok = run_block(&seed);
    }
    shadow_remove(shared_memory);
    if (!ok)
        forget_fibers();
    return ok;
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

static void lone_barrier(void) { fiber_fault("a thread that runs alone waits for others"); }

static int lone_any(int mine)
{
    lone_barrier();
    return mine;
}

static void lone_warp(WarpOp op, const void *in, size_t bytes, void *out, size_t out_bytes)
{
    (void)op, (void)in, (void)bytes, (void)out, (void)out_bytes;
    lone_barrier();
}

/* Threads of a block run from a random one on in steps of an odd number, which come to every one of 2^k. */
bool thread_launch_kernel(ShimState *st, const void *kernel, void *const *operand,
                          unsigned grid, unsigned block, uint64_t seed)
{
    run_kernel = kernel;
    state = st;
    st->block_dim.x = block;
    st->grid_dim.x = grid;
    st->barrier = lone_barrier;
    st->any = lone_any;
    st->warp = lone_warp;
    st->access = access;
    *st->error = '\0';
    wgmma_block();
    shadow_launch((char *)__builtin_frame_address(0) - DEEP, DEEP);
    for (unsigned b = 0; b < grid; b++) {
        st->block.x = seed & 1 ? grid - 1 - b : b;
        shadow_block();
        for (unsigned t = 0; t < block; t++) {
            st->thread.x = (unsigned)((seed >> 1) + t * (2 * (seed >> 8) + 1)) % block;
            call_kernel(operand);
        }
    }
    return !*st->error;
}
