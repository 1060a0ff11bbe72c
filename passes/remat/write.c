/* write.c -- the text form of an instance: what read.c reads. Operators are numbered from 0
 * in the order of the instance; an operator without outputs gets one of no bytes. */
#include "remat_int.h"

#include <inttypes.h>
#include <stdlib.h>

/* Per value: its name "op.output", the producer and which of its outputs it is. */
typedef struct {
    int32_t *op, *output;
} Names;

static Names name_values(const RematInstance *inst)
{
    Names n = {RM_NEW(int32_t, inst->nvalues), RM_NEW(int32_t, inst->nvalues)};
    for (int32_t i = 0; i < inst->nops; i++)
        for (int32_t k = 0; k < inst->ops[i].nout; k++) {
            n.op[inst->ops[i].out[k]] = i;
            n.output[inst->ops[i].out[k]] = k;
        }
    return n;
}

static void write_value(FILE *f, const Names *n, int32_t v)
{
    fprintf(f, n->output[v] ? "%d.%d" : "%d", n->op[v], n->output[v]);
}

static void write_outputs(FILE *f, const RematInstance *inst, const RematOp *o)
{
    for (int32_t k = 1; k < o->nout; k++)
        fprintf(f, " out=%" PRId64, inst->values[o->out[k]].bytes);
    for (int32_t k = 0; k < o->nout; k++)
        if (inst->values[o->out[k]].keep_to_end)
            fprintf(f, k ? " keep=%d" : " keep", k);
}

static void write_fields(FILE *f, const RematInstance *inst, const RematOp *o, const Names *n)
{
    if (o->workspace)
        fprintf(f, " ws=%" PRId64, o->workspace);
    write_outputs(f, inst, o);
    if (o->once)
        fprintf(f, " once");
    if (o->layer > 0)
        fprintf(f, " layer=%d", o->layer);
    for (int32_t k = 0; k < o->ninplace; k++) {
        fprintf(f, " inplace=");
        write_value(f, n, o->in[o->inplace[k].in]);
        if (o->inplace[k].out)
            fprintf(f, ":%d", o->inplace[k].out);
    }
    for (int32_t k = 0; k < o->nalt; k++)
        fprintf(f, " alt=%" PRId64 ",%" PRId64, o->alt[k].cost, o->alt[k].workspace);
    for (int32_t k = 0; k < o->nbarrier; k++)
        fprintf(f, " before=%d", o->barrier[k]);
}

static void write_op(FILE *f, const RematInstance *inst, int32_t i, const Names *n)
{
    const RematOp *o = &inst->ops[i];
    fprintf(f, "%d %" PRId64 " %" PRId64, i, o->cost, o->nout ? inst->values[o->out[0]].bytes : 0);
    for (int32_t k = 0; k < o->nin; k++) {
        fputc(' ', f);
        write_value(f, n, o->in[k]);
    }
    fprintf(f, " ;");
    write_fields(f, inst, o, n);
    fputc('\n', f);
}

void remat_write(const RematInstance *inst, FILE *f)
{
    Names n = name_values(inst);
    fprintf(f, "# id cost bytes [inputs] [; fields]\npersistent %" PRId64 "\n", inst->persistent);
    if (inst->whole > 0)
        fprintf(f, "whole %" PRId64 "\n", inst->whole);
    if (inst->loss >= 0)
        fprintf(f, "loss %d\n", inst->loss);
    for (int32_t i = 0; i < inst->nops; i++)
        write_op(f, inst, i, &n);
    if (inst->link > 0)
        fprintf(f, "link %" PRId64 "\n", inst->link);
    if (inst->host > 0)
        fprintf(f, "host %" PRId64 "\n", inst->host);
    for (const RematOp *o = inst->ops + inst->nops; o < inst->ops + inst->nops + inst->nfetch; o++)
        fprintf(f, "fetch %d %" PRId64 " %" PRId64 "\n", o->fetch_of, o->cost, o->link);
    free(n.op);
    free(n.output);
}
