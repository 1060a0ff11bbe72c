#!/bin/sh
# install.sh BUILD -- installs a build into a folder of the working directory, moves that, and uses it as
# others would: the program of examples/embed by pkg-config, shared and static, the command, the header in
# C and C++.  CC and CFLAGS are the build's.  Exit status 77: a tool that it needs is not installed.
set -eu
build=$1
root=$(cd "$(dirname "$0")/.." && pwd)
model=$root/examples/mlp/model.onnx
for tool in cmake pkg-config "$CC"; do
    command -v "$tool" >/dev/null || { echo "there is no $tool"; exit 77; }
done

cmake --install "$build" --prefix "$PWD/first" >install.log
mv first moved
at=$PWD/moved
lib=$(dirname "$(find "$at" -name libckc.a)")
export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"

# The shared library exports exactly the functions of the header, but for symbols of sanitizers.
for name in $(nm -D --defined-only "$lib/libckc.so" | awk '{ print $3 }' | grep -v '^__\(asan\|odr\)'); do
    grep -q "CKC_API .*\b$name(" "$at/include/ckc.h" || { echo "libckc.so has a symbol $name"; exit 1; }
done
for name in $(sed -n 's/^CKC_API .*\b\(ckc_[a-z_]*\)(.*/\1/p' "$at/include/ckc.h"); do
    nm -D --defined-only "$lib/libckc.so" | grep -q " T $name\$" || { echo "libckc.so has no $name"; exit 1; }
done

# shellcheck disable=SC2086,SC2046 # lists of words
"$CC" $CFLAGS -std=c99 -pedantic -Wall -Wextra -Werror -o shared "$root/examples/embed/train.c" \
    $(pkg-config --cflags --libs ckc)
./shared "$model" bind=batch=32 policy=recompute-all lr=0.01 >shared.out
# shellcheck disable=SC2086,SC2046
"$CC" $CFLAGS -o static "$root/examples/embed/train.c" \
    $(pkg-config --cflags --static --libs ckc | sed s/-lckc/-l:libckc.a/)
LD_LIBRARY_PATH='' ./static "$model" bind=batch=32 policy=recompute-all lr=0.01 >static.out
cmp shared.out static.out
grep -q '^step 200: loss ' shared.out
if command -v c++ >/dev/null; then
    echo '#include <ckc.h>' | c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ -I"$at/include" -
fi

"$at/bin/ckc" "$model" --bind batch=4 --quiet -o p --save w.safetensors
for file in share/man/man1/ckc.1 share/bash-completion/completions/ckc share/zsh/site-functions/_ckc \
    share/fish/vendor_completions.d/ckc.fish; do
    [ -s "$at/$file" ] || { echo "no $file"; exit 1; }
done
