/* onednn.c -- every call to oneDNN.
 *
 * An operation has up to four tensors (two operands, bias, result).  Each has a plain layout and
 * the layout the routine wants; where they differ a reorder runs before (operands) or after
 * (result) into a region of the scratch:
 *
 *     scratch = [ reordered operand ]... [ reordered result ] [ working memory, shared by all ]
 *
 * A convolution in such layouts, forward or of the data, goes through the batch a piece at a time,
 * so that the region holds the images of one piece; weights are reordered once.
 *
 * The 2.x and 3.x interfaces differ in memory descriptors (values against handles) and in how a
 * primitive is described; both differences are in the section "versions". */
#include "onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { SRC, WEIGHTS, BIAS, DST, SLOTS, SCRATCH_ALIGN = 64 };
enum {
    PIECE_BYTES = 4 << 20,   /* operand and result of a piece, at least */
    PIECE_WEIGHTS = 2,       /* ... in bytes of the weights */
    WINOGRAD_WEIGHTS = 4,    /* which the routine makes so many times as large: 6x6 of 3x3 */
    TWICE_SHARE = 16         /* at most this part of the batch is computed twice */
};

const char *const dnnl_choice_name[DNNL_CHOICES] = {"plain", "blocked", "winograd"};

typedef struct {
    int rank; /* 0: absent */
    dnnl_data_type_t dt;
    dnnl_dims_t dim, stride; /* stride in elements */
} Layout;

/* Shapes in the library's terms; conv: of the forward operation. */
typedef struct {
    LibOp op;
    DnnlChoice choice;
    Layout slot[SLOTS];
    dnnl_dims_t strides, dilates, pad_begin, pad_end;
    int64_t added; /* bytes of what a product is added to; 0: nothing */
    int64_t batch, images; /* in all, and in the slots; of a product one */
} Problem;

/* ---- versions ------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t Md;
typedef const_dnnl_memory_desc_t MdRef;
#define MD_REF(md) ((MdRef)(md))

static bool md_make(Md *md, const Layout *l, bool any)
{
    *md = NULL;
    if (l->rank == 0)
        return true;
    return (any ? dnnl_memory_desc_create_with_tag(md, l->rank, l->dim, l->dt,
                                                   dnnl_format_tag_any)
                : dnnl_memory_desc_create_with_strides(md, l->rank, l->dim, l->dt,
                                                       l->stride)) == dnnl_success;
}

static void md_free(Md *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
}

static dnnl_status_t pd_make(dnnl_primitive_desc_t *pd, const Problem *p, LibOp op,
                             dnnl_alg_kind_t alg, MdRef md[SLOTS], dnnl_primitive_attr_t attr,
                             dnnl_engine_t engine, const_dnnl_primitive_desc_t hint)
{
    switch (op) {
    case LIB_MATMUL:
        return dnnl_matmul_primitive_desc_create(pd, engine, md[SRC], md[WEIGHTS], NULL, md[DST],
                                                 attr);
    case LIB_CONV:
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, alg, md[SRC], md[WEIGHTS], md[BIAS], md[DST],
            p->strides, p->dilates, p->pad_begin, p->pad_end, attr);
    case LIB_CONV_BWD_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, alg, md[SRC], md[WEIGHTS], md[DST], p->strides, p->dilates, p->pad_begin,
            p->pad_end, hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, alg, md[SRC], md[WEIGHTS], NULL, md[DST], p->strides, p->dilates,
            p->pad_begin, p->pad_end, hint, attr);
    }
}

static bool append_sum(dnnl_post_ops_t post, dnnl_data_type_t dt)
{
    return !dnnl_post_ops_append_sum(post, 1, 0, dt);
}

#else

static bool append_sum(dnnl_post_ops_t post, dnnl_data_type_t dt)
{
    (void)dt;
    return !dnnl_post_ops_append_sum(post, 1);
}

typedef struct {
    dnnl_memory_desc_t value;
    bool present;
} Md;
typedef const dnnl_memory_desc_t *MdRef;
#define MD_REF(md) ((md).present ? &(md).value : NULL)

static bool md_make(Md *md, const Layout *l, bool any)
{
    *md = (Md){.present = l->rank > 0};
    if (l->rank == 0)
        return true;
    return (any ? dnnl_memory_desc_init_by_tag(&md->value, l->rank, l->dim, l->dt,
                                               dnnl_format_tag_any)
                : dnnl_memory_desc_init_by_strides(&md->value, l->rank, l->dim, l->dt,
                                                   l->stride)) == dnnl_success;
}

static void md_free(Md *md)
{
    (void)md;
}

static dnnl_status_t pd_make(dnnl_primitive_desc_t *pd, const Problem *p, LibOp op,
                             dnnl_alg_kind_t alg, MdRef md[SLOTS], dnnl_primitive_attr_t attr,
                             dnnl_engine_t engine, const_dnnl_primitive_desc_t hint)
{
    union {
        dnnl_matmul_desc_t matmul;
        dnnl_convolution_desc_t conv;
    } desc;
    dnnl_status_t status;
    switch (op) {
    case LIB_MATMUL:
        status = dnnl_matmul_desc_init(&desc.matmul, md[SRC], md[WEIGHTS], NULL, md[DST]);
        break;
    case LIB_CONV:
        status = dnnl_dilated_convolution_forward_desc_init(
            &desc.conv, dnnl_forward_training, alg, md[SRC], md[WEIGHTS], md[BIAS], md[DST],
            p->strides, p->dilates, p->pad_begin, p->pad_end);
        break;
    case LIB_CONV_BWD_DATA:
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &desc.conv, alg, md[SRC], md[WEIGHTS], md[DST], p->strides, p->dilates, p->pad_begin,
            p->pad_end);
        break;
    default:
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc.conv, alg, md[SRC], md[WEIGHTS], NULL, md[DST], p->strides, p->dilates,
            p->pad_begin, p->pad_end);
        break;
    }
    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(pd, &desc, attr, engine, hint);
}

#endif

/* ---- from a description to the library's terms ------------------------------ */

