#!/bin/sh
# quickstart.sh -- on a fresh Debian 12: install what is missing, build, and train a GPT-like decoder
# (6 layers, 10.8 M parameters, exported by PyTorch) for 20 steps on this repository's own text, in half
# of the memory it would take.  build/release/memory.svg shows the memory over the step, and report.html in
# examples/decoder/model.ckc more.
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh
# shellcheck disable=SC2086 # a list of words
need $BUILD_PACKAGES

cmake --preset release >build-release.log 2>&1 || { cat build-release.log; exit 1; }
cmake --build --preset release -j "$(nproc)" >>build-release.log 2>&1 ||
    { tail -40 build-release.log; exit 1; }
rm -f build-release.log

text=build/release/text.txt
cat README.md ir/*.h ir/*.c passes/*.c codegen/*.c runtime/*.c runtime/cpu/*.c >$text
set -x
./build/release/ckc examples/decoder/model.onnx --bind batch=16,seq=128 --init normal:0.02 \
    --data $text --budget 50% --steps 20 --plot build/release/memory.svg
