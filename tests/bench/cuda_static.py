#!/usr/bin/env python3
"""Static figures of generated CUDA kernels: registers, stack, spills, launches, and how wide they access memory.

    cuda_static.py [--arch sm_90a,sm_80] [--disasm NVDISASM] [--all] kernels.cu...

The files are those of ckc MODEL --device h200 --steps 0 --emit cuda: with products of warpgroups (wgmma) they are
for sm_90a alone.  Compiles with NVRTC (libnvrtc.so.13) as the
runtime does and disassembles the machine code with nvdisasm (pip install nvidia-cuda-nvdisasm).  Prints one line
per kernel that is remarkable (--all: of every one), sums, and what must not be: products, convolutions and
attention of 1 MFLOP and more whose items are computed one by one.  An access is what one instruction moves per
thread; narrow ones that a kernel guards (edges of rows) are counted as well.  Development only."""
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
    """{kernel: {registers, stack, spill}} of ptxas -v."""
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
    """{kernel: Counter of bytes per global access, and 'mma' and 'wgmma'}"""
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
        if now is not None and (m := re.search(r"\b(?:[HIDQ]MMA|HGMMA)\b", line)):
            now["wgmma" if m.group() == "HGMMA" else "mma"] += 1
    return out


def kernel_of(function):
    """ck_3 of its phase ck_3_1"""
    return re.sub(r"^(ck_\d+)_\d+$", r"\1", function)


def launches(source):
    """{kernel: {n, blocks, threads, shared, mflop, what}} of the schedule, and its scalar launches"""
    out, scalar, what, mflop = {}, collections.Counter(), "", 0.0
    for line in source.splitlines():
        if m := re.match(r"    /\* \d+: (.*) \*/$", line):
            what = m.group(1)
        elif m := re.match(r"    \{ /\* (\S+) MFLOP(, scalar)? \*/$", line):
            mflop = float(m.group(1))
            if m.group(2) and mflop >= 1:
                scalar[mflop, what] += 1
        elif m := re.search(r"ckc_launch_table\(c, \(const void \*\)(\w+), (\d+), (\d+), ", line):
            out[m.group(1)] = dict(n=1, mflop=0.0, what=what, blocks=int(m.group(2)), threads=int(m.group(3)), shared=0)
        elif m := re.search(r"ckc_launch\(c, \(const void \*\)(\w+), (\d+), (\d+), (\d+), ", line):
            of = out.setdefault(m.group(1), dict(n=0, mflop=mflop, what=what))
            of.update(n=of["n"] + 1, blocks=int(m.group(2)), threads=int(m.group(3)), shared=int(m.group(4)))
    return out, scalar


def launch_line(of):
    if not of:
        return ""
    return (f"{of['n']:3d} x {of['blocks']:6d} blocks of {of['threads']:4d}, {of['shared']:6d} bytes shared, "
            f"{of['mflop']:8.6g} MFLOP ")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--arch", help="else sm_80 and sm_90, or sm_90a where a file needs it")
    ap.add_argument("--disasm", default=os.environ.get("NVDISASM", "nvdisasm"))
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--skip", default="", help="kernels whose text matches this are left out")
    ap.add_argument("file", nargs="+")
    arg = ap.parse_args()
    rtc = nvrtc()
    for path in arg.file:
        source = open(path, "rb").read()
        bodies = dict(re.findall(r"/\* kernel (\w+) \*/\n(.*?)(?=/\* kernel |\Z)", source.decode(), re.S))
        runs, scalar = launches(source.decode())
        default = "sm_90a" if b"wgmma.mma_async" in source else "sm_80,sm_90"
        for arch in (arg.arch or default).split(","):
            log, cubin = compile_(rtc, source, arch)
            res, acc = resources(log), accesses(arg.disasm, cubin)
            total, worst = collections.Counter(), 0
            bad = collections.Counter()
            for name in sorted(res, key=lambda n: [int(x) for x in re.findall(r"\d+", n)]):
                body = bodies.get(kernel_of(name), "")
                if arg.skip and re.search(arg.skip, body):
                    continue
                r, a = res[name], acc.get(name, collections.Counter())
                total.update({k: v for k, v in a.items() if k not in ("mma", "wgmma")})
                worst = max(worst, r["registers"])
                narrow = sum(v for k, v in a.items() if k not in (16, "mma", "wgmma"))
                for what, is_bad in (("registers > 128", r["registers"] > 128), ("spills", r["spill"]),
                                     ("stack", r["stack"])):
                    bad[what] += bool(is_bad)
                if arg.all or r["registers"] > 128 or r["spill"] or r["stack"]:
                    print(f"{name:12s} {arch} {r['registers']:4d} registers {r['stack']:5d} stack {r['spill']:5d} "
                          f"spilled  {launch_line(runs.get(name))}{a[16]:3d} x 16 bytes, {narrow:3d} narrower "
                          f"{dict(a)} {runs.get(name, {}).get('what', '')[:60]}")
            n = sum(total.values())
            print(f"{path} {arch}: {len(res)} kernels, {100 * total[16] / max(n, 1):.1f} % of {n} accesses are 16 bytes "
                  f"wide {dict(total)}; at most {worst} registers; {dict(bad)}")
        most = collections.Counter()  # blocks of a kernel's largest phase
        for n, r in runs.items():
            most[kernel_of(n)] = max(most[kernel_of(n)], r["blocks"])
        few = [n for n, r in runs.items() if n == kernel_of(n) and most[n] < 132 and r["mflop"] >= 100]
        print(f"{path}: {sum(r['n'] for r in runs.values())} launches of {len(runs)} functions; kernels of 100 MFLOP "
              f"and more on fewer than 132 blocks: {few or 'none'}")
        print(f"{path}: scalar products, convolutions, attention of 1 MFLOP and more: {sum(scalar.values()) or 'none'}")
        for (mflop, what), n in sorted(scalar.items(), reverse=True):
            print(f"    {n:3d} x {mflop:12.6g} MFLOP {what}")



if __name__ == "__main__":
    main()
