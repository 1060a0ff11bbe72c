#!/usr/bin/env python3
"""Export tiny networks of transformers, timm and torchvision as users do.

    export_models.py [--out /tmp/models] [--variants default,raw,legacy] [MODEL ...]

Per network and variant one folder NAME_VARIANT with model.onnx, meta.json and oracle.npz as
export_zoo.py writes them; meta.json also has the number of attentions ("attentions").
Variants: default (PyTorch's: dynamo, graph optimizer on), raw (dynamo, optimizer off), legacy
(TorchScript), opset23 and opset24 (dynamo, with the Attention operator where it writes it).
Networks with dropout have data.npz (inputs and target) instead of oracle.npz; those in 16 bits
have gradients of the same weights in double precision.

The oracle computes what the file says.  Where the optimizer has folded batch norms into
convolutions, PyTorch folds them, too; where it writes a boolean mask as numbers, PyTorch takes
these numbers.  Results are not committed.
"""
import argparse
import contextlib
import copy
import json
import os
import shutil
import sys
import time
from functools import partial

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import fuse_conv_bn_weights, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import oracle
from export_zoo import under_file_names
from model_table import MODELS
from oracle import apart, cast_inputs, match_initializers, perturb

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
    """Counts the attentions that run within: fused ones, and softmaxes of matrices of scores."""

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
    """Tensors that are asked for in single precision within are made in double precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def double(x):
            return torch.float64 if x is torch.float32 else x
        return func(*tree_map(double, args), **tree_map(double, kwargs or {}))


def attentions(net, inputs):
    with torch.no_grad(), Attentions() as found:
        net(*inputs)
    return found.count


def in_double(function):
    """The function, which runs wholly in double precision if its last argument is float64."""
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
    """Exports as oracle.export() does, but in the network's own precision."""
    keep = oracle.trained_copy
    if is_half(net):
        oracle.trained_copy = lambda net, dtype: net.train()
    try:
        return oracle.export(net, inputs, path, **options)
    finally:
        oracle.trained_copy = keep


class WrittenMasks(TorchFunctionMode):
    """Boolean masks become numbers within, as the dynamo exporter writes them.  Of a row that sees
    nothing (unseen: there was one) PyTorch makes zeros, the file the mean of all values."""

    def __init__(self):
        super().__init__()
        self.unseen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        mask = kwargs.get("attn_mask")
        if func is F.scaled_dot_product_attention and mask is not None and \
                mask.dtype is torch.bool:
            self.unseen |= not mask.any(-1).all()
            hidden = torch.finfo(torch.float32).min
            kwargs["attn_mask"] = torch.zeros_like(mask, dtype=args[0].dtype).masked_fill(
                ~mask, hidden)
        return func(*args, **kwargs)


def normed_convolutions(net, inputs):
    """[(convolution, name of the batch norm behind it, batch norm)] of all that are called."""
    pairs, made = [], {}

    def after(module, args, output):
        made[id(output)] = module, output  # the output is kept, so that no other object gets its id

    def before(name, module, args):
        if id(args[0]) in made:
            pairs.append((made[id(args[0])][0], name, module))

    for name, module in net.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(after)
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_pre_hook(partial(before, name))
    with torch.no_grad():
        net(*inputs)
    return pairs


def folded(net, inputs, path):
    """The network without what the optimizer has folded: weight norms, and batch norms into
    convolutions, whose weights are the file's; None: it has folded nothing."""
    held = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    net = copy.deepcopy(net).eval()
    pairs = [p for p in normed_convolutions(net, inputs) if f"{p[1]}.weight" not in held]
    for conv, name, norm in pairs:
        weights = fuse_conv_bn_weights(conv.weight, conv.bias, norm.running_mean, norm.running_var,
                                       norm.eps, norm.weight, norm.bias)
        for key, value in zip(("weight", "bias"), weights):
            near = [t for t in held.values() if t.shape == tuple(value.shape) and
                    np.allclose(t, value.detach(), rtol=1e-5, atol=1e-7)]
            setattr(conv, key, torch.nn.Parameter(torch.tensor(near[0])))
        rest = [getattr(norm, k) for k in ("drop", "act") if hasattr(norm, k)]  # of timm's norms
        net.set_submodule(name, torch.nn.Sequential(*rest))
    normed = [(n, m) for n, m in net.named_modules() if parametrize.is_parametrized(m, "weight")
              and f"{n}.parametrizations.weight.original0" not in held]
    for _, module in normed:
        parametrize.remove_parametrizations(module, "weight")
    return net.train() if pairs or normed else None


