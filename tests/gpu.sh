#!/bin/sh
# gpu.sh [--quick] [FOLDER] -- what ckc does on an NVIDIA GPU, in about ten minutes; everything is built before.
# A table at the end, and gpu-results.json with the same numbers.
#
#   bits        the examples and the networks of models.sh in f32 and 16 bits: with everything stored, in as little as
#               they run in, and half way: schedules run again, in another process, and the same weights
#   gradients   against the CPU's, network by network (ckc_tests cuda_device, CKC_GPU=1)
#   memory      the largest use of the device while a step runs, against the arena and what is reserved
#   sanitizer   compute-sanitizer's memcheck, and racecheck and synccheck of our kernels, on small networks
#   speed       FOLDER's models (gpt2.onnx, resnet50.onnx: tests/torch/export_gpt2.py, export_zoo.py) at four
#               budgets, --profile of each kernel; gpu_baseline.py beside them where PyTorch is there
#
# CKC is the program (default: the release build), CKC_OUT the folder for reports (default: gpu-results), PYTHON an
# interpreter with torch.  --quick: two small networks, as a rehearsal on the libraries of tests/fake_cuda:
#   CKC_CUDA_PATH=build/dev/fake_cuda CKC=build/dev/ckc tests/gpu.sh --quick
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
ckc=${CKC:-$root/build/release/ckc}
tests=${CKC_TESTS:-$root/build/dev/ckc_tests}
out=${CKC_OUT:-$root/gpu-results}
python=${PYTHON:-python3}
quick= folder=
for arg; do
    case $arg in --quick) quick=1 ;; *) folder=$arg ;; esac
done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failed=0
: >"$work/rows"

row() { # section name number unit: kept for the table and the file
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$work/rows"
    printf '%-10s %-40s %12s %s\n' "$1" "$2" "$3" "$4"
}
wrong() { # section what
    failed=$((failed + 1))
    row "$1" "$2" FAILED ""
}
value() { sed -n 's/^ *"'"$1"'": \(.*[^,]\),*$/\1/p' "$2" | head -1; } # of a report

# ---- the device -------------------------------------------------------------------------------------------

"$ckc" devices --json >"$out/devices.json" || exit 4
"$ckc" devices
grep -q '"name": "cuda"' "$out/devices.json" || { echo "gpu.sh: no NVIDIA GPU here"; exit 4; }

# ---- bits -------------------------------------------------------------------------------------------------

if [ "$quick" ]; then
    set -- "$root/examples/mlp/model.onnx"
else
    set -- "$root"/examples/*/model.onnx "$root"/tests/data/zoo/*/model.onnx \
        "$root"/../shared/fixtures/torch-oracle/*/model_static.onnx
fi
for model; do # without patterns that match nothing
    shift
    [ ! -f "$model" ] || set -- "$@" "$model"
done
CKC=$ckc CKC_OPTIONS="--device cuda" CKC_PERCENTS="100" "$root/tests/reload.sh" "$@" >"$out/reload.txt" 2>&1 ||
    wrong bits "schedules run again (reload.txt)"
row bits "schedules run again" "$(tail -1 "$out/reload.txt" | cut -d' ' -f1)" ""

. "$root/tests/models.sh"
try() { # precision file options...: three steps
    precision=$1 file=$2
    shift 2
    # shellcheck disable=SC2086
    "$ckc" "$model" $options --precision "$precision" "$@" --steps 3 --quiet --output "$work/m.ckc" --save "$file" \
        2>"$work/err"
}
same=0
for model; do
    CKC_OPTIONS="--device cuda" find_some_options "$model" || { wrong bits "$model"; continue; }
    for precision in f32 bf16 fp16; do
        name="${model#"$root/"}, $precision"
        try $precision "$work/all.safetensors" || { wrong bits "$name: $(head -c 200 "$work/err")"; continue; }
        all=$(($(value arena_bytes "$work/m.ckc/report.json") + $(value reserved_bytes "$work/m.ckc/report.json")))
        try $precision "$work/none" --budget $(($(value reserved_bytes "$work/m.ckc/report.json") + 1))B
        least=$(sed -n 's/.*feasible is \([0-9]*\).*/\1/p' "$work/err")
        for budget in $least $(((${least:-$all} + all) / 2)); do
            rm -f "$work/less.safetensors"
            try $precision "$work/less.safetensors" --budget "${budget}B" &&
                cmp -s "$work/all.safetensors" "$work/less.safetensors" && same=$((same + 1)) ||
                wrong bits "$name within $budget bytes: $(head -c 200 "$work/err")"
        done
    done
