/* kernel.c -- building kernel descriptions: operands, iteration space, instructions, queries. */
#include "kernel.h"
#include <assert.h>
#include <string.h>

/* ---- building ------------------------------------------------------------------ */

void k_init(Kernel *k, Arena *a, const Graph *g, const Node *n)
{
    *k = (Kernel){.arena = a, .noperands = n->nin + n->nout};
    k->operand = NEW(a, DType, k->noperands + 1);
    for (int i = 0; i < n->nin; i++)
        k->operand[i] = n->in[i].i ? g->vals[n->in[i].i].type.dt : DT_NONE;
    for (int i = 0; i < n->nout; i++)
        k->operand[n->nin + i] = g->vals[n->out[i].i].type.dt;
}

bool kernel_is_f64(const Kernel *k)
{
    bool f64 = k->f64;
    for (int i = 0; i < k->noperands; i++)
        f64 |= k->operand[i] == DT_F64;
    return f64;
}

void k_space(Kernel *k, const Type *shape, uint32_t red)
{
    k->rank = shape->rank;
    memcpy(k->extent, shape->dim, sizeof k->extent);
    k->red = red;
}

static int push(Kernel *k, KInst in)
{
    k->ins = arena_grow(k->arena, k->ins, k->nins, &k->cins, sizeof *k->ins);
    k->ins[k->nins] = in;
    return (int)k->nins++;
}

static KType operand_type(const Kernel *k, int operand)
{
    return dtype_is_float(k->operand[operand]) ? KT_REAL : KT_INT;
}

int k_load_at(Kernel *k, int operand, int64_t offset, const int64_t *stride)
{
    KInst in = {.kind = K_LOAD, .type = operand_type(k, operand), .operand = operand, .offset = offset};
    memcpy(in.stride, stride, (size_t)k->rank * sizeof *stride);
    return push(k, in);
}

int k_load_rounded(Kernel *k, int operand, const Type *t)
{
    int i = k_load(k, operand, t);
    k->ins[i].rounded = true;
    return i;
}

/* The narrowest type that v has had: casts that widen add nothing. */
static DType narrowest(const Graph *g, Val v)
{
    DType dt = val_type(g, v)->dt;
    for (const Node *n; (n = graph_def(g, graph_root(g, v))) && n->op == OP_cast; v = n->in[0]) {
        DType from = val_type(g, n->in[0])->dt;
        if (!dtype_is_float(from))
            break;
        dt = dtype_size[from] < dtype_size[dt] ? from : dt;
    }
    return dt;
}

int k_load_compared(Kernel *k, const Graph *g, const Node *n, int operand)
{
    Val v = n->in[operand];
    return kernel_narrow(k, k_load_rounded(k, operand, val_type(g, v)), narrowest(g, v));
}

int k_load(Kernel *k, int operand, const Type *t)
{
    int64_t own[MAX_RANK], stride[K_DIMS] = {0};
    type_strides(t, own);
    for (int i = 0; i < t->rank; i++)
        stride[k->rank - t->rank + i] = t->dim[i] == 1 ? 0 : own[i];
    return k_load_at(k, operand, 0, stride);
}

/* Row-major strides over the dimensions not in drop; 0 for the others. */
static void keep_strides(const Kernel *k, uint32_t drop, int64_t *stride)
{
    int64_t s = 1;
    memset(stride, 0, K_DIMS * sizeof *stride);
    for (int i = k->rank; i-- > 0;)
        if (!(drop >> i & 1)) {
            stride[i] = s;
            s *= k->extent[i];
        }
}

int k_load_keep(Kernel *k, int operand, uint32_t drop)
{
    int64_t stride[K_DIMS];
    keep_strides(k, drop, stride);
    return k_load_at(k, operand, 0, stride);
}

int k_const(Kernel *k, KType t, double v) { return push(k, (KInst){.kind = K_CONST, .type = t, .imm = v}); }

