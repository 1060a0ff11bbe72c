/* call.c -- kernels ready to run: generated functions, library routines, strided copies. */
#include "runtime_int.h"
#include <stdlib.h>
#include <string.h>

enum {
    COPY_BLOCK = 64 << 10, /* bytes one thread copies at a time */
    SMALL_WORK = 8192,     /* operations: what calling a routine takes */
};

/* Rows are cut into blocks, so that one long row is copied by all threads too. */
static void copy_rows(const CopyRows *c, const char *from, char *to)
{
    if (c->bytes == 0)
        return;
    int64_t blocks = (c->bytes + COPY_BLOCK - 1) / COPY_BLOCK, n = c->rows * blocks;
    bool large = c->rows * c->bytes >= 4 * COPY_BLOCK;
#pragma omp parallel for schedule(static) if (large)
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / blocks, at = i % blocks * COPY_BLOCK;
        int64_t bytes = c->bytes - at < COPY_BLOCK ? c->bytes - at : COPY_BLOCK;
        memcpy(to + c->at + row * c->stride + at, from + row * c->bytes + at,
               (size_t)bytes);
    }
}

bool call_run(const Call *c, Diag *d)
{
    if (c->fn) {
        c->fn(c->op);
        return true;
    }
    if (c->turns)
        return turns_run(c->turns, c->op, c->scratch, d);
    if (c->lib)
        return dnnl_run(c->lib, (const void *const *)c->op, c->op[c->nread], c->scratch, d);
    for (int i = 0; i < c->ncopy; i++)
        copy_rows(&c->copy[i], c->op[c->copy[i].operand], c->op[c->nread]);
    return true;
}

const LibDesc *lib_worth(const LibDesc *of) { return of && of->flops >= SMALL_WORK ? of : NULL; }
