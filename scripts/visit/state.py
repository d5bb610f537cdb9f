# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The stamps in a visit's folder: which step ended how, and which was running when the visit was killed.

stamps/STAGE/STEP.json is one step's, stamps/STAGE.json says that every step of a stage has ended. A stamp is written
beside its place and renamed, so that a kill at any moment leaves the old one or the new one.
"""
import fcntl
import json
import os
import pathlib
import signal
import time

# How a step can end. An "interrupted" step is repeated by the next run, a "partial" one goes on there.
ENDED = ("passed", "failed", "timeout", "skipped")
MARK = "LATHE_GPU_VISIT"  # in the environment of every process of a visit: the visit's folder
ATTEMPTS = 3  # a step in whose middle so many runs were killed is given up


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def read_json(path, default=None):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


class Stamps:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder, "stamps")

    def path(self, step):
        return self.folder / step.stage / (step.name + ".json")

    def of(self, step):
        """{"result", "seconds", "attempts", "reason"}, or {} for a step that never ran."""
        stamp = read_json(self.path(step), {})
        if stamp.get("result") == "running":  # nobody ended it: this run has the folder's lock
            stamp["result"] = "failed" if stamp["attempts"] >= ATTEMPTS else "interrupted"
            stamp["reason"] = f"{stamp['attempts']} runs were killed in its middle"
        return stamp

    def ended(self, step):
        return self.of(step).get("result") in ENDED

    def begin(self, step):
        past = self.of(step)
        killed = past.get("attempts", 0) if past.get("result") == "interrupted" else 0
        self.save(step, "running", past.get("seconds", 0), killed + 1, "")

    def end(self, step, result, seconds, reason):
        past = read_json(self.path(step), {})
        # A run that was stopped in an orderly way does not count as one that this step killed.
        attempts = 0 if result in ("interrupted", "partial") else past.get("attempts", 1)
        self.save(step, result, past.get("seconds", 0) + seconds, attempts, reason)

    def save(self, step, result, seconds, attempts, reason):
        write(self.path(step), json.dumps({"result": result, "seconds": round(seconds, 2), "attempts": attempts,
                                           "reason": reason, "time": time.strftime("%FT%TZ", time.gmtime())}) + "\n")

    def forget(self, step):
        self.path(step).unlink(missing_ok=True)
        (self.folder / (step.stage + ".json")).unlink(missing_ok=True)

    def close_stage(self, stage, steps):
        """Stamps a stage whose steps have all ended. Returns whether they have. A stage without steps has none yet."""
        results = [self.of(step).get("result") for step in steps]
        done = bool(steps) and all(result in ENDED for result in results)
        if done:
            count = {word: results.count(word) for word in ENDED if word in results}
            write(self.folder / (stage + ".json"), json.dumps(count) + "\n")
        return done


class Lock:
    """One run at a time in a folder. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, folder):
        self.file = open(pathlib.Path(folder, "lock"), "w", encoding="utf-8")

    def take(self):
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False


def end_leftovers(folder):
    """Ends processes of an earlier run in this folder, known by the mark that run gave them. The caller has the
    lock, so none of them belongs to a run that goes on."""
    mark = f"{MARK}={folder}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # gone, or another user's
