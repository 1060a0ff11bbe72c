#!/bin/sh
# run.sh -- runs all tests: the fuzz targets (10 s each), then all Check suites, with address and
# undefined-behaviour sanitizers, as many at a time as there are processors.  It installs packages that are
# missing.  The last line is Check's summary, of all suites together.
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh

build() { # preset [target]: prints nothing unless it fails
    mkdir -p build
    log=build/$1.log
    { cmake --preset "$1" && cmake --build --preset "$1" -j "$(nproc)" --target "${2:-all}"; } >"$log" 2>&1 ||
        { tail -60 "$log"; exit 1; }
}

# Fails on lines that no version of clang-format would leave as they are (too long, with tabs, with blanks at the
# end or behind a cast), and on files of more than 700 lines.
check_format() {
    most=$(sed -n 's/^ColumnLimit: //p' .clang-format)
    cast='[^f]\\(((u?int[0-9]+|size)_t|int|double|float|unsigned|char \\*|void \\*)\\) [a-z(*&]'
    wrong=$(find ir passes codegen runtime cli api tests examples -name '*.[ch]' ! -path '*/build/*' ! -path '*.ckc/*' -exec awk -v most="$most" -v cast="$cast" '
        function say(what) { print FILENAME ":" FNR ": " what }
        length > most { say(length " columns") }
        /\t/ || / $/ { say("blanks") }
        $0 ~ cast { say("blank behind a cast") }
        FNR == 701 { say("more than 700 lines") }' {} +)
    [ -z "$wrong" ] || { printf '%s\n' "$wrong"; return 1; }
}

# Collects inputs for the fuzz targets to start from: small models, data, and what ckc makes of them.
seed_corpora() {
    corpus=build/fuzz/corpus
    rm -rf $corpus
    mkdir -p $corpus/fuzz_parse $corpus/fuzz_passes $corpus/fuzz_data $corpus/fuzz_device
    cp devices/*.txt $corpus/fuzz_device
    cp -r tests/fuzz/seeds/* $corpus
    cp tests/data/ops/*.onnx examples/decoder/model.onnx $corpus/fuzz_onnx
    for f in tests/data/ops/*relu*.npz tests/data/ops/conv*.npz; do
        { printf 'z'; cat "$f"; } >"$corpus/fuzz_data/$(basename "$f")"
    done
    ./build/dev/ckc examples/mlp/model.onnx --bind batch=2 --steps 0 --quiet \
        --dump fuse --output $corpus/mlp.ckc --instance $corpus/fuzz_solve/mlp.dag 2>$corpus/fuzz_parse/mlp.ckg
    ./build/dev/ckc examples/mlp/model.onnx --bind batch=64 --steps 0 --quiet --device tests/fuzz/small.txt \
        --dump fuse --output $corpus/split.ckc 2>$corpus/fuzz_parse/split.ckg
    ./build/dev/ckc run $corpus/mlp.ckc/step.ckp --quiet --save $corpus/w.safetensors
    { printf 's'; cat $corpus/w.safetensors; } >$corpus/fuzz_data/w.safetensors
    cp $corpus/fuzz_parse/*.ckg $corpus/fuzz_passes
    cp tests/fuzz/seeds/fuzz_passes/* $corpus/fuzz_parse
    cp $corpus/mlp.ckc/step.ckp $corpus/fuzz_plan/mlp.ckp
    cp $corpus/split.ckc/step.ckp $corpus/fuzz_plan/split.ckp
}

fuzz() { # target
    log=build/fuzz/$1.log
    ./build/fuzz/"$1" -seed=1 -max_total_time=10 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$1" >"$log" 2>&1 || { tail -60 "$log"; return 1; }
    sed -n "s/stat::number_of_executed_units: */$1: runs /p" "$log"
}

suite() { # name
    failed=0
    ./build/dev/ckc_tests "$1" >"build/tests/$1.log" 2>&1 || failed=1
    flock build/tests cat "build/tests/$1.log"
    return $failed
}

each() { # fuzz|suite, names on standard input: calls that function for each name, in a process of its own
    xargs -P "$(nproc)" -I{} ./tests/run.sh "$1" {}
}

skips() { # prints how many tests left something out, and why
    sed -n 's/^\([0-9]*\) times skipped: /\1 /p' build/tests/*.log |
        awk '{ n = $1; sub(/^[0-9]* /, ""); many[$0] += n; all += n }
             END { printf "skipped: %d\n", all; for (why in many) printf "  %d times: %s\n", many[why], why }'
}

# Prints all failures once more, for readers who keep only the end of a long output.
failures() {
    grep -hE '^[^:]+:[0-9]+:[FE]:' build/tests/*.log || true
}

summary() {
    sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\)$/\1 \2 \3/p' build/tests/*.log |
        awk '{ n += $1; f += $2; e += $3 }
             END { printf "%d%%: Checks: %d, Failures: %d, Errors: %d\n", 100 * (n - f - e) / n, n, f, e }'
}

# Threads do not spin, as suites share the processors.  The address sanitizer keeps few frames of where memory was
# allocated and 4 MB of freed memory: more would cost up to a third more time, for pages and the search for leaks.
export OMP_WAIT_POLICY=passive ASAN_OPTIONS="malloc_context_size=6:quarantine_size_mb=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

if [ $# -gt 0 ]; then # run.sh FUNCTION ARGUMENT...: calls one of the functions above, as each() does
    "$@"
    exit
fi
# shellcheck disable=SC2086 # lists of words
need $BUILD_PACKAGES $TEST_PACKAGES
build dev
build fuzz
seed_corpora
printf '%s\n' fuzz_parse fuzz_passes fuzz_onnx fuzz_plan fuzz_data fuzz_solve fuzz_pack fuzz_device | each fuzz
build release ckc # limits on memory hold without sanitizers only (tests/test_memory.c)
export CKC_PLAIN="$PWD/build/release/ckc"
rm -rf build/tests
mkdir build/tests
# All suites share a cache, so that a kernel is compiled once; otherwise their caches start empty.
export CKC_TEST_CACHE="$PWD/build/tests/cache" XDG_CACHE_HOME="$PWD/build/tests/cache"
failed=0
sed -n 's/^SUITE(\(.*\))/\1/p' tests/suites.def | each suite || failed=1
check_format || failed=1
skips
failures
summary
exit $failed
