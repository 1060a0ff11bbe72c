/* test_codegen.c -- generated C: random kernels give the reference interpreter's results with any number of
 * threads; functions agree with libm, random numbers with Random123; equal texts are shared; sums keep their
 * order when a kernel is recomputed with fewer results. */
#include "tests.h"
#include "command.h"
#include "codegen/codegen.h"
#include "codegen/schedule.h"
#include "ir/attrs.h"
#include "kernel_math_f32.h"
#include "passes/instance.h"
#include "random_kernel.h"
#include "runtime/cpu/cpu.h"
#include <Random123/philox.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- functions --------------------------------------------------------------------------- */

static double ulp_of(double want)
{
    float f = fabsf((float)want);
    int e;
    frexpf(f, &e);
    return f < 1.17549435e-38f ? 0x1p-149 : ldexp(1, e - 24);
}

static double ulp_error(double want, float got)
{
    float w = (float)want;
    if (isnan(w))
        return isnan(got) ? 0 : INFINITY;
    if (isinf(w) || isinf(got))
        return w == got || (fabsf(got) > 3.4e38f && fabs(want) > 3.4e38) ? 0 : INFINITY;
    return fabs(want - (double)got) / ulp_of(want);
}

static double reference(const MathCase *c, float x)
{
    return c->ref ? c->ref((double)x) : 1 / sqrt((double)x);
}

static float bits_to_float(uint64_t b)
{
    uint32_t u = (uint32_t)b;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The error of the function at x, in units in the last place.  flushes: 0 may stand for a denormal result. */
static double error_of(const MathCase *c, float x, bool flushes)
{
    double want = reference(c, x);
    float got = c->f(x);
    return flushes && got == 0 && fabs(want) < 1.17549435e-38 ? 0 : ulp_error(want, got);
}

/* Assertions cost a system call each, so the loop finds the worst case and asserts once. */
static void check_function(const MathCase *c, bool flushes)
{
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f, 1, -1,
                                    2, -2, 100, -100};
    double worst = 0;
    float at = 0;
    for (uint64_t b = 0; b < 0x100000000u; b += 4099) { /* all magnitudes, also denormals */
        float x = bits_to_float(b);
        if (!((double)x >= c->lo && (double)x <= c->hi))
            continue;
        double e = error_of(c, x, flushes);
        at = e > worst ? x : at;
        worst = e > worst ? e : worst;
    }
    ck_assert_msg(worst <= c->ulp, "%s(%a): %g ulp", c->name, (double)at, worst);
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        ck_assert_msg(error_of(c, special[i], flushes) <= 4, "%s(%g) = %g", c->name, (double)special[i],
                      (double)c->f(special[i]));
}

START_TEST(functions_are_accurate)
{
    for (const MathCase *c = math_cases; c->name; c++)
        check_function(c, false);
    for (const MathCase *c = cuda_math_cases; c->name; c++)
        check_function(c, true);
}
END_TEST

START_TEST(power_is_accurate)
{
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1, 2, -2, 3, -3, 0.5f,
                                    -0.5f, 1e30f, -1e30f, 1e-40f};
    size_t n = sizeof special / sizeof *special;
    for (size_t i = 0; i < n * n; i++) {
        float x = special[i / n], y = special[i % n];
        ck_assert_msg(ulp_error(pow((double)x, (double)y), math_pow(x, y)) <= 1, "%g^%g = %g",
                      (double)x, (double)y, (double)math_pow(x, y));
    }
    double worst = 0;
    for (int i = -2000; i < 2000; i++)
        for (int j = -50; j < 50; j++) {
            float x = expf((float)i / 40), y = (float)j / 3;
            worst = fmax(worst, ulp_error(pow((double)x, (double)y), math_pow(x, y)));
        }
    ck_assert_double_le(worst, 1);
}
END_TEST

static bool same_float(float a, float b) { return isnan(a) ? isnan(b) : a == b; }

