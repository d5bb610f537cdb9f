#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The layer law, proved on the include lines: layers.py ROOT

templates <- codegen <- device <- cache <- collective <- ops <- api: a folder includes only from itself and from
those to its left. In ops/ a family's folder may include what families share, and of another family
its kernels alone; what they share, and api/, may name no family. A family's rooms lie one above another (ROOMS), with ranks/ on top; what belongs to one architecture, sm90.h, is
for its own files.
sim/ includes none of them and none includes sim/. abi/, what NVIDIA's libraries
look like from outside, includes no other folder and may be included by each but the templates and
the program. reference/, the operators in double, includes no other folder and may be included by tests,
bench and the program. A function of ops/ that launches kernels looks up no constant by its name: slots keep what launches
need (NumberedSlot). The program (api/cli) sees the public header, and of the library the pure functions that PROGRAM_SEES
lists. python/, the extension of the Python package, sees lathe.h and its own headers, and none includes
it. Files in templates/params include other parameters alone. Headers in angle brackets are C++'s, C's, POSIX's, or one of the
few that scripts/bootstrap installs: a machine with a CUDA tool kit would not notice another one.
The library, the simulator and the extension are loaded into programs that may have any locale: they call no function
that reads or writes numbers and letters as a locale has them (LOCAL). Programs of ours set no locale.
Prints one line per breach; exits 1 if there is any, 2 if nothing was there to check.
"""
import pathlib
import re
import sys

ORDER = ["templates", "codegen", "device", "cache", "collective", "ops", "api"]
# cuda.h is the only one of a vendor: everything else of NVIDIA's is declared in abi/.
INSTALLED = {"CLI/CLI.hpp", "cuda.h", "dlpack/dlpack.h", "doctest/doctest.h", "lathe.h", "nlohmann/json.hpp",
             "sha2.h", "toml++/toml.h", "xxhash.h"}
SYSTEM = {"dirent.h", "dlfcn.h", "elf.h", "errno.h", "fcntl.h", "limits.h", "link.h", "math.h", "netdb.h",
          "poll.h", "pthread.h", "sched.h", "semaphore.h", "signal.h", "spawn.h", "stdarg.h", "stddef.h", "stdint.h",
          "stdio.h", "stdlib.h", "string.h", "time.h", "unistd.h", "xmmintrin.h"}
SYSTEM_FOLDERS = {"arpa", "linux", "net", "netinet", "sys"}
SUFFIXES = {".h", ".c", ".cpp", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# What follows the program's locale: C's numbers and letters, C++'s streams.
LOCAL = re.compile(r"\b(strto(?:d|f|ld)|sto(?:d|f|ld)|atof|[fsv]?scanf|vsscanf|"
                   r"is(?:alpha|alnum|digit|xdigit|space|upper|lower|punct|print|graph|cntrl|blank)|to(?:lower|upper)|"
                   r"ostringstream)\b(?=\s*[(>;]|\s+\w+\s*[;({])")
REALS = re.compile(r'\b[a-z]*printf\s*\([^;]*?"[^"\n]*%[-+ #0-9.*]*l?[fFeEgGaA][^;]*;', re.S)
SETS = re.compile(r"\b(setlocale\s*\(|locale::global)")
# These make what they write plain themselves.
PLAIN = {"codegen/base/text.h"}
# Functions of texts and numbers, which the program compiles in.
PROGRAM_SEES = {"api/lathe.h", "codegen/base/half.h", "codegen/base/json.h", "codegen/base/printable.h",
                "codegen/base/text.h"}


def breach(root, path, included, quoted):
    """Why `path` (relative, parts) may not include `included`; None if it may."""
    layer, seen = path[0], included.split("/")[0]
    known = ORDER + ["abi", "reference", "sim"]
    if layer == "python" and quoted:
        own = "/" not in included and root.joinpath(*path[:-1], included).is_file()
        return None if own or included == "lathe.h" else f"python/ may not include {included}: only lathe.h and its own headers"
    if layer == "python" and included == "Python.h":
        return None
    if layer == "templates":
        if path[1] == "params":
            other = quoted and included.startswith("templates/params/") and (root / included).is_file()
            return None if other else "files in templates/params include other parameters alone"
        if not quoted:
            return f"device text may not include <{included}>: no system or tool kit header"
        # Text of a caller comes with the spec, as "caller/...".
        if seen != "caller" and not (root / "templates" / seen).is_dir():
            return f"device text may not include {included}: name it from templates/"
        return None
    for_nvcc = path[:4] == ("sim", "tests", "runtime", "programs") or path[:2] == ("sim", "calibrate")
    if for_nvcc and included == "cuda_runtime.h":
        return None  # a program for nvcc, which is built where there is one
    if not quoted:
        if seen in known and "/" in included:
            return f"<{included}> must be quoted"
        plain = "." not in included and "/" not in included
        if plain or included in INSTALLED | SYSTEM or seen in SYSTEM_FOLDERS:
            return None
        return f"<{included}> is no header that scripts/bootstrap installs (tests/layers.py lists them)"
    if layer in ("abi", "reference") and seen != layer:
        return f"{layer}/ may not include {seen}/"
    if path[:2] == ("api", "cli"):
        if seen in known and seen != "reference" and not included.startswith("api/cli/") and included not in PROGRAM_SEES:
            return f"the program may not include {included}: only lathe.h and pure functions of codegen/base/"
        return None
    if layer == "sim":
        return f"sim/ may not include {seen}/" if seen in ORDER + ["python", "reference", "tests", "bench"] else None
    if layer in ("reference", "tests", "bench"):
        return None
    if seen in ("python", "reference", "sim", "tests", "bench"):
        return f"{layer}/ may not include {seen}/"
    if seen in ORDER and ORDER.index(seen) > ORDER.index(layer):
        return f"{layer}/ may not include {seen}/"
    return family_breach(path, included)


# Rooms of a family from below, "" for the files beside its folders: a room includes from those before it.
ROOMS = {"attention": ["", "forward", "backward", "decode", "block", "ranks"]}
# The plan of flash_attention is beside the folders and puts two steps together.
UPWARDS = {("ops/attention/run.cpp", "ops/attention/forward/step.h"),
           ("ops/attention/run.cpp", "ops/attention/backward/step.h")}


def room_breach(path, included):
    """The same for rooms of a family."""
    rooms, seen = ROOMS.get(path[1], []), included.split("/")
    theirs = seen[2] if len(seen) > 3 else ""
    ours = path[2] if len(path) > 3 else ""
    if seen[-1] == "sm90.h" and not path[-1].startswith(("sm90.", "sm90_")):
        return "what belongs to Hopper's kernels is for sm90.cpp alone: others have the step's list"
    if ours not in rooms or theirs not in rooms or rooms.index(theirs) <= rooms.index(ours):
        return None
    if ("/".join(path), included) in UPWARDS:
        return None
    return f"{'/'.join(path[:-1])} may not include {theirs}/, which is above it"


def family_breach(path, included):
    """The same for families, the folders of ops/."""
    parts = included.split("/")
    family = parts[1] if parts[0] == "ops" and len(parts) > 2 else None
    own = path[1] if path[0] == "ops" and len(path) > 2 else None
    if path[0] == "ops" and own and path[-1].split(".")[0].endswith("kernels") and parts[0] in ("device", "cache", "collective"):
        return f"kernels of a family are functions of integers: they may not include {parts[0]}/"
    if family and family == own and parts[2] == "ranks" and path[2] != "ranks":
        return f"ops/{own} may not include its runs over ranks: run.h declares what makes them"
    if family and family == own:
        return room_breach(path, included)
    if family is None or path[0] not in ("ops", "api"):
        return None
    if own and parts[-1].endswith("kernels.h"):
        return None
    return f"{'/'.join(path[:2]) if own else path[0] + '/'} may not name the family {family}"


def lookups(path, text):
    """Lines of functions of ops/ with launches that look up a constant of a spec."""
    found, function = [], []
    for number, line in enumerate(text.splitlines(), 1) if path[0] == "ops" else ():
        function.append((number, line))
        if not line.startswith("}"):
            continue
        if any(re.search(r"\.(launch|encode)\(", each) for _, each in function):
            found += [at for at, each in function if re.search(r"\bconstant\(", each)]
        function = []
    return found


def is_program(path):
    """Whether a file is of a program of ours, or of a test: not of what other programs load."""
    return path[0] in ("tests", "bench", "reference", "abi", "templates") or path[:2] in (
        ("api", "cli"), ("sim", "calibrate"), ("sim", "examples"), ("sim", "tests"))


def local(path, text):
    """(line, what follows the locale there) of a file."""
    if is_program(path):
        return [(text.count("\n", 0, m.start()) + 1, m[1]) for m in SETS.finditer(text)] if path[0] != "tests" else []
    if "/".join(path) in PLAIN:
        return []
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    found = [(plain.count("\n", 0, m.start()) + 1, m[1]) for m in LOCAL.finditer(re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', plain))]
    found += [(plain.count("\n", 0, m.start()) + 1, "printf of a real number") for m in REALS.finditer(plain)]
    return found + [(plain.count("\n", 0, m.start()) + 1, m[1]) for m in SETS.finditer(plain)]


def check(root):
    """(files read, breaches as text)."""
    read, found = 0, []
    for layer in ORDER + ["abi", "python", "reference", "sim", "tests", "bench"]:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            read += 1
            path = file.relative_to(root).parts
            text = re.sub(r'R"(\w*)\(.*?\)\1"', lambda m: "\n" * m[0].count("\n"), file.read_text(), flags=re.S)
            for number in lookups(path, text):
                found.append(f"{'/'.join(path)}:{number}: a launch has no time to look up constants (NumberedSlot)")
            for number, what in local(path, text):
                found.append(f"{'/'.join(path)}:{number}: {what} follows the program's locale: use from_chars, to_chars, "
                             "codegen/base/letters.h, sim/model/letters.h or text()")
            for number, line in enumerate(text.splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                why = breach(root, path, match[1] or match[2], match[1] is not None)
                if why:
                    found.append(f"{'/'.join(path)}:{number}: {why}")
    return read, found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    read, found = check(root)
    if read == 0:
        print(f"layers: no source below {root}", file=sys.stderr)
        return 2
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
