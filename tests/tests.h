/* tests.h -- the suites that main.c runs. */
#ifndef CKC_TESTS_H
#define CKC_TESTS_H
#include <check.h>
#include <stdbool.h>
#undef fail /* an old name of Check; ours is in ir.h */

#define SUITE(name) Suite *suite_##name(void);
#include "suites.def"
#undef SUITE

/* What the run says at its end: that this test did not look at something, and why.  printf arguments. */
void skipped(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The library, our own products and the ckc that a test starts use instruction set i of TEST_ISAS from
 * now on; before the process's first use of the library.  False, and skipped, where there is no such. */
enum { TEST_ISAS = 4, TEST_AMX = TEST_ISAS };
bool use_isa(int i);

/* Path below ../shared (CKC_SHARED), NULL and skipped when it is not there.  Static. */
const char *shared_path(const char *name);
#endif
