#!/usr/bin/env python3
"""Training steps of twelve networks in ckc and in PyTorch, side by side.

    step_bench.py [--rows a,b] [--precision f32|bf16|both] [--threads N] [--rounds N] [--cpu-time]
    step_bench.py --memory [--rows a,b] [--budget 75,50] [--plot FILE.svg]

Makes a virtual environment in --dir (unless the running Python has the packages), exports the
networks with torch.onnx, and times every row in ckc and in PyTorch (eager, torch.compile, both also
under bf16 autocast): one process after the other, in --rounds rounds, medians over rounds.  The rows
are in bench_models.py.

--memory: at percentages of PyTorch's own peak (eager, f32): ckc --budget against torch.utils.checkpoint
on as few blocks as fit, and against activation_memory_budget, the highest that fits; --plot draws time
over memory.

--cpu-time compares seconds of processors, not of the clock, on one thread: for a machine that others
use.  --json keeps every measurement; --from FILE.json prints the tables of one again.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORKER = os.path.join(HERE, "bench_models.py")
PACKAGES = ["torch", "torchvision", "transformers", "timm", "onnx", "onnxscript", "matplotlib"]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
WARM_UP = 2


def with_packages(folder):
    """Unless this Python has PACKAGES, restarts the program in a virtual environment that has them."""
    missing = [p for p in PACKAGES if not importlib.util.find_spec(p)]
    if not missing:
        return
    python = os.path.join(folder, "venv", "bin", "python")
    done = os.path.join(folder, "venv", "installed")
    if os.path.exists(done) and sys.prefix == os.path.join(os.path.abspath(folder), "venv"):
        sys.exit(f"{folder}/venv lacks {' '.join(missing)}: remove that folder, it is made again")
    if not os.path.exists(done):
        print(f"installing {' '.join(PACKAGES)} in {folder}/venv", file=sys.stderr)
        venv.create(os.path.join(folder, "venv"), with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "-q"]
        # from PyTorch's own index, if it can be reached: without CUDA, a tenth of the size
        subprocess.run(install + ["--retries", "0", "--index-url", CPU_INDEX, *PACKAGES[:2]],
                       stderr=subprocess.DEVNULL)
        subprocess.run(install + PACKAGES, check=True)
        open(done, "w").close()
    os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])


# ---- both sides

class Bench:
    def __init__(self, args, rows):
        self.args, self.rows = args, rows
        self.records = []
        self.started = processors()

    def path(self, *names):
        path = os.path.join(self.args.dir, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def environment(self):
        return {**os.environ, "OMP_NUM_THREADS": str(self.args.threads),
                "TORCHINDUCTOR_CACHE_DIR": self.path("inductor")}

    def worker(self, *arguments):
        done = subprocess.run([sys.executable, WORKER, *map(str, arguments)], env=self.environment(),
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
        return done.stdout

    def exported(self, row):
        """The folder of the row's model.onnx and data.npz, exported once."""
        folder = self.path("models", row)
        if not os.path.exists(folder):
            partial = self.path("models", row + ".partial", "")
            self.worker("export", row, partial)
            os.rename(partial, folder)
        return folder

    def torch(self, row, mode, *more):
        more += ("--steps", self.args.steps) if self.args.steps else ()
        output = self.worker("step", row, mode, "--threads", self.args.threads, *more)
        return json.loads(output.splitlines()[-1])

    def torch_peaks(self, row, mode):
        """[(setting, peak)], from least to most recomputation; empty if it fails."""
        try:
            output = self.worker("peaks", row, mode, "--threads", self.args.threads)
            return json.loads(output.splitlines()[-1])
        except RuntimeError as e:
            print(f"{row}, {mode}: {e}", file=sys.stderr)
            return []

    def torch_within(self, row, mode, peaks, limit):
        """Times the least recomputation that fits the limit; if none does, there is only the least peak."""
        for setting, peak in peaks:
            if peak <= limit:
                return {**self.torch(row, mode, "--set", setting), "peak": peak}
        return {"ms": None, "cpu_ms": None, "peak": min((p for _, p in peaks), default=None)}

    def ckc(self, row, precision, budget=None):
        """Times the steps of one run; their processor time is read from outside, after each step."""
        steps = WARM_UP + (self.args.steps or self.rows[row].steps)
        output = self.path("ckc", f"{row}-{precision}", "")
        reader, writer = os.pipe()
        model = self.exported(row)
        command = [self.args.ckc, f"{model}/model.onnx", "--data", f"{model}/data.npz", "--device", "cpu",
                   "--steps", str(steps), "--precision", precision, "--threads", str(self.args.threads),
                   "--cache", self.path("cache", ""), "--output", output, "--quiet",
                   "--metrics", f"/dev/fd/{writer}"]
        command += ["--budget", str(budget)] if budget else []
        process = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.PIPE, text=True,
                                   env=self.environment())
        os.close(writer)
        clock = ~process.pid << 3 | 2  # its CPU clock: clock_getcpuclockid(3)
        ms, cpu = [], []
        for line in os.fdopen(reader):
            ms.append(1e3 * json.loads(line)["seconds"])
            cpu.append(1e3 * time.clock_gettime(clock))
        message = process.stderr.read().strip()
        if process.wait() == 3:
            return {"ms": None, "cpu_ms": None, "peak": None}
        if process.returncode:
            raise RuntimeError(message.splitlines()[-1])
        with open(os.path.join(output, "report.json")) as f:
            report = json.load(f)
        return {"ms": statistics.median(ms[WARM_UP:]),
                "cpu_ms": (cpu[-1] - cpu[WARM_UP - 1]) / (steps - WARM_UP),
                "peak": report["arena_bytes"], "loss": report["losses"][0],
                "predicted_ms": report["predicted_ms"], "recomputed": report["recomputed_steps"]}

    def run(self, row, system, side, *arguments, **tags):
        """Measures once and keeps the record; a failure is printed, and is '-' in the table."""
        try:
            found = side(row, *arguments)
        except RuntimeError as e:
            print(f"{row}, {system}: {e}", file=sys.stderr)
            found = {"ms": None, "cpu_ms": None, "error": str(e)}
        found = {"row": row, "system": system, **tags, **found}
        self.records.append(found)
        print(f"{row:16} {system:16} {number(found['ms'])} ms, {number(found['cpu_ms'])} ms of processors",
              file=sys.stderr, flush=True)
        if self.args.json:
            with open(self.args.json + ".tmp", "w") as f:
                json.dump({"machine": machine(self.args, self.started), "records": self.records}, f, indent=1)
            os.replace(self.args.json + ".tmp", self.args.json)
        return found


