# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""These tests need torch; without it none is collected and the reason is told."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: scripts/test --python installs it")

import lathe.torch

lathe.torch.use_simulator()
