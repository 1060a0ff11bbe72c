/* cuda_schedule.c -- a plan as one self-contained CUDA source: kernels and the step that runs them.
 *
 * Matrix products become cuBLASLt calls, described once per distinct shape in a table; concatenations
 * and updates that are not in place become copies; every other kernel is launched from its text.
 * Operands are byte offsets into the one arena of the plan.  The calls go through the small runtime of
 * prelude/host.h. */
#include "codegen.h"
#include "ir/gemm.h"
#include "ir/program.h"
#include "text.h"
#include <inttypes.h>
#include <string.h>

enum { MAX_ARGS = 64, MAX_GEMMS = 4096 }; /* these and CUDA_TABLE are as in prelude/host.h */

typedef struct {
    const Plan *p;
    FILE *f;
    Arena a;
    Diag *d;
    Program program;
    CudaBatch *batch; /* per launch */
    int *func;        /* per launch: the number of its printed function, ck_<number> */
    Gemm *gemm;
    uint32_t ngemm, cgemm;
} Emit;

/* ---- matrix products ------------------------------------------------------------------------ */

static uint32_t share_gemm(Emit *e, const Gemm *g)
{
    uint32_t i = 0;
    while (i < e->ngemm && memcmp(&e->gemm[i], g, sizeof *g) != 0)
        i++;
    if (i < e->ngemm)
        return i;
    e->gemm = arena_grow(&e->a, e->gemm, e->ngemm, &e->cgemm, sizeof *e->gemm);
    e->gemm[e->ngemm] = *g;
    return e->ngemm++;
}

static void print_gemms(Emit *e, const Launch *c, const Gemms *s)
{
    for (int64_t i = 0; i < gemm_calls(s); i++) {
        int64_t at[GEMM_OPERANDS];
        Gemm g = gemm_call(s, i, at);
        fprintf(e->f, "    ok = ok && ckc_gemm(c, %" PRIu32, share_gemm(e, &g));
        for (int o = 0; o < GEMM_OPERANDS; o++)
            fprintf(e->f, ", %" PRId64, gemm_has(&g, (GemmOperand)o) ? c->op[s->operand[o]].at + at[o] : -1);
        fprintf(e->f, ");\n");
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

static void print_offsets(Emit *e, const Launch *c)
{
    for (int i = 0; i < c->nop; i++)
        fprintf(e->f, "%" PRId64 ", ", c->op[i].base < 0 ? -1 : c->op[i].at);
}

/* Prints the keys of a kernel; returns their number. */
static int print_keys(Emit *e, const Kernel *k)
{
    int64_t key[CUDA_KEYS];
    int n = kernel_cuda_keys(k, key);
    for (int i = 0; i < n; i++)
        fprintf(e->f, "%" PRId64 ", ", key[i]);
    return n;
}

static double megabytes(const Launch *l)
{
    int64_t sum = 0;
    for (int i = 0; i < l->nop; i++)
        sum += l->op[i].base < 0 ? 0 : l->op[i].bytes;
    return 1e-6 * (double)sum;
}

static void print_batch(Emit *e, uint32_t launch)
{
    const Launch *call = &e->program.l.launch[launch];
    const Kernel *k = e->batch[launch].kernel;
    CudaPhase l = kernel_cuda_launch(k).phase[0];
    double mb = 0;
    int nkey = 0;
    for (int c = 0; c < k->calls; c++)
        mb += megabytes(&call[c]);
    fprintf(e->f, "    { /* %d calls, %.6g MB */\n        static const int64_t at[] = {", k->calls, mb);
    for (int c = 0; c < k->calls; c++)
        print_offsets(e, &call[c]);
    fprintf(e->f, "0}, key[] = {");
    for (int c = 0; c < k->calls; c++)
        nkey = print_keys(e, e->program.l.kernel[call[c].kernel]);
    fprintf(e->f,
            "0};\n        ok = ok && ckc_launch_table(c, (const void *)ck_%d, %u, %u, at, %d, key, %d, %d);\n"
            "    }\n",
            e->func[launch], l.grid, l.block, k->noperands, nkey, k->calls);
}

static void print_kernel(Emit *e, uint32_t launch)
{
    const Launch *c = &e->program.l.launch[launch];
    const Kernel *k = e->program.l.kernel[c->kernel];
    CudaLaunch l = kernel_cuda_launch(k);
    char name[CUDA_NAME], phase[CUDA_NAME];
    fprintf(e->f, "    { /* %.6g MFLOP, %.6g MB%s */\n        static const int64_t at[] = {", k->flops * 1e-6,
            megabytes(c), kernel_cuda_is_scalar(k) ? ", scalar" : "");
    print_offsets(e, c);
    fprintf(e->f, "%" PRId64 "}, key[] = {", cuda_workspace_at(c, &l));
    int nkey = print_keys(e, k);
    fprintf(e->f, "0};\n");
    snprintf(name, sizeof name, "ck_%d", e->func[launch]);
    for (int i = 0; i < l.n; i++)
        fprintf(e->f, "        ok = ok && ckc_launch(c, (const void *)%s, %u, %u, %u, at, %d, key, %d);\n",
                cuda_phase_name(name, i, phase), l.phase[i].grid, l.phase[i].block, l.phase[i].shared,
                c->nop + (l.workspace > 0), nkey);
    fprintf(e->f, "    }\n");
}

static void print_launches(Emit *e, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const Launch *c = &e->program.l.launch[i];
        Gemms s;
        if (c->copy)
            print_copies(e, c);
        else if (gemm_describe(&s, c->lib))
            print_gemms(e, c, &s);
        else if (e->batch[i].calls > 1)
            print_batch(e, i);
        else if (e->batch[i].calls == 1)
            print_kernel(e, i);
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
        fprintf(e->f, "    {\"%s\", \"%s\", %d, %d, %d, %d, %d, %d", dtype_name[s->in], dtype_name[s->out],
                s->tf32, s->adds, s->bias, s->gelu, s->ta, s->tb);
        const int64_t size[] = {s->m, s->n, s->k, s->lda, s->ldb, s->ldy, s->batch, s->sa, s->sb, s->sy};
        for (size_t k = 0; k < sizeof size / sizeof *size; k++)
            fprintf(e->f, ", %" PRId64, size[k]);
        fprintf(e->f, "},\n");
    }
    fprintf(e->f, "    {0}};\n");
}

/* The first output, if it is one number, is the loss. */
static void print_loss(Emit *e)
{
    const Graph *g = e->p->g;
    const Type *t = g->nout ? val_type(g, g->out[0]) : NULL;
    bool f64 = t && t->dt == DT_F64, is = t && type_count(t) == 1 && (f64 || t->dt == DT_F32);
    fprintf(e->f,
            "static const int64_t ckc_loss = %" PRId64 "; /* -1: there is none */\n"
            "static const bool ckc_loss_f64 = %d;\n",
            is ? e->p->offset[graph_root(g, g->out[0]).i] : -1, f64);
}

/* Prints the table of values that a caller fills or reads: all in the arena but a step's own temporaries. */
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
        text_string(e->f, v->name);
        fprintf(e->f, ", \"%s\", \"%s\", %d, {",
                v->kind == VAL_TEMP ? "output" : val_kind_name[v->kind], dtype_name[v->type.dt],
                v->type.rank);
        for (int d = 0; d < v->type.rank || d == 0; d++)
            fprintf(e->f, "%s%" PRId64, d ? ", " : "", v->type.dim[d]);
        fprintf(e->f, "}, %" PRId64 "},\n", at);
    }
    fprintf(e->f, "    {0}};\nCKC_API const int64_t ckc_arena_bytes = %" PRId64 ";\n",
            e->p->arena_bytes);
    print_loss(e);
}

