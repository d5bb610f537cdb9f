# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels in CUDA: our few lines in streams.cu, the products of the simulator's tests, and those of a
checkout of github.com/pranjalssh/fast.cu (MIT), which nvcc compiles to PTX."""
import ctypes
import os
import pathlib
import re
import subprocess
import tempfile

import cuda_driver
from cuda_driver import call, u64, void_p

ROOT = pathlib.Path(__file__).resolve().parents[2]
BYTES_OF_BFLOAT16 = 2


class Skipped(RuntimeError):
    """Something is missing that the row needs."""


def arch() -> str:
    return os.environ["CALIBRATE_ARCH"]


def nvrtc(source: str) -> bytes:
    names = [f"libnvrtc.so.{n}" for n in (13, 12)]
    for name in names:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise Skipped(f"none of {', '.join(names)} can be opened")
    program, count = void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={arch().replace('sm', 'compute')}".encode(),
                                    b"--std=c++17")
    if library.nvrtcCompileProgram(program, 2, options) != 0:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(count))
        log = ctypes.create_string_buffer(count.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    library.nvrtcGetPTXSize(program, ctypes.byref(count))
    text = ctypes.create_string_buffer(count.value)
    library.nvrtcGetPTX(program, text)
    return text.value


def nvcc(source: str) -> bytes:
    compiler = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    if not compiler.exists():
        raise Skipped(f"no {compiler}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernel.cu"
        path.write_text(source)
        code = arch().replace("sm", "compute")
        subprocess.run([compiler, "-std=c++17", "-O3", "-w", "--expt-relaxed-constexpr", "--use_fast_math",
                        f"-gencode=arch={code},code={code}", "-ptx", path, "-o", f"{path}.ptx"], check=True)
        return pathlib.Path(f"{path}.ptx").read_bytes()


def fast_cu(path: str) -> str:
    folder = os.environ.get("CALIBRATE_FAST_CU", "")
    if not folder:
        raise Skipped("no checkout of fast.cu (--fast-cu)")
    return (pathlib.Path(folder) / path).read_text()


def launch(ptx: bytes, name: str, blocks: int | tuple[int, ...], threads: int, arguments: list,
           shared: int = 0) -> None:
    """Runs the entry whose name contains `name`."""
    grid = (*(blocks if isinstance(blocks, tuple) else (blocks,)), 1, 1)[:3]
    entry = next(found for found in re.findall(r"\.entry (\w+)", ptx.decode()) if name in found)
    module, function = void_p(), void_p()
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
    call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
    if shared > 48 * 1024:
        call("cuFuncSetAttribute", function, 8, shared)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    pointers = (void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
    call("cuLaunchKernel", function, *grid, threads, 1, 1, shared, None, pointers, None)
    cuda_driver.synchronize()


def buffer(count: int) -> u64:
    return u64(cuda_driver.allocate(count))


def i32(value: int) -> ctypes.c_int:
    return ctypes.c_int(value)


class TensorMap(ctypes.Structure):
    _fields_ = [("words", u64 * 16)]
    _align_ = 64


def tensor_map(base: u64, sizes: list[int], strides: list[int], box: list[int]) -> ctypes.Array:
    """Returns a map of bfloat16, swizzled by 128 bytes. `strides` are bytes, of all sizes but the first."""
    rank = len(sizes)
    storage = ctypes.create_string_buffer(192)  # the call wants 64 bytes' alignment
    start = (ctypes.addressof(storage) + 63) // 64 * 64
    call("cuTensorMapEncodeTiled", void_p(start), 9, rank, base, (u64 * rank)(*sizes),
         (u64 * (rank - 1))(*strides), (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
         0, 3, 0, 0)
    return (ctypes.c_ubyte * 128).from_buffer_copy(ctypes.string_at(start, 128))


def stream(kernel: str) -> None:
    cuda_driver.start()
    floats = 64 * 2**20
    ptx = nvrtc((pathlib.Path(__file__).parent / "streams.cu").read_text())
    buffers = [buffer(4 * floats) for _ in range(3 if kernel == "add" else 2)]
    of_block = {"copy": 1024, "add": 1024, "rowsum": 4096, "softmax": 4096, "transpose": 1024}[kernel]
    launch(ptx, kernel, floats // of_block, 256, buffers)


def fast_sum(kernel: int) -> None:
    cuda_driver.start()
    text = fast_cu("sum.cu").split("const int NUM_KERNELS")[0].replace("#include <cub/cub.cuh>", "")
    kind, block, batch, each = ("int", 512, 20, 1) if kernel == 1 else ("int4", 1024, 16, 4)
    text += f"template __global__ void sumKernel{kernel}<{block}, {batch}>({kind}*, int*, int);\n"
    count = 2**30
    launch(nvcc(text), f"sumKernel{kernel}", -(-count // (block * batch * each)), block,
           [buffer(4 * count), buffer(4), i32(count // each)])


def own_ampere(size: int) -> None:
    cuda_driver.start()
    ptx = nvrtc((ROOT / "sim/tests/gemm/ampere_gemm.cuh").read_text())
    a, b = (buffer(BYTES_OF_BFLOAT16 * size * size) for _ in range(2))
    launch(ptx, "gemm", (size // 64)**2, 128, [a, b, buffer(4 * size * size), i32(size), i32(size)])


def own_hopper(size: int) -> None:
    cuda_driver.start()
    ptx = nvrtc((ROOT / "sim/tests/gemm/hopper_gemm.cuh").read_text())
    a, b, d = (buffer(BYTES_OF_BFLOAT16 * size * size) for _ in range(3))
    tiles = size // 256 * (size // 128)
    maps = [tensor_map(at, [size, size], [2 * size], [64, rows]) for at, rows in ((a, 128), (b, 64), (d, 64))]
    launch(ptx, "gemm", 132, 384, [*maps, i32(size // 128), i32(size // 64), i32(tiles)],
           4 * 32768 + 2 * 16384 + 64)
