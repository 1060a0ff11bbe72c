/* cuda_sample.c -- grid_sample and the gradient of its data as CUDA C: the texts of ir/ops/sample.c with a
 * channel for each thread, so that a warp reads and adds 32 neighbours.  For the gradient each warp owns some
 * rows of an image and looks at 32 positions at a time. */
#include "cuda_int.h"

enum { THREADS = 128, WARPS = 16 * BLOCKS }; /* threads of a block; warps that keep all processors busy */

static bool adds(const Kernel *k) { return cuda_is_body(k, "grid_sample_bwd_data"); }

bool cuda_is_sample(const Kernel *k) { return k->items > 0 && (cuda_is_body(k, "grid_sample") || adds(k)); }

/* The same kernel with a channel, or some rows of one, as an item. */
static Kernel by_channel(const Kernel *k)
{
    Kernel by = *k;
    int64_t channels = k->p[9], images = adds(k) ? k->items / (k->p[12] * k->p[13]) : 0;
    by.p[10] = 1;
    if (!adds(k)) {
        by.p[12] = channels;
        by.items = k->items / k->p[12] * channels;
        return by;
    }
    int64_t warps = ceil_div(channels, WARP), rows = k->p[3 - k->p[6]], most = WARPS / (images * warps);
    by.p[12] = warps * WARP; /* all lanes of a warp look for positions, and some have no channel */
    by.p[14] = ceil_div(rows, most < 1 ? 1 : most);
    by.p[13] = ceil_div(rows, by.p[14]);
    by.items = images * by.p[13] * by.p[12];
    return by;
}

CudaLaunch sample_launch(const Kernel *k)
{
    return one_phase(blocks_for(by_channel(k).items, THREADS), THREADS);
}

void sample_prelude(Printer *pr, const Kernel *k)
{
    Kernel by = by_channel(k);
    text_body(&pr->w, &by, pr->name);
}

void sample_kernel(Printer *pr, const Kernel *k) { item_kernel(pr, k, by_channel(k).items, THREADS); }
