"""op_cases_tensor.py -- goldens of pointwise, shape, indexing, reduction and matrix operators."""

import numpy as np
import torch
from onnx import helper
from torch.nn import functional as F

from golden import Const, case


def f32(a):
    return np.asarray(a, np.float32)


def normal(rng, *shape):
    return f32(rng.standard_normal(shape))


def away(rng, *shape, points=(0.0,), gap=0.05):
    """Random values at least `gap` away from the points where a derivative jumps."""
    x = rng.standard_normal(shape) * 1.5
    for p in points:
        x = np.where(np.abs(x - p) < gap, x + 2.5 * gap, x)
    return f32(x)


def between(rng, low, high, *shape):
    return f32(rng.uniform(low, high, shape))


def distinct(rng, *shape):
    """No two values closer than 0.1: safe for max, min, sorting and pooling."""
    n = int(np.prod(shape))
    return f32(rng.permutation(n).reshape(shape) * 0.13 - 0.065 * n)


def zero_row(rng):
    x = normal(rng, 3, 4)
    x[1] = 0
    return x


# Pointwise, one input

def unary(name, op, sample, reference, opset=17, **attributes):
    case(name, op, lambda rng: ({"x": sample(rng)}, reference), opset, **attributes)


def register_unary():
    def plain(rng):
        return normal(rng, 3, 5)

    def kinked(*points):
        return lambda rng: away(rng, 3, 5, points=points)

    def inside(low, high):
        return lambda rng: between(rng, low, high, 3, 5)

    smooth = {
        "Exp": torch.exp, "Sin": torch.sin, "Cos": torch.cos, "Sinh": torch.sinh,
        "Cosh": torch.cosh, "Tanh": torch.tanh, "Atan": torch.atan, "Asinh": torch.asinh,
        "Sigmoid": torch.sigmoid, "Erf": torch.erf, "Neg": torch.neg, "Identity": lambda x: x * 1,
        "Softplus": F.softplus,
    }
    for op, reference in smooth.items():
        unary(op.lower(), op, plain, reference)
    unary("abs", "Abs", kinked(0), torch.abs)
    unary("relu", "Relu", kinked(0), torch.relu)
    unary("softsign", "Softsign", kinked(0), F.softsign)
    unary("log", "Log", inside(0.1, 3), torch.log)
    unary("sqrt", "Sqrt", inside(0.1, 3), torch.sqrt)
    unary("reciprocal", "Reciprocal", inside(0.3, 3), torch.reciprocal)
    unary("tan", "Tan", inside(-1.2, 1.2), torch.tan)
    unary("asin", "Asin", inside(-0.9, 0.9), torch.asin)
    unary("acos", "Acos", inside(-0.9, 0.9), torch.acos)
    unary("atanh", "Atanh", inside(-0.9, 0.9), torch.atanh)
    unary("acosh", "Acosh", inside(1.1, 4), torch.acosh)
    for op in ("Floor", "Ceil", "Round", "Sign"):
        unary(op.lower(), op, kinked(*range(-5, 6)), getattr(torch, op.lower()))
    unary("leaky_relu", "LeakyRelu", kinked(0), lambda x: F.leaky_relu(x, 0.2), alpha=0.2)
    unary("elu", "Elu", kinked(0), lambda x: F.elu(x, 1.5), alpha=1.5)
    unary("selu", "Selu", kinked(0), F.selu)
    unary("celu", "Celu", kinked(0), lambda x: F.celu(x, 2.0), alpha=2.0)
    unary("thresholded_relu", "ThresholdedRelu", kinked(0.5),
          lambda x: torch.where(x > 0.5, x, torch.zeros_like(x)), alpha=0.5)
    unary("hard_sigmoid", "HardSigmoid", kinked(-2.5, 2.5),
          lambda x: torch.clamp(0.2 * x + 0.5, 0, 1))
    unary("hard_sigmoid_torch", "HardSigmoid", kinked(-3, 3),
          lambda x: torch.clamp(np.float32(1 / 6).item() * x + 0.5, 0, 1), alpha=1 / 6, beta=0.5)
    unary("hard_swish", "HardSwish", kinked(-3, 3), F.hardswish)
    unary("mish", "Mish", plain, F.mish, opset=18)
    unary("gelu_erf", "Gelu", plain, F.gelu, opset=20)
    unary("gelu_tanh", "Gelu", plain, lambda x: F.gelu(x, approximate="tanh"), opset=20,
          approximate="tanh")
    unary("swish", "Swish", plain, lambda x: x * torch.sigmoid(1.5 * x), opset=24, alpha=1.5)
    unary("shrink", "Shrink", kinked(-0.5, 0.5),
          lambda x: torch.where(x < -0.5, x + 0.3,
                                torch.where(x > 0.5, x - 0.3, torch.zeros_like(x))),
          lambd=0.5, bias=float(np.float32(0.3)))
    unary("clip_attributes", "Clip", kinked(-0.5, 1), lambda x: torch.clamp(x, -0.5, 1),
          opset=9, min=-0.5, max=1.0)
    for op, reference in (("Sigmoid", torch.sigmoid), ("Tanh", torch.tanh),
                          ("Softplus", lambda x: torch.logaddexp(x, torch.zeros_like(x)))):
        unary(f"{op.lower()}_extreme", op, lambda rng: f32([-90, -30, -8, 0, 8, 30, 90]),
              reference)
    for op, reference, attributes in (
            ("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), {"alpha": 0.2}),
            ("Elu", lambda x: F.elu(x, 0.5), {"alpha": 0.5}), ("Relu", torch.relu, {}),
            ("Clip", lambda x: F.hardtanh(x), {"min": -1.0, "max": 1.0})):
        unary(f"{op.lower()}_kink", op, lambda rng: f32([-1, 0, 1, 0.5, -2]), reference, opset=10,
              **attributes)
    unary("relu_scalar", "Relu", lambda rng: f32(0.7), torch.relu)
    unary("exp_empty", "Exp", lambda rng: f32(np.zeros((0, 3))), torch.exp)
    case("clip_min_max", "Clip", lambda rng: (
        {"x": away(rng, 3, 5, points=(-0.5, 1)), "min": Const(-0.5, np.float32),
         "max": Const(1, np.float32)}, lambda x, lo, hi: torch.clamp(x, -0.5, 1)))
    case("clip_max_only", "Clip", lambda rng: (
        {"x": away(rng, 3, 5, points=(0.25,)), "min": None, "max": Const(0.25, np.float32)},
        lambda x, lo, hi: torch.clamp(x, max=0.25)))


# Pointwise, several inputs

def binary(name, op, reference, a, b, sample=normal, opset=17, **attributes):
    case(name, op, lambda rng: ({"a": sample(rng, *a), "b": sample(rng, *b)}, reference),
         opset, **attributes)


def apart(rng):
    """Two tensors that never come close to each other."""
    a = normal(rng, 3, 4)
    return a, f32(a + np.where(rng.random((3, 4)) < 0.5, 0.3, -0.3))


def register_binary():
    def positive(rng, *shape):
        return between(rng, 0.4, 2, *shape)

    shapes = {"same": ((3, 4), (3, 4)), "row": ((3, 4), (4,)), "column": ((3, 1), (3, 4)),
              "outer": ((2, 1, 4), (3, 1)), "scalar": ((2, 3), ()), "ones": ((1, 1), (2, 3))}
    for tag, (a, b) in shapes.items():
        binary(f"add_{tag}", "Add", torch.add, a, b)
        binary(f"mul_{tag}", "Mul", torch.mul, a, b)
    for tag in ("same", "row", "outer"):
        a, b = shapes[tag]
        binary(f"sub_{tag}", "Sub", torch.sub, a, b)
        binary(f"div_{tag}", "Div", torch.div, a, b, sample=positive)
        binary(f"pow_{tag}", "Pow", torch.pow, a, b, sample=positive)
    binary("add_empty", "Add", torch.add, (0, 3), (3,))
    for exponent in (2.0, 3.0, 0.5, -1.0, 1.5):
        tag = str(exponent).replace(".", "_").replace("-", "minus")
        case(f"pow_constant_{tag}", "Pow", lambda rng, e=exponent: (
            {"x": positive(rng, 3, 4), "e": Const(e, np.float32)}, lambda x, _: x ** e))
    case("pow_constant_zero", "Pow", lambda rng: (
        {"x": f32([0, 1, -2]), "e": Const(0, np.float32)}, lambda x, _: x ** 0.0))
    case("pow_of_zero", "Pow", lambda rng: (
        {"x": f32([0, 0, 0, 2]), "e": f32([0, 1, 2, 0])}, torch.pow))
    case("pow_integer_exponent", "Pow", lambda rng: (
        {"x": away(rng, 3, 4), "e": Const(3, np.int64)}, lambda x, _: x ** 3))
    binary("fmod", "Mod", torch.fmod, (3, 4), (4,), sample=positive, fmod=1)
    for op, reference in (("Max", torch.maximum), ("Min", torch.minimum)):
        case(f"{op.lower()}_two", op, lambda rng, f=reference: (
            dict(zip("ab", apart(rng))), f))
        case(f"{op.lower()}_three", op, lambda rng, f=reference: (
            {"a": distinct(rng, 2, 3), "b": f32(distinct(rng, 3) + 0.05), "c": f32(0.02)},
            lambda a, b, c: f(f(a, b), c)))
    case("sum_three", "Sum", lambda rng: (
        {"a": normal(rng, 2, 3), "b": normal(rng, 3), "c": normal(rng, 2, 1)},
        lambda a, b, c: a + b + c))
    case("mean_three", "Mean", lambda rng: (
        {"a": normal(rng, 2, 3), "b": normal(rng, 3), "c": normal(rng, 2, 1)},
        lambda a, b, c: (a + b + c) / 3))
    case("sum_one", "Sum", lambda rng: ({"a": normal(rng, 2, 3)}, lambda a: a * 1))
    for tag, shape in (("channel", (3, 1, 1)), ("scalar", (1,)), ("full", (2, 3, 2, 2))):
        case(f"prelu_{tag}", "PRelu", lambda rng, s=shape: (
            {"x": away(rng, 2, 3, 2, 2), "slope": normal(rng, *s)},
            lambda x, slope: torch.where(x > 0, x, slope * x)))
    case("prelu_kink", "PRelu", lambda rng: (
        {"x": f32([-1, 0, 1]), "slope": f32([0.2])}, lambda x, slope: F.prelu(x, slope)))
    case("where_broadcast", "Where", lambda rng: (
        {"c": rng.random((3, 1)) < 0.5, "a": normal(rng, 2, 3, 4), "b": normal(rng, 4)},
        torch.where))
    case("where_scalar", "Where", lambda rng: (
        {"c": rng.random((2, 3)) < 0.5, "a": f32(-3.0), "b": normal(rng, 2, 3)}, torch.where))
    case("dropout_inference", "Dropout", lambda rng: (
        {"x": normal(rng, 3, 4), "ratio": Const(0.4, np.float32)}, lambda x, r: x * 1))
    case("dropout_ratio_zero", "Dropout", lambda rng: (
        {"x": normal(rng, 3, 4), "ratio": Const(0, np.float32),
         "training_mode": Const(True, np.bool_)}, lambda x, r, t: x * 1))
    case("split_halves", "Split", lambda rng: (
        {"x": normal(rng, 2, 6)}, lambda x: tuple(x.chunk(2, -1))), axis=-1)


# Shape operators

def shaped(name, op, x, reference, constants=None, opset=17, sample=normal, **attributes):
    def make(rng):
        inputs = {"x": sample(rng, *x)}
        inputs.update({k: None if v is None else Const(v) for k, v in (constants or {}).items()})
        return inputs, lambda x, *_: reference(x)
    case(name, op, make, opset, **attributes)


def register_shape():
    shaped("reshape_zero_minus_one", "Reshape", (2, 3, 4), lambda x: x.reshape(2, 12),
           {"shape": [0, -1]})
    shaped("reshape_scalar", "Reshape", (1, 1), lambda x: x.reshape(()), {"shape": np.zeros(0)})
    shaped("flatten_axis2", "Flatten", (2, 3, 4), lambda x: x.reshape(6, 4), axis=2)
    shaped("flatten_axis0", "Flatten", (2, 3), lambda x: x.reshape(1, 6), axis=0)
    shaped("transpose_default", "Transpose", (2, 3, 4), lambda x: x.permute(2, 1, 0))
    shaped("transpose_perm", "Transpose", (2, 3, 4, 2), lambda x: x.permute(0, 2, 3, 1),
           perm=[0, 2, 3, 1])
    shaped("squeeze_axes", "Squeeze", (1, 3, 1), lambda x: x.squeeze(2), {"axes": [-1]})
    shaped("squeeze_all", "Squeeze", (1, 3, 1), lambda x: x.squeeze())
    shaped("squeeze_empty", "Squeeze", (1, 3, 1), lambda x: x.squeeze(), {"axes": np.zeros(0)})
    shaped("squeeze_attribute", "Squeeze", (1, 3, 1), lambda x: x.squeeze(0), opset=11, axes=[0])
    shaped("unsqueeze_axes", "Unsqueeze", (3, 2), lambda x: x[None, :, :, None],
           {"axes": [0, -1]})
    shaped("unsqueeze_attribute", "Unsqueeze", (3, 2), lambda x: x[:, None], opset=11, axes=[1])
    shaped("expand", "Expand", (3, 1), lambda x: x.expand(2, 3, 4), {"shape": [2, 1, 4]})
    shaped("tile", "Tile", (2, 3), lambda x: x.repeat(2, 3), {"repeats": [2, 3]})
    for k, upper in ((0, 1), (1, 1), (-1, 0), (2, 0)):
        shaped(f"trilu_{'upper' if upper else 'lower'}_{k}".replace("-", "minus"), "Trilu",
               (2, 3, 4), lambda x, k=k, u=upper: torch.triu(x, k) if u else torch.tril(x, k),
               {"k": k}, upper=upper)
    shaped("split_equal", "Split", (2, 6), lambda x: tuple(x.split(2, 1)), {"split": [2, 2, 2]},
           axis=1)
    shaped("split_uneven", "Split", (5, 2), lambda x: tuple(x.split([1, 0, 4])),
           {"split": [1, 0, 4]}, axis=0)
    shaped("split_num_outputs", "Split", (7, 2), lambda x: tuple(x.split(3)), opset=18,
           num_outputs=3)
    shaped("split_attribute", "Split", (2, 4), lambda x: tuple(x.split([3, 1], 1)), opset=11,
           axis=1, split=[3, 1])
    shaped("slice_step", "Slice", (4, 5), lambda x: x[1:4, 0:5:2],
           {"starts": [1, 0], "ends": [4, 2**62], "axes": [0, 1], "steps": [1, 2]})
    shaped("slice_negative_step", "Slice", (4, 5), lambda x: x.flip(1)[:, 1:4],
           {"starts": [-2], "ends": [0], "axes": [1], "steps": [-1]})
    shaped("slice_default_axes", "Slice", (4, 5), lambda x: x[-3:-1, 1:3],
           {"starts": [-3, 1], "ends": [-1, 3]})
    shaped("slice_attribute", "Slice", (4, 5), lambda x: x[:, 1:4], opset=9, starts=[1],
           ends=[4], axes=[1])
    shaped("slice_empty", "Slice", (4, 5), lambda x: x[2:2], {"starts": [2], "ends": [2]})
    case("concat_three", "Concat", lambda rng: (
        {"a": normal(rng, 2, 1), "b": normal(rng, 2, 3), "c": normal(rng, 2, 2)},
        lambda *t: torch.cat(t, 1)), axis=-1)
    case("concat_with_empty", "Concat", lambda rng: (
        {"a": normal(rng, 0, 3), "b": normal(rng, 2, 3)}, lambda *t: torch.cat(t, 0)), axis=0)
    register_pad()
    shaped("depth_to_space_dcr", "DepthToSpace", (1, 8, 2, 3), lambda x: x.reshape(
        1, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6), blocksize=2)
    shaped("depth_to_space_crd", "DepthToSpace", (1, 8, 2, 3),
           lambda x: F.pixel_shuffle(x, 2), blocksize=2, mode="CRD")
    shaped("space_to_depth", "SpaceToDepth", (1, 2, 4, 6), lambda x: x.reshape(
        1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3), blocksize=2)
    shaped("center_crop_pad", "CenterCropPad", (5, 4), lambda x: F.pad(x[1:4], (1, 1)),
           {"shape": [3, 6]}, opset=18)
    shaped("cast_float_float", "Cast", (2, 3), lambda x: x * 1, to=1)


def register_pad():
    pads = {"pads": [0, 1, 2, 1]}
    shaped("pad_constant", "Pad", (2, 4), lambda x: F.pad(x, (1, 1, 0, 2)), pads)
    shaped("pad_negative", "Pad", (3, 4), lambda x: F.pad(x, (-1, 2, 1, -1)),
           {"pads": [1, -1, -1, 2]})
    shaped("pad_reflect", "Pad", (1, 3, 4), lambda x: F.pad(x, (2, 1), mode="reflect"),
           {"pads": [0, 0, 2, 0, 0, 1]}, mode="reflect")
    shaped("pad_edge", "Pad", (1, 3, 4), lambda x: F.pad(x, (2, 1), mode="replicate"),
           {"pads": [0, 0, 2, 0, 0, 1]}, mode="edge")
    shaped("pad_wrap", "Pad", (1, 3, 4), lambda x: F.pad(x, (2, 1), mode="circular"),
           {"pads": [0, 0, 2, 0, 0, 1]}, mode="wrap", opset=19)
    shaped("pad_axes", "Pad", (2, 4), lambda x: F.pad(x, (1, 3)),
           {"pads": [1, 3], "value": None, "axes": [-1]}, opset=18)
    shaped("pad_attribute", "Pad", (2, 4), lambda x: F.pad(x, (1, 1, 0, 2), value=0.5), opset=2,
           pads=[0, 1, 2, 1], value=0.5)


# Gather, scatter, sort

def register_indexing():
    def indexed(name, op, x, indices, reference, opset=17, **attributes):
        case(name, op, lambda rng: (
            {"x": normal(rng, *x), "indices": np.array(indices, np.int64)}, reference),
            opset, **attributes)

    indexed("gather_rows_repeated", "Gather", (4, 3), [[0, 2], [2, 2]], lambda x, i: x[i])
    indexed("gather_axis1_negative", "Gather", (2, 4), [-1, 0, -1],
            lambda x, i: x[:, i], axis=1)
    indexed("gather_scalar", "Gather", (3, 2, 4), 1, lambda x, i: x[:, 1], axis=1)
    indexed("gather_elements", "GatherElements", (3, 4), [[0, 1, 2, 0], [-1, 0, 0, 2]],
            lambda x, i: x.gather(0, i % 3), axis=0)
    indexed("gather_nd", "GatherND", (2, 3, 4), [[0, 1], [1, -1], [0, 1]],
            lambda x, i: x[i[:, 0], i[:, 1]])
    indexed("gather_nd_batch", "GatherND", (2, 3, 4), [[1], [0]],
            lambda x, i: torch.stack([x[0, 1], x[1, 0]]), batch_dims=1)

    def scattered(name, op, x, indices, updates, reference, opset=18, **attributes):
        case(name, op, lambda rng: (
            {"x": distinct(rng, *x), "indices": np.array(indices, np.int64),
             "updates": f32(distinct(rng, *updates) + 0.05)}, reference), opset, **attributes)

    where = [[0, 1, 2], [2, 0, -1]]
    scattered("scatter_elements", "ScatterElements", (3, 3), where, (2, 3),
              lambda x, i, u: x.scatter(0, i % 3, u), axis=0)
    case("scatter_elements_add", "ScatterElements", lambda rng: (
        {"x": normal(rng, 2, 4), "indices": np.array([[1, 1, 3], [0, 0, 0]]),
         "updates": normal(rng, 2, 3)}, lambda x, i, u: x.scatter_add(1, i, u)), opset=18,
        axis=1, reduction="add")
    for mode, name in (("mul", "prod"), ("max", "amax"), ("min", "amin")):
        scattered(f"scatter_elements_{mode}", "ScatterElements", (3, 3), where, (2, 3),
                  lambda x, i, u, n=name: x.scatter_reduce(0, i % 3, u, n), axis=0,
                  reduction=mode)
    scattered("scatter_nd", "ScatterND", (4, 3), [[2], [0]], (2, 3),
              lambda x, i, u: x.index_put((i[:, 0],), u))
    scattered("scatter_nd_elements", "ScatterND", (2, 3), [[[0, 1], [1, 2]]], (1, 2),
              lambda x, i, u: x.index_put((i[..., 0], i[..., 1]), u))
    case("scatter_nd_add", "ScatterND", lambda rng: (
        {"x": normal(rng, 4, 2), "indices": np.array([[1], [1], [3]]),
         "updates": normal(rng, 3, 2)},
        lambda x, i, u: x.index_put((i[:, 0],), u, accumulate=True)), opset=18, reduction="add")
    # As PyTorch's exporters write masked_scatter and x[mask] = row
    write = helper.make_node("ScatterND", ["x", "at", "given"], ["y"])
    at = [helper.make_node("Expand", ["mask", "shape"], ["all"]),
          helper.make_node("NonZero", ["all"], ["axes"]),
          helper.make_node("Transpose", ["axes"], ["at"], perm=[1, 0])]
    first = at + [helper.make_node("Shape", ["at"], ["sizes"]),
                  helper.make_node("Gather", ["sizes", "zero"], ["count"]),
                  helper.make_node("Slice", ["source", "zero", "count", "zero"], ["given"]), write]
    mask = np.array([[1, 0, 1], [0, 0, 1]], np.bool_)
    case("masked_scatter_rows", first, lambda rng: (
        {"x": normal(rng, 2, 3, 4), "mask": mask[..., None], "source": normal(rng, 16),
         "shape": Const([2, 3, 4]), "zero": Const([0])},
        lambda x, m, s, *_: x.masked_scatter(m.expand_as(x), s)))
    case("masked_scatter_elements", first, lambda rng: (
        {"x": normal(rng, 2, 3), "mask": mask, "source": normal(rng, 5), "shape": Const([2, 3]),
         "zero": Const([0])}, lambda x, m, s, *_: x.masked_scatter(m, s)))
    case("masked_row", at + [
        helper.make_node("Cast", ["mask"], ["ones"], to=7),
        helper.make_node("ReduceSum", ["ones"], ["sum"], keepdims=0),
        helper.make_node("Reshape", ["sum", "flat"], ["count"]),
        helper.make_node("Concat", ["count", "trailing"], ["rows"], axis=0),
        helper.make_node("Expand", ["row", "rows"], ["each"]),
        helper.make_node("Reshape", ["each", "flat"], ["given"]), write], lambda rng: (
            {"x": normal(rng, 2, 3, 4), "mask": mask[..., None], "row": normal(rng, 4),
             "shape": Const([2, 3, 4]), "trailing": Const([4]), "flat": Const([-1])},
            lambda x, m, r, *_: torch.where(m, r, x)))
    case("one_hot_values", "OneHot", lambda rng: (
        {"indices": np.array([0, 2, -1]), "depth": Const(4), "values": normal(rng, 2)},
        lambda i, d, v: torch.where(F.one_hot(i % 4, 4).bool(), v[1], v[0])))
    case("topk_largest", "TopK", lambda rng: (
        {"x": distinct(rng, 3, 5), "k": Const([2])},
        lambda x, k: tuple(torch.topk(x, 2, dim=1))), axis=1)
    case("topk_smallest_axis0", "TopK", lambda rng: (
        {"x": distinct(rng, 4, 3), "k": Const([3])},
        lambda x, k: tuple(torch.topk(x, 3, dim=0, largest=False))), axis=0, largest=0)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            case(f"cumsum_{exclusive}{reverse}", "CumSum",
                 lambda rng, e=exclusive, r=reverse: (
                     {"x": normal(rng, 2, 4), "axis": Const(1)},
                     lambda x, _: cumulated(x, e, r)),
                 exclusive=exclusive, reverse=reverse)
    case("reverse_sequence", "ReverseSequence", lambda rng: (
        {"x": normal(rng, 4, 3), "lengths": Const([1, 4, 2])},
        lambda x, _: torch.stack([torch.cat([x[:n, j].flip(0), x[n:, j]])
                                  for j, n in enumerate((1, 4, 2))], 1)),
        batch_axis=1, time_axis=0)


def cumulated(x, exclusive, reverse):
    x = x.flip(1) if reverse else x
    y = x.cumsum(1) - (x if exclusive else 0)
    return y.flip(1) if reverse else y


# Reductions

REDUCTIONS = {
    "ReduceSum": torch.sum, "ReduceMean": torch.mean, "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceL1": lambda x, d, k: x.abs().sum(d, k),
    "ReduceL2": lambda x, d, k: (x * x).sum(d, k).sqrt(),
    "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceSumSquare": lambda x, d, k: (x * x).sum(d, k),
    "ReduceProd": lambda x, d, k: product(x, d, k),
}


def product(x, axes, keep):
    for a in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(a, keep)
    return x


def register_reductions():
    for op, reference in REDUCTIONS.items():
        def sample(rng, op=op):
            if op == "ReduceLogSum":
                return between(rng, 0.3, 2, 2, 3, 4)
            return f32(distinct(rng, 2, 3, 4) * 0.7 + 0.03)

        snake = "reduce_" + "".join("_" * (i > 0 and c.isupper() and not op[6 + i - 1].isupper())
                                    + c for i, c in enumerate(op[6:])).lower()
        for tag, axes, keep in (("last", [-1], 1), ("middle", [1], 0), ("outer", [0, 2], 1),
                                ("all", [0, 1, 2], 0)):
            attributes = {"keepdims": keep}
            if op == "ReduceSum":
                case(f"{snake}_{tag}", op, lambda rng, s=sample, f=reference, a=axes, k=keep: (
                    {"x": s(rng), "axes": Const(a)},
                    lambda x, _: f(x, tuple(a), bool(k))), **attributes)
            else:
                case(f"{snake}_{tag}", op, lambda rng, s=sample, f=reference, a=axes, k=keep: (
                    {"x": s(rng)}, lambda x: f(x, tuple(a), bool(k))), axes=axes, **attributes)
    case("reduce_mean_opset18", "ReduceMean", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "axes": Const([1, -1])},
        lambda x, _: x.mean((1, 2), True)), opset=18)
    case("reduce_l2_zero", "ReduceL2", lambda rng: (
        {"x": zero_row(rng)}, lambda x: torch.linalg.vector_norm(x, dim=1)), axes=[1], keepdims=0)
    case("reduce_sum_noop", "ReduceSum", lambda rng: (
        {"x": normal(rng, 2, 3), "axes": Const(np.zeros(0))}, lambda x, _: x * 1),
        noop_with_empty_axes=1)
    case("reduce_sum_attribute", "ReduceSum", lambda rng: (
        {"x": normal(rng, 2, 3)}, lambda x: x.sum(1, True)), opset=11, axes=[1])
    case("reduce_max_default", "ReduceMax", lambda rng: (
        {"x": distinct(rng, 2, 3)}, lambda x: x.amax((0, 1), True)))
    case("reduce_mean_size_one", "ReduceMean", lambda rng: (
        {"x": normal(rng, 2, 1, 3)}, lambda x: x.mean(1, True)), axes=[1])