static dnnl_data_type_t element(DType dt)
{
    return dt == DT_F32 ? dnnl_f32 : dt == DT_BF16 ? dnnl_bf16 : dnnl_data_type_undef;
}

static Layout layout_plain(const Type *t)
{
    Layout l = {.rank = t->rank, .dt = element(t->dt)};
    int64_t stride[MAX_RANK];
    type_strides(t, stride);
    for (int i = 0; i < t->rank; i++) {
        l.dim[i] = t->dim[i];
        l.stride[i] = stride[i];
    }
    return l;
}

/* A matrix operand with `batch` leading dimensions, missing ones of extent 1. */
static Layout layout_matrix(const Type *t, bool transposed, int batch)
{
    Layout plain = layout_plain(t), l = {.rank = batch + 2, .dt = plain.dt};
    for (int i = 0; i < l.rank; i++) {
        int k = i - (l.rank - t->rank);
        if (transposed && i >= batch)
            k = i == batch ? t->rank - 1 : t->rank - 2;
        l.dim[i] = k < 0 ? 1 : plain.dim[k];
        l.stride[i] = k < 0 ? type_count(t) : plain.stride[k];
    }
    return l;
}

/* View with the batch dimensions as one, or as rows of the matrix. */
static void merge_batch(Layout *l, int batch, bool rows)
{
    int64_t n = 1;
    for (int i = 0; i < batch; i++)
        n *= l->dim[i];
    Layout m = {.rank = rows ? 2 : 3, .dt = l->dt};
    int first = m.rank - 2;
    memcpy(&m.dim[first], &l->dim[batch], 2 * sizeof m.dim[0]);
    memcpy(&m.stride[first], &l->stride[batch], 2 * sizeof m.stride[0]);
    if (rows) {
        m.dim[0] *= n;
    } else {
        m.dim[0] = n;
        m.stride[0] = l->dim[batch] * l->dim[batch + 1];
    }
    *l = m;
}

static void describe_matmul(Problem *p, const DnnlDesc *d)
{
    const Type *a = &d->in[0], *b = &d->in[1];
    int batch = (a->rank > b->rank ? a->rank : b->rank) - 2;
    Layout *la = &p->slot[SRC], *lb = &p->slot[WEIGHTS], *lc = &p->slot[DST];
    *la = layout_matrix(a, d->matmul.ta, batch);
    *lb = layout_matrix(b, d->matmul.tb, batch);
    *lc = layout_matrix(&d->out, false, batch);
    if (batch == 0 && d->rows)
        la->dim[0] = lc->dim[0] = d->rows;
    if (d->nin > 2 && d->in[2].dt != DT_NONE)
        p->added = type_bytes(&d->out);
    bool same = true, single = true;
    for (int i = 0; i < batch; i++) {
        same &= la->dim[i] == lb->dim[i];
        single &= lb->dim[i] == 1;
    }
    bool rows = single && !d->matmul.ta; /* one matrix b: all rows of a in one product */
    if (batch == 0 || !(same || rows))
        return;
    merge_batch(la, batch, rows);
    merge_batch(lc, batch, rows);
    merge_batch(lb, batch, false);
    if (rows) { /* drop the batch of one */
        lb->rank = 2;
        memmove(lb->dim, lb->dim + 1, 2 * sizeof lb->dim[0]);
        memmove(lb->stride, lb->stride + 1, 2 * sizeof lb->stride[0]);
    }
}

