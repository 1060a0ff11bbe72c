#!/usr/bin/env python3
"""Training steps on a GPU, ckc beside PyTorch: networks of step_bench.py at sizes for a GPU, bf16 and AdamW.

    gpu_bench.py export FOLDER [--rows NAME,...]    # ROW.onnx without matrices, which --init draws; needs no GPU
    gpu_bench.py run FOLDER [--rows NAME,...] [--modes eager,compile] [--ckc PROGRAM] [--precision bf16] [--steps N]
                            [--json FILE]

Every row runs eager and compiled by PyTorch (autocast, fused AdamW, images channels-last) and by ckc: medians of ms per
step, and bytes (max_memory_allocated; the arena).  ckc chooses algorithms and measures with nothing beside it; PyTorch
compiles side by side, and is timed row by row.  In f32 neither side rounds to TF32, in tf32 both do."""
import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench_models as models  # noqa: E402
import torch  # noqa: E402

COMPILING = 4  # number of processes that compile at a time


def sized(name, *shape):
    """The row with another batch or another shape of its input, and a target to match."""
    row = models.ROWS[name]
    size = shape[0] if len(shape) == 1 else shape
    inputs = (size, *row.inputs[1:]) if len(shape) == 1 else size
    rest = row.target[1:] if len(row.inputs) == 4 else inputs[1:len(row.target)]
    return dataclasses.replace(row, inputs=inputs, target=(inputs[0], *rest))


ROWS = {
    "mlp-8192": sized("mlp-128", 8192),
    "gpt2-16x1024": sized("gpt2-1x512", 16, 1024),
    "llama-32x1024": sized("llama-4x256", 32, 1024),
    "bert-64x512": sized("bert-8x128", 64, 512),
    "resnet18-256": sized("resnet18-16", 256),
    "resnet50-256": sized("resnet50-8", 256),
    "mobilenetv2-256": sized("mobilenetv2-16", 256),
    "convnext-t-128": sized("convnext-t-4", 128),
    "vit-s-256": sized("vit-s-8", 256),
    "unet-64": sized("unet-4", 64),
    "lstm-128x128": sized("lstm-16x64", 128, 128),
}


# ---- models, made where there is no GPU

def export(rows, folder):
    import onnx
    os.makedirs(folder, exist_ok=True)
    for name in rows:
        row = ROWS[name]
        small = dataclasses.replace(row, inputs=(2, *row.inputs[1:]), target=(2, *row.target[1:]))
        net, x, _ = models.make(small)
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "model.onnx")
            batch = {0: torch.export.Dim.DYNAMIC}
            torch.onnx.export(net, (x,), path, dynamo=True, optimize=False, input_names=["x"], dynamic_shapes=[batch],
                              training=torch.onnx.TrainingMode.TRAINING, verbose=False, external_data=False)
            model = onnx.load(path)
        graph = model.graph
        for t in [t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1]:
            graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
            graph.initializer.remove(t)
        onnx.save(model, os.path.join(folder, name + ".onnx"))


# ---- PyTorch, a process per row

def tensors(step):
    """What stays on the GPU between its steps."""
    states = [t for state in step.optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.is_cuda]
    return [*step.net.parameters(), *step.net.buffers(), step.x, step.target, *states]


def clear(step):
    step.optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()


def serve(name, precision, modes, steps):
    """Warms the modes up, prints "ready", and times them once a line comes in."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
    kind = "-bf16" if precision == "bf16" else ""
    made = {mode: models.Step(ROWS[name], mode + kind, "cuda") for mode in modes}
    result = {}
    for mode, step in made.items():
        try:
            for _ in range(3):
                step()
        except Exception as e:  # such as out of memory, even if only beside other processes
            result[mode] = {"error": repr(e)[:200]}
        clear(step)
    print("ready", flush=True)
    sys.stdin.readline()
    for mode, step in made.items():
        if mode in result:
            continue
        torch.cuda.reset_peak_memory_stats()
        others = sum(t.nbytes for s in made.values() if s is not step for t in tensors(s))
        ms = models.measure(step, steps)["ms"]
        result[mode] = {"ms": ms, "bytes": torch.cuda.max_memory_allocated() - others}
        clear(step)
    print(json.dumps(result), flush=True)


# ---- ckc

def ckc(program, path, name, precision, steps):
    with tempfile.TemporaryDirectory() as out:
        command = [program, path, "--device", "cuda", "--init", "normal:0.02", "--precision", precision, "--bind",
                   f"batch={ROWS[name].inputs[0]}", "--steps", str(steps), "--profile", "--quiet", "--output", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip()[:300]}
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    kernels = {}
    for step in report["profile"]:
        kernels[step["kernel"]] = kernels.get(step["kernel"], 0) + step["measured_ms"]
    slowest = sorted(kernels.items(), key=lambda item: -item[1])[:16]
    return {"ms": report["measured_ms"], "bytes": report["arena_bytes"], "predicted_ms": report["predicted_ms"],
            "kernels": {kernel: round(ms, 3) for kernel, ms in slowest}}


def run(args, rows):
    me = [sys.executable, os.path.abspath(__file__), "serve", args.precision, "--steps", str(args.steps),
          "--modes", args.modes, "--rows"]
    servers, waiting = {}, list(rows)
    ready = set()

    def start():
        while waiting and len(servers) - len(ready) < COMPILING:
            name = waiting.pop(0)
            servers[name] = subprocess.Popen([*me, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             stderr=subprocess.DEVNULL, text=True)

    results = {}
    for name in rows:
        model = os.path.join(args.folder, name + ".onnx")
        results[name] = {"ckc": ckc(args.ckc, model, name, args.precision, args.steps)}
        save(args, results)
    start()
    for name in rows:
        servers[name].stdout.readline()
        ready.add(name)
        start()
    for name, result in results.items():
        answer, _ = servers[name].communicate("go\n")
        result.update(json.loads(answer or "{}"))
        show(name, result)
        save(args, results)


def save(args, results):
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "precision": args.precision, "rows": results}, f, indent=1)


def show(name, result):
    cell = [f"{r['ms']:9.2f} ms {r['bytes'] / 1e9:6.2f} GB" if "ms" in r else r.get("error", "none")[:60]
            for r in (result.get(side, {}) for side in ("ckc", "compile", "eager"))]
    print(f"{name:16} ckc {cell[0]}   compile {cell[1]}   eager {cell[2]}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=["export", "run", "serve"])
    p.add_argument("folder")  # serve: the precision
    p.add_argument("--rows", default=",".join(ROWS))
    p.add_argument("--modes", default="eager,compile")
    p.add_argument("--ckc", default=os.path.join(HERE, "..", "..", "build", "release", "ckc"))
    p.add_argument("--precision", default="bf16", choices=["f32", "tf32", "bf16"])
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--json")
    args = p.parse_args()
    rows = args.rows.split(",")
    if args.what == "export":
        export(rows, args.folder)
    elif args.what == "serve":
        serve(rows[0], args.folder, args.modes.split(","), args.steps)
    else:
        run(args, rows)


if __name__ == "__main__":
    main()
