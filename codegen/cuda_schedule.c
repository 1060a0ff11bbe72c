/* cuda_schedule.c -- a plan as one self-contained CUDA source: kernels and the step that runs them.
 *
 * Matrix products become cuBLASLt calls, described once per distinct shape in a table; concatenations
 * and updates that are not in place become copies; every other kernel is launched from its text.
 * Operands are byte offsets into the one arena of the plan.  prelude/host.h is the little runtime
 * that the calls go through. */
#include "codegen.h"
#include "ir/program.h"
#include "text.h"
#include <inttypes.h>
#include <string.h>

enum { MAX_ARGS = 64, MAX_GEMMS = 4096 }; /* as in prelude/host.h */

typedef struct {
    DType dt;
    int64_t m, n, k, lda, batch, sa, sb;
    int ta, tb;
} Gemm;

typedef struct {
    const Plan *p;
    FILE *f;
    Arena a;
    Diag *d;
    Program program;
    int *func; /* per kernel: printed function */
    Gemm *gemm;
    uint32_t ngemm, cgemm;
} Emit;

/* ---- matrix products ------------------------------------------------------------------------ */

/* Is it a product of cuBLASLt?  A product that adds, and empty ones, run as text. */
static bool has_gemm(const LibDesc *of)
{
    return of && of->op == LIB_MATMUL && of->nin == 2 && type_count(&of->out) > 0 &&
           type_count(&of->in[0]) > 0 && of->out.dt == of->in[0].dt;
}

typedef struct {
    Gemm g;
    int rank; /* batch dimensions that remain a loop on the host */
    int64_t extent[MAX_RANK], sa[MAX_RANK], sb[MAX_RANK], sy[MAX_RANK];
} GemmLoops;

static int64_t batch_stride(const Type *t, int rank, int d, int64_t inner)
{
    int own = d - (rank - t->rank);
    if (own < 0 || t->dim[own] == 1)
        return 0;
    for (int i = own + 1; i < t->rank - 2; i++)
        inner *= t->dim[i];
    return inner;
}

/* Batch dimensions from the outside in, neighbours merged where all operands allow it. */
static GemmLoops gemm_loops(const LibDesc *of)
{
    const MatmulAttrs *at = &of->matmul;
    const Type *a = &of->in[0], *b = &of->in[1], *y = &of->out;
    GemmLoops l = {.g = {.dt = y->dt, .m = y->dim[y->rank - 2], .n = y->dim[y->rank - 1],
                         .k = a->dim[a->rank - (at->ta ? 2 : 1)], .batch = 1,
                         .ta = (int)at->ta, .tb = (int)at->tb}};
    Gemm *s = &l.g;
    s->lda = s->ta ? s->m : s->k;
    s->m = of->rows ? of->rows : s->m;
    for (int d = 0; d < y->rank - 2; d++) {
        int64_t sa = batch_stride(a, y->rank, d, s->m * s->k);
        int64_t sb = batch_stride(b, y->rank, d, s->k * s->n), e = y->dim[d];
        int64_t sy = batch_stride(y, y->rank, d, s->m * s->n);
        int q = l.rank - 1;
        if (e == 1)
            continue;
        if (q >= 0 && l.sa[q] == sa * e && l.sb[q] == sb * e) {
            l.extent[q] *= e;
        } else {
            q = l.rank++;
            l.extent[q] = e;
        }
        l.sa[q] = sa;
        l.sb[q] = sb;
        l.sy[q] = sy;
    }
    if (l.rank == 0)
        return l;
    int q = --l.rank; /* the innermost is cuBLAS's batch, or more rows where b is shared */
    if (l.sb[q] == 0 && l.sa[q] == s->m * s->k && !s->ta) {
        s->m *= l.extent[q];
    } else {
        s->batch = l.extent[q];
        s->sa = l.sa[q];
        s->sb = l.sb[q];
    }
    return l;
}

static uint32_t share_gemm(Emit *e, const Gemm *s)
{
    for (uint32_t i = 0; i < e->ngemm; i++) {
        const Gemm *t = &e->gemm[i];
        if (t->dt == s->dt && t->m == s->m && t->n == s->n && t->k == s->k && t->lda == s->lda &&
            t->ta == s->ta && t->tb == s->tb && t->batch == s->batch && t->sa == s->sa && t->sb == s->sb)
            return i;
    }
    e->gemm = arena_grow(&e->a, e->gemm, e->ngemm, &e->cgemm, sizeof *e->gemm);
    e->gemm[e->ngemm] = *s;
    return e->ngemm++;
}

