# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the CSV files that benches and peers leave, also of files that were cut short."""
import csv


def read(path):
    """Rows as dicts. A row that lacks cells, a second header and an earlier row of the same case are left out."""
    found = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError:
        return []
    if not lines:
        return []
    head = lines[0]
    for number, cells in enumerate(lines[1:]):
        if len(cells) != len(head) or cells == head:
            continue
        row = dict(zip(head, cells))
        known = tuple(row[name] for name in ("op", "shape", "dtype", "impl", "gpu") if name in row)
        found[known if "shape" in row else number] = row
    return list(found.values())


def key(row):
    """What a row of lathe and one of a peer have in common."""
    return row.get("op", ""), row.get("shape", ""), row.get("dtype", "")


def number(row, name):
    try:
        return float(row[name])
    except (KeyError, ValueError):
        return None
