#!/usr/bin/env python3
"""remat_bench.py -- the solver against every published number.

usage: remat_bench.py CKC [--shared DIR] [--time 10] [--only NAME] [--seed 1]

Runs `ckc solve` on each instance of DIR/bench/remat at each budget of TABLE, with one thread,
lets check.py of the same folder judge the schedule, and prints cost and bound over the base cost, the gap in points, and
the seconds until each published cost increase was matched ('-' = not matched, '.' = nothing published).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

# instance: {budget %: (Checkmate MILP, MOCCASIN, FastSA, best seen)}, in % of the base cost; None = nothing
# published, a timeout, or a schedule that broke the budget.
TABLE = {
    "rl1": {90: (0.8, 0.8, 0, 0), 80: (2.3, 2.3, 0.3, 0), 70: (None, None, 2.2, 2.144),
            60: (None, None, None, None)},
    "rl2": {90: (0.9, 0.9, 0, 0), 80: (None, 4.9, 0, 0), 70: (None, None, 2.6, 1.76),
            60: (None, None, None, None)},
    "rl3": {90: (None, 0.7, 0.03, 0), 80: (None, 3.4, 2.3, 1.26), 70: (None, None, None, 4.40),
            60: (None, None, None, None)},
    "fcn8": {90: (0, 0, 0.1, 0.03), 80: (0.1, 0.1, 0.1, 0.14), 70: (None, None, 3.0, None),
             60: (None, None, None, None)},
    "mobilenet": {90: (None, None, None, 0.163), 80: (None, None, None, 0.370),
                  70: (None, None, None, 0.626), 60: (None, None, None, 1.067),
                  50: (None, None, None, 1.635)},
    "vgg19": {90: (None, None, None, 0.104), 80: (None, None, None, 2.772)},
}
NAMES = ("Checkmate", "MOCCASIN", "FastSA", "best seen")


def half_unit(x):
    """Half a unit of the last digit of a published number: by so much it may be rounded."""
    text = repr(x)
    return 0.5 * 10 ** -(len(text) - text.find(".") - 1) if "." in text else 0.05


def matched_at(history, base, published):
    if published is None:
        return "."
    for point in history:
        if 100 * (point["cost"] / base - 1) <= published + half_unit(published):
            return "%.2f" % point["seconds"]
    return "-"


def judge(check, instance, schedule, budget):
    if not os.path.exists(schedule):
        return "none"
    run = subprocess.run([sys.executable, check, instance, schedule, budget],
                         capture_output=True, text=True, check=False)
    return "OK" if run.returncode == 0 else run.stdout.strip()


def run_row(args, folder, name, percent, published):
    instance = os.path.join(folder, name + ".dag")
    budget = "%g%%" % percent
    with tempfile.TemporaryDirectory() as tmp:
        schedule = os.path.join(tmp, "schedule")
        run = subprocess.run([args.ckc, "solve", instance, "--budget", budget, "--time", str(args.time),
                              "--seed", str(args.seed), "--json", "-o", schedule],
                             capture_output=True, text=True, check=False)
        if run.returncode not in (0, 3):
            sys.exit(run.stderr)
        result = json.loads(run.stdout)
        verdict = judge(os.path.join(folder, "check.py"), instance, schedule, budget)
    if not result["feasible"]:
        why = "infeasible" if result["proved_infeasible"] else "none found"
        peak = result["peak_of_input_order"] / 100
        print("%-10s %3d  %-10s least peak %.3f %%, none below %.3f %%" %
              (name, percent, why, result["min_budget"] / peak, result["min_budget_bound"] / peak))
        return
    base = result["base_cost"]
    bound = 100 * (result["bound"] / base - 1)
    times = "  ".join("%9s" % matched_at(result["history"], base, x) for x in published)
    best = min((x for x in published if x is not None), default=None)
    ahead = best is None or result["increase_percent"] <= best + half_unit(best)
    print("%-10s %3d  %9.4f  %9.4f  %7.4f  %-4s %s  %s%s" %
          (name, percent, result["increase_percent"], bound, result["increase_percent"] - bound,
           verdict, times, "" if best is None else "best %.3f" % best, "" if ahead else "  BEHIND"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ckc")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--shared", default=os.environ.get("CKC_SHARED", os.path.join(here, "../../../shared")))
    parser.add_argument("--time", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    args = parser.parse_args()
    folder = os.path.join(args.shared, "bench/remat")
    if not os.path.isdir(folder):
        print("skipped: no " + folder)
        return
    print("%-10s %3s  %9s  %9s  %7s  %-4s %s" % ("instance", "%", "cost +%", "bound +%", "gap", "ref",
                                               "  ".join("%9s" % n for n in NAMES)))
    for name, rows in TABLE.items():
        for percent, published in rows.items():
            if not args.only or args.only == name:
                run_row(args, folder, name, percent, published)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
