/* tests.h -- the suites that main.c runs. */
#ifndef CKC_TESTS_H
#define CKC_TESTS_H
#include <check.h>
#undef fail /* an old name of Check; ours is in ir.h */

#define SUITE(name) Suite *suite_##name(void);
#include "suites.def"
#undef SUITE

/* Path below ../shared (CKC_SHARED), NULL with "skipped" printed when it is not there.  Static. */
const char *shared_path(const char *name);
#endif
