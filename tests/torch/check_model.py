#!/usr/bin/env python3
"""Check networks as a user would meet them: export, gradients, budgets, training, every file read back.

    check_model.py [--ckc build/release/ckc] [--variants raw,default,legacy] [--budgets 80,60]
                   [--train] [--device NAME ...] CASES.py [CASE ...]

CASES.py holds functions `case_NAME()`, each of which returns (network, inputs): network(*inputs) is the loss.
Parameters of requires_grad=False are frozen. Per case and variant (raw: dynamo, optimizer off; default: dynamo;
legacy: TorchScript) one line:

    loss, gradients   ckc's distance from PyTorch in double precision, relative to the norm of all gradients,
                      beside that of PyTorch's own single precision; parameters that do not train
    f32 P %, bf16 P % "same" where a step within P % of the memory makes the same bits ("at least": at the
                      budget known, which is more than P %), else what ckc said
    plan              bytes and milliseconds planned for --device, and kernels
    train             4 AdamW steps: weights against double precision; bits at 80 %, of a run that is resumed and of
                      one by the schedule written; the loss of the saved model by ckc eval and onnxruntime
                      against PyTorch's with the saved weights

Exit status 1 if something is wrong by more than ten times PyTorch's own error, or bits differ.
"""
import argparse
import copy
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.numpy import load_file

from oracle import apart, match_initializers, meaningful, perturb, quiet

STEPS = 4
TOLERANCE = 5e-6  # for ckc, or ten times PyTorch's own error


def doubled(net, inputs):
    net = copy.deepcopy(net).double()
    return net, tuple(x.double() if x.is_floating_point() else x for x in inputs)


def gradients(net, inputs):
    net = copy.deepcopy(net)
    loss = net(*inputs)
    loss.backward()
    return loss.item(), {n: torch.zeros_like(p) if p.grad is None else p.grad
                         for n, p in net.named_parameters() if p.requires_grad}


def adamw(net, inputs):
    net = copy.deepcopy(net)
    params = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(*inputs).backward()
        optimizer.step()
    return {n: p.detach() for n, p in net.named_parameters() if p.requires_grad}


def export(net, inputs, path, variant):
    names = [p.name for p in inspect.signature(net.forward).parameters.values()][:len(inputs)]
    net = copy.deepcopy(net)
    with quiet():
        if variant == "legacy":
            torch.onnx.export(net, inputs, path, dynamo=False, opset_version=17, input_names=names,
                              output_names=["loss"], do_constant_folding=False,
                              training=torch.onnx.TrainingMode.TRAINING)
        else:
            torch.onnx.export(net, inputs, path, dynamo=True, optimize=variant == "default", verbose=False,
                              input_names=names, output_names=["loss"])
    np.savez(path.parent / "data.npz", **{n: x.numpy() for n, x in zip(names, inputs)})


class Ckc:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.freeze = []  # an option and its value

    def run(self, *args, model="m.onnx"):
        done = subprocess.run([self.program, *args[:1], model, *args[1:]] if args[0] in ("run", "eval") else
                              [self.program, model, *self.freeze, *args], cwd=self.folder, text=True,
                              capture_output=True)
        return done.returncode, done.stdout, done.stderr

    def arrays(self, *args, file="g.npz", **more):
        """What a run writes, or the first line of its error."""
        path = self.folder / file
        path.unlink(missing_ok=True)
        status, out, err = self.run(*args, **more)
        if status != 0 or not path.exists():
            error = [line for line in err.splitlines() if "error" in line or "budget" in line]
            return None, f"exit {status}: {(error or err.splitlines() or ['?'])[0][:300]}"
        if file.endswith(".npz"):
            with np.load(path) as arrays:
                return {n: arrays[n] for n in arrays.files}, out
        return load_file(path), out

    def within(self, percent, *args, **more):
        """What a run within a part of the memory writes, or else one within the least budget that is known."""
        got, said = self.arrays(*args, "--budget", f"{percent}%", **more)
        least = re.search(r"known to be feasible is (\d+) bytes", said)
        if got is None and least:
            return *self.arrays(*args, "--budget", f"{least[1]}B", **more), " at least"
        return got, said, ""


