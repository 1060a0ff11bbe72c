/* split.c -- a group around operators that are split: a loop over blocks of an axis.
 *
 * A value that would be large as a whole is made, used and gone block by block.  Weight gradients: the
 * product's rows with the update as their epilogue, or split-K, dW = X^T dY summed over blocks of rows,
 * where what makes X is a prologue that is recomputed for each block.
 * Each operator that is split is a stage of the loop's body, and so are the fused ones between two of them.
 * The number of blocks is fixed by shape and device (passes/split.c): where blocks are added it is part of
 * the result's bits. */
#include "kernel.h"
#include <string.h>

const char *const split_name[SPLIT_COUNT] = {"", "rows", "sum"};

bool node_axis(const Graph *g, const Node *n, SplitBy by, SplitAxis *axis)
{
    *axis = (SplitAxis){.in = {SPLIT_WHOLE, SPLIT_WHOLE}, .param = -1};
    return by != SPLIT_NONE && node_def(n)->split && node_def(n)->split(g, n, by, axis);
}

SplitBy node_split_rows(const Graph *g, const Node *n)
{
    SplitAxis axis;
    for (SplitBy by = SPLIT_ROWS; by <= SPLIT_SUM; by++)
        if (node_axis(g, n, by, &axis) && axis.in[0] == 0 && axis.in[1] == 0)
            return by;
    return SPLIT_NONE;
}

/* ---- the values of the loop ------------------------------------------------------------------- */

typedef struct {
    Val v;
    bool made, summed, read_inside;
    int maker, reader; /* stages: the one that makes it, the last that reads it */
    int64_t row_bytes; /* bytes from one row of the loop to the next, as its maker writes it */
    bool buffer;
    int number;        /* operand of the command or, if `buffer`, of the loop's buffers */
} LoopValue;

typedef struct {
    Command *c;
    Loop *loop;
    Arena *a;
    const Graph *g;
    const bool *live_out;
    LoopValue val[LOOP_OPERANDS];
    int n;
} Lowering;

static LoopValue *find_value(Lowering *x, Val v)
{
    int i = 0;
    while (i < x->n && x->val[i].v.i != v.i)
        i++;
    if (i == LOOP_OPERANDS)
        return NULL;
    if (i == x->n)
        x->val[x->n++] = (LoopValue){.v = v};
    return &x->val[i];
}

/* ---- stages ------------------------------------------------------------------------------------ */

/* Appends a stage, whose operands are indices of x->val until number_values(). */
static bool add_stage(Lowering *x, const Command *c, const Node *split, const SplitAxis *axis)
{
    Stage *s = &x->loop->stage[x->loop->nstage++];
    int n = c->nread + c->nwrite;
    *s = (Stage){.k = c->k, .lib = c->lib, .nread = c->nread, .split = split,
                 .operand = NEW(x->a, int, n + 1), .row_bytes = NEW(x->a, int64_t, n + 1),
                 .rows_apart = NEW(x->a, bool, n + 1)};
    if (split)
        s->axis = *axis;
    for (int i = 0; i < n; i++) {
        LoopValue *v = c->vals[i].i ? find_value(x, c->vals[i]) : NULL;
        if (c->vals[i].i && (!v || (i >= c->nread && (v->made || v->read_inside))))
            return false;
        s->operand[i] = v ? (int)(v - x->val) : -1;
        if (!v)
            continue;
        if (i >= c->nread) {
            v->made = true;
            v->maker = x->loop->nstage - 1;
            v->summed = split && split->split.by == SPLIT_SUM;
        } else {
            v->read_inside = true;
            v->reader = x->loop->nstage - 1;
            TRY(!v->summed); /* a sum is complete only after the last block */
        }
    }
    return true;
}

/* Sets the kernel with which later blocks of the last stage add to its result. */
static bool adding(Lowering *x, const Node *n)
{
    Stage *s = &x->loop->stage[x->loop->nstage - 1];
    Node add = *n;
    Kernel *k = NEW(x->a, Kernel, 1);
    add.op = s->axis.add;
    add.in = NEW(x->a, Val, n->nin + 1);
    memcpy(add.in, n->in, (size_t)n->nin * sizeof *add.in);
    add.in[add.nin++] = n->out[0];
    k_init(k, x->a, x->g, &add);
    TRY(node_def(&add)->lower(k, x->g, &add));
    s->add = k;
    s->add_lib = kernel_describe(k, x->g, &add, x->a);
    return true;
}

