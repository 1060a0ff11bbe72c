"""op_cases_nn.py -- goldens of convolution, pooling, normalization, losses, attention,
recurrent networks and resampling."""
import math

import numpy as np
import torch
import torchvision
from torch.nn import functional as F

from golden import Const, Fixed, case
from op_cases_tensor import away, between, distinct, f32, normal, zero_row


# Convolution

def conv(name, x, w, reference, bias=True, **attributes):
    def make(rng):
        inputs = {"x": normal(rng, *x), "w": normal(rng, *w)}
        if bias:
            inputs["b"] = normal(rng, w[0])
        return inputs, lambda x, w, b=None: reference(x, w, b)
    case(name, "Conv", make, **attributes)


def register_conv():
    conv("conv_plain", (2, 2, 5, 5), (3, 2, 3, 3), F.conv2d)
    conv("conv_no_bias", (1, 2, 4, 5), (2, 2, 3, 2), F.conv2d, bias=False)
    conv("conv_1x1", (2, 3, 3, 4), (4, 3, 1, 1), F.conv2d)
    conv("conv_pad_stride", (1, 2, 6, 7), (2, 2, 3, 3),
         lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), strides=[2, 2],
         pads=[1, 1, 1, 1])
    conv("conv_asymmetric_pad", (1, 1, 4, 5), (2, 1, 3, 2),
         lambda x, w, b: F.conv2d(F.pad(x, (1, 0, 0, 2)), w, b, stride=(1, 2)),
         strides=[1, 2], pads=[0, 1, 2, 0])
    conv("conv_dilated", (1, 2, 7, 6), (2, 2, 3, 2),
         lambda x, w, b: F.conv2d(x, w, b, padding=(2, 0), dilation=(2, 3)),
         dilations=[2, 3], pads=[2, 0, 2, 0])
    conv("conv_groups", (2, 4, 4, 4), (6, 2, 3, 3),
         lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2), group=2, pads=[1, 1, 1, 1])
    conv("conv_depthwise", (1, 3, 5, 5), (3, 1, 3, 3),
         lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2, groups=3), group=3,
         pads=[1, 1, 1, 1], strides=[2, 2])
    conv("conv_same_upper", (1, 2, 5, 6), (2, 2, 3, 2),
         lambda x, w, b: F.conv2d(F.pad(x, (0, 0, 1, 1)), w, b, stride=2),
         auto_pad="SAME_UPPER", strides=[2, 2])
    conv("conv_same_lower", (1, 1, 4, 4), (2, 1, 2, 3),
         lambda x, w, b: F.conv2d(F.pad(x, (1, 1, 1, 0)), w, b), auto_pad="SAME_LOWER")
    conv("conv_valid", (1, 1, 4, 4), (2, 1, 2, 3), F.conv2d, auto_pad="VALID")
    conv("conv1d", (2, 2, 7), (3, 2, 3),
         lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), strides=[2], pads=[1, 1])
    conv("conv3d", (1, 2, 3, 4, 4), (2, 2, 2, 3, 2),
         lambda x, w, b: F.conv3d(x, w, b, padding=(0, 1, 0)), pads=[0, 1, 0, 0, 1, 0])
    register_transposed()
    case("deform_conv", "DeformConv", lambda rng: (
        {"x": normal(rng, 1, 2, 4, 4), "w": normal(rng, 2, 2, 2, 2),
         "offset": f32(rng.integers(-1, 2, (1, 8, 3, 3)) + rng.uniform(.2, .8, (1, 8, 3, 3))),
         "b": normal(rng, 2), "mask": between(rng, 0.2, 1, 1, 4, 3, 3)},
        lambda x, w, o, b, m: torchvision.ops.deform_conv2d(x, o, w, b, mask=m)), opset=19)
    case("deform_conv_groups", "DeformConv", lambda rng: (
        {"x": normal(rng, 2, 4, 4, 5), "w": normal(rng, 6, 2, 2, 2),
         "offset": f32(rng.integers(-2, 3, (2, 16, 3, 2)) + rng.uniform(.2, .8, (2, 16, 3, 2))),
         "b": normal(rng, 6), "mask": between(rng, 0.2, 1, 2, 8, 3, 2)},
        lambda x, w, o, b, m: torchvision.ops.deform_conv2d(x, o, w, b, stride=2, padding=(1, 0), mask=m)),
        opset=19, group=2, offset_group=2, strides=[2, 2], pads=[1, 0, 1, 0])