START_TEST(halves_round_to_even)
{
    int wrong = 0;
    for (uint32_t b = 0; b < 0x10000; b++) {
        uint16_t h = (uint16_t)b;
        wrong += !same_float(bf16_to_f32(h), math_bf16_load(h));
        wrong += !same_float(f16_to_f32(h), math_f16_load(h));
    }
    ck_assert_int_eq(wrong, 0);
    for (uint64_t b = 0; b < 0x100000000u; b += 1021) {
        float x = bits_to_float(b);
        if (isnan(x)) {
            wrong += !isnan(math_bf16_load(math_bf16_store(x)));
            wrong += !isnan(math_f16_load(math_f16_store(x)));
        } else {
            wrong += math_bf16_store(x) != f32_to_bf16(x);
            wrong += math_f16_store(x) != f32_to_f16(x);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(philox_is_random123)
{
    for (uint32_t i = 0; i < 2000; i++) {
        philox4x32_ctr_t c = {{i * 2654435761u, i, ~i, i ^ 0xABCDu}};
        philox4x32_key_t k = {{i * 40503u, 77u - i}};
        uint32_t got[4];
        philox4x32_ctr_t want = philox4x32(c, k);
        math_philox(c.v, k.v, got);
        ck_assert_mem_eq(got, want.v, sizeof got);
    }
}
END_TEST

/* ---- random kernels ---------------------------------------------------------------------- */

typedef void KernelFn(void *const *op);
enum { BATCH = 48 };

typedef struct {
    Arena a;
    const Kernel *k[BATCH];
    RandomKernel r[BATCH];
    KernelFn *fn[BATCH];
    KernelObjects objects;
    KernelCache cache;
} Batch;

static void batch_make(Batch *b, uint64_t seed)
{
    Diag d = {0};
    for (int i = 0; i < BATCH; i++) {
        random_kernel(&b->r[i], &b->a, seed * 1000 + (uint64_t)i, i % 6 == 5);
        b->k[i] = &b->r[i].k;
    }
    ck_assert_msg(kernel_cache_open(&b->cache, "cache", &d), "%s", d.msg);
    ck_assert_msg(kernels_load(b->k, BATCH, &b->cache, b->fn, &b->objects, &d), "%s", d.msg);
}

static void batch_free(Batch *b)
{
    kernels_unload(&b->objects);
    arena_free(&b->a);
}

static void matches_reference(Batch *b)
{
    int early = 0;
    for (int i = 0; i < BATCH; i++) {
        RandomKernel *r = &b->r[i];
        early += random_kernel_early(r);
        KernelFn *fn = b->fn[i];
        Tensor *want = random_kernel_data(r, &b->a), *got = random_kernel_data(r, &b->a);
        Tensor *once = random_kernel_data(r, &b->a);
        void *op[RANDOM_OPERANDS], *op1[RANDOM_OPERANDS];
        for (int o = 0; o < r->k.noperands; o++) {
            op[o] = got[o].data;
            op1[o] = once[o].data;
        }
        launch_run_ref(&(Launch){0}, &r->k, want);
        omp_set_num_threads(2);
        fn(op);
        omp_set_num_threads(1);
        fn(op1);
        for (int o = 0; o < r->k.noperands; o++) {
            char msg[256];
            ck_assert_msg(tensor_close(&want[o], &got[o], random_kernel_tolerance(r), msg),
                          "kernel %d operand %d: %s", i, o, msg);
            ck_assert_mem_eq(got[o].data, once[o].data, (size_t)type_bytes(&got[o].type));
        }
    }
    ck_assert_int_gt(early, 0);
}

/* Checks that kernels give the same bits with an output over an input, where kernel_inplace() allows that. */
static void same_in_place(Batch *b)
{
    int tried = 0, early = 0;
    for (int i = 0; i < BATCH; i++) {
        RandomKernel *r = &b->r[i];
        KernelFn *fn = b->fn[i];
        for (int w = r->nread; w < r->k.noperands; w++)
            for (int in = 0; in < r->nread; in++) {
                if (!kernel_inplace(&r->k, in, w))
                    continue;
                Tensor *t = random_kernel_data(r, &b->a), *u = random_kernel_data(r, &b->a);
                void *op[RANDOM_OPERANDS], *over[RANDOM_OPERANDS];
                for (int o = 0; o < r->k.noperands; o++) {
                    op[o] = t[o].data;
                    over[o] = o == w ? u[in].data : u[o].data;
                }
                fn(op);
                fn(over);
                ck_assert_mem_eq(t[w].data, u[in].data, (size_t)type_bytes(&t[w].type));
                for (int o = r->nread; o < r->k.noperands; o++)
                    ck_assert(o == w || memcmp(t[o].data, u[o].data, (size_t)type_bytes(&t[o].type)) == 0);
                tried++;
                early += random_kernel_early(r) > 0;
            }
    }
    ck_assert_int_gt(early, 0);
    ck_assert_int_gt(tried, 5);
}

static const uint64_t seeds[] = {500, 2, 3, 4};
enum { NSEEDS = sizeof seeds / sizeof *seeds };

START_TEST(random_kernels)
{
    Batch b = {0};
    batch_make(&b, seeds[_i]);
    matches_reference(&b);
    same_in_place(&b);
    batch_free(&b);
}
END_TEST

static char *kernel_text(const Kernel *k) { return kernel_print_text(kernel_print_c, k); }
static char *kernel_text_keyless(const Kernel *k) { return kernel_print_text(kernel_print_keyless_c, k); }

/* The command x w + c, in a graph of its own; c is x itself if `twice`. */
typedef struct {
    Arena a;
    Diag d;
    Graph g;
    Command c;
} ProductSum;
static void product_sum(ProductSum *p, bool twice)
{
    memset(p, 0, sizeof *p);
    graph_init(&p->g, &p->a, &p->d);
    Type t = type_make(DT_F32, 2, (int64_t[]){8, 8});
    Val in[3];
    for (int i = 0; i < 3; i++)
        in[i] = i == 2 && twice ? in[0] : graph_value(&p->g, "x", t, VAL_INPUT);
    Val out = build(&p->g, OP_matmul_add, NULL, 3, in, NULL);
    bool *live = NEW(&p->a, bool, p->g.nvals);
    live[out.i] = true;
    ck_assert_msg(out.i && lower(&p->c, &p->a, &p->g, p->g.order, 1, live, &p->d), "%s", p->d.msg);
}

/* Operands that may share their memory with another one are not declared restrict. */
START_TEST(only_lone_operands_are_restrict)
{
    ProductSum p;
    product_sum(&p, false);
    ck_assert(kernel_inplace(&p.c.k, 2, 3));
    char *text = kernel_text(&p.c.k);
    for (int i = 0; i < 4; i++) {
        char operand[40];
        snprintf(operand, sizeof operand, "*%sx%d_, ", i < 2 ? "__restrict__ " : "", i);
        ck_assert_msg(strstr(text, operand) != NULL, "no '%s' in:\n%s", operand, text);
    }
    free(text);
    arena_free(&p.a);
}
END_TEST

/* The result of x w + c may take over the memory of c, unless c is the factor x, which is still read then. */
START_TEST(a_factor_is_not_taken_over)
{
    for (int twice = 0; twice < 2; twice++) {
        ProductSum p;
        product_sum(&p, twice);
        ck_assert_int_eq(p.c.nread, 3);
        ck_assert_int_eq(command_inplace(&p.c, 2, 3), !twice);
        arena_free(&p.a);
    }
}
END_TEST

START_TEST(equal_kernels_are_one_function)
{
    Arena a = {0};
    RandomKernel r[3];
    const Kernel *k[3];
    int func[3];
    for (int i = 0; i < 3; i++) {
        random_kernel(&r[i], &a, i == 2 ? 8 : 7, false);
        k[i] = &r[i].k;
    }
    FILE *f = fopen("/dev/null", "w");
    ck_assert_int_eq(codegen_c(f, k, 3, func), 2);
    fclose(f);
    ck_assert_int_eq(func[0], func[1]);
    ck_assert_int_ne(func[0], func[2]);
    arena_free(&a);
}
END_TEST

START_TEST(compiler_errors_are_reported)
{
    Diag d = {0};
    KernelCache c;
    ck_assert(kernel_cache_open(&c, "cache", &d));
    ck_assert(!compile_kernels(&c, "this is not C\n", NULL, 0, &d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    ck_assert_ptr_nonnull(strstr(d.msg, "error"));
}
END_TEST

/* Kernels are compiled for the instruction set that oneDNN is limited to. */
START_TEST(instructions_are_limited)
{
    static const char *const limits[TEST_ISAS] = {
        "#ifdef __AVX__\n#error limit\n#endif\n",
        "#if !defined __AVX2__ || defined __AVX512F__\n#error limit\n#endif\n",
        "#ifndef __AVX512F__\n#error limit\n#endif\n",
        "#ifndef __AVX512F__\n#error limit\n#endif\n",
    };
    Diag d = {0};
    KernelCache c;
    if (!use_isa(_i))
        return;
    ck_assert(kernel_cache_open(&c, "cache", &d));
    ck_assert_msg(compile_kernels(&c, limits[_i], NULL, 0, &d), "%s", d.msg);
    kernel_cache_close(&c);
}
END_TEST

/* The inode of the object in the cache that has the kernel; 0: there is none. */
static ino_t file_of(const KernelCache *c, const Kernel *k)
{
    char path[PATH_MAX + 64], *text = kernel_text(k);
    struct stat st;
    snprintf(path, sizeof path, "%s/%s.so", c->folder.path, kernel_key(compiler_identity(c), text).hex);
    free(text);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* Kernels of layers that differ only in the keys of their dropout call one function. */
START_TEST(keys_share_a_text)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    Kernel k[2];
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g, "graph {\n"
                                  "  input %x: f32[64,32]\n"
                                  "  input %r: i64[2]\n"
                                  "  %y: f32[64,32] = dropout %x, %r {p=0.5, key=3}\n"
                                  "  %z: f32[64,32] = dropout %y, %r {p=0.5, key=4}\n"
                                  "  output %z\n"
                                  "}\n", &d), "%s", d.msg);
    for (int i = 0; i < 2; i++) {
        const Node *n = &g.nodes[g.order[i].i];
        k_init(&k[i], &a, &g, n);
        ck_assert(op_table[OP_dropout]->lower(&k[i], &g, n));
    }
    char *text[] = {kernel_text(&k[0]), kernel_text(&k[1]), kernel_text_keyless(&k[0]),
                    kernel_text_keyless(&k[1])};
    ck_assert(text[0] && text[1] && text[2] && text[3]);
    ck_assert_str_ne(text[0], text[1]);
    ck_assert_str_eq(text[2], text[3]);
    char *source = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&source, &size);
    codegen_shared_c(f, (const Kernel *[]){&k[0], &k[1]}, 2);
    fclose(f);
    char *first = strstr(source, "/* kernel shared_");
    ck_assert(first && !strstr(first + 1, "/* kernel shared_"));
    for (int i = 0; i < 4; i++)
        free(text[i]);
    free(source);
    arena_free(&a);
}
END_TEST

/* Adjacent calls of kernels with one text, whatever their sizes, are one launch on a GPU if none touches what
 * another writes; a launch does not extend over the end of a micro-batch. */
START_TEST(independent_calls_are_one_launch)
{
    static const uint32_t want[][4] = {{2, 0, 1, 1}, {1, 2, 0, 1}};
    Arena a = {0};
    Diag d = {0};
    Graph g;
    Plan p;
    Program pr;
    StepInfo info = {.loss = {0}};
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g,
                              "graph {\n"
                              "  input %x: f32[64]\n"
                              "  input %y: f32[640]\n"
                              "  %a: f32[64] = relu %x\n"
                              "  %b: f32[640] = relu %y\n"
                              "  %c: f32[64] = relu %a\n"
                              "  %d: f32[640] = tanh %y\n"
                              "  output %b\n"
                              "  output %c\n"
                              "  output %d\n"
                              "}\n",
                              &d) &&
                      plan_place(&g, &info, 0, PACK_QUICK, &p, &a, &d) && program_make(&pr, &p, &a, &d),
                  "%s", d.msg);
    for (uint32_t first = 0; first < 2; first++) {
        CudaBatch *batch = cuda_batches(&pr, first, p.nstep, &a);
        for (int i = 0; i < 4; i++)
            ck_assert_uint_eq(batch[i].calls, want[first][i]);
        ck_assert_int_eq(batch[first].kernel->calls, 2);
        int64_t blocks;
        ck_assert_uint_eq(kernel_cuda_launch(batch[first].kernel).phase[0].grid, 2 * 3);
        ck_assert_int_eq(kernel_cuda_keys(batch[first].kernel, &blocks), 1);
        ck_assert_int_eq(blocks, 3);
    }
    arena_free(&a);
}
END_TEST

