/* gpu.h -- what the files of the fake driver share. */
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

/* How much work of each stream has ended, for all that follows to see. */
typedef struct Clock {
    uint32_t of[STREAMS];
    struct Clock *all;
} Clock;

typedef struct Work {
    Kind kind;
    bool done;
    double when, seconds; /* seconds: of a call */
    const Clock *host; /* what the host had waited for when it was enqueued */
    Clock *seen;       /* by a RECORD; owned */
    const FakeKernel *of;
    const void *kernel;
    ShimState *shim;
    unsigned grid, block, shared;
    bool first; /* launch of its function */
    void *arg[ARGS];
    CUDA_MEMCPY2D copy;
    void (*call)(void *staged);
    void *staged; /* what a copy from pageable memory reads, or a call; owned */
    const struct Work *target;
    CUgraph captured; /* in this one, NULL: enqueued */
    CUgraphExec graph;
    struct Work *all; /* list of all */
} Work;

struct CUstream_st {
    Work **work;
    size_t next, n, cap, before; /* before: of them are not captured */
    CUgraph capture;             /* what is enqueued goes there */
    unsigned number;             /* below STREAMS */
    Clock clock;                 /* of what has run */
    struct CUstream_st *all;
};
/* What was captured of each stream. */
struct CUgraph_st {
    CUstream origin, part;
};
struct CUgraphExec_st {
    CUstream part;
};
struct CUevent_st {
    const Work *last;
    CUstream stream; /* that it was recorded in */
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
    unsigned shared; /* bytes it may have */
    struct CUfunc_st *all;
    bool launched;
};

/* Memory of the device, or pinned of the host. */
typedef struct Block {
    char *at;
    size_t bytes;
    bool device;
    struct Block *next;
} Block;

typedef struct {
    int retained;
    bool launched; /* in a step: nothing is allocated any more */
    bool lost;
    int launches;
    double now; /* seconds */
    size_t used;
    int objects; /* streams, events and modules */
    unsigned streams, waits; /* numbers given; cuStreamWaitEvent called */
    Clock *host;             /* the last, of all */
    uint64_t random;
    Block *block;
    Work *work;
    struct CUstream_st *stream;
    struct CUfunc_st *function;
} Gpu;
extern Gpu gpu;

void violation(const char *what);      /* ends the process */
const char *setting(const char *name); /* of the environment; "" if it has none */
bool mode(const char *name);           /* is FAKE_CUDA that? */
int pitch_limit(void);
/* What a library runs, in so much time of the GPU; staged is malloc'ed. */
void enqueue_call(CUstream s, void (*call)(void *), void *staged, double seconds);
/* Work that runs accesses memory: a violation if that is a race with work of another stream. */
void check_access(const void *at, size_t bytes, bool write);
void check_context(void);
void check_step(const char *what);                   /* what must not be done in a step */
void check_zones(void);                              /* around everything that is allocated */
const Block *block_at(const void *at, size_t bytes); /* with all of it; NULL: none */
static inline void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

#endif
