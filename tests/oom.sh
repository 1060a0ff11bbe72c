#!/bin/sh
# oom.sh [CKC_OOM [FIRST [STEP]]] -- in SQLite's manner: ckc_oom's n-th allocation fails, for n = FIRST,
# FIRST + STEP, ... (default 1, 1) until none is left to fail.  Each time through import, plan, run and
# save: one line, exit status 4, no report of a sanitizer, and every output absent or whole.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
bin=${1:-$root/build/dev/ckc_oom}
first=${2:-1}
step=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"

outputs() { find . -path ./cache -prune -o -type f ! -name err ! -name out ! -name count -print; }

# What is there is as in the run in which nothing failed (times differ), and nothing else is there.
whole() {
    for f in $(cd got && outputs); do
        case $f in
        */report.json) tail -1 "got/$f" | grep -q '}' ;;
        *) cmp -s "got/$f" "want/$f" ;;
        esac || { echo "$1: $f is not whole"; return 1; }
    done
}

loop() { # name, arguments of ckc; run in the folder "got"
    name=$1
    shift
    rm -rf want got
    mkdir want got
    (cd got && "$bin" "$@" >out 2>err) # fills the cache
    (cd want && "$bin" "$@" >out 2>err)
    n=$first
    bad=0
    while :; do
        rm -rf got
        mkdir got
        status=0
        (cd got && CKC_FAIL_AT=$n CKC_FAIL_COUNT=$work/count timeout 120 "$bin" "$@" >out 2>err) || status=$?
        [ "$status" -eq 0 ] && [ "$n" -gt "$(cat count)" ] && break
        if [ "$status" -ne 4 ] || [ "$(wc -l <got/err)" -ne 1 ] || ! grep -q '^ckc: ' got/err; then
            echo "$name: allocation $n: exit status $status: $(head -c 2000 got/err)"
            bad=$((bad + 1))
        fi
        whole "$name: allocation $n" || bad=$((bad + 1))
        n=$((n + step))
    done
    echo "$name: $(cat count) allocations, every ${step}. failed, $bad wrong"
    [ "$bad" -eq 0 ]
}

failed=0
mlp="$root/examples/mlp/model.onnx --bind batch=64"
common="--quiet --threads 1 --moves 1000 -o m.ckc --save w.onnx --save w.safetensors"
# shellcheck disable=SC2086 # lists of words
loop mlp $mlp --budget 90% $common || failed=1
conv="$root/tests/data/oom/conv.onnx"
# shellcheck disable=SC2086
loop conv $conv $common || failed=1
exit $failed
