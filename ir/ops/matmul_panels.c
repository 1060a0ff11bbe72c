/* matmul_panels.c -- a product whose second factor lies in panels: y[m,n] = a[m,k] b[n / p,k,n % p]. */
#include "common.h"
#include "../kernel_math.h"

static bool panels_infer(const Graph *g, const Node *n, Type *out, Diag *d)
{
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1);
    char sa[160], sb[160];
    if (a->rank != 2 || b->rank != 3 || a->dt != b->dt || !dtype_is_float(a->dt) || a->dim[1] != b->dim[1])
        return fail(d, "matmul_panels: operands %s and %s", type_str(a, sa), type_str(b, sb));
    *out = type_make(a->dt, 2, (int64_t[]){a->dim[0], b->dim[0] * b->dim[2]});
    return true;
}

/* Row i of the result.  p = panels, k, columns of a panel. */
KERNEL(matmul_panels, {
    for (int64_t panel = 0; panel < p[0]; panel++)
        for (int64_t c = 0; c < p[2]; c++) {
            REAL sum = 0;
            for (int64_t k = 0; k < p[1]; k++)
                sum += F(0, i * p[1] + k) * F(1, (panel * p[1] + k) * p[2] + c);
            SETF(2, (i * p[0] + panel) * p[2] + c, sum);
        }
})

static bool panels_lower(Kernel *k, const Graph *g, const Node *n)
{
    const Type *a = in_type(g, n, 0), *b = in_type(g, n, 1);
    for (int d = 0; d < b->rank; d++)
        k_param(k, b->dim[d]);
    k_body(k, &matmul_panels_body, a->dim[0]);
    k->flops = 2.0 * (double)type_count(b) * (double)a->dim[0];
    k->lib = LIB_MATMUL;
    return true;
}

static bool panels_onnx(OnnxNodes *o, const Graph *g, const Node *n)
{
    const Type *b = in_type(g, n, 1);
    OnnxVal matrix = onnx_transpose(o, onnx_in(o, 1), 3, (int[]){1, 0, 2});
    matrix = onnx_reshape(o, matrix, 2, (int64_t[]){b->dim[1], b->dim[0] * b->dim[2]});
    onnx_out(o, 0, onnx_op2(o, "MatMul", onnx_in(o, 0), matrix));
    return true;
}

const OpDef op_matmul_panels = {.name = "matmul_panels", .min_in = 2, .max_in = 2, .nout = 1,
                                .infer = panels_infer, .onnx = panels_onnx, .lower = panels_lower};
