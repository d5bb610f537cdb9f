#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests one run of CI takes: those that a change can have touched, and a turn of the rest.

    tests/selection.py BUILD [--since COMMIT] [--turn K/N] [--budget SECONDS] [FILE...]

BUILD is a configured build tree. The changed files are the FILEs, or those that differ from COMMIT,
or from what the repository held four hours before its last commit: what lands together was made
within such a time. Where they take longer than the budget, parts of them are taken, another one in
each turn, and the last line says what share that is. Prints lines "WORD VALUE" for scripts/test:

    tests A|B|...      names of ctest, as the alternatives of a regular expression
    targets A B ...    what they need built beside `all`
    also SUITE         a suite beside them: one in each turn, those that see the change more often

A test belongs to the areas of the folder whose CMakeLists.txt adds it. `seen_by` says which areas
see a change of a file; for device text that follows from its #includes.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from typing import Any, Iterable, NamedTuple

FAMILIES = ("attention", "conv", "kda", "sparse")
FAMILY_OF_OPERATOR = {"causal_conv1d": "conv", "flash_attention": "attention", "kda": "kda",
                      "sparse_flash_attention": "sparse"}
# A change of the build or of what all tests share is seen by all of them.
ALL = frozenset({*FAMILIES, "api", "cache", "cli", "codegen", "collective", "device", "golden",
                 "ops", "own", "python", "ranks", "root", "sim", "templates", "torch"})
# Folders and the areas that see a change in them; the longest prefix that fits counts. A family's
# own folders and the device text are not here.
SEEN_BY = {
    ".ci/": {"root"},
    "abi/": {"cache", "collective", "golden", "root", "sim"},
    "api/": {"api", "cli", "golden", "own", "python", "root"},
    "api/cli/": {"cli", "golden", "root"},
    "bench/": {"bench", "root"},
    "bench/results/": {"root"},
    "cache/": {"api", "cache", "cli", "codegen", "golden", "own", "root"},
    "cmake/": {"cache", "golden", "root"},
    "codegen/": ALL - {"collective", "sim", "torch"},
    "collective/": {"cli", "collective", "ranks", "root"},
    "device/": ALL - {"torch"},
    "docs/": {"root"},
    "examples/": {"cli", "root", "torch"},
    "examples/own_kernels/": {"cli", "own", "root"},
    "ops/": {*FAMILIES, "api", "cli", "golden", "ops", "own", "ranks", "root", "templates"},
    "ops/own/": {"api", "cli", "ops", "own", "root"},
    "ops/shard/": {"ranks", "root"},
    "python/": {"python", "root", "torch"},
    "python/tests/peers/": {"root"},
    "reference/": {*FAMILIES, "golden", "root"},
    "scripts/": {"root"},
    "sim/": {"golden", "root", "sim"},
    "sim/calibrate/": {"root"},
    "tests/": {"root"},
    "tests/fake_nvrtc/": {"api", "cache", "codegen"},
    "tests/fuzz/": {"fuzz"},
    "tests/harness/": {*FAMILIES, "api", "own", "ranks"},
    "tests/nvrtc_memo/": {"golden"},
    "tests/ops/": {*FAMILIES, "ops"},
    "tests/ops/own/": {"own"},
    "tests/peers/": {"root", "torch"},
    "tests/reference/": set(FAMILIES),
}
# Suites beside ctest's release tree, with the seconds of two cores that each takes with nothing
# built.
SUITES = {"asan": 600, "tsan": 520, "fuzz": 150, "bench": 240, "compilers": 360,
          "torch-oldest": 200, "torch-newest": 200}
# The area of a suite that is not called after it.
AREA_OF_SUITE = {"compilers": "templates", "torch-oldest": "torch", "torch-newest": "torch"}
# The shares of the budget that are kept for the tests that see the change, for those of them that the
# release suite leaves out, and for the turn of all others; what one does not need is the next one's.
SHARES = (0.6, 0.25, 0.15)
_LEAST_OF_BUDGET = 0.6  # for tests, however long the suite beside them takes
_ACROSS_RANKS = re.compile(r"rank|ring|dispatch|heads|nccl|shard")
_BUILDING = 4  # seconds that a test program takes to compile and link


class Test(NamedTuple):
    """A test of ctest."""

    name: str
    areas: frozenset[str]
    seconds: float  # of a processor, with nothing cached and its program not built
    thorough: bool  # the release suite leaves it out
    target: str | None  # its program, where ctest runs one of the tree


