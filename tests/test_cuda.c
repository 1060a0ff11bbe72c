/* test_cuda.c -- generated CUDA C without a GPU: compiled by NVRTC for sm_80 and sm_90 where it is installed;
 * run by the fiber shim with the interpreter's results; and without some barrier, which is noticed. */
#include "tests.h"
#include "command.h"
#include "codegen/codegen.h"
#include "conv_samples.h"
#include "cuda_samples.h"
#include "ir/attention_kernel.h"
#include "op_samples_int.h"
#include "nvrtc.h"
#include "random_kernel.h"
#include "shim/fiber.h"
#include "shim/shadow.h"
#include "shim_object.h"
#include "step.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANDOM = 36, TRIALS = 2, MOST = RANDOM + OP_COUNT * TRIALS + 160 };

/* A kernel with operands for the interpreter (want) and for the generated text (got). */
typedef struct {
    char label[48];
    Kernel k;
    Tensor *want, *got;
    double tol; /* relative tolerance of f32 and f64; 16-bit results have their own */
} Case;

typedef struct {
    Arena a;
    Case c[MOST];
    const Kernel *k[MOST];
    int n, func[MOST];
    char *source;
} Batch;

static Case *batch_add(Batch *b, const char *label, int i, const Kernel *k)
{
    ck_assert_int_lt(b->n, MOST);
    Case *c = &b->c[b->n];
    b->k[b->n++] = &c->k;
    snprintf(c->label, sizeof c->label, "%s %d", label, i);
    c->k = *k;
    return c;
}

/* Copies of the tensors at addresses where operands may begin: 256-byte aligned, or one element past that if
 * the kernel is for unaligned operands. */
static Tensor *placed(Batch *b, const Case *c, const Tensor *of)
{
    enum { ALIGN = 256 };
    Tensor *t = NEW(&b->a, Tensor, c->k.noperands + 1);
    for (int i = 0; i < c->k.noperands; i++) {
        size_t size = (size_t)type_bytes(&of[i].type);
        int64_t shift = c->k.unaligned ? dtype_size[of[i].type.dt] : 0;
        char *p = NEW(&b->a, char, (int64_t)size + 2 * ALIGN);
        p += (ALIGN - (uintptr_t)p % ALIGN) % ALIGN + (uintptr_t)shift;
        t[i] = (Tensor){of[i].type, memcpy(p, of[i].data, size)};
    }
    return t;
}

static Case *add_kernel(Batch *b, const char *label, int i, const RandomKernel *r)
{
    Case *c = batch_add(b, label, i, &r->k);
    c->want = random_kernel_data(r, &b->a);
    c->got = placed(b, c, c->want);
    c->tol = random_kernel_tolerance(r);
    return c;
}

static void add_random(Batch *b, uint64_t seed, int i)
{
    RandomKernel r;
    random_kernel(&r, &b->a, seed * 1000 + (uint64_t)i, i % 3 == 2);
    r.k.unaligned = i % 9 == 7;
    add_kernel(b, "random", i, &r);
}

/* Adds a residual_kernel(): its sum is stored in the first pass and read back; both results are in place. */
static void add_residual(Batch *b, DType dt, const int64_t shape[3])
{
    RandomKernel r;
    residual_kernel(&r, &b->a, dt, shape);
    ck_assert_int_eq(random_kernel_early(&r), 1);
    Case *c = add_kernel(b, "residual", (int)shape[0], &r);
    for (int i = 0; i < 2; i++) {
        int on = i ? 0 : 3, result = r.nread + i;
        ck_assert(kernel_inplace(&r.k, on, result));
        c->want[result] = c->want[on];
        c->got[result] = c->got[on];
    }
    ck_assert(!kernel_inplace(&r.k, 3, r.nread + 1));
}

/* Shapes whose columns are summed by the same blocks or by the next launch, and with rows that do or do not
 * fit in registers. */
static void add_residuals(Batch *b)
{
    static const DType dt[] = {DT_F32, DT_BF16, DT_F16};
    static const int64_t shape[][3] = {{300, 64, 1}, {70, 13, 1}, {4100, 256, 1}, {9000, 40, 1},
                                       {3, 4, 60}, {5, 3, 20000}};
    for (int i = 0; i < 3 * (int)(sizeof shape / sizeof *shape); i++)
        add_residual(b, dt[i % 3], shape[i / 3]);
}

/* A copy in the arena, so that the sample it comes from can be freed. */
static void *copy_of(Arena *a, const void *p, size_t size)
{
    return memcpy(arena_alloc(a, size + 1, 1), p, size);
}