def register_transposed():
    def transposed(name, x, w, reference, out=None, **attributes):
        channels = out or w[1]
        case(name, "ConvTranspose", lambda rng: (
            {"x": normal(rng, *x), "w": normal(rng, *w), "b": normal(rng, channels)},
            reference), **attributes)

    transposed("convtranspose_plain", (1, 2, 3, 3), (2, 3, 3, 2), F.conv_transpose2d)
    transposed("convtranspose_stride", (2, 2, 3, 3), (2, 2, 2, 2),
               lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), strides=[2, 2])
    transposed("convtranspose_pad", (1, 2, 3, 4), (2, 2, 3, 3),
               lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1,
                                                  output_padding=1),
               strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    transposed("convtranspose_asymmetric", (1, 1, 3, 3), (1, 2, 3, 3),
               lambda x, w, b: F.conv_transpose2d(x, w, b)[:, :, 1:, :-2], pads=[1, 0, 0, 2])
    transposed("convtranspose_groups", (1, 4, 3, 2), (4, 2, 2, 2),
               lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(1, 2), groups=2), out=4,
               group=2, strides=[1, 2])
    transposed("convtranspose_dilated", (1, 1, 3, 3), (1, 2, 2, 2),
               lambda x, w, b: F.conv_transpose2d(x, w, b, dilation=2), dilations=[2, 2])
    transposed("convtranspose_output_shape", (1, 1, 3, 3), (1, 2, 3, 3),
               lambda x, w, b: F.pad(F.conv_transpose2d(x, w, stride=3), (0, 1, 0, 1))
               + b.view(1, -1, 1, 1),
               strides=[3, 3], output_shape=[10, 10])
    transposed("convtranspose_same_upper", (1, 1, 3, 3), (1, 2, 3, 3),
               lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2)[:, :, :-1, :-1],
               strides=[2, 2], auto_pad="SAME_UPPER")
    transposed("convtranspose1d", (2, 2, 4), (2, 3, 4),
               lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1),
               strides=[2], pads=[1, 1])


# Pooling

def register_pooling():
    def pool(name, op, x, reference, sample=distinct, opset=17, **attributes):
        case(name, op, lambda rng: ({"x": sample(rng, *x)}, reference), opset, **attributes)

    pool("maxpool_plain", "MaxPool", (1, 2, 4, 6), lambda x: F.max_pool2d(x, 2),
         kernel_shape=[2, 2], strides=[2, 2])
    pool("maxpool_overlap_pad", "MaxPool", (1, 2, 5, 5),
         lambda x: F.max_pool2d(x, 3, 2, 1), kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1])
    pool("maxpool_ceil", "MaxPool", (1, 1, 6, 5),
         lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), kernel_shape=[3, 3],
         strides=[2, 2], ceil_mode=1)
    pool("maxpool_dilated", "MaxPool", (1, 1, 5, 5), lambda x: F.max_pool2d(x, 2, 1, 0, 2),
         kernel_shape=[2, 2], dilations=[2, 2])
    pool("maxpool_same_upper", "MaxPool", (1, 1, 5, 5),
         lambda x: F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-1e9), 2, 1),
         kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    pool("maxpool_asymmetric", "MaxPool", (1, 1, 4, 4),
         lambda x: F.max_pool2d(F.pad(x, (1, 0, 0, 1), value=-1e9), 2, 1),
         kernel_shape=[2, 2], pads=[0, 1, 1, 0])
    pool("maxpool1d", "MaxPool", (2, 2, 7), lambda x: F.max_pool1d(x, 3, 2),
         kernel_shape=[3], strides=[2])
    pool("maxpool3d", "MaxPool", (1, 1, 3, 4, 4), lambda x: F.max_pool3d(x, 2, (1, 2, 2)),
         kernel_shape=[2, 2, 2], strides=[1, 2, 2])
    pool("maxpool_indices", "MaxPool", (1, 2, 4, 4),
         lambda x: tuple(pool_with_flat_indices(x)), kernel_shape=[2, 2], strides=[2, 2])
    pool("averagepool_plain", "AveragePool", (1, 2, 4, 6), lambda x: F.avg_pool2d(x, 2),
         normal, kernel_shape=[2, 2], strides=[2, 2])
    for include in (0, 1):
        pool(f"averagepool_pad_include{include}", "AveragePool", (1, 1, 5, 5),
             lambda x, i=bool(include): F.avg_pool2d(x, 3, 2, 1, count_include_pad=i), normal,
             kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=include)
        pool(f"averagepool_ceil_include{include}", "AveragePool", (1, 1, 6, 5),
             lambda x, i=bool(include): F.avg_pool2d(x, 3, 2, 1, True, i), normal, opset=19,
             kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,
             count_include_pad=include)
    pool("averagepool_ceil_larger", "AveragePool", (2, 3, 2, 3),
         lambda x: F.avg_pool2d(x, 5, 5, ceil_mode=True), normal, opset=19, kernel_shape=[5, 5],
         strides=[5, 5], ceil_mode=1, count_include_pad=1)
    pool("maxpool_ceil_larger", "MaxPool", (1, 2, 3, 4),
         lambda x: F.max_pool2d(x, 4, 3, 1, 2, ceil_mode=True), kernel_shape=[4, 4],
         strides=[3, 3], pads=[1, 1, 1, 1], dilations=[2, 2], ceil_mode=1)
    pool("averagepool_same_lower", "AveragePool", (1, 1, 4, 4),
         lambda x: F.avg_pool2d(F.pad(x, (1, 0, 1, 0)), 2, 1)
         / F.avg_pool2d(F.pad(torch.ones_like(x), (1, 0, 1, 0)), 2, 1), normal,
         kernel_shape=[2, 2], auto_pad="SAME_LOWER")
    pool("averagepool1d", "AveragePool", (2, 2, 7), lambda x: F.avg_pool1d(x, 3, 2), normal,
         kernel_shape=[3], strides=[2])
    pool("averagepool3d", "AveragePool", (1, 1, 3, 4, 4),
         lambda x: F.avg_pool3d(x, 2, (1, 2, 2)), normal, kernel_shape=[2, 2, 2],
         strides=[1, 2, 2])
    pool("global_average_pool", "GlobalAveragePool", (2, 3, 3, 2),
         lambda x: x.mean((2, 3), True), normal)
    pool("global_max_pool", "GlobalMaxPool", (2, 3, 3, 2), lambda x: x.amax((2, 3), True))
    pool("global_lp_pool", "GlobalLpPool", (2, 2, 3, 2),
         lambda x: (x.abs() ** 3).sum((2, 3), True) ** (1 / 3), away, p=3)
    pool("lp_pool", "LpPool", (1, 2, 4, 5),
         lambda x: (F.avg_pool2d(x ** 2, 2, (2, 1)) * 4).sqrt(), away,
         kernel_shape=[2, 2], strides=[2, 1], p=2)
    case("max_unpool", "MaxUnpool", lambda rng: (
        {"x": normal(rng, 1, 1, 2, 2), "i": np.array([[[[5, 7], [13, 15]]]])},
        lambda x, i: F.max_unpool2d(x, i, 2)), kernel_shape=[2, 2], strides=[2, 2])


