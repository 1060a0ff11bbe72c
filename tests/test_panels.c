/* test_panels.c -- products whose second factor lies in panels of columns (matmul_panels). */
#include "tests.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/cpu.h"
#include "runtime/cpu/onednn.h"

enum { K = 300, N = 192, MOST_ROWS = 64 };
static const int64_t rows[] = {1, 4, 5, 16, MOST_ROWS};
enum { CASES = sizeof rows / sizeof *rows };

static void fill(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)(seed >> 8) / (1 << 23) - 1);
    }
}

static void to_panels(const float *matrix, int64_t columns, float *panels)
{
    for (int64_t i = 0; i < K * N; i++)
        panels[(i % N / columns * K + i / N) * columns + i % columns] = matrix[i];
}

/* Computes y[m, N] = a b by the routine of choose_routine(); b lies in panels of so many columns. */
static void multiply(int64_t m, int64_t columns, const float *a, const float *b, float *y, int threads)
{
    Diag diag = {0};
    DnnlDesc d = {.of = {.op = LIB_MATMUL, .nin = 2, .panels = 1}};
    d.of.in[0] = type_make(DT_F32, 2, (int64_t[]){m, K});
    d.of.in[1] = type_make(DT_F32, 3, (int64_t[]){N / columns, K, columns});
    d.of.out = type_make(DT_F32, 2, (int64_t[]){m, N});
    omp_set_num_threads(threads);
    DnnlOp *op = choose_routine(&d, &diag);
    ck_assert_ptr_nonnull(op);
    ck_assert_int_eq(d.choice, ONEDNN_OWN);
    size_t bytes = ((size_t)onednn_scratch_bytes(op) + 64) / 64 * 64;
    void *scratch = aligned_alloc(64, bytes);
    memset(scratch, 0xff, bytes); /* NaN: what is used must be written first */
    ck_assert_msg(onednn_run(op, (const void *[]){a, b}, y, scratch, &diag), "%s", diag.msg);
    free(scratch);
    onednn_free(op);
}

static void check_close(int64_t m, const float *a, const float *b, const float *y)
{
    for (int64_t i = 0; i < m * N; i++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
            sum += (double)a[i / N * K + k] * b[k * N + i % N];
        ck_assert_double_eq_tol(y[i], sum, 2e-5);
    }
}

/* Products are right and have the same bits with panels of any width and any number of threads: panels as
 * wide as the processor's are multiplied as they lie, others are packed. */
START_TEST(any_width_has_the_same_bits)
{
    static const int64_t columns[] = {3, 8, 16, 32, 0};
    static float a[MOST_ROWS * K], b[K * N], panels[K * N], first[MOST_ROWS * N], y[MOST_ROWS * N];
    int64_t m = rows[_i % CASES];
    if (!use_isa(_i / CASES))
        return;
    fill(a, m * K, 1);
    fill(b, K * N, 2);
    for (int i = 0; columns[i]; i++)
        for (int threads = 1; threads <= 3; threads++) {
            bool is_first = i == 0 && threads == 1;
            to_panels(b, columns[i], panels);
            multiply(m, columns[i], a, panels, is_first ? first : y, threads);
            if (is_first)
                check_close(m, a, b, first);
            else
                ck_assert_mem_eq(first, y, (size_t)(m * N) * sizeof *y);
        }
}
END_TEST

Suite *suite_panels(void)
{
    Suite *s = suite_create("panels");
    TCase *t = tcase_create("panels");
    tcase_add_loop_test(t, any_width_has_the_same_bits, 0, CASES * TEST_ISAS);
    suite_add_tcase(s, t);
    return s;
}
