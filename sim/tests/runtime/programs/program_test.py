#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Builds a CUDA program of this folder with nvcc and runs it on the drop-in, under every check:

program_test.py PROGRAM FOLDER_OF_LIBCUDA FOLDER_FOR_PROGRAMS

The program is built as anybody would: nothing of the simulator is in it, and its runtime is the shared one. What
was built stays in the folder until a source, an option or nvcc changes. Exit status 77, skipped, where there is
no nvcc.
"""
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# Machine code and PTX, compressed: what nvcc makes when nothing else is asked for.
OPTIONS = ["-std=c++17", "-O2", "-lineinfo", "-cudart", "shared", "-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]"]
SEEDS = (0, 1, 2)


@dataclasses.dataclass
class Program:
    sources: list
    options: list = dataclasses.field(default_factory=list)
    findings: set = dataclasses.field(default_factory=set)  # kinds, each of which has to be found


PROGRAMS = {
    "groups_reduction": Program(["groups_reduction.cu"]),
    "tma_wgmma_gemm": Program(["tma_wgmma_gemm.cu"]),
    "stream_pipeline": Program(["stream_pipeline.cu"]),
    "variables": Program(["variables.cu"]),
    "algorithms": Program(["algorithms.cu"]),
    "errors": Program(["errors.cu"], findings={"out_of_bounds"}),
    "own_streams": Program(["own_streams.cu"], ["--default-stream", "per-thread"]),
    "linked": Program(["linked.cu", "linked_part.cu"], ["-rdc=true"]),
}


def find_nvcc():
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        path = pathlib.Path(folder or "") / "bin/nvcc"
        if folder and path.exists():
            return str(path)
    return shutil.which("nvcc")


def build(nvcc, name, program, folder):
    """The program's path; builds it unless it is there as these sources, options and compiler make it."""
    sources = [HERE / source for source in program.sources]
    options = OPTIONS + program.options
    version = subprocess.run([nvcc, "--version"], check=True, stdout=subprocess.PIPE).stdout
    inputs = [path.read_bytes() for path in sources + [HERE / "check.h"]] + [" ".join(options).encode(), version]
    digest = hashlib.sha256(b"\0".join(inputs)).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path, stamp = folder / name, folder / f"{name}.sha256"
    if not path.exists() or not stamp.exists() or stamp.read_text() != digest:
        stamp.unlink(missing_ok=True)
        subprocess.run([nvcc, *options, *map(str, sources), "-o", str(path)], check=True)
        stamp.write_text(digest)
    return path


def run(path, program, libraries, seed):
    """Exit status 0 and the expected findings, or the reason of the failure ends this process."""
    report = path.with_suffix(f".{os.getpid()}.jsonl")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LATHE_SIM_")}
    environment.update(LD_LIBRARY_PATH=libraries, LATHE_SIM_CHECK="all", LATHE_SIM_SEED=str(seed),
                       LATHE_SIM_REPORT=str(report))
    done = subprocess.run([str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    findings = report.read_text().splitlines() if report.exists() else []
    report.unlink(missing_ok=True)
    print(f"seed {seed}:\n{done.stdout}", end="")
    if done.returncode != 0:
        sys.exit(f"{path.name} ended with {done.returncode}")
    kinds = {json.loads(line)["kind"] for line in findings}
    if kinds != program.findings:
        sys.exit(f"findings {sorted(kinds)}, expected {sorted(program.findings)}:\n" + "\n".join(findings))


def main():
    name, libraries, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    program, nvcc = PROGRAMS[name], find_nvcc()
    if nvcc is None:
        print("skipped: no nvcc in CUDA_HOME, in /usr/local/cuda or on PATH")
        sys.exit(77)
    path = build(nvcc, name, program, folder)
    for seed in SEEDS:
        run(path, program, libraries, seed)


if __name__ == "__main__":
    main()
