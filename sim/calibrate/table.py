# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The table of published and predicted figures, and what it says about the clock."""
from __future__ import annotations

import math
import pathlib
import statistics

from rows import SOURCES, Row

BEGIN, END = "<!-- calibrate: begin -->", "<!-- calibrate: end -->"


def busiest(result: dict) -> dict:
    """The launch that takes most of the time."""
    return max(result["launches"], key=lambda launch: launch["microseconds"])


def code_of(launch: dict) -> str:
    """Returns what the clock replayed: sass and the share of it that the walk met, or ptx."""
    return f"sass {launch['mapped']:.2f}" if launch["from"] == "sass" else "ptx"


def progress(row: Row, result: dict) -> str:
    if "error" in result:
        return f"{row.key:<58} {result['error']}"
    use = busiest(result)
    ratio = f"{result['predicted'] / row.published:6.2f}" if row.published else "      "
    return (f"{row.key:<58} {row.published:7.0f} {result['predicted']:7.0f} {ratio} "
            f"{'fit' if row.fitted else '   '} {code_of(use)} {use['bound']}"
            f"{' STUCK' if use.get('stuck') else ''}")


def errors(rows: list[Row], results: dict[str, dict]) -> list[float]:
    """max(ratio, 1 / ratio) - 1 of each row."""
    found = []
    for row in rows:
        predicted = results.get(row.key, {}).get("predicted")
        if predicted and row.published:
            found.append(math.exp(abs(math.log(predicted / row.published))) - 1)
    return found


def line_of(name: str, found: list[float]) -> str:
    if not found:
        return f"| {name} | 0 | | | |"
    near = sum(error <= 0.15 for error in found) / len(found)
    return f"| {name} | {len(found)} | {statistics.median(found):.0%} | {max(found):.0%} | {near:.0%} |"


def pair_lines(pairs: list[tuple[str, str, str]], results: dict[str, dict]) -> list[str]:
    right, wrong = 0, []
    for faster, slower, _ in pairs:
        first, second = (results.get(key, {}).get("microseconds") for key in (faster, slower))
        if not first or not second:
            continue
        rates = [results[key]["predicted"] for key in (faster, slower)]
        if rates[0] > rates[1]:
            right += 1
        else:
            wrong.append(f"{faster} over {slower} (predicted {rates[0]:.0f} and {rates[1]:.0f})")
    lines = ["", f"Pairs in the published order: {right} of {right + len(wrong)}."]
    if wrong:
        lines += ["The others, of which the first is the faster one:", ""] + [f"- {text}" for text in wrong]
    return lines


def markdown(rows: list[Row], pairs: list[tuple[str, str, str]], results: dict[str, dict]) -> str:
    have = [row for row in rows if "predicted" in results.get(row.key, {})]
    lines = ["| rows | number | median error | worst | within 15 % |", "|---|---|---|---|---|"]
    for half, fitted in (("fitted half", True), ("other half", False)):
        chosen = [row for row in have if row.fitted == fitted and row.published]
        lines.append(line_of(half, errors(chosen, results)))
        for word, same in (("the measured kernel", True), ("a like one", False)):
            lines.append(line_of(f"{half}: {word}", errors([r for r in chosen if r.same == same], results)))
    lines += pair_lines(pairs, results) + [""]
    lines += ["| family | row | GPU | published | predicted | ratio | half | kernel | code | bound | source |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
    names = {source: number for number, source in enumerate(SOURCES, 1)}
    for row in have:
        predicted, launch = results[row.key]["predicted"], busiest(results[row.key])
        ratio = f"{predicted / row.published:.2f}" if row.published else ""
        published = f"{row.published:.0f} {row.unit}" if row.published else "order"
        half = "fitted" if row.fitted else "other" if row.published else ""
        lines.append(f"| {row.family} | {row.name} | {row.gpu} | {published} | {predicted:.0f} | {ratio} | "
                     f"{half} | {'same' if row.same else 'like'} | {code_of(launch)} | {launch['bound']} | "
                     f"{names[row.source]} |")
    lines += ["", "Sources:", ""] + [f"{number}. {SOURCES[source]}" for source, number in names.items()]
    return "\n".join(lines)


def put(path: pathlib.Path, text: str) -> None:
    """Replaces what is between the two marks."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