/* Adds the node of a sample as a kernel, with copies of its data. */
static void add_sample(Batch *b, const Sample *s, int trial)
{
    Kernel k;
    const Node *n = graph_def(&s->g, s->out[0]);
    ck_assert_msg(!s->diag.failed, "%s: %s", op_table[s->op]->name, s->diag.msg);
    if (!n)
        return; /* the node was folded to a constant */
    k_init(&k, &b->a, &s->g, n);
    ck_assert(op_table[s->op]->lower(&k, &s->g, n));
    Case *c = batch_add(b, op_table[s->op]->name, trial, &k);
    c->tol = 2e-5;
    c->want = NEW(&b->a, Tensor, k.noperands);
    for (int i = 0; i < k.noperands; i++) {
        Val v = i < n->nin ? n->in[i] : n->out[i - n->nin];
        Type t = *val_type(&s->g, v);
        const void *data = NULL;
        for (int j = 0; j < s->nin; j++)
            data = s->in[j].i == v.i && v.i ? s->data[j].data : data;
        size_t size = (size_t)type_bytes(&t);
        c->want[i] = (Tensor){t, data ? copy_of(&b->a, data, size) : NEW(&b->a, char, size + 1)};
    }
    c->got = placed(b, c, c->want);
}

static void add_operator(Batch *b, Op op, int trial)
{
    Sample s;
    if (op == OP_concat || op == OP_offload || op == OP_fetch ||
        !sample_make(&s, op, trial ? DT_BF16 : DT_F32, trial))
        return; /* concat is planned as copies */
    add_sample(b, &s, trial);
    sample_free(&s);
}

static void add_attention(Batch *b, Op op, DType dt, int trial, int size, int v_size)
{
    Sample s;
    sample_make_attention(&s, op, dt, trial, size, v_size);
    add_sample(b, &s, trial);
    sample_free(&s);
}

/* Adds the first n samples of attention and of its gradient with products of warpgroups; returns the number
 * of their functions, two of each gradient. */
static int add_wgmmas(Batch *b, int n)
{
    static const Op of[] = {OP_attention, OP_attention_grad};
    int functions = 0;
    for (int i = 0; i < 2 * n; i++) {
        Sample s;
        if (!warpgroup_sample(&s, of[i % 2], i / 2))
            continue;
        add_sample(b, &s, i / 2);
        sample_free(&s);
        Kernel *made = &b->c[b->n - 1].k;
        ck_assert(kernel_cuda_has_wgmma(made));
        made->wgmma = true;
        functions += 1 + i % 2;
    }
    return functions;
}

/* Adds the first n of cuda_samples.h's samples of an operator; OP_NONE: of any operator. */
static void add_samples(Batch *b, Op op, int n)
{
    for (int i = 0; i < cuda_samples() && n > 0; i++) {
        Sample s;
        cuda_sample(&s, i);
        if (op == OP_NONE || s.op == op) {
            add_sample(b, &s, i);
            n--;
        }
        sample_free(&s);
    }
}

static const Op conv_op[] = {OP_conv, OP_conv_bwd_data, OP_conv_bwd_weights};
static void add_convolutions(Batch *b, DType dt, int which)
{
    for (int i = 0; i < 3; i++) {
        Sample s;
        conv_sample(&s, conv_op[i], dt, which);
        add_sample(b, &s, which);
        sample_free(&s);
    }
}

/* Adds every step-th convolution with warpgroup products, from sample `first` on; returns their number. */
static int add_wgmma_convolutions(Batch *b, int first, int step)
{
    int n = 0, before = b->n;
    for (int i = 3 * first; i < 3 * conv_samples(); i++) {
        Sample s;
        conv_sample(&s, conv_op[i % 3], n / step % 2 ? DT_F16 : DT_BF16, i / 3);
        add_sample(b, &s, i / 3);
        sample_free(&s);
        Kernel *made = &b->c[b->n - 1].k;
        made->wgmma = kernel_cuda_has_wgmma(made);
        b->n -= !made->wgmma || n++ % step != 0;
    }
    return b->n - before;
}

static void batch_print(Batch *b)
{
    size_t size = 0;
    FILE *f = open_memstream(&b->source, &size);
    ck_assert_int_gt(codegen_cuda(f, b->k, b->n, b->func), 0);
    fclose(f);
}

