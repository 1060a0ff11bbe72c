#!/bin/sh
# zoo.sh [--cuda] FOLDER... -- each export in these folders (tests/torch/export_models.py makes them): its gradients
# in single and double precision against PyTorch's, what trains, the number of attentions; then two steps at 80 and
# 65 %, whose schedules run again with the same bits (reload.sh).
# With --cuda instead, on the GPU that fake_cuda/ pretends, whose kernels' accesses to memory are all looked at: its
# gradients against the processor's, and the same bits at 100, 75 and 50 % in five orders of streams.
# A line per model and check; status 1 if one fails.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cuda=
[ "${1:-}" != --cuda ] || { cuda=yes; shift; }
[ $# -gt 0 ] || { sed -n 's/^# //p' "$0" | head -6 >&2; exit 1; }
status=0
for folder; do
    if [ "$cuda" ]; then
        CKC_ZOO=$folder CK_RUN_CASE=zoo_cuda FAKE_CUDA_SHADOW=1 "$root/build/dev/ckc_tests" zoo || status=1
        continue
    fi
    CKC_ZOO=$folder CK_RUN_CASE=zoo_gradients "$root/build/release/ckc_tests" zoo || status=1
    CKC_PERCENTS="80 65" "$root/tests/reload.sh" "$folder"/*/model.onnx || status=1
done
exit $status
