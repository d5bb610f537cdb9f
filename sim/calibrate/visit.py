# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Times the calibration's programs on a GPU, from a folder that `scripts/calibrate --pack FOLDER` made:

    python3 sim/calibrate/visit.py FOLDER [--seconds 120] [--runs 30] >calibration.csv

One row of CSV for each row of rows.py: medians and percentiles of single calls. What fails is told on
standard error. Nothing but Python and the programs' libraries has to be there.
"""
from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

COLUMNS = ["row", "published", "measured", "unit", "us", "us_p10", "us_p90", "source", "gpu", "driver"]


def machine() -> list[str]:
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True)
    return done.stdout.strip().split("\n")[0].split(", ") if done.returncode == 0 else ["", ""]


def times(folder: pathlib.Path, entry: dict, runs: int) -> list[float]:
    done = subprocess.run([folder / entry["program"], *map(str, entry["words"])], timeout=30, text=True,
                          env=os.environ | {"CALIBRATE_RUNS": str(runs)}, capture_output=True)
    for line in done.stdout.splitlines():
        if line.startswith("microseconds "):
            return [float(word) for word in line.split()[1:]]
    raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-200:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=120, help="begin no row after this time")
    parser.add_argument("--runs", type=int, default=30)
    options = parser.parse_args()
    out, end, failed = csv.writer(sys.stdout), time.monotonic() + options.seconds, 0
    out.writerow(COLUMNS)
    where = machine()
    for entry in json.loads((options.folder / "pack.json").read_text()):
        if time.monotonic() > end:
            print(f"{entry['row']}: no time was left", file=sys.stderr)
            continue
        try:
            found = times(options.folder, entry, options.runs)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
            print(f"{entry['row']}: {problem}", file=sys.stderr)
            failed = 1
            continue
        rate = entry["amount"] / found[0] / (1e6 if entry["unit"] == "TFLOP/s" else 1e3)
        out.writerow([entry["row"], entry["published"], f"{rate:.1f}", entry["unit"],
                      *(f"{time:.2f}" for time in found), entry["source"], *where])
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
