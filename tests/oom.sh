#!/bin/sh
# oom.sh [CKC_OOM [FIRST [STEP [CKC_OOM_API]]]] -- tests running out of memory in SQLite's manner: ckc_oom's n-th
# allocation fails, for n = FIRST, FIRST + STEP, ... (default 1, 1) until none is left.  That is done with import,
# plan, run and save, with `run` and `eval`, and with an empty cache, where kernels are compiled.  Each time there
# must be one line of error, exit status 4, no report of a sanitizer, every output absent or whole, and no temporary
# file in the cache.  A program that uses the library (tests/oom/api.c) must be able to go on.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
bin=$(realpath "${1:-$root/build/dev/ckc_oom}")
first=${2:-1}
step=${3:-1}
api=$(realpath "${4:-$root/build/dev/ckc_oom_api}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"

outputs() { find . -path ./cache -prune -o -type f ! -name err ! -name out ! -name count -print; }

untimed() { sed 's/ns[ =]-\{0,1\}[0-9]*//' "$1"; } # without times, which an empty cache measures anew

# Checks that every output there is is one of the run in which nothing failed, and equal to that but for times.
whole() {
    for f in $(cd got && outputs); do
        case $f in
        */report.json) tail -1 "got/$f" | grep -q '}' ;;
        */step.ckp) [ "$(untimed "got/$f")" = "$(untimed "$want/$f")" ] ;;
        *) cmp -s "got/$f" "$want/$f" ;;
        esac || { echo "$1: $f is not whole"; return 1; }
    done
}

loop() { # name, folder of the whole outputs, arguments of ckc; run in the folder "got"
    name=$1
    want=$2
    shift 2
    rm -rf "$want" got
    mkdir "$want" got
    (cd got && "$bin" "$@" >out 2>err) && # fills the cache
        (cd "$want" && CKC_FAIL_COUNT=$work/count "$bin" "$@" >out 2>err) ||
        { echo "$name: does not run: $(head -c 2000 got/err)"; return 1; }
    n=$first
    bad=0
    while [ "$n" -lt 1000000 ]; do
        rm -rf got ${cold:+cache}
        mkdir got
        status=0
        (cd got && CKC_FAIL_AT=$n CKC_FAIL_COUNT=$work/count timeout 120 "$bin" "$@" >out 2>err) || status=$?
        [ "$status" -eq 0 ] && [ "$n" -gt "$(cat count)" ] && break
        if [ "$status" -ne 4 ] || [ "$(wc -l <got/err)" -ne 1 ] || ! grep -q '^ckc: ' got/err; then
            echo "$name: allocation $n: exit status $status: $(head -c 2000 got/err)"
            bad=$((bad + 1))
        fi
        whole "$name: allocation $n" || bad=$((bad + 1))
        if find cache -name '*.tmp' 2>/dev/null | grep .; then
            echo "$name: allocation $n: these are left"
            bad=$((bad + 1))
        fi
        n=$((n + step))
    done
    echo "$name: $(cat count) allocations, every ${step}. failed, $bad wrong"
    [ "$bad" -eq 0 ] && [ "$n" -lt 1000000 ]
}

library() {
    "$api" "$root/examples/mlp/model.onnx" >/dev/null || return 1 # fills the cache
    n=$first
    bad=0
    while [ "$n" -lt 1000000 ]; do
        status=0
        ASAN_OPTIONS=detect_leaks=0 CKC_FAIL_AT=$n CKC_FAIL_COUNT=$work/count timeout 120 "$api" \
            "$root/examples/mlp/model.onnx" >out 2>err || status=$?
        [ "$status" -eq 0 ] && [ "$n" -gt "$(cat count)" ] && break
        if [ "$status" -ne 0 ] || [ -s err ] || ! grep -q 'memory' out; then
            echo "library: allocation $n: exit status $status: $(cat out) $(head -c 2000 err)"
            bad=$((bad + 1))
        fi
        n=$((n + step))
    done
    echo "library: $(cat count) allocations, every ${step}. failed, $bad wrong"
    [ "$bad" -eq 0 ] && [ "$n" -lt 1000000 ]
}

failed=0
cold=
library || failed=1
save="--quiet --threads 1 --save w.onnx --save w.safetensors"
plan="$save --moves 1000 -o m.ckc"
conv="$root/tests/data/oom/conv.onnx"
golden="$root/tests/data/inference/conv_script"
# shellcheck disable=SC2086 # lists of words
{
    loop mlp mlp "$root/examples/mlp/model.onnx" --bind batch=64 --budget 90% $plan || failed=1
    loop run want run ../mlp/m.ckc/step.ckp $save || failed=1
    loop eval want eval "$golden.onnx" --data "$golden.npz" --expect "$golden.npz" --rtol 1e-5 --threads 1 || failed=1
    loop conv want "$conv" $plan || failed=1
    cold=yes
    loop "conv, cold" want "$conv" $plan || failed=1
    loop "eval, cold" want eval "$conv" --json --threads 1 || failed=1
}
exit $failed
