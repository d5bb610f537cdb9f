# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the scripts that time peers have in common: their arguments, and what they do without torch or a GPU."""
import csv
import sys


def run(doc, columns, shapes_of, measure, others=0):
    """SCRIPT [--dry-run] SHAPES.csv and `others` words more: prints a CSV, and gives the exit code.

    `shapes_of` reads the file; `measure(torch, shapes, *words, out)` writes the rows.
    """
    dry_run = "--dry-run" in sys.argv[1:]
    paths = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(paths) != 1 + others:
        print(doc, file=sys.stderr)
        return 2
    shapes = shapes_of(paths[0])
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    if not shapes:
        print(f"peers: no shapes in {paths[0]}", file=sys.stderr)
        return 1
    if dry_run:
        return 0
    try:
        import torch
    except ImportError:
        print("peers: torch cannot be imported; none are timed", file=sys.stderr)
        return 0
    if not torch.cuda.is_available():
        print("peers: torch finds no GPU; none are timed", file=sys.stderr)
        return 0
    measure(torch, shapes, *paths[1:], out)
    return 0
