"""oracle.py -- PyTorch as the judge of a training step: loss, gradients, five steps.

make_oracle() computes in float64 what ckc must reproduce and returns it in the layout of
shared/fixtures/torch-oracle:
    input/<name>, target, output/y            what goes in, what the float32 network answers
    loss, loss_f64, grad_f64/<parameter>      of the first step
    buffer_after/<buffer>                     BatchNorm statistics after one float32 forward
    param_f64_after5/<optimizer>/<parameter>  after five steps on one batch, as float32
export() writes the network with either of PyTorch's exporters.
"""
import contextlib
import copy
import inspect
import io
import logging
import os
import resource
import signal
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from torch.nn import functional as F

OPTIMIZERS = {
    "sgd_lr0.1": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_lr0.05_mom0.9": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw_lr1e-3_b0.9_0.999_eps1e-8_wd0.01": lambda p: torch.optim.AdamW(
        p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
}
LOSS_TEXT = {
    "ce": "softmax cross-entropy, mean reduction, integer class targets "
          "(class axis 1, or last axis for 3-D outputs after reshape)",
    "mse": "mean squared error, mean over all elements",
}
STEPS = 5
LIMIT = 600  # seconds of a processor that an export may take


def loss_of(kind, output, target):
    if kind == "mse":
        return F.mse_loss(output, target.to(output.dtype))
    if output.dim() == 3:
        return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
    return F.cross_entropy(output, target)


def perturb(net):
    """Changes parameters so that no two are equal, no scale is 1, no shift 0: exporters merge equal tensors.

    New values have few bits, so that what an exporter computes of a scale (Gemma's 1 + weight) is exact.
    """
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() <= 1 or p.min() == p.max():
                p.add_(0.1 * torch.randn_like(p) * (p.abs().mean() + 0.1))
                p.copy_((p.double() * 2**16).round() / 2**16)


def trained_copy(net, dtype):
    return copy.deepcopy(net).to(dtype).train()


def cast_inputs(inputs, dtype):
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def gradients(net, inputs, target, kind, dtype):
    net = trained_copy(net, dtype)
    output = net(*cast_inputs(inputs, dtype))
    loss = loss_of(kind, output, target)
    loss.backward()
    grads = {n: (torch.zeros_like(p) if p.grad is None else p.grad).detach()
             for n, p in net.named_parameters() if p.requires_grad}
    return net, output.detach(), loss.detach(), grads


def five_steps(net, inputs, target, kind, make_optimizer, dtype):
    net = trained_copy(net, dtype)
    inputs = cast_inputs(inputs, dtype)
    params = [p for p in net.parameters() if p.requires_grad]
    optimizer = make_optimizer(params)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(kind, net(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {n: p.detach() for n, p in net.named_parameters() if p.requires_grad}


def meaningful(params, grads):
    """The elements whose gradient is not zero: AdamW makes full steps of the rounding noise of others."""
    return {n: p[grads[n].abs() >= 1e-6] for n, p in params.items()}


def relative_difference(got, want):
    """The norm of the difference of all tensors of two dictionaries, relative to that of `want`."""
    err = sum(((got[n].double() - w) ** 2).sum() for n, w in want.items()).sqrt()
    return (err / sum((w ** 2).sum() for w in want.values()).sqrt()).item()


def make_oracle(name, net, inputs, target, kind):
    """The arrays of oracle.npz and the dictionary of meta.json."""
    net32, output, loss32, grad32 = gradients(net, inputs, target, kind, torch.float32)
    _, _, loss64, grad64 = gradients(net, inputs, target, kind, torch.float64)
    norm = sum((g ** 2).sum() for g in grad64.values()).sqrt().item()
    arrays = {f"input/x{i}": x.numpy() for i, x in enumerate(inputs)}
    arrays.update({"target": target.numpy(), "output/y": output.numpy(),
                   "loss": loss32.numpy(), "loss_f64": loss64.numpy()})
    arrays.update({f"grad_f64/{n}": g.numpy() for n, g in grad64.items()})
    arrays.update({f"buffer_after/{n}": b.numpy() for n, b in net32.named_buffers()
                   if n.endswith(("running_mean", "running_var"))})
    curves, own = {}, {}
    for key, make_optimizer in OPTIMIZERS.items():
        curves[key], params = five_steps(net, inputs, target, kind, make_optimizer, torch.float64)
        losses32, params32 = five_steps(net, inputs, target, kind, make_optimizer, torch.float32)
        own[key] = {"loss": max(abs(a - b) / (1 + abs(b)) for a, b in zip(losses32, curves[key])),
                    "param": relative_difference(meaningful(params32, grad64),
                                                 meaningful(params, grad64))}
        arrays.update({f"param_f64_after5/{key}/{n}": p.float().numpy()
                       for n, p in params.items()})
    meta = {
        "name": name,
        "loss": LOSS_TEXT[kind],
        "params": sum(g.numel() for g in grad64.values()),
        "trainable": list(grad64),
        "loss_f32": loss32.item(),
        "loss_f64": loss64.item(),
        "grad_f32_vs_f64_err_over_global_grad_norm": relative_difference(grad32, grad64),
        "zero_grad_params": [n for n, g in grad64.items() if g.norm().item() < 1e-10 * norm],
        "loss_curve_5_steps_f64": curves,
        "f32_vs_f64_err_5_steps": own,
        "batch_norm_momentum": next((m.momentum for m in net.modules()
                                     if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)), None),
        "torch": torch.__version__,
    }
    return arrays, meta


def with_loss(net, kind):
    """The same network, parameters under the same names, whose answer is the loss."""
    base = type(net)
    forwards = {
        1: lambda self, a, target: loss_of(kind, base.forward(self, a), target),
        2: lambda self, a, b, target: loss_of(kind, base.forward(self, a, b), target),
        3: lambda self, a, b, c, target: loss_of(kind, base.forward(self, a, b, c), target),
    }
    count = len(inspect.signature(base.forward).parameters) - 1
    net.__class__ = type(base.__name__, (base,), {"forward": forwards[count]})
    return net


def export_legacy(net, inputs, path, names, output, dynamic, opset):
    axes = {n: {0: "batch"} for n in names} if dynamic else None
    if dynamic and output != "loss":
        axes[output] = {0: "batch"}
    torch.onnx.export(net, inputs, path, dynamo=False, opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=names, output_names=[output], dynamic_axes=axes)


def export_dynamo(net, inputs, path, names, output, dynamic, opset, external, optimize):
    shapes = tuple({0: torch.export.Dim("batch", min=2, max=64)} for _ in inputs)
    torch.onnx.export(net, inputs, path, dynamo=True, optimize=optimize, verbose=False,
                      opset_version=opset, external_data=external, input_names=names,
                      output_names=[output], dynamic_shapes=shapes if dynamic else None)


@contextlib.contextmanager
def quiet():
    """Silences the exporters, which print whole graphs when they fail: the exception says enough."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), \
            contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def export(net, inputs, path, exporter, opset=None, external=False, optimize=False,
           target=None, kind=None):
    """Writes the file, with a symbolic batch if the exporter manages; returns whether it did.

    With a target the loss is part of the graph: inputs x0.., target, output loss.
    """
    net = trained_copy(net, torch.float32)
    names, output = [f"x{i}" for i in range(len(inputs))], "y"
    if target is not None:
        net, inputs = with_loss(net, kind), (*inputs, target)
        names, output = [*names, "target"], "loss"
    error = None
    for dynamic in (True, False):
        try:
            with quiet():
                if exporter == "legacy":
                    export_legacy(net, inputs, path, names, output, dynamic, opset or 17)
                else:
                    export_dynamo(net, inputs, path, names, output, dynamic, opset, external,
                                  optimize)
            return dynamic
        except Exception as e:  # the exporters raise whatever their stages raise
            error = e
    raise error


def as_stored(value, stored):
    """(word, function of arrays) of what makes the stored tensor of a parameter; None: unknown."""
    if np.array_equal(stored, value):
        return "same", lambda a: a
    if value.ndim == 1 and np.array_equal(stored.ravel(), value):
        return "reshaped", lambda a: a.reshape(stored.shape)
    if value.ndim == 2 and np.array_equal(stored, value.T):
        return "transposed", lambda a: a.T.copy()
    if value.ndim == 2 and stored.size % value.shape[1] == 0:
        rows = stored.size // value.shape[1]
        if 0 < rows < len(value) and np.array_equal(stored.ravel(), value[:rows].ravel()):
            return "sliced", lambda a: a[:rows].reshape(stored.shape).copy()
    return None


def match_initializers(path, net):
    """Which initializer holds each parameter: {parameter: (initializer, word, function)}.

    A tied parameter may come out under its other name, an optimizing exporter stores the
    weight of a Linear layer transposed under a new name, and of a table of positions only the
    rows that are used; all are found again by their values. Also returns the float
    initializers that hold no parameter, and those of them that are transposed copies of one:
    ties that the exporter has cut.
    """
    held = {t.name: t for t in onnx.load(path).graph.initializer}
    floats = {n: onnx.numpy_helper.to_array(t).astype(np.float64) for n, t in held.items()
              if t.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE,
                                 onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)}
    match, cut = {}, {}
    for name, p in net.named_parameters():
        value = p.detach().double().numpy()
        found = {n: how for n, t in floats.items() if (how := as_stored(value, t))}
        if name in found:
            found = {name: found[name],
                     **{n: how for n, how in found.items() if how[0] != "same"}}
        order = sorted(found, key=lambda n: ("same", "reshaped", "transposed",
                                                    "sliced").index(found[n][0]))
        match[name] = (order[0], *found[order[0]]) if order else (None, None, None)
        if order and match[name][1] == "same":
            cut.update({n: order[0] for n in order if found[n][0] == "transposed"})
    others = sorted(set(floats) - {m[0] for m in match.values()} - set(cut))
    return match, others, cut


def forward_difference(path, inputs, output):
    """Largest difference between onnxruntime and the float32 output; None where it refuses."""
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options)
        feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)}
        return float(np.abs(session.run(None, feed)[0] - output).max())
    except Exception:  # e.g. BatchNormalization in training form on the CPU provider
        return None


def apart(function, *args):
    """Runs function(*args) in a process of its own, as exporters crash and hang; returns what killed
    it, or ""."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        try:
            function(*args)
        except Exception as e:
            print(f"  FAILED: {type(e).__name__}: {' '.join(str(e).split())[:300]}")
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return signal.strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ""