/* ---- the file --------------------------------------------------------------------------------------- */

static bool check_launch(const Emit *e, const Launch *c)
{
    CudaLaunch l = kernel_cuda_launch(e->program.l.kernel[c->kernel]);
    if (c->nop + 1 + kernel_cuda_keys(e->program.l.kernel[c->kernel], NULL) > MAX_ARGS)
        return fail_status(e->d, EXIT_UNSUPPORTED, "CUDA: a kernel with %d operands", c->nop);
    return cuda_workspace_fits(c, &l) ||
           fail_status(e->d, EXIT_UNSUPPORTED, "CUDA: the plan has no workspace for its kernels: "
                                               "--device NAME plans for a GPU");
}

/* Prints the prelude and the distinct kernels of all launches that are neither copies nor matrix products. */
static bool print_texts(Emit *e)
{
    const Launches *l = &e->program.l;
    const Kernel **text = NEW(&e->a, const Kernel *, l->n + 1);
    uint32_t *which = NEW(&e->a, uint32_t, l->n + 1);
    int *func = NEW(&e->a, int, l->n + 1), n = 0;
    Gemms s;
    e->batch = cuda_batches(&e->program, e->p->nmicro, e->p->nstep, &e->a);
    for (uint32_t i = 0; i < l->n; i++)
        if (!l->launch[i].copy && !gemm_describe(&s, l->launch[i].lib) && e->batch[i].calls) {
            TRY(check_launch(e, &l->launch[i]));
            which[n] = i;
            text[n++] = e->batch[i].kernel;
        }
    codegen_cuda(e->f, text, n, func);
    e->func = NEW(&e->a, int, l->n + 1);
    for (int i = 0; i < n; i++)
        e->func[which[i]] = func[i];
    return true;
}

/* Prints a function that runs steps [from, to) and then the updates that are not in place. */
static void print_part(Emit *e, const char *name, uint32_t from, uint32_t to, const uint32_t *update)
{
    fprintf(e->f, "\nCKC_API bool %s(Ckc *c)\n{\n    bool ok = true;\n    (void)c;\n", name);
    for (uint32_t s = from; s < to; s++)
        print_step(e, s);
    print_launches(e, update[0], update[1]);
    fprintf(e->f, "    return ok;\n}\n");
}

static void print_functions(Emit *e)
{
    const Plan *p = e->p;
    fprintf(e->f, "\n#ifndef __CUDACC_RTC__\n");
    print_part(e, "ckc_micro", 0, p->nmicro, e->program.updates);
    print_part(e, "ckc_rest", p->nmicro, p->nstep, e->program.updates + 1);
    fprintf(e->f, "static const int64_t ckc_accumulate = %" PRId64 "; /* micro-batches of a step */\n",
            p->accumulate > 1 ? p->accumulate : 1);
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
            "CKC_API void ckc_close(Ckc *c) { ckc_close_gemms(c); }\n",
            e->ngemm);
    text_prelude(e->f, prelude_main);
}

bool codegen_cuda_schedule(FILE *f, const Plan *p, Diag *d)
{
    Emit e = {.p = p, .f = f, .d = d};
    if (p->host_bytes)
        return fail_status(d, EXIT_UNSUPPORTED, "CUDA: copies to the host's memory are not printed");
    bool ok = program_make(&e.program, p, &e.a, d);
    if (ok)
        cuda_choose_texts(&e.program.l, e.program.first, p, true, INT64_MAX);
    ok = ok && print_texts(&e);
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
