/* test_remat_state.c -- the solver's schedule state: after runs are moved aside, added, moved in their window
 * and taken back, its cost and bytes are those of an evaluation from scratch. */
#include "passes/remat/anneal.h"
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
                            "8 1 10 7 4 5\n"
                            "link 1000\nfetch 1 1 30\nfetch 3 2 56\nfetch 6 1 20\n";

static void check_state(const State *st)
{
    const Levels *l = &st->levels;
    int64_t excess = 0;
    char err[REMAT_ERR];
    Seq s = {0};
    state_store(st, &s);
    int64_t *bytes = RM_NEW(int64_t, s.n), cost, peak;
    ck_assert_msg(remat_profile(st->p->inst, s.op, s.n, NULL, bytes, err), "%s", err);
    ck_assert(remat_evaluate(st->p->inst, s.op, s.n, NULL, &cost, &peak, err));
    ck_assert_int_eq(cost, st->cost);
    ck_assert_int_eq(peak, levels_peak(l) * st->quantum);
    for (int32_t t = 0, i = 0; t < st->T; t++)
        if (st->op[t] >= 0)
            ck_assert_int_eq(bytes[i++], levels_at(l, t) * st->quantum);
    for (int32_t t = 0; t < st->T; t++)
        excess += levels_at(l, t) > l->limit ? levels_at(l, t) - l->limit : 0;
    ck_assert_int_eq(l->shift, 0);
    ck_assert_int_eq(excess, l->excess);
    free(bytes);
    seq_free(&s);
}

typedef struct {
    RematInstance inst;
    Problem p;
    State st;
    Rng rng;
} Fixture;

/* Loads the graph's operators, in input order, into the state. */
static void set_up(Fixture *f)
{
    char err[REMAT_ERR];
    Seq s = {0};
    f->rng = (Rng){1};
    ck_assert_msg(remat_parse(graph, &f->inst, NULL, err), "%s", err);
    ck_assert(problem_init(&f->p, &f->inst, err));
    state_init(&f->st, &f->p, 120);
    for (int32_t i = 0; i < f->p.nops; i++)
        seq_push(&s, i);
    state_load(&f->st, &s, NULL);
    seq_free(&s);
}

static void tear_down(Fixture *f)
{
    state_free(&f->st);
    problem_free(&f->p);
    remat_free(&f->inst);
}

START_TEST(room_is_made_where_none_is)
{
    Fixture f;
    set_up(&f);
    State *st = &f.st;
    for (int i = 0; i < 3000; i++) {
        int64_t excess = st->levels.excess;
        state_begin(st);
        int32_t slot = st->event[rng_below(&f.rng, st->nevents)], op = st->op[slot];
        st->held[0] = slot;
        st->held[1] = -1;
        if (state_open(st, slot)) {
            ck_assert_int_eq(st->op[st->held[0]], op);
            ck_assert_int_lt(st->op[slot], 0);
            ck_assert_int_eq(st->levels.excess, excess);
            check_state(st);
            int32_t other = rng_below(&f.rng, f.p.nall);
            if (st->nevents < 40 && state_add(st, other, 0, slot))
                check_state(st);
        }
        if (st->nevents >= 40 || rng_below(&f.rng, 4)) {
            state_undo(st);
            ck_assert_int_eq(st->levels.excess, excess);
            ck_assert_int_eq(st->op[slot], op);
        }
        check_state(st);
    }
    ck_assert_int_gt(st->nevents, 2 * f.p.nops); /* the state did get crowded */
    tear_down(&f);
}
END_TEST

/* Returns a free slot that the run at `from` may move to; -1: none was found. */
static int32_t slot_in_window(Fixture *f, int32_t from)
{
    const State *st = &f->st;
    const Problem *p = &f->p;
    int32_t op = st->op[from], lo = -1, hi = state_first_reader(st, from);
    const Slots *runs = &st->runs[p->origin[op]];
    for (int32_t k = 0; k < runs->n; k++) {
        int32_t run = runs->at[k];
        lo = run < from && run > lo ? run : lo;
        hi = run > from && run < hi ? run : hi;
    }
    for (int32_t k = p->in.first[op]; k < p->in.first[op + 1]; k++) {
        int32_t start = state_copy_start(st, p->in.at[k], from);
        lo = start > lo ? start : lo;
    }
    return state_free_slot(st, lo, hi, rng_below(&f->rng, st->T));
}