def pool_with_flat_indices(x):
    """ONNX counts indices over the whole tensor, PyTorch within a channel."""
    y, i = F.max_pool2d(x, 2, return_indices=True)
    plane = torch.arange(x.size(0) * x.size(1)).view(x.size(0), x.size(1), 1, 1)
    return y, i + plane * x.size(2) * x.size(3)


# Normalization

def standardized(x, axes, epsilon):
    mean = x.mean(axes, True)
    var = ((x - mean) ** 2).mean(axes, True)
    return (x - mean) / (var + epsilon).sqrt()


def per_channel(t, x):
    return t.view(1, -1, *([1] * (x.dim() - 2)))


def register_batch_norm():
    eps = np.float32(1e-3).item()

    def training(x, scale, bias, mean, var):
        axes = (0, *range(2, x.dim()))
        m, v = x.mean(axes), x.var(axes, unbiased=False)
        y = standardized(x, axes, eps) * per_channel(scale, x) + per_channel(bias, x)
        k = np.float32(0.8).item()
        return y, (mean * k + m * (1 - k)).detach(), (var * k + v * (1 - k)).detach()

    def inference(x, scale, bias, mean, var):
        return F.batch_norm(x, mean, var, scale, bias, False, 0, eps)

    def inputs(rng, *shape):
        c = shape[1]
        return {"x": normal(rng, *shape), "scale": normal(rng, c), "bias": normal(rng, c),
                "mean": Fixed(normal(rng, c)), "var": Fixed(between(rng, 0.5, 2, c))}

    for tag, shape in (("2d", (3, 2, 2, 3)), ("1d", (2, 3, 4)), ("0d", (5, 3))):
        case(f"batchnorm_training_{tag}", "BatchNormalization",
             lambda rng, s=shape: (inputs(rng, *s), training), training_mode=1, momentum=0.8,
             epsilon=1e-3)
        case(f"batchnorm_inference_{tag}", "BatchNormalization",
             lambda rng, s=shape: (inputs(rng, *s), inference), epsilon=1e-3)
    case("batchnorm_inference_opset9", "BatchNormalization",
         lambda rng: (inputs(rng, 2, 2, 3), inference), opset=9, epsilon=1e-3)


