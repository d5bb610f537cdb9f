# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""These tests need torch; without it none is collected and the reason is told."""
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed: scripts/test --python installs it")

import lathe.torch

lathe.torch.use_simulator()


@pytest.fixture(scope="module")
def sdpa_on_cpu():
    """Lets torch's operators of flash attention compute CPU tensors by lathe, as on a GPU."""
    from lathe.compat import sdpa

    handle = sdpa._Handle("CPU")
    yield
    handle.remove()
