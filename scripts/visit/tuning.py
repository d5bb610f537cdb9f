# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Which problems of a recording (LATHE_RECORD) are tuned."""
import hashlib
import itertools
import json

PROBLEMS = "problems.jsonl"  # what the benches of a visit recorded
TUNED = "tuned.txt"          # the tuner's database, as LATHE_TUNED reads it


def parse(path):
    """The whole lines of a recording."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # cut short by a kill
    return found


def elements(problem):
    count = 0
    for _, shape in problem["tensors"].values():
        product = 1
        for extent in shape:
            product *= max(extent, 1)
        count += product
    return count


def kind(problem):
    """Problems of one kind differ in lengths and batch alone, and have the same candidates."""
    tensors = {name: (dtype, len(shape), shape[-2:] if len(shape) > 2 else shape[-1:] if name == "x" else None)
               for name, (dtype, shape) in problem["tensors"].items()}
    return json.dumps([problem["op"], tensors, problem.get("options", {})], sort_keys=True)


def direction(problem):
    return "backward" if any(name in problem["tensors"] for name in ("dout", "do", "dy")) else "forward"


def problems(path, most):
    """[(name, problem)]: the largest of each kind, operators in turn, so that a visit that is cut short has some of
    every operator. Names are those of files, and stay the same when the recording grows."""
    largest = {}
    for problem in parse(path):
        if "tensors" not in problem:
            continue
        known = largest.get(kind(problem))
        if known is None or elements(problem) > elements(known):
            largest[kind(problem)] = problem
    queues = {}
    for problem in largest.values():
        queues.setdefault((problem["op"], direction(problem)), []).append(problem)
    found = []
    for turn in itertools.zip_longest(*queues.values()):
        for problem in turn:
            if problem is not None:
                found.append(problem)
    return [(f"{problem['op']}_{direction(problem)}_{hashlib.sha256(kind(problem).encode()).hexdigest()[:6]}", problem)
            for problem in found[:most]]
