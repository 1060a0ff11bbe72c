"""golden.py -- what an operator case is, and how its golden is computed and confirmed.

A case names an operator, its attributes and opset, and a function that makes the inputs and
a PyTorch reference. compute() evaluates the reference in float64, differentiates it, and
compares the forward result with onnxruntime, or with ONNX's reference evaluator where
onnxruntime lacks the operator: PyTorch supplies the gradient, ONNX the meaning.
"""
import zlib

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

ELEMENT = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.FLOAT,
           np.dtype(np.int64): TensorProto.INT64, np.dtype(np.int32): TensorProto.INT32,
           np.dtype(np.bool_): TensorProto.BOOL}
CASES = {}


class Const:
    """An input that is part of the model (an initializer): axes, shapes, sizes."""

    def __init__(self, value, dtype=np.int64):
        self.value = np.array(value, dtype)


class Fixed:
    """A float input without gradient, e.g. the running mean."""

    def __init__(self, value):
        self.value = value


def case(name, op, make, opset=17, domain="", **attributes):
    """Registers a case. make(rng) returns (inputs, reference). op: a name, or a list of nodes that make y.

    inputs: {name: array | Const | Fixed | None}, None for an omitted optional input.
    reference: called with them as float64 tensors (Const as numpy, None as None), returns
    the output or a tuple of outputs; None in the tuple leaves an output unnamed.
    """
    assert name not in CASES, name
    CASES[name] = (op, make, opset, domain, attributes)


def to_torch(value):
    if value is None or isinstance(value, Const):
        return None if value is None else value.value
    if isinstance(value, Fixed):
        return torch.from_numpy(value.value).double()
    t = torch.from_numpy(value)
    return t.double().requires_grad_(True) if t.is_floating_point() else t


def build_model(name, inputs, outputs):
    op, _, opset, domain, attributes = CASES[name]
    nodes = op if isinstance(op, list) else [
        helper.make_node(op, ["" if v is None else n for n, v in inputs.items()],
                         ["" if v is None else n for n, v in outputs.items()],
                         domain=domain, **attributes)]
    fed = {n: v.value if isinstance(v, Fixed) else v for n, v in inputs.items()
           if isinstance(v, (np.ndarray, Fixed))}
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(n, ELEMENT[v.dtype], v.shape) for n, v in fed.items()],
        [helper.make_tensor_value_info(n, ELEMENT[v.dtype], v.shape)
         for n, v in outputs.items() if v is not None],
        [numpy_helper.from_array(v.value, n) for n, v in inputs.items()
         if isinstance(v, Const)])
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=opsets,
                              ir_version=min(10, helper.find_min_ir_version_for(opsets, True)))
    return model, fed


def forward(model, fed):
    """(who, results): the standard's answer by onnxruntime, else by ONNX's own reference evaluator."""
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = \
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return "onnxruntime", session.run(None, fed)
    except Exception:  # operator, opset or dtype without a CPU kernel
        return "reference", onnx.reference.ReferenceEvaluator(model).run(None, fed)


def compute(name):
    """Returns (model, arrays of the npz, who confirmed the forward result)."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    inputs, reference = CASES[name][1](rng)
    tensors = {n: to_torch(v) for n, v in inputs.items()}
    result = reference(*tensors.values())
    result = result if isinstance(result, tuple) else (result,)
    outputs = {f"y{i}" if i else "y": r for i, r in enumerate(result)}
    values = {n: None if r is None else r.detach().numpy() for n, r in outputs.items()}
    model, fed = build_model(name, inputs, values)
    onnx.checker.check_model(model)
    named = {n: v for n, v in values.items() if v is not None}
    who, answers = forward(model, fed)
    for (n, v), got in zip(named.items(), answers):
        np.testing.assert_allclose(got, v, rtol=2e-4, atol=2e-5, err_msg=f"{name}/{n} ({who})")
    arrays = {f"input/{n}": v for n, v in fed.items()}
    arrays.update({f"output/{n}": v for n, v in named.items()})
    loss = torch.zeros((), dtype=torch.float64)
    for n, r in outputs.items():
        if r is not None and r.requires_grad:
            cotangent = rng.standard_normal(tuple(r.shape)).astype(np.float32)
            arrays[f"cotangent/{n}"] = cotangent
            loss = loss + (r * torch.from_numpy(cotangent).double()).sum()
    wanted = {n: t for n, t in tensors.items()
              if isinstance(t, torch.Tensor) and t.requires_grad}
    if loss.requires_grad:
        loss.backward()
    for n, t in wanted.items():
        g = torch.zeros_like(t) if t.grad is None else t.grad
        assert torch.isfinite(g).all(), f"{name}: gradient of {n} is not finite"
        arrays[f"grad/{n}"] = g.numpy()
    return model, arrays, who
