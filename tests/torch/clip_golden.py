#!/usr/bin/env python3
"""tests/data/clip.npz: three steps of PyTorch's optimizers and timm's Lion with clip_grad_norm_ in double precision.

The network of tests/test_accumulate.c on 16 rows: input/x, target, its parameters before
(before/NAME) and after (sgd/NAME, adamw/NAME, ...), losses and norms of the gradients.
"""
import os

import numpy as np
import torch
from timm.optim import Lion
from torch.nn import functional as F

LIMIT, LR, STEPS = 0.5, 0.01, 3


def forward(p, x):
    a = F.layer_norm(x @ p["w1"].T + p["b1"], (48,), p["scale"])
    return F.gelu(a) @ p["w2"].T


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    x, target = torch.randn(16, 16), torch.randint(0, 10, (16,))
    start = {"w1": torch.randn(48, 16) / 4, "b1": torch.randn(48) / 4,
             "scale": 1 + torch.randn(48) / 4, "w2": torch.randn(10, 48) / 2}
    arrays = {"input/x": x, "target": target, **{f"before/{k}": v for k, v in start.items()}}
    for name, make in (("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW), ("lion", Lion),
                       ("adafactor", torch.optim.Adafactor)):
        p = {k: v.clone().requires_grad_() for k, v in start.items()}
        optimizer, losses, norms = make(p.values(), lr=LR), [], []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(p, x), target)
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(p.values(), LIMIT))
            losses.append(loss)
            optimizer.step()
        arrays.update({f"{name}/{k}": v for k, v in p.items()})
        arrays[f"{name}/loss"], arrays[f"{name}/norm"] = torch.stack(losses), torch.stack(norms)
        print(name, [float(n) for n in norms])
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "clip.npz")
    np.savez_compressed(path, **{k: v.detach().numpy() for k, v in arrays.items()})


if __name__ == "__main__":
    main()