# ---- areas ---------------------------------------------------------------------------------------


def _includes(root: str) -> dict[str, set[str]]:
    """Returns, for each file of templates/, those that it includes directly."""
    found = {}
    base = os.path.join(root, "templates")
    for folder, _, names in os.walk(base):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), base)
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[path] = set(re.findall(r'^#include "([^"]+)"', file.read(), re.M))
    return found


def _device_areas(root: str, path: str) -> set[str]:
    """Returns the areas that see a change of a file of templates/: whoever includes it."""
    includes, reached, fresh = _includes(root), set[str](), {path}
    while fresh:
        reached |= fresh
        fresh = {name for name, inner in includes.items() if inner & fresh} - reached
    families = {each for each in FAMILIES if any(name.startswith(each + "/") for name in reached)}
    # The structs of params/ are filled by the host code of the families that they are named after.
    families |= {each for each in FAMILIES if f"params/{each}" in path}
    # The headers that kernels of callers include.
    families |= {"cli", "own"} if any(name.startswith("lathe/") for name in reached) else set()
    if any(name.startswith(("rows/", "params/rows")) for name in reached):
        families |= {"ranks"}
    return {*families, "templates", "root"}


def seen_by(root: str, path: str) -> tuple[set[str], bool]:
    """Returns the areas that see a change of a file, and whether their thorough tests do too."""
    for folder in ("ops/", "tests/ops/"):
        for family in FAMILIES:
            if path.startswith(f"{folder}{family}/"):
                # Its schema and its pure functions are tested beside those of the others.
                return {family, "api", "ops", "root"}, True
    if path.startswith("templates/"):
        own = not path.startswith(("templates/common/", "templates/params/"))
        return _device_areas(root, path.removeprefix("templates/")), own
    prefix = max((each for each in SEEN_BY if path.startswith(each)), key=len, default="")
    if prefix == "tests/" and path.count("/") > 1:  # a folder of tests is an area
        return {path.split("/")[1]}, False
    return set(SEEN_BY[prefix]) if prefix else {"root"}, False


def areas_of(name: str, folders: Iterable[str]) -> frozenset[str]:
    """Returns the areas of a test that is added by the innermost of `folders`."""
    folder = next(iter(folders), "")
    found = {"sim"} if folder.startswith("sim") else {"python"} if folder == "python" else set()
    if folder.startswith("tests/"):
        found = {folder.split("/")[-1]}
    if folder == "tests":
        found = {"root"}
    if name.startswith("golden_"):
        stem = max((each for each in FAMILY_OF_OPERATOR if name.startswith(f"golden_{each}")),
                   key=len, default=None)
        found = {"golden"} if stem is None else {"golden", FAMILY_OF_OPERATOR[stem]}
        if name.endswith(("_sm80", "_ranks", "_ranks_sm90")):
            found -= {"golden"}
    family = re.match(rf"templates_({'|'.join(FAMILIES)})_", name)
    if family:
        found = {family.group(1)}
    if _ACROSS_RANKS.search(name):
        found = {*found, "ranks"}
    return frozenset(found or {"root"})


# ---- the tests of a build tree -------------------------------------------------------------------


def _folders(graph: dict[str, Any], at: int, source: str) -> list[str]:
    """Returns the folders of the CMake files that a test came from, the innermost first."""
    found = []
    node: int | None = at
    while node is not None:
        path = os.path.relpath(graph["files"][graph["nodes"][node]["file"]], source)
        if not path.startswith("cmake/"):
            found.append(os.path.dirname(path))
        node = graph["nodes"][node].get("parent")
    # A folder's tests may come through a function of the folder above.
    return sorted(found, key=len, reverse=True)


def _programs(build: str) -> dict[str, str]:
    """Returns the first word of each test's command. ctest shows none for what is not built."""
    found = {}
    for folder, _, names in os.walk(build):
        if "CTestTestfile.cmake" in names:
            with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
                found.update(re.findall(r'^add_test\((?:\[=\[)?([^\s\]]+)(?:\]=\])? "([^"]+)"',
                                        file.read(), re.M))
    return found


