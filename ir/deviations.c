/* deviations.c -- sums of squared deviations (K_DEVIATION) as two sums, in two passes over what they read.
 *
 * A GPU whose threads walk down columns makes one in a single pass (codegen/cuda_column.c), so that the
 * statistics of a batch norm read its data once.  All other back ends run the kernel without them. */
#include "kernel.h"
#include <string.h>

static bool same_instruction(const KInst *a, const KInst *b, int rank)
{
    return a->kind == b->kind && a->type == b->type && memcmp(a->arg, b->arg, sizeof a->arg) == 0 &&
           a->expr == b->expr && a->al == b->al && a->be == b->be && a->imm == b->imm &&
           a->operand == b->operand && a->rounded == b->rounded && a->offset == b->offset &&
           memcmp(a->stride, b->stride, (size_t)rank * sizeof *a->stride) == 0;
}

/* Index of the instruction, which is appended if it is new. */
static int put(Kernel *k, const KInst *in)
{
    uint32_t i = 0;
    while (i < k->nins && !same_instruction(&k->ins[i], in, k->rank))
        i++;
    if (i == k->nins)
        k->ins[k->nins++] = *in;
    return (int)i;
}

static int put_op(Kernel *k, Op op, int a, int b)
{
    return put(k, &(KInst){.kind = K_EXPR, .type = KT_REAL, .arg = {a, b}, .expr = &op_table[op]->expr});
}

static int put_sum(Kernel *k, int v) { return put(k, &(KInst){.kind = K_SUM, .type = KT_REAL, .arg = {v}}); }

/* The sum of squared deviations of v, in the form in which norms have it. */
static int put_deviation(Kernel *k, int v)
{
    double count = 1;
    for (int d = 0; d < k->rank; d++)
        count *= k->red >> d & 1 ? (double)k->extent[d] : 1;
    int inv = put(k, &(KInst){.kind = K_CONST, .type = KT_REAL, .imm = 1.0 / count});
    int less = put_op(k, OP_sub, v, put_op(k, OP_mul, put_sum(k, v), inv));
    return put_sum(k, put_op(k, OP_mul, less, less));
}

const Kernel *kernel_without_deviations(const Kernel *k, Arena *a)
{
    enum { MADE = 7 }; /* most instructions that replace one */
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->nins; i++)
        n += k->ins[i].kind == K_DEVIATION;
    if (!n)
        return k;
    Kernel *out = NEW(a, Kernel, 1);
    int *map = NEW(a, int, k->nins);
    *out = *k;
    out->arena = a;
    out->nins = 0;
    out->cins = k->nins + MADE * n;
    out->ins = NEW(a, KInst, out->cins);
    for (uint32_t i = 0; i < k->nins; i++) {
        KInst in = k->ins[i];
        for (int j = 0; j < k_nargs(&in); j++)
            in.arg[j] = map[in.arg[j]];
        if (in.kind == K_DEVIATION) {
            map[i] = put_deviation(out, in.arg[0]);
        } else {
            map[i] = (int)out->nins;
            out->ins[out->nins++] = in;
        }
    }
    return out;
}