# ---- what is measured

def chosen_rows(bench):
    names = bench.args.rows.split(",") if bench.args.rows else [n for n, r in bench.rows.items() if r.default]
    unknown = [n for n in names if n not in bench.rows]
    if unknown:
        sys.exit(f"unknown row {', '.join(unknown)}; known: {' '.join(bench.rows)}")
    return names


def measure_times(bench):
    precisions = ["f32", "bf16"] if bench.args.precision == "both" else [bench.args.precision]
    modes = ["eager", "compile"] + (["eager-bf16", "compile-bf16"] if "bf16" in precisions else [])
    for turn in range(bench.args.rounds):
        for row in chosen_rows(bench):
            for precision in precisions:
                bench.run(row, "ckc" if precision == "f32" else "ckc-bf16", bench.ckc, precision)
            for mode in modes:
                bench.run(row, mode, bench.torch, mode, *(["--peak"] if (turn, mode) == (0, "eager") else []))
            check_losses(bench.records, row)


def check_losses(records, row):
    """Warns if first losses differ by more than dropout and 16 bits explain: sides train other steps."""
    losses = {r["system"]: r["loss"] for r in records if r["row"] == row and "loss" in r}
    if losses and max(losses.values()) > 1.02 * min(losses.values()):
        print(f"{row}: not the same step: first losses {losses}", file=sys.stderr)


