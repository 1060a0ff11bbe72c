/* tiles.c -- steps that make a product rows at a time (ir/tile.c): two calls in a loop.
 *
 * Scratch: the rows of the product, then the working memory of the library.  All tiles but the last
 * have the same number of rows, so there are two versions of each part at most. */
#include "runtime_int.h"

enum { OPERANDS_MAX = 64 };

Tiles *tiles_make(const Kernel *k, Arena *a)
{
    Tiles *t = NEW(a, Tiles, 1);
    t->count = (k->rows + k->tile - 1) / k->tile;
    t->bytes = plan_align(kernel_tile_bytes(k));
    t->noperands = k->noperands - 1;
    t->step = NEW(a, int64_t, t->noperands);
    for (int i = 0; i < t->noperands; i++)
        t->step[i] = k->tile * kernel_row_bytes(k, i);
    kernel_tile(k, k->tile, &t->part[0].product, &t->part[0].rest);
    kernel_tile(k, k->rows - (t->count - 1) * k->tile, &t->part[1].product, &t->part[1].rest);
    return t;
}

int tiles_texts(Tiles *t, Kernel *k[4], KernelFn **fn[4])
{
    int n = 0;
    for (int i = 0; i < 2; i++) {
        TilePart *p = &t->part[i];
        k[n] = &p->rest;
        fn[n++] = &p->rest_fn;
        if (!p->lib) {
            k[n] = &p->product;
            fn[n++] = &p->product_fn;
        }
    }
    return n;
}

int64_t tiles_scratch(const Tiles *t)
{
    int64_t most = 0;
    for (int i = 0; i < 2; i++) {
        int64_t bytes = t->part[i].lib ? dnnl_scratch_bytes(t->part[i].lib) : 0;
        most = bytes > most ? bytes : most;
    }
    return t->bytes + most;
}

bool tiles_run(const Tiles *t, void *const *op, void *scratch, Diag *d)
{
    void *at[OPERANDS_MAX];
    char *rows = scratch;
    for (int64_t i = 0; i < t->count; i++) {
        const TilePart *p = &t->part[i == t->count - 1];
        for (int k = 0; k < t->noperands; k++)
            at[k] = op[k] ? (char *)op[k] + i * t->step[k] : NULL;
        at[t->noperands] = rows;
        Call product = {.fn = p->product_fn, .lib = p->lib, .nread = 2,
                        .op = (void *[]){at[0], at[1], rows}, .scratch = rows + t->bytes};
        TRY(call_run(&product, d));
        p->rest_fn(at);
    }
    return true;
}