static bool split_stage(Lowering *x, const NodeId *id, Diag *d)
{
    Command c;
    SplitAxis axis;
    const Node *n = &x->g->nodes[id->i];
    TRY(node_axis(x->g, n, n->split.by, &axis) && axis.extent > 0);
    TRY(lower_fused(&c, x->a, x->g, id, 1, x->live_out, NULL, 0, d));
    TRY((x->loop->extent == 0 || x->loop->extent == axis.extent) && add_stage(x, &c, n, &axis));
    x->loop->extent = axis.extent;
    return n->split.by != SPLIT_SUM || axis.add == OP_NONE || adding(x, n);
}

/* The results of nodes [first, end) of the group that later nodes of it read; *n: their number. */
static Val *read_by_others(const Lowering *x, int first, int end, int *n)
{
    const Graph *g = x->g;
    Val *read = NEW(x->a, Val, MAX_OUT * (end - first) + 1);
    *n = 0;
    for (int k = first; k < end; k++) {
        const Node *made = &g->nodes[x->c->nodes[k].i];
        for (int o = 0; o < made->nout; o++) {
            bool any = false;
            for (int i = end; i < x->c->n; i++) {
                const Node *r = &g->nodes[x->c->nodes[i].i];
                for (int j = 0; j < r->nin; j++)
                    any |= r->in[j].i && graph_root(g, r->in[j]).i == made->out[o].i;
            }
            if (any)
                read[(*n)++] = made->out[o];
        }
    }
    return read;
}

static bool fused_stage(Lowering *x, int first, int end, Diag *d)
{
    Command c;
    int n;
    bool views = true;
    for (int i = first; i < end; i++)
        views &= (node_def(&x->g->nodes[x->c->nodes[i].i])->traits & OPT_VIEW) != 0;
    if (views)
        return true;
    const Val *also = read_by_others(x, first, end, &n);
    return lower_fused(&c, x->a, x->g, x->c->nodes + first, end - first, x->live_out, also, n, d) &&
           !c.k.body && !c.k.lib && c.k.nins > 0 && !kernel_has_column_sums(&c.k) &&
           add_stage(x, &c, NULL, NULL);
}

/* The end of the fused stage that begins at node `first`.  Pointwise nodes that call functions are a stage of
 * their own before a loss or a norm, whose kernel would call them again in every pass over a row. */
static int fused_end(const Lowering *x, int first)
{
    int i = first, called = first;
    for (; i < x->c->n && !node_is_split(&x->g->nodes[x->c->nodes[i].i]); i++) {
        const Node *n = &x->g->nodes[x->c->nodes[i].i];
        bool pointwise = node_def(n)->traits & OPT_POINTWISE;
        if (!pointwise && !(node_def(n)->traits & OPT_VIEW) && called > first)
            return called;
        if (pointwise && node_def(n)->expr.cost >= EXPR_CALL)
            called = i + 1;
    }
    return i;
}

