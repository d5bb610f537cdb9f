# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The library's own kernels, through `lathe count`."""
import os
import subprocess


def tensors(batch: int, length: int, heads: int, width: int, dtype: str, backward: bool) -> list[str]:
    wide = f"{dtype}:{batch},{length},{heads},{width}"
    names = ["q", "k", "v", "out"] + (["dout", "dq", "dk", "dv"] if backward else [])
    return [f"{name}={wide}" for name in names] + [f"lse=f32:{batch},{heads},{length}"]


def attention(batch: int, length: int, heads: int, width: int, causal: bool, backward: bool,
              dtype: str) -> None:
    command = [os.environ["CALIBRATE_LATHE"], "count", "flash_attention", "--device", "sim",
               "--arch", os.environ["CALIBRATE_ARCH"], "--cache-dir", os.environ["CALIBRATE_CACHE"]]
    for tensor in tensors(batch, length, heads, width, dtype, backward):
        command += ["--tensor", tensor]
    if causal:
        command += ["--set", "causal=1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
