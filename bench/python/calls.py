#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What a call from Python costs: calls.py LIBRARIES [--fla FOLDER] [--flash-attn FILE] [--runs N]

LIBRARIES holds the null driver (libcuda.so.1) and liblathe_lend.so; the package lathe is imported
as usual (PYTHONPATH). No GPU is used: CPU tensors are lent as tensors of a GPU (lent.py), so what
is timed is the processor's way from Python up to the driver, which does nothing. Torch's CPU
allocator stands in for its GPU one, and a backward runs on the caller's thread, where on a GPU
autograd has one of its own.

A figure is processor time of one call. Each is the least of several runs, and the median beside it:
another job on the machine can only make a run slower.

--fla is a folder with flash-linear-attention, and --flash-attn the file flash_attn_interface.py of
flash_attn; peers.py says where their calls are stopped.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import time
import tracemalloc
from typing import Any, Callable

# A block of memory is not given back to the system and not moved: what torch's allocator of a GPU
# does. Addresses are multiples of 256, as there.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
_CALLS = 500


def start_anew(libraries: pathlib.Path) -> None:
    """Starts the program again with the allocator as it has to be."""
    if os.environ.get("LATHE_BENCH_CALLS"):
        return
    environment = {**os.environ, **_ENVIRONMENT, "LATHE_BENCH_CALLS": "1",
                   "LD_PRELOAD": str(libraries / "liblathe_aligned.so")}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def microseconds(call: Callable[[], object], runs: int) -> tuple[float, float]:
    """Returns (least, median) processor time of a call."""
    for _ in range(200):
        call()
    found = []
    for _ in range(runs):
        begin = time.process_time()
        for _ in range(_CALLS):
            call()
        found.append((time.process_time() - begin) / _CALLS * 1e6)
    return min(found), statistics.median(found)


def allocations(call: Callable[[], object]) -> tuple[int, int]:
    """Returns how often torch allocates memory in a call, and how many blocks of Python live on
    after the call whose results were dropped."""
    import torch
    for _ in range(20):
        call()
    with torch.profiler.profile(profile_memory=True,
                                activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        kept = call()
    grown = sum(1 for each in profile.profiler.kineto_results.events()
                if each.name() == "[memory]" and each.nbytes() > 0)
    del kept
    tracemalloc.start()
    call()
    before = tracemalloc.take_snapshot()
    for _ in range(100):
        call()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    here = [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
    stays = sum(each.count_diff for each in after.filter_traces(here).compare_to(
        before.filter_traces(here), "filename"))
    return grown, round(stays / 100)


def row(name: str, call: Callable[[], object], runs: int) -> None:
    """Prints a line of the table."""
    least, median = microseconds(call, runs)
    memory, blocks = allocations(call)
    print(f"| {name} | {least:.2f} | {median:.2f} | {memory} | {blocks} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("libraries", type=pathlib.Path)
    options.add_argument("--fla", type=pathlib.Path)
    options.add_argument("--flash-attn", type=pathlib.Path)
    options.add_argument("--runs", type=int, default=40)
    options.add_argument("--only", default="", help="what has this in its name")
    given = options.parse_args()
    start_anew(given.libraries.resolve())
    from lent import Lent  # imports torch, and lathe once the driver is there
    lent = Lent(given.libraries.resolve())
    import torch

    import cases
    print("| call | least us | median us | torch allocations | blocks left |")
    print("|---|---|---|---|---|")

    def show(found: list[tuple[str, Any]]) -> None:
        for name, call in found:
            if given.only in name:
                row(name, call, given.runs)

    for name, line, slots, plan in cases.plans():
        alone = min(lent.seconds_of_plan(line, slots, 2000) for _ in range(given.runs)) * 1e6
        print(f"| lathe_plan_run from C, {name} | {alone:.2f} | | 0 | 0 |")
        show([(f"plan(), outputs given, {name}", plan)])
    show(cases.lathe_calls())
    with torch.inference_mode():  # as servers call
        show(cases.serving_calls())
    show(cases.torch_alone())
    if given.fla or given.flash_attn:
        import peers
        show(peers.calls(given.fla, given.flash_attn))


if __name__ == "__main__":
    main()
