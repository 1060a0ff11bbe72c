/* choose.c -- what commands run through on an NVIDIA GPU, and what they need beside their operands.
 *
 * Products are cuBLASLt's.  Where the GPU is here the library is asked for algorithms, each distinct product
 * once, and the one that is taken is part of the plan's choice; of one that is not here the plan has the
 * workspace that NVIDIA recommends.  Everything else, and products for which there is no algorithm or no
 * library, is its text. */
#include "cuda.h"
#include "ir/mem.h"
#include "product.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of workspace that products may have: NVIDIA's recommendation for cublasSetWorkspace. */
enum { HOPPER = 90, WORKSPACE_HOPPER = 32 << 20, WORKSPACE = 4 << 20 };

/* A distinct product, and algorithms for it. */
typedef struct {
    Product of;
    ProductAlgo first, least; /* the fastest, and the fastest without workspace; < 0: none */
} Known;

typedef struct {
    ProfileOptions opt;
    int64_t workspace;    /* that products may have */
    const CudaDriver *cu; /* NULL: it is not here */
    CUdevice device;
    CUcontext context;
    ProductLibrary lib;
    Arena arena;
    Known *known;
    uint32_t nknown, cknown;
} Profile;

static bool open_device(Profile *p, Diag *d)
{
    const CudaDriver *cu = p->cu = cuda_driver(d);
    return cu && cuda_device_get(cu, p->opt.ordinal, &p->device, d) &&
           CUDA_CALL(cu, cuDevicePrimaryCtxRetain, &p->context, p->device) &&
           CUDA_CALL(cu, cuCtxSetCurrent, p->context) && products_open(&p->lib, cu, p->device, d);
}

void cuda_profile_close(void *profile)
{
    Profile *p = profile;
    products_close(&p->lib);
    if (p->context)
        p->cu->cuDevicePrimaryCtxRelease_v2(p->device);
    arena_free(&p->arena);
    free(p);
}

void *cuda_profile_open(const ProfileOptions *o, Diag *d)
{
    Profile *p = mem_new(1, sizeof *p);
    int64_t capability = o->device ? o->device->capability : 0;
    p->opt = *o;
    p->workspace = capability >= HOPPER ? WORKSPACE_HOPPER : WORKSPACE;
    if (!o->here || open_device(p, d))
        return p;
    cuda_profile_close(p);
    return NULL;
}

/* ---- algorithms --------------------------------------------------------------------------------- */

/* The library's first, and its first without workspace. */
static bool ask(Profile *p, Known *k, Diag *d)
{
    Routine r;
    ProductAlgo none = {.workspace = -1};
    bool ok = routine_make(&r, &p->lib, &k->of, d);
    k->first = k->least = none;
    if (ok && routine_algos(&r, &p->lib, &k->of, p->workspace, &k->first, 1) && k->first.workspace > 0)
        routine_algos(&r, &p->lib, &k->of, 0, &k->least, 1);
    else
        k->least = k->first;
    routine_free(&r, &p->lib);
    return ok;
}

static const Known *find(Profile *p, const Product *of, Diag *d)
{
    uint32_t i = 0;
    while (i < p->nknown && memcmp(&p->known[i].of, of, sizeof *of) != 0)
        i++;
    if (i < p->nknown)
        return &p->known[i];
    p->known = arena_grow(&p->arena, p->known, p->nknown, &p->cknown, sizeof *p->known);
    p->known[i].of = *of;
    if (!ask(p, &p->known[i], d))
        return NULL;
    p->nknown++;
    return &p->known[i];
}

/* ---- commands ----------------------------------------------------------------------------------- */

typedef struct {
    Launches l;
    Products products;
    ProductAlgo *first, *least; /* per product */
} Asked;

static bool ask_command(Profile *p, const Command *c, Asked *out, Arena *a, Diag *d)
{
    *out = (Asked){.l = {.arena = a}};
    command_launches(c, &out->l);
    out->products = products_of(out->l.launch, out->l.n, a);
    out->first = NEW(a, ProductAlgo, out->products.n + 1);
    out->least = NEW(a, ProductAlgo, out->products.n + 1);
    for (uint32_t i = 0; i < out->products.n; i++) {
        out->first[i] = (ProductAlgo){.workspace = p->cu ? -1 : p->workspace};
        out->least[i] = (ProductAlgo){.workspace = p->cu ? -1 : 0};
        const Known *k = p->lib.lt ? find(p, &out->products.of[i], d) : NULL;
        TRY(k || !p->lib.lt);
        if (k) {
            out->first[i] = k->first;
            out->least[i] = k->least;
        }
    }
    return true;
}

/* Bytes of a launch's products; -1: it runs as text. */
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

/* Behind the buffers of a loop: launches use it one after the other. */
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

static Candidate candidate(const Profile *p, const Command *c, const Asked *q, const ProductAlgo *algo,
                           Arena *a)
{
    const char *choice = q->products.n == 0 ? NULL
                         : p->cu            ? product_choice(&p->lib, algo, q->products.n, a)
                                            : product_unpinned;
    return (Candidate){choice, workspace_bytes(c, q, algo), -1};
}

bool cuda_choose(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    Profile *p = user;
    for (uint32_t i = 0; i < n; i++) {
        Asked q;
        Arena tmp = {0};
        bool ok = ask_command(p, &c[i], &q, &tmp, d);
        if (ok) {
            out[i] = (StepCost){.c = {candidate(p, &c[i], &q, q.first, &p->arena)}, .n = 1, .same = 1};
            Candidate less = candidate(p, &c[i], &q, q.least, &p->arena);
            if (less.scratch < out[i].c[0].scratch)
                out[i].c[out[i].n++] = less;
        }
        arena_free(&tmp);
        TRY(ok);
    }
    return true;
}
