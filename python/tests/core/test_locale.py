# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A program with decimal commas gets the numbers and the reports that any other gets."""
import os
import pathlib
import subprocess
import sys

import pytest

LOCALE = "de_DE.UTF-8"

PROGRAM = """
import json, locale, os, sys
import numpy as np
import lathe

locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","
r = np.random.default_rng(0)
x, w = r.standard_normal((1, 9, 8)).astype("f4"), r.standard_normal((8, 4)).astype("f4")
y = lathe.run("causal_conv1d", x=x, weight=w, activation="silu").y
z = sum(np.pad(x, ((0, 0), (3, 0), (0, 0)))[:, i:i + 9].astype("f8") * w[:, i] for i in range(4))
np.testing.assert_allclose(y, z / (1 + np.exp(-z)), rtol=1e-5, atol=1e-6)

q, k, v = (r.standard_normal((1, 20, 2, 16)).astype("f2") for _ in range(3))
plan = dict(q=q, k=k, v=v, softmax_scale=0.3, softcap=2.5)
s = 2.5 * np.tanh(0.3 / 2.5 * np.einsum("bihd,bjhd->bhij", q.astype("f8"), k.astype("f8")))
p = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
np.testing.assert_allclose(lathe.run("flash_attention", **plan).out,
                           np.einsum("bhij,bjhd->bihd", p, v.astype("f8")), rtol=0, atol=3e-3)
for line in open(os.environ["LATHE_SIM_CLOCK"]):
    json.loads(line)
for line in open(os.environ["LATHE_SIM_COUNTERS"]):
    json.loads(line)
print("numbers and reports are right")
"""


def test_a_decimal_comma(tmp_path: pathlib.Path) -> None:
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / LOCALE)],
                          capture_output=True) if _has_localedef() else None
    if made is None or not (tmp_path / LOCALE).exists():
        pytest.skip("localedef cannot make de_DE.UTF-8 here (Debian's package locales has it)")
    environment = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": LOCALE,
                   "LATHE_SIM_LINK": "450.5,1.5", "LATHE_SIM_CLOCK": str(tmp_path / "clock"),
                   "LATHE_SIM_COUNTERS": str(tmp_path / "counters"),
                   "LATHE_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True,
                         text=True)
    assert run.returncode == 0 and "are right" in run.stdout, run.stdout + run.stderr


def _has_localedef() -> bool:
    try:
        return subprocess.run(["localedef", "--version"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
