/* cuda_batch.c -- joins consecutive independent calls of one small kernel into one launch.
 *
 * The updates of a network's biases and norms, and copies in 16 bits, are some hundred calls of a few
 * kernels, each of which takes no longer than its launch.  The launch of a batch has a table of their
 * operands and keys, such as sizes, as its argument, and for each call as many blocks as the largest. */
#include "codegen.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 66 }; /* blocks of a call: half the number of an H200's processors */

/* Has the step a single launch that may be part of a batch? */
static bool joins(const Program *p, uint32_t step)
{
    const Launch *l = &p->l.launch[p->first[step]];
    if (p->first[step + 1] - p->first[step] != 1 || l->copy || l->lib || l->lane != LANE_COMPUTE || l->nwait)
        return false;
    const Kernel *k = p->l.kernel[l->kernel];
    CudaLaunch c = kernel_cuda_launch(k);
    return !k->body && c.n == 1 && c.workspace == 0 && c.phase[0].grid <= MOST_BLOCKS &&
           kernel_cuda_keys(k, NULL) <= CUDA_KEYS && kernel_cuda_is_point(k);
}

static bool meet(const Slice *a, const Slice *b)
{
    return a->base == b->base && a->base >= 0 && (a->write || b->write) && a->at < b->at + b->bytes &&
           b->at < a->at + a->bytes;
}

/* Does one launch write bytes that the other reads or writes? */
static bool conflict(const Launch *a, const Launch *b)
{
    for (int i = 0; i < a->nop; i++)
        for (int k = 0; k < b->nop; k++)
            if (meet(&a->op[i], &b->op[k]))
                return true;
    return false;
}

static const Kernel *kernel_of(const Program *p, uint32_t step)
{
    return p->l.kernel[p->l.launch[p->first[step]].kernel];
}

static char *text_of(const Program *p, uint32_t step)
{
    return kernel_print_text(kernel_print_cuda, kernel_of(p, step));
}

/* The end `to` of the steps [from, to) that are calls of the first one's kernel and independent. */
static uint32_t extent(const Program *p, uint32_t from, uint32_t end)
{
    const Kernel *k = kernel_of(p, from);
    uint32_t most = CUDA_TABLE / (uint32_t)(k->noperands + kernel_cuda_keys(k, NULL)), to = from + 1;
    char *text = text_of(p, from);
    for (bool same = true; to < end && to - from < most && joins(p, to); to += same) {
        const Launch *next = &p->l.launch[p->first[to]];
        for (uint32_t s = from; s < to && same; s++)
            same = !conflict(&p->l.launch[p->first[s]], next);
        char *other = text_of(p, to);
        same = same && strcmp(text, other) == 0;
        free(other);
        if (!same)
            break;
    }
    free(text);
    return to;
}

static int64_t threads(const Kernel *k)
{
    CudaPhase l = kernel_cuda_launch(k).phase[0];
    return (int64_t)l.grid * l.block;
}

/* The kernel with the most threads among those of steps [from, to). */
static const Kernel *largest(const Program *p, uint32_t from, uint32_t to)
{
    const Kernel *k = kernel_of(p, from);
    for (uint32_t s = from + 1; s < to; s++)
        if (threads(kernel_of(p, s)) > threads(k))
            k = kernel_of(p, s);
    return k;
}

/* Finds the batches among steps [from, to), which run one after the other. */
static void find(const Program *p, uint32_t from, uint32_t to, CudaBatch *out, Arena *a)
{
    for (uint32_t s = from, end; s < to; s = end) {
        end = joins(p, s) ? extent(p, s, to) : s + 1;
        if (end - s < 2)
            continue;
        Kernel *k = NEW(a, Kernel, 1);
        *k = *largest(p, s, end);
        k->calls = (int)(end - s);
        out[p->first[s]].kernel = k;
        for (uint32_t i = s; i < end; i++)
            out[p->first[i]].calls = i == s ? end - s : 0;
    }
}

CudaBatch *cuda_batches(const Program *p, uint32_t nmicro, uint32_t nstep, Arena *a)
{
    CudaBatch *out = NEW(a, CudaBatch, p->l.n + 1);
    for (uint32_t i = 0; i < p->l.n; i++)
        out[i] = (CudaBatch){1, p->l.launch[i].copy ? NULL : p->l.kernel[p->l.launch[i].kernel]};
    find(p, 0, nmicro, out, a);
    find(p, nmicro, nstep, out, a);
    return out;
}
