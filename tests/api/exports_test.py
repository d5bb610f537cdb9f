#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The library exports what its header declares and nothing else: exports_test.py LIBRARY SOURCE"""
import pathlib
import re
import subprocess
import sys


def main():
    library, source = sys.argv[1], pathlib.Path(sys.argv[2])
    table = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    exported = {line.split()[2].split("@")[0] for line in table.splitlines()
                if line.split()[1] != "A"}
    parts = [source / "api" / "lathe.h", *sorted((source / "api" / "lathe").glob("*.h"))]
    text = "".join(part.read_text() for part in parts)
    header = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    declared = set(re.findall(r"LATHE_API[^;(]*?\b(lathe_\w+)\(", header))
    listed = set(re.findall(r"\b(lathe_\w+);", (source / "api" / "lathe.map").read_text()))
    bad = 0
    for what, left, right in (("exported, not in lathe.map", exported, listed),
                              ("in lathe.map, not exported", listed, exported),
                              ("in lathe.h, not in lathe.map", declared, listed),
                              ("in lathe.map, not in lathe.h", listed, declared)):
        for name in sorted(left - right):
            print(f"{what}: {name}")
            bad = 1
    if len(declared) < 40:
        sys.exit(f"only {len(declared)} functions found in lathe.h")
    print(f"{len(exported)} functions exported")
    sys.exit(bad)


if __name__ == "__main__":
    main()
