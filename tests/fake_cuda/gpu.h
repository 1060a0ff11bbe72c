/* gpu.h -- what the files of the fake driver and its libraries share. */
#ifndef CKC_FAKE_GPU_H
#define CKC_FAKE_GPU_H
#include "runtime/cuda/driver.h"
#include "kernel.h"
#include "shim/fiber.h"
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CU(name, ...) EXPORT CUresult name(__VA_ARGS__);
#include "runtime/cuda/symbols.def"

enum { INVALID_VALUE = 1, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719, LOST_AFTER = 2 };
enum { SHARED = 48 << 10, ZONE = 256, MEMORY = 256 << 20, ARGS = FIBER_ARGS, STREAMS = 128 };

typedef enum { KERNEL, CALL, COPY, FILL, RECORD, WAIT, GRAPH } Kind;

/* Per stream, how many pieces of its work have ended before something: a vector clock. */
typedef struct Clock {
    uint32_t of[STREAMS];
    struct Clock *all;
} Clock;

typedef struct Work {
    Kind kind;
    bool done;
    double when, seconds; /* when it ended, by gpu.now; CALL: how long it takes */
    const Clock *host; /* what the host had waited for when it was enqueued; NULL: nothing, or captured */
    Clock *seen;       /* RECORD: the stream's clock when it ran; owned */
    const FakeKernel *of;
    const void *kernel;
    ShimState *shim;
    unsigned grid, block, shared;
    bool first; /* it is the first launch of its function */
    void *arg[ARGS];
    CUDA_MEMCPY2D copy;
    void (*call)(void *staged);
    void *staged; /* what a copy from pageable memory or a call reads, or a kernel's table; owned */
    const struct Work *target; /* WAIT: the RECORD that it waits for */
    CUgraph captured; /* the graph that it is in; NULL: none, it was enqueued */
    CUgraphExec graph;
    struct Work *all; /* the next in the list of all work */
} Work;

struct CUstream_st {
    Work **work;
    size_t next, n, cap, before; /* next: the first that has not run; before: how many are not captured */
    CUgraph capture;             /* the graph that captures what is enqueued; NULL: none */
    unsigned number;             /* below STREAMS */
    Clock clock;                 /* what has run, here or before */
    struct CUstream_st *all;
};
/* The stream in which the capture began; a list of what was captured of each stream. */
struct CUgraph_st {
    CUstream origin, part;
};
struct CUgraphExec_st {
    CUstream part;
};
struct CUevent_st {
    const Work *last;
    CUstream stream; /* in which it was recorded */
    bool timing;
};
struct CUmod_st {
    void *dl;
    ShimState shim;
};
struct CUfunc_st {
    const void *kernel;
    const FakeKernel *of;
    ShimState *shim;
    unsigned shared; /* most bytes of dynamic shared memory of a launch */
    struct CUfunc_st *all;
    bool launched;
};

/* A block of the device's memory, or of pinned memory of the host. */
typedef struct Block {
    char *at;
    size_t bytes;
    bool device;
    struct Block *next;
} Block;

typedef struct {
    int retained;
    bool launched; /* a step has begun, so nothing may be allocated any more */
    bool lost;
    int launches;
    double now; /* seconds that all work has taken */
    size_t used; /* bytes of the device's memory */
    int objects; /* number of streams, events, modules, graphs and the like */
    unsigned streams, waits; /* numbers given to streams and parts of graphs; calls of cuStreamWaitEvent */
    Clock *host;             /* what the host has waited for, the last of a list of all such clocks */
    uint64_t random;
    Block *block;
    Work *work;
    struct CUstream_st *stream;
    struct CUfunc_st *function;
} Gpu;
extern Gpu gpu;

void violation(const char *what);      /* ends the process */
const char *setting(const char *name); /* a variable of the environment; "": it is not set */
bool mode(const char *name);           /* is FAKE_CUDA set to that name? */
int pitch_limit(void);                 /* most bytes between rows of a copy */
/* Enqueues a library's work: call(staged), which takes that time of the GPU; the driver frees staged. */
void enqueue_call(CUstream s, void (*call)(void *), void *staged, double seconds);
/* Work that runs accesses memory: a violation if that is a race with work of another stream. */
void check_access(const void *at, size_t bytes, bool write);
void check_context(void);
void check_step(const char *what);                   /* a violation in a step; `what` describes it */
void check_zones(void);                              /* checks that the zones around blocks are untouched */
const Block *block_at(const void *at, size_t bytes); /* the block that has all these bytes; NULL: none */
static inline void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

#endif
