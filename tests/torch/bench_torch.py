#!/usr/bin/env python3
"""PyTorch's time and memory for the training steps that ckc is measured on.

    bench_torch.py [--threads 2] [--steps 5] [--scale 1.0] [CASE ...]

One step = forward, cross-entropy, backward, fused AdamW; inputs are fixed random data.
Prints one JSON object per case: median and minimum milliseconds per step, and the peak of
bytes held by PyTorch's CPU allocator during a step (every allocation counted through the
profiler's allocation events, parameters and optimizer state included; scratch inside oneDNN
is not seen), which is what keep_all_bytes is compared with. --checkpoint adds activation
checkpointing of every decoder block. --scale shrinks batch and resolution for a quick check
that everything works.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torchvision
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "examples", "decoder")]
from export import Decoder  # noqa: E402
from zoo_models import UNet  # noqa: E402


def scaled(n, scale, least=1):
    return max(least, round(n * scale))


def text(batch, length):
    return torch.randint(0, 256, (batch, length)), torch.randint(0, 256, (batch, length))


def decoder12(scale):
    batch, length = scaled(8, scale), scaled(512, scale, 16)
    net = Decoder(layers=12, width=768, heads=12, context=length)
    return net, *text(batch, length), {"batch": batch, "seq": length}


def decoder(scale):
    batch, length = scaled(8, scale), scaled(128, scale, 16)
    return Decoder(), *text(batch, length), {"batch": batch, "seq": length}


def image_classes(net, batch, size, classes):
    x = torch.randn(batch, 3, size, size)
    return net, x, torch.randint(0, classes, (batch,)), {"batch": batch, "size": size}


def resnet50(scale):
    return image_classes(torchvision.models.resnet50(), scaled(32, scale, 2),
                         scaled(224, scale, 64), 1000)


def resnet18(scale):
    return image_classes(torchvision.models.resnet18(num_classes=10), scaled(8, scale, 2),
                         64, 10)


def unet(scale):
    batch, size = scaled(8, scale, 2), 16 * scaled(256 // 16, scale, 2)
    x, target = torch.randn(batch, 3, size, size), torch.randint(0, 3, (batch, size, size))
    return UNet(width=32), x, target, {"batch": batch, "size": size}


CASES = {f.__name__: f for f in (decoder12, resnet50, unet, decoder, resnet18)}


def checkpoint_blocks(net):
    for block in getattr(net, "h", []):
        forward = block.forward
        block.forward = lambda *a, f=forward: checkpoint(f, *a, use_reentrant=False)


def make_step(net, x, target):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        y = net(x)
        if y.dim() == 3:
            loss = F.cross_entropy(y.flatten(0, 1), target.flatten())
        else:
            loss = F.cross_entropy(y, target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def resident_bytes(net, x, target):
    """What stays allocated between two steps: parameters, buffers, AdamW's state, data."""
    parameters = sum(p.numel() * p.element_size() for p in net.parameters())
    buffers = sum(b.numel() * b.element_size() for b in net.buffers())
    return 3 * parameters + buffers + x.nbytes + target.nbytes


def peak_bytes(step, resident):
    """Highest sum of live allocations during one step, on top of what is resident."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for e in sorted(events, key=lambda e: e.start_ns()):
        live += e.nbytes()
        peak = max(peak, live)
    return resident + peak


def bench(name, args):
    torch.manual_seed(0)
    net, x, target, sizes = CASES[name](args.scale)
    net.train()
    if args.checkpoint:
        checkpoint_blocks(net)
    step = make_step(net, x, target)
    step()
    net.zero_grad(set_to_none=True)
    peak = peak_bytes(step, resident_bytes(net, x, target))
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return {"case": name, **sizes, "parameters": sum(p.numel() for p in net.parameters()),
            "checkpoint": args.checkpoint, "threads": torch.get_num_threads(),
            "median_ms": round(statistics.median(times), 3), "min_ms": round(min(times), 3),
            "peak_bytes": peak, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    unknown = set(args.cases) - set(CASES)
    if unknown:
        sys.exit(f"unknown case {sorted(unknown)}; known: {' '.join(CASES)}")
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    for name in args.cases:
        print(json.dumps(bench(name, args)), flush=True)


if __name__ == "__main__":
    main()
