/* call.c -- kernels ready to run: generated functions, library routines, strided copies. */
#include "cpu.h"
#include <string.h>

enum {
    COPY_BLOCK = 64 << 10, /* bytes one thread copies at a time */
    SMALL_WORK = 8192,     /* floating-point operations that take as long as calling a routine */
};

/* Copies rows, cut into blocks so that all threads share also one long row. */
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

static bool run(const Call *c, Diag *d)
{
    if (c->fn) {
        c->fn(c->op);
        return true;
    }
    void *out = c->op[c->nop - 1];
    if (c->lib)
        return onednn_run(c->lib, (const void *const *)c->op, out, c->workspace, d);
    for (int i = 0; i < c->ncopy; i++)
        copy_rows(&c->copy[i], c->op[c->copy[i].operand], out);
    return true;
}

bool calls_run(const Call *c, uint32_t n, Diag *d)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(run(&c[i], d));
    return true;
}

/* ---- binding -------------------------------------------------------------------------------------- */

Call *calls_make(const Launch *l, uint32_t n, Arena *a)
{
    Call *c = NEW(a, Call, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        CopyRows *copy = l[i].ncopy ? NEW(a, CopyRows, l[i].ncopy) : NULL;
        if (copy)
            memcpy(copy, l[i].copy, (size_t)l[i].ncopy * sizeof *copy);
        c[i] = (Call){.copy = copy, .ncopy = l[i].ncopy, .nop = l[i].nop};
        c[i].op = NEW(a, void *, l[i].nop + 1);
    }
    return c;
}

static char *slice_at(const Slice *s, char *const *base)
{
    return s->base < 0 ? NULL : base[s->base] + s->at;
}

void calls_bind(Call *c, const Launch *l, uint32_t n, char *const *base)
{
    for (uint32_t i = 0; i < n; i++) {
        for (int o = 0; o < l[i].nop; o++)
            c[i].op[o] = slice_at(&l[i].op[o], base);
        c[i].workspace = slice_at(&l[i].workspace, base);
    }
}

/* ---- functions ------------------------------------------------------------------------------------- */

/* The kernels that calls run as text, each once. */
typedef struct {
    const Kernel **k;
    KernelFn **fn;
    int n;
} Texts;

static void collect(Texts *t, const Call *c, const Launches *l, int *at)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!c[i].lib && !c[i].copy && !at[l->launch[i].kernel]) {
            t->k[t->n] = l->kernel[l->launch[i].kernel];
            at[l->launch[i].kernel] = ++t->n;
        }
}

bool calls_load(Call *const *c, const Launches *const *l, uint32_t n, const KernelCache *cache,
                KernelObjects *o, Diag *d)
{
    Arena tmp = {0};
    size_t all = 1;
    for (uint32_t i = 0; i < n; i++)
        all += l[i]->nkernel;
    Texts t = {NEW(&tmp, const Kernel *, all), NEW(&tmp, KernelFn *, all), 0};
    int **at = NEW(&tmp, int *, n + 1); /* per kernel: index in t plus 1; 0: not there */
    for (uint32_t i = 0; i < n; i++) {
        at[i] = NEW(&tmp, int, l[i]->nkernel + 1);
        collect(&t, c[i], l[i], at[i]);
    }
    bool ok = kernels_load(t.k, t.n, cache, t.fn, o, d);
    for (uint32_t i = 0; i < n && ok; i++)
        for (uint32_t j = 0; j < l[i]->n; j++)
            if (!c[i][j].lib && !c[i][j].copy)
                c[i][j].fn = t.fn[at[i][l[i]->launch[j].kernel] - 1];
    arena_free(&tmp);
    return ok;
}

const LibDesc *lib_worth(const LibDesc *of) { return of && of->flops >= SMALL_WORK ? of : NULL; }
