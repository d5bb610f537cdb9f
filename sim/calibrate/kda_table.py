#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""KDA on an H100 by the simulator's clock, beside what others have measured there:

    kda_table.py [--only REGEX] [--write FILE.md]

Rows are calls with bf16 elements and K = V = 128: those with 96 heads, and the ten sizes of cudnn-frontend's comparisons. A
forward has an initial and a final state, a backward none. `lathe explain --clock` times each, with the kernels that a plan
takes and with the portable ones (`--portable`, which takes half an hour more). ptxas, nvdisasm and NVRTC must be found. The
table goes to standard output, and between two marks of the file. bench/results/published.csv has the figures of others.
"""
from __future__ import annotations

import argparse
import csv
import math
import os
import pathlib
import re
import subprocess
import tempfile
from typing import Tuple

from beside_copy import ROOT, explained, put_between

GPU, BANDWIDTH = "h100", 3.35e12  # bytes a second, by the data sheet
Size = Tuple[int, int, int]
# Tokens of a call, heads, sequences that the tokens are packed into.
TEN = ((1024, 4, 1), (2048, 12, 1), (2048, 16, 1), (3072, 10, 1), (4096, 8, 1), (4096, 12, 1), (8192, 12, 4), (8192, 16, 1),
       (8192, 24, 1), (16384, 16, 8))
OTHERS = ((8192, 96, 1), (8192, 12, 1), (4096, 16, 1))
BACKWARD = ((8192, 96, 1), (4096, 16, 1))


def call(options: argparse.Namespace, cache: str, size: Size, backward: bool) -> tuple[dict[str, float], float]:
    """Microseconds of each launch by its kernel's name, and those of the least bytes. A backward has no forward beside it."""
    tokens, heads, sequences = size
    rows = f"bf16:1,{tokens},{heads}"
    words = ["kda", *(f"{name}={rows},128" for name in "qkvg"), f"beta={rows}"]
    states = ["output_final_state=1", f"initial_state=f32:{sequences},{heads},128,128"]
    # A call computes the outputs that it names, and o too if it names none.
    gradients = [*(f"{name}={rows},128" for name in ("do", "dq", "dk", "dv", "dg")), f"dbeta={rows}"]
    words += gradients if backward else states
    words += [f"cu_seqlens=i32:{sequences + 1}"] if sequences > 1 else []
    found = explained(options, cache, words)
    times: dict[str, float] = {}
    for kernel in found["clock"][0]["kernels"]:
        times[kernel["name"]] = times.get(kernel["name"], 0.0) + kernel["microseconds_of_all"]
    return times, found["estimate"]["minimum_bytes"] / BANDWIDTH * 1e6


def published(op: str, size: Size) -> list[tuple[float, str]]:
    """Microseconds that others measured on an H100, the fastest first."""
    tokens, heads, sequences = size
    with open(ROOT / "bench/results/published.csv", encoding="utf-8") as file:
        return sorted((1e3 * float(row["ms"]), row["who"]) for row in csv.DictReader(file)
                      if row["op"] == op and row["gpu"] == "H100"
                      and row["shape"].startswith(f"B1 T{tokens} H{heads} K128 V128")
                      and row["shape"].endswith(f"N{sequences}"))


def row(options: argparse.Namespace, cache: str, size: Size, backward: bool) -> tuple[str, float]:
    """A line of the table, and the microseconds of all launches."""
    op = "backward" if backward else "forward"
    tokens, heads, sequences = size
    name = f"{op}, T {tokens}, H {heads}" + (f", {sequences} sequences" if sequences > 1 else "")
    if not re.search(options.only, name):
        return "", math.nan
    times, floor = call(options, cache, size, backward)
    total = sum(times.values())
    portable = "-"
    if options.portable:
        os.environ["LATHE_FAMILY"] = "portable"
        portable = f"{sum(call(options, cache, size, backward)[0].values()):.0f}"
        del os.environ["LATHE_FAMILY"]
    one = "a cluster" if "kda_forward_cluster" in times else "one walk"
    parts = ", ".join(f"{time:.0f}" for time in times.values()) if len(times) > 1 else one
    others = ", ".join(f"{time:.0f} {who}" for time, who in published(op, size)) or "-"
    line = f"| {name} | {portable} | {total:.0f} | {parts} | {others} | {floor:.0f} |"
    print(line, flush=True)
    return line, total


def table(options: argparse.Namespace, cache: str) -> str:
    lines = ["| bf16, K = V = 128 | portable | Hopper | of Hopper | published | floor |", "|---|---|---|---|---|---|"]
    for backward, others, published_mean in ((False, OTHERS, "54 cuDNN, 438 FlashKDA"), (True, BACKWARD, "316 cuDNN")):
        ten = []
        for size in (*others, *TEN):
            line, time = row(options, cache, size, backward)
            lines += [line] if line else []
            ten += [time] if size in TEN else []
        # The ten as their authors compare them; a published mean is of the same ten.
        mean = math.exp(sum(map(math.log, ten)) / len(ten))
        if not math.isnan(mean):
            op = "backward" if backward else "forward"
            lines.append(f"| {op}, geometric mean of the ten | | {mean:.0f} | | {published_mean} | |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build/bin/lathe")
    parser.add_argument("--only", default="", help="calls whose row's name it matches")
    parser.add_argument("--portable", action="store_true", help="the portable kernels too")
    parser.add_argument("--cache", help="a folder of kernels, in place of a new one")
    parser.add_argument("--write", type=pathlib.Path, help="puts the table into this Markdown file")
    options = parser.parse_args()
    options.gpu = GPU
    with tempfile.TemporaryDirectory() as fresh:
        text = table(options, options.cache or fresh)
    if options.write:
        put_between(options.write, "kda heads", text)


if __name__ == "__main__":
    main()