static void print_gemm(Emit *e, const Launch *c)
{
    GemmLoops l = gemm_loops(c->lib);
    uint32_t index = share_gemm(e, &l.g);
    int64_t size = dtype_size[l.g.dt], count = 1;
    for (int d = 0; d < l.rank; d++)
        count *= l.extent[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at[3] = {c->op[0].at, c->op[1].at, c->op[2].at}, rest = i;
        for (int d = l.rank; d-- > 0;) {
            int64_t j = rest % l.extent[d];
            rest /= l.extent[d];
            at[0] += j * l.sa[d] * size;
            at[1] += j * l.sb[d] * size;
            at[2] += j * l.sy[d] * size;
        }
        fprintf(e->f, "    ok = ok && ckc_gemm(c, %" PRIu32 ", %" PRId64 ", %" PRId64 ", %" PRId64
                ");\n", index, at[0], at[1], at[2]);
    }
}

/* ---- other launches --------------------------------------------------------------------------- */

static void print_copies(Emit *e, const Launch *c)
{
    for (int i = 0; i < c->ncopy; i++) {
        const CopyRows *r = &c->copy[i];
        if (r->bytes * r->rows == 0)
            continue;
        fprintf(e->f, "    ok = ok && ckc_copy(c, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                ", %" PRId64 ");\n", c->op[c->nop - 1].at + r->at, r->stride, c->op[r->operand].at,
                r->bytes, r->rows);
    }
}

static void print_kernel(Emit *e, const Launch *c)
{
    CudaLaunch l = kernel_cuda_launch(e->program.l.kernel[c->kernel]);
    char name[CUDA_NAME], phase[CUDA_NAME];
    fprintf(e->f, "    {\n        static const int64_t at[] = {");
    for (int i = 0; i < c->nop; i++)
        fprintf(e->f, "%" PRId64 ", ", c->op[i].base < 0 ? -1 : c->op[i].at);
    fprintf(e->f, "%" PRId64 "};\n", cuda_workspace_at(c, &l));
    snprintf(name, sizeof name, "ck_%d", e->func[c->kernel]);
    for (int i = 0; i < l.n; i++)
        fprintf(e->f, "        ok = ok && ckc_launch(c, (const void *)%s, %u, %u, %u, at, %d);\n",
                cuda_phase_name(name, i, phase), l.phase[i].grid, l.phase[i].block, l.phase[i].shared,
                c->nop + 1);
    fprintf(e->f, "    }\n");
}

static void print_launches(Emit *e, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const Launch *c = &e->program.l.launch[i];
        if (c->copy)
            print_copies(e, c);
        else
            (has_gemm(c->lib) ? print_gemm : print_kernel)(e, c);
    }
}

static void print_step(Emit *e, uint32_t s)
{
    const Command *c = &e->program.command[s];
    fprintf(e->f, "    /* %" PRIu32 ":", s);
    for (int i = 0; i < c->n; i++) {
        const Node *n = &c->g->nodes[c->nodes[i].i];
        fprintf(e->f, " %s%s", node_def(n)->name, n->remat ? " (recomputed)" : "");
    }
    fputs(" */\n", e->f);
    print_launches(e, e->program.first[s], e->program.first[s + 1]);
}

/* ---- tables -------------------------------------------------------------------------------------- */

static void print_gemm_table(Emit *e)
{
    fprintf(e->f, "\nstatic const CkcGemm ckc_gemms[] = {\n");
    for (uint32_t i = 0; i < e->ngemm; i++) {
        const Gemm *s = &e->gemm[i];
        fprintf(e->f, "    {\"%s\", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %d, %d, %" PRId64
                ", %" PRId64 ", %" PRId64 "},\n", dtype_name[s->dt], s->m, s->n, s->k, s->lda,
                s->ta, s->tb, s->batch, s->sa, s->sb);
    }
    fprintf(e->f, "    {0}};\n");
}

/* As C has it, whose hexadecimal escapes have no end. */
static void print_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++)
        if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
            fprintf(f, "\\%03o", (unsigned)*s);
        else
            fputc(*s, f);
    fputc('"', f);
}

