"""autocast_golden.py -- how far gradients under torch.autocast are from float64's, per network and type.

    autocast_golden.py OUT.json FOLDER...     each with model_static.onnx or model.onnx, oracle.npz, meta.json

The networks are exports without their Python source, so their graphs are run here node by node by PyTorch's
own functions inside torch.autocast (CPU), which casts as it does for anybody's code; what exporters write
apart (GELU) is one function again, and norms are float32, as on CUDA.  The error is that of all gradients
together, over the norm of float64's (oracle.npz); float16 has a loss scale of 65536.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

SCALE = {"bf16": 1.0, "fp16": 65536.0}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pads(at, rank):
    p = at.get("pads", [0] * (2 * rank))
    return [x for i in reversed(range(rank)) for x in (p[i], p[i + rank])]


def conv(x, w, b=None, *, at):
    rank = x.dim() - 2
    f = [F.conv1d, F.conv2d, F.conv3d][rank - 1]
    return f(F.pad(x, pads(at, rank)), w, b, stride=at.get("strides", 1), dilation=at.get("dilations", 1),
             groups=at.get("group", 1))


def conv_transpose(x, w, b=None, *, at):
    rank = x.dim() - 2
    f = [F.conv_transpose1d, F.conv_transpose2d][rank - 1]
    return f(x, w, b, stride=at.get("strides", 1), padding=at.get("pads", [0] * rank)[:rank],
             output_padding=at.get("output_padding", 0), groups=at.get("group", 1))


def recurrent(x, w, r, b, h, c, *, at):
    """Computes LSTM and GRU as PyTorch's cells do, with one product for all gates."""
    lstm, outs, lasts, cells = c is not None or at["op"] == "LSTM", [], [], []
    n = r.shape[-1]
    for d in range(w.shape[0]):
        hd = h[d] if h is not None else x.new_zeros(x.shape[1], n)
        cd = c[d] if c is not None else x.new_zeros(x.shape[1], n)
        steps, out = range(x.shape[0]), []
        for t in (reversed(steps) if d else steps):
            i = F.linear(x[t], w[d], b[d][:w.shape[1]])
            j = F.linear(hd, r[d], b[d][w.shape[1]:])
            if lstm:
                gi, go, gf, gc = (i + j).chunk(4, 1)
                cd = torch.sigmoid(gf) * cd + torch.sigmoid(gi) * torch.tanh(gc)
                hd = torch.sigmoid(go) * torch.tanh(cd)
            else:
                iz, ir, ih = i.chunk(3, 1)
                jz, jr, jh = j.chunk(3, 1)
                z, reset = torch.sigmoid(iz + jz), torch.sigmoid(ir + jr)
                hd = (1 - z) * torch.tanh(ih + reset * jh) + z * hd
            out.append(hd)
        outs.append(torch.stack(out[::-1] if d else out))
        lasts.append(hd)
        cells.append(cd)
    return torch.stack(outs, 1), torch.stack(lasts), torch.stack(cells)


def batch_norm(x, s, b, mean, var, *, at):
    mean, var = mean.detach().clone(), var.detach().clone()
    return F.batch_norm(x, mean, var, s, b, True, 0.1, at.get("epsilon", 1e-5))


def slice_of(x, start, end, axes=None, steps=None):
    axes = range(len(start)) if axes is None else axes.tolist()
    steps = [1] * len(start) if steps is None else steps.tolist()
    for a, s, e, k in zip(axes, start.tolist(), end.tolist(), steps):
        if k < 0:
            x = x.flip(a)
            s, e, k = x.shape[a] - 1 - s, None if e < -(2**31) else x.shape[a] - 1 - e, -k
        x = x[(slice(None),) * (a % x.dim()) + (slice(s, e, k),)]
    return x


def reduce(f):
    def run(x, axes=None, *, at):
        axes = at.get("axes") if axes is None else axes.tolist()
        return f(x, dim=axes, keepdim=bool(at.get("keepdims", 1)))
    return run


def gather(x, i, *, at):
    a = at.get("axis", 0) % x.dim()
    if i.dim() == 0:
        return x.select(a, int(i))
    if a == 0 and x.dim() == 2:
        return F.embedding(i % x.shape[0], x)
    return x.index_select(a, i.reshape(-1) % x.shape[a]).reshape(x.shape[:a] + i.shape + x.shape[a + 1:])


