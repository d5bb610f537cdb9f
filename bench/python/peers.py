# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The same calls through flash-linear-attention and flash_attn, up to where they launch.

Nothing of theirs is here: fla is imported from a folder, and of flash_attn the one file
flash_attn_interface.py. Where they stop:
- fla calls kernels of Triton. Triton's JITFunction.run finds its kernel by the arguments as always,
  but what it finds is a kernel whose run() and launch_metadata() do nothing; nothing is compiled
  and nothing is launched. An autotuner measures nothing and takes its first configuration.
  torch.zeros is torch.empty, because a fill is a launch as well. What remains is less than fla
  takes on a GPU.
- flash_attn calls the functions of its extension flash_attn_2_cuda. Here they allocate the outputs
  by torch.empty_like and torch.empty and return.
"""
from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from typing import Any

import torch

import cases


class _Kernel:
    """What Triton would have compiled."""

    function = packed_metadata = None

    def launch_metadata(self, *arguments: Any) -> None:
        """Triton asks for it before each launch."""

    def run(self, *arguments: Any) -> None:
        """The launch."""


def _stop_triton() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver, jit
    from triton.runtime.autotuner import Autotuner

    class Driver:
        """A GPU on which nothing can be launched."""

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            return lambda call, **options: [1.0, 1.0, 1.0]

        class utils:
            """What fla asks of the device."""

            @staticmethod
            def get_device_properties(device: int) -> dict[str, int]:
                return {"max_shared_mem": 227 << 10, "multiprocessor_count": 132,
                        "max_num_regs": 65536, "warpSize": 32}

    def find(self: Any, key: str, signature: Any, device: int, *arguments: Any) -> _Kernel:
        kernel = _Kernel()
        self.device_caches[device][0][key] = kernel
        return kernel

    # On a GPU a fill is a launch too. On the processor it would be counted in full.
    torch.zeros, torch.zeros_like = torch.empty, torch.empty_like
    driver.set_active(Driver())
    jit.JITFunction._do_compile = find
    Autotuner._bench = lambda self, *arguments, **options: [1.0, 1.0, 1.0]


def _fla(folder: pathlib.Path) -> cases.Calls:
    sys.path.append(str(folder))
    _stop_triton()
    # fla looks at the GPU when it is imported.
    torch.cuda.get_device_name = lambda *device: "NVIDIA H100"
    torch.cuda.get_device_capability = lambda *device: (9, 0)
    from fla.modules.convolution import causal_conv1d
    from fla.ops.kda import chunk_kda
    found = [*cases.three_ways("fla chunk_kda, up to its launches",
                               lambda *given: chunk_kda(*given)[0], cases.delta),
             *cases.three_ways("fla causal_conv1d, up to its launches",
                               lambda x, weight: causal_conv1d(x, weight, activation="silu")[0],
                               cases.convolution)]
    # Its backwards let torch add and cast tensors, which the processor would compute here.
    return [(name, call) for name, call in found if "backward" not in name]


def _flash_attn(file: pathlib.Path) -> cases.Calls:
    extension: Any = types.ModuleType("flash_attn_2_cuda")

    def fwd(q: Any, k: Any, v: Any, *others: Any) -> Any:
        out, lse = torch.empty_like(q), torch.empty(1, 8, 128, dtype=torch.float32)
        return out, lse, torch.empty(0), torch.empty(2, dtype=torch.int64)

    def bwd(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dq: Any, dk: Any, dv: Any,
            *others: Any) -> Any:
        return dq, dk, dv, torch.empty(1, 8, 128, dtype=torch.float32)

    extension.fwd, extension.bwd = fwd, bwd
    sys.modules["flash_attn_2_cuda"] = extension
    # Its operators are for "cuda", where the tensors of this bench are not.
    custom_op = torch.library.custom_op
    torch.library.custom_op = (  # type: ignore[assignment]
        lambda *names, device_types=None, **options: custom_op(*names, **options))
    spec = importlib.util.spec_from_file_location("flash_attn_interface", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.library.custom_op = custom_op
    return cases.three_ways("flash_attn_func of flash_attn, up to its extension",
                            lambda q, k, v: module.flash_attn_func(q, k, v, causal=True),
                            cases.attention)


def calls(fla: pathlib.Path | None, flash_attn: pathlib.Path | None) -> cases.Calls:
    """Returns the calls of the peers that are there."""
    return [*(_fla(fla) if fla else []), *(_flash_attn(flash_attn) if flash_attn else [])]