int k_index(Kernel *k, const int64_t *stride, int64_t offset)
{
    KInst in = {.kind = K_INDEX, .type = KT_INT, .offset = offset};
    memcpy(in.stride, stride, (size_t)k->rank * sizeof *stride);
    return push(k, in);
}

int k_expr(Kernel *k, const Expr *e, KType t, int a, int b, int c, double al, double be)
{
    return push(k, (KInst){.kind = K_EXPR, .type = t, .arg = {a, b, c}, .expr = e, .al = al, .be = be});
}

int k_op(Kernel *k, Op op, int a, int b, int c)
{
    return k_expr(k, &op_table[op]->expr, KT_REAL, a, b, c, 0, 0);
}

int k_reduce(Kernel *k, KKind kind, int a)
{
    return push(k, (KInst){.kind = kind, .type = k->ins[a].type, .arg = {a}});
}

void k_store_keep(Kernel *k, int operand, int v, uint32_t drop)
{
    KInst in = {.kind = K_STORE, .type = operand_type(k, operand), .arg = {v}, .operand = operand};
    keep_strides(k, drop, in.stride);
    push(k, in);
}

void k_store(Kernel *k, int operand, int v) { k_store_keep(k, operand, v, 0); }

void k_store_at(Kernel *k, int operand, int v, int64_t offset, const int64_t *stride)
{
    KInst in = {.kind = K_STORE, .type = operand_type(k, operand), .arg = {v},
                .operand = operand, .offset = offset};
    memcpy(in.stride, stride, (size_t)k->rank * sizeof *stride);
    push(k, in);
}

void k_body(Kernel *k, const Body *b, int64_t items)
{
    k->body = b;
    k->items = items;
}

/* ---- canonical spaces ------------------------------------------------------------------
 * Two kernels share a space when both can be split to a common refinement: an affine access over
 * a dimension of 4096 is one over 8 x 512.  Dimensions of size 1 are dropped first. */

static void drop_dim(Kernel *k, int d)
{
    int tail = k->rank - d - 1;
    memmove(&k->extent[d], &k->extent[d + 1], (size_t)tail * sizeof *k->extent);
    k->red = (k->red & ((1u << d) - 1)) | (k->red >> (d + 1) << d);
    for (uint32_t i = 0; i < k->nins; i++)
        memmove(&k->ins[i].stride[d], &k->ins[i].stride[d + 1], (size_t)tail * sizeof k->ins[i].stride[0]);
    k->rank--;
    k->extent[k->rank] = 0;
    for (uint32_t i = 0; i < k->nins; i++)
        k->ins[i].stride[k->rank] = 0;
}

static void insert_dim(Kernel *k, int d, int64_t extent, bool red)
{
    assert(k->rank < K_DIMS);
    int tail = k->rank - d;
    memmove(&k->extent[d + 1], &k->extent[d], (size_t)tail * sizeof *k->extent);
    k->extent[d] = extent;
    k->red = (k->red & ((1u << d) - 1)) | (k->red >> d << (d + 1)) | (uint32_t)red << d;
    for (uint32_t i = 0; i < k->nins; i++) {
        int64_t *s = k->ins[i].stride;
        memmove(&s[d + 1], &s[d], (size_t)tail * sizeof *s);
        s[d] = 0;
    }
    k->rank++;
}

static void squeeze(Kernel *k)
{
    for (int d = k->rank; d-- > 0;)
        if (k->extent[d] == 1)
            drop_dim(k, d);
    if (k->red)
        return;
    for (uint32_t i = 0; i < k->nins; i++) /* nothing left to reduce: reductions are copies */
        if (k->ins[i].kind == K_DEVIATION) {
            k->ins[i] = (KInst){.kind = K_CONST, .type = KT_REAL};
        } else if (k_reduces(&k->ins[i])) {
            k->ins[i].expr = &op_table[OP_copy]->expr;
            k->ins[i].kind = K_EXPR;
        }
}

