/* launch.c -- the launches of a command: one, or those of a loop over blocks of rows, unrolled.
 *
 * Workspace of a loop: its buffers, then a later block's sum where the routine cannot add it to those of
 * the blocks before. */
#include "program.h"
#include <string.h>

static uint32_t add_kernel(Launches *l, const Kernel *k)
{
    l->kernel = arena_grow(l->arena, l->kernel, l->nkernel, &l->ckernel, sizeof *l->kernel);
    l->kernel[l->nkernel] = k;
    return l->nkernel++;
}

static Kernel *new_kernel(Launches *l, const Kernel *k)
{
    Kernel *made = NEW(l->arena, Kernel, 1);
    *made = *k;
    return made;
}

static Launch *add_launch(Launches *l, uint32_t kernel, Slice *op, int nop)
{
    l->launch = arena_grow(l->arena, l->launch, l->n, &l->cap, sizeof *l->launch);
    l->launch[l->n] = (Launch){.kernel = kernel, .nop = nop, .op = op};
    return &l->launch[l->n++];
}

/* ---- a command that is no loop ------------------------------------------------------------------------ */

static Slice whole_operand(const Command *c, int i)
{
    if (!c->vals[i].i)
        return (Slice){.base = -1};
    return (Slice){i, i >= c->nread, 0, type_bytes(val_type(c->g, c->vals[i]))};
}

static void single_launch(const Command *c, Launches *l)
{
    int n = c->nread + c->nwrite;
    Slice *op = NEW(l->arena, Slice, n + 1);
    for (int i = 0; i < n; i++)
        op[i] = whole_operand(c, i);
    Launch *launch = add_launch(l, c->copy ? 0 : add_kernel(l, &c->k), op, n);
    launch->lib = c->lib;
    launch->copy = c->copy;
    launch->ncopy = c->copy ? c->nread : 0;
    launch->workspace = (Slice){.base = n, .write = true};
}

/* ---- loops ----------------------------------------------------------------------------------- */

typedef struct {
    uint32_t kernel; /* index in Launches.kernel */
    const LibDesc *lib;
} StageLaunch;

enum { FIRST, LATER }; /* blocks of a sum: later ones may add to the result */

/* The launches of each stage for blocks of one size. */
typedef struct {
    int64_t rows;
    StageLaunch (*stage)[2];
} Block;

typedef struct {
    const Command *c;
    const Loop *loop;
    Launches *l;
    int outside;      /* number of operands with memory of their own, and the base of the workspace */
    uint32_t *sum;    /* per stage: the kernel that adds two results; 0: none */
    const Block *block;
    int64_t first;    /* first row of the block */
} Unroll;

static int64_t block_rows(const Loop *l) { return l->block < l->rows ? l->block : l->rows; }

static int64_t buffer_at(const Loop *l, int buffer)
{
    int64_t at = 0;
    for (int i = 0; i < buffer; i++)
        at += align_up(block_rows(l) * l->buffer_bytes[i], ARENA_ALIGN);
    return at;
}

static bool through_buffer(const Loop *l, const Stage *s) { return stage_adds(l, s) && !s->add; }

/* Bytes of the largest result that goes through a buffer, rounded up to ARENA_ALIGN. */
static int64_t sum_bytes(const Command *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->loop->nstage; i++) {
        const Stage *s = &c->loop->stage[i];
        int64_t result = through_buffer(c->loop, s) ? type_bytes(val_type(c->g, s->split->out[0])) : 0;
        bytes = result > bytes ? result : bytes;
    }
    return align_up(bytes, ARENA_ALIGN);
}

int64_t command_workspace_bytes(const Command *c)
{
    return c->loop ? buffer_at(c->loop, c->loop->nbuffer) + sum_bytes(c) : 0;
}

int64_t command_launch_count(const Command *c, int64_t blocks)
{
    int64_t n = c->loop ? blocks * c->loop->nstage : 1;
    for (int i = 0; c->loop && i < c->loop->nstage; i++)
        n += through_buffer(c->loop, &c->loop->stage[i]) ? blocks - 1 : 0;
    return n;
}

/* The block's part of operand i of the stage. */
static Slice block_operand(const Unroll *x, const Stage *s, int i)
{
    int64_t rows = x->block->rows, per_row = s->row_bytes[i];
    int operand = s->operand[i];
    bool write = i >= s->nread;
    if (operand >= x->outside)
        return (Slice){x->outside, write, buffer_at(x->loop, operand - x->outside), rows * per_row};
    if (operand < 0)
        return (Slice){.base = -1};
    Slice whole = whole_operand(x->c, operand);
    int64_t at = x->first * per_row, rest = whole.bytes - at;
    return (Slice){whole.base, write, at, per_row == 0 || s->rows_apart[i] ? rest : rows * per_row};
}