def measure_memory(bench):
    for row in chosen_rows(bench):
        peak = bench.run(row, "eager", bench.torch, "eager", "--peak").get("peak")
        if not peak:
            continue
        bench.run(row, "compile", bench.torch, "compile", "--peak")
        bench.run(row, "ckc", bench.ckc, "f32")
        systems = ["checkpoint", "budget"] if bench.rows[row].blocks else ["budget"]
        peaks = {system: bench.torch_peaks(row, system) for system in systems}
        for percent in bench.args.budget:
            limit = peak * percent // 100
            for _ in range(bench.args.rounds):
                bench.run(row, "ckc", bench.ckc, "f32", limit, percent=percent)
                for system in systems:
                    bench.run(row, system, bench.torch_within, system, peaks[system], limit, percent=percent)


def measure(args):
    from bench_models import ROWS  # only now, as it needs the packages
    args.threads = args.threads or (1 if args.cpu_time else os.cpu_count())
    args.budget = [int(x) for x in args.budget.split(",")]
    bench = Bench(args, ROWS)
    (measure_memory if args.memory else measure_times)(bench)
    return {"machine": machine(args, bench.started), "records": bench.records}


# ---- tables

def number(x, digits=3):
    return "-" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.{digits}g}"


def megabytes(x):
    return "-" if x is None else f"{x / 1e6:,.0f}"


def ratio(theirs, ours):
    return theirs / ours if theirs and ours else None


def times(x):
    return "-" if x is None else f"{x:.2f}x"


def mean(values):
    """The geometric mean of the values that are there; None: there are none."""
    values = [v for v in values if v]
    return math.exp(statistics.mean(map(math.log, values))) if values else None


def least(*values):
    return min((v for v in values if v), default=None)


class Results:
    """The records of all rounds; of() returns medians over them."""

    def __init__(self, records, cpu_time):
        self.records, self.key = records, "cpu_ms" if cpu_time else "ms"
        self.rows = list(dict.fromkeys(r["row"] for r in records))

    def of(self, row, system, key=None, percent=None):
        found = [r.get(key or self.key) for r in self.records
                 if (r["row"], r["system"], r.get("percent")) == (row, system, percent)]
        found = [f for f in found if f is not None]
        return statistics.median(found) if found else None

    def percents(self, row):
        found = {r["percent"] for r in self.records if r["row"] == row and "percent" in r}
        return sorted(found, reverse=True)


