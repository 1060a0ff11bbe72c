/* test_cuda.c -- generated CUDA C without a GPU: compiled by NVRTC for sm_80 and sm_90 where the
 * toolkit is installed, and run on the CPU through the fiber shim against the interpreter. */
#include "tests.h"
#include "command.h"
#include "codegen/codegen.h"
#include "conv_samples.h"
#include "op_samples_int.h"
#include "nvrtc.h"
#include "random_kernel.h"
#include "shim/fiber.h"
#include "shim/shadow.h"
#include "step.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANDOM = 36, TRIALS = 2, MOST = RANDOM + OP_COUNT * TRIALS + 4 };

/* A kernel with operands for the interpreter (want) and for the generated text (got). */
typedef struct {
    char label[48];
    Kernel k;
    Tensor *want, *got;
    double tol; /* of REAL; halves have their own */
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
    Case *c = &b->c[b->n];
    b->k[b->n++] = &c->k;
    snprintf(c->label, sizeof c->label, "%s %d", label, i);
    c->k = *k;
    return c;
}

/* The same data where an operand may begin. */
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

static void add_random(Batch *b, uint64_t seed, int i)
{
    RandomKernel r;
    random_kernel(&r, &b->a, seed * 1000 + (uint64_t)i, i % 3 == 2);
    r.k.unaligned = i % 9 == 7;
    Case *c = batch_add(b, "random", i, &r.k);
    c->want = random_kernel_data(&r, &b->a);
    c->got = placed(b, c, c->want);
    c->tol = random_kernel_tolerance(&r);
}

/* Copies, so that the sample can go. */
static void *copy_of(Arena *a, const void *p, size_t size)
{
    return memcpy(arena_alloc(a, size + 1, 1), p, size);
}

/* The node of a sample as a kernel with its data. */
static void add_sample(Batch *b, const Sample *s, int trial)
{
    Kernel k;
    const Node *n = graph_def(&s->g, s->out[0]);
    ck_assert_msg(!s->diag.failed, "%s: %s", op_table[s->op]->name, s->diag.msg);
    if (!n)
        return; /* folded */
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

/* Sums of so many rows by an index of which `most` (percent) are one, and some none. */
static void add_gather_sum(Batch *b, DType dt, int64_t outer, int rows, int64_t count, int64_t inner, int most)
{
    Sample s = {.seed = (uint64_t)rows, .dt = dt, .op = OP_gather_bwd};
    graph_init(&s.g, &s.arena, &s.diag);
    Type x = type_make(dt, 3, (int64_t[]){outer, rows, inner});
    sample_reals(&s, type_make(dt, 3, (int64_t[]){outer, count, inner}), -1, 1);
    sample_ints(&s, type_make(rows % 2 ? DT_I32 : DT_I64, 1, &count), -rows - 1, rows);
    for (int64_t i = 0; i < count; i++)
        if (sample_chance(&s, most))
            tensor_set_i(&s.data[1], i, rows / 3);
    sample_build(&s, &(GatherBwdAttrs){1, sample_all_dims(&x)});
    add_sample(b, &s, (int)inner);
    sample_free(&s);
}

static void add_gather_sums(Batch *b)
{
    add_gather_sum(b, DT_F32, 1, 700, 500, 64, 30);
    add_gather_sum(b, DT_F32, 2, 1, 1100, 60, 0);
    add_gather_sum(b, DT_F32, 1, 9001, 300, 7, 90);
    add_gather_sum(b, DT_F64, 3, 60, 333, 34, 5);
}

static void add_convolutions(Batch *b, DType dt, int which)
{
    static const Op op[] = {OP_conv, OP_conv_bwd_data, OP_conv_bwd_weights};
    for (int i = 0; i < 3; i++) {
        Sample s;
        conv_sample(&s, op[i], dt, which);
        add_sample(b, &s, which);
        sample_free(&s);
    }
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
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS; trial++)
            add_operator(b, (Op)op, trial);
    add_gather_sums(b);
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
    Nvrtc n = {0};
    if (!nvrtc_open(&n)) {
        skipped("libnvrtc is not there");
        return;
    }
    static Batch b;
    batch_make(&b, 71);
    nvrtc_compiles(&n, b.source, "--gpu-architecture=sm_80");
    nvrtc_compiles(&n, b.source, "--gpu-architecture=sm_90");
    batch_free(&b); /* the library stays: its C++ runtime keeps memory of its own */
}
END_TEST