done
row bits "same weights in less memory" $same runs

# ---- gradients --------------------------------------------------------------------------------------------

if [ -x "$tests" ] && [ ! "$quick" ]; then
    ASAN_OPTIONS=protect_shadow_gap=0:detect_leaks=0 CKC_GPU=1 CKC_LONG=1 "$tests" cuda_device >"$out/gradients.txt" 2>&1 ||
        wrong gradients "ckc_tests cuda_device (gradients.txt)"
    row gradients "networks against the CPU" "$(grep -c 'same bits' "$out/gradients.txt")" networks
fi

# ---- memory -----------------------------------------------------------------------------------------------

used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -1; }
watch_memory() { # the largest number of MiB used until the file is gone
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
        --quiet --output "$work/m.ckc" 2>"$work/err" || wrong memory "$(head -c 200 "$work/err")"
    rm "$work/watched"
    wait
    report=$work/m.ckc/report.json
    row memory "used at most, decoder 64x128" $((($(cat "$work/most") - before) * 1048576)) bytes
    row memory "arena" "$(value arena_bytes "$report")" bytes
    row memory "reserved" "$(value reserved_bytes "$report")" bytes
fi

# ---- sanitizer --------------------------------------------------------------------------------------------

if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
    for tool in memcheck racecheck synccheck; do
        ours= # libraries' kernels, which copy and multiply beside each other, are reported as races
        [ $tool = memcheck ] || ours="--kernel-name kernel_substring=ck_"
        # shellcheck disable=SC2086
        "$sanitizer" --tool $tool $ours --error-exitcode 9 "$ckc" "$root/examples/mlp/model.onnx" --bind batch=8 \
            --device cuda --steps 2 --quiet --output "$work/m.ckc" >"$out/$tool.txt" 2>&1 ||
            wrong sanitizer "$tool (mlp)"
        precision=bf16 # whose library's kernels end racecheck with an internal error
        [ $tool != racecheck ] || precision=f32
        # shellcheck disable=SC2086
        "$sanitizer" --tool $tool $ours --error-exitcode 9 "$ckc" "$root/examples/decoder/model.onnx" \
            --bind batch=2,seq=64 --init normal:0.02 --precision $precision --device cuda --steps 2 --quiet \
            --output "$work/m.ckc" >>"$out/$tool.txt" 2>&1 || wrong sanitizer "$tool (decoder, $precision)"
        row sanitizer $tool "$(tail -1 "$out/$tool.txt" | tr -dc '0-9' | tail -c 3)" "errors in the last run"
    done
fi

# ---- speed ------------------------------------------------------------------------------------------------

speed() { # name model options...
    name=$1 model=$2
    shift 2
    for percent in 100 75 50 35; do
        d=$out/$name-$percent
        "$ckc" "$model" "$@" --device cuda --budget $percent% --steps 12 --profile --quiet --output "$work/m.ckc" \
            2>"$work/err"
        case $? in
        0) cp "$work/m.ckc/report.json" "$d.json"
            row speed "$name at $percent %, measured" "$(value measured_ms "$d.json")" ms
            row speed "$name at $percent %, predicted" "$(value predicted_ms "$d.json")" ms
            row speed "$name at $percent %, arena" "$(value arena_bytes "$d.json")" bytes ;;
        3) row speed "$name at $percent %" infeasible "" ;;
        *) wrong speed "$name at $percent %: $(head -c 200 "$work/err")" ;;
        esac
    done
}

baseline=$root/../shared/bench/pytorch/gpu_baseline.py
torch() { # the same steps in PyTorch, before and after ours
    [ ! "$quick" ] && [ -f "$baseline" ] && "$python" -c 'import torch; torch.cuda.init()' 2>/dev/null || return 0
    timeout 240 "$python" "$baseline" "$@" >>"$out/torch.jsonl" 2>"$out/torch.err" || wrong speed "gpu_baseline.py"
}

: >"$out/torch.jsonl"
if [ "$quick" ]; then
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
    END { print "\n]" }' "$work/rows" >"$out/gpu-results.json"
echo "$failed failures; $out/gpu-results.json"
[ $failed -eq 0 ]
