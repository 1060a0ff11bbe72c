#!/bin/sh
# bits.sh OLD NEW [MODEL.onnx...] -- do two builds of ckc give the same bits?  NEW plans and runs each model, at 100 and
# 65 %; OLD runs that schedule, and plans and runs the model itself without a budget: losses, gradients and saved
# weights must be equal byte for byte.  Prints a line per model and budget.
# Without models: the examples, the networks with PyTorch's numbers, the zoo, and CKC_ZOO's folder.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 2 ] || { sed -n 's/^# //p' "$0" | head -4 >&2; exit 1; }
old=$1 ckc=$2
shift 2
shared=${CKC_SHARED:-$root/../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
. "$root/tests/models.sh"

# Runs two steps of a model or schedule; leaves losses and weights in a folder.
try() { # program folder arguments...
    program=$1 into=$2
    shift 2
    rm -rf "$into" && mkdir "$into"
    "$program" "$@" --steps 2 --json --save "$into/weights.safetensors" >"$into.json" 2>"$work/err" &&
        losses "$into.json" >"$into/losses" && [ -s "$into/losses" ]
}

differing() { # folder folder name...: prints which of these files differ in the two folders
    into=$1 other=$2
    shift 2
    for name; do
        cmp -s "$into/$name" "$other/$name" || echo "other $name"
    done
}

# Prints what is wrong, or nothing; status 3: infeasible.
check() { # model budget
    rm -rf "$work/out"
    # shellcheck disable=SC2086 # a list of words
    try "$ckc" "$work/new" "$1" $options --budget "$2" --output "$work/out" --grads="$work/new.npz"
    status=$?
    [ $status -ne 3 ] || return 3
    [ $status -ne 0 ] || sed -E '/^  (device "|align |measured_ns |host )/d' "$work/out/step.ckp" >"$work/out.ckp" # OLD may not know these
    # shellcheck disable=SC2086
    [ $status -eq 0 ] && try "$old" "$work/own" "$1" $options --output "$work/out" --grads="$work/own.npz" ||
        { head -c 300 "$work/err"; return 0; }
    differing "$work/new" "$work/own" losses weights.safetensors
    # A schedule in a form that OLD does not read is only compared by what it gives.
    if try "$old" "$work/old" run "$work/out.ckp"; then
        differing "$work/new" "$work/old" losses weights.safetensors
    elif ! grep -q 'in version' "$work/err"; then
        head -c 300 "$work/err"
    fi
    cmp -s "$work/new.npz" "$work/own.npz" || echo "other gradients"
}

check_all "times the same bits" "100% 65%" "$@"
