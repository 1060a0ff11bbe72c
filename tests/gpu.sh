#!/bin/sh
# gpu.sh [--quick] [--no-speed] [FOLDER] -- tests ckc on an NVIDIA GPU in some minutes; the programs must be built.
# It prints a line for each result as it comes, and writes all of them to gpu-results.json.
#
# These run side by side, since they mostly wait for the processors, which compile kernels:
#   bits        the examples, the networks with PyTorch's numbers and the zoo, in f32 and 16 bits, give the same
#               weights with everything stored, within the least budget, and half way between; schedules of f32 do
#               so again when another process runs them
#   gradients   they agree with the CPU's, network by network (ckc_tests cuda_device, CKC_GPU=1)
#   sanitizer   compute-sanitizer's memcheck, and racecheck and synccheck of our kernels, on small networks
# Then these run with nothing beside them, since they measure:
#   memory      the largest use of the device while a step runs, beside the arena and what is reserved
#   speed       the decoder and FOLDER's models (gpt2.onnx, resnet50.onnx: tests/torch/export_gpt2.py, export_zoo.py)
#               at four budgets, with --profile of each kernel; then gpu_baseline.py, if PyTorch is there.
#               Left out with --no-speed
#
# CKC is the program (default: the release build), CKC_TESTS its tests (default: the dev build), CKC_SHARED the data
# beside the repository, CKC_OUT the folder for reports (default: gpu-results), PYTHON an interpreter with torch.
# JOBS networks run at a time (default: half the processors).  With CKC_SECONDS, none begins later than that many
# seconds after the start; a run is ended after a minute.  What was not run is reported.
# --quick runs one small network, as a rehearsal on the libraries of tests/fake_cuda:
#   CKC_CUDA_PATH=build/dev/fake_cuda CKC=build/dev/ckc tests/gpu.sh --quick
# shellcheck disable=SC2030,SC2031 # jobs have values of their own
set -u
start=$(date +%s)
root=$(cd "$(dirname "$0")/.." && pwd)
ckc=${CKC:-$root/build/release/ckc}
tests=${CKC_TESTS:-$root/build/dev/ckc_tests}
shared=${CKC_SHARED:-$root/../shared}
out=${CKC_OUT:-$root/gpu-results}
python=${PYTHON:-python3}
jobs=${JOBS:-$((($(nproc) + 1) / 2))}
quick='' no_speed='' folder='' sides=''
for arg; do
    case $arg in
    --quick) quick=1 ;;
    --no-speed) no_speed=1 ;;
    -*) echo "gpu.sh: unknown option '$arg'" >&2; exit 1 ;;
    *) folder=$arg ;;
    esac
done
mkdir -p "$out"
work=$(mktemp -d)
rows=$work/rows
trap 'rm -rf "$work"' EXIT
trap 'kill $sides 2>/dev/null; exit 1' INT TERM
: >"$rows"
. "$root/tests/models.sh"

row() { # section name number unit: prints a result, and keeps it for the file
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$rows"
    printf '%-10s %-40s %12s %s\n' "$1" "$2" "$3" "$4"
}
wrong() { row "$1" "$2" FAILED ""; } # section what: a failure
reason() { echo "exit status $1: $(head -c 200 "$work/err" | tr '\n\t' '  ')"; } # status: why a command failed
value() { sed -n 's/^ *"'"$1"'": \(.*[^,]\),*$/\1/p' "$2" | head -1; } # key report: the value in the report

# ---- the device -------------------------------------------------------------------------------------------

"$ckc" devices --json >"$out/devices.json" || exit 4
"$ckc" devices
grep -q '"name": "cuda"' "$out/devices.json" || { echo "gpu.sh: no NVIDIA GPU here"; exit 4; }

# ---- jobs, side by side -----------------------------------------------------------------------------------

# Runs a command with a folder of its own for its work, its rows and its cache.  If the folder is there already,
# another process has taken the job, and nothing is done.
job() ( # folder command...
    work=$work/$1
    rows=$work/rows
    shift
    mkdir "$work" 2>/dev/null || exit 0
    export XDG_CACHE_HOME="$work/cache" # kernels are compiled and timed once in a job
    export OMP_WAIT_POLICY=passive      # threads do not spin where others compute
    "$@" </dev/null
    touch "$work/ended"
)
gather() { # section folder what: adds the rows of a job to all rows
    [ ! -f "$work/$2/rows" ] || cat "$work/$2/rows" >>"$rows"
    [ -f "$work/$2/ended" ] || wrong "$1" "$3: ended early"
}

# ---- bits -------------------------------------------------------------------------------------------------

if [ "$quick" ]; then
    set -- "$root/examples/mlp/model.onnx"