static int64_t attr_or(const Ints *v, int i, int64_t otherwise)
{
    return i < v->n ? v->v[i] : otherwise;
}

/* Weights of a grouped convolution: [M, C/g, k...] seen as [g, M/g, C/g, k...]. */
static void split_groups(Layout *w, int64_t group)
{
    memmove(w->dim + 1, w->dim, (size_t)w->rank * sizeof w->dim[0]);
    memmove(w->stride + 1, w->stride, (size_t)w->rank * sizeof w->stride[0]);
    w->dim[0] = group;
    w->dim[1] /= group;
    w->stride[0] = w->dim[1] * w->stride[1];
    w->rank++;
}

static int64_t layout_bytes(const Layout *l)
{
    int64_t n = (int64_t)dnnl_data_type_size(l->dt);
    for (int i = 0; i < l->rank; i++)
        n *= l->dim[i];
    return n;
}

/* Images of a piece: as few as keep the speed of the whole batch.  All pieces have as many; where
 * that does not divide the batch, the last one starts earlier and makes some images again. */
static int64_t piece_images(const Problem *p)
{
    int64_t image = (layout_bytes(&p->slot[SRC]) + layout_bytes(&p->slot[DST])) / p->batch;
    int64_t fill = PIECE_WEIGHTS * layout_bytes(&p->slot[WEIGHTS]);
    if (p->choice == DNNL_WINOGRAD)
        fill *= WINOGRAD_WEIGHTS;
    if (fill < PIECE_BYTES)
        fill = PIECE_BYTES;
    int64_t least = (fill + image - 1) / image;
    for (int64_t twice = 0; twice <= p->batch / TWICE_SHARE; twice++)
        for (int64_t n = least; n <= 2 * least && n < p->batch; n++)
            if ((p->batch + n - 1) / n * n - p->batch == twice)
                return n;
    return p->batch;
}

/* Where the images are reordered, the primitive is one for a piece. */
static void cut_batch(Problem *p, const DnnlDesc *d)
{
    p->batch = p->images = p->slot[SRC].dim[0];
    if (d->choice == DNNL_PLAIN || d->op == LIB_CONV_BWD_WEIGHTS)
        return;
    p->images = d->images ? d->images : piece_images(p);
    p->slot[SRC].dim[0] = p->slot[DST].dim[0] = p->images;
}

static void describe_conv(Problem *p, const DnnlDesc *d)
{
    const Type *src = d->op == LIB_CONV_BWD_DATA ? &d->out : &d->in[0];
    const Type *weights = d->op == LIB_CONV_BWD_WEIGHTS ? &d->out : &d->in[1];
    const Type *dst = d->op == LIB_CONV               ? &d->out
                      : d->op == LIB_CONV_BWD_WEIGHTS ? &d->in[1]
                                                      : &d->in[0];
    p->slot[SRC] = layout_plain(src);
    p->slot[WEIGHTS] = layout_plain(weights);
    p->slot[DST] = layout_plain(dst);
    if (d->rows)
        p->slot[WEIGHTS].dim[0] = p->slot[DST].dim[1] = d->rows;
    if (d->op == LIB_CONV && d->nin > 2 && d->in[2].dt != DT_NONE)
        p->slot[BIAS] = layout_plain(&d->in[2]);
    if (d->conv.group > 1)
        split_groups(&p->slot[WEIGHTS], d->conv.group);
    int spatial = src->rank - 2;
    for (int i = 0; i < spatial; i++) {
        p->strides[i] = attr_or(&d->conv.strides, i, 1);
        p->dilates[i] = attr_or(&d->conv.dilations, i, 1) - 1;
        p->pad_begin[i] = attr_or(&d->conv.pads, i, 0);
        p->pad_end[i] = attr_or(&d->conv.pads, spatial + i, 0);
    }
    cut_batch(p, d);
}

