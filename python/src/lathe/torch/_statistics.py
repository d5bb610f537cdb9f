# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How often torch did something around the kernels."""
from __future__ import annotations

import torch

is_compiling = torch.compiler.is_compiling
_counts: dict[str, int] = {}


def count(what: str) -> None:
    """Counts something that happened around the kernels, such as a copy.

    A trace does not count: the number would be part of what torch.compile checks before each call.
    """
    if not is_compiling():
        _counts[what] = _counts.get(what, 0) + 1


def stats(reset: bool = False) -> dict[str, int]:
    """Returns how often something was done beside the kernels: copies, casts, waits."""
    found = dict(_counts)
    if reset:
        _counts.clear()
    return found