def same(a, b):
    return a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() for n in a)


def distance(got, want):
    """Of two dictionaries of tensors, relative to the norm of `want`, and the tensor that is furthest."""
    error = {n: float(((torch.as_tensor(got[n]).double() - w.double()) ** 2).sum()) for n, w in want.items()}
    norm = sum(float((w.double() ** 2).sum()) for w in want.values()) ** 0.5
    worst = max(error, key=error.get)
    return sum(error.values()) ** 0.5 / max(norm, 1e-30), worst


def stored_as(arrays, match):
    """Tensors under parameters' names: as modules hold them, or the file, in the same shape or transposed."""
    found = {}
    for name, (held, word, _) in match.items():
        if name in arrays:
            found[name] = torch.from_numpy(arrays[name])
        elif held in arrays and word in ("same", "transposed", "reshaped"):
            found[name] = torch.from_numpy(arrays[held].T.copy() if word == "transposed" else arrays[held])
    return found


def check_gradients(ckc, net, inputs, match, budgets):
    loss, want = gradients(*doubled(net, inputs))
    _, own = gradients(net, inputs)
    own = distance(own, want)[0]
    base = ["--data", "data.npz", "--optimizer", "none", "--grads", "g.npz"]
    got, out = ckc.arrays(*base)
    if got is None:
        return [out], False
    said = float(got["loss"])
    found = stored_as(got, match)
    found = {n: g.reshape(want[n].shape) for n, g in found.items() if n in want}
    missing = [n for n in want if n not in found and want[n].norm() > 0]
    error, worst = distance(found, {n: want[n] for n in found}) if found else (0, "-")
    good = error <= max(TOLERANCE, 10 * own) and abs(said - loss) < 2e-5 * (1 + abs(loss))
    words = [f"loss {said:.6g} ({loss:.6g}), gradients {error:.1e} ({own:.1e})"]
    if not good:
        words.append(f"WRONG, worst {worst}")
    if missing:
        words.append(f"{len(missing)} not found: {' '.join(missing[:3])}")
    for precision in ("f32", "bf16"):
        whole = got if precision == "f32" else ckc.arrays(*base, "--precision", precision)[0]
        for percent in budgets:
            less, said, least = ckc.within(percent, *base, "--precision", precision)
            equal = less is not None and whole is not None and same(whole, less)
            good &= equal
            words.append(f"{precision} {percent} % {'same' if equal else said if less is None else 'OTHER BITS'}"
                         + least)
    return words, good


def check_plan(ckc, device):
    status, out, err = ckc.run("--device", device, "--steps", "0")
    if status != 0:
        return f"{device}: exit {status}: {err.splitlines()[0] if err else '?'}"
    lines = [line for line in out.splitlines() if line.startswith(("memory", "time", "recomputed"))]
    return f"{device}: " + " ".join(" ".join(lines).split())


