# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The documents' snippets with NumPy, each as a program of its own on the simulator."""
import subprocess
import sys

import pytest

import snippets

WITH_NUMPY = [each for each in snippets.snippets() if each.kind == ""]


@pytest.mark.parametrize("snippet", WITH_NUMPY, ids=str)
def test_snippet(snippet):
    done = subprocess.run([sys.executable, "-c", snippet.text], text=True, capture_output=True,
                          check=False, cwd=snippets.ROOT)
    assert done.returncode == 0 and done.stdout, f"{snippet}\n{done.stdout}{done.stderr}"


def test_readme_says_how_far_its_numbers_are_from_float64():
    (snippet,) = [each for each in WITH_NUMPY if each.document == "README.md"]
    printed = subprocess.run([sys.executable, "-c", snippet.text], text=True, capture_output=True,
                             check=True).stdout
    error = float(printed.rpartition("error:")[2])
    assert 0 < error < 1e-4, printed  # o itself is some hundredths


def test_all_kinds_are_run():
    assert {each.kind for each in snippets.snippets()} == set(snippets.KINDS)
