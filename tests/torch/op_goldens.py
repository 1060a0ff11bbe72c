#!/usr/bin/env python3
"""Store one gradient golden per operator case in tests/data/ops.

    op_goldens.py [--out ../data/ops] [CASE ...]

Per case NAME.onnx holds a model of a single node (opset as the case asks), NAME.npz the numbers:
    input/<name>      what to feed; shapes, axes and the like are initializers instead
    output/<name>     computed by PyTorch in float64
    cotangent/<name>  random, one per differentiable output; loss = sum of output * cotangent
    grad/<name>       gradient of that loss with respect to each differentiable input
Inputs are float32 values, so that a float32 and a float64 evaluation start alike. Only cases
whose forward result onnxruntime confirms are written (see golden.py). The cases are in
op_cases_tensor.py, op_cases_nn.py and op_cases_ms.py.
"""
import argparse
import os

import numpy as np
import onnx

import op_cases_ms  # noqa: F401  (registers its cases)
import op_cases_nn  # noqa: F401
import op_cases_tensor  # noqa: F401
from golden import CASES, compute


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(here, "..", "data", "ops"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    failed, confirmed, total = [], {}, 0
    for name in args.names or list(CASES):
        try:
            model, arrays, who = compute(name)
        except Exception as e:  # show every failing case at once
            failed.append(name)
            print(f"{name}: {type(e).__name__}: {' '.join(str(e).split())[:300]}")
            continue
        confirmed[who] = confirmed.get(who, 0) + 1
        path = os.path.join(args.out, name)
        onnx.save(model, path + ".onnx")
        np.savez(path + ".npz", **arrays)
        total += os.path.getsize(path + ".onnx") + os.path.getsize(path + ".npz")
    print(f"{sum(confirmed.values())} cases written, {total} bytes, confirmed by {confirmed}, "
          f"{len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
