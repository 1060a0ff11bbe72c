#!/usr/bin/env python3
"""Export a small multi-layer perceptron with its weights: examples/mlp/model.onnx.

The smallest complete example: two hidden layers with LayerNorm, GELU and dropout, 3,850
parameters stored in the file, symbolic batch. It compiles in a moment and is what the tests
use when any model will do.

    input   x       float32  [batch, 16]
    output  logits  float32  [batch, 10]            ckc appends the cross-entropy
            target  int64    [batch]                class 0..9

Needs PyTorch: python3 export.py [model.onnx]. Nothing else in this repository needs Python.
"""
import os
import sys

import torch
import torch.nn as nn


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "model.onnx")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1),
                        nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1),
                        nn.Linear(48, 10)).train()
    torch.onnx.export(net, (torch.randn(2, 16),), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["x"], output_names=["logits"],
                      dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}})
    print(f"{path}: {sum(p.numel() for p in net.parameters())} parameters, "
          f"{os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
