/* test_remat_board.c -- the solver's board: runs moved aside, added and taken back hold what an
 * evaluation from scratch says. */
#include "../passes/remat/board.h"
#include "tests.h"

#include <stdlib.h>

static const char graph[] = "0 5 40\n"
                            "1 7 30 0 ; ws=9\n"
                            "2 3 20 1 ; inplace=1\n"
                            "3 4 50 0 2 ; out=6\n"
                            "4 6 10 3 ; keep\n"
                            "5 2 30 3.1 1 ; ws=4\n"
                            "6 8 20 5 2\n"
                            "7 9 40 6 0 ; inplace=6\n"
                            "8 1 10 7 4 5\n";

static void check_board(const Board *b)
{
    char err[REMAT_ERR];
    Seq s = {0};
    board_store(b, &s);
    int64_t *bytes = RM_NEW(int64_t, s.n), cost, peak;
    ck_assert_msg(remat_profile(b->p->inst, s.op, s.n, NULL, bytes, err), "%s", err);
    ck_assert(remat_evaluate(b->p->inst, s.op, s.n, NULL, &cost, &peak, err));
    ck_assert_int_eq(cost, b->cost);
    ck_assert_int_eq(peak, board_peak(b) * b->quantum);
    for (int32_t t = 0, i = 0; t < b->T; t++)
        if (b->op[t] >= 0)
            ck_assert_int_eq(bytes[i++], (b->mem[t] + b->lazy[t / 64]) * b->quantum);
    free(bytes);
    seq_free(&s);
}

START_TEST(room_is_made_where_none_is)
{
    char err[REMAT_ERR];
    RematInstance inst;
    Problem p;
    Board b;
    Seq s = {0};
    Rng rng = {1};
    ck_assert_msg(remat_parse(graph, &inst, NULL, err), "%s", err);
    ck_assert(problem_init(&p, &inst, err));
    board_init(&b, &p, 120);
    for (int32_t i = 0; i < p.nops; i++)
        seq_push(&s, i);
    board_load(&b, &s, NULL);
    for (int i = 0; i < 3000; i++) {
        int64_t penalty = b.penalty;
        board_begin(&b);
        int32_t slot = b.event[rng_below(&rng, b.nevents)], op = b.op[slot];
        b.held[0] = slot;
        b.held[1] = -1;
        if (board_open(&b, slot)) {
            ck_assert_int_eq(b.op[b.held[0]], op);
            ck_assert_int_lt(b.op[slot], 0);
            ck_assert_int_eq(b.penalty, penalty);
            check_board(&b);
            int32_t other = rng_below(&rng, p.nops);
            if (b.nevents < 40 && board_add(&b, other, 0, slot))
                check_board(&b);
        }
        if (b.nevents >= 40 || rng_below(&rng, 4)) {
            board_undo(&b);
            ck_assert_int_eq(b.penalty, penalty);
            ck_assert_int_eq(b.op[slot], op);
        }
        check_board(&b);
    }
    ck_assert_int_gt(b.nevents, 2 * p.nops); /* it did get crowded */
    board_free(&b);
    problem_free(&p);
    remat_free(&inst);
    seq_free(&s);
}
END_TEST

Suite *suite_remat_board(void)
{
    Suite *s = suite_create("remat board");
    TCase *t = tcase_create("room");
    tcase_add_test(t, room_is_made_where_none_is);
    suite_add_tcase(s, t);
    return s;
}
