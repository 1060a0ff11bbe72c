"""Tiny networks in training form by both exporters, and what PyTorch's eval() says: tests/data/inference.

python tests/torch/inference_golden.py [FOLDER]      makes FOLDER/NAME.onnx and NAME.npz
python tests/torch/inference_golden.py --check CKC   trains each with that ckc, saves it, and compares ckc eval,
                                                     onnxruntime and PyTorch's eval() with the saved weights
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "inference")


class StochasticDepth(nn.Module):  # as timm and torchvision write it
    def forward(self, x):
        if not self.training:
            return x
        return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.75).div_(0.75)


class Conv(nn.Module):
    def __init__(self, channels_too):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.drop2 = nn.Dropout2d(0.5) if channels_too else nn.Identity()
        self.depth = StochasticDepth() if channels_too else nn.Identity()
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(4, 5)

    def forward(self, x):
        x = self.depth(self.drop2(torch.relu(self.norm(self.conv(x)))))
        return self.out(self.drop(x.mean((2, 3))))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.drop = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Dropout(0.3)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.drop(self.norm(self.embedding(x))))


def network(name):
    torch.manual_seed(1)
    kind, exporter = name.split("_")
    net = Tied() if kind == "tied" else Conv(exporter != "script")
    x = torch.randint(0, 11, (2, 6)) if kind == "tied" else torch.randn(4, 3, 6, 6)
    with torch.no_grad():
        for b in net.buffers():
            if b.is_floating_point():
                b.add_(torch.rand(b.shape))
    return net.train(), x


NAMES = ["conv_script", "conv_dynamo", "conv_optimized", "tied_script", "tied_dynamo", "tied_optimized"]


def make(folder):
    os.makedirs(folder, exist_ok=True)
    for name in NAMES:
        net, x = network(name)
        state = {k: v.clone() for k, v in net.state_dict().items()}
        how = name.split("_")[1]
        options = {"dynamo": False, "do_constant_folding": False} if how == "script" else {
            "dynamo": True, "optimize": how == "optimized"}
        torch.onnx.export(net, (x,), os.path.join(folder, name + ".onnx"), input_names=["x"], output_names=["y"],
                          training=torch.onnx.TrainingMode.TRAINING, external_data=False, **options)
        if how != "script":  # that exporter writes the statistics that its forward pass left
            net.load_state_dict(state)
        with torch.no_grad():
            y = net.eval()(x)
        np.savez(os.path.join(folder, name + ".npz"), x=x.numpy(), y=y.numpy())


def check(ckc):
    import onnx
    import onnxruntime
    from safetensors.torch import load_file
    for name in NAMES:
        model, golden = os.path.join(DATA, name + ".onnx"), np.load(os.path.join(DATA, name + ".npz"))
        with tempfile.TemporaryDirectory() as d:
            saved, weights, out = os.path.join(d, "s.onnx"), os.path.join(d, "s.safetensors"), os.path.join(d, "y.npz")
            subprocess.run([ckc, model, "--steps", "3", "--lr", "0.01", "-q", "-o", os.path.join(d, "o"),
                            "--unbiased-var", "--save", saved, "--save", weights], check=True)
            onnx.checker.check_model(saved, full_check=True)
            ort = onnxruntime.InferenceSession(saved).run(None, {"x": golden["x"]})[0]
            net, x = network(name)
            missing, extra = net.load_state_dict(load_file(weights), strict=False)
            with torch.no_grad():
                y = net.eval()(torch.from_numpy(golden["x"])).numpy()
            if name == "conv_optimized":  # the norm is folded into the convolution
                y = ort
            np.savez(out, y=y)
            np.savez(os.path.join(d, "x.npz"), x=golden["x"])
            ours = subprocess.run([ckc, "eval", saved, "--data", os.path.join(d, "x.npz"), "--expect", out, "--rtol", "1e-5",
                                   "--atol", "1e-5", "-q"]).returncode == 0
            print(f"{name:16s} onnxruntime - PyTorch {abs(ort - y).max():.1e}, ckc eval {'agrees' if ours else 'DIFFERS'}, "
                  f"not in the file: {[m for m in missing if 'num_batches' not in m]}, unknown: {extra}, "
                  f"changed {abs(y - golden['y']).max():.1e}")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        make(sys.argv[1] if len(sys.argv) > 1 else DATA)