def register_norms():
    register_batch_norm()
    eps = np.float32(1e-5).item()
    case("layernorm_last", "LayerNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "scale": normal(rng, 4), "bias": normal(rng, 4)},
        lambda x, s, b: F.layer_norm(x, (4,), s, b, eps)))
    case("layernorm_axis1_outputs", "LayerNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "scale": normal(rng, 3, 4), "bias": normal(rng, 3, 4)},
        lambda x, s, b: (F.layer_norm(x, (3, 4), s, b, eps), x.mean((1, 2), True),
                         1 / (x.var((1, 2), unbiased=False, keepdim=True) + eps).sqrt())),
        axis=1)
    case("layernorm_no_bias", "LayerNormalization", lambda rng: (
        {"x": normal(rng, 3, 5), "scale": normal(rng, 5)},
        lambda x, s: F.layer_norm(x, (5,), s, None, np.float32(0.1).item())), epsilon=0.1)
    case("instancenorm", "InstanceNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 2, 3), "scale": normal(rng, 3), "bias": normal(rng, 3)},
        lambda x, s, b: standardized(x, (2, 3), eps) * per_channel(s, x) + per_channel(b, x)))
    case("groupnorm", "GroupNormalization", lambda rng: (
        {"x": normal(rng, 2, 4, 2, 2), "scale": normal(rng, 4), "bias": normal(rng, 4)},
        lambda x, s, b: F.group_norm(x, 2, s, b, eps)), opset=21, num_groups=2)
    case("rmsnorm", "RMSNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "scale": normal(rng, 4)},
        lambda x, s: x * torch.rsqrt((x * x).mean(-1, True) + eps) * s), opset=23)
    case("rmsnorm_axis1", "RMSNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "scale": normal(rng, 3, 4)},
        lambda x, s: x * torch.rsqrt((x * x).mean((1, 2), True) + eps) * s), opset=23, axis=1)
    case("lp_normalization_l2", "LpNormalization", lambda rng: (
        {"x": normal(rng, 3, 4)}, lambda x: x / (x * x).sum(1, True).sqrt()), axis=1, p=2)
    case("lp_normalization_l1", "LpNormalization", lambda rng: (
        {"x": away(rng, 3, 4)}, lambda x: x / x.abs().sum(0, True)), axis=0, p=1)
    case("lp_normalization_zero", "LpNormalization", lambda rng: (
        {"x": zero_row(rng)}, lambda x: x / (x.norm(dim=1, keepdim=True) + (x == 0).all(1, True))),
        axis=1, p=2)
    case("mean_variance_normalization", "MeanVarianceNormalization", lambda rng: (
        {"x": normal(rng, 2, 2, 2, 3)},
        lambda x: (x - x.mean((0, 2, 3), True))
        / (x.var((0, 2, 3), unbiased=False, keepdim=True).sqrt() + 1e-9)))
    for size in (3, 5):
        case(f"lrn_{size}", "LRN", lambda rng, n=size: (
            {"x": normal(rng, 1, 5, 2, 2)}, lambda x: local_response(x, n, 0.3, 0.7, 1.5)),
            size=size, alpha=0.3, beta=0.7, bias=1.5)


def local_response(x, size, alpha, beta, bias):
    alpha, beta = np.float32(alpha).item(), np.float32(beta).item()
    padded = F.pad(x * x, (0, 0, 0, 0, size // 2, size // 2))
    total = sum(padded[:, i:i + x.size(1)] for i in range(size))
    return x / (bias + alpha / size * total) ** beta


# Softmax and losses

def register_softmax():
    def soft(name, op, x, axis, reference, opset=17, attribute=True):
        attributes = {"axis": axis} if attribute else {}
        case(name, op, lambda rng: ({"x": normal(rng, *x)}, reference), opset, **attributes)

    for op, function in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)):
        name = op.lower()
        soft(f"{name}_last", op, (2, 3, 4), -1, lambda x, f=function: f(x, -1), attribute=False)
        soft(f"{name}_middle", op, (2, 3, 4), 1, lambda x, f=function: f(x, 1))
        soft(f"{name}_first", op, (3, 4), 0, lambda x, f=function: f(x, 0))
        soft(f"{name}_opset11_flattens", op, (2, 3, 4), 1,
             lambda x, f=function: f(x.reshape(2, 12), 1).view_as(x), opset=11)
        case(f"{name}_large", op, lambda rng, f=function: (
            {"x": f32([[1000, 0, -1000], [88, 89, 90]])}, lambda x: f(x, -1)))
    case("softmax_size_one", "Softmax", lambda rng: (
        {"x": normal(rng, 3, 1)}, lambda x: F.softmax(x, 1)), axis=1)