/* false: nothing the library does fast. */
static bool describe(Problem *p, const DnnlDesc *d)
{
    *p = (Problem){.op = d->op, .choice = d->choice, .batch = 1, .images = 1};
    bool conv = d->op != LIB_MATMUL;
    if (d->op == LIB_NONE || (!conv && d->choice == DNNL_WINOGRAD))
        return false;
    for (int i = 0; i <= d->nin; i++) {
        const Type *t = i < d->nin ? &d->in[i] : &d->out;
        if (t->dt == DT_NONE)
            continue;
        if (element(t->dt) == dnnl_data_type_undef || type_count(t) == 0)
            return false;
        if (conv && i != 2 && (t->rank < 3 || t->rank > 5))
            return false;
    }
    (conv ? describe_conv : describe_matmul)(p, d);
    return true;
}

/* ---- operations --------------------------------------------------------------- */

typedef struct {
    int arg;              /* the primitive's argument; 0: absent */
    int operand;          /* number among the inputs; -1: the result */
    dnnl_memory_t outside, inside; /* the same object when there is no reorder */
    dnnl_primitive_t reorder;
    int64_t offset;       /* of `inside` in the scratch */
    int64_t image_bytes;  /* outside; 0: the same for all pieces */
} Slot;

struct DnnlOp {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    Slot slot[SLOTS];
    dnnl_memory_t work; /* working memory of the primitive */
    int64_t added;
    int64_t batch, images; /* in all, and of a piece */
    int64_t work_offset, scratch_bytes;
    char impl[64];
};

static dnnl_alg_kind_t algorithm(const Problem *p)
{
    return p->choice == DNNL_WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

/* Which layouts are left to the library. */
static bool layout_any(const Problem *p, int slot)
{
    if (p->choice == DNNL_PLAIN || slot == BIAS)
        return false;
    return p->op != LIB_MATMUL || slot == WEIGHTS;
}

/* The primitive's description; NULL: there is no such routine. */
static dnnl_primitive_desc_t describe_primitive(const Problem *p, MdRef md[SLOTS],
                                                dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    bool backward = p->op == LIB_CONV_BWD_DATA || p->op == LIB_CONV_BWD_WEIGHTS;
    if (backward && pd_make(&hint, p, LIB_CONV, algorithm(p), md, attr, engine, NULL))
        return NULL;
    if (pd_make(&pd, p, p->op, algorithm(p), md, attr, engine, hint))
        pd = NULL;
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return pd;
}

static MdRef wanted(dnnl_primitive_desc_t pd, const Problem *p, int slot)
{
    static const dnnl_query_t forward[SLOTS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                dnnl_query_weights_md, dnnl_query_dst_md};
    dnnl_query_t what = forward[slot];
    if (slot == SRC && p->op == LIB_CONV_BWD_DATA)
        what = dnnl_query_diff_src_md;
    if (slot == WEIGHTS && p->op == LIB_CONV_BWD_WEIGHTS)
        what = dnnl_query_diff_weights_md;
    if (slot == DST && p->op != LIB_CONV && p->op != LIB_MATMUL)
        what = dnnl_query_diff_dst_md;
    return dnnl_primitive_desc_query_md(pd, what, slot == BIAS ? 1 : 0);
}

/* Reserve part of the scratch. */
static int64_t reserve(DnnlOp *op, size_t bytes)
{
    int64_t at = op->scratch_bytes;
    op->scratch_bytes += ((int64_t)bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    return at;
}

static bool make_reorder(DnnlOp *op, Slot *s, MdRef plain, MdRef inner, dnnl_primitive_attr_t attr)
{
    bool in = s->operand >= 0;
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, in ? plain : inner, op->engine,
                                           in ? inner : plain, op->engine, attr))
        return false;
    /* The reorders of the library need no working memory; one that does is not used. */
    bool ok = dnnl_memory_desc_get_size(
                  dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) == 0 &&
              !dnnl_primitive_create(&s->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

static bool make_slot(DnnlOp *op, Slot *s, MdRef plain, MdRef inner, dnnl_primitive_attr_t attr)
{
    if (dnnl_memory_create(&s->outside, plain, op->engine, DNNL_MEMORY_NONE))
        return false;
    s->inside = s->outside;
    if (dnnl_memory_desc_equal(plain, inner))
        return true;
    s->inside = NULL;
    s->offset = reserve(op, dnnl_memory_desc_get_size(inner));
    return !dnnl_memory_create(&s->inside, inner, op->engine, DNNL_MEMORY_NONE) &&
           make_reorder(op, s, plain, inner, attr);
}

/* Arguments and operand numbers of the slots, by operation. */
static void name_slots(DnnlOp *op, const Problem *p)
{
    static const struct {
        int arg, operand;
    } table[][SLOTS] = {
        [LIB_MATMUL] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 1}, {0, 0}, {DNNL_ARG_DST, -1}},
        [LIB_CONV] = {{DNNL_ARG_SRC, 0},
                      {DNNL_ARG_WEIGHTS, 1},
                      {DNNL_ARG_BIAS, 2},
                      {DNNL_ARG_DST, -1}},
        [LIB_CONV_BWD_DATA] = {{DNNL_ARG_DIFF_SRC, -1},
                               {DNNL_ARG_WEIGHTS, 1},
                               {0, 0},
                               {DNNL_ARG_DIFF_DST, 0}},
        [LIB_CONV_BWD_WEIGHTS] = {{DNNL_ARG_SRC, 0},
                                  {DNNL_ARG_DIFF_WEIGHTS, -1},
                                  {0, 0},
                                  {DNNL_ARG_DIFF_DST, 1}},
    };
    for (int i = 0; i < SLOTS; i++) {
        const Layout *l = &p->slot[i];
        op->slot[i].arg = l->rank ? table[p->op][i].arg : 0;
        op->slot[i].operand = table[p->op][i].operand;
        if (i == SRC || i == DST)
            op->slot[i].image_bytes = l->stride[0] * (int64_t)dnnl_data_type_size(l->dt);
    }
}