START_TEST(runs_move_within_their_window)
{
    Fixture f;
    set_up(&f);
    State *st = &f.st;
    int moved = 0;
    for (int i = 0; i < 3000; i++) {
        int32_t from = st->event[rng_below(&f.rng, st->nevents)], op = st->op[from];
        int32_t to = slot_in_window(&f, from);
        int64_t excess = st->levels.excess;
        state_begin(st);
        if (st->nevents < 24 && i % 8 == 0)
            state_add(st, rng_below(&f.rng, f.p.nall), 0, state_free_slot(st, -1, st->T, from));
        else if (to >= 0 && state_move(st, from, to)) {
            ck_assert_int_eq(st->op[to], op);
            check_state(st);
            moved++;
            if (rng_below(&f.rng, 2)) {
                state_undo(st);
                ck_assert_int_eq(st->levels.excess, excess);
                ck_assert_int_eq(st->op[from], op);
            }
        }
        check_state(st);
    }
    ck_assert_int_gt(moved, 2000);
    tear_down(&f);
}
END_TEST

/* The operators with a needless run of 0 and 1: all are removed, but none behind the deadline. */
START_TEST(polishing_ends_at_the_deadline)
{
    Fixture f;
    Search s;
    Seq seq = {0};
    set_up(&f);
    for (int32_t i = 0; i < f.p.nops; i++) {
        for (int32_t again = 0; i == 3 && again < 2; again++)
            seq_push(&seq, again);
        seq_push(&seq, i);
    }
    search_init(&s, &f.p, 1000, 1);
    search_load(&s, &seq, NULL);
    search_polish(&s, 1e-9);
    ck_assert_int_eq(s.best.n, f.p.nops + 2);
    search_polish(&s, 0);
    ck_assert_int_eq(s.best.n, f.p.nops);
    check_state(&s.state);
    search_free(&s);
    seq_free(&seq);
    tear_down(&f);
}
END_TEST

/* `length` operators that run forward and as many that read their results backward, and their order. */
static void make_chain(int32_t length, RematInstance *inst, Problem *p, Seq *order)
{
    char *text, err[REMAT_ERR];
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int32_t i = 0; i < length; i++)
        fprintf(f, i ? "%d 1 1 %d\n" : "%d 1 1\n", i, i - 1);
    for (int32_t i = length; i < 2 * length; i++)
        fprintf(f, i > length ? "%d 1 1 %d %d\n" : "%d 1 1 %d\n", i, i - 1, 2 * length - 1 - i);
    fclose(f);
    ck_assert_msg(remat_parse(text, inst, NULL, err), "%s", err);
    ck_assert(problem_init(p, inst, err));
    for (int32_t i = 0; i < 2 * length; i++)
        seq_push(order, i);
    free(text);
}

/* Values that span many blocks have the levels of an evaluation from scratch. */
START_TEST(long_lives_are_loaded)
{
    enum { N = 1000 };
    RematInstance inst;
    Problem p;
    State st;
    Seq s = {0};
    make_chain(N, &inst, &p, &s);
    state_init(&st, &p, N / 2);
    state_load(&st, &s, NULL);
    check_state(&st);
    seq_free(&s);
    state_free(&st);
    problem_free(&p);
    remat_free(&inst);
}
END_TEST

/* Within fewer bytes than any schedule needs runs gather where bytes are missing; they are spread again
 * before most of the time goes to making room among them. */
START_TEST(crowded_runs_are_spread)
{
    enum { N = 60, MOVES = 60000 };
    RematInstance inst;
    Problem p;
    Search s;
    Seq order = {0};
    make_chain(N, &inst, &p, &order);
    search_init(&s, &p, 2, 1);
    search_load(&s, &order, NULL);
    ck_assert(!search_reach(&s, MOVES, MOVES, (Cooling){.hot = 16, .weight = 1}, 0));
    ck_assert_int_lt(s.state.shifted, 40 * (int64_t)s.state.T);
    check_state(&s.state);
    search_free(&s);
    seq_free(&order);
    problem_free(&p);
    remat_free(&inst);
}
END_TEST

Suite *suite_remat_state(void)
{
    Suite *s = suite_create("remat state");
    TCase *t = tcase_create("room");
    tcase_add_test(t, room_is_made_where_none_is);
    tcase_add_test(t, runs_move_within_their_window);
    tcase_add_test(t, polishing_ends_at_the_deadline);
    tcase_add_test(t, long_lives_are_loaded);
    tcase_add_test(t, crowded_runs_are_spread);
    suite_add_tcase(s, t);
    return s;
}
