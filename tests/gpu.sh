#!/bin/sh
# gpu.sh [--quick] [FOLDER] -- what ckc does on an NVIDIA GPU, in about ten minutes; everything is built before.
# A table at the end, and gpu-results.json with the same numbers.
#
#   bits        the examples and the networks of models.sh at 100, 75, 50 and 35 %: schedules run again, in another
#               process, and at every budget the weights are those of 100 %
#   gradients   against the CPU's, network by network (ckc_tests cuda_device, CKC_GPU=1)
#   memory      the largest use of the device while a step runs, against the arena and what is reserved
#   sanitizer   compute-sanitizer's memcheck, racecheck and synccheck on small networks
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
CKC=$ckc CKC_OPTIONS="--device cuda" CKC_PERCENTS="100 50" "$root/tests/reload.sh" "$@" >"$out/reload.txt" 2>&1 ||
    wrong bits "schedules run again (reload.txt)"
row bits "schedules run again" "$(tail -1 "$out/reload.txt" | cut -d' ' -f1)" ""

. "$root/tests/models.sh"
same=0 infeasible=0
for model; do
    CKC_OPTIONS="--device cuda" find_some_options "$model" || { wrong bits "$model"; continue; }
    rm -f "$work"/*.safetensors
    for percent in 100 75 50 35; do
        # shellcheck disable=SC2086
        "$ckc" "$model" $options --budget $percent% --steps 3 --quiet --output "$work/m.ckc" \
            --save "$work/$percent.safetensors" 2>"$work/err"
        case $? in
        0) cmp -s "$work/100.safetensors" "$work/$percent.safetensors" && same=$((same + 1)) ||
            wrong bits "${model#"$root/"} at $percent %" ;;
        3) infeasible=$((infeasible + 1)) ;;
        *) wrong bits "${model#"$root/"} at $percent %: $(head -c 200 "$work/err")" ;;
        esac
    done
done
row bits "same weights at every budget" $same runs
row bits "budgets infeasible" $infeasible runs

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
        "$sanitizer" --tool $tool --error-exitcode 9 "$ckc" "$root/examples/mlp/model.onnx" --bind batch=8 \
            --device cuda --steps 2 --quiet --output "$work/m.ckc" >"$out/$tool.txt" 2>&1 ||
            wrong sanitizer "$tool (mlp)"
        "$sanitizer" --tool $tool --error-exitcode 9 "$ckc" "$root/examples/decoder/model.onnx" \
            --bind batch=2,seq=64 --init normal:0.02 --precision bf16 --device cuda --steps 2 --quiet \
            --output "$work/m.ckc" >>"$out/$tool.txt" 2>&1 || wrong sanitizer "$tool (decoder, bf16)"
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
