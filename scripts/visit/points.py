# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What plots are made of, from the rows of benches: no drawing here, so that it is tested without matplotlib."""
import dataclasses

from visit import rows

# Dense 16-bit products, operations a second, and bytes a second of memory, as in the data sheets that the simulator's
# model has (sim/model): a name is looked for in the driver's.
ROOFS = {"h200": (989e12, 4.8e12), "h100": (989e12, 3.35e12), "a100": (312e12, 2.04e12)}
# Whose times a file of ours has, by the beginning of its name.
OWN = {"tuned_": "lathe tuned", "portable_": "lathe portable"}


@dataclasses.dataclass
class Point:
    verb: str
    op: str
    shape: str
    dtype: str
    who: str               # "lathe", a peer's name, or "predicted"
    microseconds: float
    low: float = None
    high: float = None
    flops: float = None    # operations of the call
    bytes: float = None    # the least that it moves
    gpu: str = ""

    def case(self):
        return self.verb, self.op, self.shape, self.dtype


def verb_of(path, row):
    """Whose rows a file has: attn.csv, tuned_attn.csv, portable_attn.csv, peers_attn.csv and attn-sim-2026-11-21.csv are one."""
    for verb in ("attn", "sparse", "kda", "conv"):
        if verb in path.name:
            return verb
    return ""


def gpu_of(name):
    return next((gpu for gpu in ROOFS if gpu in name.lower()), "")


def points_of(path):
    found = []
    if path.name.startswith("smoke_"):
        return found
    for row in rows.read(path):
        verb = verb_of(path, row)
        if not verb or "shape" not in row or row.get("op") == "copy":
            continue
        common = dict(verb=verb, op=row.get("op", ""), shape=row["shape"], dtype=row.get("dtype", ""))
        measured, predicted = rows.number(row, "us"), rows.number(row, "predicted_us")
        least = rows.number(row, "minimum_MB")
        if measured:
            who = row.get("impl") or next((name for begin, name in OWN.items() if path.name.startswith(begin)), "lathe")
            found.append(Point(**common, who=who, microseconds=measured, low=rows.number(row, "us_p10"),
                               high=rows.number(row, "us_p90"), flops=flops(row, "TFLOP_per_s", measured),
                               bytes=least and least * 1e6, gpu=gpu_of(row.get("gpu", ""))))
        if predicted:
            found.append(Point(**common, who="predicted", microseconds=predicted,
                               flops=flops(row, "predicted_TFLOP_per_s", predicted), bytes=least and least * 1e6,
                               gpu=gpu_of(row.get("predicted_gpu", "") or row.get("gpu", ""))))
    return found


def flops(row, column, microseconds):
    rate = rows.number(row, column)
    if rate:
        return rate * microseconds * 1e6
    least = rows.number(row, "least_Gop")
    return least * 1e9 if least else None


def beside_peers(points):
    """{verb: [(case, {who: point})]} of the cases that lathe and a peer have."""
    cases = {}
    for point in points:
        if point.who not in ("predicted", "lathe tuned"):
            # The later one of two with the same name counts: kda's own is timed once more in turns with its peer.
            cases.setdefault(point.case(), {})[point.who] = point
    out = {}
    for case, who in cases.items():
        if "lathe" in who and len(who) > 1:
            out.setdefault(case[0], []).append((case, who))
    return out


def roofline(points):
    """Points of lathe with operations and bytes: measured ones, or predictions where nothing was measured."""
    usable = [point for point in points if point.flops and point.bytes and "lathe" in (point.who, "")]
    return usable or [point for point in points if point.flops and point.bytes and point.who == "predicted"]


def predicted(points):
    """[(prediction, measurement)] of the same case, on the same device where one was predicted for it."""
    out = []
    for mine in points:
        if mine.who != "lathe":
            continue
        told = [each for each in points if each.who == "predicted" and each.case() == mine.case()]
        same = [each for each in told if each.gpu == mine.gpu]
        if told:
            out.append(((same or told)[0], mine))
    return out