def has_oracle(name):
    return "dropout" not in name


def is_half(net):
    return next(net.parameters()).dtype in (torch.float16, torch.bfloat16)


def written(path, net, arrays, meta):
    """Arrays and meta, in which what trains has the names that it has in the file."""
    match, others, cut = match_initializers(path, net)
    if meta["untie"]:  # merged and left out parameters have their own names again
        holders = [m[0] for m in match.values()]
        match = {n: m if holders.count(m[0]) == 1 else (n, "same", lambda a: a)
                 for n, m in match.items()}
    meta = dict(meta, non_trainable_initializers=others, cut_ties=cut,
                trainable=[match[n][0] or n for n in meta["trainable"]],
                zero_grad_params=[match[n][0] or n for n in meta["zero_grad_params"]],
                trainable_missing_from_initializers=[n for n, m in match.items() if m[0] is None])
    return under_file_names(arrays, match), meta


def export_variant(folder, variant, net, inputs, judge):
    """Exports a variant to folder, with arrays and meta of judge(network, variant); returns a text."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.onnx")
    symbolic = exported(net, inputs, path, VARIANTS[variant])
    without = folded(net, inputs, path)
    arrays, meta = judge(without or net, variant)
    if "trainable" in meta:
        arrays, meta = written(path, without or net, arrays, meta)
    np.savez(os.path.join(folder, "oracle.npz" if "trainable" in meta else "data.npz"), **arrays)
    with open(os.path.join(folder, "meta.json"), "w") as f:
        json.dump(dict(meta, symbolic_batch=symbolic, exporter=variant), f, indent=1)
    return f"{os.path.getsize(path):>8} bytes, batch {'symbolic' if symbolic else 'static'}"


def make_judge(name, net, inputs, target, kind):
    """Returns judge(network, variant): what the network of a variant has to compute, made once for
    all variants that write the same."""
    count = attentions(net, inputs)

    def made(net, mode):
        meta = {"name": name, "loss": oracle.LOSS_TEXT[kind], "attentions": count,
                "half": is_half(net), "untie": name.endswith("_fresh")}
        if not has_oracle(name):
            return {"target": target.numpy(),
                    **{f"input/x{i}": x.numpy() for i, x in enumerate(inputs)}}, meta
        with mode, sdpa_kernel(SDPBackend.MATH):  # fused attention is wrong for rows that see nothing
            arrays, more = oracle.make_oracle(name, net, inputs, target, kind)
        return arrays, {**more, **meta}

    masks = WrittenMasks()
    usual = made(net, masks)

    def judge(other, variant):
        if other is not net or (variant == "legacy" and masks.unseen):
            return made(other, contextlib.nullcontext() if variant == "legacy" else masks)
        return usual

    return judge


def export_model(out, name, variants):
    torch.manual_seed(1)
    net, inputs, target, kind = MODELS[name]()
    net.train()
    if not name.endswith("_fresh"):
        perturb(net)
    judge = make_judge(name, net, inputs, target, kind)
    for variant in variants:
        start = time.time()
        folder = os.path.join(out, f"{name}_{variant}")
        try:
            result = export_variant(folder, variant, net, inputs, judge)
        except Exception as e:  # report and go on: one failing exporter must not hide the rest
            result = f"FAILED: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
            shutil.rmtree(folder)
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
        print(f"{name}:", flush=True)
        for variant in variants:
            killed = apart(export_model, args.out, name, [variant])
            if killed:
                print(f"  {variant:<16} FAILED: the exporter's process ended: {killed}", flush=True)
                shutil.rmtree(os.path.join(args.out, f"{name}_{variant}"), ignore_errors=True)


if __name__ == "__main__":
    main()
