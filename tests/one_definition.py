#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""No two headers define a type of one name in one namespace: one_definition.py ROOT

The linker keeps one of the two constructors without a word, and whoever made the other type gets it; as
long as the compiler inlines both, nobody notices. First finds a planted case. Exits 1 if there is any.
"""
import collections
import pathlib
import re
import sys

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
TOKEN = re.compile(r"namespace\s+([\w:]*)\s*\{|(?:struct|class|enum class|enum)\s+(\w+)\s*(?:final\s*)?(?::(?!:)[^;{}()]*)?\{|[{}]")
# What one program may link: the simulator stands apart, as do the sources of a kernel that tests compile.
PROGRAMS = [["codegen", "device", "cache", "collective", "ops", "api", "reference", "tests", "bench"], ["sim"]]
APART = ["sim/tests/gemm/"]


def types_of(text):
    """Names of the types that `text` defines at namespace scope."""
    scopes = []  # a name for a namespace, None for any other brace
    for match in TOKEN.finditer(NOISE.sub(" ", text)):
        namespace, name = match[1], match[2]
        if match[0] == "}":
            if scopes:
                scopes.pop()
        elif match[0] == "{":
            scopes.append(None)
        elif namespace is not None:
            scopes.append(namespace or None)  # an unnamed one keeps its types to itself
        else:
            if None not in scopes:
                yield "::".join(scopes + [name])
            scopes.append(None)


def twice(headers):
    """'name: file, file' for each type that several of {file: text} define."""
    found = collections.defaultdict(set)
    for file, text in headers.items():
        for name in types_of(text):
            found[name].add(file)
    return [f"{name}: {', '.join(sorted(files))}" for name, files in sorted(found.items()) if len(files) > 1]


def main():
    planted = {"a.h": "namespace n {\nstruct Question { int a = 0; };\n}  // namespace n",
               "b.h": "namespace n {\nclass Other {\n  struct Question {};\n};\nstruct Question : Other { };\n}",
               "c.h": "namespace n { namespace { struct Question {}; } }\nnamespace m { struct Question {}; }"}
    if twice(planted) != ["n::Question: a.h, b.h"]:
        print(f"the planted case is not found: {twice(planted)}")
        return 1
    root = pathlib.Path(sys.argv[1])
    found, read = [], 0
    for folders in PROGRAMS:
        files = [path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*.h")]
        headers = {file: (root / file).read_text() for file in files if not any(file.startswith(a) for a in APART)}
        read += len(headers)
        found += twice(headers)
    print(*found, sep="\n")
    return 1 if found or read < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