/* Split dimension d into extent/inner x inner. */
static void split_dim(Kernel *k, int d, int64_t inner)
{
    insert_dim(k, d + 1, inner, k->red >> d & 1);
    k->extent[d] /= inner;
    for (uint32_t i = 0; i < k->nins; i++) {
        int64_t *s = k->ins[i].stride;
        s[d + 1] = s[d];
        s[d] *= inner;
    }
}

/* Walk both spaces from the innermost dimension, splitting the larger extent. */
static bool refine(Kernel *a, Kernel *b)
{
    int i = a->rank, j = b->rank;
    while (i > 0 && j > 0) {
        int64_t ea = a->extent[i - 1], eb = b->extent[j - 1];
        if (ea != eb) {
            Kernel *big = ea > eb ? a : b;
            int64_t lo = ea > eb ? eb : ea, hi = ea > eb ? ea : eb;
            if (lo == 0 || hi % lo || big->rank == K_DIMS)
                return false;
            split_dim(big, (ea > eb ? i : j) - 1, lo);
            *(ea > eb ? &i : &j) += 1;
        }
        i--;
        j--;
    }
    return i == 0 && j == 0;
}

/* a is pointwise over the parallel dimensions of b: give it b's reduced ones, with stride 0. */
static void widen(Kernel *a, const Kernel *b)
{
    for (int d = 0; d < b->rank; d++)
        if (b->red >> d & 1)
            insert_dim(a, d, b->extent[d], true);
}

/* Reorder the dimensions: number d becomes what order[d] was. */
static void permute_dims(Kernel *k, const int *order)
{
    int64_t old[K_DIMS];
    memcpy(old, k->extent, sizeof old);
    for (int d = 0; d < k->rank; d++)
        k->extent[d] = old[order[d]];
    for (uint32_t i = 0; i < k->nins; i++) {
        memcpy(old, k->ins[i].stride, sizeof old);
        for (int d = 0; d < k->rank; d++)
            k->ins[i].stride[d] = old[order[d]];
    }
}

static int64_t space_count(const Kernel *k, bool outer_only)
{
    int64_t c = 1;
    for (int d = 0; d < k->rank; d++)
        if (!outer_only || !(k->red >> d & 1))
            c *= k->extent[d];
    return c;
}

/* Bring both to one space; false if that is not possible. */
static bool unify(Kernel *a, Kernel *b)
{
    if (a->body || b->body || a->lib || b->lib)
        return false;
    squeeze(a);
    squeeze(b);
    if (space_count(a, false) != space_count(b, false)) {
        Kernel *small = a->red ? b : a, *big = a->red ? a : b;
        if (small->red || !big->red || space_count(small, false) != space_count(big, true))
            return false;
        int outer = 0;
        for (int d = 0; d < big->rank; d++)
            if (!(big->red >> d & 1) && (outer >= small->rank || small->extent[outer++] != big->extent[d]))
                return false;
        if (outer != small->rank || small->rank + big->rank - outer > K_DIMS)
            return false;
        widen(small, big);
    }
    TRY(refine(a, b));
    if (a->red && b->red && a->red != b->red)
        return kernels_join_columns(a, b);
    a->red = b->red = a->red | b->red;
    return true;
}

/* ---- orientation ------------------------------------------------------------------------
 * A pointwise part may walk its space in any order of dimensions.  Producers follow consumers:
 * what is read through a transpose is made in the reader's order, and both meet element by
 * element. */

/* The dimension of k in which `access` has its largest stride of at most s elements, -1: none. */
static int dim_of_step(const Kernel *k, const KInst *access, int64_t s)
{
    int best = -1;
    for (int d = 0; d < k->rank; d++)
        if (access->stride[d] > 0 && access->stride[d] <= s &&
            (best < 0 || access->stride[d] > access->stride[best]))
            best = d;
    return best;
}