/* The number that follows `text` in `in`. */
static int number_behind(const char *in, const char *text)
{
    const char *at = strstr(in, text);
    ck_assert_msg(at != NULL, "no '%s' in:\n%s", text, in);
    return atoi(at + strlen(text));
}

/* A norm that is recomputed for its statistics alone sums in the same order (vector width, lanes) as the one
 * that also stores its result, in 16 bits. */
START_TEST(order_of_sums_follows_from_what_they_read)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    int width[2], lanes[2];
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g,
                              "graph {\n"
                              "  input %x: f32[96,768]\n"
                              "  input %w: f32[768]\n"
                              "  input %b: f32[768]\n"
                              "  %y: f32[96,768], %mean: f32[96,1], %rstd: f32[96,1] = "
                              "layer_norm %x, %w, %b {axis=1}\n"
                              "  %h: bf16[96,768] = cast %y\n"
                              "  output %h\n"
                              "  output %mean\n"
                              "  output %rstd\n"
                              "}\n",
                              &d),
                  "%s", d.msg);
    bool *live = NEW(&a, bool, g.nvals);
    live[g.out[1].i] = live[g.out[2].i] = true;
    for (int all = 0; all < 2; all++) {
        Command c;
        char *text = NULL;
        size_t size = 0;
        live[g.out[0].i] = all;
        ck_assert_msg(lower(&c, &a, &g, g.order, all ? 2 : 1, live, &d), "%s", d.msg);
        FILE *f = open_memstream(&text, &size);
        kernel_print_cuda(&c.k, "k", f);
        fclose(f);
        width[all] = number_behind(text, "j = q * ");
        lanes[all] = number_behind(text, "JOIN_THREADS(row, sum, REAL, a2, part, ");
        free(text);
    }
    ck_assert_int_eq(width[0], width[1]);
    ck_assert_int_eq(lanes[0], lanes[1]);
    arena_free(&a);
}
END_TEST

