#!/bin/sh
# zoo.sh [--cuda] FOLDER... -- checks the exports in these folders (tests/torch/export_models.py makes them): their
# gradients in single and double precision against PyTorch's, what trains, and the number of attentions; then that
# schedules of two steps at 80 and 65 % run again with the same bits (reload.sh).
# With --cuda, it instead checks gradients on the fake GPU of fake_cuda/ against the processor's, and that the bits
# are the same at 100, 75 and 50 % in five orders of streams; all its kernels' accesses to memory are checked.
# Prints a line per model and check; exit status 1 if one fails.
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
