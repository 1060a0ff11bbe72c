/* test_overlap.c -- fetches in schedules, and copies that run beside operators (remat_overlap). */
#include "remat_cases.h"
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char with_fetches[] = "0 5 40\n1 7 30 0\n2 3 20 1 ; out=8\n3 4 50 0 2\n4 6 10 3 2.1 1\n"
                                   "5 2 30 4 0\n6 1 8 5 1 ; keep\nlink 90\nhost 50\nfetch 0 1 40\n"
                                   "fetch 2 1 28\n";

/* Instances with fetches are written and read back, and their schedules evaluated: a fetch is refused before
 * its operator has run, and beyond what the link and the host's memory allow. */
START_TEST(fetches_are_operators)
{
    RematInstance inst = parse(with_fetches), back;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    remat_write(&inst, f);
    fclose(f);
    back = parse(text);
    free(text);
    ck_assert_int_eq(back.nops, 7);
    ck_assert_int_eq(back.nfetch, 2);
    ck_assert_int_eq(back.link, 90);
    ck_assert_int_eq(back.ops[8].fetch_of, 2);
    ck_assert_int_eq(back.ops[8].nout, 2);
    int64_t cost, peak;
    const int32_t good[] = {0, 1, 2, 3, 4, 7, 5, 6}, early[] = {7, 0, 1, 2, 3, 4, 5, 6},
                  much[] = {0, 1, 2, 3, 7, 4, 7, 7, 5, 6}, both[] = {0, 1, 2, 3, 4, 7, 8, 5, 6};
    ck_assert_msg(remat_evaluate(&back, good, 8, NULL, &cost, &peak, err), "%s", err);
    ck_assert_int_eq(cost, 29);
    ck_assert(!remat_evaluate(&back, early, 8, NULL, &cost, &peak, err));
    ck_assert_str_eq(err, "step 0: operator 0 is fetched before it runs");
    ck_assert(!remat_evaluate(&back, much, 10, NULL, &cost, &peak, err));
    ck_assert_str_eq(err, "step 7: the fetches take more than the link has");
    ck_assert(!remat_evaluate(&back, both, 9, NULL, &cost, &peak, err));
    ck_assert_str_eq(err, "step 6: what is fetched takes more than the host has");
    remat_free(&inst);
    remat_free(&back);
    inst = parse("0 1 1 ; once\n1 1 1 0\nlink 9\nfetch 0 1 1\n");
    ck_assert(remat_evaluate(&inst, (const int32_t[]){0, 2, 1}, 3, NULL, &cost, &peak, err));
    ck_assert(!remat_evaluate(&inst, (const int32_t[]){0, 0, 1}, 3, NULL, &cost, &peak, err));
    ck_assert_str_eq(err, "step 1: operator 0 must not run again");
    remat_free(&inst);
    ck_assert(!remat_parse("0 1 1\nfetch 0 1 1\nfetch 0 1 1\n", &inst, NULL, err));
    ck_assert_str_eq(err, "operator 0 has two fetches");
    ck_assert(!remat_parse("0 1 1\nfetch 3 1 1\n", &inst, NULL, err));
    ck_assert_str_eq(err, "line 2: operator 3 is unknown");
}
END_TEST

/* remat_overlap moves fetches earlier and holds offloaded values until their copy has ended, without raising
 * the peak; it returns how long operators still wait. */
START_TEST(copies_overlap_within_the_peak)
{
    RematInstance inst = parse("0 5 10\n1 30 40 0\n2 9 10 0 1\n3 90 10 2\n4 50 10 3\n5 20 20 4 1\n"
                               "6 1 1 5 ; keep\nlink 90\nfetch 1 1 40\n");
    int32_t seq[] = {0, 1, 2, 3, 4, 7, 5, 6}, offload[8];
    uint8_t alt[8] = {0};
    int64_t cost, before, after;
    ck_assert(remat_evaluate(&inst, seq, 8, alt, &cost, &before, err));
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 8, 0, offload), 0);
    ck_assert_msg(remat_evaluate(&inst, seq, 8, alt, &cost, &after, err), "%s", err);
    ck_assert_int_le(after, before);
    ck_assert_int_eq(seq[4], 7); /* before the operator that takes 50 */
    ck_assert_int_eq(offload[1], 3); /* held until operators of cost 40 have run */
    for (int k = 0; k < 8; k++)
        ck_assert(k == 1 || offload[k] < 0);
    remat_free(&inst);
    inst = parse("0 5 10\n1 30 40 0\n2 9 10 0 1\n3 90 10 2 1\n4 50 10 3\n5 20 20 4 1\n"
                 "6 1 1 5 ; keep\nlink 90\nfetch 1 1 60\n"); /* 60 beside 50, which it delays by 1 */
    memcpy(seq, (int32_t[]){0, 1, 2, 3, 4, 7, 5, 6}, sizeof seq);
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 8, 0, offload), 9);
    remat_free(&inst);
}
END_TEST

