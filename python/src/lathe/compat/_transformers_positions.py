# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Packed sequences that only their positions tell of, as flash attention in transformers has it.

The mask says so already where the model gives positions to what makes it and there is no cache.
"""
from __future__ import annotations

import weakref
from typing import Any, Callable, NamedTuple

from torch import Tensor

from lathe.compat._kvcache import capturing
from lathe.compat._transformers_mask import sequences
from lathe.torch._calls import count, traced


class _Looked(NamedTuple):
    """What was found in positions: numbers of their sequences, and masks by their window."""

    positions: Callable[[], Tensor | None]  # a weak reference
    version: int
    sequence: Tensor | None  # None: there is one sequence
    masks: dict[int, Tensor]


_looked = _Looked(lambda: None, -1, None, {})  # the positions that were looked at last


def _starts(positions: Tensor) -> Tensor:
    """Returns where positions do not rise by one; the first is no such place."""
    return positions.diff(dim=1, prepend=positions[:, :1] - 1) != 1


def packed_positions(positions: Any, batch: int, tokens: int, window: int) -> Tensor | None:
    """Returns a mask if the positions [1,S] of one row start anew; None if they do not.

    They are looked at once for all layers; in a trace, which cannot, the mask holds for any.
    """
    global _looked
    if batch != 1 or tokens < 2 or not isinstance(positions, Tensor):
        return None
    if positions.shape != (1, tokens):
        return None
    if traced() or capturing():
        return sequences(_starts(positions).cumsum(1), window)
    if _looked.positions() is not positions or _looked.version != positions._version:
        count("waited for the device: position_ids")
        starts = _starts(positions)
        sequence = starts.cumsum(1) if bool(starts.any()) else None
        _looked = _Looked(weakref.ref(positions), positions._version, sequence, {})
    if _looked.sequence is None:
        return None
    if window not in _looked.masks:
        _looked.masks[window] = sequences(_looked.sequence, window)
    return _looked.masks[window]