static void batch_make(Batch *b, uint64_t seed)
{
    for (int i = 0; i < RANDOM; i++)
        add_random(b, seed, i);
    add_residuals(b);
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS; trial++)
            add_operator(b, (Op)op, trial);
    add_samples(b, OP_NONE, cuda_samples());
    ck_assert_int_gt(b->n, RANDOM + OP_COUNT);
    batch_print(b);
}

static void batch_free(Batch *b)
{
    free(b->source);
    arena_free(&b->a);
}

/* ---- NVRTC --------------------------------------------------------------------------------- */

START_TEST(text_compiles_with_nvrtc)
{
    static Batch b;
    batch_make(&b, 71);
    const char *option = getenv("CKC_LONG") ? NVRTC_VERBOSE : NVRTC_FAST;
    free(nvrtc_report(b.source, "sm_80", option));
    if (getenv("CKC_LONG")) /* for sm_90, test_cuda_step.c compiles a step in any case */
        free(nvrtc_report(b.source, "sm_90", option));
    batch_free(&b);
}
END_TEST

/* NVRTC compiles kernels with warpgroup products without spilling registers or serializing products. */
START_TEST(warpgroups_compile_with_nvrtc)
{
    static Batch b;
    int most = add_wgmmas(&b, WARPGROUP_SAMPLES) + 2 * add_wgmma_convolutions(&b, 0, 1);
    batch_print(&b);
    char *log = nvrtc_report(b.source, "sm_90a", NVRTC_VERBOSE);
    batch_free(&b);
    if (!log)
        return;
    int functions = 0, clean = 0;
    for (const char *at = log; (at = strstr(at, "bytes stack frame")); at++)
        functions++;
    for (const char *at = log;
         (at = strstr(at, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")); at++)
        clean++;
    ck_assert_int_ge(functions, most);
    ck_assert_msg(clean == functions, "%.2000s", log);
    ck_assert_msg(!strstr(log, "serialized"), "%.2000s", log);
    free(log);
}
END_TEST

/* ---- fiber shim ------------------------------------------------------------------------------ */

/* Writes CALL_<i>_<phase>, which calls a kernel with arguments from an array: operands, workspace, keys. */
static void write_call(FILE *f, const Kernel *k, int func, int phase, bool workspace)
{
    char name[32], buf[CUDA_NAME];
    snprintf(name, sizeof name, "ck_%d", func);
    fprintf(f, "HOOK void CALL_%d_%d(void *const *op)\n{\n    %s(", func, phase,
            cuda_phase_name(name, phase, buf));
    for (int o = 0; o < k->noperands + workspace; o++)
        fprintf(f, "%sop[%d]", o ? ", " : "", o);
    for (int i = 0; i < kernel_cuda_keys(k, NULL); i++)
        fprintf(f, ", (int64_t)op[%d]", k->noperands + 1 + i);
    fputs(");\n}\n", f);
}

static void write_shim_source(const Batch *b, const char *path)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(b->source, f);
    fputs("ShimState *shim;\n#include \"shadow_hooks.h\"\n", f);
    bool *seen = calloc(MOST, sizeof *seen);
    for (int i = 0; i < b->n; i++) {
        if (seen[b->func[i]])
            continue;
        seen[b->func[i]] = true;
        CudaLaunch l = kernel_cuda_launch(b->k[i]);
        for (int p = 0; p < l.n; p++)
            write_call(f, b->k[i], b->func[i], p, l.workspace > 0);
    }
    free(seen);
    fclose(f);
}

/* Runs a kernel's phases until one fails; false if one did.  op: operands, workspace and keys. */
static bool run_phases(const Case *c, void *dl, ShimState *state, int func, void **op, uint64_t seed)
{
    void (*call)(void *const *);
    char name[32];
    CudaLaunch l = kernel_cuda_launch(&c->k);
    bool ok = true;
    for (int p = 0; p < l.n && ok; p++) {
        snprintf(name, sizeof name, "CALL_%d_%d", func, p);
        *(void **)&call = dlsym(dl, name);
        ck_assert_ptr_nonnull(call);
        ok = fiber_launch(state, call, op, l.phase[p].grid, l.phase[p].block, l.phase[p].shared, seed);
    }
    return ok;
}

static bool run_text(const Case *c, void *dl, ShimState *state, int func, uint64_t seed)
{
    int64_t key[CUDA_KEYS];
    int nkey = kernel_cuda_keys(&c->k, key);
    void **op = calloc((size_t)(c->k.noperands + 1 + nkey), sizeof *op);
    memcpy(op + c->k.noperands + 1, key, (size_t)nkey * sizeof *key);
    size_t room = (size_t)align_up(kernel_cuda_launch(&c->k).workspace + 1, CUDA_WORKSPACE_ALIGN);
    void *workspace = memset(aligned_alloc(CUDA_WORKSPACE_ALIGN, room), 0xFF, room);
    op[c->k.noperands] = workspace;
    shadow_add(workspace, room, SHADOW_GLOBAL);
    for (int o = 0; o < c->k.noperands; o++) {
        op[o] = c->got[o].data;
        shadow_add(op[o], (size_t)type_bytes(&c->got[o].type), SHADOW_GLOBAL);
    }
    bool ok = run_phases(c, dl, state, func, op, seed);
    for (int o = 0; o <= c->k.noperands; o++)
        shadow_remove(op[o]);
    free(workspace);
    free(op);
    return ok;
}

static double largest(const Tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < type_count(&t->type); i++)
        most = fmax(most, fabs(tensor_f(t, i)));
    return most;
}

/* The tolerance for an operand.  Gradients of attention in 16 bits are sums of products of weights and slopes
 * that are rounded to 16 bits: their error follows from numbers up to 1, even if the sums cancel to less. */
static double tolerance(const Case *c, int operand)
{
    const Kernel *k = &c->k;
    bool half = k->native == NATIVE_ATTENTION && k->operand[0] != DT_F32 && k->p[P_PHASE] == PHASE_BACKWARD;
    double rounds = dtype_is_half(k->operand[operand]) ? 0x1p-8 : 0; /* both results are rounded to 16 bits */
    return half && operand > 9 ? fmax(0x1p-11, (0x1p-7 + rounds) * largest(&c->want[operand])) : c->tol;
}

static void run_case(Case *c, void *dl, ShimState *state, int func, uint64_t seed)
{
    char msg[256];
    launch_run_ref(&(Launch){0}, &c->k, c->want);
    ck_assert_msg(run_text(c, dl, state, func, seed), "%s: %s", c->label, state->error);
    for (int o = 0; o < c->k.noperands; o++)
        ck_assert_msg(tensor_close(&c->want[o], &c->got[o], tolerance(c, o), msg), "%s operand %d: %s",
                      c->label, o, msg);
}

static void batch_run(Batch *b)
{
    ShimState state = {0};
    write_shim_source(b, "k.c");
    void *dl = shim_load(&state, true);
    for (int i = 0; i < b->n; i++)
        run_case(&b->c[i], dl, &state, b->func[i], (uint64_t)i + 1);
    shim_unload(dl);
    batch_free(b);
}

START_TEST(shim_runs_match_reference)
{
    static Batch b;
    batch_make(&b, (uint64_t)_i + 31);
    batch_run(&b);
}
END_TEST

/* Prints all cases of the batch and runs each once, with compute capability 9.0. */
static void run_cases(Batch *b)
{
    static ShimState state = {.capability = 90};
    batch_print(b);
    write_shim_source(b, "k.c");
    void *dl = shim_load(&state, true);
    for (int i = 0; i < b->n; i++)
        run_case(&b->c[i], dl, &state, b->func[i], (uint64_t)i + 1);
    shim_unload(dl);
    batch_free(b);
}

/* Attention and its gradients in heads of all sizes, also of values smaller or larger than keys, with random
 * limits, masks, biases, sinks and dropout. */
START_TEST(attention_matches_reference)
{
    static const Op of[] = {OP_attention, OP_attention_grad, OP_attention_bias_grad,
                            OP_attention_packed_grad};
    static const int size[][2] = {{24, 24},   {32, 32},   {64, 64},   {90, 90}, {96, 96},  {128, 128},
                                  {160, 160}, {192, 192}, {256, 256}, {8, 1},   {24, 80},  {192, 128},
                                  {33, 256},  {256, 40},  {64, 3},    {16, 64}, {32, 160}, {8, 256}};
    enum { SIZES = sizeof size / sizeof *size, LONG_ONLY = 4 };
    static const DType dt[] = {DT_BF16, DT_F32, DT_F16};
    static Batch b;
    for (int i = 0; i < SIZES - (getenv("CKC_LONG") ? 0 : LONG_ONLY); i++)
        for (int j = 0; j < (size[i][0] == size[i][1] ? 4 : 3); j++)
            add_attention(&b, of[j], dt[(i + j) % 3], i, size[i][0], size[i][1]);
    run_cases(&b);
}
END_TEST

START_TEST(warpgroups_match_reference)
{
    static Batch b;
    add_wgmmas(&b, WARPGROUP_SAMPLES);
    int step = getenv("CKC_LONG") ? 1 : 2;
    ck_assert_int_ge(add_wgmma_convolutions(&b, 0, step), 14 / step);
    run_cases(&b);
}
END_TEST

START_TEST(convolutions_match_reference)
{
    static Batch b;
    bool all = getenv("CKC_LONG") != NULL;
    for (int i = 0; i < conv_samples(); i++) {
        if (all || i % 2 == 0)
            add_convolutions(&b, DT_F32, i);
        if (all || i % 2 == 1)
            add_convolutions(&b, i % 4 == 1 ? DT_F16 : DT_BF16, i);
    }
    batch_print(&b);
    batch_run(&b);
}
END_TEST

/* ---- missing barriers --------------------------------------------------------------------------- */

enum { MOST_SITES = 1000 };

/* A barrier, fence, commit or wait in a text. */
typedef struct {
    int func; /* number of the kernel it belongs to; -1: the prelude */
} Site;

static const char *next_barrier(const char *at)
{
    static const char *const call[] = {"__syncthreads()", "copy_wait(",     "copy_commit()", "fence_async()",
                                       "wgmma_fence()",   "wgmma_commit()", "wgmma_wait("};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        const char *found = strstr(at, call[i]);
        if (found && (!first || found < first))
            first = found;
    }
    return first;
}

