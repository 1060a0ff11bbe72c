#!/bin/sh
# zoo.sh FOLDER... -- each export in these folders (tests/torch/export_models.py makes them): its gradients in single
# and double precision against PyTorch's, what trains, the number of attentions; then two steps at 80 and 65 %, whose
# schedules run again with the same bits (reload.sh).  A line per model and check; status 1 if one fails.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || { sed -n 's/^# //p' "$0" | head -3 >&2; exit 1; }
status=0
for folder; do
    CKC_ZOO=$folder CK_RUN_CASE=zoo_gradients "$root/build/release/ckc_tests" zoo || status=1
    CKC_PERCENTS="80 65" "$root/tests/reload.sh" "$folder"/*/model.onnx || status=1
done
exit $status
