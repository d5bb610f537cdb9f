# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that launch kernels of other people by the host code of their authors.

nvcc builds our few lines around a checkout that is named on the command line; the program then runs on
the drop-ins for the driver and the runtime. A program is built once and kept in the work folder. For a
visit to a GPU (CALIBRATE_PACK) it is built to machine code and is not run here.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess

from cuda_cases import Skipped

HERE = pathlib.Path(__file__).resolve().parent
# Some lines for what the checkouts include of PyTorch.
STAND_INS = {
    "c10/cuda/CUDAException.h": """
#pragma once
#include <cuda_runtime.h>
#include <cstdlib>
#define C10_CUDA_CHECK(call) if ((call) != cudaSuccess) std::abort()
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
""",
}


def toolkit() -> pathlib.Path:
    return pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


def checkout(option: str) -> pathlib.Path:
    """The folder that `--option` names."""
    folder = os.environ.get("CALIBRATE_" + option.replace("-", "_").upper(), "")
    if not folder:
        raise Skipped(f"no checkout (--{option})")
    return pathlib.Path(folder).resolve()


def compute(arch: str) -> str:
    code = arch.replace("compute", "sm") if os.environ.get("CALIBRATE_PACK") else arch
    return f"-gencode=arch={arch},code={code}"


def stamp(folder: pathlib.Path) -> str:
    """Changes when a file of the folder does."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in files)


def build(source: str, options: list[str], folders: list[pathlib.Path]) -> pathlib.Path:
    """A program of `source` beside this file that includes files of `folders`."""
    compiler = toolkit() / "bin/nvcc"
    if not compiler.exists():
        raise Skipped(f"no {compiler}")
    text = (HERE / source).read_text() + "\0".join(options) + str(STAND_INS)
    text += "".join((HERE / name).read_text() for name in ("flash_params.cuh", "timed.cuh"))
    key = hashlib.sha256((text + "".join(stamp(folder) for folder in folders)).encode()).hexdigest()
    place = pathlib.Path(os.environ["CALIBRATE_PROGRAMS"]) / f"{pathlib.Path(source).stem}-{key[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "program").exists():
            for name, content in STAND_INS.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(content)
            includes = [f"-I{folder}" for folder in [place, *folders]]
            subprocess.run([compiler, "-std=c++17", "-O3", "-w", "-cudart", "shared", "--expt-relaxed-constexpr",
                            "--expt-extended-lambda", "--use_fast_math", *options, *includes, HERE / source,
                            f"-L{toolkit()}/lib64/stubs", "-lcuda", "-o", place / "unfinished"], check=True)
            (place / "unfinished").rename(place / "program")
    return place / "program"


def run(program: pathlib.Path, *words: int) -> None:
    if os.environ.get("CALIBRATE_PACK"):
        print(json.dumps({"program": str(program), "words": words}))
        return
    done = subprocess.run([program, *map(str, words)], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().split("\n")
        raise RuntimeError(f"{said[-1] or program}: exit status {done.returncode}")


def attention(width: int, causal: bool, backward: bool, dtype: str, off: list[str]) -> list[str]:
    """Returns what both of FlashAttention's drivers are told; `off` are features that nobody asks for."""
    element = {"f16": "half_t", "bf16": "bfloat16_t"}[dtype]
    return [f"-DWIDTH={width}", f"-DCAUSAL={int(causal)}", f"-DBACKWARD={int(backward)}", f"-DELEMENT={element}",
            *(f"-DFLASHATTENTION_DISABLE_{name}" for name in off)]


def flash2(batch: int, length: int, heads: int, width: int, causal: bool, backward: bool, dtype: str) -> None:
    """The published figures are of code for sm_80 and sm_90 without its own features."""
    arch = {"sm_80": "compute_80", "sm_90a": "compute_90"}[os.environ["CALIBRATE_ARCH"]]
    off = ["DROPOUT", "ALIBI", "SOFTCAP", "UNEVEN_K", "LOCAL"]
    program = build("flash2.cu", [*attention(width, causal, backward, dtype, off), compute(arch)],
                    [checkout("flash-attention") / "csrc/flash_attn/src", checkout("cutlass") / "include"])
    run(program, batch, length, heads)


def flash3(batch: int, length: int, heads: int, width: int, causal: bool, backward: bool, dtype: str) -> None:
    off = ["SM8x", "VARLEN", "APPENDKV", "LOCAL"]
    program = build("flash3.cu", [*attention(width, causal, backward, dtype, off), "-DNDEBUG",
                                  "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED", "-DCUTLASS_ENABLE_GDC_FOR_SM90",
                                  compute("compute_90a")],
                    [checkout("flash-attention") / "hopper", checkout("cutlass") / "include"])
    run(program, batch, length, heads)


def fast_matmul(size: int, kernel: int) -> None:
    program = build("fast_matmul.cu", ["-DNDEBUG", f"-DKERNEL={kernel}",
                                       f'-DSOURCE="examples/matmul/matmul_{kernel}.cuh"',
                                       compute("compute_90a")], [checkout("fast-cu")])
    run(program, size)