static int kernel_before(const char *source, const char *at)
{
    int func = -1, f;
    for (const char *k = strstr(source, "/* kernel ck_"); k && k < at; k = strstr(k + 1, "/* kernel ck_"))
        func = sscanf(k, "/* kernel ck_%d", &f) == 1 ? f : func;
    return func;
}

/* Inserts `if (shim->present(i))` in front of barrier i of the text, for every i; returns their number. */
static int number_barriers(char **source, Site *site)
{
    char *out = NULL;
    size_t size = 0;
    int n = 0;
    FILE *f = open_memstream(&out, &size);
    const char *from = *source;
    for (const char *at = next_barrier(from); at; at = next_barrier(at + 1)) {
        if (strncmp(at - 8, "#define ", 8) == 0)
            continue;
        ck_assert_int_lt(n, MOST_SITES);
        fprintf(f, "%.*sif (shim->present(%d)) ", (int)(at - from), from, n);
        site[n++] = (Site){kernel_before(*source, at)};
        from = at;
    }
    fputs(from, f);
    fclose(f);
    free(*source);
    *source = out;
    return n;
}

static int missing = -1;
static bool reached[MOST_SITES];

static bool is_present(int barrier)
{
    reached[barrier] = true;
    return barrier != missing;
}

/* Whether the shadow memory reports an error in some kernel that has barrier i, if that is left out. */
static bool caught(const Batch *b, void *dl, ShimState *state, const Site *site, int i)
{
    bool ok = true;
    missing = i;
    for (int c = 0; c < b->n && ok; c++)
        if (site[i].func < 0 || site[i].func == b->func[c])
            ok = run_text(&b->c[c], dl, state, b->func[c], (uint64_t)c + 1);
    missing = -1;
    return !ok;
}

