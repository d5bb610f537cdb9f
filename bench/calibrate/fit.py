# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A search for constants of the clock: one after the other, down the median of |log ratio|."""
from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from rows import Row

STEPS = (0.8, 1.25)


def score(rows: list[Row], results: dict[str, dict]) -> tuple[float, float]:
    logs = [abs(math.log(results[row.key]["predicted"] / row.published)) for row in rows
            if "predicted" in results[row.key]]
    return statistics.median(logs), statistics.fmean(logs)


def text_of(values: dict[str, float]) -> str:
    return ",".join(f"{name}={value:.6g}" for name, value in values.items())


def search(rows: list[Row], ranges: list[str], given: str,
           run: Callable[[list[Row], str], dict[str, dict]]) -> None:
    """Each of `ranges` is name:least:start:most. The mean decides where medians are equal."""
    limits = {}
    values = {name: float(value) for name, value in (pair.split("=") for pair in given.split(",") if pair)}
    for text in ranges:
        name, least, start, most = text.split(":")
        limits[name] = (float(least), float(most))
        values[name] = float(start)
    best = score(rows, run(rows, text_of(values)))
    print(f"{text_of(values)}: median {math.expm1(best[0]):.1%}, mean {math.expm1(best[1]):.1%}", flush=True)
    better = True
    while better:
        better = False
        for name, (least, most) in limits.items():
            for step in STEPS:
                tried = values | {name: min(most, max(least, values[name] * step))}
                if tried == values:
                    continue
                found = score(rows, run(rows, text_of(tried)))
                print(f"{text_of(tried)}: median {math.expm1(found[0]):.1%}, mean {math.expm1(found[1]):.1%}",
                      flush=True)
                if found < best:
                    best, values, better = found, tried, True
                    break
    print(f"best: {text_of(values)}")
