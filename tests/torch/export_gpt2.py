#!/usr/bin/env python3
"""GPT-2 of any size as PyTorch's exporter writes it, without weights: nothing of their size is allocated or written.

    export_gpt2.py xl.onnx --layers 48 --width 1600 --heads 25 --batch 8 --length 1024
    ckc xl.onnx --device h200 --budget 40GB --steps 0
"""
import argparse

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode


class Logits(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


def main():
    p = argparse.ArgumentParser()
    p.add_argument("path")
    for name, default in ("layers", 48), ("width", 1600), ("heads", 25), ("batch", 8), ("length", 1024), \
            ("vocabulary", 50257):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--bf16", action="store_true")
    a = p.parse_args()
    config = transformers.GPT2Config(n_layer=a.layers, n_embd=a.width, n_head=a.heads, n_positions=a.length,
                                     vocab_size=a.vocabulary)
    config._attn_implementation = "eager"
    torch.set_default_dtype(torch.bfloat16 if a.bf16 else torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True):
        ids = torch.zeros(a.batch, a.length, dtype=torch.int64)
        model = Logits(config).eval()
        # without the exporter's optimizer, which needs values
        program = torch.onnx.export(model, (ids,), dynamo=True, optimize=False, input_names=["input_ids"])
    program.save(a.path, include_initializers=False, keep_initializers_as_inputs=True)


if __name__ == "__main__":
    main()
