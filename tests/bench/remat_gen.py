#!/usr/bin/env python3
"""remat_gen.py -- training graphs of any size as .dag files, for scale tests of the solver.

usage: remat_gen.py transformer LAYERS | resnet BLOCKS | unet DEPTH WIDTH | layered NODES [SEED] | trained NODES [SEED]  > FILE.dag

Forward operators with cost and bytes, then for each, in reverse, a backward operator that reads the gradients of its
readers, its inputs and (for nonlinear operators) its output. `layered` is forward only: random layers, as in the published
random instances; `trained` is one of half the nodes with its backward pass.
"""
import random
import sys


class Graph:
    def __init__(self):
        self.ops = []     # (cost, bytes, inputs)
        self.saves = []   # does the backward of this op read its output / inputs

    def op(self, cost, size, inputs, saves="in"):
        self.ops.append((cost, size, list(inputs)))
        self.saves.append(saves)
        return len(self.ops) - 1


def backward(g):
    """Appends the backward pass of everything in g."""
    n = len(g.ops)
    readers = [[] for _ in range(n)]
    for i, (_, _, inputs) in enumerate(g.ops):
        for u in inputs:
            readers[u].append(i)
    loss = g.op(1, 4, [n - 1])
    grad = [None] * n
    for i in range(n - 1, -1, -1):
        cost, size, inputs = g.ops[i]
        saved = (inputs if "in" in g.saves[i] else []) + ([i] if "out" in g.saves[i] else [])
        upstream = [grad[r] for r in readers[i]] or [loss]
        grad[i] = g.op(2 * cost, size, dict.fromkeys(upstream + saved))


def transformer(layers):
    g = Graph()
    x = g.op(10, 100, [], "")
    for _ in range(layers):
        h = g.op(4, 100, [x])
        qkv = g.op(300, 300, [h])
        scores = g.op(100, 400, [qkv])
        probs = g.op(20, 400, [scores], "out")
        drop = g.op(10, 400, [probs])
        mixed = g.op(100, 100, [drop, qkv])
        out = g.op(100, 100, [mixed])
        x = g.op(3, 100, [x, out], "")
        h = g.op(4, 100, [x])
        up = g.op(400, 400, [h])
        act = g.op(12, 400, [up])
        down = g.op(400, 100, [act])
        x = g.op(3, 100, [x, down], "")
    g.op(1000, 50, [x])
    backward(g)
    return g


def resnet(blocks):
    g = Graph()
    size = 256
    x = g.op(50, size, [], "")
    for b in range(blocks):
        if b and b % max(1, blocks // 4) == 0:
            size //= 2
        y = x
        for k in range(3):
            y = g.op(100 if k == 1 else 45, size // (1 if k == 2 else 4), [y])
            y = g.op(3, size // (1 if k == 2 else 4), [y])
            if k < 2:
                y = g.op(2, size // 4, [y], "out")
        y = g.op(3, size, [x, y], "")
        x = g.op(2, size, [y], "out")
    g.op(20, 1, [x])
    backward(g)
    return g


def unet(depth, width):
    g = Graph()
    size = 4 ** depth
    x = g.op(10, size, [], "")
    skips = []

    def stage(x, size):
        for _ in range(width):
            x = g.op(40 + size // 64, size, [x])
            x = g.op(2 + size // 512, size, [x], "out")
        return x

    for _ in range(depth):
        x = stage(x, size)
        skips.append(x)
        size //= 2
        x = g.op(5, size, [x])
    x = stage(x, size)
    while skips:
        size *= 2
        x = g.op(20, size, [x])
        x = g.op(4, 2 * size, [x, skips.pop()], "")
        x = stage(x, size)
    g.op(5, 4, [x])
    backward(g)
    return g


def layered(nodes, seed):
    r = random.Random(seed)
    g = Graph()
    layers = []
    while len(g.ops) < nodes:
        layer = []
        for _ in range(min(r.randint(2, 14), nodes - len(g.ops))):
            inputs = set()
            if layers:
                inputs.add(r.choice(layers[-1]))
                while r.random() < 0.72 and len(inputs) < 8:
                    back = 1
                    while r.random() < 0.5 and back < len(layers):
                        back += 1
                    inputs.add(r.choice(layers[-back]))
            layer.append(g.op(r.randint(0, 1000), r.randint(1, 650), sorted(inputs)))
        layers.append(layer)
    return g


def main():
    kind, arguments = sys.argv[1], [int(a) for a in sys.argv[2:]]
    if kind in ("layered", "trained"):
        nodes = arguments[0] if kind == "layered" else (arguments[0] - 1) // 2
        g = layered(nodes, arguments[1] if len(arguments) > 1 else 1)
        if kind == "trained":
            backward(g)
    else:
        g = {"transformer": transformer, "resnet": resnet, "unet": unet}[kind](*arguments)
    for i, (cost, size, inputs) in enumerate(g.ops):
        print(i, cost, size, *inputs)


if __name__ == "__main__":
    main()
