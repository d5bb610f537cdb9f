# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the simulator's clock with published figures: what scripts/calibrate runs.

Each row of rows.py runs in a process of its own on the drop-in with LATHE_SIM_CLOCK; the table has what
was published, what the clock says, and their ratio. Half of the rows may be fitted; the other half tells
how far the clock is off.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import table
from rows import PAIRS, ROWS, Row

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARCHS = {"a100": "sm_80", "h100": "sm_90a"}
CHECKOUTS = {"fast_cu": "github.com/pranjalssh/fast.cu", "flash_attention": "github.com/Dao-AILab/flash-attention",
             "cutlass": "github.com/NVIDIA/cutlass, at the commit that flash-attention has as a submodule",
             "tritonbench": "github.com/meta-pytorch/tritonbench of August 2025, for Triton's tutorials",
             "triton": ""}


def environment(row: Row, options: argparse.Namespace, work: str) -> dict[str, str]:
    return os.environ | {
        "LATHE_SIM_GPU": row.gpu, "LATHE_SIM_CLOCK": f"{work}/clock.jsonl", "LATHE_SIM_THREADS": "1",
        "LATHE_SIM_SAMPLE_BLOCKS": "16", "LATHE_SIM_SAMPLE_INSTRUCTIONS": "4000000", "LATHE_SIM_CHECK": "none",
        "LATHE_SIM_QUIET": "1", "LATHE_FAMILY": "portable", "LATHE_SIM_DIR": str(options.sim), "CALIBRATE_ARCH": ARCHS[row.gpu],
        "CALIBRATE_LATHE": str(options.lathe), "CALIBRATE_CACHE": str(options.work / "cache"),
        "CALIBRATE_PROGRAMS": str(options.work / "programs"),
        "TRITON_CACHE_DIR": str(options.work / "triton")} | {
        "CALIBRATE_" + name.upper(): str(getattr(options, name) or "") for name in CHECKOUTS}


def measure(row: Row, options: argparse.Namespace) -> dict:
    """The launches of a row, and its time in microseconds."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        variables = environment(row, options, work)
        if row.case.startswith("triton_cases.") and options.triton:
            variables["LATHE_SIM_PTXAS"] = str(options.triton / "triton/backends/nvidia/bin/ptxas")
        worker = subprocess.Popen([options.python, HERE / "worker.py", row.case, json.dumps(row.options)],
                                  env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  start_new_session=True)
        try:
            said = worker.communicate(timeout=options.limit)[1].strip().split("\n")
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)  # what it started too
            worker.communicate()
            return {"error": f"not done after {options.limit:.0f} seconds"}
        if worker.returncode != 0:
            why = [text for text in said if "Error" in text or text.startswith("skipped")] or said
            return {"error": why[-1][:200]}
        lines = pathlib.Path(work, "clock.jsonl").read_text().splitlines()
    launches = [json.loads(line) for line in lines]
    for launch in launches:
        launch["lines"] = launch["lines"][:12]
        launch.pop("roles", None)
    # The published times hold the start of each kernel.
    times = [launch["microseconds"] + launch["launch_microseconds"] for launch in launches]
    # Triton's kernels run once for each of the tiles that a tuner may choose from.
    tuned = row.case.startswith("triton_cases.")
    if row.options.get("backward") and row.case.startswith("own."):
        times = times[1:]  # the first launch is the forward's
    microseconds = min(times) if tuned else sum(times)
    scale = 1e6 if row.unit == "TFLOP/s" else 1e3
    return {"microseconds": microseconds, "predicted": row.amount / microseconds / scale,
            "launches": launches}


def packed(row: Row, options: argparse.Namespace) -> dict:
    """Builds the program of a row for a GPU; {} if the row has none."""
    if not row.case.startswith("programs."):
        return {}
    done = subprocess.run([options.python, HERE / "worker.py", row.case, json.dumps(row.options)],
                          env=environment(row, options, str(options.work)) | {"CALIBRATE_PACK": "1"},
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{row.key}: {done.stderr.strip()[-200:]}", flush=True)
        return {}
    said = json.loads(done.stdout.splitlines()[-1])
    program = pathlib.Path(said["program"])
    copy = options.pack / program.parent.name
    if not copy.exists():
        shutil.copy2(program, copy)
    return {"row": row.key, "program": copy.name, "words": said["words"], "amount": row.amount,
            "unit": row.unit, "published": row.published, "source": row.source}


def pack(rows: list[Row], options: argparse.Namespace) -> None:
    options.pack.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        entries = [entry for entry in pool.map(lambda row: packed(row, options), rows) if entry]
    (options.pack / "pack.json").write_text(json.dumps(entries, indent=1) + "\n")
    print(f"calibrate: {len(entries)} rows in {options.pack}")


def measure_all(rows: list[Row], options: argparse.Namespace) -> dict[str, dict]:
    results = json.loads(options.results.read_text()) if options.keep and options.results.exists() else {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(measure, row, options): row for row in rows if row.key not in results}
        for done in concurrent.futures.as_completed(waiting):
            row, result = waiting[done], done.result()
            results[row.key] = result
            if options.results:
                options.results.write_text(json.dumps(results))
            print(table.progress(row, result), flush=True)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/calibrate", description=__doc__.split("\n")[0])
    parser.add_argument("--gpu", choices=sorted(ARCHS), help="rows of this GPU alone")
    parser.add_argument("--only", default="", help="rows whose family and name match this expression")
    for name, where in CHECKOUTS.items():
        help_text = f"checkout of {where}" if where else "folder of pip install --no-deps --target, with triton 3.2.0"
        parser.add_argument("--" + name.replace("_", "-"), type=pathlib.Path, help=help_text)
    parser.add_argument("--python", default=str(ROOT / "build/peers/venv/bin/python"),
                        help="a Python that has torch, for Triton (default: that of scripts/test --peers)")
    parser.add_argument("--results", type=pathlib.Path, help="also writes what was predicted, as JSON")
    parser.add_argument("--keep", action="store_true", help="rows that the file of --results has are not run again")
    parser.add_argument("--from-results", type=pathlib.Path, help="makes the table of a file of --results")
    parser.add_argument("--write", type=pathlib.Path, help="puts the table into this Markdown file")
    parser.add_argument("--pack", type=pathlib.Path,
                        help="builds the rows' programs for a GPU into this folder, for sim/calibrate/visit.py")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("LATHE_JOBS", "1")))
    parser.add_argument("--limit", type=float, default=600, help="seconds for a row")
    parser.add_argument("--sim", type=pathlib.Path, default=ROOT / "build/sim")
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build/bin/lathe")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/calibrate")
    options = parser.parse_args()
    if options.keep and not options.results:
        parser.error("--keep goes with --results")
    return options


def main() -> None:
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    if not pathlib.Path(options.python).exists():
        print(f"calibrate: no {options.python}; rows of Triton are skipped")
        options.python = sys.executable
    rows = [row for row in ROWS if options.gpu in (None, row.gpu) and re.search(options.only, row.key)]
    if options.pack:
        pack(rows, options)
        return
    if options.from_results:
        results = json.loads(options.from_results.read_text())
    else:
        results = measure_all(rows, options)
    text = table.markdown(rows, PAIRS, results)
    print(text)
    if options.write:
        table.put(options.write, text)


if __name__ == "__main__":
    main()