/* ---- fiber shim ------------------------------------------------------------------------------ */

/* Kernels take pointers one by one; CALL_<i>_<phase> takes an array. */
static void write_call(FILE *f, const Kernel *k, int func, int phase, bool workspace)
{
    char name[32], buf[CUDA_NAME];
    snprintf(name, sizeof name, "ck_%d", func);
    fprintf(f, "HOOK void CALL_%d_%d(void *const *op)\n{\n    %s(", func, phase,
            cuda_phase_name(name, phase, buf));
    for (int o = 0; o < k->noperands + workspace; o++)
        fprintf(f, "%sop[%d]", o ? ", " : "", o);
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

/* The object made of k.c; hooks: whose accesses to memory are looked at. */
static void *shim_load(ShimState *state, bool hooks)
{
    char command[512];
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -w -ffp-contract=off -march=native -fPIC %s -I'%s/tests/shim' -c k.c -o k.o "
             "&& cc -shared k.o -o k.so -lm", hooks ? "-fsanitize=thread" : "", CKC_SOURCE_DIR);
    ck_assert_int_eq(shell(command), 0);
    void *dl = dlopen("./k.so", RTLD_NOW);
    ck_assert_msg(dl != NULL, "%s", dlerror());
    ShimState **slot = dlsym(dl, "shim");
    ck_assert_ptr_nonnull(slot);
    *slot = state;
    shadow_add_object(dlsym(dl, "shim_memory"));
    return dl;
}

static void shim_unload(void *dl)
{
    shadow_remove_object(dlsym(dl, "shim_memory"));
    dlclose(dl);
}

/* The phases of a kernel, until one fails; op: its operands and the workspace. */
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
    void **op = calloc((size_t)c->k.noperands + 1, sizeof *op);
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