/* The same holds if the scale varies along only one of two reduced dimensions: a kernel for the statistics
 * alone, which does not read the scale, does not merge the two. */
START_TEST(order_of_sums_follows_from_what_their_nodes_read)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    int lanes[2], rank[2];
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g,
                              "graph {\n"
                              "  input %x: f32[2,16,8]\n"
                              "  input %w: f32[16,1]\n"
                              "  %y: f32[2,16,8], %mean: f32[2,1,1], %rstd: f32[2,1,1] = "
                              "layer_norm %x, %w {axis=1}\n"
                              "  output %y\n"
                              "  output %mean\n"
                              "  output %rstd\n"
                              "}\n",
                              &d),
                  "%s", d.msg);
    bool *live = NEW(&a, bool, g.nvals);
    live[g.out[1].i] = live[g.out[2].i] = true;
    for (int all = 0; all < 2; all++) {
        Command c;
        Sched s;
        live[g.out[0].i] = all;
        ck_assert_msg(lower(&c, &a, &g, g.order, 1, live, &d), "%s", d.msg);
        char *text = kernel_text(&c.k);
        lanes[all] = number_behind(text, "REAL a2[");
        sched_make(&s, &c.k, 0, &a);
        rank[all] = s.rank;
        free(text);
    }
    ck_assert_int_eq(lanes[0], lanes[1]);
    ck_assert_int_eq(rank[0], rank[1]);
    arena_free(&a);
}
END_TEST

