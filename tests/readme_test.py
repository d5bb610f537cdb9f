#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""README says what is: readme_test.py SOURCE

Its C is that of the programs in examples/, word for word; its environment table is the one of
codegen/base/env.cpp; the folders and scripts it names exist.
"""
import pathlib
import re
import sys


def environment_table(text):
    """[(name, fallback, meaning)] of the initialiser in env.cpp; adjacent literals are joined."""
    body = text[text.index("table = {"):text.index("};", text.index("table = {"))]
    literal = r'"((?:[^"\\]|\\.)*)"'
    joined = re.sub(r'"\s*\n\s*"', "", body)
    return re.findall(r"\{\s*" + r",\s*".join([literal] * 3) + r"\s*,?\s*\}", joined)


def readme_table(text):
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*?) \|$", text, re.M)
    return [(name, fallback, meaning) for name, fallback, meaning in rows]


def main():
    root = pathlib.Path(sys.argv[1])
    readme = (root / "README.md").read_text()
    failed = []

    examples = {path.name: path.read_text() for path in (root / "examples").iterdir() if path.is_file()}
    if f"```c\n{examples['conv1d.c']}```" not in readme:
        failed.append("the whole of examples/conv1d.c is not shown")
    for block in re.findall(r"^```(?:c|cuh)\n(.*?)^```", readme, re.M | re.S):
        if not any(block in text for text in examples.values()):
            failed.append(f"no example has the lines from {block.splitlines()[0]!r} on")

    code = environment_table((root / "codegen" / "base" / "env.cpp").read_text())
    if len(code) < 5:
        failed.append(f"only {len(code)} variables found in env.cpp")
    shown = readme_table(readme)
    for row in code:
        if row not in shown:
            failed.append(f"environment: no row | `{row[0]}` | {row[1]} | {row[2]} |")
    for row in shown:
        if row not in code and not row[0].startswith("LATHE_SIM_"):
            failed.append(f"environment: {row[0]} is not in env.cpp with these words")

    simulated = {name for path in (root / "sim").glob("*/*.cpp") if path.parent.name != "tests"
                 for name in re.findall(r'"(LATHE_SIM_[A-Z_]+)"', path.read_text())}
    for name in simulated ^ {row[0] for row in shown
                             if row[0].startswith("LATHE_SIM_") and row not in code}:
        failed.append(f"environment: {name} is in one of README and sim/ alone")

    for path in set(re.findall(r"`((?:scripts|templates|codegen|cache|collective|api|sim|tests|"
                               r"bench|examples|\.ci)/[\w./-]*)`", readme)):
        if not (root / path).exists():
            failed.append(f"{path} is named and does not exist")

    for line in failed:
        print(f"README.md: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
