/* test_oom.c -- an allocation that fails ends ckc with a message and exit status 4, wherever it is made.
 * Every 997th fails here, one in each run; tests/oom.sh lets all of them fail. */
#include "tests.h"
#include "command.h"

START_TEST(allocations_may_fail)
{
    ck_assert_int_eq(shell("'" CKC_SOURCE_DIR "/tests/oom.sh' '" CKC_OOM_BINARY "' 5 997 '" CKC_OOM_API "'"),
                     0);
}
END_TEST

Suite *suite_oom(void)
{
    Suite *s = suite_create("oom");
    TCase *t = tcase_create("oom");
    tcase_set_timeout(t, 240);
    tcase_add_test(t, allocations_may_fail);
    suite_add_tcase(s, t);
    return s;
}
