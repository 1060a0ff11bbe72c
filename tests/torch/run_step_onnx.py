"""Runs step.onnx, what `ckc MODEL --emit onnx` wrote, with onnxruntime for several steps, feeding what a step
makes of the weights back, and compares losses and weights with those of `ckc` itself.

    run_step_onnx.py CKC MODEL.onnx [--data FILE.npz] [--seed 0] [--steps 3] [--tolerance 1e-5] -- [ckc's options]

Recomputed nodes equal earlier ones on purpose, so onnxruntime must not merge equal nodes: its graph
optimizations are off (ORT_DISABLE_ALL)."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    options.log_severity_level = 3  # no warnings that weights are inputs
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def batch_of(data, name, shape, step):
    """The rows of the step's batch, as ckc chooses them."""
    rows = data[name] if name in data.files else data["input/" + name]
    n = shape[0]
    batches = max(1, rows.shape[0] // n)
    at = step % batches * n
    return rows[at:at + n]


def random_data(path, steps, file, seed):
    """Writes random rows for every input that is neither a state nor a scalar of the loop."""
    model = onnx.load(path, load_external_data=False)
    outputs = {o.name for o in model.graph.output}
    rng = np.random.default_rng(seed)
    arrays = {}
    for i in model.graph.input:
        t = i.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        if i.name + ".next" in outputs or i.name in ("lr", "step", "rng"):
            continue
        rows = [shape[0] * steps] + shape[1:]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        arrays[i.name] = (rng.standard_normal(rows) if dtype.kind == "f" else
                          rng.integers(0, 2, rows)).astype(dtype)
    np.savez(file, **arrays)


def train(folder, data, steps, lr):
    run = session(folder / "step.onnx")
    names = [o.name for o in run.get_outputs()]
    state, losses = {}, []
    for step in range(steps):
        feed = dict(state)
        for i in run.get_inputs():
            if i.name == "lr":
                feed["lr"] = np.array(lr, np.float64)
            elif i.name == "step":
                feed["step"] = np.array(step + 1, np.int64)
            elif i.name == "rng":
                feed["rng"] = np.array([1, step + 1], np.int64)  # --seed, batch
            else:
                feed[i.name] = batch_of(data, i.name, i.shape, step)
        result = dict(zip(names, run.run(None, feed)))
        losses.append(float(result["loss"]))
        state = {n[:-len(".next")]: v for n, v in result.items() if n.endswith(".next")}
    return losses, state


def ckc(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main():
    p = argparse.ArgumentParser()
    p.add_argument("ckc")
    p.add_argument("model")
    p.add_argument("--data")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--seed", type=int, default=0, help="of the data, where none is given")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--tolerance", type=float, default=1e-5)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a = p.parse_args(sys.argv[1:at])
    a.options = sys.argv[at + 1:]
    with tempfile.TemporaryDirectory() as temp:
        temp = pathlib.Path(temp)
        options = [*a.options, "--device", "cpu", "--emit", "onnx", "-o", str(temp / "out"), "--lr", str(a.lr)]
        if not a.data:
            a.data = str(temp / "data.npz")
            ckc(a.ckc, a.model, *options, "--steps", "0", "--quiet")
            random_data(temp / "out/step.onnx", a.steps, a.data, a.seed)
        saved = temp / "saved.safetensors"
        report = json.loads(ckc(a.ckc, a.model, *options, "--data", a.data, "--steps", str(a.steps), "--save",
                                str(saved), "--json"))
        losses, state = train(temp / "out", np.load(a.data), a.steps, a.lr)
        nodes = onnx.load(temp / "out/step.onnx", load_external_data=False).graph.node
        again = sum(n.name.startswith("re/") and bool(n.metadata_props) for n in nodes)
        from safetensors.numpy import load_file
        weights = load_file(saved)
    common = [n for n in weights if n in state]
    loss_error = max(abs(x - y) / max(1, abs(y)) for x, y in zip(losses, report["losses"]))
    error, worst = max((float(np.max(np.abs(state[n] - weights[n]), initial=0)), n) for n in common)
    ok = loss_error <= a.tolerance and error <= a.tolerance
    print(f"{'ok  ' if ok else 'FAIL'} {a.model} {' '.join(a.options)}: {len(nodes)} nodes, {again} operators again, "
          f"loss {losses[0]:.6f} -> {losses[-1]:.6f} within {loss_error:.1e}, {len(common)} weights within "
          f"{error:.1e} ({worst})")
    sys.exit(not ok)


main()
