# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The examples for NumPy are run, and do what they say."""
import pathlib
import runpy

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def test_server(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)  # as python sets it for a script
    names = runpy.run_path(str(EXAMPLES / "server.py"))
    # Half precision lies so far from float64 that words this near to the best are chosen.
    assert names["main"]() < 0.1
