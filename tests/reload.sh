#!/bin/sh
# reload.sh [MODEL.onnx...] -- checks that written schedules run again: each model is planned and run at 100, 80, 65
# and 50 %; its schedule is read and printed again, which must give the same text, and run again, which must give
# the same losses and the same saved weights.  Prints a line per model and budget, and at the end the failures.
# Without arguments: the examples, the networks with PyTorch's numbers, the zoo, and CKC_ZOO's folder.
# CKC names the program (default: the release build), CKC_SHARED the data beside the repository, CKC_PERCENTS the budgets.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
ckc=${CKC:-$root/build/release/ckc}
shared=${CKC_SHARED:-$root/../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
. "$root/tests/models.sh"

# STATUS: prints why the last command failed, even if it has said nothing.
reason() { echo "exit status $1: $(head -c 300 "$work/err")"; }

# Prints what is wrong, or nothing; status 3: infeasible.
check() { # model budget
    d=$work/out
    rm -rf "$d" "$work/a" "$work/b"
    mkdir "$work/a" "$work/b"
    # shellcheck disable=SC2086
    "$ckc" "$1" $options --budget "$2" --steps 2 --output "$d" --json --save "$work/a/w.safetensors" \
        --save "$work/a/m.onnx" >"$work/a.json" 2>"$work/err"
    status=$?
    [ $status -ne 3 ] || return 3
    [ $status -eq 0 ] || { reason $status; return 0; }
    "$ckc" opt "$d/step.ckp" >"$work/again.ckp" 2>"$work/err" || { reason $?; return 0; }
    cmp -s "$d/step.ckp" "$work/again.ckp" || echo "printed otherwise"
    "$ckc" run "$d/step.ckp" --steps 2 --json --save "$work/b/w.safetensors" --save "$work/b/m.onnx" \
        >"$work/b.json" 2>"$work/err" || { reason $?; return 0; }
    case $(losses "$work/a.json") in "["*"]") ;; *) echo "no losses" ;; esac
    [ "$(losses "$work/a.json")" = "$(losses "$work/b.json")" ] || echo "other losses"
    diff -rq "$work/a" "$work/b" >/dev/null || echo "other weights"
    return 0
}

budgets=
for percent in ${CKC_PERCENTS:-100 80 65 50}; do
    budgets="$budgets $percent%"
done
check_all "schedules ran again" "$budgets" "$@"