/* Adds a kernel that subtracts the mean from rows (red 2) or columns (red 1) and divides by their deviation;
 * sums: it also sums the result's columns. */
static void add_norm(Batch *b, int64_t rows, int64_t columns, uint32_t red, bool sums)
{
    Kernel k = {.arena = &b->a, .noperands = sums ? 3 : 2, .operand = NEW(&b->a, DType, 3)};
    Type t = type_make(DT_F32, 2, (int64_t[]){rows, columns});
    k.operand[0] = k.operand[1] = k.operand[2] = DT_F32;
    k_space(&k, &t, red);
    int x = k_load(&k, 0, &t), n = k_const(&k, KT_REAL, (double)(red & 1 ? rows : columns));
    int less = k_op(&k, OP_sub, x, k_op(&k, OP_div, k_reduce(&k, K_SUM, x), n, 0), 0);
    int square = red & 1 ? x : k_op(&k, OP_mul, less, less, 0);
    square = k_reduce(&k, red & 1 ? K_DEVIATION : K_SUM, square);
    int y = k_op(&k, OP_div, less, k_op(&k, OP_sqrt, k_op(&k, OP_div, square, n, 0), 0, 0), 0);
    k_store(&k, 1, y);
    if (sums)
        k_store_keep(&k, 2, k_reduce(&k, K_COLUMN_SUM, y), 1);
    Case *c = batch_add(b, "norm", (int)red, &k);
    c->tol = 2e-5;
    c->want = NEW(&b->a, Tensor, 3);
    for (int i = 0; i < k.noperands; i++)
        c->want[i] = (Tensor){i < 2 ? t : type_make(DT_F32, 1, &columns), NEW(&b->a, float, type_count(&t))};
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_f(&c->want[0], i, (double)(i * 7919 % 1000) / 1000 + (red & 1 ? 10 : 0));
    c->got = placed(b, c, c->want);
}