/* A sum of columns is cut into the same chunks with and without another reduction of the same columns. */
START_TEST(chunks_of_a_sum_do_not_follow_from_what_else_is_summed)
{
    Arena a = {0};
    Diag d = {0};
    Graph g;
    int chunks[2];
    graph_init(&g, &a, &d);
    ck_assert_msg(graph_parse(&g,
                              "graph {\n"
                              "  input %x: f32[16384,2048]\n"
                              "  %sum: f32[2048] = reduce_sum %x {axes=[0], keepdims=0}\n"
                              "  %most: f32[2048] = reduce_max %x {axes=[0], keepdims=0}\n"
                              "  output %sum\n"
                              "  output %most\n"
                              "}\n",
                              &d),
                  "%s", d.msg);
    bool *live = NEW(&a, bool, g.nvals);
    live[g.out[0].i] = true;
    for (int both = 0; both < 2; both++) {
        Command c;
        live[g.out[1].i] = both;
        ck_assert_msg(lower(&c, &a, &g, g.order, 1 + both, live, &d), "%s", d.msg);
        char *text = kernel_text(&c.k);
        chunks[both] = number_behind(text, "item = work / ");
        free(text);
    }
    ck_assert_int_eq(chunks[0], chunks[1]);
    arena_free(&a);
}
END_TEST