/* What a caller fills or reads: everything in the arena that is not computed inside a step. */
static void print_values(Emit *e)
{
    const Graph *g = e->p->g;
    bool *shown = NEW(&e->a, bool, g->nvals + 1);
    for (uint32_t i = 1; i < g->nvals; i++)
        shown[i] = g->vals[i].kind != VAL_TEMP;
    for (uint32_t i = 0; i < g->nout; i++)
        shown[g->out[i].i] = true;
    fprintf(e->f, "\nCKC_API const CkcValue ckc_value[] = {\n");
    for (uint32_t i = 1; i < g->nvals; i++) {
        const Value *v = &g->vals[i];
        int64_t at = e->p->offset[graph_root(g, (Val){i}).i];
        if (!shown[i] || at < 0)
            continue;
        fputs("    {", e->f);
        print_string(e->f, v->name);
        fprintf(e->f, ", \"%s\", \"%s\", %d, {",
                v->kind == VAL_TEMP ? "output" : val_kind_name[v->kind], dtype_name[v->type.dt],
                v->type.rank);
        for (int d = 0; d < v->type.rank || d == 0; d++)
            fprintf(e->f, "%s%" PRId64, d ? ", " : "", v->type.dim[d]);
        fprintf(e->f, "}, %" PRId64 "},\n", at);
    }
    fprintf(e->f, "    {0}};\nCKC_API const int64_t ckc_arena_bytes = %" PRId64 ";\n",
            e->p->arena_bytes);
}

/* ---- the file --------------------------------------------------------------------------------------- */

static bool check_launch(const Emit *e, const Launch *c)
{
    CudaLaunch l = kernel_cuda_launch(e->program.l.kernel[c->kernel]);
    if (c->nop + 1 > MAX_ARGS)
        return fail_status(e->d, EXIT_UNSUPPORTED, "CUDA: a kernel with %d operands", c->nop);
    return cuda_workspace_fits(c, &l) ||
           fail_status(e->d, EXIT_UNSUPPORTED, "CUDA: the plan has no workspace for its kernels: "
                                               "--device NAME plans for a GPU");
}

/* The kernels that some launch needs as text. */
static bool print_texts(Emit *e)
{
    const Launches *l = &e->program.l;
    const Kernel **text = NEW(&e->a, const Kernel *, l->nkernel + 1);
    int *func = NEW(&e->a, int, l->nkernel + 1), n = 0;
    uint32_t *which = NEW(&e->a, uint32_t, l->nkernel + 1);
    bool *needed = NEW(&e->a, bool, l->nkernel + 1);
    for (uint32_t i = 0; i < l->n; i++)
        if (!l->launch[i].copy && !has_gemm(l->launch[i].lib)) {
            needed[l->launch[i].kernel] = true;
            TRY(check_launch(e, &l->launch[i]));
        }
    for (uint32_t i = 0; i < l->nkernel; i++)
        if (needed[i]) {
            which[n] = i;
            text[n++] = l->kernel[i];
        }
    codegen_cuda(e->f, text, n, func);
    e->func = NEW(&e->a, int, l->nkernel + 1);
    for (int i = 0; i < n; i++)
        e->func[which[i]] = func[i];
    return true;
}

static void print_functions(Emit *e)
{
    fprintf(e->f, "\n#ifndef __CUDACC_RTC__\nstatic bool ckc_steps(Ckc *c)\n{\n    bool ok = true;\n");
    for (uint32_t s = 0; s < e->p->nstep; s++)
        print_step(e, s);
    print_launches(e, e->program.updates[0], e->program.updates[2]);
    fprintf(e->f, "    return ok;\n}\n");
    print_gemm_table(e);
    print_values(e);
    fprintf(e->f,
            "\nCKC_API bool ckc_open(Ckc *c, void *arena, void *workspace, size_t bytes, "
            "cudaStream_t stream)\n{\n"
            "    memset(c, 0, sizeof *c);\n"
            "    c->arena = (char *)arena;\n"
            "    c->workspace = (char *)workspace;\n"
            "    c->workspace_bytes = bytes;\n"
            "    c->stream = stream;\n"
            "    return ckc_open_gemms(c, ckc_gemms, %" PRIu32 ");\n}\n"
            "\nCKC_API bool ckc_step(Ckc *c) { return ckc_steps(c); }\n"
            "CKC_API void ckc_close(Ckc *c) { ckc_close_gemms(c); }\n#endif\n", e->ngemm);
}

bool codegen_cuda_schedule(FILE *f, const Plan *p, Diag *d)
{
    Emit e = {.p = p, .f = f, .d = d};
    if (p->host_bytes)
        return fail_status(d, EXIT_UNSUPPORTED, "CUDA: copies to the host's memory are not printed");
    if (p->nmicro < p->nstep)
        return fail_status(d, EXIT_UNSUPPORTED, "CUDA: steps in micro-batches are not printed");
    bool ok = program_make(&e.program, p, &e.a, d) && print_texts(&e);
    if (ok) {
        text_prelude(f, prelude_host);
        print_functions(&e);
        ok = e.ngemm <= MAX_GEMMS || fail_status(d, EXIT_UNSUPPORTED,
                                                 "CUDA: more than %d shapes of matrix products",
                                                 MAX_GEMMS);
    }
    arena_free(&e.a);
    return ok;
}
