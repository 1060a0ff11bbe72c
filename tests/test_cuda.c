/* test_cuda.c -- generated CUDA C without a GPU: compiled by NVRTC for sm_80 and sm_90 where the
 * toolkit is installed, and run on the CPU through the fiber shim against the interpreter. */
#include "tests.h"
#include "codegen/codegen.h"
#include "op_samples.h"
#include "random_kernel.h"
#include "shim/fiber.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANDOM = 36, TRIALS = 2, MOST = RANDOM + OP_COUNT * TRIALS };

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
    Kernel *k[MOST];
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

static void add_random(Batch *b, uint64_t seed, int i)
{
    RandomKernel r;
    random_kernel(&r, &b->a, seed * 1000 + (uint64_t)i, i % 9 == 8);
    Case *c = batch_add(b, "random", i, &r.k);
    c->want = random_kernel_data(&r, &b->a);
    c->got = random_kernel_data(&r, &b->a);
    c->tol = random_kernel_tolerance(&r);
}

/* Copies, so that the sample can go. */
static void *copy_of(Arena *a, const void *p, size_t size)
{
    return memcpy(arena_alloc(a, size + 1, 1), p, size);
}

static void add_operator(Batch *b, Op op, int trial)
{
    Sample s;
    Kernel k;
    if (op == OP_concat || !sample_make(&s, op, trial ? DT_BF16 : DT_F32, trial))
        return; /* concat is planned as copies */
    ck_assert_msg(!s.diag.failed, "%s: %s", op_table[op]->name, s.diag.msg);
    const Node *n = graph_def(&s.g, s.out[0]);
    if (!n) { /* folded */
        sample_free(&s);
        return;
    }
    k_init(&k, &b->a, &s.g, n);
    ck_assert(op_table[op]->lower(&k, &s.g, n));
    Case *c = batch_add(b, op_table[op]->name, trial, &k);
    c->tol = 2e-5;
    c->want = NEW(&b->a, Tensor, k.noperands);
    c->got = NEW(&b->a, Tensor, k.noperands);
    for (int i = 0; i < k.noperands; i++) {
        Val v = i < n->nin ? n->in[i] : n->out[i - n->nin];
        Type t = *val_type(&s.g, v);
        const void *data = NULL;
        for (int j = 0; j < s.nin; j++)
            data = s.in[j].i == v.i && v.i ? s.data[j].data : data;
        size_t size = (size_t)type_bytes(&t);
        c->want[i] = (Tensor){t, data ? copy_of(&b->a, data, size) : NEW(&b->a, char, size + 1)};
        c->got[i] = (Tensor){t, copy_of(&b->a, c->want[i].data, size)};
    }
    sample_free(&s);
}

static void batch_make(Batch *b, uint64_t seed)
{
    size_t size = 0;
    for (int i = 0; i < RANDOM; i++)
        add_random(b, seed, i);
    for (int op = 1; op < OP_COUNT; op++)
        for (int trial = 0; trial < TRIALS; trial++)
            add_operator(b, (Op)op, trial);
    ck_assert_int_gt(b->n, RANDOM + OP_COUNT);
    FILE *f = open_memstream(&b->source, &size);
    ck_assert_int_gt(codegen_cuda(f, b->k, b->n, b->func), 0);
    fclose(f);
}

static void batch_free(Batch *b)
{
    free(b->source);
    arena_free(&b->a);
}

/* ---- NVRTC --------------------------------------------------------------------------------- */

typedef struct {
    void *dl;
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*destroy)(void **);
} Nvrtc;

static bool nvrtc_open(Nvrtc *n)
{
    static const char *const path[] = {"libnvrtc.so.13", "libnvrtc.so",
                                       "/usr/local/cuda/lib64/libnvrtc.so"};
    for (size_t i = 0; i < sizeof path / sizeof *path && !n->dl; i++)
        n->dl = dlopen(path[i], RTLD_NOW);
    if (!n->dl)
        return false;
    *(void **)&n->create = dlsym(n->dl, "nvrtcCreateProgram");
    *(void **)&n->compile = dlsym(n->dl, "nvrtcCompileProgram");
    *(void **)&n->log_size = dlsym(n->dl, "nvrtcGetProgramLogSize");
    *(void **)&n->log = dlsym(n->dl, "nvrtcGetProgramLog");
    *(void **)&n->cubin_size = dlsym(n->dl, "nvrtcGetCUBINSize");
    *(void **)&n->destroy = dlsym(n->dl, "nvrtcDestroyProgram");
    return n->create && n->compile && n->log_size && n->log && n->cubin_size && n->destroy;
}

static void nvrtc_compiles(const Nvrtc *n, const char *source, const char *arch)
{
    const char *const option[] = {arch, "--fmad=false"};
    void *prog = NULL;
    size_t size = 0;
    ck_assert_int_eq(n->create(&prog, source, "kernels.cu", 0, NULL, NULL), 0);
    int status = n->compile(prog, 2, option);
    n->log_size(prog, &size);
    char *log = calloc(size + 1, 1);
    n->log(prog, log);
    ck_assert_msg(status == 0, "%s: %.2000s", arch, log);
    free(log);
    n->cubin_size(prog, &size);
    ck_assert_uint_gt(size, 0);
    n->destroy(&prog);
}

