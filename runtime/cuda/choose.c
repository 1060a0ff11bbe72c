/* choose.c -- chooses how commands run on an NVIDIA GPU, and the workspace that they need.
 *
 * Products run in cuBLASLt.  If the GPU is here, each has an algorithm (algos.c), which is part of the plan's
 * choice: the fastest if times are known (measure.c), else the library's first.  For a GPU that is not here
 * the plan reserves the workspace that NVIDIA recommends.  Everything else, and products without an algorithm
 * or library, runs as text; attention has several texts, and the one taken is part of the choice, too. */
#include "ir/mem.h"
#include "profile.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of workspace that products may use: NVIDIA's recommendation for cublasSetWorkspace. */
enum { HOPPER = 90, WORKSPACE_HOPPER = 32 << 20, WORKSPACE = 4 << 20 };

/* Opens the times and algorithms kept for this GPU, driver, library and prelude. */
static void open_times(CudaProfile *p)
{
    char *text = NULL;
    size_t size = 0;
    if (!p->opt.cache)
        return;
    FILE *f = mem_stream(&text, &size);
    codegen_prelude_cuda(f);
    fprintf(f, "%s %s %d", p->opt.device->title, p->lib.pin, p->on.cu->version);
    mem_stream_end(f);
    uint64_t of = XXH3_64bits(text, size);
    table_open(&p->table, p->opt.cache, of);
    algos_open(p, of);
    free(text);
}

void cuda_profile_close(void *profile)
{
    CudaProfile *p = profile;
    table_close(&p->table);
    arena_free(&p->round);
    if (cuda_context_enter(&p->on, &(Diag){0})) {
        products_close(&p->lib);
        cuda_context_leave(&p->on, true);
    }
    cuda_context_close(&p->on);
    arena_free(&p->arena);
    free(p);
}

void *cuda_profile_open(const ProfileOptions *o, Diag *d)
{
    CudaProfile *p = mem_new(1, sizeof *p);
    int64_t capability = o->device ? o->device->capability : 0;
    p->opt = *o;
    p->workspace = capability >= HOPPER ? WORKSPACE_HOPPER : WORKSPACE;
    if (!o->here)
        return p;
    if (!cuda_context_open(&p->on, o->ordinal, d) ||
        !IN_CONTEXT(&p->on, products_open(&p->lib, p->on.cu, p->on.device, d))) {
        cuda_profile_close(p);
        return NULL;
    }
    open_times(p);
    return p;
}

/* ---- commands ----------------------------------------------------------------------------------- */

typedef struct {
    Launches l;
    Products products;
    ProductAlgo *first, *least; /* per product: the fastest algorithm, and the one without workspace */
    double slower;              /* ns that all of `least` take more than those of `first` */
} Asked;

static bool ask_product(CudaProfile *p, Asked *q, uint32_t i, Diag *d)
{
    const Known *k = algos_of(p, &q->products.of[i], d);
    TRY(k);
    int first = algos_fastest(k, p->workspace), least = algos_fastest(k, 0);
    if (first < 0)
        return true;
    least = least < 0 ? first : least;
    q->first[i] = k->algo[first];
    q->least[i] = k->algo[least];
    q->slower += fmax(0, k->ns[least] - k->ns[first]);
    return true;
}

static bool ask_command(CudaProfile *p, const Command *c, Asked *out, Arena *a, Diag *d)
{
    *out = (Asked){.l = {.arena = a}};
    command_launches(c, &out->l);
    out->products = products_of(out->l.launch, out->l.n, a);
    out->first = NEW(a, ProductAlgo, out->products.n + 1);
    out->least = NEW(a, ProductAlgo, out->products.n + 1);
    for (uint32_t i = 0; i < out->products.n; i++) {
        out->first[i] = (ProductAlgo){.workspace = p->on.cu ? -1 : p->workspace};
        out->least[i] = (ProductAlgo){.workspace = p->on.cu ? -1 : 0};
        TRY(!p->lib.lt || ask_product(p, out, i, d));
    }
    return true;
}

/* Bytes of workspace for a launch's products; -1: the launch runs as text. */
static int64_t product_bytes(const Launch *l, const Products *p, const ProductAlgo *algo)
{
    Gemms s;
    int64_t at[GEMM_OPERANDS], most = -1;
    bool all = gemm_describe(&s, l->lib);
    for (int64_t i = 0; all && i < gemm_calls(&s); i++) {
        Gemm g = gemm_call(&s, i, at);
        int64_t bytes = algo[product_index(p, &g)].workspace;
        all = bytes >= 0;
        most = bytes > most ? bytes : most;
    }
    return all ? most : -1;
}

/* Bytes of workspace of a command: the buffers of a loop, then room for the launch that needs most, as
 * launches run one after the other. */
