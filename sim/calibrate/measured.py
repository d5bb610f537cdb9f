#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the simulator's clock with our own measurements: measured.py [--only TEXT] [--write FILE.md]

For each chosen row of tables that scripts/gpu or lathe_bench wrote on a GPU, `lathe explain --clock` says how long that
call takes there. ptxas and nvdisasm must be found. The table goes to standard output, and between two marks of the file.
"""
from __future__ import annotations

import argparse
import csv
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
GPU, DAY = "h200", "2026-11-26"
# Tables, the family that made them, and the rows that the clock is asked for: the others are of the same kernels.
# Conv1d has had other kernels since it was measured.
TABLES = (("attn", "portable", r"B4 Sq4096 .*H(64|32|16) "), ("attn-sm90-tiles", "auto", r"(B4 Sq4096|D192)"),
          ("kda", "portable", r"B1 T8192"))


CALLED = ("forward", "backward")


def sizes(shape: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"\b(B|T|Sq|Sk|HK|HV|H|DV|D|K|V|W)(\d+)\b", shape)}


def attention(s: dict[str, int], dtype: str, shape: str, backward: bool) -> list[str]:
    q = {"q": s["D"], **({"dout": s["DV"]} if backward else {})}
    words = [f"{name}={dtype}:{s['B']},{s['Sq']},{s['H']},{width}" for name, width in q.items()]
    words += [f"{name}={dtype}:{s['B']},{s['Sk']},{s['HK']},{width}" for name, width in (("k", s["D"]), ("v", s["DV"]))]
    return ["flash_attention", *words, *(["causal=1"] if "causal" in shape else [])]


def kda(s: dict[str, int], dtype: str, _: str, backward: bool) -> list[str]:
    wide = ("q", "k", "g", "v", "do") if backward else ("q", "k", "g", "v")
    return ["kda", *(f"{name}={dtype}:{s['B']},{s['T']},{s['H']},{s['K']}" for name in wide),
            f"beta={dtype}:{s['B']},{s['T']},{s['H']}"]


CALLS = {"attn": attention, "attn-sm90-tiles": attention, "kda": kda}


def predicted(words: list[str], family: str, backward: bool, lathe: pathlib.Path, cache: str) -> tuple[float, str]:
    """Microseconds, and what the busiest kernel is bound by. A call with gradients has its forward's kernels first."""
    command = [str(lathe), "explain", words[0], "--gpu", GPU, "--clock", "--json", "--cache-dir", cache]
    for word in words[1:]:
        command += ["--tensor" if ":" in word else "--set", word]
    done = subprocess.run(command, env=os.environ | {"LATHE_FAMILY": family}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
    kernels = json.loads(done.stdout)["clock"][0]["kernels"]
    forwards = [k for k in kernels if re.search(r"forward", k["name"])]
    chosen = [k for k in kernels if k not in forwards] if backward else forwards
    busiest = max(chosen, key=lambda k: k["microseconds_of_all"])
    return sum(k["microseconds_of_all"] for k in chosen), busiest["bound"]


def default_tile(shape: str) -> tuple[str, str]:
    """Returns the tile that the library takes of those that were tried: ops/attention/sm90/kernels.cpp."""
    tiles = {"64": "192x128", "128": "128x128" if "causal" in shape else "128x176", "192": "128x128", "256": "128x80"}
    width = re.search(r"\bD(\d+)", shape)[1]
    return tiles[width], "at once" if width == "64" else "late"


def chosen_rows() -> list[tuple[str, str, dict]]:
    rows = []
    for table, family, pattern in TABLES:
        seen = set()
        with open(ROOT / f"bench/results/{table}-{GPU}-{DAY}.csv", newline="") as file:
            for row in csv.DictReader(file):
                name = (row["op"], row["shape"])
                tried = "tile" in row and (row["tile"], row["rescale"]) != default_tile(row["shape"])
                if re.search(pattern, row["shape"]) and row["op"] in CALLED and not tried and name not in seen:
                    rows.append((table, family, row))
                    seen.add(name)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="rows with this in their name")
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build/bin/lathe")
    parser.add_argument("--write", type=pathlib.Path, help="puts the table into this Markdown file")
    options = parser.parse_args()
    lines, errors = [], []
    with tempfile.TemporaryDirectory() as cache:
        for table, family, row in chosen_rows():
            name = f"{row['op']} {row['shape']}"
            if options.only not in name:
                continue
            backward = row["op"] == "backward"
            words = CALLS[table](sizes(row["shape"]), row["dtype"], row["shape"], backward)
            time, bound = predicted(words, family, backward, options.lathe, cache)
            measured = float(row["us"])
            errors.append(math.exp(abs(math.log(time / measured))) - 1)
            lines.append(f"| {words[0]} {name} | {family} | {measured:.0f} | {time:.0f} | {time / measured:.2f} | {bound} |")
            print(lines[-1], flush=True)
    text = "\n".join([f"Median error {statistics.median(errors):.0%}, worst {max(errors):.0%}, of {len(errors)} calls.", "",
                      "| call | family | measured, us | predicted, us | ratio | bound |", "|---|---|---|---|---|---|", *lines])
    print(text.split("\n")[0])
    if options.write:
        before, _, rest = options.write.read_text().partition(BEGIN)
        options.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
