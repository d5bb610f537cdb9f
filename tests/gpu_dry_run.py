#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu on the simulator, killed in the middle of its first stages: gpu_dry_run.py ROOT BUILD

A visit is killed (SIGKILL) while its second step runs, and taken up again. In the end each step has passed, each CSV has
one row for each case, and the summary is there.
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


def results(folder):
    """{"stage/step": {"result", "seconds", "reason"}}"""
    path = pathlib.Path(folder, "results.json")
    return json.loads(path.read_text()) if path.exists() else {}


def run(folder, *options):
    done = subprocess.run(command(folder, *options), env=environment(), capture_output=True, text=True, timeout=DEADLINE)
    print(done.stdout, end="")
    return done


def check(right, text):
    if not right:
        sys.exit(f"gpu_dry_run: {text}")


def killed(folder):
    """Kills a visit when one step has ended and the next one runs; what had ended is not repeated."""
    process = subprocess.Popen(command(folder), env=environment(), stdout=subprocess.DEVNULL)
    until = time.monotonic() + DEADLINE
    while process.poll() is None and not results(folder) and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    check(process.wait(timeout=DEADLINE) == -signal.SIGKILL, "the visit was over before it could be killed")
    before = results(folder)
    done = run(folder)
    check(done.returncode == 0, f"a visit taken up: exit {done.returncode}: {done.stdout}{done.stderr}")
    after = results(folder)
    for name, step in before.items():
        check(after[name] == step, f"{name} had ended and was repeated")
    ended = {name: step["result"] for name, step in after.items()}
    check(set(ended.values()) <= {"passed", "skipped"}, f"{ended}")
    check({name.partition("/")[0] for name in ended} == set(stages.STAGES), f"a stage is not there: {sorted(ended)}")


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


def main():
    folder = tempfile.mkdtemp()
    try:
        code = run(folder, "--budget", "1").returncode
        check(code == 3 and not results(folder), f"a second's budget: exit {code}")
        killed(folder)
        begin = time.monotonic()
        code = run(folder).returncode
        check(code == 0, f"a run with nothing to do: exit {code}")
        print(f"nothing to do took {time.monotonic() - begin:.1f} s")
        right_tables(folder)
        right_summary(folder)
        first = results(folder)
        check(run(folder, "--stage", "retime", "--again").returncode == 0, "a repeated stage failed")
        again = results(folder)
        changed = {name.partition("/")[0] for name in first if first[name] != again[name]}
        check(first.keys() == again.keys() and changed == {"retime"}, f"--again repeated {changed}")
        right_tables(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
