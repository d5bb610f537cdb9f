#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Builds plain_client.c outside the tree and runs it on the drop-in, under every check:

plain_client_test.py FOLDER_OF_LIBCUDA CUDA_INCLUDE [C_COMPILER]

The program is linked against the drop-in as against any libcuda; its kernels become PTX through NVRTC.
Exit status 77, skipped, where there is no NVRTC.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SEEDS = (0, 1, 2)


def find_nvrtc(include):
    """Beside the headers, as in a tool kit and in the wheels that scripts/bootstrap unpacks."""
    for folder in ("../lib64", "../lib", "../targets/x86_64-linux/lib"):
        for path in sorted((pathlib.Path(include) / folder).glob("libnvrtc.so.1[23]")):
            return path
    return None


def to_ptx(nvrtc, source, arch):
    # NVRTC opens this one by its bare name: outside the system's folders it has to be there already.
    for builtins in nvrtc.parent.glob("libnvrtc-builtins.so.*.*"):
        ctypes.CDLL(str(builtins))
    library = ctypes.CDLL(str(nvrtc))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    if library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"plain_client.cu", 0, None, None):
        sys.exit("plain_client_test: NVRTC takes no program")
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={arch}".encode(), b"--std=c++17")
    failed = library.nvrtcCompileProgram(program, 2, options)
    get_size, get = ((library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog) if failed else
                     (library.nvrtcGetPTXSize, library.nvrtcGetPTX))
    get_size(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    get(program, text)
    if failed:
        sys.exit(f"plain_client_test: {text.value.decode()}")
    return text.value


def main():
    driver, include = sys.argv[1:3]
    compiler = sys.argv[3] if len(sys.argv) > 3 else "cc"
    nvrtc = find_nvrtc(include)
    if nvrtc is None:
        print("skipped: no NVRTC")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ptx, program, report = folder / "kernels.ptx", folder / "plain_client", folder / "report.jsonl"
        ptx.write_bytes(to_ptx(nvrtc, (HERE / "plain_client.cu").read_text(), "sm_90a"))
        subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-isystem", include,
                        str(HERE / "plain_client.c"), "-o", str(program), f"-L{driver}", "-l:libcuda.so.1"],
                       check=True)
        for seed in SEEDS:
            environment = {**os.environ, "LD_LIBRARY_PATH": driver, "LATHE_SIM_ARCH": "sm_90a",
                           "LATHE_SIM_CHECK": "all", "LATHE_SIM_SEED": str(seed), "LATHE_SIM_REPORT": str(report)}
            subprocess.run([str(program), str(ptx)], check=True, env=environment)
        if report.exists():  # a clean run writes none
            print(report.read_text())
            sys.exit(1)


if __name__ == "__main__":
    main()
