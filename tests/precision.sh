#!/bin/sh
# precision.sh [TYPE...] -- trains the example's decoder for 200 steps in f32 and in each type (default: bf16 fp16);
# the mean loss of the last 20 steps may differ by 1 % from that in f32.  CKC names the program; STEPS, BIND and
# THREADS set other sizes; DEVICE is a device other than this processor, for instance the fake GPU by
# CKC_CUDA_PATH=build/release/fake_cuda DEVICE=cuda BIND=batch=2,seq=32.
set -eu
cd "$(dirname "$0")/.."
ckc=${CKC:-build/release/ckc}
steps=${STEPS:-200}
where=${DEVICE:+--device $DEVICE}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
cat README.md ir/*.h ir/*.c passes/*.c >"$dir/text.txt"

# TYPE: trains in it, and prints the summary's lines about device, memory, time and loss
train() {
    # shellcheck disable=SC2086 # words
    "$ckc" examples/decoder/model.onnx --bind "${BIND:-batch=8,seq=64}" --init normal:0.02 --data "$dir/text.txt" \
        --precision "$1" --steps "$steps" ${where:---threads ${THREADS:-1}} --output "$dir/$1" >"$dir/$1.txt"
    grep -E '^(device|memory|time|loss)' "$dir/$1.txt"
}

# FOLDER: prints the mean of the last 20 losses in its report
last() {
    sed -n '/"losses": \[/,/\]/p' "$1/report.json" | grep -oE '[0-9]+\.[0-9]+(e[-+]?[0-9]+)?' | tail -20 |
        awk '{ s += $1; n++ } END { printf "%.6f\n", s / n }'
}

train f32
want=$(last "$dir/f32")
status=0
for type in ${*:-bf16 fp16}; do
    train "$type"
    got=$(last "$dir/$type")
    awk -v a="$got" -v b="$want" -v t="$type" 'BEGIN {
        off = 100 * (a / b - 1); if (off < 0) bad = -off; else bad = off
        printf "%s: loss %s, f32 %s: %+.3f %%\n", t, a, b, off; exit bad > 1 }' || status=1
done
exit $status