static Slice sum_operand(const Unroll *x, const Stage *s, bool write)
{
    return (Slice){x->outside, write, buffer_at(x->loop, x->loop->nbuffer),
                   type_bytes(val_type(x->c->g, s->split->out[0]))};
}

static void launch_stage(const Unroll *x, int at)
{
    const Stage *s = &x->loop->stage[at];
    bool later = stage_adds(x->loop, s) && x->first > 0;
    const StageLaunch *of = &x->block->stage[at][later ? LATER : FIRST];
    int n = s->k.noperands;
    Slice *op = NEW(x->l->arena, Slice, n + 2), result;
    for (int i = 0; i < n; i++)
        op[i] = block_operand(x, s, i);
    result = op[n > 0 ? n - 1 : 0];
    if (later && s->add) {
        op[n - 1].write = false;
        op[n++] = result;
    } else if (later) {
        op[n - 1] = sum_operand(x, s, true);
    }
    Launch *launch = add_launch(x->l, of->kernel, op, n);
    launch->lib = of->lib;
    launch->stage = at;
    launch->workspace = (Slice){.base = x->outside, .write = true, .at = command_workspace_bytes(x->c)};
    if (!later || s->add)
        return;
    Slice *sum = NEW(x->l->arena, Slice, 3);
    sum[0] = sum_operand(x, s, false);
    sum[1] = sum[2] = result;
    sum[1].write = false;
    add_launch(x->l, x->sum[at], sum, 3)->stage = at;
}

/* The number of a new kernel that stores operand 1 + operand 0 to operand 2. */
static uint32_t add_kernel_of(const Type *t, Launches *l)
{
    Type flat = type_make(t->dt, 1, (int64_t[]){type_count(t)});
    Kernel sum = {.arena = l->arena, .noperands = 3, .operand = NEW(l->arena, DType, 3)};
    for (int i = 0; i < 3; i++)
        sum.operand[i] = t->dt;
    k_space(&sum, &flat, 0);
    k_store(&sum, 2, k_op(&sum, OP_add, k_load(&sum, 1, &flat), k_load(&sum, 0, &flat), 0));
    return add_kernel(l, new_kernel(l, &sum));
}

/* Does an operand of some block begin at no multiple of 16 bytes? */
static bool begins_unaligned(const Loop *loop, const Stage *s)
{
    enum { WIDEST_ACCESS = 16 };
    bool any = false;
    for (int i = 0; i < s->k.noperands; i++)
        any |= s->row_bytes[i] * block_rows(loop) % WIDEST_ACCESS != 0;
    return any;
}

static StageLaunch stage_launch(const Loop *loop, const Stage *s, bool add, int64_t rows, Launches *l)
{
    Kernel k = stage_kernel(loop, s, add ? s->add : &s->k, rows);
    k.unaligned = begins_unaligned(loop, s);
    return (StageLaunch){add_kernel(l, new_kernel(l, &k)),
                         stage_routine(loop, s, add ? s->add_lib : s->lib, rows, l->arena)};
}

static Block make_block(const Loop *loop, int64_t rows, Launches *l)
{
    Block b = {rows, arena_alloc(l->arena, (size_t)loop->nstage, sizeof *b.stage)};
    for (int i = 0; i < loop->nstage; i++) {
        const Stage *s = &loop->stage[i];
        b.stage[i][FIRST] = b.stage[i][LATER] = stage_launch(loop, s, false, rows, l);
        if (stage_adds(loop, s) && s->add)
            b.stage[i][LATER] = stage_launch(loop, s, true, rows, l);
    }
    return b;
}

static void loop_launches(const Command *c, Launches *l)
{
    const Loop *loop = c->loop;
    int64_t blocks = command_blocks(c), full = block_rows(loop), last = loop->rows - (blocks - 1) * full;
    Unroll x = {.c = c, .loop = loop, .l = l, .outside = c->nread + c->nwrite,
                .sum = NEW(l->arena, uint32_t, loop->nstage)};
    Block block[2] = {make_block(loop, full, l)};
    block[1] = last == full ? block[0] : make_block(loop, last, l);
    for (int i = 0; i < loop->nstage; i++)
        if (through_buffer(loop, &loop->stage[i]))
            x.sum[i] = add_kernel_of(val_type(c->g, loop->stage[i].split->out[0]), l);
    for (int64_t b = 0; b < blocks; b++) {
        x.block = &block[b == blocks - 1];
        x.first = b * full;
        for (int i = 0; i < loop->nstage; i++)
            launch_stage(&x, i);
    }
}

void command_launches(const Command *c, Launches *l) { (c->loop ? loop_launches : single_launch)(c, l); }