/* Split p's dimensions where a dimension of the reader begins. */
static void split_as_reader(Kernel *p, const KInst *st, const Kernel *reader, const KInst *load)
{
    for (int d = 0; d < reader->rank; d++)
        for (int e = 0; e < p->rank; e++) {
            int64_t s = st->stride[e], step = load->stride[d];
            if (s > 0 && s < step && step < s * p->extent[e] && step % s == 0 &&
                p->extent[e] % (step / s) == 0 && p->rank < K_DIMS)
                split_dim(p, e, step / s);
        }
}

/* Walk p, whose store is `st`, in the order in which reader's `load` goes through the same
 * elements. */
static void follow_reader(Kernel *p, const KInst *st, const Kernel *reader, const KInst *load)
{
    int order[K_DIMS], key[K_DIMS];
    split_as_reader(p, st, reader, load);
    for (int d = 0; d < p->rank; d++) {
        int e = d;
        key[d] = dim_of_step(reader, load, st->stride[d]);
        for (; e > 0 && (key[order[e - 1]] > key[d] || (key[order[e - 1]] == key[d] &&
                                                        st->stride[order[e - 1]] < st->stride[d]));
             e--)
            order[e] = order[e - 1];
        order[e] = d;
    }
    permute_dims(p, order);
}

static const KInst *find_access(const Kernel *k, const Graph *g, const Node *n, KKind kind, Val v)
{
    for (uint32_t i = 0; i < k->nins; i++) {
        const KInst *in = &k->ins[i];
        Val w = in->kind != kind            ? (Val){0}
                : in->operand < n->nin ? graph_root(g, n->in[in->operand])
                                       : n->out[in->operand - n->nin];
        if (w.i && w.i == v.i)
            return in;
    }
    return NULL;
}

static void orient(const Graph *g, const NodeId *nodes, Kernel *part, int n)
{
    for (int i = 0; i < n; i++)
        if (part[i].red)
            return;
    for (int i = n; i-- > 0;) {
        const Node *node = &g->nodes[nodes[i].i];
        const KInst *st = find_access(&part[i], g, node, K_STORE, node->out[0]), *load = NULL;
        for (int j = i + 1; st && !load && j < n; j++) {
            load = find_access(&part[j], g, &g->nodes[nodes[j].i], K_LOAD, node->out[0]);
            if (load)
                follow_reader(&part[i], st, &part[j], load);
        }
    }
}

/* ---- one kernel from a group --------------------------------------------------------- */

typedef struct {
    Kernel *k;
    const Graph *g;
    Val *vals;      /* value of each operand */
    int *write_of;  /* per operand: instruction index of its store, -1 if it is read */
    int cap;
} Merge;

static int merge_operand(Merge *m, Val v)
{
    v = graph_root(m->g, v);
    for (int i = 0; i < m->k->noperands; i++)
        if (m->vals[i].i == v.i)
            return i;
    if (m->k->noperands == m->cap)
        return -1;
    int i = m->k->noperands++;
    m->vals[i] = v;
    m->write_of[i] = -1;
    m->k->operand[i] = m->g->vals[v.i].type.dt;
    return i;
}

/* Append part (already in m->k's space) with its operands renamed to the group's. */
static bool merge_append(Merge *m, const Kernel *part, const Node *n)
{
    int *map = NEW(m->k->arena, int, part->nins + 1);
    for (uint32_t i = 0; i < part->nins; i++) {
        KInst in = part->ins[i];
        for (int a = 0; a < k_nargs(&in); a++)
            in.arg[a] = map[in.arg[a]];
        if (in.kind == K_LOAD || in.kind == K_STORE) {
            Val v = in.operand < n->nin ? n->in[in.operand] : n->out[in.operand - n->nin];
            in.operand = merge_operand(m, v);
            if (in.operand < 0)
                return false;
            int w = m->write_of[in.operand];
            if (in.kind == K_LOAD && w >= 0) { /* made in this group: no memory between */
                if (!kernel_same_map(m->k, &in, &m->k->ins[w]) ||
                    m->k->ins[m->k->ins[w].arg[0]].kind == K_COLUMN_SUM)
                    return false;
                map[i] = m->k->ins[w].arg[0];
                DType dt = m->k->operand[in.operand];
                if (in.rounded || !dtype_is_float(dt))
                    map[i] = kernel_narrow(m->k, map[i], dt);
                continue;
            }
            if (in.kind == K_STORE)
                m->write_of[in.operand] = (int)m->k->nins;
        }
        map[i] = push(m->k, in);
    }
    return true;
}

