#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A program of another language on the installed package: languages_test.py SOURCE BUILD LANGUAGE

Installs BUILD into a temporary prefix and runs SOURCE/examples/languages/LANGUAGE/run.sh on a copy of
its folder, beside one of examples/own_kernels, on the simulator under its checkers. The program says how far each of its results is from
a formula in double, and one sentence of lathe's about what it refuses. Skipped (exit 77), with the
reason, where the language's tools are not installed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# The command that must be there, and the package that brings it.
TOOLS = {"go": ("go", "golang-go"), "java": ("java", "default-jdk-headless"), "luajit": ("luajit", "luajit"),
         "node": ("node", "nodejs libnode-dev"), "rust": ("cargo", "cargo")}
OPERATORS = ["causal_conv1d", "flash_attention", "own_kernel"]
MOST_LINES = 300  # of code in a language, comments and blank lines left out


def missing(language):
    """Why the program cannot be built here; empty if it can."""
    tool, package = TOOLS[language]
    if shutil.which(tool) is None:
        return f"there is no {tool} (remedy: apt-get install {package})"
    if language == "java":
        found = subprocess.run([tool, "-version"], stderr=subprocess.PIPE, text=True, check=True).stderr
        version = re.search(r'version "(\d+)', found)
        if not version or int(version[1]) < 22:
            return (f"java.lang.foreign needs JDK 22 or later, and java is {version and version[1]} "
                    "(remedy: put a later one into PATH)")
    if language == "node":
        headers = pathlib.Path(shutil.which("node")).resolve().parent.parent / "include/node/node_api.h"
        if not headers.is_file():
            return f"there is no {headers} (remedy: apt-get install libnode-dev)"
    return ""


def main():
    source, build, language = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    files = [path for path in (source / "examples/languages" / language).rglob("*")
             if path.suffix in (".rs", ".go", ".java", ".js", ".cpp", ".lua") and "target" not in path.parts]
    lines = sum(re.match(r"\s*($|//|--|\*|/\*)", line) is None for path in files for line in path.read_text().splitlines())
    if not 0 < lines <= MOST_LINES:
        sys.exit(f"{language}: {lines} lines of code; allowed are 1 to {MOST_LINES}")
    reason = missing(language)
    if reason:
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory(prefix="lathe-language-") as folder:
        root = pathlib.Path(folder)
        subprocess.run(["cmake", "--install", build, "--prefix", root / "prefix"], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copytree(source / "examples/languages" / language, root / "languages" / language)
        shutil.copytree(source / "examples/own_kernels", root / "own_kernels")
        env = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
        env.update(LATHE_PREFIX=str(root / "prefix"), LATHE_DEVICE="sim", LATHE_SIM_CHECK="all",
                   LATHE_CACHE_DIR=str(root / "cache"), OUT=str(root), GOCACHE=str(root / "go"),
                   GOFLAGS="-mod=mod", GOPROXY="off")
        for wheel in (pathlib.Path(__file__).parent.parent / ".deps/lib").glob("libnvrtc.so.*"):
            env["LATHE_NVRTC"] = str(wheel.resolve())
        done = subprocess.run([root / "languages" / language / "run.sh"], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, timeout=240)
    print(done.stdout + done.stderr)
    errors = dict(re.findall(r"^(\w+): largest error (\S+)$", done.stdout, re.M))
    for operator in OPERATORS:
        if not 0 < float(errors.get(operator, "nan")) < 1e-5:
            sys.exit(f"{operator}: {errors.get(operator)}, expected an error below 1e-5")
    if not re.search(r"^refused: .*'relu'; allowed are none\|silu$", done.stdout, re.M):
        sys.exit("expected what lathe says of an activation that it does not have")
    if done.returncode != 0 or "lathe sim:" in done.stderr:
        sys.exit(f"exit {done.returncode}, or findings of the simulator")
    return 0


if __name__ == "__main__":
    sys.exit(main())
