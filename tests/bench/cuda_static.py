#!/usr/bin/env python3
"""Static figures of generated CUDA kernels: registers, stack, spills, launches, and how wide they access memory.

    cuda_static.py [--arch sm_90a,sm_80] [--disasm NVDISASM] [--all] kernels.cu...

The files are those of ckc MODEL --device h200 --steps 0 --emit cuda; with products of warpgroups (wgmma) they are for
sm_90a alone.  Compiles with NVRTC (libnvrtc.so.13) as the runtime does and disassembles the machine code with nvdisasm (pip install nvidia-cuda-nvdisasm).  Prints what must
not be: spills, a stack, more than 128 registers (attention: 255), products, convolutions and attention of 1 MFLOP and
more whose items are computed one by one, launches whose operands are 1 MB and more with fewer blocks than an H200 has
processors (a slice reads little of a large value); then a table of all files.  --all: a line per kernel.

"Along rows" counts what the printer says of generated kernels' contiguous rows; of the machine code all accesses
count, what one instruction moves per thread, also narrow ones that a kernel guards (edges of rows).  Development
only."""
import argparse, collections, ctypes, os, re, subprocess, sys, tempfile


def nvrtc():
    for name in ("libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    sys.exit("no libnvrtc.so.13")


def compile_(rtc, source, arch):
    prog = ctypes.c_void_p()
    rtc.nvrtcCreateProgram(ctypes.byref(prog), source, b"kernels.cu", 0, None, None)
    opts = [b"--gpu-architecture=" + arch.encode(), b"--fmad=false", b"--ptxas-options=-v"]
    status = rtc.nvrtcCompileProgram(prog, len(opts), (ctypes.c_char_p * len(opts))(*opts))
    size = ctypes.c_size_t()
    rtc.nvrtcGetProgramLogSize(prog, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetProgramLog(prog, log)
    if status:
        sys.exit(log.value.decode()[:4000])
    rtc.nvrtcGetCUBINSize(prog, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetCUBIN(prog, cubin)
    return log.value.decode(), cubin.raw


def resources(log):
    """{kernel: {registers, stack, spill}} from the log of ptxas -v."""
    out, name = {}, None
    for line in log.splitlines():
        m = re.search(r"Compiling entry function '(\w+)'|Function properties for (\w+)", line)
        if m:
            name = m.group(1) or m.group(2)
            out.setdefault(name, dict(registers=0, stack=0, spill=0))
        m = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if m and name:
            out[name].update(stack=int(m.group(1)), spill=int(m.group(2)) + int(m.group(3)))
        m = re.search(r"Used (\d+) registers", line)
        if m and name:
            out[name]["registers"] = int(m.group(1))
    return out


def accesses(disasm, cubin):
    """{kernel: Counter of bytes per global access, and 'mma', of warps or warpgroups}"""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()
        text = subprocess.run([disasm, "-c", f.name], capture_output=True, text=True, check=True).stdout
    out, now = {}, None
    for line in text.splitlines():
        m = re.match(r"\.text\.(\w+):|\s*\.section\s+\.text\.(\w+)", line)
        if m:
            now = out.setdefault(m.group(1) or m.group(2), collections.Counter())
        m = re.search(r"\b(LDG|STG|LDGSTS)((?:\.\w+)*)\b", line)
        if m and now is not None:
            part = m.group(2).split(".")
            width = 16 if "128" in part else 8 if "64" in part else 2 if {"U16", "S16"} & set(part) else \
                1 if {"U8", "S8"} & set(part) else 4
            now[width] += 1
        if now is not None and re.search(r"\b[HIDQ]MMA\b|\bHGMMA\b", line):
            now["mma"] += 1
    return out


def kernel_of(function):
    """The kernel that a function is a phase of: ck_3 for ck_3_1."""
    return re.sub(r"^(ck_\d+)_\d+$", r"\1", function)


def launches(source):
    """[{what, mflop, mb, scalar, phases: [(function, blocks, threads, shared)]}] of the schedule"""
    out, what = [], ""
    for line in source.splitlines():
        if m := re.match(r"    /\* \d+: (.*) \*/$", line):
            what = m.group(1)
        elif m := re.match(r"    \{ /\* (?:\d+ calls|(\S+) MFLOP), (\S+) MB(, scalar)? \*/$", line):
            out.append(dict(what=what, mflop=float(m.group(1) or 0), mb=float(m.group(2)), scalar=bool(m.group(3)),
                            phases=[]))
        elif m := re.search(r"ckc_launch(_table)?\(c, \(const void \*\)(\w+), (\d+), (\d+), (\d+)?", line):
            shared = 0 if m.group(1) else int(m.group(5))
            out[-1]["phases"].append((m.group(2), int(m.group(3)), int(m.group(4)), shared))
    return out


def blocks_of(launch):
    """The number of blocks of the launch's largest phase."""
    return max(blocks for _, blocks, _, _ in launch["phases"])


def describe(function, runs):
    of = [(r, p) for r in runs for p in r["phases"] if p[0] == function]
    if not of:
        return ""
    r, (_, blocks, threads, shared) = of[-1]
    return (f"{len(of):3d} x {blocks:6d} blocks of {threads:4d}, {shared:6d} bytes shared, {r['mflop']:8.6g} MFLOP "
            f"{r['what'][:60]}")


def along_rows(source):
    """(number of accesses of 16 bytes, number of narrower ones) along contiguous rows in generated kernels"""
    found = re.findall(r"/\* along rows: (\d+) accesses of 16 bytes, (\d+) narrower \*/", source)
    return sum(int(w) for w, _ in found), sum(int(n) for _, n in found)


def listing(title, rows):
    print(f"  {title}: {len(rows) or 'none'}")
    for text, n in collections.Counter(rows).most_common():
        print(f"    {n:3d} x {text}")


def check_schedule(runs, wide, narrow):
    """Prints what is the same on every GPU."""
    print(f"  along rows {wide} of {wide + narrow} accesses are of 16 bytes")
    listing("scalar products, convolutions, attention of 1 MFLOP and more",
            [f"{r['mflop']:12.6g} MFLOP {r['what']}" for r in runs if r["scalar"] and r["mflop"] >= 1])
    listing("launches with operands of 1 MB and more and fewer than 132 blocks (slices read a part)",
            [f"{r['phases'][0][0]} {r['mb']:8.6g} MB, {blocks_of(r):3d} blocks: {r['what']}" for r in runs
             if r["mb"] >= 1 and blocks_of(r) < 132])


def check_code(arg, source, arch, runs):
    """Returns (most registers, of attention, functions that spill or have a stack)."""
    bodies = dict(re.findall(r"/\* kernel (\w+) \*/\n(.*?)(?=/\* kernel |\Z)", source, re.S))
    log, cubin = compile_(arg.rtc, source.encode(), arch)
    res, acc = resources(log), accesses(arg.disasm, cubin)
    total, most, spills, lack = collections.Counter(), [0, 0], 0, []
    for name in sorted(res, key=lambda n: [int(x) for x in re.findall(r"\d+", n)]):
        body = bodies.get(kernel_of(name), "")
        if arg.skip and re.search(arg.skip, body):
            continue
        r, a = res[name], acc.get(name, collections.Counter())
        is_attention = "#define A_PART" in body
        if is_attention and "#define A_BYTES 2" in body and not a["mma"]:
            lack.append(name)
        total.update({k: v for k, v in a.items() if k != "mma"})
        most[is_attention] = max(most[is_attention], r["registers"])
        bad = r["spill"] or r["stack"] or r["registers"] > (255 if is_attention else 128)
        spills += bool(r["spill"] or r["stack"])
        if arg.all or bad:
            narrow = sum(v for k, v in a.items() if k not in (16, "mma"))
            print(f"  {name:10s} {arch} {r['registers']:4d} registers {r['stack']:5d} stack {r['spill']:5d} spilled "
                  f"{a[16]:3d} x 16 bytes, {narrow:3d} narrower, {a['mma']:3d} mma {describe(name, runs)}")
    n = sum(total.values())
    print(f"  {arch}: {len(res)} functions, at most {most[0]} registers, attention {most[1]}, {spills} with spills or "
          f"stack; {100 * total[16] / max(n, 1):.1f} % of all {n} accesses are 16 bytes wide {dict(total)}; "
          f"attention in 16 bits without tensor cores: {lack or 'none'}")
    return most[0], most[1], spills


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--arch", help="else sm_80 and sm_90, or sm_90a where a file needs it")
    ap.add_argument("--disasm", default=os.environ.get("NVDISASM", "nvdisasm"))
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--skip", default="", help="kernels whose text matches this are left out")
    ap.add_argument("file", nargs="+")
    arg = ap.parse_args()
    arg.rtc = nvrtc()
    table = []
    for path in arg.file:
        source = open(path).read()
        runs, (wide, narrow) = launches(source), along_rows(source)
        kernels = {kernel_of(p[0]) for r in runs for p in r["phases"]}
        print(f"{path}: {sum(len(r['phases']) for r in runs)} launches of {len(kernels)} kernels")
        check_schedule(runs, wide, narrow)
        default = "sm_90a" if "wgmma.mma_async" in source else "sm_80,sm_90"
        most = [check_code(arg, source, arch, runs) for arch in (arg.arch or default).split(",")]
        table.append((path, len(kernels), sum(len(r["phases"]) for r in runs), max(m[0] for m in most),
                      max(m[1] for m in most), sum(m[2] for m in most),
                      f"{100 * wide / max(wide + narrow, 1):.1f} %",
                      sum(r["mb"] >= 1 and blocks_of(r) < 132 for r in runs),
                      sum(r["scalar"] and r["mflop"] >= 1 for r in runs)))
    print("\n| step | kernels | launches | registers | of attention | with spills | 16 bytes | few blocks | scalar |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in table:
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
