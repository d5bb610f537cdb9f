# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The examples in Python are run, and do what they say."""
import pathlib
import runpy

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def test_transformers():
    pytest.importorskip("transformers", reason="transformers is not installed: "
                                               "tests/peers/install.sh installs it")
    from lathe.compat.transformers import unregister

    try:
        names = runpy.run_path(str(EXAMPLES / "transformers_lathe.py"))
        losses, right = names["main"]()
    finally:
        unregister()
    assert losses[-1] < 0.1 * losses[0] and right == 1.0


def test_every_example_in_python_is_here():
    # The server with its model runs in core/test_examples.py, and hybrid.py in core/test_ranks.py.
    names = {each.name for each in EXAMPLES.glob("*.py")}
    assert names == {"hybrid.py", "server.py", "server_model.py", "transformers_lathe.py"}
