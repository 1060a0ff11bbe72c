/* test_remat_board.c -- the solver's board: runs moved aside, added, slid and taken back hold what
 * an evaluation from scratch says. */
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
    ck_assert_int_eq(peak, levels_peak(&b->levels) * b->quantum);
    for (int32_t t = 0, i = 0; t < b->T; t++)
        if (b->op[t] >= 0)
            ck_assert_int_eq(bytes[i++], levels_at(&b->levels, t) * b->quantum);
    free(bytes);
    seq_free(&s);
}

typedef struct {
    RematInstance inst;
    Problem p;
    Board b;
    Rng rng;
} Fixture;

/* The graph in input order on a board. */
static void set_up(Fixture *f)
{
    char err[REMAT_ERR];
    Seq s = {0};
    f->rng = (Rng){1};
    ck_assert_msg(remat_parse(graph, &f->inst, NULL, err), "%s", err);
    ck_assert(problem_init(&f->p, &f->inst, err));
    board_init(&f->b, &f->p, 120);
    for (int32_t i = 0; i < f->p.nops; i++)
        seq_push(&s, i);
    board_load(&f->b, &s, NULL);
    seq_free(&s);
}

static void tear_down(Fixture *f)
{
    board_free(&f->b);
    problem_free(&f->p);
    remat_free(&f->inst);
}

START_TEST(room_is_made_where_none_is)
{
    Fixture f;
    set_up(&f);
    Board *b = &f.b;
    for (int i = 0; i < 3000; i++) {
        int64_t excess = b->levels.excess;
        board_begin(b);
        int32_t slot = b->event[rng_below(&f.rng, b->nevents)], op = b->op[slot];
        b->held[0] = slot;
        b->held[1] = -1;
        if (board_open(b, slot)) {
            ck_assert_int_eq(b->op[b->held[0]], op);
            ck_assert_int_lt(b->op[slot], 0);
            ck_assert_int_eq(b->levels.excess, excess);
            check_board(b);
            int32_t other = rng_below(&f.rng, f.p.nops);
            if (b->nevents < 40 && board_add(b, other, 0, slot))
                check_board(b);
        }
        if (b->nevents >= 40 || rng_below(&f.rng, 4)) {
            board_undo(b);
            ck_assert_int_eq(b->levels.excess, excess);
            ck_assert_int_eq(b->op[slot], op);
        }
        check_board(b);
    }
    ck_assert_int_gt(b->nevents, 2 * f.p.nops); /* it did get crowded */
    tear_down(&f);
}
END_TEST

/* A free slot that the run at `from` may move to, -1 = none was met. */
static int32_t slot_in_window(Fixture *f, int32_t from)
{
    const Board *b = &f->b;
    const Problem *p = &f->p;
    int32_t op = b->op[from], lo = -1, hi = board_first_reader(b, from);
    for (int32_t k = 0; k < b->runs[op].n; k++) {
        int32_t run = b->runs[op].at[k];
        lo = run < from && run > lo ? run : lo;
        hi = run > from && run < hi ? run : hi;
    }
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t start = board_copy_start(b, p->in.at[k], from);
        lo = start > lo ? start : lo;
    }
    return board_free_slot(b, lo, hi, rng_below(&f->rng, b->T));
}

START_TEST(runs_move_within_their_window)
{
    Fixture f;
    set_up(&f);
    Board *b = &f.b;
    int moved = 0;
    for (int i = 0; i < 3000; i++) {
        int32_t from = b->event[rng_below(&f.rng, b->nevents)], op = b->op[from];
        int32_t to = slot_in_window(&f, from);
        int64_t excess = b->levels.excess;
        board_begin(b);
        if (b->nevents < 24 && i % 8 == 0)
            board_add(b, rng_below(&f.rng, f.p.nops), 0, board_free_slot(b, -1, b->T, from));
        else if (to >= 0 && board_move(b, from, to)) {
            ck_assert_int_eq(b->op[to], op);
            check_board(b);
            moved++;
            if (rng_below(&f.rng, 2)) {
                board_undo(b);
                ck_assert_int_eq(b->levels.excess, excess);
                ck_assert_int_eq(b->op[from], op);
            }
        }
        check_board(b);
    }
    ck_assert_int_gt(moved, 2000);
    tear_down(&f);
}
END_TEST

Suite *suite_remat_board(void)
{
    Suite *s = suite_create("remat board");
    TCase *t = tcase_create("room");
    tcase_add_test(t, room_is_made_where_none_is);
    tcase_add_test(t, runs_move_within_their_window);
    suite_add_tcase(s, t);
    return s;
}
