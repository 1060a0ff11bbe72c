/* command.c -- folders and small files of tests, and runs of ckc. */
#include "tests.h"
#include "command.h"
#include "runtime/data.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- folders ------------------------------------------------------------------------------------- */

enum { FOLDER = 32 };
static char folder[FOLDER], cache[FOLDER];

static void make(char path[FOLDER])
{
    strcpy(path, "/tmp/ckc-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    ck_assert_int_eq(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void make_folder(void)
{
    make(folder);
    ck_assert_int_eq(chdir(folder), 0);
}

void remove_folder(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    remove_tree(folder);
}

void remove_clean_folder(void)
{
    ck_assert_int_eq(files_like("*.tmp"), 0);
    remove_folder();
}

const char *folder_path(void) { return folder; }

void make_empty_cache(void)
{
    make(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
}

void make_cache(void)
{
    const char *shared = getenv("CKC_TEST_CACHE");
    if (shared)
        setenv("XDG_CACHE_HOME", shared, 1);
    else
        make_empty_cache();
}

void remove_cache(void)
{
    if (cache[0])
        remove_tree(cache);
    cache[0] = 0;
}

TCase *command_case(Suite *s, const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_unchecked_fixture(t, make_cache, remove_cache);
    suite_add_tcase(s, t);
    return t;
}

int files_in(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    ck_assert_msg(dir != NULL, "%s", path);
    for (const struct dirent *e; (e = readdir(dir));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

int files_here(void)
{
    return files_in(".") - (access("out", F_OK) == 0) - (access("err", F_OK) == 0);
}

int files_like(const char *pattern)
{
    glob_t g;
    int n = glob(pattern, 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    globfree(&g);
    return n;
}

/* ---- files --------------------------------------------------------------------------------------- */

void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s", path);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

char *read_text(const char *path)
{
    char *text = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s", path);
    if (getdelim(&text, &room, 0, f) < 0)
        *text = 0; /* the file is empty */
    fclose(f);
    return text;
}

json_t *read_json(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    ck_assert_msg(j != NULL, "%s: %s", path, e.text);
    return j;
}

double real_of(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    ck_assert_msg(json_is_number(v), "no number '%s'", key);
    return json_number_value(v);
}

int64_t json_number(const char *path, const char *key)
{
    json_t *j = read_json(path), *v = json_object_get(j, key);
    ck_assert_msg(json_is_integer(v), "%s: no number '%s'", path, key);
    int64_t n = json_integer_value(v);
    json_decref(j);
    return n;
}

void write_equal_rows(const char *path, int64_t rows, int64_t columns, float value, Tensor target)
{
    Diag d = {0};
    float *x = calloc((size_t)(rows * columns) + 1, sizeof *x);
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = value;
    NamedTensor v[] = {{"x", {type_make(DT_F32, 2, (int64_t[]){rows, columns}), x}}, {"target", target}};
    ck_assert_msg(npz_write(path, target.data ? 2 : 1, v, &d), "%s", d.msg);
    free(x);
}

Tensor rows_of_class(int64_t n, int64_t *data, int64_t value)
{
    for (int64_t i = 0; i < n; i++)
        data[i] = value;
    return (Tensor){type_make(DT_I64, 1, &n), data};
}

/* ---- commands -------------------------------------------------------------------------------------- */

const char *ckc_binary = CKC_BINARY;

const char *format(const char *fmt, ...)
{
    static char text[8192];
    va_list ap;
    va_start(ap, fmt);
    ck_assert_int_lt(vsnprintf(text, sizeof text, fmt, ap), (int)sizeof text);
    va_end(ap);
    return text;
}

int shell(const char *command)
{
    int status = system(command);
    ck_assert_msg(WIFEXITED(status), "%s", command);
    return WEXITSTATUS(status);
}

void same_file(const char *a, const char *b)
{
    char command[300];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    ck_assert_msg(shell(command) == 0, "%s and %s differ", a, b);
}

pid_t ckc_start(const char *before, const char *args)
{
    static char command[16384];
    int n = snprintf(command, sizeof command, "%s exec '%s' >out 2>err %s", before, ckc_binary, args);
    ck_assert_int_lt(n, (int)sizeof command);
    unlink("out"); /* whoever waits for a line must not see one of an earlier run */
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

int ckc_end(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "ckc: signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

int ckc(const char *args) { return ckc_end(ckc_start("", args)); }

static void check_end(const char *args, pid_t pid, int status, const char *says)
{
    int got = ckc_end(pid);
    char *err = read_text("err");
    const char *newline = strchr(err, '\n');
    ck_assert_msg(got == status, "ckc %s: exit status %d, wanted %d: %s", args, got, status, err);
    ck_assert_msg(newline && !newline[1], "ckc %s: not one line: '%s'", args, err);
    ck_assert_msg(strncmp(err, "ckc", 3) == 0, "ckc %s: %s", args, err);
    ck_assert_msg(strstr(err, says) != NULL, "ckc %s: '%s' does not say '%s'", args, err, says);
    free(err);
}

void ckc_ends(pid_t pid, int status, const char *says) { check_end("", pid, status, says); }

void ckc_fails(const char *before, const char *args, int status, const char *says)
{
    check_end(args, ckc_start(before, args), status, says);
}

void ckc_refuses(const char *args, int status, const char *says)
{
    int before = files_here();
    ckc_fails("", args, status, says);
    char *out = read_text("out");
    ck_assert_msg(!*out, "ckc %s: printed '%s'", args, out);
    ck_assert_msg(files_here() == before, "ckc %s: wrote something", args);
    free(out);
}

void ckc_accepts(const char *args)
{
    int got = ckc(args);
    char *err = read_text("err");
    ck_assert_msg(got == 0 && !*err, "ckc %s: exit status %d: %s", args, got, err);
    free(err);
}

void ckc_prints(const char *args, const char *text)
{
    ckc_accepts(args);
    char *out = read_text("out");
    ck_assert_msg(strstr(out, text) != NULL, "ckc %s: '%s' does not say '%s'", args, out, text);
    free(out);
}

int64_t ckc_least_budget(void)
{
    static const char says[] = "smallest known to be feasible is ";
    char *err = read_text("err"), *at = strstr(err, says);
    ck_assert_msg(at != NULL, "%s", err);
    int64_t bytes = strtoll(at + sizeof says - 1, NULL, 10);
    free(err);
    return bytes;
}
