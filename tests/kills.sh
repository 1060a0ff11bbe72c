#!/bin/sh
# kills.sh [N] -- kills ckc (SIGKILL) at N random moments of planning, training and saving, 200 if not given.
# After each kill, every file must be the old or the new one, those of the output folder all old or all new; the
# schedule must run and give the right bits; and the next run must leave no temporary file.  Two runs that differ
# in every file take turns.
#
# Then a run with --checkpoint is killed at a quarter as many moments, and each time resumed without a budget, with
# one, or from its schedule: it must end with the weights of an undisturbed run.  CKC names the command.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
ckc=${CKC:-$here/build/release/ckc}
kills=${1:-200}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export XDG_CACHE_HOME="$dir/cache" CKC_CUDA_PATH="$(dirname "$ckc")/fake_cuda"
mkdir cache a b out

train() { # a|b [folder]: trains, and writes everything that can be written
    case $1 in
    a) set -- "${2:-$1}" --bind batch=4 --optimizer momentum --device cuda --emit cuda ;;
    b) set -- "${2:-$1}" --bind batch=8 --device cpu --threads 1 ;;
    esac
    to=$1
    shift
    exec "$ckc" "$here/examples/mlp/model.onnx" "$@" --steps 3 --quiet --output "$to/p" \
        --save "$to/w.safetensors" --save "$to/w.onnx" --grads "$to/g.npz"
}

cold() {
    XDG_CACHE_HOME="$dir/cold"
    train b x # a GPU's algorithms are chosen by times, which are measured anew
}

again() { exec "$ckc" run out/p/step.ckp --steps 3 --quiet --save out/w.safetensors; }

fail() {
    echo "kills.sh: kill $i of $kills: $*" >&2
    ls -lA . out out/p >&2
    exit 1
}

random() { # n: a random number below it
    echo $(($(od -An -N4 -tu4 /dev/urandom) % $1))
}

either() { cmp -s "out/$1" "a/$1" || cmp -s "out/$1" "b/$1" || fail "out/$1 is neither old nor new"; }

same_folder() { # a|b: is out/p that run's?  Reports have times in them and are told apart by a few words
    diff -r -x report.json -x report.html -x .ckc-temporary -x '*.0.tmp' out/p "$1/p" >/dev/null &&
        grep -q "$(grep '"optimizer"' "$1/p/report.json")" out/p/report.json &&
        grep -q "$(grep -o 'A training step: [a-z]*' "$1/p/report.html")" out/p/report.html
}

check_files() {
    for f in w.safetensors w.onnx g.npz; do either $f; done
    if same_folder a; then is=a; elif same_folder b; then is=b; else fail "out/p is a mixture"; fi
    "$ckc" run out/p/step.ckp --steps 3 --quiet --save r.safetensors || fail "out/p does not run"
    cmp -s r.safetensors $is/w.safetensors || fail "out/p computes something else"
}

check_clean() { # folder...
    left=$(find "$@" -name '*.tmp' -o -name '.ckc-temporary' -o -name 'tmp-*')
    [ -z "$left" ] || fail "left behind: $left"
}

killed() { # ms command...: kills the command after so many milliseconds
    ms=$1
    shift
    ("$@") 2>err &
    pid=$!
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    kill -9 $pid 2>/dev/null || ended=$((ended + 1))
    wait $pid 2>/dev/null || true
}

now() { date +%s%3N; }
i=0 ended=0 new=0
for v in a b a b; do (train $v); done # by the second time, costs have been measured and kernels compiled
start=$(now)
(train a out)
usual=$(($(now) - start + 20))
is=a

while [ $((i = i + 1)) -le "$kills" ]; do
    was=$is
    [ $was = a ] && next=b || next=a
    at=$(random $usual)
    [ $((i % 2)) = 0 ] && at=$((usual / 2 + at / 2)) # more often in the second half, in which it writes
    case $((i % 10)) in
    3 | 6 | 9) # the schedule runs, and replaces the weights of the other run
        cp $next/w.safetensors out
        killed "$at" again
        ;;
    5) # the cache is empty, so that kernels are compiled
        rm -rf cold x
        mkdir cold x
        killed $((at * 5)) cold
        (cold)
        cmp -s x/w.safetensors b/w.safetensors || fail "x/w.safetensors"
        check_clean cold x
        ;;
    *) killed "$at" train $next out ;;
    esac
    check_files
    [ $is = $was ] || new=$((new + 1))
    (train $is out)
    check_files
    check_clean a b out
done
echo "$kills kills of runs that save, $ended after the end; $new times the new files were there: all old or all new, nothing left behind"

# ---- checkpoints

steps=4000 kills=$(((kills + 3) / 4)) ended=0 i=0 runs=0
model="$here/examples/mlp/model.onnx --bind batch=4 --threads 1 --quiet --output k/p --steps $steps"

goes_on() { # number: resumes the run in one of three ways
    set -- $(($1 % 3))
    case $1 in
    0) exec "$ckc" $model --checkpoint k/c --every 1 --resume --save k/w.safetensors ;;
    1) exec "$ckc" $model --checkpoint k/c --every 7 --resume --save k/w.safetensors --budget 64kB ;;
    2) exec "$ckc" run k/p/step.ckp --quiet --steps $steps --checkpoint k/c --every 3 --resume --save k/w.safetensors ;;
    esac
}

check_run() { # checks a resumed run that has ended, and removes its files
    cmp k/w.safetensors k/want.safetensors || fail "a run that was resumed has other weights"
    check_clean k
    rm -r k/c k/w.safetensors
    runs=$((runs + 1))
}

mkdir k
"$ckc" $model --save k/want.safetensors
while [ $((i = i + 1)) -le "$kills" ]; do
    killed "$(random 700)" goes_on $i
    [ "$(find k/c -name '*.safetensors' 2>/dev/null | wc -l)" -le 3 ] || fail "old checkpoints stay"
    [ ! -e k/w.safetensors ] || check_run
done
(goes_on 0)
check_run
echo "$kills kills of runs that are resumed, $ended after the end; $runs runs with the weights of an undisturbed one"
