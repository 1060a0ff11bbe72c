/* onednn.c -- every call to oneDNN.
 *
 * An operation has up to four tensors (two operands, bias, result).  Each has a plain layout and
 * the layout the routine wants; where they differ a reorder runs before (operands) or after
 * (result) into a region of the scratch:
 *
 *     scratch = [ reordered operand ]... [ reordered result ] [ working memory, shared by all ]
 *
 * A convolution with reordered images, forward or of the data, processes the batch a block at a time, so that
 * the region holds the images of one block; weights are reordered once.
 *
 * The 2.x and 3.x interfaces differ in memory descriptors (values against handles) and in how a
 * primitive is described; both differences are in the section "versions". */
#include "problem.h"
#include "ir/integer.h"
#include "ir/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64 };

#define IN_PARTS(n) {"plain" n, "blocked" n, "winograd" n, "own" n}
static const char *const choice_text[][ONEDNN_CHOICES] = {IN_PARTS(""), IN_PARTS("/2"), IN_PARTS("/4"),
                                                          IN_PARTS("/8"), IN_PARTS("/16")};
enum { NPARTS = sizeof choice_text / sizeof *choice_text };
_Static_assert(1 << (NPARTS - 1) == ONEDNN_MAX_PARTS, "a row for each number of parts");

static dnnl_data_type_t element(DType dt)
{
    return dt == DT_F32    ? dnnl_f32
           : dt == DT_BF16 ? dnnl_bf16
           : dt == DT_F16  ? dnnl_f16
                           : dnnl_data_type_undef;
}

const char *onednn_choice_text(const DnnlDesc *desc)
{
    int log2 = 0;
    while (2 << log2 <= desc->parts)
        log2++;
    return choice_text[log2][desc->choice];
}

