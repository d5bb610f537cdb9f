# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of Triton's tutorials 03 and 06, from a checkout of github.com/meta-pytorch/tritonbench,
which keeps both as modules. tests/peers/bridge.py runs them on the simulator."""
import importlib.util
import os
import pathlib
import sys
import types

from cuda_cases import Skipped

GEMM = "tritonbench/operators/gemm/triton_matmul.py"
ATTENTION = "tritonbench/kernels/triton_fused_attention.py"


def start():
    if not os.environ.get("CALIBRATE_TRITONBENCH"):
        raise Skipped("no checkout of tritonbench (--tritonbench)")
    import bridge
    import torch
    bridge.install(pathlib.Path(os.environ["CALIBRATE_WORK"]) / "ptx")
    torch.cuda.get_device_properties = lambda device=None: types.SimpleNamespace(multi_processor_count=132)
    return torch


def stand_in(name: str, **contents) -> None:
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(contents)
    sys.modules[name] = module


def load(path: str):
    """A module of the checkout, without the package around it, which wants a GPU."""
    file = pathlib.Path(os.environ["CALIBRATE_TRITONBENCH"]) / path
    name = path.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def keep(kernel, configurations) -> None:
    """Leaves a tuned kernel these configurations: ({names: values}, warps, stages)."""
    import triton
    tuner = kernel
    while not isinstance(tuner, triton.runtime.Autotuner):
        tuner = tuner.fn
    tuner.configs = [triton.Config(values, num_warps=warps, num_stages=stages)
                     for values, warps, stages in configurations]


def matmul(size: int, tiles: list[list[int]]) -> None:
    """Each of the tiles once: the fastest launch counts, as for whoever tunes."""
    torch = start()
    stand_in("tritonbench.operators.gemm.triton_matmul_configs", configs=[], get_full_amd_config_space=None)
    stand_in("tritonbench.operators.gemm")
    module = load(GEMM)
    a, b = (torch.zeros(size, size, dtype=torch.float16) for _ in range(2))
    for tile in tiles:
        rows, columns, inner, group, stages, warps = tile
        keep(module.matmul_kernel, [({"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": inner,
                                      "GROUP_M": group}, warps, stages)])
        module.matmul(a, b)


def attention(batch: int, length: int, heads: int, width: int, causal: bool, backward: bool,
              dtype: str) -> None:
    torch = start()
    stand_in("tritonbench.utils.triton_utils", AsyncTaskContext=None)
    for package in ("tritonbench", "tritonbench.utils", "tritonbench.kernels"):
        stand_in(package)
    load("tritonbench/kernels/attention_utils.py")
    module = load(ATTENTION)
    tiles = [(128, 128, 8, 3), (128, 64, 4, 3)] if width == 128 else [(128, 64, 4, 3)]
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16}
    q, k, v = (torch.zeros(batch, heads, length, width, dtype=kinds[dtype]) for _ in range(3))
    for rows, columns, warps, stages in tiles:
        keep(module._attn_fwd_base_opt, [({"BLOCK_M": rows, "BLOCK_N": columns, "ENABLE_TMA": False,
                                           "LOOP_SCHEDULE": "default"}, warps, stages)])
        module.attention_opt(q, k, v, causal, width**-0.5, "base_opt")
