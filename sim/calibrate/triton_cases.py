# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of Triton's tutorials 03 and 06, from a checkout of github.com/meta-pytorch/tritonbench,
which keeps both as modules. A Triton as old as the published figures compiles them to PTX."""
import ctypes
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import cuda_driver
from cuda_cases import BYTES_OF_BFLOAT16, Skipped, arch, buffer, i32, launch
from programs import checkout

GEMM = "tritonbench/operators/gemm/triton_matmul.py"
ATTENTION = "tritonbench/kernels/triton_fused_attention.py"


def environment(triton: str) -> dict[str, str]:
    """For a Python with that Triton, and with a torch whose CUDA libraries are stand-ins."""
    standins = pathlib.Path(sys.executable).parents[2] / "standins"
    return os.environ | {"PYTHONPATH": triton, "LD_LIBRARY_PATH": f"{standins}:{os.environ['LD_LIBRARY_PATH']}"}


def compiled(file: str, kernel: str, arguments: list[str], constants: dict, warps: int, stages: int) -> dict:
    """Returns what triton_compile.py prints. It is kept, as Triton takes seconds to start."""
    triton = os.environ.get("CALIBRATE_TRITON", "")
    if not triton:
        raise Skipped("no folder with Triton (--triton)")
    request = json.dumps({"file": str(checkout("tritonbench") / file), "kernel": kernel,
                          "arch": int(arch().removeprefix("sm_").rstrip("a")), "arguments": arguments,
                          "constants": constants, "warps": warps, "stages": stages})
    key = hashlib.sha256(f"{triton} {request}".encode()).hexdigest()[:16]
    place = pathlib.Path(os.environ["CALIBRATE_PROGRAMS"]) / f"triton-{key}.json"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("triton_compile.py"), request],
                              env=environment(triton), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().split("\n")[-1])
        unfinished = place.with_suffix(f".{os.getpid()}")
        unfinished.write_text(done.stdout)
        unfinished.rename(place)
    return json.loads(place.read_text())


def run(code: dict, grid: tuple[int, ...], values: list) -> None:
    launch(code["ptx"].encode(), code["name"], grid, 32 * code["warps"], [values[at] for at in code["taken"]],
           code["shared"])


def matmul(size: int, tiles: list[list[int]]) -> None:
    """Each of the tiles once: the fastest launch counts, as for whoever tunes."""
    cuda_driver.start()
    strides = [f"i32:{size}", "i32:1"] * 3
    matrices = [buffer(BYTES_OF_BFLOAT16 * size * size) for _ in range(3)]
    for rows, columns, inner, group, stages, warps in tiles:
        code = compiled(GEMM, "matmul_kernel", ["*fp16"] * 3 + [f"i32:{size}"] * 3 + strides,
                        {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": inner, "GROUP_M": group,
                         "ACTIVATION": "", "ENABLE_BUFFER_OPS_ASSUMES": False}, warps, stages)
        run(code, (-(-size // rows) * -(-size // columns),),
            matrices + [i32(size)] * 3 + [i32(size), i32(1)] * 3)


def attention(batch: int, length: int, heads: int, width: int, causal: bool, backward: bool,
              dtype: str) -> None:
    cuda_driver.start()
    kind = {"f16": "*fp16", "bf16": "*bf16"}[dtype]
    strides = [heads * length * width, length * width, width, 1] * 4
    q, k, v, out = (buffer(BYTES_OF_BFLOAT16 * batch * heads * length * width) for _ in range(4))
    sizes = [batch, heads, length]
    values = [q, k, v, ctypes.c_float(width**-0.5), buffer(4 * batch * heads * length), out, *[None] * 4,
              *(i32(number) for number in strides + sizes)]
    texts = [kind, kind, kind, f"f32:{width**-0.5}", "*fp32", kind, *["none"] * 4,
             *(f"i32:{number}" for number in strides + sizes)]
    tiles = [(128, 128, 8, 3), (128, 64, 4, 3)] if width == 128 else [(128, 64, 4, 3)]
    for rows, columns, warps, stages in tiles:
        code = compiled(ATTENTION, "_attn_fwd_base_opt", texts,
                        {"BLOCK_M": rows, "BLOCK_N": columns, "HEAD_DIM": width, "STAGE": 3 if causal else 1,
                         "ENABLE_TMA": False, "LOOP_SCHEDULE": "default", "ENABLE_WS": False}, warps, stages)
        run(code, (-(-length // rows), batch * heads), values)
