#!/usr/bin/env python3
"""Export the zoo with both PyTorch exporters, each with an oracle.

    export_zoo.py [--out /tmp/zoo] [MODEL ...]

Per network and exporter one folder NAME_legacy, NAME_dynamo with model.onnx, oracle.npz and
meta.json in the layout of shared/fixtures/torch-oracle (see oracle.py), and
model_with_loss.onnx, which ends in the loss. Variants: NAME_legacy_opset11 (decomposed
LayerNorm; Softmax and Dropout as they were), NAME_dynamo_default (PyTorch's default: graph
optimizer on; Linear weights come out transposed under new names, tables of positions cut to
the rows in use, ties may be cut - see meta.json: transposed, sliced, cut_ties), NAME_dynamo_external (weights in model.onnx.data). The
results are large and not committed.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import torch

from oracle import apart, export, forward_difference, make_oracle, match_initializers, perturb
from zoo_models import ZOO

VARIANTS = {
    "legacy": dict(exporter="legacy"),
    "dynamo": dict(exporter="dynamo"),
    "legacy_opset11": dict(exporter="legacy", opset=11),
    "dynamo_default": dict(exporter="dynamo", optimize=True),
    "dynamo_external": dict(exporter="dynamo", external=True),
}
EXTRA = {"legacy_opset11": ("gpt2", "llama", "bert", "resnet50", "lstm", "unet"),
         "dynamo_default": ("gpt2", "llama", "bert", "vit", "convnext_tiny", "seq2seq"),
         "dynamo_external": ("gpt2",)}


def variants_of(name):
    return [v for v in VARIANTS if name in EXTRA.get(v, (name,))]


def under_file_names(arrays, match):
    """Renames and converts what belongs to a parameter to the initializer that holds the parameter."""
    renamed = {}
    for key, value in arrays.items():
        head, _, name = key.rpartition("/")
        if head.startswith(("grad_f64", "param_f64_after5")) and match[name][0]:
            name, _, stored = match[name]
            renamed[f"{head}/{name}"] = stored(value)
        else:
            renamed[key] = value
    return renamed


def export_variant(out, name, variant, net, inputs, target, kind, arrays, meta):
    folder = os.path.join(out, f"{name}_{variant}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.onnx")
    symbolic = export(net, inputs, path, **VARIANTS[variant])
    if variant in ("legacy", "dynamo"):
        export(net, inputs, os.path.join(folder, "model_with_loss.onnx"), variant,
               target=target, kind=kind)
    match, others, cut = match_initializers(path, net)
    missing = [n for n, (held, _, _) in match.items() if held is None]
    difference = forward_difference(path, inputs, arrays["output/y"])
    meta = dict(meta, non_trainable_initializers=others, symbolic_batch=symbolic,
                trainable=[match[n][0] or n for n in meta["trainable"]],
                zero_grad_params=[match[n][0] or n for n in meta["zero_grad_params"]],
                trainable_missing_from_initializers=missing, exporter=variant,
                transposed=[n for n, (_, how, _) in match.items() if how == "transposed"],
                sliced=[n for n, (_, how, _) in match.items() if how == "sliced"],
                cut_ties=cut, onnxruntime_output_max_abs_diff=difference)
    np.savez(os.path.join(folder, "oracle.npz"), **under_file_names(arrays, match))
    with open(os.path.join(folder, "meta.json"), "w") as f:
        json.dump(meta, f, indent=1)
    renamed = sum(held not in (None, n) for n, (held, _, _) in match.items())
    return (f"{os.path.getsize(path):>8} bytes, batch {'symbolic' if symbolic else 'static'}, "
            f"{renamed} renamed, {len(missing)} missing, onnxruntime differs by "
            f"{'-' if difference is None else format(difference, '.0e')}")


def export_model(out, name, variants):
    torch.manual_seed(1)
    net, inputs, target, kind = ZOO[name]()
    perturb(net.train())
    arrays, meta = make_oracle(name, net, inputs, target, kind)
    print(f"{name}: {meta['params']} parameters, float32 gradient error "
          f"{meta['grad_f32_vs_f64_err_over_global_grad_norm']:.1e}", flush=True)
    for variant in variants:
        start = time.time()
        try:
            result = export_variant(out, name, variant, net, inputs, target, kind,
                                    arrays, meta)
        except Exception as e:  # report and go on: one failing exporter must not hide the rest
            result = f"FAILED: {type(e).__name__}: {' '.join(str(e).split())[:160]}"
        print(f"  {variant:<16} {result} ({time.time() - start:.1f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="/tmp/zoo")
    parser.add_argument("models", nargs="*", default=list(ZOO))
    args = parser.parse_args()
    unknown = set(args.models) - set(ZOO)
    if unknown:
        sys.exit(f"unknown model {sorted(unknown)}; known: {' '.join(ZOO)}")
    torch.set_num_threads(2)
    for name in args.models:
        for variant in variants_of(name):
            killed = apart(export_model, args.out, name, [variant])
            if killed:
                print(f"  {variant:<16} FAILED: the exporter's process ended: {killed}", flush=True)


if __name__ == "__main__":
    main()
