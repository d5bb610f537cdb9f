# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the scripts that time peers have in common: their arguments, what they do without torch or a GPU, and how they go
on after a kill."""
import csv
import pathlib
import sys

ATTEMPTS = 2
SAMPLES, UNTIMED = 30, 3  # of a call
SKIPPED = 77  # as a test says that it lacks what it needs


class Shapes:
    """Shapes in turn. With a file, FILE.cases keeps what became of each, as bench/operators/cases.h does: what is done, has failed,
    or was begun by two processes that ended in its middle, is left out."""

    def __init__(self, shapes, path):
        self.shapes, self.notes, self.past = shapes, None, []
        if path:
            notes = pathlib.Path(path + ".cases")
            self.past = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
            self.notes = open(notes, "a", encoding="utf-8", buffering=1)

    def __iter__(self):
        for shape in self.shapes:
            name = " ".join(shape[:3])
            ended = {f"done {name}", f"failed {name}"} & set(self.past)
            if ended or self.past.count(f"begin {name}") >= ATTEMPTS:
                continue
            self.note("begin", name)
            yield shape
            self.note("done", name)

    def note(self, word, name):
        if self.notes:
            self.notes.write(f"{word} {name}\n")


def output(path, columns):
    """A csv.writer whose rows are in the file when they are written."""
    file = open(path, "a", newline="", encoding="utf-8", buffering=1) if path else sys.stdout
    out = csv.writer(file, lineterminator="\n")
    if not path or file.tell() == 0:
        out.writerow(columns)
    return out


def take_turns(torch, works):
    """name -> [median, 10th, 90th percentile] in microseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cache = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    samples = {name: [] for name in works}
    for sample in range(SAMPLES + UNTIMED):
        for name, work in works.items():
            cache.fill_(sample)
            begin.record()
            work()
            end.record()
            end.synchronize()
            if sample >= UNTIMED:
                samples[name].append(begin.elapsed_time(end) * 1e3)
    found = {}
    for name, times in samples.items():
        times.sort()
        found[name] = [times[round(share * (len(times) - 1))] for share in (0.5, 0.1, 0.9)]
    return found


def run(doc, columns, shapes_of, measure, others=0):
    """SCRIPT [--dry-run] [--append FILE] SHAPES.csv and `others` words more: prints a CSV or adds to the file, and gives
    the exit code.

    `shapes_of` reads the shapes; `measure(torch, shapes, *words, out)` writes the rows of each shape in its turn.
    """
    words = sys.argv[1:]
    path = ""
    if "--append" in words[:-1]:
        at = words.index("--append")
        path = words[at + 1]
        del words[at:at + 2]
    dry_run = "--dry-run" in words
    paths = [word for word in words if not word.startswith("--")]
    if len(paths) != 1 + others:
        print(doc, file=sys.stderr)
        return 2
    shapes = shapes_of(paths[0])
    out = output(path, columns)
    if not shapes:
        print(f"peers: no shapes in {paths[0]}", file=sys.stderr)
        return 1
    if dry_run:
        for _ in Shapes(shapes, path):
            pass
        return 0
    try:
        import torch
    except ImportError:
        print("peers: torch cannot be imported; none are timed", file=sys.stderr)
        return SKIPPED
    if not torch.cuda.is_available():
        print("peers: torch finds no GPU; none are timed", file=sys.stderr)
        return SKIPPED
    measure(torch, Shapes(shapes, path), *paths[1:], out)
    return 0