else
    set -- "$root"/examples/*/model.onnx "$root"/tests/data/zoo/*/model.onnx \
        "$shared"/fixtures/torch-oracle/*/model_static.onnx
fi
n=0
for precision in f32 bf16 fp16; do
    for model; do
        [ -f "$model" ] || continue # a pattern that matches nothing
        n=$((n + 1))
        echo "bits$n $precision $model"
    done
done >"$work/pairs"

try() { # file options...: three steps of a plan found by a short search, as a long one could take minutes
    file=$work/$1.safetensors
    shift
    # shellcheck disable=SC2086,SC2154 # a list of words, found by models.sh
    timeout 60 "$ckc" "$model" $options "$@" --moves=2000 --steps 3 --quiet --output "$work/m.ckc" \
        --save "$file" 2>"$work/err"
    tried=$?
    [ $tried -ne 124 ] || touch "$work/late"
    return $tried
}
bits() { # precision model
    precision=$1 model=$2 name="${2#"$root/"}, $1"
    if [ $(($(date +%s) - start)) -gt "${CKC_SECONDS:-1000000}" ]; then
        touch "$work/late"
        return
    fi
    CKC_OPTIONS="--device cuda --precision $precision"
    { find_some_options "$model" && try all; } || { wrong bits "$name: $(reason $?)"; return; }
    report=$work/m.ckc/report.json
    reserved=$(value reserved_bytes "$report")
    all=$(($(value arena_bytes "$report") + reserved))
    [ "$precision" != f32 ] ||
        CKC=$ckc CKC_OPTIONS=$options CKC_PERCENTS=100 "$root/tests/reload.sh" "$model" >"$work/reload.txt" 2>&1 ||
        wrong bits "$name: its schedule run again (reload.txt)"
    try least --budget $((reserved + 1))B # is refused with a message that names the least budget
    status=$?
    least=$(sed -n 's/.*feasible is \([0-9]*\).*/\1/p' "$work/err")
    [ ! -f "$work/late" ] || return
    [ "$least" ] || { wrong bits "$name: no least budget: $(reason $status)"; return; }
    for budget in $least $(((least + all) / 2)); do
        if try less --budget "${budget}B" && cmp "$work/all.safetensors" "$work/less.safetensors" >"$work/err" 2>&1
        then
            echo "$budget" >>"$work/same"
        elif [ $tried -ne 124 ]; then
            wrong bits "$name within $budget bytes: $(reason $tried)"
        fi
        rm -f "$work/less.safetensors"
    done
}
all_bits() {
    while read -r name precision model; do
        job "$name" bits "$precision" "$model"
    done <"$work/pairs"
}
for _ in $(seq "$jobs"); do
    all_bits &
    sides="$sides $!"
done

# ---- gradients --------------------------------------------------------------------------------------------

gradients() {
    CKC_GPU=1 CKC_LONG=1 ASAN_OPTIONS=protect_shadow_gap=0:detect_leaks=0 \
        "$tests" cuda_device >"$out/gradients.txt" 2>&1 || wrong gradients "ckc_tests cuda_device (gradients.txt)"
    row gradients "networks against the CPU" "$(grep -c 'same bits' "$out/gradients.txt")" networks
}
[ "$quick" ] || { job gradients gradients & sides="$sides $!"; }

# ---- sanitizer --------------------------------------------------------------------------------------------

sanitize() { # tool
    tool=$1 ours='' precision=bf16
    : >"$out/$tool.txt"
    # Libraries' kernels, which copy and multiply beside each other, are reported as races; and those of bf16 end
    # racecheck with an internal error.
    [ "$tool" = memcheck ] || ours="--kernel-name kernel_substring=ck_"
    [ "$tool" != racecheck ] || precision=f32
    for network in mlp "decoder, $precision"; do
        case $network in
        mlp) options="--bind batch=8" ;;
        *) options="--bind batch=2,seq=64 --init normal:0.02 --precision $precision" ;;
        esac
        # shellcheck disable=SC2086 # lists of words
        "$sanitizer" --tool "$tool" $ours --error-exitcode 9 "$ckc" "$root/examples/${network%%,*}/model.onnx" \
            $options --device cuda --steps 2 --quiet --output "$work/m.ckc" >>"$out/$tool.txt" 2>&1 ||
            wrong sanitizer "$tool ($network)"
    done
    row sanitizer "$tool" "$(awk '/ SUMMARY: / && match($0, /[0-9]+ error/) { n += substr($0, RSTART) }
        END { print n + 0 }' "$out/$tool.txt")" errors
}
tools=''
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
    tools="memcheck racecheck synccheck"
else
    row sanitizer "compute-sanitizer is not there" "not run" ""
fi
for tool in $tools; do
    job "$tool" sanitize "$tool" &
    sides="$sides $!"
done

