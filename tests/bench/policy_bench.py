#!/usr/bin/env python3
"""policy_bench.py -- ckc's plans against every named policy, on real models.

usage: policy_bench.py CKC [--budgets 80,60,50] [--steps 3] [--time 10] [--ckc-options "..."] MODEL.onnx[:BINDINGS] ...

For each model and budget (a share of the arena without recomputation) ckc's own plan, then each policy of
`ckc --policy`: predicted and measured time over the step without recomputation, in percent, and the arena in MB
('-' = the policy cannot meet the budget). Steps run here, on this CPU; the step without recomputation runs before and after each
model's rows, and the mean of the two medians counts. --steps 0 only predicts.
"""
import argparse
import json
import subprocess
import tempfile

POLICIES = ("recompute-all", "every-2", "every-4", "chen-sqrt", "chen-greedy", "selective", "dtr", "knapsack")


def plan(args, model, budget=None, policy=None):
    """The report, or None where the budget is not met."""
    path, _, bind = model.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        command = [args.ckc, path, "--json", "--init", "normal", "--steps", str(args.steps),
                   "--time", str(args.time), "--output", folder + "/plan.ckc", *args.options.split()]
        command += ["--bind", bind] if bind else []
        command += ["--budget", f"{budget}%"] if budget else []
        command += ["--policy", policy] if policy else []
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 3:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def cell(report, base_ms):
    if report is None:
        return f"{'-':>24}"
    measured = report["measured_ms"]
    over = f"{100 * (measured / base_ms - 1):+7.1f}" if measured and base_ms else f"{'':7}"
    return f"{100 * report['overhead']:+7.1f} {over} {report['arena_bytes'] / 1e6:8.0f}"


def bench(args, model):
    before = plan(args, model)
    rows = {"ckc": [plan(args, model, b) for b in args.budgets]}
    for policy in POLICIES:
        rows[policy] = [plan(args, model, b, policy) for b in args.budgets]
    after = plan(args, model)
    base = (before["measured_ms"] + after["measured_ms"]) / 2 if args.steps else None
    print(f"\n{model}: {before['keep_all_bytes'] / 1e6:.0f} MB without recomputation, predicted "
          f"{before['predicted_ms']:.0f} ms" + (f", measured {base:.0f} ms" if base else ""))
    print(f"{'':15}" + "".join(f"{f'{b} %: predicted, measured, MB':>26}" for b in args.budgets))
    for name, reports in rows.items():
        print(f"{name:15}" + "  ".join(cell(r, base) for r in reports))
    bounds = [100 * r["lower_bound"] if r else None for r in rows["ckc"]]
    print(f"{'lower bound':15}" + "  ".join(f"{'-':>24}" if b is None else f"{b:+7.1f}{'':17}" for b in bounds),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ckc")
    parser.add_argument("--budgets", type=lambda s: [int(b) for b in s.split(",")], default=[80, 60, 50])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--time", type=float, default=10)
    parser.add_argument("--ckc-options", dest="options", default="")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    for model in args.models:
        bench(args, model)


if __name__ == "__main__":
    main()
