"""op_cases_ms.py -- goldens of com.microsoft's fused forms that optimizers leave in files."""
import math

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional as F

from golden import Const, case
from op_cases_tensor import between, binary, normal, unary


def ms(name, op, make, **attributes):
    case(f"ms_{name}", op, make, domain="com.microsoft", **attributes)


def register_pointwise():
    def bias_gelu(x, b):
        return F.gelu(x + b)

    unary("ms_gelu", "Gelu", lambda rng: normal(rng, 3, 4), F.gelu, domain="com.microsoft")
    unary("ms_quick_gelu", "QuickGelu", lambda rng: normal(rng, 3, 4),
          lambda x: x * torch.sigmoid(1.5 * x), domain="com.microsoft", alpha=1.5)
    binary("ms_bias_gelu", "BiasGelu", bias_gelu, (2, 3, 4), (4,), domain="com.microsoft")
    binary("ms_fast_gelu", "FastGelu", lambda x, b: F.gelu(x + b, approximate="tanh"),
           (2, 3, 4), (4,), domain="com.microsoft")


def register_norms():
    def skip_norm(x, skip, gamma, beta, bias):
        return F.layer_norm(x + skip + bias, (4,), gamma, beta, np.float32(1e-5).item())

    def skip_rms(x, skip, gamma, bias):
        total = x + skip + bias
        return F.rms_norm(total, (4,), gamma, np.float32(1e-5).item()), None, None, total

    def embed(ids, segments, words, positions, kinds, gamma, beta, mask=None):
        x = words[ids.long()] + positions[:3] + kinds[segments.long()]
        counts = None if mask is None else mask.sum(1).int()
        return F.layer_norm(x, (4,), gamma, beta, np.float32(1e-5).item()), counts

    ms("skip_layer_norm", "SkipLayerNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "skip": normal(rng, 2, 3, 4), "gamma": normal(rng, 4),
         "beta": normal(rng, 4), "bias": normal(rng, 4)}, skip_norm), epsilon=1e-5)
    ms("skip_rms_norm", "SkipSimplifiedLayerNormalization", lambda rng: (
        {"x": normal(rng, 2, 3, 4), "skip": normal(rng, 2, 3, 4), "gamma": normal(rng, 4),
         "bias": normal(rng, 4)}, skip_rms), epsilon=1e-5)
    ms("embed_layer_norm", "EmbedLayerNormalization", lambda rng: (
        {"ids": rng.integers(0, 5, (2, 3)).astype(np.int32),
         "segments": rng.integers(0, 2, (2, 3)).astype(np.int32), "words": normal(rng, 5, 4),
         "positions": normal(rng, 4, 4), "kinds": normal(rng, 2, 4), "gamma": normal(rng, 4),
         "beta": normal(rng, 4)}, embed), epsilon=1e-5)
    ms("embed_layer_norm_mask", "EmbedLayerNormalization", lambda rng: (
        {"ids": rng.integers(0, 5, (2, 3)).astype(np.int32),
         "segments": rng.integers(0, 2, (2, 3)).astype(np.int32), "words": normal(rng, 5, 4),
         "positions": normal(rng, 4, 4), "kinds": normal(rng, 2, 4), "gamma": normal(rng, 4),
         "beta": normal(rng, 4), "mask": np.array([[1, 1, 1], [1, 0, 0]], np.int32)}, embed),
       epsilon=1e-5)


def register_products():
    def fused_conv(name, activation, params, reference, z=False):
        inputs = {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3), "b": (3,)}
        if z:
            inputs["z"] = (1, 3, 5, 5)
        ms(f"fused_conv_{name}", "FusedConv", lambda rng: (
            {n: normal(rng, *s) for n, s in inputs.items()},
            lambda x, w, b, z=0: reference(F.conv2d(x, w, b, padding=1) + z)),
           activation=activation, pads=[1, 1, 1, 1], **params)

    binary("ms_transpose_matmul", "TransposeMatMul", lambda a, b: a.transpose(-1, -2) @ b,
           (2, 4, 3), (2, 4, 5), domain="com.microsoft", transA=1)
    fused_conv("relu", "Relu", {}, F.relu)
    fused_conv("added", "Relu", {}, F.relu, z=True)
    fused_conv("leaky", "LeakyRelu", {"activation_params": [0.125]},
               lambda x: F.leaky_relu(x, 0.125))
    fused_conv("clip", "Clip", {"activation_params": [-0.5, 1.5]}, lambda x: x.clamp(-0.5, 1.5))

    def fused_gemm(name, activation, params, reference):
        ms(f"fused_gemm_{name}", "FusedGemm", lambda rng: (
            {"a": normal(rng, 4, 3), "b": normal(rng, 4, 5), "c": normal(rng, 5)},
            lambda a, b, c: reference(0.5 * a.T @ b + 2 * c)),
           alpha=0.5, beta=2.0, transA=1, activation=activation, **params)

    fused_gemm("tanh", "Tanh", {}, torch.tanh)
    fused_gemm("leaky", "LeakyRelu", {"activation_alpha": 0.125},
               lambda x: F.leaky_relu(x, 0.125))


