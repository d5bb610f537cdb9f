#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""abi/*.h say what NVIDIA's own headers say: abi_test.py ROOT CUDA_INCLUDE [C++ COMPILER]

Each enumerator, macro and member of ours is printed by two programs, one with our header and one with the
vendor's, and each function is declared once more with our types beside the vendor's declaration. Exit
status 77, skipped, where no vendor header is found: scripts/bootstrap takes none.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Where a tool kit, a distribution or a wheel leaves them.
PLACES = [os.environ.get("CUDA_HOME", "") + "/include", "/usr/local/cuda/include", "/usr/local/include", "/usr/include"]
# The configuration grows with each release; the sizes and defaults differ, the first members do not.
GROWING = {"NCCL_CONFIG_INITIALIZER"}


def names_of(text):
    """(enumerators and plain macros, {struct: members}, function declarations) of one of our headers."""
    text = re.sub(r"//[^\n]*", "", text)
    values = [name for body in re.findall(r"typedef enum \{(.*?)\}", text, re.S)
              for name in re.findall(r"(\w+) =", body)]
    values += [name for name in re.findall(r"#define (\w+) ", text) if name not in GROWING]
    structs = {name: re.findall(r"(\w+)(?:\[\w+\])?;", body)
               for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.S)}
    functions = [" ".join(line.split()) for line in re.findall(r"^(?:\w+ )+\*?(?:\w+\* )?\w+\([^;{]*?\);", text, re.M)]
    return values, structs, functions


def program(header, values, structs):
    lines = [f'#include {header}', "#include <cstddef>", "#include <cstdio>", "int main() {"]
    lines += [f'  std::printf("{name} %lld\\n", (long long)({name}));' for name in values]
    lines += [f'  std::printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof({name}::{member}));'
              for name, members in structs.items() for member in members]
    return "\n".join(lines + ["}"]) + "\n"


def printed(compiler, folder, includes, text):
    source, binary = folder / "print.cpp", folder / "print"
    source.write_text(text)
    subprocess.run([compiler, "-w", *(f"-isystem{place}" for place in includes), str(source), "-o", str(binary)], check=True)
    return subprocess.run([str(binary)], check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    root, cuda = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    compiler = sys.argv[3] if len(sys.argv) > 3 else "c++"
    compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ours in sorted((root / "abi").glob("*.h")):
            place = next((p for p in PLACES if (pathlib.Path(p) / ours.name).exists()), None)
            if place is None:
                print(f"{ours.name}: no header of the vendor in {', '.join(PLACES[1:])}")
                continue
            values, structs, functions = names_of(ours.read_text())
            assert values or functions, f"{ours}: nothing was read"
            values = [v for v in values if not re.search(rf"define {v}\(", ours.read_text())]
            mine = printed(compiler, folder, [root, cuda], program(f'"{ours}"', values, structs))
            theirs = printed(compiler, folder, [place, cuda], program(f"<{ours.name}>", values, structs))
            assert mine == theirs, f"{ours.name} differs from {place}:\n--- ours\n{mine}--- theirs\n{theirs}"
            # Another declaration of a C function with other types is an error.
            again = "\n".join([f"#include <{ours.name}>", 'extern "C" {', *functions, "}", "int main() {}", ""])
            printed(compiler, folder, [place, cuda], again.replace("(void)", "()"))
            print(f"{ours.name}: {len(values)} values, {len(functions)} functions as in {place}")
            compared += 1
    return 0 if compared else 77


if __name__ == "__main__":
    sys.exit(main())
