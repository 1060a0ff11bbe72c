/* fuzz_onnx.c -- model files: opening and importing either works or says why not. */
#include "fuzz.h"
#include "ir/onnx/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const OnnxBind bind[] = {{"batch", 2}, {"seq", 4}};
    Arena a = {0};
    Diag d = {0};
    Graph g;
    OnnxOptions opt = {.bind = bind, .nbind = 2, .forward_only = size & 1};
    OnnxModel *m = onnx_open(fuzz_file(data, size, "onnx"), &d);
    graph_init(&g, &a, &d);
    if (m && onnx_import(m, &opt, &g, &d) && !graph_verify(&g, &d))
        fuzz_fail(d.msg, "imported graph");
    if (d.failed && !*d.msg)
        fuzz_fail("failed without a message", "");
    onnx_close(m);
    arena_free(&a);
    return 0;
}