# Matrix products

def register_matrix():
    shapes = {"plain": ((3, 4), (4, 2)), "batched": ((2, 3, 4), (2, 4, 2)),
              "broadcast": ((2, 1, 3, 4), (3, 4, 2)), "shared": ((2, 3, 4), (4, 5)),
              "vector_matrix": ((4,), (4, 3)), "matrix_vector": ((2, 3, 4), (4,)),
              "dot": ((4,), (4,)), "inner_one": ((3, 1), (1, 2))}
    for tag, (a, b) in shapes.items():
        binary(f"matmul_{tag}", "MatMul", torch.matmul, a, b)
    bias = {"row": (3,), "full": (2, 3), "column": (2, 1), "scalar": ()}
    for ta in (0, 1):
        for tb in (0, 1):
            tag = list(bias)[2 * ta + tb]
            case(f"gemm_{ta}{tb}_{tag}", "Gemm", lambda rng, ta=ta, tb=tb, s=bias[tag]: (
                {"a": normal(rng, *((4, 2) if ta else (2, 4))),
                 "b": normal(rng, *((3, 4) if tb else (4, 3))), "c": normal(rng, *s)},
                lambda a, b, c: 0.5 * ((a.T if ta else a) @ (b.T if tb else b)) + 2 * c),
                transA=ta, transB=tb, alpha=0.5, beta=2.0)
    case("gemm_no_bias", "Gemm", lambda rng: (
        {"a": normal(rng, 2, 3), "b": normal(rng, 3, 2)}, torch.matmul))
    equations = {"matrix": ("ij,jk->ik", (2, 3), (3, 4)),
                 "batch": ("bij,bkj->bik", (2, 3, 4), (2, 2, 4)),
                 "attention": ("bthd,bshd->bhts", (1, 2, 2, 3), (1, 3, 2, 3)),
                 "outer": ("i,j->ij", (2,), (3,)), "sum": ("ij,ij->", (2, 3), (2, 3)),
                 "ellipsis": ("...ij,jk->...ik", (2, 2, 3), (3, 2)),
                 "implicit": ("ba,ac", (2, 3), (3, 2)),
                 "broadcast": ("bij,bj->bi", (1, 2, 3), (5, 3)),
                 "broadcast_dots": ("...ij,...jk->...ik", (4, 1, 3, 5), (1, 2, 5, 6))}
    for tag, (equation, a, b) in equations.items():
        binary(f"einsum_{tag}", "Einsum", lambda x, y, e=equation: torch.einsum(e, x, y), a, b,
               equation=equation)
    for op, attributes in (("MatMul", {}), ("Gemm", {}), ("Einsum", {"equation": "ij,jk"})):
        case(f"{op.lower()}_integers", op, lambda rng: (
            {"a": rng.integers(-9, 9, (2, 3)) << 20, "b": rng.integers(-9, 9, (3, 4)) << 20},
            torch.matmul), **attributes)
    case("einsum_diagonal", "Einsum", lambda rng: (
        {"x": normal(rng, 2, 3, 3)}, lambda x: torch.einsum("bii->bi", x)), equation="bii->bi")
    case("einsum_transpose_sum", "Einsum", lambda rng: (
        {"x": normal(rng, 2, 3, 4)}, lambda x: torch.einsum("ijk->kj", x)), equation="ijk->kj")
    case("det", "Det", lambda rng: (
        {"x": f32(normal(rng, 2, 3, 3) + 2 * np.eye(3))}, torch.linalg.det))
    case("det_pivots", "Det", lambda rng: ({"x": normal(rng, 2, 9, 9)}, torch.linalg.det))
    binary("fused_matmul", "FusedMatMul",
           lambda a, b: 0.5 * a.transpose(-1, -2) @ b.transpose(-1, -2), (2, 4, 3), (2, 5, 4),
           domain="com.microsoft", transA=1, transB=1, alpha=0.5)
    binary("fused_matmul_batches", "FusedMatMul",
           lambda a, b: torch.einsum("kxym,nxyk->xymn", a, b), (5, 2, 3, 4), (3, 2, 3, 5),
           domain="com.microsoft", transBatchA=1, transBatchB=1, transA=1, transB=1)


for register in (register_unary, register_binary, register_shape, register_indexing,
                 register_reductions, register_matrix):
    register()