/* Routines without vectors are slower than generated code. */
static bool is_fast(const char *impl)
{
    return strncmp(impl, "ref", 3) != 0 && strncmp(impl, "simple", 6) != 0;
}

typedef enum { MADE, NONE, FAILED } Result;

static Result make_op(DnnlOp *op, const Problem *p, dnnl_primitive_desc_t pd, Md plain[SLOTS],
                      dnnl_primitive_attr_t attr)
{
    const char *impl = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
    if (!is_fast(impl))
        return NONE;
    snprintf(op->impl, sizeof op->impl, "%s", impl);
    op->added = p->added;
    op->batch = p->batch;
    op->images = p->images;
    name_slots(op, p);
    bool reordered = false;
    for (int i = 0; i < SLOTS; i++) {
        if (!op->slot[i].arg)
            continue;
        if (!make_slot(op, &op->slot[i], MD_REF(plain[i]), wanted(pd, p, i), attr))
            return FAILED;
        reordered |= op->slot[i].reorder != NULL;
    }
    if (p->choice == DNNL_BLOCKED && !reordered)
        return NONE; /* that is DNNL_PLAIN */
    MdRef work = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    op->work_offset = reserve(op, dnnl_memory_desc_get_size(work));
    if (dnnl_memory_create(&op->work, work, op->engine, DNNL_MEMORY_NONE) ||
        dnnl_primitive_create(&op->primitive, pd))
        return FAILED;
    return MADE;
}

/* Strict: no setting from outside may change the arithmetic. */
static bool make_attr(dnnl_primitive_attr_t *attr, const Problem *p)
{
    dnnl_post_ops_t post = NULL;
    bool ok = !dnnl_primitive_attr_create(attr) &&
              !dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) &&
              !dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict);
    if (ok && p->added > 0)
        ok = !dnnl_post_ops_create(&post) && append_sum(post, p->slot[DST].dt) &&
             !dnnl_primitive_attr_set_post_ops(*attr, post);
    if (post)
        dnnl_post_ops_destroy(post);
    return ok;
}

/* Describe the problem to the library and make the operation. */
static Result make_problem(DnnlOp *op, const Problem *p)
{
    Md plain[SLOTS] = {0}, asked[SLOTS] = {0};
    MdRef ref[SLOTS];
    bool ok = true;
    for (int i = 0; i < SLOTS; i++) {
        ok &= md_make(&plain[i], &p->slot[i], false);
        ok &= md_make(&asked[i], &p->slot[i], layout_any(p, i));
        ref[i] = MD_REF(asked[i]);
    }
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    ok = ok && make_attr(&attr, p);
    Result result = FAILED;
    if (ok) {
        pd = describe_primitive(p, ref, attr, op->engine);
        result = pd ? make_op(op, p, pd, plain, attr) : NONE;
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < SLOTS; i++) {
        md_free(&plain[i]);
        md_free(&asked[i]);
    }
    return result;
}

