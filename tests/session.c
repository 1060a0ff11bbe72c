/* session.c -- sessions of ckc.h for tests. */
#include "tests.h"
#include "command.h"
#include "session.h"
#include "runtime/data.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

float x[ROWS][WIDTH];
int64_t target[ROWS];
const ckc_tensor data[] = {{"x", CKC_F32, 2, {ROWS, WIDTH}, x}, {"target", CKC_I64, 1, {ROWS}, target}};
const ckc_tensor batch[] = {{"x", CKC_F32, 2, {4, WIDTH}, x}, {"target", CKC_I64, 1, {4}, target}};

void make_data(void)
{
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)(i * 37 % 23) / 23 - 0.5F;
    for (int i = 0; i < ROWS; i++)
        target[i] = i * 7 % 10;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, data[0].dim), x}},
                       {"target", {type_make(DT_I64, 1, data[1].dim), target}}};
    Diag d = {0};
    ck_assert_msg(npz_write("d.npz", 2, v, &d), "%s", d.msg);
}

const char *const *options(const char *words)
{
    enum { MOST = 15 };
    static const char *texts[MOST];
    static char room[400];
    int n = 0;
    texts[n++] = "bind=batch=4";
    texts[n++] = "threads=1";
    snprintf(room, sizeof room, "%s", words);
    for (char *w = strtok(room, " "); w; w = strtok(NULL, " "))
        texts[n++] = w;
    texts[n] = NULL;
    return texts;
}

const char *command_line(const char *words)
{
    static char line[400];
    char *end = line;
    *line = 0;
    for (const char *w = words; *w; w += strspn(w, " ")) {
        size_t n = strcspn(w, " "), name = strcspn(w, "= ");
        bool valued = name < n;
        end += sprintf(end, "--%.*s%s%.*s ", (int)name, w, valued ? " " : "",
                       valued ? (int)(n - name - 1) : 0, w + name + valued);
        w += n;
    }
    return line;
}

ckc_session *plan(const char *words)
{
    ckc_error e;
    ckc_session *s = ckc_plan(MODEL, options(words), &e);
    ck_assert_msg(s != NULL, "%s: %s", words, e.message);
    ck_assert_int_eq(e.status, CKC_OK);
    return s;
}

void is_error(const ckc_error *e, int status, const char *says)
{
    ck_assert_msg(e->status == status, "status %d, wanted %d: %s", e->status, status, e->message);
    ck_assert_msg(strstr(e->message, says) != NULL, "'%s' does not say '%s'", e->message, says);
    ck_assert_msg(!strpbrk(e->message, "\n\t\033"), "not one line: %s", e->message);
}

bool has_denormals(void)
{
    volatile float least = 0x1p-126F;
    int n = 0;
#pragma omp parallel reduction(+ : n)
    n += least / 16 > 0;
    return n == omp_get_max_threads();
}