static int64_t workspace_bytes(const Command *c, const Asked *q, const ProductAlgo *algo)
{
    int64_t most = 0, own = command_workspace_bytes(c);
    for (uint32_t i = 0; i < q->l.n && !c->copy; i++) {
        int64_t bytes = product_bytes(&q->l.launch[i], &q->products, algo);
        if (bytes < 0)
            bytes = kernel_cuda_launch(q->l.kernel[q->l.launch[i].kernel]).workspace;
        most = bytes > most ? bytes : most;
    }
    return most ? align_up(own, CUDA_WORKSPACE_ALIGN) + most : own;
}

static Candidate candidate(CudaProfile *p, const Command *c, const Asked *q, const ProductAlgo *algo)
{
    const char *choice = c->k.wgmma           ? cuda_wgmma
                         : c->k.small_tiles   ? cuda_small_tiles
                         : q->products.n == 0 ? NULL
                         : p->on.cu           ? product_choice(&p->lib, algo, q->products.n, &p->round)
                                              : product_unpinned;
    return (Candidate){choice, workspace_bytes(c, q, algo), -1};
}

/* Index of the time of a command, by the hash of its text, products, algorithms and sizes of operands. */
static uint32_t command_entry(CudaProfile *p, const Command *c, const Asked *q, const char *choice)
{
    XXH3_state_t h;
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    for (uint32_t i = 0; i < q->l.n; i++)
        if (!c->copy && product_bytes(&q->l.launch[i], &q->products, q->first) < 0)
            kernel_print_cuda(q->l.kernel[q->l.launch[i].kernel], "k", f);
    fprintf(f, "%s %u", choice ? choice : "-", q->l.n);
    for (int i = 0; i < c->nread + c->nwrite; i++)
        fprintf(f, " %lld", c->vals[i].i ? (long long)type_bytes(val_type(c->g, c->vals[i])) : 0);
    mem_stream_end(f);
    XXH3_128bits_reset(&h);
    XXH3_128bits_update(&h, text, size);
    XXH3_128bits_update(&h, q->products.of, q->products.n * sizeof *q->products.of);
    free(text);
    return table_find(&p->table, XXH3_128bits_digest(&h));
}

static bool answer(CudaProfile *p, Item *it, StepCost *out, Diag *d)
{
    Asked q;
    Arena tmp = {0};
    bool ok = ask_command(p, it->c, &q, &tmp, d);
    if (ok) {
        *out = (StepCost){.c = {candidate(p, it->c, &q, q.first)}, .n = 1, .same = 1};
        Candidate less = candidate(p, it->c, &q, q.least);
        it->choice = out->c[0].choice;
        it->scratch = out->c[0].scratch;
        it->entry = profile_measures(p) ? command_entry(p, it->c, &q, it->choice) : 0;
        double ns = profile_ns(p, it->entry);
        out->measured = ns >= 0;
        if (ns < 0 && (it->c->k.wgmma || it->c->k.threads)) /* what the cost pass does not know of a kernel */
            ns = device_ns(p->opt.device, it->c);
        out->c[0].ns = (int64_t)ns;
        less.ns = ns < 0 ? -1 : (int64_t)(ns + q.slower);
        if (less.scratch < out->c[0].scratch)
            out->c[out->n++] = less;
    }
    arena_free(&tmp);
    return ok;
}

bool profile_answer(CudaProfile *p, StepCost *out, Diag *d)
{
    for (uint32_t i = 0; i < p->nitem; i++)
        TRY(answer(p, &p->item[i], &out[i], d));
    return true;
}

/* Copies commands, with the text of attention set: with wgmma if the GPU has it, with small tiles if others
 * do not fit into shared memory; and with the work of scalar bodies. */
static Command *with_texts(const CudaProfile *p, const Command *c, uint32_t n, Arena *a)
{
    const DeviceInfo *d = p->opt.device;
    bool can = p->on.cu ? cuda_has_wgmma(p->on.cu, p->on.device)
                        : d && d->capability == CUDA_WGMMA_CAPABILITY;
    int64_t shared = d && d->shared_memory ? d->shared_memory : INT64_MAX;
    Command *out = NEW(a, Command, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        Kernel *k = &out[i].k;
        out[i] = c[i];
        if (c[i].loop || c[i].copy)
            continue;
        k->wgmma = can && kernel_cuda_has_wgmma(k);
        k->small_tiles = kernel_cuda_wants_small_tiles(k, shared);
        if (d)
            kernel_cuda_work(k);
    }
    return out;
}

bool cuda_choose(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    CudaProfile *p = user;
    arena_free(&p->round);
    c = with_texts(p, c, n, &p->round);
    p->item = NEW(&p->round, Item, n + 1);
    for (p->nitem = 0; p->nitem < n; p->nitem++)
        p->item[p->nitem] = (Item){.c = &c[p->nitem], .first = c[p->nitem].nodes[0]};
    return IN_CONTEXT(&p->on, profile_answer(p, out, d));
}