# Weights of a few bits

def unpacked(data, bits, count):
    """The elements of so many bits in bytes, along the last dimension, the first one in the lowest bits."""
    parts = (data[..., None].astype(np.int64) >> np.arange(0, 8, bits)) & ((1 << bits) - 1)
    return torch.from_numpy(parts.reshape(*data.shape[:-1], -1)[..., :count])


def spread(x, block, count):
    return torch.as_tensor(x).double().repeat_interleave(block, -1)[..., :count]


def register_packed():
    def matmul(name, bits, depth, zero, block=16, rows=5):
        blocks = -(-depth // block)

        def reference(x, w, scale, zeros, index, bias):
            q = unpacked(w, bits, block).reshape(rows, -1)[:, :depth]
            zeros = (unpacked(zeros.reshape(rows, -1), bits, blocks) if zero == np.uint8 else
                     torch.full((rows, blocks), 2.0 ** (bits - 1)) if zero is None else
                     torch.from_numpy(zeros.reshape(rows, -1)))
            q = q - spread(zeros, block, depth)
            return x @ (q * spread(scale.reshape(rows, -1), block, depth)).T + bias

        def make(rng):
            zeros = (None if zero is None else
                     Const(rng.integers(0, 256, rows * -(-blocks * bits // 8)), np.uint8)
                     if zero == np.uint8 else Const(4 * rng.random(rows * blocks), np.float32))
            return {"x": normal(rng, 2, 3, depth),
                    "w": Const(rng.integers(0, 256, (rows, blocks, block * bits // 8)), np.uint8),
                    "scale": Const(rng.random(rows * blocks) / 4, np.float32), "zeros": zeros,
                    "index": None, "bias": normal(rng, rows)}, reference

        ms(f"matmul_nbits_{name}", "MatMulNBits", make, K=depth, N=rows, bits=bits, block_size=block)

    matmul("4", 4, 32, None)
    matmul("4_zeros", 4, 40, np.uint8)
    matmul("4_reals", 4, 48, np.float32)
    matmul("8_zeros", 8, 32, np.uint8)
    matmul("2_zeros", 2, 40, np.uint8)

    def rows_of(data, at, scale, zeros):
        zeros = 8 if zeros is None else spread(unpacked(zeros, 4, 2), 16, 32)[at]
        return (unpacked(data, 4, 32)[at] - zeros) * spread(scale, 16, 32)[at]

    for name, zeros in (("plain", False), ("zeros", True)):
        ms(f"gather_packed_{name}", "GatherBlockQuantized", lambda rng, zeros=zeros: (
            {"data": Const(rng.integers(0, 256, (6, 16)), np.uint8),
             "at": rng.integers(0, 6, (2, 3)),
             "scale": Const(rng.random((6, 2)), np.float32),
             "zeros": Const(rng.integers(0, 256, (6, 1)), np.uint8) if zeros else None}, rows_of),
           block_size=16, quantize_axis=1, gather_axis=0, bits=4)

    def dequantized(q, scale, zeros):
        of = np.arange(11) // 4  # three blocks, the last of three
        return (torch.from_numpy((q.astype(np.int64) - zeros.astype(np.int64)[of])) *
                torch.from_numpy(scale)[of])

    for name, element, low in (("int4", ml_dtypes.int4, -8), ("uint4", ml_dtypes.uint4, 0)):
        case(f"dequantize_{name}", "DequantizeLinear", lambda rng, element=element, low=low: (
            {"x": Const(rng.integers(low, low + 16, (11, 3)), element),
             "scale": Const(rng.random((3, 3)), np.float32),
             "zeros": Const(rng.integers(low, low + 16, (3, 3)), element)}, dequantized),
             opset=21, axis=0, block_size=4)


# Attention

def heads_first(x, heads):
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def attend(q, k, v, bias=0, cap=0):
    """Attention of q, k, v [batch, heads, sequence, size]; k and v may have fewer heads."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if cap:
        scores = cap * torch.tanh(scores / cap)
    return (torch.softmax(scores + bias, -1) @ v).transpose(1, 2).flatten(2)


def causal(rows, columns=None, window=None):
    ahead = torch.ones(rows, columns or rows).triu(1).bool()
    if window:
        ahead |= torch.ones(rows, columns or rows).tril(-window).bool()
    return torch.zeros(ahead.shape, dtype=torch.float64).masked_fill(ahead, -math.inf)


def turn(x, cosine, sine, interleaved):
    """Rotary embedding of x [batch, heads, sequence, size]; cosine, sine [..., sequence, half]."""
    half = cosine.shape[-1]
    a, b, rest = ((x[..., 0:2 * half:2], x[..., 1:2 * half:2], x[..., 2 * half:]) if interleaved
                  else (x[..., :half], x[..., half:2 * half], x[..., 2 * half:]))
    re, im = a * cosine - b * sine, a * sine + b * cosine
    y = torch.stack((re, im), -1).flatten(-2) if interleaved else torch.cat((re, im), -1)
    return torch.cat((y, rest), -1)


def register_attention():
    def attention(x, w, b, mask):
        q, k, v = (heads_first(t, 2) for t in (x @ w + b).chunk(3, 2))
        bias = (mask.double()[:, None, None] - 1) * 10000 + causal(4)
        return attend(q, k, v, bias)

    def multi_head(q, k, v, b, mask, bias):
        q, k, v = (heads_first(x + y, 2) for x, y in zip((q, k, v), b.chunk(3)))
        return attend(q, k, v, bias)

    ms("attention", "Attention", lambda rng: (
        {"x": normal(rng, 2, 4, 6), "w": normal(rng, 6, 24), "b": normal(rng, 24),
         "mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32)}, attention),
       num_heads=2, unidirectional=1)
    ms("attention_counts", "Attention", lambda rng: (
        {"x": normal(rng, 2, 4, 6), "w": normal(rng, 6, 24), "b": normal(rng, 24),
         "mask": np.array([4, 3], np.int32)},
        lambda x, w, b, count: attention(x, w, b, torch.arange(4) < count[:, None])),
       num_heads=2, unidirectional=1)
    ms("multi_head_attention", "MultiHeadAttention", lambda rng: (
        {"q": normal(rng, 2, 3, 8), "k": normal(rng, 2, 5, 8), "v": normal(rng, 2, 5, 8),
         "b": normal(rng, 24), "mask": None, "bias": normal(rng, 1, 2, 3, 5)}, multi_head),
       num_heads=2)


def register_rotary():
    def rotary(name, shape, positions, interleaved, half=2, **attributes):
        def reference(x, at, cosine, sine):
            at = at.reshape(-1, 1) + torch.arange(3) if at.numel() == 1 else at
            cosine, sine = cosine[at][:, None], sine[at][:, None]
            y = turn(x if x.dim() == 4 else heads_first(x, 2), cosine, sine, interleaved)
            return y if x.dim() == 4 else y.transpose(1, 2).flatten(2)

        ms(f"rotary_{name}", "RotaryEmbedding", lambda rng: (
            {"x": normal(rng, *shape), "at": np.array(positions),
             "cosine": normal(rng, 6, half), "sine": normal(rng, 6, half)}, reference),
           interleaved=interleaved, **attributes)

    rotary("offset", (2, 3, 8), [2], 0)
    rotary("interleaved", (2, 2, 3, 4), [[0, 1, 2], [3, 1, 0]], 1)
    rotary("partial", (2, 3, 12), [[0, 1, 2], [1, 2, 3]], 0, num_heads=2, rotary_embedding_dim=4)


def register_grouped():
    def grouped(name, packed=False, rotate=None, cap=0, window=None, bias=False, **attributes):
        batch, length, heads, shared, size = 1, 4, 4, 2, 16

        def make(rng):
            q, kv = normal(rng, batch, length, heads * size), (batch, length, shared * size)
            inputs = {"q": q, "k": normal(rng, *kv), "v": normal(rng, *kv)}
            if packed:
                inputs = {"q": np.concatenate(list(inputs.values()), 2), "k": None, "v": None}
            inputs.update({"past_k": None, "past_v": None,
                           "last": np.full(batch, length - 1, np.int32),
                           "length": Const(length, np.int32)})
            if rotate is not None or bias:
                inputs.update({"cosine": normal(rng, 8, 8) if rotate is not None else None,
                               "sine": normal(rng, 8, 8) if rotate is not None else None})
            if bias:
                inputs.update({"at": None, "bias": normal(rng, 1, heads, length, length)})
            return inputs, reference

        def reference(q, k, v, *rest):
            if packed:
                q, k, v = q.split((heads * size, shared * size, shared * size), 2)
            q, k, v = heads_first(q, heads), heads_first(k, shared), heads_first(v, shared)
            if rotate is not None:
                tables = rest[4][:length], rest[5][:length]
                q, k = turn(q, *tables, rotate), turn(k, *tables, rotate)
            mask = causal(length, window=window) + (rest[7] if bias else 0)
            return attend(q, k, v, mask, cap), k, v

        ms(f"grouped_{name}", "GroupQueryAttention", make, num_heads=heads, kv_num_heads=shared,
           **attributes)

    grouped("plain")
    grouped("packed_rotary", packed=True, rotate=0, do_rotary=1)
    grouped("interleaved", rotate=1, do_rotary=1, rotary_interleaved=1)
    grouped("capped_window", cap=1.5, window=2, softcap=1.5, local_window_size=2)
    grouped("bias", bias=True, scale=0.0)


def register_moves():
    unary("ms_trilu", "Trilu", lambda rng: normal(rng, 2, 3, 4), torch.tril,
          domain="com.microsoft", upper=0)
    ms("grid_sample", "GridSample", lambda rng: (
        {"x": normal(rng, 1, 2, 3, 4), "grid": between(rng, -1.3, 1.3, 1, 3, 3, 2)},
        lambda x, g: F.grid_sample(x, g, align_corners=True)), align_corners=1, mode="bilinear")


for register in (register_pointwise, register_norms, register_products, register_packed,
                 register_attention, register_rotary, register_grouped, register_moves):
    register()
