#!/bin/sh
# run.sh -- everything that is tested: fuzz targets (10 s each), then all Check suites, with address
# and undefined-behaviour sanitizers.  Installs what is missing.  The last line is Check's summary.
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh
# shellcheck disable=SC2086 # lists of words
need $BUILD_PACKAGES $TEST_PACKAGES

build() { # preset [target]: quiet unless it fails
    mkdir -p build
    log=build/$1.log
    { cmake --preset "$1" && cmake --build --preset "$1" -j "$(nproc)" --target "${2:-all}"; } >"$log" 2>&1 ||
        { tail -60 "$log"; exit 1; }
}

# Inputs to start from: small models, data, and what ckc makes of them.
seed_corpora() {
    corpus=build/fuzz/corpus
    rm -rf $corpus
    mkdir -p $corpus/fuzz_parse $corpus/fuzz_passes $corpus/fuzz_onnx $corpus/fuzz_plan $corpus/fuzz_data
    cp tests/data/ops/*.onnx examples/decoder/model.onnx $corpus/fuzz_onnx
    for f in tests/data/ops/*relu*.npz tests/data/ops/conv*.npz; do
        { printf 'z'; cat "$f"; } >"$corpus/fuzz_data/$(basename "$f")"
    done
    ./build/dev/ckc examples/mlp/model.onnx --bind batch=2 --steps 0 --quiet \
        --dump fuse --output $corpus/mlp.ckc 2>$corpus/fuzz_parse/mlp.ckg
    cp $corpus/fuzz_parse/mlp.ckg $corpus/fuzz_passes
    cp $corpus/mlp.ckc/step.ckp $corpus/fuzz_plan/mlp.ckp
}

build dev
build fuzz
seed_corpora
for target in fuzz_parse fuzz_passes fuzz_onnx fuzz_plan fuzz_data; do
    printf '%s: ' $target
    ./build/fuzz/$target -max_total_time=10 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/ build/fuzz/corpus/$target >build/fuzz/$target.log 2>&1 ||
        { tail -60 build/fuzz/$target.log; exit 1; }
    sed -n 's/stat::number_of_executed_units: *\([0-9]*\)/\1 runs/p' build/fuzz/$target.log
done
build release ckc # limits on memory hold without sanitizers only (tests/test_memory.c)
export CKC_PLAIN="$PWD/build/release/ckc"
exec ./build/dev/ckc_tests
