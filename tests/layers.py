#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The layer law, proved on the include lines: layers.py ROOT

templates <- codegen <- cache <- collective <- api: a folder includes only from itself and from
those to its left. sim/ includes none of them and none includes sim/. The program (api/cli) sees
the public header and nothing else of ours. Files in templates/params include nothing. Host code
includes few headers of NVIDIA's, all of them in the wheels that scripts/bootstrap takes where there
is no tool kit.
Prints one line per breach; exits 1 if there is any, 2 if nothing was there to check.
"""
import pathlib
import re
import sys

ORDER = ["templates", "codegen", "cache", "collective", "api"]
SUFFIXES = {".h", ".c", ".cpp", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# Device text names its files from templates/: these are the folders an include may start with. What
# begins with "snippet" is text of a caller and comes with the spec.
DEVICE_ROOTS = {"params", "common", "conv", "kda", "attention", "sparse", "snippet"}
PROGRAM_SEES = {"api/lathe.h"}
VENDOR_HEADER = re.compile(r"(cu[A-Za-z_]\w*|nv\w+|nccl\w*|vector_\w+)\.hp?p?")
VENDOR_HEADERS = {"cuda.h", "nvrtc.h", "nccl.h", "cuda_bf16.h"}  # the last in texts for NVRTC


def breach(path, included, quoted):
    """Why `path` (relative, parts) may not include `included`; None if it may."""
    layer, seen = path[0], included.split("/")[0]
    known = ORDER + ["sim"]
    if layer == "templates":
        if path[1] == "params":
            return "files in templates/params include nothing"
        if not quoted:
            return f"device text may not include <{included}>: no system or tool kit header"
        if seen not in DEVICE_ROOTS:
            return f"device text may not include {included}: name it from templates/"
        return None
    if not quoted:
        if VENDOR_HEADER.fullmatch(included) and included not in VENDOR_HEADERS:
            return f"<{included}> may be in no wheel of scripts/bootstrap: declare what is needed"
        return f"<{included}> must be quoted" if seen in known and "/" in included else None
    if path[:2] == ("api", "cli"):
        if seen in known and not included.startswith("api/cli/") and included not in PROGRAM_SEES:
            return f"the program may not include {included}: only lathe.h"
        return None
    if layer == "sim":
        return f"sim/ may not include {seen}/" if seen in ORDER + ["tests", "bench"] else None
    if layer in ("tests", "bench"):
        return None
    if seen in ("sim", "tests", "bench"):
        return f"{layer}/ may not include {seen}/"
    if seen in ORDER and ORDER.index(seen) > ORDER.index(layer):
        return f"{layer}/ may not include {seen}/"
    return None


def check(root):
    """(files read, breaches as text)."""
    read, found = 0, []
    for layer in ORDER + ["sim", "tests", "bench"]:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            read += 1
            path = file.relative_to(root).parts
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                why = breach(path, match[1] or match[2], match[1] is not None)
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