DnnlOp *dnnl_make(const DnnlDesc *desc, Diag *d)
{
    Problem p;
    if (!describe(&p, desc))
        return NULL;
    DnnlOp *op = calloc(1, sizeof *op);
    Result result = FAILED;
    if (op && !dnnl_engine_create(&op->engine, dnnl_cpu, 0) &&
        !dnnl_stream_create(&op->stream, op->engine, dnnl_stream_default_flags))
        result = make_problem(op, &p);
    if (result == MADE)
        return op;
    if (result == FAILED)
        diag_set(d, "oneDNN: cannot create a primitive (%s)", dnnl_choice_name[desc->choice]);
    dnnl_free(op);
    return NULL;
}

static void free_slot(Slot *s)
{
    if (s->reorder)
        dnnl_primitive_destroy(s->reorder);
    if (s->inside && s->inside != s->outside)
        dnnl_memory_destroy(s->inside);
    if (s->outside)
        dnnl_memory_destroy(s->outside);
}

void dnnl_free(DnnlOp *op)
{
    if (!op)
        return;
    for (int i = 0; i < SLOTS; i++)
        free_slot(&op->slot[i]);
    if (op->work)
        dnnl_memory_destroy(op->work);
    if (op->primitive)
        dnnl_primitive_destroy(op->primitive);
    if (op->stream)
        dnnl_stream_destroy(op->stream);
    if (op->engine)
        dnnl_engine_destroy(op->engine);
    free(op);
}

int64_t dnnl_scratch_bytes(const DnnlOp *op)
{
    return op->scratch_bytes;
}

const char *dnnl_impl(const DnnlOp *op)
{
    return op->impl;
}

bool dnnl_wide(void)
{
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), need = dnnl_cpu_isa_avx512_core;
    return (isa & need) == need;
}

/* ---- running --------------------------------------------------------------------- */

static dnnl_status_t run_reorder(DnnlOp *op, const Slot *s)
{
    bool in = s->operand >= 0;
    dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, in ? s->outside : s->inside},
                             {DNNL_ARG_TO, in ? s->inside : s->outside}};
    return dnnl_primitive_execute(s->reorder, op->stream, 2, arg);
}

/* Run the reorders of operands (in) or of the result; unless `all`, those of images only. */
static dnnl_status_t run_reorders(DnnlOp *op, bool in, bool all)
{
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS && !status; i++) {
        const Slot *s = &op->slot[i];
        if (s->reorder && (s->operand >= 0) == in && (all || s->image_bytes))
            status = run_reorder(op, s);
    }
    return status;
}

/* The piece that starts with an image; at: where the tensors lie outside. */
static dnnl_status_t run_piece(DnnlOp *op, char *const at[SLOTS], int64_t image)
{
    dnnl_exec_arg_t arg[SLOTS + 1] = {{DNNL_ARG_SCRATCHPAD, op->work}};
    int n = 1;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS; i++) {
        const Slot *s = &op->slot[i];
        if (!s->arg)
            continue;
        status |= dnnl_memory_set_data_handle(s->outside, at[i] + image * s->image_bytes);
        arg[n++] = (dnnl_exec_arg_t){s->arg, s->inside};
    }
    if (!status)
        status = run_reorders(op, true, image == 0);
    if (!status)
        status = dnnl_primitive_execute(op->primitive, op->stream, n, arg);
    if (!status)
        status = run_reorders(op, false, true);
    return status;
}

bool dnnl_run(DnnlOp *op, const void *const *in, void *out, void *scratch, Diag *d)
{
    char *base = scratch, *at[SLOTS] = {0};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS; i++) {
        const Slot *s = &op->slot[i];
        if (s->arg)
            at[i] = s->operand < 0 ? out : (char *)(uintptr_t)in[s->operand];
        if (s->reorder)
            status |= dnnl_memory_set_data_handle(s->inside, base + s->offset);
    }
    status |= dnnl_memory_set_data_handle(op->work, base ? base + op->work_offset : NULL);
    if (op->added > 0 && in[2] != out)
        memcpy(out, in[2], (size_t)op->added);
    for (int64_t i = 0; i < op->batch && !status; i += op->images)
        status = run_piece(op, at, i + op->images <= op->batch ? i : op->batch - op->images);
    if (!status)
        status = dnnl_stream_wait(op->stream);
    return !status || fail_status(d, EXIT_DEVICE, "oneDNN: %s failed (%d)", op->impl, status);
}
