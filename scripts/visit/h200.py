# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What was measured on an H200, from the rows of bench/results: README's table and chart, and those of docs/figures.md.

lathe has the tiles that plans take by themselves. Figures that others published, for calls that were not timed beside
lathe, are in bench/results/published.csv, and every text that shows one says so.
"""
import csv
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sim/calibrate"))
from measured import default_tile  # noqa: E402

RESULTS, DAY = ROOT / "bench/results", "h200-2026-11-26"
WIDTHS = (64, 128, 256)
LENGTH, COLUMNS, BATCH = 4096, 4096, 4
FILES = {"attn": "attn-sm90-tiles", "portable": "attn", "peers": "attn-peers", "calibration": "calibration",
         "kda": "kda", "conv": "conv"}

# KDA's cases of scripts/predict, and their names in the rows of bench/results.
KDA_CASES = {"KDA, T 8192, 96 heads of 128": "B1 T8192 H96 K128 V128",
             "KDA, T 8192, 24 heads of 128": "B1 T8192 H24 K128 V128 N1",
             "KDA, T 2048, 12 heads of 128": "B1 T2048 H12 K128 V128 N1",
             "KDA, T 16384 in 8 sequences, 16 heads of 128": "B1 T16384 H16 K128 V128 N8",
             "KDA, 8 times T 1024, 8 heads of 64": "B8 T1024 H8 K64 V64"}


def table(name):
    path = RESULTS / (f"{FILES[name]}-{DAY}.csv" if name in FILES else f"{name}.csv")
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def find(name, **wanted):
    """Returns the one row with these values, or None: two rows for one question are an error."""
    found = [row for row in table(name) if all(row[column] == value for column, value in wanted.items())]
    if len(found) > 1:
        raise ValueError(f"{name}: {len(found)} rows have {wanted}; one is needed")
    return found[0] if found else None


def attention_shape(width, causal):
    heads = COLUMNS // width
    return f"B{BATCH} Sq{LENGTH} Sk{LENGTH} H{heads} HK{heads} D{width} DV{width}" + (" causal" if causal else "")


def rate(row):
    """Returns TFLOP/s of a row: the calibration's column `measured` has its own unit."""
    return row and float(row.get("TFLOP_per_s") or row["measured"])


def forward(width, causal):
    """Returns TFLOP/s of attention's forward by whom; None where nobody measured it."""
    shape = attention_shape(width, causal)
    tile, rescale = default_tile(shape)
    peer = {"op": "forward", "shape": shape, "dtype": "bf16"}
    flash3 = f"FA-3 at the shapes of attn.csv D {width}{' causal' if causal else ''} {LENGTH}"
    return {"lathe": rate(find("attn", **peer, tile=tile, rescale=rescale)),
            "lathe, portable": rate(find("portable", **peer)),
            "cuDNN": rate(find("peers", **peer, impl="torch_cudnn")),
            "FlashAttention-3": rate(find("calibration", row=flash3)),
            "FlashAttention-2": rate(find("peers", **peer, impl="torch_flash"))}


def backward(width, causal):
    shape = attention_shape(width, causal)
    peer = {"op": "backward", "shape": shape, "dtype": "bf16"}
    return {"lathe, portable": rate(find("portable", **peer)), "cuDNN": rate(find("peers", **peer, impl="torch_cudnn")),
            "FlashAttention-2": rate(find("peers", **peer, impl="torch_flash"))}


def flash3_backward(case):
    """Returns TFLOP/s of FlashAttention-3's backward at 8192 tokens, or None; the case is such as "D 128"."""
    return rate(find("calibration", row=f"FA-3 backward {case} 8192 h100"))


def clock():
    """Returns {case: {direction: ms}} by the simulator's clock on an H200: what scripts/predict left."""
    found = json.loads((RESULTS / "clock-predictions.json").read_text(encoding="utf-8"))
    times = {}
    for case, gpus in found.items():
        times[case] = {"forward": 0.0, "backward": 0.0}
        for kernel in gpus["h200"]:
            times[case][kernel["direction"]] += kernel["clock"] / 1e3
    return times


def milliseconds(name, op, shape):
    """Returns the time of a call, or None."""
    row = find(name, op=op, shape=shape, dtype="bf16")
    return row and float(row["us"]) / 1000


def published(op, shape):
    """Returns [(who, on which GPU or "", ms)]: what others published for this call."""
    return [(row["who"], row["gpu"], float(row["ms"])) for row in table("published")
            if (row["op"], row["shape"]) == (op, shape)]


def kda_beside_peers(shape="B1 T8192 H64 K128 V128"):
    """[(who, published or measured, ms)] of KDA's forward on an H200, lathe first."""
    others = [(who, True, ms) for who, gpu, ms in published("forward", shape) if gpu == "H200"]
    return [("lathe", False, milliseconds("kda", "forward", shape)), *others]