def tests_of(build: str, source: str) -> list[Test]:
    """Returns the tests that ctest has in a build tree without a configuration's name."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                           capture_output=True, text=True, check=True).stdout
    data = json.loads(shown)
    found, programs = [], _programs(build)
    for each in data["tests"]:
        properties = {row["name"]: row["value"] for row in each.get("properties", [])}
        folders = _folders(data["backtraceGraph"], each["backtrace"], source)
        inside = os.path.relpath(programs.get(each["name"], ".."), build)
        target = None if inside.startswith("..") else inside
        seconds = float(properties.get("COST", 3)) + (_BUILDING if target else 0)
        found.append(Test(each["name"], areas_of(each["name"], folders), seconds,
                          "thorough" in properties.get("LABELS", ()), target))
    return found


# ---- choosing ------------------------------------------------------------------------------------


def touched(tests: Iterable[Test], root: str, files: Iterable[str]) -> tuple[set[str], set[str]]:
    """Returns the names of the tests that see a change of any of the files, and the areas."""
    whole, short = set[str](), {"golden", "root"}
    for path in files:
        areas, thorough = seen_by(root, path)
        (whole if thorough else short).update(areas)
    chosen = {each.name for each in tests
              if each.areas & whole or (not each.thorough and each.areas & short)}
    return chosen, whole | short


def deal(costs: dict[str, float], count: int) -> list[set[str]]:
    """Deals names into `count` parts that cost about as much as one another."""
    parts: list[tuple[float, set[str]]] = [(0.0, set()) for _ in range(count)]
    for name, cost in sorted(costs.items(), key=lambda row: (-row[1], row[0])):
        at = min(range(count), key=lambda i: parts[i][0])
        total, names = parts[at]
        names.add(name)
        parts[at] = (total + cost, names)
    return [names for _, names in parts]


def within(groups: Iterable[set[str]], costs: dict[str, float], budget: float,
           turn: int) -> tuple[set[str], list[float]]:
    """Takes of each group a part that its share of the budget pays for, and returns their sizes."""
    taken, sizes, left = set[str](), [], 0.0
    for names, share in zip(groups, SHARES):
        left += share * budget
        fresh = {name: costs[name] for name in names - taken}
        count = max(1, math.ceil(sum(fresh.values()) / left))
        part = deal(fresh, count)[turn % count]
        left = max(0.0, left - sum(fresh[name] for name in part))  # one test may take more than all
        taken |= part
        sizes.append(1 / count)
    return taken, sizes


def suite_of(turn: int, areas: set[str]) -> str:
    """Returns the suite of a turn: each has one, and those that see the change have another."""
    seen = [name for name in SUITES if AREA_OF_SUITE.get(name, name) in areas]
    return [*SUITES, *seen][turn % (len(SUITES) + len(seen))]


def changed_since(root: str, commit: str | None) -> list[str] | None:
    """Returns the files that differ from a commit; None if the history does not reach so far."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True,
                              check=True).stdout.strip()
    try:
        if commit is None:
            last = int(git("show", "-s", "--format=%ct", "HEAD"))
            commit = git("rev-list", "-1", f"--before={last - 4 * 3600}", "HEAD")
        if not commit:
            return None
        return git("diff", "--name-only", commit).splitlines()
    except subprocess.CalledProcessError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--since")
    parser.add_argument("--turn", default="0/0")
    parser.add_argument("--budget", type=float, default=math.inf)
    given = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tests = tests_of(given.build, root)
    costs = {each.name: each.seconds for each in tests}
    thorough = {each.name for each in tests if each.thorough}
    files = given.files or changed_since(root, given.since)
    if files is None:  # nothing is known of what changed
        seen, areas = set(costs) - thorough, set(ALL)
    else:
        seen, areas = touched(tests, root, files)
    turn, count = (int(each) for each in given.turn.split("/"))
    suite = suite_of(turn, areas) if count else None
    others = deal(costs, count)[turn % count] if count else set()
    budget = given.budget - (2 * SUITES[suite] if suite else 0)
    budget = max(budget, given.budget * _LEAST_OF_BUDGET)
    chosen, sizes = within((seen - thorough, seen & thorough, others), costs, budget, turn)
    targets = sorted({each.target for each in tests if each.name in chosen and each.target})
    print("tests", "|".join(sorted(chosen)))
    print("targets", " ".join(targets))
    if suite:
        print("also", suite)
    print(f"selection: {len(chosen)} of {len(tests)} tests, about "
          f"{sum(costs[name] for name in chosen):.0f} s of a processor: {sizes[0]:.0%} of those that "
          f"see the change, {sizes[1]:.0%} of the thorough ones, {sizes[2]:.0%} of the turn's; "
          f"beside them {suite or 'no suite'}; areas {' '.join(sorted(areas))}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