/* Bring m->k and part to one space, and append. */
static bool merge_part(Merge *m, Kernel *part, const Node *n)
{
    if (m->k->nins == 0) {
        m->k->rank = part->rank;
        m->k->red = part->red;
        memcpy(m->k->extent, part->extent, sizeof part->extent);
        if (part->body || part->lib)
            return false;
    } else {
        TRY(unify(m->k, part));
    }
    m->k->flops += part->flops;
    m->k->f64 |= kernel_is_f64(part);
    return merge_append(m, part, n);
}

/* Walk a pointwise kernel in the order of what it stores first: stores are contiguous. */
static void follow_store(Kernel *k)
{
    const KInst *st = NULL;
    for (uint32_t i = 0; i < k->nins && !st; i++)
        if (k->ins[i].kind == K_STORE)
            st = &k->ins[i];
    if (k->red || !st)
        return;
    int order[K_DIMS];
    for (int d = 0; d < k->rank; d++) {
        int e = d;
        for (; e > 0 && st->stride[order[e - 1]] < st->stride[d]; e--)
            order[e] = order[e - 1];
        order[e] = d;
    }
    permute_dims(k, order);
}

/* The values that are read after the kernel. */
typedef struct {
    const bool *out; /* per value */
    const Val *also;
    int nalso;
    bool awaited; /* the values that sums of columns wait for are among them */
} Live;

static bool is_live(Live l, Val v)
{
    bool live = l.out[v.i];
    for (int i = 0; i < l.nalso && !live; i++)
        live = l.also[i].i == v.i;
    return live;
}

/* Drop stores of values nobody outside reads, renumber operands: reads first, then writes. */
static void merge_finish(Merge *m, Live live, Command *c)
{
    Kernel *k = m->k;
    k->apart = kernel_dims_apart(k);
    bool *read = NEW(k->arena, bool, k->noperands + 1), *keep = NEW(k->arena, bool, k->nins + 1);
    int *map = NEW(k->arena, int, k->noperands + 1), *imap = NEW(k->arena, int, k->nins + 1);
    for (uint32_t i = k->nins; i-- > 0;) { /* sweep dead instructions with the dead stores */
        KInst *in = &k->ins[i];
        keep[i] |= in->kind == K_STORE && is_live(live, m->vals[in->operand]);
        for (int a = 0; a < k_nargs(in) && keep[i]; a++)
            keep[in->arg[a]] = true;
        if (keep[i] && in->kind == K_LOAD)
            read[in->operand] = true;
    }
    Val *vals = NEW(k->arena, Val, k->noperands + 1);
    DType *dt = NEW(k->arena, DType, k->noperands + 1);
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int o = 0; o < k->noperands; o++)
            if (pass == 0 ? read[o] : !read[o] && m->write_of[o] >= 0 && is_live(live, m->vals[o])) {
                vals[n] = m->vals[o];
                dt[n] = k->operand[o];
                map[o] = n++;
            }
        *(pass ? &c->nwrite : &c->nread) = pass ? n - c->nread : n;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < k->nins; i++) {
        if (!keep[i])
            continue;
        KInst in = k->ins[i];
        for (int a = 0; a < k_nargs(&in); a++)
            in.arg[a] = imap[in.arg[a]];
        if (in.kind == K_LOAD || in.kind == K_STORE)
            in.operand = map[in.operand];
        imap[i] = (int)kept;
        k->ins[kept++] = in;
    }
    k->nins = kept;
    k->noperands = n;
    k->operand = dt;
    c->vals = vals;
    follow_store(k);
}