/* Every value of a long reduction counts once; the error of a sum of equal values is far below that of adding
 * them to an accumulator one after the other, 8e-6 to 6e-5. */
START_TEST(long_sums_are_blocked)
{
    static const struct {
        int64_t n[3];
        int kept; /* the dimension that is not reduced */
    } cases[] = {{{1, 300001, 3}, 2}, {{1, 40, 70001}, 1}, {{500, 40, 100}, 1}, {{201, 33, 2600}, 1}};
    const int64_t *n = cases[_i].n;
    int kept = cases[_i].kept;
    int64_t all = n[0] * n[1] * n[2], inside = kept == 2 ? 1 : n[2], rows = all / n[kept];
    Arena a = {0};
    Diag d = {0};
    Graph g;
    Command c;
    KernelObjects o;
    KernelCache cache;
    KernelFn *fn;
    graph_init(&g, &a, &d);
    const char *text =
        format("graph {\n"
               "  input %%x: f32[%d,%d,%d]\n"
               "  %%sum: f32[%d] = reduce_sum %%x {axes=[0,%d], keepdims=0}\n"
               "  %%most: f32[%d] = reduce_max %%x {axes=[0,%d], keepdims=0}\n"
               "  output %%sum\n"
               "  output %%most\n"
               "}\n",
               (int)n[0], (int)n[1], (int)n[2], (int)n[kept], 3 - kept, (int)n[kept], 3 - kept);
    ck_assert_msg(graph_parse(&g, text, &d), "%s", d.msg);
    bool *live = NEW(&a, bool, g.nvals);
    live[g.out[0].i] = live[g.out[1].i] = true;
    ck_assert_msg(lower(&c, &a, &g, g.order, 2, live, &d), "%s", d.msg);
    ck_assert(kernel_cache_open(&cache, "cache", &d));
    ck_assert_msg(kernels_load(&(const Kernel *){&c.k}, 1, &cache, &fn, &o, &d), "%s", d.msg);
    float *x = NEW(&a, float, all), *sum = NEW(&a, float, n[kept]), *most = NEW(&a, float, n[kept]);
    for (int64_t i = 0; i < all; i++)
        x[i] = 0.1f;
    for (int64_t j = 0; j < n[kept]; j++) /* of a row or column the value that its number says */
        x[kept == 2 ? j * 1000 * n[2] + j : (j * n[2]) + j % inside] = 7;
    fn((void *[]){x, sum, most});
    for (int64_t j = 0; j < n[kept]; j++) {
        ck_assert_double_eq_tol(sum[j] / ((double)(rows - 1) * (double)0.1f + 7), 1, 4e-6);
        ck_assert_float_eq(most[j], 7);
    }
    kernels_unload(&o);
    arena_free(&a);
}
END_TEST