def check_training(ckc, net, inputs, match):
    grads = gradients(*doubled(net, inputs))[1]
    want = meaningful(adamw(*doubled(net, inputs)), grads)
    own = distance(meaningful(adamw(net, inputs), grads), want)[0]
    steps = ["--data", "data.npz", "--steps", str(STEPS)]
    got, out = ckc.arrays(*steps, "--save", "w.safetensors", file="w.safetensors")
    if got is None:
        return ["train " + out], False
    found = {n: w.reshape(grads[n].shape) for n, w in stored_as(got, match).items() if n in grads}
    known = meaningful(found, grads)
    error, worst = distance(known, {n: want[n] for n in known})
    words, good = [f"train {error:.1e} ({own:.1e})"], error <= max(TOLERANCE, 10 * own)
    if not good:
        words.append(f"WRONG, worst {worst}")

    def equal(word, arrays, said):
        nonlocal good
        fits = arrays is not None and same(arrays, got)
        good &= fits
        words.append(f"{word} {'same' if fits else said if arrays is None else 'OTHER BITS'}")

    less, said, _ = ckc.within(80, *steps, "-o", "out", "--save", "v.safetensors", file="v.safetensors")
    equal("80 %", less, said)
    subprocess.run(["rm", "-rf", ckc.folder / "ck"])
    ckc.run("--data", "data.npz", "--steps", "2", "--checkpoint", "ck", "--every", "1")
    equal("resumed", *ckc.arrays(*steps, "--checkpoint", "ck", "--resume", "--save", "v.safetensors",
                                 file="v.safetensors"))
    equal("schedule", *ckc.arrays("run", *steps, "--save", "v.safetensors", model="out/step.ckp",
                                  file="v.safetensors"))
    ckc.run(*steps, "--save", "t.onnx")
    fresh = copy.deepcopy(net).eval()
    with torch.no_grad():
        for n, p in fresh.state_dict().items():
            if n in found or n in got:
                p.copy_(found[n] if n in found else torch.from_numpy(got[n]).reshape(p.shape))
        loss = fresh(*inputs).item()
    status, out, err = ckc.run("eval", "--data", "data.npz", model="t.onnx")
    words.append("eval " + (" ".join(out.split())[-40:] if status == 0 else err[:100]) + f" ({loss:.6g})")
    try:
        session = onnxruntime.InferenceSession(str(ckc.folder / "t.onnx"),
                                               providers=["CPUExecutionProvider"])
        feed = dict(np.load(ckc.folder / "data.npz"))
        theirs = session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})[0]
        words.append(f"onnxruntime {abs(float(theirs) - loss) / (1 + abs(loss)):.1e}")
    except Exception as e:
        words.append(f"onnxruntime: {str(e)[:80]}")
    return words, good


def check(ckc, net, inputs, variant, args):
    match = match_initializers(str(ckc.folder / "m.onnx"), net)[0]
    frozen = {match[n][0] for n, p in net.named_parameters() if not p.requires_grad}
    frozen -= {match[n][0] for n, p in net.named_parameters() if p.requires_grad} | {None}
    if frozen:
        ckc.freeze = ["--freeze", ",".join(sorted(frozen))]
    words, good = check_gradients(ckc, net, inputs, match, args.budgets)
    words += [check_plan(ckc, d) for d in args.device]
    if args.train:
        more, fine = check_training(ckc, net, inputs, match)
        words, good = words + more, good and fine
    return words, good


def check_case(name, make, args):
    for variant in args.variants:
        with tempfile.TemporaryDirectory(prefix="check_") as folder:
            if args.keep:
                folder = args.keep / f"{name}_{variant}"
                folder.mkdir(parents=True, exist_ok=True)
            folder = pathlib.Path(folder)
            torch.manual_seed(0)
            net, inputs = make()
            net.train()
            perturb(net)
            try:
                export(net, inputs, folder / "m.onnx", variant)
            except Exception as e:  # the exporters raise whatever their stages raise
                print(f"{name} {variant}: not exported: {' '.join(str(e).split())[:120]}", flush=True)
                continue
            words, good = check(Ckc(args.ckc, folder), net, inputs, variant, args)
            print(f"{'     ' if good else 'WRONG'} {name} {variant}: {'; '.join(words)}", flush=True)
            if not good:
                args.wrong.touch()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--ckc", default=str(root / "build/release/ckc"))
    parser.add_argument("--variants", default="raw", type=lambda s: s.split(","))
    parser.add_argument("--budgets", default=[80, 60], type=lambda s: [int(p) for p in s.split(",") if p])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--keep", type=pathlib.Path, help="folder to leave the exports in")
    parser.add_argument("file")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("cases", args.file)
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    chosen = args.case or [n[5:] for n in vars(cases) if n.startswith("case_")]
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        args.wrong = pathlib.Path(folder) / "wrong"
        for name in chosen:
            killed = apart(check_case, name, getattr(cases, f"case_{name}"), args)
            if killed:
                print(f"{name}: {killed}")
        sys.exit(args.wrong.exists())


if __name__ == "__main__":
    main()
