/* turns.c -- steps that run in turns (ir/turns.c): a few calls in a loop.
 *
 * Scratch: own memory of the turns, then the working memory of the library. */
#include "runtime_int.h"

Turns *turns_make(const Kernel *k, Arena *a)
{
    Turns *t = NEW(a, Turns, 1);
    kernel_turns(k, &t->of, a);
    return t;
}

int turns_texts(Turns *t, Kernel *k[TURN_CALLS], KernelFn **fn[TURN_CALLS])
{
    int n = 0;
    for (int i = 0; i < t->of.ncalls; i++)
        if (!t->lib[i]) {
            k[n] = &t->of.call[i].k;
            fn[n++] = &t->fn[i];
        }
    return n;
}

int64_t turns_scratch(const Turns *t)
{
    int64_t most = 0;
    for (int i = 0; i < t->of.ncalls; i++) {
        int64_t bytes = t->lib[i] ? dnnl_scratch_bytes(t->lib[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    return t->of.own[0] + t->of.own[1] + most;
}

bool turns_run(const Turns *t, void *const *op, void *scratch, Diag *d)
{
    const KernelTurns *of = &t->of;
    void *at[TURN_OPERANDS + TURN_OWN], *operand[TURN_OPERANDS];
    char *own = scratch;
    at[of->noperands] = own;
    at[of->noperands + 1] = own + of->own[0];
    for (int64_t turn = 0; turn < of->turns; turn++) {
        for (int k = 0; k < of->noperands; k++)
            at[k] = op[k] ? (char *)op[k] + turn * of->step[k] : NULL;
        for (int i = 0; i < of->ncalls; i++) {
            const TurnCall *c = &of->call[i];
            if (!turn_has(of, turn, c))
                continue;
            for (int k = 0; k < c->k.noperands; k++)
                operand[k] = at[c->at[k]];
            Call call = {.fn = t->fn[i], .lib = t->lib[i], .nread = c->k.noperands - 1,
                         .op = operand, .scratch = own + of->own[0] + of->own[1]};
            TRY(call_run(&call, d));
        }
    }
    return true;
}
