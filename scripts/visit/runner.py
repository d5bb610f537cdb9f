# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one step: its process, its time limit, and what became of its cases."""
import ctypes
import dataclasses
import os
import pathlib
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
SKIPPED = 77  # the exit code of a test that lacks what it needs


@dataclasses.dataclass
class Step:
    stage: str
    name: str            # a file name too
    command: list
    seconds: float       # time limit
    rows: str = ""       # a CSV in the visit's folder that the command appends to, with its .cases file
    output: str = ""     # a file in the visit's folder for what the command prints
    env: dict = dataclasses.field(default_factory=dict)
    wrong: bool = False  # a failure is a wrong result, not only a missing figure
    after: object = None  # called with nothing when the command has ended, whatever came of it

    def log(self, folder):
        return pathlib.Path(folder, "logs", self.stage, self.name + ".txt")


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cases_of(step, folder):
    """Returns {name: whether it has a row} of a bench's cases, and the size of their file: bench/operators/cases.h."""
    path, found = pathlib.Path(folder, step.rows + ".cases"), {}
    if not step.rows or not path.exists():
        return {}, 0
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, name = line.partition(" ")
        found[name] = word == "done"
    return found, path.stat().st_size


def once(step, visit, deadline):
    """Runs one process. Returns its exit code, or None if the time was over; then none of its children is left."""
    log = step.log(visit.folder)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as errors, open(visit.folder / step.output if step.output else log, "ab") as out:
        process = subprocess.Popen([str(word) for word in step.command], cwd=visit.root, env={**visit.env, **step.env},
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
                                   preexec_fn=die_with_parent)
    try:
        return process.wait(timeout=max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            pass  # they have ended, or the driver holds one; the next step has a limit too


def run(step, visit, seconds):
    """Returns (result, reason) within so many seconds. A bench is started again as long as each process gets further:
    a fault ends a process, and the cases behind the one that failed are for the next."""
    deadline, reason = time.monotonic() + seconds, ""
    if step.output:
        (visit.folder / step.output).unlink(missing_ok=True)
    try:
        while True:
            size = cases_of(step, visit.folder)[1]
            code = once(step, visit, deadline)
            cases, now = cases_of(step, visit.folder)
            if code is None:
                return "timeout", f"took longer than {seconds:.0f} s"
            if code == SKIPPED:
                return "skipped", last_line(step, visit)
            if code == 0:
                lost = [name for name, done in cases.items() if not done]
                return ("failed", reason or f"no row of {', '.join(lost)}") if reason or lost else ("passed", "")
            reason = reason or f"{f'exit {code}' if code > 0 else f'signal {-code}'}: {last_line(step, visit)}"
            if now == size:  # it did not come to a case
                return "failed", reason
    except OSError as error:
        return "failed", str(error)
    finally:
        if step.after:
            step.after()


def last_line(step, visit):
    lines = step.log(visit.folder).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