/* `live` and the values that sums of columns wait for; allocated in a. */
static Live with_awaited(const Merge *m, Live live, Arena *a)
{
    Val *also = NEW(a, Val, (uint32_t)live.nalso + m->k->nins + 1);
    int n = kernel_awaited(m->k, m->vals, also);
    for (int i = 0; i < live.nalso; i++)
        also[n++] = live.also[i];
    return (Live){live.out, also, n, true};
}

static bool lower_node(Kernel *k, Arena *a, const Graph *g, const Node *n, Diag *d)
{
    k_init(k, a, g, n);
    if (node_def(n)->lower && node_def(n)->lower(k, g, n))
        return true;
    return d ? fail(d, "%s: no kernel for these operands", node_def(n)->name) : false;
}

static void copy_ints(Ints *to, const Ints *from)
{
    to->n = from->n;
    memcpy(to->v, from->v, (size_t)from->n * sizeof *to->v);
}

const LibDesc *kernel_describe(const Kernel *k, const Graph *g, const Node *n, Arena *a)
{
    if (k->lib == LIB_NONE || k->lib == LIB_COPY)
        return NULL;
    LibDesc *d = NEW(a, LibDesc, 1);
    d->op = k->lib == LIB_MATMUL_ADD ? LIB_MATMUL : k->lib;
    d->nin = n->nin;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i].i)
            d->in[i] = *val_type(g, n->in[i]);
    d->out = *val_type(g, n->out[0]);
    d->flops = k->flops;
    if (d->op == LIB_MATMUL) {
        d->panels = n->op == OP_matmul_panels;
        if (!d->panels) {
            const MatmulAttrs *at = n->attr;
            d->matmul = (MatmulAttrs){.ta = at->ta, .tb = at->tb, .tf32 = at->tf32};
        }
        d->rows = d->out.rank == 2 ? k->items : 0;
        d->gelu = n->op == OP_matmul_gelu       ? GELU_OF_SUM
                  : n->op == OP_matmul_gelu_bwd ? GELU_BWD
                                                : GELU_NONE;
        return d;
    }
    const ConvAttrs *at = n->attr;
    copy_ints(&d->conv.strides, &at->strides);
    copy_ints(&d->conv.pads, &at->pads);
    copy_ints(&d->conv.dilations, &at->dilations);
    copy_ints(&d->conv.shape, &at->shape);
    d->conv.group = at->group;
    d->conv.tf32 = at->tf32;
    d->conv.channels_last = at->channels_last;
    if (k->lib == LIB_CONV_BWD_WEIGHTS && d->out.dim[1]) /* an item: one pair of channels */
        d->rows = k->items / d->out.dim[1];
    return d;
}

static const CopyRows *describe_copies(const Graph *g, const Node *n, Arena *a)
{
    CopyRows *c = NEW(a, CopyRows, n->nin + 1);
    int64_t all = type_bytes(val_type(g, n->out[0]));
    if (n->op != OP_concat) {
        *c = (CopyRows){0, 1, all, 0, all};
        return c;
    }
    int axis = (int)((const AxisAttrs *)n->attr)->axis;
    const Type *y = val_type(g, n->out[0]);
    int64_t inner = dtype_size[y->dt], rows = 1, at = 0;
    for (int i = 0; i < y->rank; i++)
        *(i < axis ? &rows : &inner) *= i == axis ? 1 : y->dim[i];
    for (int i = 0; i < n->nin; i++) {
        int64_t bytes = val_type(g, n->in[i])->dim[axis] * inner;
        c[i] = (CopyRows){i, rows, bytes, at, y->dim[axis] * inner};
        at += bytes;
    }
    return c;
}

/* Sets the routine, copies and operands of a command whose kernel is one node's. */
static void whole_node(Command *c, Arena *a, const Graph *g, const Node *n)
{
    c->lib = kernel_describe(&c->k, g, n, a);
    c->copy = c->k.lib == LIB_COPY ? describe_copies(g, n, a) : NULL;
    c->vals = NEW(a, Val, n->nin + n->nout);
    for (int i = 0; i < n->nin + n->nout; i++)
        c->vals[i] = i < n->nin ? graph_root(g, n->in[i]) : n->out[i - n->nin];
    c->nread = n->nin;
    c->nwrite = n->nout;
}

