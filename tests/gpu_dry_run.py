#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu on the simulator, killed in the middle of every stage: gpu_dry_run.py ROOT BUILD

Every stage is killed (SIGKILL, or SIGTERM in turns) while its second step runs, and taken up again. In the end each step
has passed once, each CSV has one row for each case, and the summary and the plots are there.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
from visit import rows, stages  # noqa: E402

TABLES = [f"{prefix}{verb}.csv" for prefix in ("smoke_", "", "tuned_") for verb in stages.VERBS]
DEADLINE = 300  # generous: a hang, not slowness, ends the test


def command(folder, *options):
    return [sys.executable, ROOT / "scripts/gpu", folder, "--device", "sim", *options]


def environment():
    return dict(os.environ, LATHE_BUILD=str(BUILD))


def stamps(folder, stage):
    found = {}
    for path in pathlib.Path(folder, "stamps", stage).glob("*.json"):
        found[path.stem] = json.loads(path.read_text())
    return found


def begun(folder, stage, first_of_stage):
    """Whether the stage is in the middle: a step runs, and unless it is the only one another has ended."""
    now = stamps(folder, stage)
    running = [name for name, stamp in now.items() if stamp["result"] == "running"]
    return bool(running) and (first_of_stage or len(now) > 1)


def kill_in(folder, stage, number, single):
    """Starts the stage and sends it a signal in its middle. The exit code, and the stamps at that moment."""
    process = subprocess.Popen(command(folder, "--stage", stage), env=environment(), stdout=subprocess.DEVNULL)
    until = time.monotonic() + DEADLINE
    while process.poll() is None and not begun(folder, stage, single) and time.monotonic() < until:
        time.sleep(0.005)
    before = stamps(folder, stage)
    if process.poll() is None:
        process.send_signal(number)
    return process.wait(timeout=DEADLINE), before


def run(folder, *options):
    done = subprocess.run(command(folder, *options), env=environment(), capture_output=True, text=True, timeout=DEADLINE)
    print(done.stdout, end="")
    return done


def check(right, text):
    if not right:
        sys.exit(f"gpu_dry_run: {text}")


def killed_everywhere(folder):
    signals = [signal.SIGKILL, signal.SIGTERM]
    for index, stage in enumerate(stages.STAGES):
        number = signals[index % 2]
        code, before = kill_in(folder, stage, number, single=stage == "suite")
        expected = -signal.SIGKILL if number == signal.SIGKILL else 3
        check(code == expected, f"{stage}: exit {code} after signal {number}, expected {expected}")
        check(not pathlib.Path(folder, "stamps", f"{stage}.json").exists(), f"{stage} is stamped although it was killed")
        ended = {name: stamp for name, stamp in before.items() if stamp["result"] == "passed"}
        done = run(folder, "--stage", stage)
        check(done.returncode == 0, f"{stage}, taken up: exit {done.returncode}: {done.stdout}{done.stderr}")
        after = stamps(folder, stage)
        for name, stamp in ended.items():
            check(after[name] == stamp, f"{stage}/{name} had passed and was repeated")
        results = {name: stamp["result"] for name, stamp in after.items()}
        check(set(results.values()) <= {"passed", "skipped"}, f"{stage}: {results}")
        check(pathlib.Path(folder, "stamps", f"{stage}.json").exists(), f"{stage} has no stamp")


def right_tables(folder):
    for name in TABLES:
        path = pathlib.Path(folder, name)
        done = {line.partition(" ")[2] for line in path.with_name(name + ".cases").read_text().splitlines()
                if line.startswith("done ")}
        found = {" ".join(each for each in rows.key(row) if each) for row in rows.read(path)}
        check(len(found) >= 3 and found == done, f"{name}: rows of {sorted(found)}, done {sorted(done)}")
    for verb in ("conv", "attn", "kda"):
        check(rows.read(pathlib.Path(folder, f"{verb}.csv")), f"{verb}.csv is empty")
    check("lathe-tuned" in pathlib.Path(folder, "tuned.txt").read_text(), "nothing was tuned")


def right_summary(folder):
    text = pathlib.Path(folder, "summary.md").read_text()
    for stage in stages.STAGES:
        line = next((each for each in text.splitlines() if each.startswith(f"| {stage} |")), "")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        check(cells[2:4] == ["0", "0"] and cells[5:6] == ["0"], f"the summary says of {stage}: '{line}'")
    check("No result was wrong" in text and "nvrtc" in text, f"the summary lacks something:\n{text}")


def plots(folder):
    done = subprocess.run([sys.executable, ROOT / "scripts/plots", folder, ROOT / "bench/results", "--out",
                           pathlib.Path(folder, "plots")], capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode == 77:
        print(f"no plots: {done.stderr.strip()}")
        return
    check(done.returncode == 0, f"plots: exit {done.returncode}: {done.stderr}")
    found = list(pathlib.Path(folder, "plots").glob("*.svg"))
    check(found, "no plot was made")
    for path in found:
        check("</svg>" in path.read_text(), f"{path.name} is no whole SVG")


def main():
    folder = tempfile.mkdtemp()
    try:
        code = run(folder, "--budget", "1").returncode
        check(code == 3 and not list(pathlib.Path(folder).glob("stamps/**/*.json")), f"a second's budget: exit {code}")
        killed_everywhere(folder)
        begin = time.monotonic()
        code = run(folder).returncode
        check(code == 0, f"a run with nothing to do: exit {code}")
        print(f"nothing to do took {time.monotonic() - begin:.1f} s")
        right_tables(folder)
        right_summary(folder)
        again = stamps(folder, "retime")
        check(run(folder, "--stage", "retime", "--again").returncode == 0, "a repeated stage failed")
        repeated = stamps(folder, "retime")
        check(again.keys() == repeated.keys() and again != repeated, "--again repeated nothing")
        right_tables(folder)
        plots(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