static bool make_stages(Lowering *x, Diag *d)
{
    const Command *c = x->c;
    x->loop->stage = NEW(x->a, Stage, c->n);
    for (int i = 0, end; i < c->n; i = end) {
        bool split = node_is_split(&x->g->nodes[c->nodes[i].i]);
        end = split ? i + 1 : fused_end(x, i);
        TRY(split ? split_stage(x, &c->nodes[i], d) : fused_stage(x, i, end, d));
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------------ */

/* Sets the rows of the loop: the axis' extent or, where a fused stage has fewer rows, each of which covers
 * several indices of the axis, their number. */
static bool find_rows(Loop *l)
{
    l->rows = l->extent;
    for (int i = 0; i < l->nstage; i++) {
        const Kernel *k = &l->stage[i].k;
        if (l->stage[i].split || (k->rank > 0 && k->extent[0] % l->rows == 0))
            continue;
        if (k->rank == 0 || k->extent[0] == 0 || l->rows % k->extent[0])
            return false;
        l->rows = k->extent[0];
    }
    return true;
}

/* Bytes from the start of the operand to the end of what an access covers in the loop's first row. */
static int64_t row_span(const Kernel *k, const KInst *in, int64_t per_row)
{
    int64_t last = in->offset + (per_row - 1) * in->stride[0];
    for (int d = 1; d < k->rank; d++)
        last += (k->extent[d] - 1) * in->stride[d];
    return (last + 1) * dtype_size[k->operand[in->operand]];
}

/* Sets row_bytes and rows_apart of a fused stage; false: it steps through an operand's rows in more than one
 * way, reduces over rows, or uses their index. */
static bool fused_rows(Stage *s, int64_t rows)
{
    const Kernel *k = &s->k;
    int64_t per_row = k->extent[0] / rows;
    bool seen[LOOP_OPERANDS] = {false};
    if (k->red & 1)
        return false;
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        if (in->kind == K_INDEX && in->stride[0] != 0)
            return false;
        if (in->kind != K_LOAD && in->kind != K_STORE)
            continue;
        int64_t step = per_row * in->stride[0] * dtype_size[k->operand[in->operand]];
        if (seen[in->operand] && s->row_bytes[in->operand] != step)
            return false;
        seen[in->operand] = true;
        s->row_bytes[in->operand] = step;
        s->rows_apart[in->operand] |= row_span(k, in, per_row) > step;
    }
    return true;
}

static int64_t stride_bytes(const Type *t, int dim)
{
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    return stride[dim] * dtype_size[t->dt];
}

static void split_rows(Stage *s, const Graph *g, const Loop *l)
{
    const Node *n = s->split;
    int64_t each = l->extent / l->rows;
    for (int i = 0; i < n->nin && i < SPLIT_OPERANDS; i++) {
        if (s->axis.in[i] == SPLIT_WHOLE || !n->in[i].i)
            continue;
        s->row_bytes[i] = each * stride_bytes(val_type(g, n->in[i]), s->axis.in[i]);
        s->rows_apart[i] = s->axis.in[i] != 0;
    }
    if (n->split.by == SPLIT_ROWS)
        s->row_bytes[n->nin] = each * stride_bytes(val_type(g, n->out[0]), 0);
}

/* Sets row_bytes of a stage in a loop that has one row. */
static void one_row(Lowering *x, Stage *s)
{
    for (int i = 0; i < s->k.noperands; i++)
        if (s->operand[i] >= 0)
            s->row_bytes[i] = type_bytes(val_type(x->g, x->val[s->operand[i]].v));
}

/* Sets row_bytes of the values that a stage makes; false: one that is made in the loop cannot be handed over
 * row by row. */
static bool hand_over(Lowering *x, const Stage *s)
{
    for (int i = 0; i < s->k.noperands; i++) {
        LoopValue *v = s->operand[i] >= 0 ? &x->val[s->operand[i]] : NULL;
        if (!v || !v->made || v->summed)
            continue;
        if (i >= s->nread)
            v->row_bytes = s->row_bytes[i];
        else if (s->row_bytes[i] != v->row_bytes)
            return false;
        if (s->row_bytes[i] <= 0 || (s->rows_apart[i] && v->read_inside))
            return false;
    }
    return true;
}

static bool make_rows(Lowering *x)
{
    Loop *l = x->loop;
    TRY(l->extent > 0 && find_rows(l));
    for (int i = 0; i < l->nstage; i++) {
        Stage *s = &l->stage[i];
        if (l->rows == 1)
            one_row(x, s);
        else if (s->split)
            split_rows(s, x->g, l);
        else
            TRY(fused_rows(s, l->rows));
        TRY(hand_over(x, s));
    }
    return true;
}

/* Sets the rows of a block as the first split operator that has a block size says. */
static void find_block(Loop *l)
{
    int64_t block = 0, each = l->extent / l->rows;
    for (int i = 0; i < l->nstage && block == 0; i++)
        block = l->stage[i].split ? l->stage[i].split->split.block : 0;
    l->block = block > 0 && block < l->extent ? (block + each - 1) / each : l->rows;
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

/* The value in a buffer that v may overwrite, because v's maker is the last to read it; NULL: none. */
static const LoopValue *take_over(const Lowering *x, const LoopValue *v)
{
    const Stage *s = &x->loop->stage[v->maker];
    int write = s->nread;
    while (s->operand[write] != (int)(v - x->val))
        write++;
    for (int i = 0; i < s->nread; i++) {
        const LoopValue *r = s->operand[i] >= 0 ? &x->val[s->operand[i]] : NULL;
        if (r && r->buffer && r->reader == v->maker && r->row_bytes == v->row_bytes &&
            kernel_inplace(&s->k, i, write))
            return r;
    }
    return NULL;
}

static int number_buffer(const Lowering *x, const LoopValue *v)
{
    Loop *l = x->loop;
    const LoopValue *over = take_over(x, v);
    if (over)
        return over->number;
    l->buffer_bytes[l->nbuffer] = v->row_bytes;
    return l->nbuffer++;
}

static void number_values(Lowering *x)
{
    Command *c = x->c;
    Loop *l = x->loop;
    c->vals = NEW(x->a, Val, x->n + 1);
    l->buffer_bytes = NEW(x->a, int64_t, x->n + 1);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->n; i++) {
            LoopValue *v = &x->val[i];
            if (v->made != (pass == 1))
                continue;
            v->buffer = v->made && !x->live_out[v->v.i];
            if (v->buffer) {
                v->number = number_buffer(x, v);
                continue;
            }
            v->number = c->nread + c->nwrite;
            c->vals[v->number] = v->v;
            ++*(pass ? &c->nwrite : &c->nread);
        }
    for (int i = 0; i < l->nstage; i++)
        for (int o = 0; o < l->stage[i].k.noperands; o++) {
            int *operand = &l->stage[i].operand[o];
            const LoopValue *v = *operand >= 0 ? &x->val[*operand] : NULL;
            if (v)
                *operand = v->buffer ? c->nread + c->nwrite + v->number : v->number;
        }
}

/* Are all sums read outside the group?  Others would have buffers instead of being results. */
static bool sums_are_results(const Lowering *x)
{
    for (int i = 0; i < x->n; i++)
        if (x->val[i].summed && !x->live_out[x->val[i].v.i])
            return false;
    return true;
}

bool lower_split(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out,
                 Diag *d)
{
    Loop *loop = NEW(a, Loop, 1);
    Lowering *x = NEW(a, Lowering, 1);
    *c = (Command){.g = g, .nodes = nodes, .n = n, .loop = loop};
    c->k.arena = a;
    *x = (Lowering){.c = c, .loop = loop, .a = a, .g = g, .live_out = live_out};
    bool ok = make_stages(x, d) && sums_are_results(x) && make_rows(x);
    if (ok)
        find_block(loop);
    if (!ok || command_launch_count(c, command_blocks(c)) > LOOP_LAUNCHES)
        return d ? fail(d, "%s does not fit its kernel group", node_def(&g->nodes[nodes[0].i])->name) : false;
    number_values(x);
    return true;
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

int64_t command_blocks(const Command *c)
{
    return c->loop ? (c->loop->rows + c->loop->block - 1) / c->loop->block : 1;
}

bool stage_adds(const Loop *l, const Stage *s)
{
    return s->split && s->split->split.by == SPLIT_SUM && l->block < l->rows;
}

Kernel stage_kernel(const Loop *l, const Stage *s, const Kernel *whole, int64_t rows)
{
    Kernel k = *whole;
    int64_t n = l->extent / l->rows * rows;
    k.flops = k.flops / (double)l->rows * (double)rows;
    if (!s->split)
        k.extent[0] = k.extent[0] / l->rows * rows;
    else if (s->axis.param >= 0)
        k.p[s->axis.param] = n;
    else
        k.items = k.items / l->extent * n;
    return k;
}

const LibDesc *stage_routine(const Loop *l, const Stage *s, const LibDesc *whole, int64_t rows, Arena *a)
{
    if (!whole)
        return NULL;
    LibDesc *lib = NEW(a, LibDesc, 1);
    int64_t n = l->extent / l->rows * rows;
    *lib = *whole;
    lib->flops = lib->flops / (double)l->rows * (double)rows;
    if (s->split->split.by == SPLIT_ROWS)
        lib->rows = n;
    for (int i = 0; i < SPLIT_OPERANDS && s->split->split.by == SPLIT_SUM; i++)
        lib->in[i].dim[s->axis.in[i]] = n;
    return lib;
}

bool loop_inplace(const Command *c, int read, int write)
{
    int reads = 0;
    bool ok = false;
    for (int i = 0; i < c->loop->nstage; i++) {
        const Stage *s = &c->loop->stage[i];
        for (int r = 0; r < s->nread; r++) {
            if (s->operand[r] != read)
                continue;
            reads++;
            for (int w = s->nread; w < s->k.noperands; w++)
                ok |= s->operand[w] == write && !s->split && s->row_bytes[r] == s->row_bytes[w] &&
                      !s->rows_apart[r] && !s->rows_apart[w] && kernel_takes_over(&s->k, r, w);
        }
    }
    return ok && reads == 1;
}
