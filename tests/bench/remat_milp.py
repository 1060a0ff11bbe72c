#!/usr/bin/env python3
"""remat_milp.py -- the solver against exact mixed-integer programs on small random graphs.

usage: remat_milp.py CKC [--graphs 30] [--nodes 12:20] [--time 60] [--moves 300000]

For random DAGs and a budget between the least one known and the input order's peak, the optimum of Checkmate's
model (Jain et al. 2020; first runs in input order, before each of them any operators run again, memory counted between all
runs) by HiGHS, against `ckc solve`:
  free   the order is free: our cost must not be above the optimum of the fixed order
  fixed  every operator reads a token of no bytes of the one before, so that the order of first runs is fixed: the costs must
         be equal, or ours lower (a stage of ours may run an operator twice)
Needs scipy >= 1.9 (pip install scipy); no part of the test suite, because it takes minutes.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix


def random_dag(r, n):
    """Operators (cost, bytes, inputs): a chain with skips, or layers."""
    ops = []
    for i in range(n):
        inputs = {i - 1} if i and r.random() < 0.7 else set()
        for j in range(i):
            if r.random() < 1.6 / n:
                inputs.add(j)
        ops.append((r.randint(1, 20), r.randint(1, 20), sorted(inputs)))
    return ops


class Program:
    def __init__(self):
        self.cost, self.upper, self.integral = [], [], []
        self.row, self.col, self.val, self.low, self.high = [], [], [], [], []

    def column(self, cost, integral):
        self.cost.append(cost)
        self.integral.append(integral)
        return len(self.cost) - 1

    def at_least(self, terms, low):
        self.add(terms, low, numpy.inf)

    def add(self, terms, low, high):
        for column, value in terms:
            self.row.append(len(self.low))
            self.col.append(column)
            self.val.append(value)
        self.low.append(low)
        self.high.append(high)

    def solve(self, seconds):
        rows = coo_matrix((self.val, (self.row, self.col)), (len(self.low), len(self.cost)))
        return milp(numpy.array(self.cost), integrality=numpy.array(self.integral), bounds=Bounds(0, 1),
                    constraints=LinearConstraint(rows.tocsr(), self.low, self.high),
                    options={"time_limit": seconds, "mip_rel_gap": 1e-9})


def checkmate(ops, budget, seconds):
    """Least cost with first runs in input order; None = infeasible; raises TimeoutError."""
    n = len(ops)
    p = Program()
    runs = {(t, i): p.column(ops[i][0], 1) for t in range(n) for i in range(t + 1)}
    keep = {(t, i): p.column(0, 1) for t in range(1, n) for i in range(t)}
    readers = [[j for j in range(n) if i in ops[j][2]] for i in range(n)]
    for t in range(n):
        p.at_least([(runs[t, t], 1)], 1)
        for i in range(t + 1):
            for u in ops[i][2]:
                kept = [(keep[t, u], 1)] if u < t else []
                p.at_least(kept + [(runs[t, u], 1), (runs[t, i], -1)], 0)
            if t and i < t:
                before = [(keep[t - 1, i], 1)] if i < t - 1 else []
                p.at_least(before + [(runs[t - 1, i], 1), (keep[t, i], -1)], 0)
        for k in range(t + 1):
            present = []
            for i in range(t + 1):
                x = p.column(0, 0)
                present.append((x, ops[i][1]))
                if i == k:
                    p.at_least([(x, 1), (runs[t, k], -1)], 0)
                if i > k:
                    if i < t:
                        p.at_least([(x, 1), (keep[t, i], -1)], 0)
                    continue
                if t + 1 < n:
                    p.at_least([(x, 1), (keep[t + 1, i], -1)], 0)
                for j in readers[i]:
                    if k <= j <= t:
                        p.at_least([(x, 1), (runs[t, j], -1)], 0)
            p.add(present, -numpy.inf, budget)
    result = p.solve(seconds)
    if result.status == 2:
        return None
    if result.status != 0:
        raise TimeoutError
    return round(result.fun)


def write(ops, path, fixed):
    with open(path, "w", encoding="ascii") as f:
        for i, (cost, size, inputs) in enumerate(ops):
            token = [f"{i - 1}.1"] if fixed and i else []
            print(i, cost, size, *inputs, *token, "; out=0" if fixed else "", file=f)


def ours(args, ops, budget, fixed):
    with tempfile.NamedTemporaryFile(suffix=".dag") as f:
        write(ops, f.name, fixed)
        run = subprocess.run([args.ckc, "solve", f.name, "--budget", str(budget), "--moves", str(args.moves),
                              "--json"], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 3):
        sys.exit(run.stderr)
    result = json.loads(run.stdout)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ckc")
    parser.add_argument("--graphs", type=int, default=30)
    parser.add_argument("--nodes", default="12:20")
    parser.add_argument("--time", type=float, default=60)
    parser.add_argument("--moves", type=int, default=300000)
    args = parser.parse_args()
    least, most = (int(x) for x in args.nodes.split(":"))
    r = random.Random(1)
    count = {"equal": 0, "lower": 0, "HIGHER": 0, "timeout": 0}
    free = {"equal": 0, "lower": 0, "HIGHER": 0}
    for _ in range(args.graphs):
        n = r.randint(least, most)
        ops = random_dag(r, n)
        probe = ours(args, ops, 1, True)
        low, peak = probe["min_budget"], probe["peak_of_input_order"]
        budget = low + (peak - low) // r.randint(2, 5)
        fixed, loose = ours(args, ops, budget, True), ours(args, ops, budget, False)
        try:
            exact = checkmate(ops, budget, args.time)
        except TimeoutError:
            count["timeout"] += 1
            continue
        cost = fixed["cost"] if fixed["feasible"] else None
        kind = "equal" if cost == exact else "lower" if cost is not None and (exact is None or cost < exact) else "HIGHER"
        count[kind] += 1
        if exact is not None:
            cost = loose["cost"] if loose["feasible"] else None
            free["HIGHER" if cost is None or cost > exact else "equal" if cost == exact else "lower"] += 1
        print(f"n {n:2}  budget {budget:3} of {peak:3}  base {fixed['base_cost']:4}  exact {exact}  "
              f"fixed {fixed['cost'] if fixed['feasible'] else None} {kind}  free {loose['cost']}", flush=True)
    print("fixed order, ours against the optimum:", count)
    print("free order, ours against the fixed optimum:", free)
    sys.exit(count["HIGHER"] + free["HIGHER"] > 0)


if __name__ == "__main__":
    main()