def print_table(head, lines):
    """Prints a table with the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(head, *lines)]
    for first, *others in [head, *lines]:
        cells = [first.ljust(widths[0])] + [c.rjust(w) for c, w in zip(others, widths[1:])]
        print("  ".join(cells).rstrip())


def table_of_times(results):
    lines, over_f32, over_all = [], [], []
    for row in results.rows:
        ckc, eager, compiled, ckc16, eager16, compiled16 = (
            results.of(row, s) for s in ("ckc", "eager", "compile", "ckc-bf16", "eager-bf16", "compile-bf16"))
        over_f32.append(ratio(least(eager, compiled), ckc))
        over_all.append(ratio(least(eager, compiled, eager16, compiled16), ckc16))
        lines.append([row, *map(number, (ckc, eager, compiled)), times(over_f32[-1]),
                      *map(number, (ckc16, eager16, compiled16)), times(over_all[-1]),
                      megabytes(results.of(row, "ckc", "peak")), megabytes(results.of(row, "eager", "peak"))])
    gap = [""] * 3
    lines.append(["geometric mean", *gap, times(mean(over_f32)), *gap, times(mean(over_all)), "", ""])
    print_table(["step", "ckc", "eager", "compile", "ahead", "ckc bf16", "eager", "compile", "ahead",
                 "ckc MB", "eager MB"], lines)
    print("\nms, in f32, then in bf16; ahead: of PyTorch's best in f32, and in bf16 of its best of all;\n"
          "MB: peak in f32, ckc's arena and PyTorch's allocations, parameters and optimizer state included")


def table_of_memory(results):
    lines, over = [], []
    for row in results.rows:
        for percent in results.percents(row):
            ms = {s: results.of(row, s, percent=percent) for s in ("ckc", "checkpoint", "budget")}
            over.append(ratio(least(ms["checkpoint"], ms["budget"]), ms["ckc"]))
            cells = [f"{row} {percent} %"]
            for system in ms:
                cells += [number(ms[system]), megabytes(results.of(row, system, "peak", percent))]
            lines.append(cells + [times(over[-1])])
    lines.append(["geometric mean"] + [""] * 6 + [times(mean(over))])
    print_table(["step, share of peak", "ckc", "MB", "checkpoint", "MB", "budget", "MB", "ahead"], lines)
    print("\nms and peak; -: does not fit (MB: the least); ahead: ckc over the faster of the two")


def plot(results, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ckc"})
    from matplotlib import pyplot
    count = len(results.rows)
    figure, all_axes = pyplot.subplots(1, count, figsize=(4 * count, 3.6), squeeze=False)
    systems = {"ckc": "ckc", "eager": "PyTorch, eager", "compile": "torch.compile",
               "checkpoint": "torch.utils.checkpoint", "budget": "activation_memory_budget"}
    shown = {}
    for axes, row in zip(all_axes[0], results.rows):
        for color, (system, name) in enumerate(systems.items()):
            points = [(results.of(row, system, "peak", p), results.of(row, system, percent=p))
                      for p in [None, *results.percents(row)]]
            points = sorted((bytes_ / 1e9, ms) for bytes_, ms in points if bytes_ and ms)
            if points:
                shown[name], = axes.plot(*zip(*points), "osD^v"[color] + "-", color=f"C{color}", linewidth=1)
        axes.set(title=row, xlabel="peak memory, GB", xlim=(0, 1.1 * axes.get_xlim()[1]),
                 ylim=(0, 1.1 * axes.get_ylim()[1]))
    all_axes[0][0].set_ylabel("step, ms of CPU time" if results.key == "cpu_ms" else "step, ms")
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncols=len(shown), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, metadata={"Date": None})


# ---- the machine

def processors():
    """Seconds used and available since the machine started, of all processors."""
    with open("/proc/stat") as f:
        user, nice, system, idle, wait, irq, soft, steal = map(int, f.readline().split()[1:9])
    used, tick = user + nice + system + irq + soft + steal, os.sysconf("SC_CLK_TCK")
    return used / tick, (used + idle + wait) / tick


def machine(args, started):
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    used, all_ = (now - then for now, then in zip(processors(), started))
    own = sum(getattr(resource.getrusage(who), t) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
              for t in ("ru_utime", "ru_stime"))
    return {"processor": names[0] if names else "unknown", "processors": os.cpu_count(),
            "threads": args.threads, "date": time.strftime("%Y-%m-%d"), "cpu_time": args.cpu_time,
            "torch": importlib.metadata.version("torch"), "others": max(0, used - own) / all_ if all_ else 0}


def conditions(m):
    clock = "time of processors" if m["cpu_time"] else "by the clock"
    threads = f"{m['threads']} thread{'s' if m['threads'] > 1 else ''}"
    busy = ": too busy for a clock, see --cpu-time" if m["others"] > 0.1 and not m["cpu_time"] else ""
    return (f"{m['date']}, {m['processors']} x {m['processor']}, {threads}, {clock}; PyTorch {m['torch']};\n"
            f"other processes used {100 * m['others']:.0f} % of the processors meanwhile{busy}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="comma-separated; default: the twelve")
    parser.add_argument("--precision", choices=["f32", "bf16", "both"], default="both")
    parser.add_argument("--threads", type=int, help="default: all processors; with --cpu-time 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="measured in a process; default: by row")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--budget", default="75,50", help="of --memory, percent (default 75,50)")
    parser.add_argument("--plot", metavar="FILE.svg", help="of --memory")
    parser.add_argument("--dir", default=os.path.expanduser("~/.cache/ckc-bench"))
    parser.add_argument("--ckc", default=os.path.join(ROOT, "build", "release", "ckc"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--from", dest="saved", metavar="FILE.json")
    args = parser.parse_args()
    with_packages(args.dir)
    if args.saved:
        with open(args.saved) as f:
            saved = json.load(f)
        if args.rows:
            saved["records"] = [r for r in saved["records"] if r["row"] in args.rows.split(",")]
    else:
        saved = measure(args)
    results = Results(saved["records"], saved["machine"]["cpu_time"])
    has_memory = any("percent" in r for r in results.records)
    (table_of_memory if has_memory else table_of_times)(results)
    print(conditions(saved["machine"]))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
