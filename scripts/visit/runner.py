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

from visit import state

PR_SET_PDEATHSIG = 1
STALL_SECONDS = 90  # a case that takes longer hangs
SKIPPED = 77        # the exit code of a test that lacks what it needs


class Stopped(Exception):
    """SIGTERM or SIGINT came."""


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


def cases_of(path):
    """(names begun but not ended, number of names that failed, size) of a FILE.cases: bench/operators/cases.h."""
    open_cases, failed = [], set()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return [], 0, 0
    for line in lines:
        word, _, name = line.partition(" ")
        if word == "begin":
            open_cases.append(name)
        elif word in ("done", "failed"):
            open_cases = [each for each in open_cases if each != name]
            if word == "failed":
                failed.add(name)
    return open_cases, len(failed), path.stat().st_size


def note_failed(path, name):
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"failed {name}\n")


class Runner:
    def __init__(self, folder, root, env):
        self.folder, self.root, self.env = pathlib.Path(folder), root, env
        self.process = None

    def stop(self):
        """Ends the running step's processes."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass  # the driver holds it; the next step may run into the same, and has a limit too
        self.process = None

    def once(self, step, deadline, cases):
        """One process. (exit code or None, what ended it: "" for itself, "timeout", "stall")"""
        log = step.log(self.folder)
        log.parent.mkdir(parents=True, exist_ok=True)
        env = {**self.env, **step.env, state.MARK: str(self.folder)}
        with open(log, "ab") as errors, open(self.folder / step.output if step.output else log, "ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in step.command], cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=errors, start_new_session=True, preexec_fn=die_with_parent)
        size, grew = cases.stat().st_size if cases and cases.exists() else 0, time.monotonic()
        while True:
            try:
                code = self.process.wait(timeout=0.1)
                self.process = None
                return code, ""
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()
            if cases and cases.exists() and cases.stat().st_size != size:
                size, grew = cases.stat().st_size, now
            ended = "timeout" if now > deadline else "stall" if cases and now > grew + STALL_SECONDS else ""
            if ended:
                self.stop()
                return None, ended

    def run(self, step, seconds, cut):
        """(result, reason). `seconds`: what there is; `cut`: less than the step's own limit."""
        deadline = time.monotonic() + seconds
        cases = self.folder / (step.rows + ".cases") if step.rows else None
        try:
            result, reason = (self.rows if cases else self.plain)(step, deadline, cases)
        except OSError as error:
            return "failed", str(error)
        finally:
            self.stop()
            if step.after:
                step.after()
        if result == "timeout" and cut:
            return "interrupted", "the visit's time was over"
        return result, reason

    def plain(self, step, deadline, _):
        if step.output:
            (self.folder / step.output).unlink(missing_ok=True)
        code, ended = self.once(step, deadline, None)
        if ended:
            return "timeout", f"took longer than {step.seconds:.0f} s"
        if code == SKIPPED:
            return "skipped", self.last_line(step)
        return ("passed", "") if code == 0 else ("failed", self.reason(step, code))

    def rows(self, step, deadline, cases):
        """Starts the command again as long as each process gets further: a fault ends a process, and the cases behind
        the one that failed are for the next."""
        reason = ""
        began = cases_of(cases)[2]
        while True:
            size = cases_of(cases)[2]
            code, ended = self.once(step, deadline, cases)
            open_cases, failed, now = cases_of(cases)
            if ended == "timeout":
                # A stage that is begun stays so: the next run takes it up once more.
                return ("partial" if now > began else "timeout"), f"{step.seconds:.0f} s were not enough for all"
            if code == SKIPPED:
                return "skipped", self.last_line(step)
            if code == 0:
                return ("failed", reason or f"{failed} cases failed") if failed else ("passed", "")
            reason = reason or (f"no answer in {STALL_SECONDS} s" if ended else self.reason(step, code))
            if now == size:  # it did not come to a case
                return "failed", reason
            if open_cases:
                note_failed(cases, open_cases[-1])

    def last_line(self, step):
        try:
            lines = step.log(self.folder).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else ""

    def reason(self, step, code):
        how = f"exit {code}" if code >= 0 else f"signal {-code}"
        return f"{how}: {self.last_line(step)}"
