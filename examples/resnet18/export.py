#!/usr/bin/env python3
"""Export torchvision's ResNet-18 for ckc: examples/resnet18/model.onnx.

The unchanged torchvision network with 10 classes (11.2 M parameters), in training form -
BatchNormalization with training_mode = 1 and running statistics - and *without weights*:
parameters and running statistics are graph inputs with a static float shape and no
initializer, so the file is small. `ckc --init kaiming` gives them values.

    input   image   float32  [batch, 3, 64, 64]
    output  logits  float32  [batch, 10]            ckc appends the cross-entropy
            target  int64    [batch]                class 0..9

Needs PyTorch and torchvision: python3 export.py [model.onnx]. Nothing else in this
repository needs Python.
"""
import os
import sys

import torch
import torchvision


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "model.onnx")
    torch.manual_seed(0)
    net = torchvision.models.resnet18(num_classes=10).train()
    torch.onnx.export(net, (torch.randn(2, 3, 64, 64),), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      export_params=False, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}})
    print(f"{path}: {sum(p.numel() for p in net.parameters())} parameters, "
          f"{os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