def register_losses():
    shapes = {"2d": ((4, 5), (4,)), "4d": ((2, 3, 2, 2), (2, 2, 2))}
    for reduction in ("mean", "sum", "none"):
        for tag, (x, t) in shapes.items():
            for extra in ("", "_weight", "_ignore", "_weight_ignore"):
                if tag == "4d" and extra in ("_weight", "_ignore"):
                    continue
                loss_pair(f"{reduction}_{tag}{extra}", x, t, reduction, "weight" in extra,
                          "ignore" in extra)
    case("cross_entropy_log_prob", "SoftmaxCrossEntropyLoss", lambda rng: (
        {"x": normal(rng, 3, 4), "t": rng.integers(0, 4, 3)},
        lambda x, t: (F.cross_entropy(x, t), F.log_softmax(x, 1))))


def loss_pair(tag, x, t, reduction, weighted, ignoring):
    attributes = {"reduction": reduction}
    if ignoring:
        attributes["ignore_index"] = 1

    def make(rng, function):
        labels = rng.integers(0, x[1], t)
        labels.flat[0], labels.flat[1] = 1, 2
        inputs = {"x": normal(rng, *x), "t": labels}
        if weighted:
            inputs["w"] = Fixed(between(rng, 0.3, 2, x[1]))
        return inputs, lambda x, t, w=None: function(
            x, t, w, ignore_index=1 if ignoring else -100, reduction=reduction)

    case(f"cross_entropy_{tag}", "SoftmaxCrossEntropyLoss",
         lambda rng: make(rng, F.cross_entropy), **attributes)
    case(f"nll_{tag}", "NegativeLogLikelihoodLoss", lambda rng: make(rng, F.nll_loss),
         **attributes)


# Attention and rotary embedding

def attend(q, k, v, mask=None, scale=None, softcap=0.0):
    groups = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    score = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.size(-1)))
    if mask is not None:
        score = score + mask if mask.is_floating_point() else score.masked_fill(~mask, -1e30)
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    return torch.softmax(score, -1) @ v


def causal(t, s):
    return torch.ones(t, s, dtype=torch.bool).tril()


def rotate(x, cos, sin, interleaved=False):
    """Rotary embedding of x [batch, heads, seq, size]; cos, sin [batch or 1, seq, size / 2]."""
    cos, sin = cos[:, None], sin[:, None]
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def register_attention():
    def qkv(rng, heads=2, kv_heads=2, t=3, s=3):
        return {"q": normal(rng, 1, heads, t, 4), "k": normal(rng, 1, kv_heads, s, 4),
                "v": normal(rng, 1, kv_heads, s, 4)}

    case("attention", "Attention", lambda rng: (qkv(rng, s=4), attend), opset=23)
    case("attention_causal", "Attention", lambda rng: (
        qkv(rng), lambda q, k, v: attend(q, k, v, causal(3, 3))), opset=23, is_causal=1)
    case("attention_grouped", "Attention", lambda rng: (
        qkv(rng, heads=4), lambda q, k, v: attend(q, k, v, scale=0.25)), opset=23, scale=0.25)
    case("attention_bool_mask", "Attention", lambda rng: (
        {**qkv(rng), "mask": np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], np.bool_)}, attend),
        opset=23)
    case("attention_no_key", "Attention", lambda rng: (
        {**qkv(rng), "mask": Const([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.bool_)},
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, torch.from_numpy(m))), opset=23)
    case("attention_float_mask", "Attention", lambda rng: (
        {**qkv(rng), "mask": normal(rng, 3, 3)}, attend), opset=23)
    case("attention_3d", "Attention", lambda rng: (
        {"q": normal(rng, 2, 3, 8), "k": normal(rng, 2, 3, 4), "v": normal(rng, 2, 3, 4)},
        lambda q, k, v: attend(*(t.view(2, 3, n, 2).transpose(1, 2) for t, n in
                                 ((q, 4), (k, 2), (v, 2)))).transpose(1, 2).reshape(2, 3, 8)),
        opset=23, q_num_heads=4, kv_num_heads=2)
    for interleaved in (0, 1):
        case(f"rotary_{interleaved}", "RotaryEmbedding", lambda rng, i=interleaved: (
            {"x": normal(rng, 2, 2, 3, 4), "cos": normal(rng, 2, 3, 2),
             "sin": normal(rng, 2, 3, 2)},
            lambda x, c, s: rotate(x, c, s, bool(i))), opset=23, interleaved=interleaved)
    case("rotary_positions", "RotaryEmbedding", lambda rng: (
        {"x": normal(rng, 2, 2, 3, 4), "cos": normal(rng, 5, 2), "sin": normal(rng, 5, 2),
         "positions": np.array([[0, 1, 2], [4, 2, 2]])},
        lambda x, c, s, p: rotate(x, c[p], s[p])), opset=23)


# Recurrent networks, written out step by step as the standard defines them

