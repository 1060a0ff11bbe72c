#!/bin/sh
# scale.sh MODEL.onnx... -- measures how long planning takes on one core: of each model (tests/torch/export_deep.py
# makes deep decoders) with --budget 60%, with --overhead 2%, and with the budget that the latter finds.  It prints
# seconds of CPU time and resident bytes, with kernels measured before, then the seconds of each pass.  Nothing
# passes or fails: times are the machine's.  CKC names the program (default: the release build), BIND sets sizes,
# DEVICE another device.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
ckc=${CKC:-$root/build/release/ckc}
where=${DEVICE:+--device $DEVICE}
where=${where:---threads 1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

plan() { # model options...
    model=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    "$ckc" "$model" --bind "${BIND:-batch=2,seq=64}" --init normal:0.02 --steps 0 $where \
        --output "$work/out" --json "$@" >"$work/json" 2>"$work/err" ||
        { head -c 300 "$work/err"; return 1; }
}

field() { sed -n 's/^ *"'"$1"'": \([-0-9.e+]*\),*$/\1/p' "$work/json" | head -n 1; }

measure() { # model options...: also leaves the seconds in $seconds
    times >"$work/before"
    plan "$@" || return 1
    times >"$work/after"
    seconds=$(awk '{split($1, t, /[ms]/); last = 60 * t[1] + t[2]} FNR == 2 {print last}' "$work/before" "$work/after" |
        tr '\n' ' ' | awk '{print $2 - $1}')
    shift
    echo "  $*: $seconds s, $(($(field resident_bytes) / 1000000)) MB, arena $(field arena_bytes), overhead $(field overhead), bound $(field lower_bound)"
}

for m in "$@"; do
    echo "$m"
    plan "$m" --budget 60% || continue
    measure "$m" --budget 60% || continue
    measure "$m" --overhead 2% || continue
    over=$seconds
    measure "$m" --budget "$(field budget_bytes)" && echo "  ratio $(echo "$over $seconds" | awk '{printf "%.2f", $1 / $2}')"
    plan "$m" --budget 60% --time-passes
    sed 's/^/    /' "$work/err"
done