def resize(x, *args, at):
    sizes = args[2].tolist()[2:] if len(args) > 2 and args[2] is not None else None
    scale = None if sizes else args[1].tolist()[2:]
    mode = {"nearest": "nearest", "linear": "bilinear"}[at.get("mode", b"nearest").decode()]
    corners = at.get("coordinate_transformation_mode") == b"align_corners"
    more = {} if mode == "nearest" else {"align_corners": corners}
    return F.interpolate(x, size=sizes, scale_factor=scale, mode=mode, **more)


def gemm(a, b, c=None, *, at):
    a = a.t() if at.get("transA") else a
    return F.linear(a, b if at.get("transB") else b.t(), c)


def cast(x, *, at):
    types = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 11: torch.float64}
    return x.to(types[at["to"]])


def split(x, sizes=None, *, at):
    n = at.get("num_outputs", at["nout"])
    sizes = at.get("split") if sizes is None else sizes.tolist()
    return x.split(sizes if sizes else -(-x.shape[at.get("axis", 0)] // n), at.get("axis", 0))


def reshape(x, shape, **_):
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(shape.tolist())])


def expand(x, s, **_):
    return x.expand(torch.broadcast_shapes(x.shape, tuple(s.tolist())))


def div(a, b, **_):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def clip(x, low=None, high=None, *, at):
    low = at.get("min") if low is None else float(low)
    return x.clamp(low, at.get("max") if high is None else float(high))


def unsqueeze(x, axes=None, *, at):
    axes = at.get("axes") if axes is None else axes.tolist()
    for a in sorted(a % (x.dim() + len(axes)) for a in axes):
        x = x.unsqueeze(a)
    return x


def squeeze(x, axes=None, *, at):
    axes = at.get("axes") if axes is None else axes.tolist()
    return x.squeeze(tuple(axes)) if axes else x.squeeze()


def lstm(x, w, r, b=None, _=None, h=None, c=None, *, at):
    return recurrent(x, w, r, b, h, c, at={"op": "LSTM"})


def gru(x, w, r, b=None, _=None, h=None, *, at):
    return recurrent(x, w, r, b, h, None, at={"op": "GRU"})[:2]


def constant(*, at):
    if "value" in at:
        return torch.from_numpy(np.array(numpy_helper.to_array(at["value"])))
    return torch.tensor(next(v for k, v in at.items() if k.startswith("value_")))


def filled(shape, *, at):
    v = numpy_helper.to_array(at["value"]) if "value" in at else np.zeros(1, np.float32)
    return torch.full(tuple(shape.tolist()), v.item(), dtype=torch.from_numpy(np.array(v)).dtype)


OPS = {
    "Constant": constant, "ConstantOfShape": filled, "Gemm": gemm, "Conv": conv,
    "ConvTranspose": conv_transpose,
    "LSTM": lstm, "GRU": gru, "BatchNormalization": batch_norm, "Slice": lambda x, *a, at: slice_of(x, *a),
    "Gather": gather, "Resize": resize, "Cast": cast, "Split": split, "Reshape": reshape, "Expand": expand,
    "Div": div, "Clip": clip, "Unsqueeze": unsqueeze, "Squeeze": squeeze,
    "Add": lambda a, b, at: a + b, "Sub": lambda a, b, at: a - b, "Mul": lambda a, b, at: a * b,
    "MatMul": lambda a, b, at: a @ b, "Pow": lambda a, b, at: a.pow(float(b)) if b.dim() == 0 else a.pow(b),
    "Equal": lambda a, b, at: a == b, "Greater": lambda a, b, at: a > b,
    "Where": lambda c, a, b, at: torch.where(c, a, b),
    "Concat": lambda *v, at: torch.cat(v, at["axis"]),
    "Shape": lambda x, at: torch.tensor(x.shape[at.get("start", 0):at.get("end")]),
    "Transpose": lambda x, at: x.permute(at["perm"]),
    "Flatten": lambda x, at: x.flatten(at.get("axis", 1)),
    "Softmax": lambda x, at: x.softmax(at.get("axis", -1)), "Dropout": lambda x, *a, at: x,
    "LayerNormalization": lambda x, s, b=None, at=None: F.layer_norm(
        x.float(), s.shape, s, b, at.get("epsilon", 1e-5)),
    "InstanceNormalization": lambda x, s, b, at: F.instance_norm(
        x, None, None, s, b, True, 0.1, at.get("epsilon", 1e-5)),
    "GlobalAveragePool": lambda x, at: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "MaxPool": lambda x, at: F.max_pool2d(
        F.pad(x, pads(at, 2), value=-torch.inf), at["kernel_shape"], at.get("strides", 1)),
    "Relu": lambda x, at: x.relu(), "Tanh": lambda x, at: x.tanh(), "Sigmoid": lambda x, at: x.sigmoid(),
    "Sqrt": lambda x, at: x.sqrt(), "Erf": lambda x, at: x.erf(), "Exp": lambda x, at: x.exp(),
    "Log": lambda x, at: x.log(),
    "Neg": lambda x, at: -x, "Abs": lambda x, at: x.abs(),
    "Elu": lambda x, at: F.elu(x, at.get("alpha", 1.0)),
    "LeakyRelu": lambda x, at: F.leaky_relu(x, at.get("alpha", 0.01)),
    "PRelu": lambda x, s, at: torch.where(x < 0, s * x, x),
    "Gelu": lambda x, at: F.gelu(x, approximate=at.get("approximate", b"none").decode()),
    "SplitToSequence": lambda x, s, at: list(x.split(s.tolist() if s.dim() else int(s), at.get("axis", 0))),
    "SequenceAt": lambda v, i, at: v[int(i)], "CastLike": lambda x, y, at: x.to(y.dtype),
    "Trilu": lambda x, k=None, at=None: (x.triu if at.get("upper", 1) else x.tril)(0 if k is None else int(k)),
    "ReduceMean": reduce(torch.mean), "ReduceSum": reduce(torch.sum), "ReduceMax": reduce(torch.amax),
}


