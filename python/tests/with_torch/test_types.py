# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The types of lathe.run, which are written from the operator table, in the eyes of mypy."""
import os
import pathlib
import re
import subprocess
import sys

import lathe
import snippets

PROGRAM = """
import os
from typing import assert_type
import lathe, numpy
from lathe._signatures import KdaResults

x = numpy.zeros((1, 8, 4, 16), "f")
found = lathe.run("kda", q=x, k=x, v=x, g=x, beta=x[..., 0], scale=0.5, use_gate_in_kernel=True)
assert_type(found, KdaResults)
plain: lathe.Results = found
found.o, found.dq, found["o"]
lathe.run("flash_attention", q=x, k=x, v=x, causal=1, score_mod=lathe.DeviceText(""), dlse=None)
lathe.run("causal_conv1d", x=x, weight=x, activation="silu", context=lathe.context("sim"))
assert_type(lathe.run(lathe.operators()[os.environ["OP"]], anything=x), lathe.Results)
lathe.run("kda", q=x, k=x, v=x, g=x)  # wrong: beta
lathe.run("kda", q=x, k=x, v=x, g=x, beta=x, cu_seqlen=x)  # wrong: a name
lathe.run("kda", q=x, k=x, v=x, g=x, beta="x")  # wrong: no array
lathe.run("flash_attention", q=x, k=x, v=x, softmax_scale="1")  # wrong: a text
lathe.run("causal_conv1d", x=x, weight=x, activation="gelu")  # wrong: not allowed
lathe.run("flash_atention", q=x, k=x, v=x)  # wrong: an operator
"""


def test_a_type_checker_knows_the_operators(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache",
               "program.py"]
    # mypy does not read PYTHONPATH.
    environment = {**os.environ, "MYPYPATH": str(pathlib.Path(lathe.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True,
                          check=False)
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    reported = {int(line) for line in re.findall(r"^program.py:(\d+): error", done.stdout, re.M)}
    assert wrong and reported == wrong, done.stdout + done.stderr
    assert "error: " not in re.sub(r"^program.py:.*\n", "", done.stdout, flags=re.M), done.stdout


def test_the_types_have_every_operator():
    text = (snippets.ROOT / "python/src/lathe/_signatures.pyi").read_text()
    assert re.findall(r'op: Literal\["(\w+)"\]', text) == list(lathe.operators())
