/* command.h -- what tests share: a folder of their own to work in, small files, and ckc run as its users
 * run it. */
#ifndef CKC_TESTS_COMMAND_H
#define CKC_TESTS_COMMAND_H
#include "tests.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- folders and files ------------------------------------------------------------------------- */

/* Checked fixture: a fresh folder per test, which is its working folder. */
void make_folder(void);
void remove_folder(void);
void remove_clean_folder(void); /* in which no temporary file was left */
const char *folder_path(void); /* absolute */
/* Unchecked fixtures: the tests of a case share a cache that starts empty, or for make_cache() that of all
 * suites of a run, if the environment names it in CKC_TEST_CACHE. */
void make_cache(void);
void make_empty_cache(void);
void remove_cache(void);
/* A case of s whose tests run ckc: both fixtures. */
TCase *command_case(Suite *s, const char *name);

int files_in(const char *folder); /* all entries */
int files_here(void);             /* besides the files out and err, see below */
int files_like(const char *pattern); /* glob(7) */
void write_bytes(const char *path, const void *data, size_t n);
void write_text(const char *path, const char *text);
char *read_text(const char *path); /* the caller frees it */
json_t *read_json(const char *path);
double real_of(json_t *o, const char *key); /* that there is */
int64_t json_number(const char *path, const char *key); /* a member of the object in that file */

/* A line for the functions below, until the next call. */
const char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Exit status of a line of the shell. */
int shell(const char *command);
void same_file(const char *a, const char *b);

/* ---- running ckc --------------------------------------------------------------------------------- */

/* ARGS are words for the shell, "-o p --save w.onnx >/dev/full".  What ckc prints lies in the files out
 * and err of the working folder, unless ARGS say otherwise. */
extern const char *ckc_binary; /* which ckc: that of this build, if the test says nothing */

/* In the background; `before` is done in its shell first, "ulimit -f 8;". */
pid_t ckc_start(const char *before, const char *args);
int ckc_end(pid_t pid); /* its exit status; a signal fails the test */
int ckc(const char *args);
/* It ends with that status, and one line on standard error that says so. */
void ckc_ends(pid_t pid, int status, const char *says);
void ckc_fails(const char *before, const char *args, int status, const char *says);
/* Likewise, and prints and writes nothing. */
void ckc_refuses(const char *args, int status, const char *says);
void ckc_accepts(const char *args); /* status 0, nothing on standard error */
void ckc_prints(const char *args, const char *text); /* and this on standard output */
int64_t ckc_least_budget(void);     /* the bytes that err names, where a budget was refused */
#endif
