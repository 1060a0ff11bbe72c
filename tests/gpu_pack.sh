#!/bin/sh
# gpu_pack.sh FOLDER [MODEL.onnx ...] -- packs FOLDER/gpu.tar.xz, with all that tests/gpu.sh needs on a machine with a
# GPU but neither a compiler nor packages: ckc and ckc_tests (release build), the libraries that they load, and the
# models without their matrices, which become inputs that --init draws (PYTHON, an interpreter with onnx, does that).
# On that machine, in the root of a checkout that lies (or is linked) at the path of this one:
#
#   tar xf gpu.tar.xz && CKC_TESTS=build/release/ckc_tests tests/gpu.sh build/models
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?where to}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder" "$work/build/release/lib" "$work/build/models"

# Libraries that are left out, as they belong to the system: the loader, glibc and OpenCL.
system='/(ld-linux|libc\.so|libm\.so|libpthread|libdl|librt|libOpenCL)'
for program in ckc ckc_tests; do
    strip -o "$work/build/release/lib/$program" "$root/build/release/$program"
    ldd "$root/build/release/$program" | awk '$3 ~ /^\// { print $3 }' | grep -vE "$system" |
        xargs -I{} cp -Lu {} "$work/build/release/lib"
    # only these programs look there: PyTorch, which gpu.sh starts, has libraries of its own
    printf '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\nLD_LIBRARY_PATH=$here/lib exec "$here/lib/%s" "$@"\n' \
        $program >"$work/build/release/$program"
    chmod +x "$work/build/release/$program"
done
for model; do
    ${PYTHON:-python3} - "$model" "$work/build/models/$(basename "$model")" <<'END'
import sys
import onnx
model = onnx.load(sys.argv[1])
graph = model.graph
for t in [t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1]:
    graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    graph.initializer.remove(t)
onnx.save(model, sys.argv[2])
END
done
tar -C "$work" -cJf "$folder/gpu.tar.xz" build
ls -l "$folder/gpu.tar.xz"