# ---- what the jobs found ----------------------------------------------------------------------------------

wait
late=0
: >"$out/reload.txt"
while read -r name precision model; do
    gather bits "$name" "${model#"$root/"}, $precision"
    if [ -f "$work/$name/late" ]; then
        late=$((late + 1))
        row bits "${model#"$root/"}, $precision" "not run" "to its end, for want of time"
    fi
    [ ! -f "$work/$name/reload.txt" ] || cat "$work/$name/reload.txt" >>"$out/reload.txt"
done <"$work/pairs"
row bits "schedules run again" "$(grep -c 'same bits' "$out/reload.txt")" schedules
row bits "same weights in less memory" "$(cat "$work"/bits*/same 2>/dev/null | wc -l)" runs
row bits "not run for want of time" $late "networks and precisions"
[ "$quick" ] || gather gradients gradients "ckc_tests cuda_device"
for tool in $tools; do
    gather sanitizer "$tool" "$tool"
done

# ---- memory -----------------------------------------------------------------------------------------------

used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -1; }
watch_memory() { # writes the largest number of MiB used until the file "watched" is gone
    most=0
    while [ -f "$work/watched" ]; do
        now=$(used)
        [ "${now:-0}" -le "$most" ] || most=$now
        echo "$most" >"$work/most"
    done
}

if [ -n "$(used)" ]; then
    before=$(used)
    touch "$work/watched"
    watch_memory &
    "$ckc" "$root/examples/decoder/model.onnx" --bind batch=64,seq=128 --init normal:0.02 --device cuda --steps 50 \
        --quiet --output "$work/m.ckc" 2>"$work/err" || wrong memory "$(reason $?)"
    rm "$work/watched"
    wait
    report=$work/m.ckc/report.json
    row memory "used at most, decoder 64x128" $((($(cat "$work/most") - before) * 1048576)) bytes
    row memory "arena" "$(value arena_bytes "$report")" bytes
    row memory "reserved" "$(value reserved_bytes "$report")" bytes
else
    row memory "nvidia-smi is not there" "not run" ""
fi

# ---- speed ------------------------------------------------------------------------------------------------

speed() { # name model options...
    name=$1 model=$2
    shift 2
    for percent in 100 75 50 35; do
        d=$out/$name-$percent
        "$ckc" "$model" "$@" --device cuda --budget $percent% --steps 12 --profile --quiet --output "$work/m.ckc" \
            2>"$work/err"
        status=$?
        case $status in
        0) cp "$work/m.ckc/report.json" "$d.json"
            row speed "$name at $percent %, measured" "$(value measured_ms "$d.json")" ms
            row speed "$name at $percent %, predicted" "$(value predicted_ms "$d.json")" ms
            row speed "$name at $percent %, arena" "$(value arena_bytes "$d.json")" bytes ;;
        3) row speed "$name at $percent %" infeasible "" ;;
        *) wrong speed "$name at $percent %: $(reason $status)" ;;
        esac
    done
}

baseline=$shared/bench/pytorch/gpu_baseline.py
torch() { # the same steps in PyTorch
    [ -f "$baseline" ] && "$python" -c 'import torch; torch.cuda.init()' 2>/dev/null || return 0
    timeout 240 "$python" "$baseline" >>"$out/torch.jsonl" 2>"$out/torch.err" || wrong speed "gpu_baseline.py"
}

: >"$out/torch.jsonl"
if [ "$no_speed" ]; then
    row speed "--no-speed" "not run" ""
elif [ "$quick" ]; then
    speed mlp "$root/examples/mlp/model.onnx" --bind batch=256
else
    speed decoder "$root/examples/decoder/model.onnx" --bind batch=64,seq=128 --init normal:0.02 --precision bf16
    [ ! -f "$folder/gpt2.onnx" ] || speed gpt2 "$folder/gpt2.onnx" --init normal:0.02 --precision bf16
    [ ! -f "$folder/resnet50.onnx" ] || speed resnet50 "$folder/resnet50.onnx" --init normal:0.02 --precision bf16
    torch
fi

# ---- the file ---------------------------------------------------------------------------------------------

awk -F'\t' 'BEGIN { print "[" }
    { gsub(/["\\]/, "", $2)
      number = ($3 ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/) ? $3 : "\"" $3 "\""
      printf "%s  {\"section\": \"%s\", \"name\": \"%s\", \"value\": %s, \"unit\": \"%s\"}", (NR > 1 ? ",\n" : ""), $1, $2, number, $4 }
    END { print "\n]" }' "$rows" >"$out/gpu-results.json"
failed=$(cut -f3 "$rows" | grep -cx FAILED)
echo "$failed failures in $(($(date +%s) - start)) s; $out/gpu-results.json"
[ "$failed" -eq 0 ]
