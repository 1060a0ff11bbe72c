/* command.h -- helpers that tests share: a folder to work in, small files, and ckc run as users run it. */
#ifndef CKC_TESTS_COMMAND_H
#define CKC_TESTS_COMMAND_H
#include "tests.h"
#include "ir/ir.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- folders and files ------------------------------------------------------------------------- */

/* Checked fixture: every test gets a fresh folder, which is its working folder. */
void make_folder(void);
void remove_folder(void);
void remove_clean_folder(void); /* fails the test if a temporary file was left in the folder */
const char *folder_path(void); /* the folder's absolute path */
/* Unchecked fixtures: the tests of a case share a cache that starts empty.  With make_cache() it is instead
 * the one that all suites of a run share, if the environment names that in CKC_TEST_CACHE. */
void make_cache(void);
void make_empty_cache(void);
void remove_cache(void);
/* Adds a case to s whose tests run ckc: it has the fixtures of make_folder() and of make_cache(). */
TCase *command_case(Suite *s, const char *name);

int files_in(const char *folder); /* the number of its entries */
int files_here(void);             /* the same of the working folder, but for the files out and err (below) */
int files_like(const char *pattern); /* the number of files that match a pattern of glob(7) */
void write_bytes(const char *path, const void *data, size_t n);
void write_text(const char *path, const char *text);
char *read_text(const char *path); /* the file's text; the caller frees it */
json_t *read_json(const char *path);
double real_of(json_t *o, const char *key); /* the number that o has as `key`; none fails the test */
int64_t json_number(const char *path, const char *key); /* the integer `key` of the object in that file */
/* Writes an npz with float x[rows, columns], all elements equal to value, and a target unless it is empty. */
void write_equal_rows(const char *path, int64_t rows, int64_t columns, float value, Tensor target);
Tensor rows_of_class(int64_t n, int64_t *data, int64_t value); /* a target of n rows, in data[n] */

/* A formatted line for the functions below.  It is static: the next call overwrites it. */
const char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Runs a line of the shell; returns its exit status. */
int shell(const char *command);
void same_file(const char *a, const char *b);

/* ---- running ckc --------------------------------------------------------------------------------- */

/* `args` are words for the shell behind the command's name, "-o p --save w.onnx >/dev/full".  What ckc prints
 * goes to the files out and err of the working folder, unless `args` redirect it. */
extern const char *ckc_binary; /* path of the ckc that runs: this build's, unless the test sets another */

/* Starts ckc in the background; its shell first does `before`, for instance "ulimit -f 8;". */
pid_t ckc_start(const char *before, const char *args);
int ckc_end(pid_t pid); /* waits for it and returns its exit status; a signal fails the test */
int ckc(const char *args); /* runs ckc and returns its exit status */
/* Checks that ckc ends with that status and one line on standard error, which contains `says`.  ckc_ends()
 * waits for one that was started, ckc_fails() also starts it. */
void ckc_ends(pid_t pid, int status, const char *says);
void ckc_fails(const char *before, const char *args, int status, const char *says);
/* ckc_fails(), and checks that ckc prints nothing else and leaves no new file in the working folder. */
void ckc_refuses(const char *args, int status, const char *says);
void ckc_accepts(const char *args); /* checks that ckc ends with status 0 and nothing on standard error */
void ckc_prints(const char *args, const char *text); /* ckc_accepts(), and standard output contains `text` */
int64_t ckc_least_budget(void);     /* the least feasible bytes, which err names when a budget was refused */
#endif
