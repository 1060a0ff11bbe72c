#!/usr/bin/env python3
"""Export the example's decoder with many layers, for tests/scale.sh: export_deep.py LAYERS MODEL.onnx [WIDTH].

Without weights, so files stay small: 300 layers are 27,949 nodes of a training step (3.7 MB, half a minute), 1,110
layers 103,279 (14 MB, five minutes)."""
import importlib.util
import os
import sys

import torch

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/decoder/export.py")


def main():
    layers, path = int(sys.argv[1]), sys.argv[2]
    width = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    spec = importlib.util.spec_from_file_location("decoder", EXAMPLE)
    decoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(decoder)
    sys.setrecursionlimit(100 * layers + 1000)
    net = decoder.Decoder(layers=layers, width=width, heads=max(4, width // 64), context=64).train()
    idx = torch.randint(0, decoder.VOCABULARY, (2, 64))
    torch.onnx.export(net, (idx,), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      export_params=False, input_names=["idx"], output_names=["logits"],
                      dynamic_axes={"idx": {0: "batch", 1: "seq"}, "logits": {0: "batch", 1: "seq"}})


if __name__ == "__main__":
    main()
