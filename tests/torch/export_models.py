#!/usr/bin/env python3
"""Export tiny networks of transformers, timm and torchvision as users do.

    export_models.py [--out /tmp/models] [--variants default,raw,legacy] [MODEL ...]

Per network and variant one folder NAME_VARIANT with model.onnx, meta.json and oracle.npz as
export_zoo.py writes them; meta.json also has the number of attentions ("attentions").
Variants: default (PyTorch's: dynamo, graph optimizer on), raw (dynamo, optimizer off), legacy
(TorchScript), opset23 and opset24 (dynamo, with the Attention operator where it writes it).
Networks with dropout, and those in 16 bits, have data.npz (inputs and target) instead of
oracle.npz.  Results are not committed.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import oracle
from export_zoo import under_file_names
from model_table import MODELS
from oracle import cast_inputs, match_initializers, perturb

VARIANTS = {
    "default": dict(exporter="dynamo", optimize=True),
    "raw": dict(exporter="dynamo"),
    "legacy": dict(exporter="legacy"),
    "opset23": dict(exporter="dynamo", optimize=True, opset=23),
    "opset24": dict(exporter="dynamo", optimize=True, opset=24),
}
ALSO = {
    "legacy": ("gpt2_mask", "gpt2_eager_mask", "llama_mask", "llama_eager_mask", "mistral_mask",
               "gemma2_mask", "bert", "bert_mask", "bert_eager_mask", "bert_dropout",
               "distilbert_mask", "t5", "bart", "whisper", "hf_vit", "timm_vit", "timm_swin",
               "timm_beit", "tv_vit", "tv_swin", "bloom_mask", "opt_eager_mask"),
    "opset23": ("gpt2", "gpt2_mask", "llama", "llama_mask", "mistral", "bert",
                "bert_mask", "bart", "hf_vit", "timm_vit", "gemma3", "gpt2_f16", "falcon_alibi"),
    "opset24": ("llama", "gpt2"),
}


def variants_of(name):
    return [v for v in VARIANTS if v in ("default", "raw") or name in ALSO.get(v, ())]


class Attentions(TorchDispatchMode):
    """Counts the attentions of what runs within: fused, or a softmax of matrices of scores."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if name.startswith("aten::_scaled_dot_product") or \
                (name in ("aten::_softmax", "aten::_safe_softmax") and args[0].dim() >= 3):
            self.count += 1
        return func(*args, **kwargs or {})


class AllDouble(TorchDispatchMode):
    """What is asked for in single precision is made in double."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def double(x):
            return torch.float64 if x is torch.float32 else x
        return func(*tree_map(double, args), **tree_map(double, kwargs or {}))


def attentions(net, inputs):
    with torch.no_grad(), Attentions() as found:
        net(*inputs)
    return found.count


def in_double(function):
    """The function, wholly in double precision where it asks for that."""
    def wrapped(*args):
        if args[-1] is not torch.float64:
            return function(*args)
        with AllDouble():
            torch.set_default_dtype(torch.float64)
            try:
                return function(*args)
            finally:
                torch.set_default_dtype(torch.float32)
    return wrapped


oracle.gradients, oracle.five_steps = in_double(oracle.gradients), in_double(oracle.five_steps)


def exported(net, inputs, path, options):
    """oracle.export in the network's own precision."""
    half = next(net.parameters()).dtype in (torch.float16, torch.bfloat16)
    keep = oracle.trained_copy
    if half:
        oracle.trained_copy = lambda net, dtype: net.train()
    try:
        return oracle.export(net, inputs, path, **options)
    finally:
        oracle.trained_copy = keep


def has_oracle(name, net):
    return "dropout" not in name and next(net.parameters()).dtype == torch.float32


def export_variant(out, name, variant, net, inputs, target, arrays, meta):
    folder = os.path.join(out, f"{name}_{variant}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.onnx")
    symbolic = exported(net, inputs, path, VARIANTS[variant])
    meta = dict(meta, symbolic_batch=symbolic, exporter=variant)
    if arrays:
        match, others, cut = match_initializers(path, net)
        meta.update(
            non_trainable_initializers=others, cut_ties=cut,
            trainable=[match[n][0] or n for n in meta["trainable"]],
            zero_grad_params=[match[n][0] or n for n in meta["zero_grad_params"]],
            trainable_missing_from_initializers=[n for n, m in match.items() if m[0] is None])
        np.savez(os.path.join(folder, "oracle.npz"), **under_file_names(arrays, match))
    else:
        np.savez(os.path.join(folder, "data.npz"), target=target.numpy(),
                 **{f"input/x{i}": x.numpy() for i, x in enumerate(inputs)})
    with open(os.path.join(folder, "meta.json"), "w") as f:
        json.dump(meta, f, indent=1)
    return f"{os.path.getsize(path):>8} bytes, batch {'symbolic' if symbolic else 'static'}"


def export_model(out, name, variants):
    torch.manual_seed(1)
    net, inputs, target, kind = MODELS[name]()
    net.train()
    if not name.endswith("_fresh"):
        perturb(net)
    arrays, meta = None, {"name": name, "loss": oracle.LOSS_TEXT[kind]}
    if has_oracle(name, net):
        arrays, meta = oracle.make_oracle(name, net, inputs, target, kind)
    meta["attentions"] = attentions(net, inputs)
    print(f"{name}: {meta['attentions']} attentions, float32 gradient error "
          f"{meta.get('grad_f32_vs_f64_err_over_global_grad_norm', 0):.1e}", flush=True)
    for variant in variants:
        start = time.time()
        try:
            result = export_variant(out, name, variant, net, inputs, target, arrays, meta)
        except Exception as e:  # report and go on: one failing exporter must not hide the rest
            result = f"FAILED: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        print(f"  {variant:<16} {result} ({time.time() - start:.1f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="/tmp/models")
    parser.add_argument("--variants", help="comma-separated; default: a selection per network")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    args = parser.parse_args()
    unknown = set(args.models) - set(MODELS)
    if unknown:
        sys.exit(f"unknown model {sorted(unknown)}; known: {' '.join(MODELS)}")
    for name in args.models:
        variants = args.variants.split(",") if args.variants else variants_of(name)
        try:
            export_model(args.out, name, variants)
        except Exception as e:
            print(f"{name}: FAILED: {type(e).__name__}: {' '.join(str(e).split())[:300]}",
                  flush=True)


if __name__ == "__main__":
    main()