/* Leaves out every step-th barrier that the kernels reach, one at a time, and checks that this is noticed;
 * returns how many were left out. */
static int barriers_are_missed(Batch *b, int step)
{
    static ShimState state = {.present = is_present};
    static Site site[MOST_SITES];
    int come = 0, seen = 0;
    batch_print(b);
    int n = number_barriers(&b->source, site);
    write_shim_source(b, "k.c");
    void *dl = shim_load(&state, true);
    for (int c = 0; c < b->n; c++) /* finds which are reached: a text may have some for other parameters */
        run_case(&b->c[c], dl, &state, b->func[c], (uint64_t)c + 1);
    for (int i = 0; i < n; i++)
        if (reached[i] && come++ % step == 0) {
            ck_assert_msg(caught(b, dl, &state, site, i), "nobody misses barrier %d, of kernel %d", i,
                          site[i].func);
            seen++;
        }
    printf("%d of %d barriers, commits and waits taken away in turn: all missed\n", seen, come);
    shim_unload(dl);
    batch_free(b);
    return seen;
}

START_TEST(missing_barriers_are_seen)
{
    static const Op of[] = {OP_softmax, OP_layer_norm, OP_layer_norm_bwd, OP_batch_norm, OP_transpose};
    static Batch b;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int trial = 0; trial < 4; trial++)
            add_operator(&b, of[i], trial);
    for (int i = 0; i < 4; i++)
        add_samples(&b, (Op[]){OP_gather_bwd, OP_scatter_elements, OP_cumsum, OP_topk}[i], 1 + (i == 2));
    add_norm(&b, 3, 4000, 2, false);
    add_norm(&b, 700, 40, 1, false);
    add_norm(&b, 2, 130000, 2, false);
    add_norm(&b, 16000, 16, 1, false);
    add_norm(&b, 600, 300, 2, true);
    add_residual(&b, DT_BF16, (int64_t[]){300, 64, 1});
    add_convolutions(&b, DT_F32, 0);
    add_convolutions(&b, DT_BF16, 0);
    ck_assert_int_ge(barriers_are_missed(&b, getenv("CKC_LONG") ? 1 : 4), getenv("CKC_LONG") ? 35 : 10);
}
END_TEST

START_TEST(attention_misses_its_barriers)
{
    static const int size[] = {64, 32, 96, 128, 192, 256};
    static Batch b;
    bool all = getenv("CKC_LONG") != NULL;
    for (int i = 0; i < (all ? 6 : 1); i++)
        for (int j = 0; j < 3; j++)
            add_attention(&b, j ? OP_attention_grad : OP_attention, j == 2 ? DT_F32 : DT_BF16, 30 + i,
                          size[i], size[i]);
    ck_assert_int_ge(barriers_are_missed(&b, 1), all ? 90 : 15);
}
END_TEST

/* In kernels with warpgroup products, missing fences, commits and waits are noticed as well. */
START_TEST(warpgroups_miss_theirs)
{
    static Batch b;
    add_wgmmas(&b, getenv("CKC_LONG") ? WARPGROUP_SAMPLES : 1);
    add_wgmma_convolutions(&b, conv_samples() - 1, 1);
    ck_assert_int_ge(barriers_are_missed(&b, 1), 30);
}
END_TEST

Suite *suite_cuda(void)
{
    Suite *s = suite_create("cuda");
    TCase *t = tcase_create("text");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, text_compiles_with_nvrtc);
    tcase_add_loop_test(t, shim_runs_match_reference, 0, getenv("CKC_LONG") ? 24 : 1);
    tcase_add_test(t, convolutions_match_reference);
    tcase_add_test(t, missing_barriers_are_seen);
    tcase_add_test(t, attention_matches_reference);
    tcase_add_test(t, attention_misses_its_barriers);
    tcase_add_test(t, warpgroups_compile_with_nvrtc);
    tcase_add_test(t, warpgroups_match_reference);
    tcase_add_test(t, warpgroups_miss_theirs);
    suite_add_tcase(s, t);
    return s;
}
