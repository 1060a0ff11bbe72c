#!/usr/bin/env python3
"""Keras models through PyTorch's exporter and ckc: loss and gradients beside Keras's own.

    keras_gradients.py [--ckc build/release/ckc] [MODEL ...]

Keras 3 on PyTorch (KERAS_BACKEND=torch); a model is exported as docs/export.md says, with values around which nothing
is zero or equal, and each gradient is found by its weight's values: the exporter leaves no names.  Prints the losses
and the error of all gradients over their norm; status 1 where it is more than 1e-4.  Development only."""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import onnx
import torch
from keras import layers as L
from onnx import numpy_helper

BATCH = 4


def cnn():
    return keras.Sequential([
        L.Input((32, 32, 3)), L.Conv2D(16, 3, padding="same"), L.BatchNormalization(), L.ReLU(), L.MaxPooling2D(),
        L.SeparableConv2D(32, 3, strides=2, padding="same"), L.BatchNormalization(), L.Activation("swish"),
        L.GlobalAveragePooling2D(), L.Dense(10)])


def unet():
    x = L.Input((32, 32, 1))
    a = L.Conv2D(8, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(16, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    c = L.Concatenate()([a, L.Conv2DTranspose(8, 2, strides=2)(b)])
    c = L.Conv2D(8, 3, padding="same", activation="relu")(c)
    return keras.Model(x, L.Conv2D(1, 1)(c))


def words(*body):
    return keras.Sequential([L.Input((12,), dtype="int32"), L.Embedding(50, 24), *body])


def transformer():
    i = L.Input((16,), dtype="int32")
    x = L.Embedding(50, 32)(i)
    for _ in range(2):
        h = L.LayerNormalization()(x)
        x = L.Add()([x, L.MultiHeadAttention(4, 8)(h, h, use_causal_mask=True)])
        h = L.Dense(64, activation="gelu")(L.LayerNormalization()(x))
        x = L.Add()([x, L.Dense(32)(h)])
    return keras.Model(i, L.Dense(50)(L.LayerNormalization()(x)))


MODELS = {
    "cnn": cnn,
    "unet": unet,
    "lstm": lambda: words(L.LSTM(32, return_sequences=True), L.Bidirectional(L.LSTM(16)), L.Dense(10)),
    "gru": lambda: words(L.GRU(32, return_sequences=True), L.GRU(16), L.Dense(10)),
    "transformer": transformer,
    "softmax": lambda: keras.Sequential([L.Input((28, 28)), L.Flatten(), L.Dense(64, activation="relu"),
                                         L.Dense(10, activation="softmax")]),
    "sigmoid": lambda: keras.Sequential([L.Input((30,)), L.Dense(64, activation="relu"),
                                         L.Dense(1, activation="sigmoid")]),
}


class Forward(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, training=False)


def export(model, path):
    given = model.inputs[0]
    kind = torch.int32 if "int" in str(given.dtype) else torch.float32
    torch.onnx.export(Forward(model), (torch.zeros((2, *given.shape[1:]), dtype=kind),), path, dynamo=True,
                      optimize=False, external_data=False, verbose=False,
                      dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},))


def loss_of(model, y, target):
    """The loss that ckc takes by itself for such a model."""
    act = getattr(getattr(model.layers[-1], "activation", None), "__name__", "")
    rows, classes = y.reshape(-1, y.shape[-1]), torch.tensor(target.reshape(-1))
    if act == "softmax":
        return torch.nn.functional.nll_loss(torch.log(rows), classes)
    if act == "sigmoid":
        return torch.nn.functional.binary_cross_entropy(rows[:, 0], classes.float())
    if rows.shape[1] == 1:
        return torch.nn.functional.mse_loss(rows[:, 0], classes.float())
    return torch.nn.functional.cross_entropy(rows, classes)


def gradients(ckc, path, folder, x, target):
    np.savez(f"{folder}/data.npz", x=x, target=target)
    run = [ckc, path, "--bind", f"batch={BATCH}", "--data", f"{folder}/data.npz", "--optimizer", "none", "--grads",
           f"{folder}/grads.npz", "--output", f"{folder}/out", "--quiet"]
    subprocess.run(run, check=True)
    return np.load(f"{folder}/grads.npz")


def check(ckc, name, folder):
    rng = np.random.default_rng(3)
    keras.utils.set_random_seed(1)
    model, path = MODELS[name](), f"{folder}/{name}.onnx"
    for v in model.trainable_variables:
        v.assign(v.numpy() + 0.05 * rng.standard_normal(v.shape).astype("float32"))
    export(model, path)
    given = model.inputs[0]
    shape = (BATCH, *given.shape[1:])
    x = (rng.integers(0, 50, shape).astype("int32") if "int" in str(given.dtype)
         else rng.standard_normal(shape).astype("float32"))
    y = model(x, training=True)
    target = rng.integers(0, max(y.shape[-1], 2), tuple(y.shape[:-1]))
    loss = loss_of(model, y, target)
    loss.backward()
    got = gradients(ckc, path, folder, x, target if y.shape[-1] > 1 else target.astype("float32")[..., None])
    weights = {t.name: numpy_helper.to_array(t).reshape(-1) for t in onnx.load(path).graph.initializer}
    error = norm = 0
    for v in model.trainable_variables:
        own = [k for k, w in weights.items() if np.array_equal(w, v.numpy().reshape(-1))]
        want = v.value.grad.numpy().reshape(-1)
        error += ((got[own[0]].reshape(-1) - want) ** 2).sum()
        norm += (want ** 2).sum()
    print(f"{name}: loss {loss.item():.7f}, {len(model.trainable_variables)} gradients, "
          f"error {(error / norm) ** 0.5:.1e} of the norm", flush=True)
    return (error / norm) ** 0.5 < 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ckc", default="build/release/ckc")
    parser.add_argument("model", nargs="*", default=list(MODELS))
    arg = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not all([check(arg.ckc, name, folder) for name in arg.model or MODELS]))


if __name__ == "__main__":
    main()
