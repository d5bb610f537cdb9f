#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Times causal conv1d of torch, FLA (Triton) and causal-conv1d, as far as they can be imported, at the
shapes of a conv.csv that lathe_bench wrote: conv_peers.py [--dry-run] [--append FILE] CONV_CSV

CSV on standard output, timed as lathe_bench does: 20 calls back to back between two events, the
median and the 10th and 90th percentile of 50 samples. --dry-run only reads the shapes.
"""
import csv
import importlib
import re
import sys

import peer_runs

COLUMNS = ["op", "shape", "dtype", "impl", "us", "us_p10", "us_p90", "minimum_MB", "GB_per_s", "gpu",
           "driver"]
SIZES = {"f32": 4, "f16": 2, "bf16": 2}


def shapes_of(path):
    """[(op, shape text, dtype, {"B": .., "T": .., "D": .., "W": .., "N": ..})], forward and backward."""
    found = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["op"] not in ("forward", "backward"):
                continue
            sizes = {k: int(v) for k, v in re.findall(r"([BTDWN])(\d+)", row["shape"])}
            found.append((row["op"], row["shape"], row["dtype"], sizes))
    return found


def first_import(name, modules):
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def peers(torch):
    """name -> function (x [B, T, D], weight [D, W], cu_seqlens or None) -> y; None where a peer cannot."""
    functional = torch.nn.functional

    def plain(x, weight, cu):
        if cu is not None:
            return None
        width = weight.shape[1]
        y = functional.conv1d(x.transpose(1, 2), weight.unsqueeze(1), padding=width - 1,
                              groups=weight.shape[0])
        return functional.silu(y[..., :x.shape[1]]).transpose(1, 2)

    found = {"torch": plain}
    fla = first_import("causal_conv1d", ["fla.modules.causal_conv1d", "fla.modules.convolution",
                                         "fla.modules.conv"])
    if fla is not None:
        def triton(x, weight, cu):
            y = fla(x, weight, activation="silu", cu_seqlens=cu)
            return y[0] if isinstance(y, tuple) else y
        found["fla_triton"] = triton
    dao = first_import("causal_conv1d_fn", ["causal_conv1d"])
    if dao is not None:
        def cuda(x, weight, cu):
            if cu is not None or not 2 <= weight.shape[1] <= 4:
                return None
            return dao(x.transpose(1, 2), weight, activation="silu").transpose(1, 2)
        found["causal_conv1d"] = cuda
    return found


def time_us(torch, work):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for sample in range(53):
        begin.record()
        for _ in range(20):
            work()
        end.record()
        end.synchronize()
        if sample >= 3:
            samples.append(begin.elapsed_time(end) * 1e3 / 20)
    samples.sort()
    return [samples[round(share * (len(samples) - 1))] for share in (0.5, 0.1, 0.9)]


def measure(torch, shapes, out):
    dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    gpu, driver = torch.cuda.get_device_name(), torch.version.cuda
    for op, text, dtype, s in shapes:
        torch.manual_seed(1)
        made = dict(device="cuda", dtype=dtypes[dtype], requires_grad=op == "backward")
        x = torch.randn(s["B"], s["T"], s["D"], **made)
        weight = torch.randn(s["D"], s["W"], **made)
        cu = None
        if "N" in s:
            cu = torch.arange(s["N"] + 1, device="cuda", dtype=torch.int64) * s["T"] // s["N"]
        for name, function in peers(torch).items():
            try:
                y = function(x, weight, cu)
                if y is None:
                    continue
                work = lambda: function(x, weight, cu)
                if op == "backward":
                    dy = torch.randn_like(y)
                    work = lambda: torch.autograd.grad(y, (x, weight), dy, retain_graph=True)
                work()
                times = time_us(torch, work)
            except Exception as error:  # a peer that cannot do a shape must not end the others
                print(f"peers: {name} {op} {text}: {error}", file=sys.stderr)
                continue
            moved = (2 if op == "forward" else 3) * s["B"] * s["T"] * s["D"] * SIZES[dtype]
            out.writerow([op, text, dtype, name] + [f"{t:.2f}" for t in times] +
                         [f"{moved / 1e6:.2f}", f"{moved / times[0] / 1e3:.0f}", gpu, driver])
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(peer_runs.run(__doc__, COLUMNS, shapes_of, measure))
