/* inverse.c -- unit_lower_inverse: inverses of triangular matrices, by forward substitution.
 *
 * Row r of (I - L)^-1 is that of I and the sum over k < r of L[r, k] times row k: columns are independent,
 * and an item owns some of one matrix. */
#include "layout.h"
#include "../kernel_math.h"

enum { COLUMNS = 16 }; /* columns of an item: enough for a vector, few enough for many items on a GPU */

static bool inverse_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    *out = *in_type(g, n, 0);
    bool square = out->rank >= 2 && out->dim[out->rank - 1] == out->dim[out->rank - 2];
    return (square && dtype_is_float(out->dt)) || fail(d, "unit_lower_inverse: no square matrices of floats");
}

/* clang-format off */
KERNEL(unit_lower_inverse,
    const int64_t n = p[0], chunks = p[1], first = i / chunks * n * n;
    const int64_t c0 = i % chunks * 16, c1 = FMIN(n, c0 + 16);
    for (int64_t r = 0; r < n; r++) {
        const int64_t row = first + r * n;
        REAL sum[16];
        for (int64_t c = c0; c < c1; c++)
            sum[c - c0] = r == c;
        for (int64_t k = c0; k < r; k++)
            for (int64_t c = c0; c < c1; c++)
                sum[c - c0] += F(0, row + k) * F(1, first + k * n + c);
        for (int64_t c = c0; c < c1; c++)
            SETF(1, row + c, sum[c - c0]);
    }
)
/* clang-format on */

static bool inverse_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0);
    int64_t side = x->dim[x->rank - 1], chunks = ceil_div(side, COLUMNS);
    k_param(k, side);
    k_param(k, chunks);
    k->flops = (double)type_count(x) * (double)side / 3;
    k_body(k, &unit_lower_inverse_body, dims_product(x, 0, x->rank - 2) * chunks);
    return true;
}

/* y = (I - L)^-1: dy is y dL y. */
static bool inverse_grad(Grad *gr, const Node *n)
{
    Val y = n->out[0], dy = grad_out(gr, n, 0);
    Val dl = build_matmul(gr->g, build_matmul(gr->g, y, dy, true, false), y, false, true);
    grad_add(gr, n->in[0], build(gr->g, OP_trilu, NULL, 1, &dl, &(TriluAttrs){-1, 0}));
    return true;
}

/* Row by row, because ONNX has no such operator. */
static bool inverse_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *x = in_type(g, n, 0);
    int last = x->rank - 1;
    int64_t side = x->dim[last];
    OnnxVal l = onnx_in(o, 0);
    DType dt = onnx_type(o, l);
    Type of_rows = *x;
    of_rows.dim[last - 1] = 1;
    OnnxVal y = {0};
    for (int64_t r = 0; r < side; r++) {
        double *unit = NEW(onnx_arena(o), double, side);
        unit[r] = 1;
        OnnxVal row = onnx_cast(o, onnx_table(o, &(Tensor){type_make(DT_F64, 1, &side), unit}), dt);
        if (r == 0) {
            y = onnx_expand(o, row, of_rows.rank, of_rows.dim);
            continue;
        }
        OnnxVal before = onnx_slice(o, onnx_slice(o, l, last - 1, r, r + 1, 1), last, 0, r, 1);
        y = onnx_op2(o, "Concat", y, onnx_op2(o, "Add", onnx_op2(o, "MatMul", before, y), row));
        onnx_attr(o, "axis", last - 1);
    }
    onnx_out(o, 0, side ? y : l);
    return true;
}

const OpDef op_unit_lower_inverse = {.name = "unit_lower_inverse", .min_in = 1, .max_in = 1, .nout = 1,
                                     .in = IN_SINGLE, .infer = inverse_infer, .grad = inverse_grad,
                                     .lower = inverse_lower, .onnx = inverse_onnx};
