#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator as a product of its own: install_test.py SIM BUILD CUDA_INCLUDE [C_COMPILER]

Installs the component `simulator` of BUILD into an empty prefix, which must then hold the files below and
no others, moves the prefix, and does there what SIM/README.md shows: a C program of the driver API finds
the race that the page quotes, and the clock tells the time of a launch. The folder SIM also configures
without the rest of the tree's CMake.
"""
import ctypes
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

LIBRARIES = {"libcuda.so.1", "libnccl.so.2", "libcudart.so.12", "libcudart.so.13"}
FILES = {*(f"lib/lathe/sim/{name}" for name in LIBRARIES),
         *(f"share/doc/lathe-simulator/{name}" for name in ("README.md", "LICENSE"))}


def run(*words, **kwargs):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, stdin=subprocess.DEVNULL, timeout=240, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def expect(holds, message):
    if not holds:
        sys.exit(message)


def install(build, root):
    """The prefix, after it was moved."""
    first, prefix = root / "first", root / "moved"
    run("cmake", "--install", build, "--component", "simulator", "--prefix", first)
    first.rename(prefix)
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    expect(found == FILES, f"installed: {sorted(found)}, expected {sorted(FILES)}")
    return prefix


def commands(page):
    """The lines of the page that run run_ptx, each as (variables, arguments behind the program)."""
    for line in re.findall(r"^    (LD_LIBRARY_PATH=.* \./run_ptx .*)$", page, re.M):
        words = shlex.split(line)
        at = words.index("./run_ptx")
        yield dict(word.split("=", 1) for word in words[:at]), words[at + 1:]


def quoted_finding(page):
    """The finding that the page shows, in one line."""
    lines = re.search(r"^    lathe sim: .*\n(?:    .*\n)*", page, re.M).group(0)
    return " ".join(lines.split())


def check_race(execute, page, report, command):
    variables, words = command
    done = execute(words, variables["LATHE_SIM_CHECK"], LATHE_SIM_REPORT=str(report))
    expect(quoted_finding(page) in done.stderr.splitlines(),
           f"README.md quotes '{quoted_finding(page)}', but the run says\n{done.stderr}")
    findings = [json.loads(line) for line in report.read_text().splitlines()]
    races = [each for each in findings if each["kind"] == "race" and each["kernel"] == "sum"]
    expect(len(races) > 0, f"no race among {findings}")
    for each in races:
        expect(each["source"].startswith("sum.cu:"), f"a finding without its source line: {each}")
    fixed = [word.replace("sum", "sum_fixed") if word == "sum" else word for word in words]
    report.unlink()
    done = execute(fixed, variables["LATHE_SIM_CHECK"], LATHE_SIM_REPORT=str(report))
    expect(not report.exists() and done.stderr == "", f"the repaired kernel: {done.stderr}")
    expect("argument 1: 256 256 256 256\n" in done.stdout, f"wrong sums: {done.stdout}")


def check_clock(execute, clock, command):
    _, words = command
    execute(words, "memcheck", LATHE_SIM_CLOCK=str(clock))
    lines = [json.loads(line) for line in clock.read_text().splitlines()]
    expect([line["kernel"] for line in lines] == ["sum_fixed"], f"the clock's launches: {lines}")
    time = lines[0]
    # The input is 4 MiB: an H100 cannot read it faster than 3.35 TB/s, and a grid of 3.9 waves without
    # anything to hold it up takes no hundred times as long.
    least = (1 << 22) / 3.35e6
    expect(least < time["microseconds"] < 100 * least, f"a launch of {time['microseconds']} us")
    expect(time["gpu"] == "h100" and time["from"] in ("ptx", "sass"), f"the clock's line: {time}")
    expect(any(line["source"].startswith("sum.cu:") for line in time["lines"]), "no source lines")


def main():
    source, build, include = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    compiler = sys.argv[4] if len(sys.argv) > 4 else "cc"
    page = (source / "README.md").read_text()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
    with tempfile.TemporaryDirectory(prefix="lathe-simulator-") as folder:
        root = pathlib.Path(folder)
        libraries = install(build, root) / "lib/lathe/sim"
        run(compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-isystem", include,
            "-o", root / "run_ptx", source / "examples/run_ptx.c", f"-L{libraries}", "-l:libcuda.so.1")

        def execute(words, checks, **more):
            variables = {"LD_LIBRARY_PATH": str(libraries), "LATHE_SIM_CHECK": checks, **more}
            return run(root / "run_ptx", *words, cwd=source.parent, env={**clean, **variables})

        shown = list(commands(page))
        expect(len(shown) == 2, f"README.md runs run_ptx {len(shown)} times, expected 2")
        check_race(execute, page, root / "report.jsonl", shown[0])
        check_clock(execute, root / "clock.jsonl", shown[1])
        version = ctypes.c_int()
        nccl = ctypes.CDLL(str(libraries / "libnccl.so.2"))
        expect(nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value > 20000,
               f"NCCL says version {version.value}")
        run("cmake", "-G", "Ninja", "-S", source, "-B", root / "alone", env=clean)
        planned = run("ninja", "-C", root / "alone", "-n", "simulator").stdout
        for name in LIBRARIES:
            expect(f"sim/{name}" in planned, f"cmake -S sim does not build {name}:\n{planned[-2000:]}")
    print("the component is whole; its race, its clock and its own build are as README.md says")


if __name__ == "__main__":
    main()