/* Copies to a what was merged in a scratch arena, without the intermediate steps. */
static void move_command(Command *c, Arena *a)
{
    Kernel *k = &c->k;
    KInst *ins = NEW(a, KInst, k->nins + 1);
    DType *operand = NEW(a, DType, k->noperands + 1);
    Val *vals = NEW(a, Val, k->noperands + 1);
    for (uint32_t i = 0; i < k->nins; i++)
        ins[i] = k->ins[i];
    for (int i = 0; i < k->noperands; i++) {
        operand[i] = k->operand[i];
        vals[i] = c->vals[i];
    }
    k->arena = a;
    k->ins = ins;
    k->cins = k->nins + 1;
    k->operand = operand;
    c->vals = vals;
}

static bool merge_nodes(Command *c, Arena *tmp, Live live, Diag *d)
{
    const Graph *g = c->g;
    Kernel *k = &c->k, *part = NEW(tmp, Kernel, c->n);
    int cap = 0;
    for (int i = 0; i < c->n; i++)
        cap += g->nodes[c->nodes[i].i].nin + g->nodes[c->nodes[i].i].nout;
    *k = (Kernel){.arena = tmp, .operand = NEW(tmp, DType, cap + 1)};
    Merge m = {k, g, NEW(tmp, Val, cap + 1), NEW(tmp, int, cap + 1), cap};
    for (int i = 0; i < c->n; i++) {
        const Node *node = &g->nodes[c->nodes[i].i];
        if (node_def(node)->traits & OPT_VIEW)
            continue; /* its readers read what it views */
        TRY(lower_node(&part[i], tmp, g, node, d));
        squeeze(&part[i]);
    }
    orient(g, c->nodes, part, c->n);
    for (int i = 0; i < c->n; i++) {
        const Node *node = &g->nodes[c->nodes[i].i];
        if (!(node_def(node)->traits & OPT_VIEW) && !merge_part(&m, &part[i], node))
            return d ? fail(d, "%s does not fit its kernel group", node_def(node)->name) : false;
    }
    Live fuller = with_awaited(&m, live, tmp);
    merge_finish(&m, live, c);
    bool ok = kernel_can_split_columns(k);
    if (!ok && !live.awaited)
        return merge_nodes(c, tmp, fuller, d); /* now with stores that the sums can load */
    return ok || (d && fail(d, "sums of columns wait for what is not stored"));
}

bool lower_fused(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out,
                 const Val *also, int nalso, Diag *d)
{
    const Node *first = &g->nodes[nodes[0].i];
    *c = (Command){.g = g, .nodes = nodes, .n = n};
    Arena tmp = {0};
    bool ok = n > 1 || lower_node(&c->k, &tmp, g, first, d);
    if (ok && n == 1 && (c->k.body || c->k.lib))
        whole_node(c, a, g, first);
    else
        ok = ok && merge_nodes(c, &tmp, (Live){live_out, also, nalso, false}, d);
    if (ok)
        move_command(c, a);
    arena_free(&tmp);
    return ok;
}

bool lower(Command *c, Arena *a, const Graph *g, const NodeId *nodes, int n, const bool *live_out, Diag *d)
{
    for (int i = 0; i < n; i++)
        if (node_is_split(&g->nodes[nodes[i].i]))
            return lower_split(c, a, g, nodes, n, live_out, d);
    return lower_fused(c, a, g, nodes, n, live_out, NULL, 0, d);
}

bool command_inplace(const Command *c, int read, int write)
{
    for (int i = 0; i < c->nread; i++) /* every operand with the same value */
        if (c->vals[i].i == c->vals[read].i &&
            !(c->loop ? loop_inplace(c, i, write) : kernel_takes_over(&c->k, i, write)))
            return false;
    return true;
}