START_TEST(text_compiles_with_nvrtc)
{
    Nvrtc n = {0};
    if (!nvrtc_open(&n)) {
        printf("skipped: libnvrtc is not there\n");
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

/* Kernels take pointers one by one; CALL_<i> takes an array. */
static void write_shim_source(const Batch *b, const char *path)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(b->source, f);
    fputs("ShimState *shim;\n", f);
    bool *seen = calloc(MOST, sizeof *seen);
    for (int i = 0; i < b->n; i++) {
        if (seen[b->func[i]])
            continue;
        seen[b->func[i]] = true;
        fprintf(f, "void CALL_%d(void *const *op)\n{\n    ck_%d(", b->func[i], b->func[i]);
        for (int o = 0; o < b->k[i]->noperands; o++)
            fprintf(f, "%sop[%d]", o ? ", " : "", o);
        fputs(");\n}\n", f);
    }
    free(seen);
    fclose(f);
}

static void *load_shim(const Batch *b, char dir[64])
{
    char path[128], cmd[512];
    strcpy(dir, "/tmp/ckc-shim-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/k.c", dir);
    write_shim_source(b, path);
    snprintf(cmd, sizeof cmd,
             "cc -std=gnu11 -O1 -w -ffp-contract=off -march=native -fPIC -shared -I%s/tests/shim "
             "%s -o %s/k.so -lm", CKC_SOURCE_DIR, path, dir);
    ck_assert_int_eq(system(cmd), 0);
    snprintf(path, sizeof path, "%s/k.so", dir);
    void *dl = dlopen(path, RTLD_NOW);
    ck_assert_msg(dl != NULL, "%s", dlerror());
    return dl;
}

static void run_case(Case *c, void *dl, ShimState *state, int func, uint64_t seed)
{
    void (*call)(void *const *), **op = calloc((size_t)c->k.noperands + 1, sizeof *op);
    char name[32], msg[256];
    snprintf(name, sizeof name, "CALL_%d", func);
    *(void **)&call = dlsym(dl, name);
    ck_assert_ptr_nonnull(call);
    for (int o = 0; o < c->k.noperands; o++)
        op[o] = c->got[o].data;
    CudaLaunch l = kernel_cuda_launch(&c->k);
    kernel_run_ref(&c->k, c->want);
    ck_assert_msg(fiber_launch(state, call, op, l.grid, l.block, seed), "%s: threads are stuck",
                  c->label);
    for (int o = 0; o < c->k.noperands; o++)
        ck_assert_msg(tensor_close(&c->want[o], &c->got[o], c->tol, msg), "%s operand %d: %s",
                      c->label, o, msg);
    free(op);
}

START_TEST(shim_runs_match_reference)
{
    static Batch b;
    char dir[64], cmd[128];
    ShimState state;
    batch_make(&b, (uint64_t)_i + 31);
    void *dl = load_shim(&b, dir);
    *(ShimState **)dlsym(dl, "shim") = &state;
    for (int i = 0; i < b.n; i++)
        run_case(&b.c[i], dl, &state, b.func[i], (uint64_t)i + 1);
    dlclose(dl);
    batch_free(&b);
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}
END_TEST

/* ---- the shim itself --------------------------------------------------------------------------- */

static ShimState shim_state;
static int order_seen[64];
static int order_count;

static void record_order(void *const *arg)
{
    (void)arg;
    order_seen[order_count++] = (int)shim_state.thread.x;
    shim_state.barrier();
}

static void skip_barrier(void *const *arg)
{
    (void)arg;
    if (shim_state.thread.x != 5)
        shim_state.barrier();
}

static void butterfly(void *const *arg)
{
    int v = (int)shim_state.thread.x;
    for (int m = 16; m > 0; m /= 2) {
        int other = v;
        shim_state.exchange(&other, sizeof other, m);
        v += other;
    }
    ((int *)arg[0])[shim_state.thread.x] = v;
}

START_TEST(shim_shuffles_and_finds_divergence)
{
    int sum[64];
    void *op[] = {sum};
    ck_assert(fiber_launch(&shim_state, record_order, NULL, 1, 64, 3));
    int in_order = 0;
    for (int i = 0; i < 64; i++)
        in_order += order_seen[i] == i;
    ck_assert_int_lt(in_order, 20);
    ck_assert(!fiber_launch(&shim_state, skip_barrier, NULL, 1, 64, 3));
    ck_assert(fiber_launch(&shim_state, butterfly, op, 1, 64, 4));
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(sum[i], i < 32 ? 496 : 496 + 32 * 32);
}
END_TEST

Suite *suite_cuda(void)
{
    Suite *s = suite_create("cuda");
    TCase *t = tcase_create("text");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, text_compiles_with_nvrtc);
    tcase_add_loop_test(t, shim_runs_match_reference, 0, 1);
    tcase_add_test(t, shim_shuffles_and_finds_divergence);
    suite_add_tcase(s, t);
    return s;
}
