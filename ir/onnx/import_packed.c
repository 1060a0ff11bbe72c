/* import_packed.c -- weights of a few bits, several in a byte, and com.microsoft's operators on them.
 *
 * They stay packed in memory; what reads them unpacks and scales them, block by block, in one kernel with a
 * result that is made again where it is needed again. */
#include "onnx_int.h"

/* Unpacks the elements of bytes, the first from the lowest bits: u8[..., n] to u8[..., n, 8 / bits]. */
static Val unpack(Graph *g, Val v, int64_t bits)
{
    uint8_t shift[8] = {0};
    int64_t each = 8 / bits;
    for (int64_t i = 0; i < each; i++)
        shift[i] = (uint8_t)(i * bits);
    Type t = *val_type(g, v);
    t.dim[t.rank++] = 1;
    v = build_reshape(g, v, t.rank, t.dim);
    Val by = graph_const(g, "shift", type_make(DT_U8, 1, &each), shift);
    Val mask = build_scalar(g, DT_U8, (double)((1 << bits) - 1));
    return build2(g, OP_bitand, build2(g, OP_bitshr, v, by), mask);
}

Val unpack_elements(Graph *g, Val bytes, const Type *type, int32_t data_type)
{
    int64_t count = type_count(type);
    int bits = data_type_bits(data_type);
    Val v = unpack(g, bytes, bits);
    if (!v.i)
        return v;
    int64_t all = type_count(val_type(g, v));
    v = build_slice(g, build_reshape(g, v, 1, &all), 0, 0, count);
    if (data_type_is_signed(data_type)) { /* the highest bit counts below zero */
        Val sign = build_scalar(g, DT_U8, (double)(1 << (bits - 1)));
        v = build_cast(g, build2(g, OP_bitxor, v, sign), DT_I8);
        v = build2(g, OP_sub, v, build_cast(g, sign, DT_I8));
    }
    return build_reshape(g, v, type->rank, type->dim);
}

/* ---- com.microsoft ------------------------------------------------------------------------------------- */

typedef struct {
    int64_t bits, block; /* bits of an element; elements along the last dimension that share a scale */
    Val scale, zero;     /* zero {0}: all zero points are `middle` */
    double middle;
} Blocks;

static bool read_blocks(OnnxNode *n, int64_t block, Blocks *b)
{
    TRY(attr_int_in(n, "bits", 4, 1, 8, &b->bits));
    TRY(attr_int_in(n, "block_size", block, 1, MAX_STEP, &b->block));
    if (8 % b->bits)
        return refuse(n, "elements of %lld bits", (long long)b->bits);
    b->scale = n->in[2];
    b->zero = has_in(n, 3) ? n->in[3] : (Val){0};
    b->middle = (double)(1 << (b->bits - 1));
    return true;
}

/* Unpacks the last dimension of v, which holds bytes, to its first n elements. */
static Val unpack_last(Graph *g, Val v, int64_t bits, int64_t n)
{
    if (!v.i)
        return v;
    Type t = *val_type(g, v);
    t.dim[t.rank - 1] *= 8 / bits;
    return build_slice(g, build_reshape(g, unpack(g, v, bits), t.rank, t.dim), t.rank - 1, 0, n);
}

/* (v - zero) * scale: scale and zero point broadcast to v. */
static Val scaled(Graph *g, Val v, const Blocks *b)
{
    DType dt = val_type(g, b->scale)->dt;
    v = build_cast(g, v, dt);
    Val zero = b->zero.i ? build_cast(g, b->zero, dt) : scalar_like(g, v, b->middle);
    return build2(g, OP_mul, build2(g, OP_sub, v, zero), b->scale);
}

