#!/usr/bin/env python3
"""Peak memory of a training step: PyTorch's CPU allocator against ckc's arena.

    peak.py [--ckc build/release/ckc] [--out DIR] [--scale 1.0] [CASE ...]

The cases are those of bench_torch.py (decoder12: 12 layers, width 768, 12 heads, vocabulary
256, batch 8 x 512; resnet50: batch 32 x 224; unet: batch 8 x 256), and decoder12_sdpa: the same
network with PyTorch's fused attention. AdamW, f32. Each is exported to a temporary folder
without weights, planned by ckc without a budget (nothing is recomputed), and one step is run
in PyTorch with every allocation counted. One line of JSON per case.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional as F

from bench_torch import CASES, make_step, peak_bytes, resident_bytes


def fused_attention(self, x, causal):
    b, t, c = x.size()
    q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2)
               for a in self.c_attn(x).split(c, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                       dropout_p=self.attn_dropout.p if self.training else 0)
    return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


def decoder12_sdpa(scale):
    net, *rest = CASES["decoder12"](scale)
    for block in net.h:
        block.attn.forward = fused_attention.__get__(block.attn)
    return net, *rest


def export(net, x, path):
    torch.onnx.export(net, (x,), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      export_params=False, input_names=["x"], output_names=["logits"],
                      dynamic_axes={"x": {0: "batch"}})


def ckc_report(ckc, path, batch):
    folder = path.replace(".onnx", ".ckc")
    subprocess.run([ckc, path, "--bind", f"batch={batch}", "--init", "normal", "--steps", "0",
                    "--quiet", "--output", folder], check=True)
    with open(os.path.join(folder, "report.json")) as f:
        return json.load(f)


def measure(name, args, folder):
    torch.manual_seed(0)
    net, x, target, sizes = (decoder12_sdpa if name == "decoder12_sdpa" else CASES[name])(args.scale)
    net.train()
    result = {"case": name, **sizes, "parameters": sum(p.numel() for p in net.parameters())}
    if args.ckc:
        path = os.path.join(folder, name + ".onnx")
        plain = CASES[name.replace("_sdpa", "")](args.scale)[0].train()
        export(plain, x, path)
        report = ckc_report(args.ckc, path, sizes["batch"])
        result["ckc"] = {"arena": report["arena_bytes"], "live": report["live_bytes"],
                         **report["memory"]}
    if not args.only_ckc:
        step = make_step(net, x, target)
        step()
        net.zero_grad(set_to_none=True)
        result["torch"] = peak_bytes(step, resident_bytes(net, x, target))
        if args.ckc:
            result["ratio"] = round(result["ckc"]["arena"] / result["torch"], 3)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ckc")
    parser.add_argument("--only-ckc", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("cases", nargs="*",
                        default=["decoder12", "decoder12_sdpa", "resnet50", "unet"])
    args = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or temporary
        os.makedirs(folder, exist_ok=True)
        for name in args.cases:
            print(json.dumps(measure(name, args, folder)), flush=True)


if __name__ == "__main__":
    main()
