/* tests.h -- the suites that main.c runs, and what every test may use. */
#ifndef CKC_TESTS_H
#define CKC_TESTS_H
#include <check.h>
#include <stdbool.h>
#undef fail /* Check defines an old macro of this name; ir.h defines ckc's own */

#define SUITE(name) Suite *suite_##name(void);
#include "suites.def"
#undef SUITE

/* Reports that the test leaves something out, and why (printf arguments); the run lists all reasons. */
void skipped(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Limits oneDNN, ckc's own matrix products and the ckc processes that the test starts to instruction set i
 * (below TEST_ISAS, or TEST_AMX); called before this process first uses oneDNN.  Returns false, and reports a
 * skip, if the processor lacks the set. */
enum { TEST_ISAS = 4, TEST_AMX = TEST_ISAS };
bool use_isa(int i);

/* The path of a file in ../shared, or in the folder that CKC_SHARED names; NULL, with a skip reported, if it
 * cannot be read.  Valid until the next call. */
const char *shared_path(const char *name);
#endif
