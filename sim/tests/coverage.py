#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every instruction of the table stands in the PTX of some test that runs it.

Usage: coverage.py <sim folder>. The list of spellings, which is only decoded, does not count.
"""
import pathlib
import re
import sys

sim = pathlib.Path(sys.argv[1])
tables = sorted((sim / "ptx/opcodes").glob("table*.cpp"))
names = {n for t in tables for n in re.findall(r'^    \{"(\w+)", Op::', t.read_text(), re.M)}
tests = [p for p in sorted((sim / "tests").rglob("*.cpp")) if p.name != "opcodes_test.cpp"
         and "fuzz" not in p.parts]
# Only string literals: words of C++ and of comments are no statements.
LITERAL = re.compile(r'//[^\n]*|R"(\w*)\((.*?)\)\1"|"((?:[^"\\]|\\.)*)"', re.S)
text = "\n".join((m[2] if m[2] is not None else m[3] or "") + '"'
                 for p in tests for m in LITERAL.finditer(p.read_text())).replace("\\n", "\n")
# A word where a statement may begin, followed by modifiers, an operand or the statement's end. A
# test may put the modifiers together from pieces: a quote then follows the name.
used = set(re.findall(r'(?:^|[\s;"{}:(])(\w+)(?:\.[\w:]+)*(?:\.?"|[ \t]*;|[ \t]+[%\[{_"\w(-])', text, re.M))
missing = sorted(names - used)
# Families with opcodes of several words: their stems, in tests, corpus and kernels that tests run.
stems = set(re.findall(r'^    \{"([\w.]+)",', (sim / "ptx/opcodes/async.cpp").read_text(), re.M))
stems |= set(re.findall(r'"((?:mma|wgmma|wmma|ldmatrix|stmatrix|movmatrix)[\w.]*)"',
                        (sim / "ptx/opcodes/tensor.cpp").read_text()))
run = text + "".join(p.read_text() for end in ("h", "ptx", "cuh") for p in (sim / "tests").rglob("*." + end))
missing += sorted(s for s in stems if not re.search(re.escape(s) + r"(?![\w])", run))
names |= stems
print(f"{len(names)} instructions, {len(tests)} tests")
for name in missing:
    print(f"no test runs '{name}'")
sys.exit(1 if missing or not names else 0)