def join_gelu(nodes):
    """Replaces x / sqrt(2), Erf, + 1, * x, * 0.5 by one GELU, in the place of the last node."""
    made = {o: n for n in nodes for o in n.output}
    users = {}
    for n in nodes:
        for i in n.input:
            users.setdefault(i, []).append(n)
    gone, gelu = set(), {}
    for n in nodes:
        if n.op_type != "Erf":
            continue
        before, chain = made[n.input[0]], [n]
        while len(chain) < 4:
            chain.append(users[chain[-1].output[0]][0])
        last = chain[-1]
        gone |= {id(m) for m in [before, *chain]}
        gelu[id(last)] = onnx.helper.make_node("Gelu", [before.input[0]], list(last.output))
    return [gelu.get(id(n), n) for n in nodes if id(n) not in gone or id(n) in gelu]


def attributes(n):
    return {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} | {"nout": len(n.output)}


def run(model, weights, x):
    v = {"": None, model.graph.input[0].name: x, **weights}
    for n in join_gelu(list(model.graph.node)):
        out = OPS[n.op_type](*[v[i] for i in n.input], at=attributes(n))
        for name, o in zip(n.output, out if isinstance(out, tuple) else [out]):
            v[name] = o
    return v[model.graph.output[0].name]


def loss_of(meta, y, target):
    y = y.float()
    if meta["loss"].startswith("mean squared"):
        return F.mse_loss(y, target.float())
    if y.dim() == 3:
        y, target = y.reshape(-1, y.shape[-1]), target.reshape(-1)
    return F.cross_entropy(y, target)


def error(folder, kind):
    path = folder / "model_static.onnx"
    model = onnx.load(path if path.exists() else folder / "model.onnx")
    meta, data = json.loads((folder / "meta.json").read_text()), np.load(folder / "oracle.npz")
    frozen = meta.get("non_trainable_initializers", [])
    weights = {t.name: torch.from_numpy(np.array(numpy_helper.to_array(t))) for t in model.graph.initializer}
    trained = [n for n in weights if f"grad_f64/{n}" in data and n not in frozen]
    for n in trained:
        weights[n].requires_grad_()
    x = torch.from_numpy(data[next(k for k in data.files if k.startswith("input/"))])
    with torch.autocast("cpu", dtype=TYPES.get(kind), enabled=kind in TYPES):
        y = run(model, weights, x)
    loss = loss_of(meta, y, torch.from_numpy(data["target"]))
    scale = SCALE.get(kind, 1.0)
    (loss * scale).backward()
    err = norm = 0.0
    for n in trained:
        want = data[f"grad_f64/{n}"]
        got = np.zeros_like(want) if weights[n].grad is None else weights[n].grad.double().numpy() / scale
        err += ((got - want) ** 2).sum()
        norm += (want ** 2).sum()
    return float(loss.detach()), (err / norm) ** 0.5


def main():
    torch.set_num_threads(1)
    result = {}
    for folder in map(pathlib.Path, sys.argv[2:]):
        plain = error(folder, "f32")
        one = {kind: float(f"{error(folder, kind)[1]:.3g}") for kind in TYPES}
        print(f"{folder.name}: f32 {plain[1]:.2e} {one}", flush=True)
        result[folder.name] = one
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