/* Unpacks weights u8[N, blocks, bytes] to floats [N, K]; each block of K has a scale. */
static Val block_weights(OnnxNode *n, int64_t rows, int64_t depth, Blocks *b)
{
    Graph *g = n->g;
    int64_t blocks = ceil_div(depth, b->block), bytes = b->block * b->bits / 8;
    int64_t packed[] = {rows, blocks, bytes}, whole[] = {rows, blocks * b->block};
    int64_t of_block[] = {rows, blocks, 1, 1};
    if (type_count(in_type(n, 1)) != rows * blocks * bytes ||
        type_count(val_type(g, b->scale)) != rows * blocks)
        return refuse(n, "weights or scales of another size than its attributes say"), (Val){0};
    if (b->zero.i && val_type(g, b->zero)->dt == DT_U8) {
        int64_t zeros[] = {rows, (blocks * b->bits + 7) / 8};
        b->zero = unpack_last(g, build_reshape(g, b->zero, 2, zeros), b->bits, blocks);
    }
    Val v = unpack(g, build_reshape(g, n->in[1], 3, packed), b->bits);
    if (has_in(n, 4)) { /* it says which block's scale each column has */
        Val of = build_slice(g, n->in[4], 0, 0, depth);
        b->scale = build_gather(g, build_reshape(g, b->scale, 2, of_block), of, 1);
        b->zero = b->zero.i ? build_gather(g, build_reshape(g, b->zero, 2, of_block), of, 1) : b->zero;
        return scaled(g, build_slice(g, build_reshape(g, v, 2, whole), 1, 0, depth), b);
    }
    b->scale = build_reshape(g, b->scale, 4, of_block);
    b->zero = b->zero.i ? build_reshape(g, b->zero, 4, of_block) : b->zero;
    return build_slice(g, build_reshape(g, scaled(g, v, b), 2, whole), 1, 0, depth);
}

static bool import_matmul_nbits(OnnxNode *n)
{
    Graph *g = n->g;
    int64_t rows, depth;
    Blocks b;
    TRY(attr_needed(n, "K") && attr_int_in(n, "K", 0, 1, MAX_STEP, &depth));
    TRY(attr_needed(n, "N") && attr_int_in(n, "N", 0, 1, MAX_STEP, &rows));
    TRY(attr_needed(n, "block_size") && read_blocks(n, 0, &b));
    Val w = block_weights(n, rows, depth, &b);
    TRY(w.i);
    n->out[0] = build_matmul(g, n->in[0], build_cast(g, w, in_type(n, 0)->dt), false, true);
    if (has_in(n, 5))
        n->out[0] = build2(g, OP_add, n->out[0], n->in[5]);
    return n->out[0].i;
}

/* Gathers rows before they are unpacked. */
static bool import_gather_block_quantized(OnnxNode *n)
{
    Graph *g = n->g;
    const Type *t = in_type(n, 0);
    int64_t axis, along;
    Blocks b;
    TRY(read_blocks(n, 128, &b));
    TRY(axis_in(n, attr_int(n, "gather_axis", 0), t->rank, &axis));
    TRY(indices_inside(n, 1, &t->dim[axis], 1));
    TRY(axis_in(n, attr_int(n, "quantize_axis", 1), t->rank, &along));
    if (in_type(n, 1)->rank + t->rank > MAX_RANK)
        return refuse(n, "indices of rank %d", in_type(n, 1)->rank);
    if (along != t->rank - 1 || axis == along || in_type(n, 2)->rank != t->rank)
        return refuse(n, "blocks along dimension %lld, rows along %lld", (long long)along, (long long)axis);
    bool packed = t->dt == DT_U8 && !data_type_of(n, 0);
    int64_t blocks = val_type(g, b.scale)->dim[along], size = t->dim[along] * (packed ? 8 / b.bits : 1);
    Val row[] = {n->in[0], b.scale, b.zero};
    for (int i = 0; i < 3 && row[i].i; i++)
        row[i] = build_gather(g, row[i], n->in[1], (int)axis);
    TRY(row[0].i && row[1].i);
    int last = val_type(g, row[0])->rank - 1;
    if (packed)
        row[0] = unpack_last(g, row[0], b.bits, size);
    if (packed && row[2].i)
        row[2] = unpack_last(g, row[2], b.bits, blocks);
    for (int i = 1; i < 3 && row[i].i; i++)
        row[i] = build_slice(g, repeat_each(g, row[i], last, b.block), last, 0, size);
    b.scale = row[1];
    b.zero = row[2];
    b.middle = packed ? b.middle : 0;
    n->out[0] = scaled(g, row[0], &b);
    return n->out[0].i;
}

#define MS .domain = "com.microsoft"
const OnnxOp onnx_packed[] = {
    {"GatherBlockQuantized", 1, .import = import_gather_block_quantized, .fixed = 0xc, MS},
    {"MatMulNBits", 1, .import = import_matmul_nbits, .fixed = 0xc, MS},
    {0},
};