/* Loading kernels a second time compiles only the one that is new and the one whose object is broken. */
START_TEST(kernels_are_compiled_once)
{
    enum { N = 4 };
    Arena a = {0};
    Diag d = {0};
    RandomKernel r[N];
    const Kernel *k[N];
    KernelFn *fn[N];
    KernelObjects o;
    KernelCache c;
    ino_t first[N];
    ck_assert(kernel_cache_open(&c, "cache", &d));
    for (int i = 0; i < N; i++) {
        random_kernel(&r[i], &a, 20 + (uint64_t)i, false);
        k[i] = &r[i].k;
    }
    ck_assert_msg(kernels_load(k, N - 1, &c, fn, &o, &d), "%s", d.msg);
    kernels_unload(&o);
    for (int i = 0; i < N; i++)
        first[i] = file_of(&c, k[i]);
    ck_assert(first[0] && first[0] == first[1] && first[0] == first[2] && !first[3]);
    char *text = kernel_text(k[1]);
    const char *path = format("cache/%s.so", kernel_key(compiler_identity(&c), text).hex);
    free(text);
    ck_assert_int_eq(unlink(path), 0);
    write_text(path, "broken");
    ck_assert_msg(kernels_load(k, N, &c, fn, &o, &d), "%s", d.msg);
    kernels_unload(&o);
    ck_assert(file_of(&c, k[0]) == first[0] && file_of(&c, k[2]) == first[2]);
    ck_assert(file_of(&c, k[1]) == file_of(&c, k[3]) && file_of(&c, k[3]) != first[0]);
    arena_free(&a);
}
END_TEST

Suite *suite_codegen(void)
{
    Suite *s = suite_create("codegen");
    TCase *t = tcase_create("c");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, functions_are_accurate);
    tcase_add_test(t, power_is_accurate);
    tcase_add_test(t, halves_round_to_even);
    tcase_add_test(t, philox_is_random123);
    tcase_add_loop_test(t, random_kernels, 0, NSEEDS);
    tcase_add_test(t, only_lone_operands_are_restrict);
    tcase_add_test(t, a_factor_is_not_taken_over);
    tcase_add_test(t, equal_kernels_are_one_function);
    tcase_add_test(t, compiler_errors_are_reported);
    tcase_add_loop_test(t, instructions_are_limited, 0, TEST_ISAS);
    tcase_add_test(t, keys_share_a_text);
    tcase_add_test(t, independent_calls_are_one_launch);
    tcase_add_test(t, order_of_sums_follows_from_what_they_read);
    tcase_add_test(t, order_of_sums_follows_from_what_their_nodes_read);
    tcase_add_test(t, chunks_of_a_sum_do_not_follow_from_what_else_is_summed);
    tcase_add_loop_test(t, long_sums_are_blocked, 0, 4);
    tcase_add_test(t, kernels_are_compiled_once);
    suite_add_tcase(s, t);
    return s;
}
