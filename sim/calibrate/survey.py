#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tells how much of what each operator's kernels did the clock finds in their machine code.

    sim/calibrate/survey.py [--gpu h100,a100] [--only REGEX] [--ptx] [--build FOLDER]

prints a line for each kernel: the share, what the clock replayed, and its time. --ptx replays the
PTX too and prints its time over that of the machine code. ptxas and nvdisasm are found on PATH.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCH = {"h100": "sm_90a", "h200": "sm_90a", "a100": "sm_80"}


def wide(names: str, dtype_and_extents: str) -> dict[str, str]:
    return {name: dtype_and_extents for name in names.split()}


ROWS = wide("q k v", "bf16:1,1024,8,128")
KDA = {**wide("q k v g", "bf16:1,1024,8,128"), "beta": "bf16:1,1024,8"}
KDA_GATE = {**KDA, "A_log": "f32:8", "dt_bias": "f32:1024"}
KDA_BACK = {**KDA_GATE, "do": "bf16:1,1024,8,128"}
GATE = ["use_gate_in_kernel=1", "use_qk_l2norm_in_kernel=1", "use_beta_sigmoid_in_kernel=1"]
CONV = {"x": "bf16:2,1024,1024", "weight": "bf16:1024,4"}
POSITIONS = wide("q_pos k_pos", "i32:1024")
BLOCK = {**ROWS, **POSITIONS, "out": "f32:1,1024,8,128", "lse": "f32:1,8,1024"}
BLOCK_BACK = {**ROWS, **POSITIONS, "dout": "bf16:1,1024,8,128",
              **wide("dq dk dv", "f32:1,1024,8,128"), **wide("lse delta", "f32:1,8,1024")}
SPARSE = {"q": "bf16:1,256,16,128", **wide("k v", "bf16:1,1024,1,128"),
          "indices": "i32:1,256,1,256"}
DECODE = {"q": "bf16:8,1,16,128", **wide("k_cache v_cache", "bf16:256,64,4,128"),
          "block_table": "i32:8,32", "cache_seqlens": "i32:8"}


def attention(width: int, backward: bool) -> dict[str, str]:
    names = "q k v dout" if backward else "q k v"
    return wide(names, f"bf16:1,1024,{1024 // width},{width}")


# By name: the operator, its tensors, its options.
CASES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    **{f"attention {w}{' causal' if c else ''}{' backward' if b else ''}":
       ("flash_attention", attention(w, b), ["causal=1"] if c else [])
       for w in (64, 128, 256) for b in (False, True) for c in (False, True)},
    "attention block": ("flash_attention_block", BLOCK, []),
    "attention block backward": ("flash_attention_block_bwd", BLOCK_BACK, []),
    "attention delta": ("flash_attention_delta", {
        **wide("out dout", "bf16:1,1024,8,128"), "lse": "f32:1,8,1024"}, []),
    "merge": ("lse_merge", {
        **wide("out block_out", "f32:1,1024,8,128"), **wide("lse block_lse", "f32:1,8,1024")}, []),
    "decode": ("flash_attention_decode", DECODE, []),
    "sparse": ("sparse_flash_attention", SPARSE, ["scale=0.1"]),
    "sparse backward": ("sparse_flash_attention", {**SPARSE, "dout": "bf16:1,256,16,128"},
                        ["scale=0.1"]),
    "kda": ("kda", KDA, []),
    "kda gate": ("kda", KDA_GATE, GATE),
    "kda backward": ("kda", {**KDA, "do": "bf16:1,1024,8,128"}, []),
    "kda gate backward": ("kda", KDA_BACK, GATE),
    "kda recurrent": ("kda_recurrent", {**wide("q k v g", "bf16:4,4,8,128"),
                                        "beta": "bf16:4,4,8"}, []),
    "conv1d": ("causal_conv1d", CONV, ["activation=silu"]),
    "conv1d backward": ("causal_conv1d", {**CONV, "dy": "bf16:2,1024,1024"}, ["activation=silu"]),
    "conv1d update": ("causal_conv1d_update", {"x": "bf16:64,1024", "weight": "bf16:1024,4",
                                               "state": "bf16:64,1024,4"}, []),
    "shard": ("shard", {"x": "bf16:1024,1,8,128", "indices": "i32:512"}, []),
}


def replays(case: str, gpu: str, build: pathlib.Path, cache: str, ptx: bool) -> list[dict]:
    operator, tensors, options = CASES[case]
    command = [str(build / "bin/lathe"), "count", operator, "--device", "sim",
               "--arch", ARCH[gpu], "--cache-dir", cache]
    command += [word for name, text in tensors.items() for word in ("--tensor", f"{name}={text}")]
    command += [word for option in options for word in ("--set", option)]
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "clock.json"
        settings = {"LATHE_SIM_DIR": str(build / "sim"), "LATHE_SIM_GPU": gpu,
                    "LATHE_SIM_SAMPLE_BLOCKS": "8", "LATHE_SIM_SAMPLE_INSTRUCTIONS": "1000000",
                    "LATHE_SIM_CHECK": "memcheck", "LATHE_SIM_CLOCK": str(lines)}
        if ptx:
            settings["LATHE_SIM_NVDISASM"] = "none"
        run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
        if run.returncode != 0:
            raise ValueError((run.stderr.strip() or run.stdout.strip()).splitlines()[-1])
        return [json.loads(line) for line in lines.read_text().splitlines()]


def share(replay: dict) -> float | None:
    if replay["from"] == "sass":
        return replay["mapped"]
    missed = re.search(r"only (\d+) %", replay["made_by"])
    return int(missed[1]) / 100 if missed else None


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gpu", default="h100,a100")
    arguments.add_argument("--only", default=".")
    arguments.add_argument("--ptx", action="store_true")
    arguments.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    words = arguments.parse_args()
    shares, ratios = [], []
    with tempfile.TemporaryDirectory() as cache:
        for gpu in words.gpu.split(","):
            for case in (name for name in CASES if re.search(words.only, name)):
                try:
                    own = replays(case, gpu, words.build, cache, False)
                    ptx = replays(case, gpu, words.build, cache, True) if words.ptx else own
                except (OSError, ValueError) as error:
                    print(f"{gpu} {case:<28} {error}", flush=True)
                    continue
                for at, (one, other) in enumerate(zip(own, ptx)):
                    shares.append(share(one))
                    text = "  ? " if shares[-1] is None else f"{shares[-1]:4.2f}"
                    line = f"{gpu} {case:<28} {at} {text} {one['from']:<4}"
                    line += f" {one['microseconds']:9.1f} us"
                    if words.ptx and one["from"] == "sass":
                        ratios.append(other["microseconds"] / one["microseconds"])
                        line += f"  ptx/sass {ratios[-1]:4.2f}"
                    print(line, flush=True)
    found = sum(part is not None and part >= 0.9 for part in shares)
    print(f"{found} of {len(shares)} kernels have a share of at least 0.90")
    if ratios:
        near = sum(1 / 1.15 <= ratio <= 1.15 for ratio in ratios)
        print(f"ptx/sass: median {statistics.median(ratios):.2f}, "
              f"{near} of {len(ratios)} within 15 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
