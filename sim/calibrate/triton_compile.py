# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles a kernel of a Python file with any Triton since 3.0, without a GPU and without launching it.

triton_compile.py REQUEST_AS_JSON prints a JSON object: the PTX, the entry's name, its warps and bytes of
shared memory, and which arguments the entry takes. The request has the file, the kernel, an arch, the
arguments in their order ("*fp16", "i32:1024", "f32"), values of the constants, warps and stages.
"""
import importlib.util
import json
import pathlib
import sys
import types

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import MockTensor

DTYPES = {"*fp16": torch.float16, "*bf16": torch.bfloat16, "*fp32": torch.float32}


class Driver:
    """Answers what the compiler asks of a GPU's driver."""

    def __init__(self, arch: int):
        self.arch = arch

    def get_current_target(self):
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_benchmarker(self):
        return None  # a tuner wants it when it is made; none of them runs here


def load(path: pathlib.Path):
    """The module with its package's relative imports, of which only files beside it exist."""
    def stand_in(name: str, folder: list[str], **contents) -> None:
        module = types.ModuleType(name)
        module.__path__ = folder
        vars(module).update(contents)
        sys.modules[name] = module

    stand_in("checkout", [])
    stand_in("checkout.kernels", [str(path.parent)])
    stand_in("checkout.utils", [])
    stand_in("checkout.utils.triton_utils", [], AsyncTaskContext=None)
    stand_in("checkout.kernels.triton_matmul_configs", [], configs=[], get_full_amd_config_space=None)
    name = f"checkout.kernels.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def argument(text: str):
    if text in DTYPES:
        return MockTensor(DTYPES[text])
    kind, _, value = text.partition(":")
    return None if kind == "none" else int(value) if kind == "i32" else float(value)


def main() -> None:
    request = json.loads(sys.argv[1])
    driver = Driver(request["arch"])
    triton.runtime.driver.set_active(driver)
    torch.cuda.get_device_capability = lambda device=None: divmod(request["arch"], 10)
    kernel = getattr(load(pathlib.Path(request["file"])), request["kernel"])
    while not isinstance(kernel, triton.runtime.JITFunction):
        kernel = kernel.fn
    compiled = kernel.warmup(*(argument(text) for text in request["arguments"]), grid=(1,),
                             num_warps=request["warps"], num_stages=request["stages"],
                             **request["constants"])
    # An argument that is 1 or nothing became a constant.
    taken = [at for at, text in enumerate(request["arguments"]) if text not in ("none", "i32:1")]
    metadata = compiled.metadata
    print(json.dumps({"ptx": compiled.asm["ptx"], "name": metadata.name, "warps": metadata.num_warps,
                      "shared": metadata.shared, "taken": taken, "triton": triton.__version__}))


if __name__ == "__main__":
    main()