/* Staged state: an update moves to where its gradient is made, its copy in begins earlier by the time it
 * takes, and the room is kept until its copy out has ended. */
START_TEST(staged_copies_run_beside_operators)
{
    RematInstance inst =
        parse("0 5 10\n1 9 4 0\n2 1 0\n3 1 0 1 2\n4 1 0 3\n5 50 10 0\n6 50 10 5\n7 1 1 6 ; keep\n");
    int32_t seq[] = {0, 2, 1, 5, 6, 3, 4, 7}, offload[8], want[] = {0, 2, 1, 3, 5, 6, 4, 7};
    uint8_t alt[8] = {0};
    int64_t cost, peak;
    inst.ops[2].lane = REMAT_IN;
    inst.ops[4].lane = REMAT_OUT;
    inst.ops[2].link = 8;
    inst.ops[4].link = 80;
    inst.ops[2].staged = inst.ops[4].staged = 100;
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 8, 200, offload), 0);
    ck_assert_msg(remat_evaluate(&inst, seq, 8, alt, &cost, &peak, err), "%s", err);
    ck_assert_int_eq(peak, 20);
    ck_assert_msg(memcmp(seq, want, sizeof seq) == 0, "%d %d %d %d %d %d %d %d", seq[0], seq[1], seq[2],
                  seq[3], seq[4], seq[5], seq[6], seq[7]);
    remat_free(&inst);
}
END_TEST

/* An update that moves to where another one has freed bytes does not go between that one and its copy out:
 * both states would be staged at once, in the room of one. */
START_TEST(staged_copies_stay_with_their_update)
{
    RematInstance inst = parse("0 5 10\n1 9 20 0\n2 1 2 1\n3 1 0\n4 1 0 1 3 ; before=2\n5 1 0 4\n"
                               "6 9 20 2\n7 1 0\n8 1 0 6 7\n9 1 0 8\n10 1 1 0 ; keep\n");
    int32_t seq[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, offload[11], at[11];
    uint8_t alt[11] = {0};
    for (int k = 3; k <= 7; k += 4) {
        inst.ops[k].lane = REMAT_IN;
        inst.ops[k + 2].lane = REMAT_OUT;
        inst.ops[k].link = inst.ops[k + 2].link = 1;
        inst.ops[k].staged = inst.ops[k + 2].staged = 100;
    }
    remat_overlap(&inst, seq, alt, 11, 100, offload);
    for (int k = 0; k < 11; k++)
        at[seq[k]] = k;
    ck_assert_int_lt(at[5], at[7]);
    remat_free(&inst);
}
END_TEST

/* Where the room is too small, copies are staged in what their step leaves of the peak, if operators then
 * wait less than half as long. */
START_TEST(staged_copies_use_what_a_step_leaves)
{
    RematInstance inst = parse("0 5 10\n1 0 0\n2 5 10 0\n3 1 0 1 2\n4 1 30 3\n5 1 1 4 ; keep\n");
    int32_t seq[] = {0, 2, 1, 3, 4, 5}, offload[6];
    uint8_t alt[6] = {0};
    inst.ops[1].lane = REMAT_IN;
    inst.ops[1].link = 10;
    inst.ops[1].staged = 5;
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 6, 0, offload), 0);
    ck_assert_int_eq(seq[0], 1); /* 5 bytes: half of what 20 leave of 31; the other half is for copies out */
    inst.ops[1].staged = 12;
    memcpy(seq, (int32_t[]){0, 2, 1, 3, 4, 5}, sizeof seq);
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 6, 0, offload), 10);
    memcpy(seq, (int32_t[]){0, 2, 1, 3, 4, 5}, sizeof seq);
    ck_assert_int_eq(remat_overlap(&inst, seq, alt, 6, 24, offload), 0);
    remat_free(&inst);
}
END_TEST

Suite *suite_overlap(void)
{
    Suite *s = suite_create("overlap");
    TCase *t = tcase_create("copies");
    tcase_add_test(t, fetches_are_operators);
    tcase_add_test(t, copies_overlap_within_the_peak);
    tcase_add_test(t, staged_copies_run_beside_operators);
    tcase_add_test(t, staged_copies_stay_with_their_update);
    tcase_add_test(t, staged_copies_use_what_a_step_leaves);
    suite_add_tcase(s, t);
    return s;
}