static void run_case(Case *c, void *dl, ShimState *state, int func, uint64_t seed)
{
    char msg[256];
    kernel_run_ref(&c->k, c->want);
    ck_assert_msg(run_text(c, dl, state, func, seed), "%s: %s", c->label, state->error);
    for (int o = 0; o < c->k.noperands; o++)
        ck_assert_msg(tensor_close(&c->want[o], &c->got[o], c->tol, msg), "%s operand %d: %s",
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

START_TEST(convolutions_match_reference)
{
    static Batch b;
    for (int i = 0; i < conv_samples(); i++) {
        add_convolutions(&b, DT_F32, i);
        add_convolutions(&b, i % 4 ? DT_BF16 : DT_F16, i);
    }
    batch_print(&b);
    batch_run(&b);
}
END_TEST

/* ---- barriers that are not there ---------------------------------------------------------------- */

enum { MOST_SITES = 1000 };

/* A barrier, commit or wait in a text, and the kernel it belongs to (-1: the prelude). */
typedef struct {
    int func;
} Site;

static const char *next_barrier(const char *at)
{
    static const char *const call[] = {"__syncthreads()", "copy_wait(", "copy_commit()"};
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

/* The text with `if (shim->present(i))` in front of each of them. */
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

/* Does the shadow see that barrier i is missing, in some kernel that has it? */
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

/* Rows or columns less their mean, over their deviation. */
static void add_norm(Batch *b, int64_t rows, int64_t columns, uint32_t red)
{
    Kernel k = {.arena = &b->a, .noperands = 2, .operand = NEW(&b->a, DType, 2)};
    Type t = type_make(DT_F32, 2, (int64_t[]){rows, columns});
    k.operand[0] = k.operand[1] = DT_F32;
    k_space(&k, &t, red);
    int x = k_load(&k, 0, &t), n = k_const(&k, KT_REAL, (double)(red & 1 ? rows : columns));
    int less = k_op(&k, OP_sub, x, k_op(&k, OP_div, k_reduce(&k, K_SUM, x), n, 0), 0);
    int square = k_op(&k, OP_div, k_reduce(&k, K_SUM, k_op(&k, OP_mul, less, less, 0)), n, 0);
    k_store(&k, 1, k_op(&k, OP_div, less, k_op(&k, OP_sqrt, square, 0, 0), 0));
    Case *c = batch_add(b, "norm", (int)red, &k);
    c->tol = 2e-5;
    c->want = NEW(&b->a, Tensor, 2);
    for (int i = 0; i < 2; i++)
        c->want[i] = (Tensor){t, NEW(&b->a, float, type_count(&t))};
    for (int64_t i = 0; i < type_count(&t); i++)
        tensor_set_f(&c->want[0], i, (double)(i * 7919 % 1000) / 1000);
    c->got = placed(b, c, c->want);
}

/* Each of them; a dozen where there is little time. */
START_TEST(missing_barriers_are_seen)
{
    static const Op of[] = {OP_softmax, OP_layer_norm, OP_layer_norm_bwd, OP_batch_norm, OP_transpose};
    static Batch b;
    static ShimState state;
    static Site site[MOST_SITES];
    int some = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int trial = 0; trial < 4; trial++)
            add_operator(&b, of[i], trial);
    add_gather_sum(&b, DT_F32, 1, 1500, 200, 40, 30);
    add_norm(&b, 3, 4000, 2);
    add_norm(&b, 700, 40, 1);
    add_norm(&b, 2, 130000, 2);
    add_norm(&b, 16000, 16, 1);
    add_convolutions(&b, DT_F32, 0);
    add_convolutions(&b, DT_BF16, 0);
    batch_print(&b);
    int n = number_barriers(&b.source, site), step = getenv("CKC_LONG") ? 1 : (n + 11) / 12;
    write_shim_source(&b, "k.c");
    void *dl = shim_load(&state, true);
    state.present = is_present;
    for (int c = 0; c < b.n; c++) /* a text may have some for other parameters */
        ck_assert_msg(run_text(&b.c[c], dl, &state, b.func[c], (uint64_t)c + 1), "%s: %s", b.c[c].label,
                      state.error);
    for (int i = 0; i < n; i++)
        if (reached[i] && some++ % step == 0)
            ck_assert_msg(caught(&b, dl, &state, site, i), "nobody misses barrier %d, of kernel %d", i,
                          site[i].func);
    shim_unload(dl);
    batch_free(&b);
}
END_TEST

/* ---- a whole step -------------------------------------------------------------------------------- */

static ShimState step_state;
static uint64_t launches;

static bool launch_fibers(const void *kernel, void **arg, unsigned grid, unsigned block, unsigned shared)
{
    void *operand[FIBER_ARGS];
    for (int i = 0; i < FIBER_ARGS; i++)
        operand[i] = *(void **)arg[i];
    return fiber_launch_kernel(&step_state, kernel, operand, grid, block, shared, ++launches);
}

static void make_inputs(TestStep *s)
{
    StepInputs own = step_inputs(&s->g);
    Feed *feed = feed_open(&s->g, &own, NULL, 5, &s->diag);
    ck_assert_msg(feed != NULL, "%s", s->diag.msg);
    ck_assert(feed_step(feed, s->exec, 1, &s->diag));
    feed_close(feed);
    Tensor lr = exec_tensor(s->exec, own.lr), step = exec_tensor(s->exec, own.step);
    Tensor rng = exec_tensor(s->exec, own.rng);
    if (lr.data)
        tensor_set_f(&lr, 0, 0.01);
    if (step.data)
        tensor_set_i(&step, 0, 1);
    for (int i = 0; rng.data && i < 2; i++)
        tensor_set_i(&rng, i, i ? 1 : 77);
}

/* The executor's arena: where the value at offset 0 lies. */
static char *executor_memory(const TestStep *s)
{
    const Plan *p = &s->info.plan;
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        Tensor t = exec_tensor(s->exec, (Val){v});
        if (t.data && p->offset[v] == 0)
            return t.data;
    }
    ck_abort_msg("nothing at offset 0");
}

static void compare_memory(const TestStep *s, char *arena)
{
    char msg[256];
    for (uint32_t v = 1; v < s->g.nvals; v++) {
        ValKind kind = s->g.vals[v].kind;
        Tensor want = exec_tensor(s->exec, (Val){v});
        bool out = kind == VAL_PARAM || kind == VAL_STATE;
        for (uint32_t i = 0; i < s->g.nout; i++)
            out |= s->g.out[i].i == v;
        if (!out || !want.data)
            continue;
        Tensor got = {want.type, arena + s->info.plan.offset[graph_root(&s->g, (Val){v}).i]};
        ck_assert_msg(tensor_close(&want, &got, 2e-4, msg), "%s: %s", s->g.vals[v].name, msg);
    }
}

/* Workspace of the texts. */
static bool choose_text(void *user, const Command *c, uint32_t n, StepCost *out, Diag *d)
{
    (void)user, (void)d;
    for (uint32_t i = 0; i < n; i++) {
        Arena a = {0};
        Launches l = {.arena = &a};
        int64_t most = 0;
        command_launches(&c[i], &l);
        for (uint32_t k = 0; k < l.nkernel; k++) {
            int64_t bytes = kernel_cuda_launch(l.kernel[k]).workspace;
            most = bytes > most ? bytes : most;
        }
        most += align_up(command_workspace_bytes(&c[i]), CUDA_WORKSPACE_ALIGN);
        out[i] = (StepCost){.c = {{NULL, most, -1}}, .n = 1, .same = 1};
        arena_free(&a);
    }
    return true;
}

/* update: bytes of gradients to split by rows, 0: all are outputs; factor: of factors in blocks. */
static void emit_step(TestStep *s, const char *model, const char *path, int64_t update, int64_t factor,
                      PrecisionKind precision)
{
    const OnnxBind bind = {"batch", precision == PRECISION_F32 ? 6 : 96};
    step_init(s);
    s->choose = choose_text;
    ck_assert(device_find(&s->info_of, "h200", &s->arena, &s->diag));
    s->opt.device = &s->info_of;
    s->opt.import.bind = &bind;
    s->opt.import.nbind = strstr(model, "static") == NULL;
    s->opt.optim = OPTIM_MOMENTUM; /* Adam would magnify the noise of gradients near 0 */
    s->opt.keep_grads = update == 0;
    s->opt.update_bytes = update;
    s->opt.factor_bytes = factor;
    s->opt.precision = precision;
    ck_assert_msg(step_compile(s, model, NULL), "%s: %s", model, s->diag.msg);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(codegen_cuda_schedule(f, &s->info.plan, &s->diag), "%s", s->diag.msg);
    fclose(f);
}

static void run_emitted(void *dl, char *arena)
{
    void *(*new_step)(void), (*close_step)(void *);
    bool (*open_step)(void *, void *, void *, size_t, void *), (*run_step)(void *);
    *(void **)&new_step = dlsym(dl, "new_step");
    *(void **)&open_step = dlsym(dl, "ckc_open");
    *(void **)&run_step = dlsym(dl, "ckc_step");
    *(void **)&close_step = dlsym(dl, "ckc_close");
    void *c = new_step();
    ck_assert(open_step(c, arena, NULL, 0, NULL));
    ck_assert(run_step(c));
    close_step(c);
    free(c);
}

/* The emitted step, run by fibers and pretended cuBLASLt, does what the executor does. */
START_TEST(whole_step_matches_executor)
{
    static const struct {
        const char *shared;
        int64_t update, factor;
        PrecisionKind precision;
    } step[] = {{NULL, 0, 0, PRECISION_F32},
                {"fixtures/torch-oracle/gpt_tiny_tied/model_static.onnx", 0, 0, PRECISION_F32},
                {"fixtures/torch-oracle/conv_bn_pool/model_static.onnx", 0, 0, PRECISION_F32},
                {NULL, 2048, 0, PRECISION_F32},
                {NULL, 0, 256, PRECISION_F32},
                {"fixtures/torch-oracle/gpt_tiny_tied/model_static.onnx", 0, 256, PRECISION_F32},
                {"fixtures/torch-oracle/conv_bn_pool/model_static.onnx", 0, 256, PRECISION_F32},
                {NULL, 0, 1, PRECISION_BF16}};
    const char *file = step[_i].shared ? shared_path(step[_i].shared)
                                       : CKC_SOURCE_DIR "/examples/mlp/model.onnx";
    TestStep s;
    if (!file)
        return;
    emit_step(&s, file, "k.c", step[_i].update, step[_i].factor, step[_i].precision);
    if (step[_i].precision == PRECISION_BF16) /* weights' gradients are sums in f32 of blocks */
        ck_assert_int_eq(shell("grep -q '{\"bf16\", \"f32\", 0, 1, ' k.c"), 0);
    FILE *f = fopen("k.c", "a");
    fputs("ShimState *shim;\nCkc *new_step(void) { return calloc(1, sizeof(Ckc)); }\n", f);
    fclose(f);
    step_state.launch = launch_fibers;
    void *dl = shim_load(&step_state, false);
    size_t bytes = (size_t)*(const int64_t *)dlsym(dl, "ckc_arena_bytes");
    ck_assert_uint_eq(bytes, (size_t)s.info.plan.arena_bytes);
    make_inputs(&s);
    char *arena = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memcpy(arena, executor_memory(&s), bytes);
    run_emitted(dl, arena);
    ck_assert_msg(exec_step(s.exec, NULL, &s.diag), "%s", s.diag.msg);
    compare_memory(&s, arena);
    free(arena);
    shim_unload(dl);
    step_free(&s);
}
END_TEST

static double emitted_loss[8];

static void keep_loss(int64_t step, double loss) { emitted_loss[step] = loss; }

/* The program that --emit cuda writes, with its weights and data, trains as the CPU does. */
START_TEST(emitted_program_trains)
{
    bool (*train)(const char *, const char *, void (*)(int64_t, double));
    ckc_accepts(CKC_SOURCE_DIR
                "/examples/mlp/model.onnx --bind batch=8 --lr 0.05 --steps 5 --json --output c");
    json_t *report = read_json("out"), *losses = json_object_get(report, "losses");
    ckc_accepts(CKC_SOURCE_DIR "/examples/mlp/model.onnx --bind batch=8 --lr 0.05 --steps 5 --device h200 "
                               "--emit cuda --quiet --output g");
    ck_assert_int_eq(shell("(echo '#define CKC_LIBRARY'; cat g/kernels.cu; echo 'ShimState *shim;') >k.c"),
                     0);
    step_state.launch = launch_fibers;
    void *dl = shim_load(&step_state, false);
    *(void **)&train = dlsym(dl, "ckc_train");
    ck_assert(train("g/weights.bin", "g/data.bin", keep_loss));
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq_tol(emitted_loss[i + 1], json_number_value(json_array_get(losses, (size_t)i)),
                                1e-5);
    ck_assert_double_lt(emitted_loss[5], emitted_loss[1]);
    ck_assert_int_eq(shell("head -c 100 g/weights.bin >short.bin"), 0);
    ck_assert(!train("short.bin", "g/data.bin", keep_loss));
    ck_assert(!train("g/weights.bin", "g/none.bin", keep_loss));
    shim_unload(dl);
    json_decref(report);
}
END_TEST

/* The same file with the real headers, where there is a CUDA compiler. */
START_TEST(whole_step_compiles_with_nvcc)
{
    TestStep s;
    if (shell("nvcc --version >/dev/null 2>&1") != 0) {
        skipped("nvcc is not there");
        return;
    }
    emit_step(&s, CKC_SOURCE_DIR "/examples/mlp/model.onnx", "k.c", 0, 0, PRECISION_F32);
    ck_assert_int_eq(shell("nvcc -x cu -arch=sm_90 --fmad=false k.c -lcublasLt -o k"), 0);
    step_free(&s);
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
    tcase_add_loop_test(t, whole_step_matches_executor, 0, 8);
    tcase_add_test(t, emitted_program_trains);
    tcase_add_test(t, whole_step_compiles_with_nvcc);
    suite_add_tcase(s, t);
    return s;
}
