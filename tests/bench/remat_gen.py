#!/usr/bin/env python3
"""remat_gen.py -- training graphs of any size as .dag files, for scale tests of the solver.

usage: remat_gen.py transformer LAYERS | resnet BLOCKS | unet DEPTH WIDTH | layered NODES [SEED] | trained NODES [SEED] |
                    siblings NODES [SEED] | vgg [SEED] | mobile [SEED] | bottleneck [SEED] | skips [SEED]  > FILE.dag

Forward operators with cost and bytes, then for each, in reverse, a backward operator that reads the gradients of its
readers, its inputs and (for nonlinear operators) its output. `layered` is forward only: random layers, as in the published
random instances; `trained` is one of half the nodes with its backward pass.

`siblings` have the statistics of rl1-rl4 of the MOCCASIN paper (widths, degrees, bytes, order); vgg, mobile, bottleneck and
skips those of Checkmate's training graphs, with depths, sizes and noise of the costs by the seed: every backward operator
reads the input and the output of its forward operator.
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


def siblings(nodes, seed=1):
    r = random.Random(seed)
    widest = 9 if nodes <= 150 else 22 if nodes <= 300 else 29
    degree = {9: 1.9, 22: 3.4, 29: 4.4}[widest]
    layers, count = [[0]], 1
    while count < nodes - 1:
        width = min(r.randint(2, widest), nodes - 1 - count)
        layers.append(list(range(count, count + width)))
        count += width
    inputs = [set() for _ in range(nodes)]
    read = [False] * nodes

    def connect(u, v):
        inputs[v].add(u)
        read[u] = True

    for k, layer in enumerate(layers[1:], 1):
        for v in layer:
            connect(r.choice(layers[k - 1]), v)
            for u in layers[k - 1]:
                if r.random() < (degree - 0.8) / (0.6 * widest):
                    connect(u, v)
            while r.random() < 0.12 * degree / (1 + 0.12 * degree):
                connect(r.choice(layers[r.randrange(k)]), v)
    for k, layer in enumerate(layers):
        for u in layer:
            if not read[u]:
                connect(u, r.choice(layers[k + 1]) if k + 1 < len(layers) else nodes - 1)
    return shuffled(inputs, r)


def shuffled(inputs, r):
    """The graph in a random topological order, with bytes as in rl1-rl4."""
    g = Graph()
    name, ready = {}, [0]
    waits = [len(i) for i in inputs]
    readers = [[v for v in range(len(inputs)) if u in inputs[v]] for u in range(len(inputs))]
    while ready:
        v = ready.pop(-1 if r.random() < 0.2 else r.randrange(len(ready)))
        kind = r.random()
        size = r.randint(2, 150) if kind < 0.55 else r.randint(100, 460) if kind < 0.95 else r.randint(460, 800)
        name[v] = g.op(r.randint(0, 1000), 10 * size, sorted(name[u] for u in inputs[v]))
        for w in readers[v]:
            waits[w] -= 1
            if waits[w] == 0:
                ready.append(w)
    return g


def network(kind, seed=1):
    """A convolutional network as Checkmate's: one operator per convolution, normalisation, activation, pooling, sum."""
    r = random.Random(seed)
    g = Graph()
    batch, side, channels = r.choice([32, 64, 128, 256]), r.choice([96, 160, 224, 320]), r.choice([16, 32, 64])

    def layer(x, flops):
        """Costs of a GPU: time by arithmetic or by bytes, measured with noise."""
        size = 4 * batch * side * side * channels
        return g.op(int(100 + (flops * size / 4e7 + size / 6e4) * r.lognormvariate(0, 0.3)), size, x, "in out")

    def conv(x, per_value, activated=True, normalised=True):
        x = layer([x], per_value)
        x = layer([x], 1) if normalised else x
        return layer([x], 1) if activated else x

    x = layer([], 27)
    kept = []
    stages = r.randint(3, 5)
    for stage in range(stages):
        for _ in range(r.randint(2, 4)):
            y = x
            if kind in ("vgg", "skips"):
                x = conv(x, 9 * channels, normalised=False)
            elif kind == "mobile":
                x = conv(conv(x, 9), channels)
            else:
                wide, channels = channels, channels // 4
                x = conv(conv(x, wide), 9 * channels)
                channels = wide
                x = layer([layer([conv(x, channels // 4, False), y], 1)], 1)
        kept.append((x, side, channels))
        side, channels = side // 2, min(512, channels * 2)
        x = layer([x], channels // 2)
    for y, size, width in reversed(kept[1:] if kind == "skips" else []):
        side, channels = size, width
        x = layer([layer([x], 4 * channels), y], 1)
    side = 1
    layer([x], 1000)
    backward(g)
    return g


def main():
    kind, arguments = sys.argv[1], [int(a) for a in sys.argv[2:]]
    if kind in ("layered", "trained"):
        nodes = arguments[0] if kind == "layered" else (arguments[0] - 1) // 2
        g = layered(nodes, arguments[1] if len(arguments) > 1 else 1)
        if kind == "trained":
            backward(g)
    elif kind == "siblings":
        g = siblings(*arguments)
    elif kind in ("vgg", "mobile", "bottleneck", "skips"):
        g = network(kind, *arguments)
    else:
        g = {"transformer": transformer, "resnet": resnet, "unet": unet}[kind](*arguments)
    for i, (cost, size, inputs) in enumerate(g.ops):
        print(i, cost, size, *inputs)


if __name__ == "__main__":
    main()
