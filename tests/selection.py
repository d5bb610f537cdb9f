#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests one run of CI takes: those that a change can have touched, and a turn of the rest.

    tests/selection.py BUILD [--since COMMIT] [--turn K/N] [FILE...]

BUILD is a configured build tree. The changed files are the FILEs, or those that differ from COMMIT,
or from what the repository held four hours before its last commit: what lands together was made
within such a time. Prints lines "WORD VALUE" for scripts/test:

    tests A|B|...      names of ctest, as the alternatives of a regular expression
    targets A B ...    what they need built beside `all`
    also SUITE         a suite beside them whose turn it is, or that the change touches

A test belongs to the areas of the folder whose CMakeLists.txt adds it. `seen_by` says which areas
see a change of a file; for device text that follows from its #includes.
"""
from __future__ import annotations

import argparse
import json
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
# built. Each has its turn; `torch` runs where a change is seen by that area too.
SUITES = {"asan": 600, "tsan": 520, "fuzz": 150, "bench": 240, "torch-oldest": 200,
          "torch-newest": 200}
_ACROSS_RANKS = re.compile(r"rank|ring|dispatch|heads|nccl|shard")
_MOST_WHOLE = 2  # families whose thorough tests one run takes
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
    # A change of many families runs what is thorough in turns alone, or a run would take an hour.
    is_wide = len(whole & set(FAMILIES)) > _MOST_WHOLE
    chosen = {each.name for each in tests
              if (each.areas & whole and not (is_wide and each.thorough))
              or (not each.thorough and each.areas & short)}
    return chosen, whole | short


def turns(tests: Iterable[Test], count: int) -> list[tuple[set[str], set[str]]]:
    """Deals all tests and suites into `count` turns that take about as long as one another."""
    dealt: list[tuple[float, set[str], set[str]]] = [(0.0, set(), set()) for _ in range(count)]
    costs = [(2 * seconds, suite, True) for suite, seconds in SUITES.items()]
    costs += [(each.seconds, each.name, False) for each in tests]
    for seconds, name, is_suite in sorted(costs, key=lambda row: (-row[0], row[1])):
        at = min(range(count), key=lambda i: dealt[i][0])
        total, names, suites = dealt[at]
        (suites if is_suite else names).add(name)
        dealt[at] = (total + seconds, names, suites)
    return [(names, suites) for _, names, suites in dealt]


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
    given = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tests = tests_of(given.build, root)
    files = given.files or changed_since(root, given.since)
    if files is None:  # nothing is known of what changed
        chosen, areas = {each.name for each in tests if not each.thorough}, set(ALL)
    else:
        chosen, areas = touched(tests, root, files)
    suites = {each for each in SUITES if each in areas}
    if "torch" in areas:
        suites |= {"torch-oldest", "torch-newest"}
    turn, count = (int(each) for each in given.turn.split("/"))
    if count:
        more, also = turns(tests, count)[turn % count]
        chosen |= more
        suites |= also
    targets = sorted({each.target for each in tests if each.name in chosen and each.target})
    print("tests", "|".join(sorted(chosen)))
    print("targets", " ".join(targets))
    for suite in sorted(suites):
        print("also", suite)
    taken = sum(each.seconds for each in tests if each.name in chosen)
    print(f"selection: {len(chosen)} of {len(tests)} tests, about {taken:.0f} s of a processor; "
          f"areas {' '.join(sorted(areas))}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