def lstm_steps(x, w, r, b, h, c, p=None):
    n = h.size(-1)
    pi, po, pf = (None, None, None) if p is None else p.split(n)
    outputs = []
    for t in range(x.size(0)):
        gates = x[t] @ w.T + h @ r.T + b[:4 * n] + b[4 * n:]
        i, o, f, g = gates.split(n, -1)
        i = torch.sigmoid(i if pi is None else i + pi * c)
        f = torch.sigmoid(f if pf is None else f + pf * c)
        c = f * c + i * torch.tanh(g)
        h = torch.sigmoid(o if po is None else o + po * c) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def gru_steps(x, w, r, b, h, linear_before_reset):
    n = h.size(-1)
    wb, rb = b[:3 * n], b[3 * n:]
    outputs = []
    for t in range(x.size(0)):
        xz, xr, xh = (x[t] @ w.T + wb).split(n, -1)
        hz, hr = (h @ r[:2 * n].T + rb[:2 * n]).split(n, -1)
        z, gate = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
        if linear_before_reset:
            g = torch.tanh(xh + gate * (h @ r[2 * n:].T + rb[2 * n:]))
        else:
            g = torch.tanh(xh + (gate * h) @ r[2 * n:].T + rb[2 * n:])
        h = (1 - z) * g + z * h
        outputs.append(h)
    return torch.stack(outputs), h


def rnn_steps(x, w, r, b, h, activation):
    n = h.size(-1)
    outputs = []
    for t in range(x.size(0)):
        h = activation(x[t] @ w.T + h @ r.T + b[:n] + b[n:])
        outputs.append(h)
    return torch.stack(outputs), h


def directions(step, direction, x, *per_direction):
    """Runs step once per direction and stacks as the standard lays it out."""
    runs = []
    for d, backwards in enumerate({"forward": [0], "reverse": [1],
                                   "bidirectional": [0, 1]}[direction]):
        args = [None if a is None else a[d] for a in per_direction]
        y, *last = step(x.flip(0) if backwards else x, *args)
        runs.append((y.flip(0) if backwards else y, *last))
    return tuple(torch.stack(parts, 1 if i == 0 else 0) for i, parts in enumerate(zip(*runs)))


def recurrent(name, op, gates, step, direction="forward", bias=True, initial=True, cell=False,
              peepholes=False, **attributes):
    length, batch, width, hidden = 3, 2, 2, 3
    d = 2 if direction == "bidirectional" else 1

    def make(rng):
        inputs = {"x": normal(rng, length, batch, width),
                  "w": normal(rng, d, gates * hidden, width) * f32(0.7),
                  "r": normal(rng, d, gates * hidden, hidden) * f32(0.7),
                  "b": normal(rng, d, 2 * gates * hidden) if bias else None, "lens": None}
        if initial:
            inputs["h0"] = normal(rng, d, batch, hidden)
            if cell:
                inputs["c0"] = normal(rng, d, batch, hidden)
        if peepholes:
            inputs["p"] = normal(rng, d, 3 * hidden)
        zeros = torch.zeros(d, batch, hidden, dtype=torch.float64)

        def reference(x, w, r, b, _, h=zeros, c=zeros, p=None):
            b = torch.zeros(d, 2 * gates * hidden, dtype=torch.float64) if b is None else b
            states = (h, c, p) if cell else (h,)
            return directions(step, direction, x, w, r, b, *states)
        while list(inputs.values())[-1] is None:
            inputs.popitem()
        if not bias and not initial:
            return inputs, lambda x, w, r: reference(x, w, r, None, None)
        return inputs, reference
    case(name, op, make, hidden_size=hidden, direction=direction, **attributes)


def register_recurrent():
    for direction in ("forward", "reverse", "bidirectional"):
        recurrent(f"lstm_{direction}", "LSTM", 4, lstm_steps, direction, cell=True)
        recurrent(f"gru_{direction}", "GRU", 3, lambda *a: gru_steps(*a, True), direction,
                  linear_before_reset=1)
        recurrent(f"rnn_{direction}", "RNN", 1, lambda *a: rnn_steps(*a, torch.tanh), direction)
    recurrent("lstm_peepholes", "LSTM", 4, lstm_steps, cell=True, peepholes=True)
    recurrent("lstm_bare", "LSTM", 4, lstm_steps, cell=True, bias=False, initial=False)
    recurrent("gru_reset_before", "GRU", 3, lambda *a: gru_steps(*a, False))
    recurrent("gru_bare", "GRU", 3, lambda *a: gru_steps(*a, False), bias=False, initial=False)
    recurrent("rnn_relu", "RNN", 1, lambda *a: rnn_steps(*a, torch.relu), activations=["Relu"])