bool onednn_choice_parse(DnnlDesc *desc, const char *text)
{
    for (int log2 = 0; log2 < NPARTS; log2++)
        for (int choice = 0; choice < ONEDNN_CHOICES; choice++)
            if (strcmp(choice_text[log2][choice], text) == 0) {
                desc->choice = (DnnlChoice)choice;
                desc->parts = log2 ? 1 << log2 : 0;
                return true;
            }
    return false;
}

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
    return (any ? dnnl_memory_desc_create_with_tag(md, l->rank, l->dim, element(l->dt),
                                                   dnnl_format_tag_any)
                : dnnl_memory_desc_create_with_strides(md, l->rank, l->dim, element(l->dt),
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
    return (any ? dnnl_memory_desc_init_by_tag(&md->value, l->rank, l->dim, element(l->dt),
                                               dnnl_format_tag_any)
                : dnnl_memory_desc_init_by_strides(&md->value, l->rank, l->dim, element(l->dt),
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

/* ---- operations --------------------------------------------------------------- */

typedef struct {
    int arg;              /* the primitive's argument; 0: absent */
    int operand;          /* number among the inputs; -1: the result */
    dnnl_memory_t outside, inside; /* the same object when there is no reorder */
    dnnl_primitive_t reorder;
    int64_t offset;       /* of `inside` in the scratch, in bytes */
    int64_t image_bytes;  /* from one image to the next outside; 0: all blocks use the same */
    int64_t part_bytes;   /* from one part to the next outside; 0: all parts use the same */
} Slot;

struct DnnlOp {
    Product *own; /* our own routine; the library is then used for reorders alone */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    Slot slot[SLOTS];
    dnnl_memory_t work; /* working memory of the primitive */
    int64_t added;
    int64_t batch, images; /* number of images in all, and of a block */
    int64_t parts;
    int64_t work_offset, scratch_bytes;
    char impl[64];
};

unsigned onednn_isa(void) { return (unsigned)dnnl_get_effective_cpu_isa(); }

static bool has_isa(unsigned need) { return (onednn_isa() & need) == need; }

bool onednn_wide_bf16(void) { return has_isa(dnnl_cpu_isa_avx512_core_bf16); }

bool onednn_has_amx(void) { return has_isa(dnnl_cpu_isa_avx512_core_amx); }

bool onednn_fast_bf16(void)
{
#ifdef __x86_64__
    return onednn_has_amx() || (onednn_wide_bf16() && __builtin_cpu_is("amd"));
#else
    return false;
#endif
}

/* Is a convolution in 16 bits computed in f32?  It is if the library's instructions for 16 bits are no
 * faster, as it reorders its tensors anyway. */
static bool widens(const Problem *p)
{
    return p->op != LIB_MATMUL && dtype_is_half(p->slot[SRC].dt) && !onednn_fast_bf16();
}

/* Sets the strides of a dense layout, with dimensions in order or with the channels last. */
static void pack_layout(Layout *l, bool channels_last)
{
    int64_t stride = channels_last ? l->dim[1] : 1;
    for (int i = l->rank - 1; i >= 0; i--) {
        bool inner = channels_last && i == 1;
        l->stride[i] = inner ? 1 : stride;
        stride *= inner ? 1 : l->dim[i];
    }
}

/* The layout of a tensor as the routine uses it. */
static Layout inside(const Problem *p, int slot)
{
    Layout l = p->slot[slot];
    if (widens(p) && dtype_is_half(l.dt))
        l.dt = DT_F32;
    if (p->channels_last && (slot == SRC || slot == DST))
        pack_layout(&l, true);
    return l;
}

static dnnl_alg_kind_t algorithm(const Problem *p)
{
    return p->choice == ONEDNN_WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

/* Is the layout of the tensor left to the library? */
static bool layout_any(const Problem *p, int slot)
{
    bool product = p->op == LIB_MATMUL, plain = p->choice == ONEDNN_PLAIN;
    return slot == WEIGHTS ? !(product && plain) : slot != BIAS && !product && !plain;
}

/* The description of the forward operation, whose weights have the type of its source, while their gradient
 * may be wider; NULL: there is no such routine. */
static dnnl_primitive_desc_t describe_forward(const Problem *p, MdRef md[SLOTS], dnnl_primitive_attr_t attr,
                                              dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd = NULL;
    MdRef forward[SLOTS];
    Md weights;
    Layout w = inside(p, WEIGHTS);
    memcpy(forward, md, sizeof forward);
    w.dt = inside(p, SRC).dt;
    bool ok = md_make(&weights, &w, layout_any(p, WEIGHTS));
    forward[WEIGHTS] = MD_REF(weights);
    if (!ok || pd_make(&pd, p, LIB_CONV, algorithm(p), forward, attr, engine, NULL))
        pd = NULL;
    md_free(&weights);
    return pd;
}

/* The primitive's description; NULL: there is no such routine. */
static dnnl_primitive_desc_t describe_primitive(const Problem *p, MdRef md[SLOTS],
                                                dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    bool backward = p->op == LIB_CONV_BWD_DATA || p->op == LIB_CONV_BWD_WEIGHTS;
    if (backward && !(hint = describe_forward(p, md, attr, engine)))
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

/* Reserves a part of the scratch and returns its offset in bytes. */
static int64_t reserve(DnnlOp *op, size_t bytes)
{
    int64_t at = op->scratch_bytes;
    op->scratch_bytes += round_up((int64_t)bytes, SCRATCH_ALIGN);
    return at;
}

static bool make_reorder(DnnlOp *op, Slot *s, MdRef plain, MdRef inner, dnnl_primitive_attr_t attr)
{
    bool in = s->operand >= 0;
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, in ? plain : inner, op->engine,
                                           in ? inner : plain, op->engine, attr))
        return false;
    /* The library's reorders need no working memory; a reorder that did would not be used. */
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

/* Sets the arguments, operands and strides of the slots. */
static void name_slots(DnnlOp *op, const Problem *p)
{
    static const int arg[][SLOTS] = {
        [LIB_MATMUL] = {[SRC] = DNNL_ARG_SRC, [WEIGHTS] = DNNL_ARG_WEIGHTS, [DST] = DNNL_ARG_DST},
        [LIB_CONV] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
        [LIB_CONV_BWD_DATA] = {[SRC] = DNNL_ARG_DIFF_SRC, [WEIGHTS] = DNNL_ARG_WEIGHTS,
                               [DST] = DNNL_ARG_DIFF_DST},
        [LIB_CONV_BWD_WEIGHTS] = {[SRC] = DNNL_ARG_SRC, [WEIGHTS] = DNNL_ARG_DIFF_WEIGHTS,
                                  [DST] = DNNL_ARG_DIFF_DST},
    };
    for (int i = 0; i < SLOTS; i++) {
        const Layout *l = &p->slot[i];
        op->slot[i].arg = l->rank ? arg[p->op][i] : 0;
        op->slot[i].operand = problem_operand(p->op, i);
        if (i == SRC || i == DST)
            op->slot[i].image_bytes = l->stride[0] * dtype_size[l->dt];
        op->slot[i].part_bytes = problem_part_stride(p, i) * dtype_size[l->dt];
    }
}

/* Is the library's routine of use?  Those without vectors are slower than generated code; those that call its
 * matrix products (gemm) allocate memory in every call. */
static bool is_fit(const char *impl)
{
    return strncmp(impl, "ref", 3) != 0 && strncmp(impl, "simple", 6) != 0 && !strstr(impl, "gemm");
}

typedef enum { MADE, NONE, FAILED } Result;

static Result make_op(DnnlOp *op, const Problem *p, dnnl_primitive_desc_t pd, Md plain[SLOTS],
                      dnnl_primitive_attr_t attr)
{
    const char *impl = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
    if (!is_fit(impl))
        return NONE;
    snprintf(op->impl, sizeof op->impl, "%s", impl);
    op->added = p->added;
    op->batch = p->batch;
    op->images = p->images;
    op->parts = p->parts;
    name_slots(op, p);
    bool reordered = false;
    for (int i = 0; i < SLOTS; i++) {
        if (!op->slot[i].arg)
            continue;
        if (!make_slot(op, &op->slot[i], MD_REF(plain[i]), wanted(pd, p, i), attr))
            return FAILED;
        reordered |= op->slot[i].reorder != NULL;
    }
    if ((p->choice == ONEDNN_BLOCKED || p->parts > 1) && !reordered)
        return NONE; /* it would equal ONEDNN_PLAIN; there are no copies for parts to reduce */
    MdRef work = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    op->work_offset = reserve(op, dnnl_memory_desc_get_size(work));
    if (dnnl_memory_create(&op->work, work, op->engine, DNNL_MEMORY_NONE) ||
        dnnl_primitive_create(&op->primitive, pd))
        return FAILED;
    return MADE;
}

/* Makes the attributes; the mode is strict, so that no setting from outside changes the arithmetic. */
static bool make_attr(dnnl_primitive_attr_t *attr, const Problem *p)
{
    dnnl_post_ops_t post = NULL;
    bool ok = !dnnl_primitive_attr_create(attr) &&
              !dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) &&
              !dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict);
    if (ok && p->added > 0)
        ok = !dnnl_post_ops_create(&post) && append_sum(post, element(p->slot[DST].dt)) &&
             !dnnl_primitive_attr_set_post_ops(*attr, post);
    if (post)
        dnnl_post_ops_destroy(post);
    return ok;
}

/* Describes the problem to the library and makes the operation. */
static Result make_problem(DnnlOp *op, const Problem *p)
{
    Md plain[SLOTS] = {0}, asked[SLOTS] = {0};
    MdRef ref[SLOTS];
    bool ok = true;
    for (int i = 0; i < SLOTS; i++) {
        ok &= md_make(&plain[i], &p->slot[i], false);
        Layout in = inside(p, i);
        ok &= md_make(&asked[i], &in, layout_any(p, i));
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

int onednn_vector_bytes(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core) ? 64 : has_isa(dnnl_cpu_isa_avx2) ? 32 : 16;
}

static bool open_engine(DnnlOp *op)
{
    return op->stream || (!dnnl_engine_create(&op->engine, dnnl_cpu, 0) &&
                          !dnnl_stream_create(&op->stream, op->engine, dnnl_stream_default_flags));
}

/* Makes the reorder of a tensor, with all images, to the layout that our own routine wants. */
static bool move_slot(DnnlOp *op, const Problem *p, int slot, const Layout *inner)
{
    Md out = {0}, in = {0};
    Layout outer = p->slot[slot];
    outer.dim[0] = inner->dim[0];
    bool ok = md_make(&out, &outer, false) && md_make(&in, inner, false) &&
              make_slot(op, &op->slot[slot], MD_REF(out), MD_REF(in), NULL);
    md_free(&out);
    md_free(&in);
    return ok;
}

/* Makes our own routine.  Images are reordered to [N, C, s...], except for gradients of weights, which read
 * either order, and for Winograd's algorithm on channels-last images. */
static Result make_own(DnnlOp *op, const Problem *p)
{
    Problem q = *p;
    int vector = onednn_vector_bytes(), threads = omp_get_max_threads();
    PanelKind kind = onednn_has_amx() ? PANEL_TILES : onednn_fast_bf16() ? PANEL_PAIRS : PANEL_FLOATS;
    if (p->choice == ONEDNN_WINOGRAD)
        op->own = product_make(p, vector, kind, threads);
    bool move = !op->own && p->channels_last && p->op != LIB_CONV_BWD_WEIGHTS;
    for (int i = SRC; i <= DST && move; i += DST - SRC) {
        q.slot[i].dim[0] = p->batch;
        pack_layout(&q.slot[i], false);
    }
    if (!op->own)
        op->own = product_make(&q, vector, kind, threads);
    if (!op->own)
        return NONE;
    op->added = p->added;
    op->batch = op->images = op->parts = 1;
    name_slots(op, p);
    if (move && !(open_engine(op) && move_slot(op, p, SRC, &q.slot[SRC]) &&
                  move_slot(op, p, DST, &q.slot[DST])))
        return FAILED;
    op->work_offset = reserve(op, (size_t)product_scratch(op->own));
    snprintf(op->impl, sizeof op->impl, p->choice == ONEDNN_WINOGRAD ? "own winograd" : "own");
    return MADE;
}

DnnlOp *onednn_make(const DnnlDesc *desc, Diag *d)
{
    Problem p;
    if (!problem_describe(&p, desc))
        return NULL;
    DnnlOp *op = mem_new(1, sizeof *op);
    bool winograd = p.choice == ONEDNN_WINOGRAD;
    Result result = FAILED;
    if (widens(&p) && p.choice == ONEDNN_PLAIN)
        result = NONE;
    else if (p.choice == ONEDNN_OWN || (winograd && p.channels_last))
        result = make_own(op, &p);
    else if (open_engine(op)) {
        result = make_problem(op, &p);
        if (result == NONE && winograd)
            result = make_own(op, &p);
    }
    if (result == MADE)
        return op;
    if (result == FAILED)
        fail_status(d, EXIT_DEVICE, "oneDNN: cannot create a primitive (%s)", onednn_choice_text(desc));
    onednn_free(op);
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

void onednn_free(DnnlOp *op)
{
    if (!op)
        return;
    product_free(op->own);
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

int64_t onednn_scratch_bytes(const DnnlOp *op) { return op->scratch_bytes; }

const char *onednn_impl(const DnnlOp *op) { return op->impl; }

/* ---- running --------------------------------------------------------------------- */

static dnnl_status_t run_reorder(DnnlOp *op, const Slot *s)
{
    bool in = s->operand >= 0;
    dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, in ? s->outside : s->inside},
                             {DNNL_ARG_TO, in ? s->inside : s->outside}};
    return dnnl_primitive_execute(s->reorder, op->stream, 2, arg);
}

/* Runs the reorders of operands (in) or of the result; after the first block only those of operands that
 * differ from the block before. */
static dnnl_status_t run_reorders(DnnlOp *op, bool in, int64_t part, int64_t image)
{
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS && !status; i++) {
        const Slot *s = &op->slot[i];
        bool differs = (part == 0 && image == 0) || (image == 0 && s->part_bytes) ||
                       (op->images < op->batch && s->image_bytes);
        if (s->reorder && (s->operand >= 0) == in && (!in || differs))
            status = run_reorder(op, s);
    }
    return status;
}

/* Runs a part for a block of images, from `image` on; at: addresses of the tensors outside. */
static dnnl_status_t run_block(DnnlOp *op, char *const at[SLOTS], int64_t part, int64_t image)
{
    dnnl_exec_arg_t arg[SLOTS + 1] = {{DNNL_ARG_SCRATCHPAD, op->work}};
    int n = 1;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS; i++) {
        const Slot *s = &op->slot[i];
        if (!s->arg)
            continue;
        status |= dnnl_memory_set_data_handle(s->outside, at[i] + image * s->image_bytes +
                                                              part * s->part_bytes);
        arg[n++] = (dnnl_exec_arg_t){s->arg, s->inside};
    }
    if (!status)
        status = run_reorders(op, true, part, image);
    if (!status)
        status = dnnl_primitive_execute(op->primitive, op->stream, n, arg);
    if (!status)
        status = run_reorders(op, false, part, image);
    return status;
}

static dnnl_status_t run_blocks(DnnlOp *op, char *const at[SLOTS])
{
    dnnl_status_t status = dnnl_success;
    for (int64_t part = 0; part < op->parts && !status; part++)
        for (int64_t i = 0; i < op->batch && !status; i += op->images)
            status = run_block(op, at, part,
                               i + op->images <= op->batch ? i : op->batch - op->images);
    return status ? status : dnnl_stream_wait(op->stream);
}

/* Runs our own routine, with reorders of the images before and after. */
static dnnl_status_t run_own(DnnlOp *op, char *const at[SLOTS], void *scratch)
{
    char *inside[SLOTS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < SLOTS; i++) {
        const Slot *s = &op->slot[i];
        inside[i] = s->reorder ? (char *)scratch + s->offset : at[i];
        if (s->reorder)
            status |= dnnl_memory_set_data_handle(s->outside, at[i]);
    }
    if (!status)
        status = run_reorders(op, true, 0, 0);
    if (!status)
        product_run(op->own, inside, op->added > 0, (char *)scratch + op->work_offset);
    return status ? status : run_reorders(op, false, 0, 0);
}

bool onednn_run(DnnlOp *op, const void *const *in, void *out, void *scratch, Diag *d)
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
    if (op->added > 0 && in[2] != out)
        memcpy(out, in[2], (size_t)op->added);
    if (!op->own)
        status |= dnnl_memory_set_data_handle(op->work, base ? base + op->work_offset : NULL);
    if (!status)
        status = op->own ? run_own(op, at, base) : run_blocks(op, at);
    return !status || fail_status(d, EXIT_DEVICE, "oneDNN: %s failed (%d)", op->impl, status);
}