# Resampling: every mode of Resize is a matrix per axis

def source(i, scale, n_in, n_out, coordinates):
    if coordinates == "align_corners":
        return i * (n_in - 1) / (n_out - 1) if n_out > 1 else 0.0
    if coordinates == "asymmetric":
        return i / scale
    if coordinates == "pytorch_half_pixel" and n_out == 1:
        return 0.0
    return (i + 0.5) / scale - 0.5


ROUND = {"round_prefer_floor": lambda x: math.ceil(x - 0.5), "floor": math.floor,
         "round_prefer_ceil": lambda x: math.floor(x + 0.5), "ceil": math.ceil}


def taps(x, mode, nearest, a):
    if mode == "nearest":
        return [(ROUND[nearest](x), 1.0)]
    low = math.floor(x)
    t = x - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]

    def near(d):
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d):
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return [(low - 1, far(1 + t)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def resample(n_in, n_out, scale, mode, coordinates, nearest, a=-0.75, exclude=False):
    m = torch.zeros(n_out, n_in, dtype=torch.float64)
    for i in range(n_out):
        pairs = taps(source(i, scale, n_in, n_out, coordinates), mode, nearest, a)
        if exclude:
            pairs = [(j, w) for j, w in pairs if 0 <= j < n_in]
        total = sum(w for _, w in pairs) if exclude else 1.0
        for j, w in pairs:
            m[i, min(max(j, 0), n_in - 1)] += w / total
    return m


def resize(name, x, sizes=None, scales=None, mode="nearest", coordinates="half_pixel",
           nearest="round_prefer_floor", exclude=False, opset=13, **more):
    out = sizes or [math.floor(n * s) for n, s in zip(x, scales)]
    scale = scales or [o / n for o, n in zip(out, x)]
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, **more}
    if mode == "nearest":
        attributes["nearest_mode"] = nearest
    if exclude:
        attributes["exclude_outside"] = 1

    def reference(t, *_):
        for axis, (n, o, s) in enumerate(zip(x, out, scale)):
            if n != o:
                m = resample(n, o, s, mode, coordinates, nearest, exclude=exclude)
                t = torch.tensordot(t, m, ([axis], [1])).movedim(-1, axis)
        return t * 1

    def make(rng):
        inputs = {"x": normal(rng, *x), "roi": None}
        inputs["scales"] = Const(scales, np.float32) if scales else None
        if sizes:
            inputs["sizes"] = Const(sizes)
        return inputs, reference
    case(name, "Resize", make, opset, **attributes)


def register_resize():
    small, up = (1, 2, 3, 4), [1, 1, 2, 2]
    resize("resize_nearest_up", small, scales=up, coordinates="asymmetric", nearest="floor")
    resize("resize_nearest_half_pixel", small, sizes=[1, 2, 5, 7])
    resize("resize_nearest_ceil", small, sizes=[1, 2, 5, 3], nearest="round_prefer_ceil")
    resize("resize_nearest_down", (1, 1, 6, 4), scales=[1, 1, 0.5, 0.5],
           coordinates="asymmetric", nearest="floor")
    for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        resize(f"resize_linear_{coordinates}", small, sizes=[1, 2, 5, 6], mode="linear",
               coordinates=coordinates)
        resize(f"resize_cubic_{coordinates}", (1, 1, 4, 4), sizes=[1, 1, 6, 7], mode="cubic",
               coordinates=coordinates)
    resize("resize_linear_down", (1, 1, 6, 5), sizes=[1, 1, 3, 2], mode="linear")
    resize("resize_cubic_exclude_outside", (1, 1, 4, 4), scales=up, mode="cubic", exclude=True)
    resize("resize_linear_1d", (2, 2, 4), scales=[1, 1, 2.5], mode="linear")
    resize("resize_linear_rounded_up", (1, 1, 5), scales=[1, 1, 1.4], mode="linear")
    case("resize_nearest_whole_positions", "Resize", lambda rng: (
        {"x": normal(rng, 1, 1, 14), "roi": None, "scales": None, "sizes": Const([1, 1, 18])},
        lambda x, *_: F.interpolate(x, size=18)), 13, coordinate_transformation_mode="asymmetric",
        nearest_mode="floor")
    case("resize_linear_align_corners_scale", "Resize", lambda rng: (
        {"x": normal(rng, 1, 1, 5), "roi": None, "scales": Const([1, 1, 1.5], np.float32)},
        lambda x, *_: F.interpolate(x, scale_factor=1.5, mode="linear", align_corners=True)), 13,
        mode="linear", coordinate_transformation_mode="align_corners")
    case("resize_nearest_opset10_down", "Resize", lambda rng: (
        {"x": normal(rng, 1, 1, 8), "scales": Const([1, 1, 0.6], np.float32)},
        lambda x, _: x[..., [0, 2, 4, 5]]), 10)
    case("upsample_nearest_opset9", "Upsample", lambda rng: (
        {"x": normal(rng, 1, 2, 2, 3), "scales": Const(up, np.float32)},
        lambda x, _: F.interpolate(x, scale_factor=2, mode="nearest")), opset=9)
    case("upsample_nearest_opset7", "Upsample", lambda rng: (
        {"x": normal(rng, 1, 2, 2, 3)},
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest")), opset=7,
        scales=[1.0, 1.0, 2.0, 2.0])
    register_sampling()


def register_sampling():
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                if (mode, align) != ("nearest", 1):
                    grid_sample(f"grid_sample_{mode}_{padding}_{align}", mode, padding, align)
    grid_sample("grid_sample_cubic_zeros_0", "cubic", "zeros", 0)
    grid_sample("grid_sample_cubic_border_0", "cubic", "border", 0)
    grid_sample("grid_sample_cubic_reflection_1", "cubic", "reflection", 1)
    for padding in ("zeros", "border", "reflection"):
        grid_sample_edges(padding)
        grid_sample_volume("linear", padding)
    grid_sample_volume("nearest", "border")
    case("affine_grid", "AffineGrid", lambda rng: (
        {"theta": normal(rng, 2, 2, 3), "size": Const([2, 1, 2, 3])},
        lambda t, _: F.affine_grid(t, [2, 1, 2, 3], align_corners=False)), opset=20)
    case("col2im", "Col2Im", lambda rng: (
        {"x": normal(rng, 1, 8, 6), "image": Const([3, 4]), "block": Const([2, 2])},
        lambda x, *_: F.fold(x, (3, 4), 2)), opset=18)
    case("roi_align", "RoiAlign", lambda rng: (
        {"x": normal(rng, 1, 2, 5, 5), "rois": Fixed(f32([[0, 0, 3.5, 4], [1, .5, 4, 3]])),
         "batch": Const([0, 0])},
        lambda x, r, b: torchvision.ops.roi_align(x, [r], (2, 2), 1.0, 2, True)), opset=16,
        output_height=2, output_width=2, sampling_ratio=2, mode="avg",
        coordinate_transformation_mode="half_pixel")
    rois = f32([[0, 0, 0, 5, 4], [1, 1.5, .5, 4, 3], [0, 4, 4, 9, 9], [1, 3, 3, 3, 3]])
    case("max_roi_pool", "MaxRoiPool", lambda rng: (
        {"x": distinct(rng, 2, 2, 6, 6), "rois": Fixed(rois)},
        lambda x, r: torchvision.ops.roi_pool(x, r, (2, 3), 0.75)),
        pooled_shape=[2, 3], spatial_scale=0.75)


def grid_sample(name, mode, padding, align):
    torch_mode = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}[mode]
    case(name, "GridSample", lambda rng: (
        {"x": normal(rng, 1, 2, 3, 4), "grid": between(rng, -1.3, 1.3, 1, 3, 3, 2)},
        lambda x, g: F.grid_sample(x, g, torch_mode, padding, bool(align))), opset=20,
        mode=mode, padding_mode=padding, align_corners=align)


def grid_sample_edges(padding):
    """Positions in the middle of pixels, on edges, where the derivative jumps, and far outside."""
    def grid(size):
        middles = (2 * np.arange(-2, size + 2) + 1) / size - 1
        return np.concatenate([middles, [-1, 0, 1, -3, 4.5]])

    y, x = np.meshgrid(grid(4), grid(8), indexing="ij")
    case(f"grid_sample_edges_{padding}", "GridSample", lambda rng: (
        {"x": normal(rng, 1, 3, 4, 8), "grid": f32(np.stack([x, y], -1)[None])},
        lambda x, g: F.grid_sample(x, g, "bilinear", padding, False)), opset=20,
        mode="linear", padding_mode=padding, align_corners=0)


def grid_sample_volume(mode, padding):
    torch_mode = {"linear": "bilinear", "nearest": "nearest"}[mode]
    case(f"grid_sample_volume_{mode}_{padding}", "GridSample", lambda rng: (
        {"x": normal(rng, 2, 2, 3, 2, 4), "grid": between(rng, -1.4, 1.4, 2, 2, 3, 2, 3)},
        lambda x, g: F.grid_sample(x, g, torch_mode, padding, False)), opset=20,
        mode=mode, padding_mode=padding, align_corners=0)


for register in (register_conv, register_pooling, register_norms, register_softmax,
                 register_losses, register_attention, register_recurrent, register_resize):
    register()
