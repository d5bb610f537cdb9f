# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Makes device text of score_mod and mask_mod, callables of torch.

Each call runs them once (_mod_record.py), so what they read is never stale. Their text is kept by
what that run recorded, with its numbers and the extents of captures left out. A number is a
literal of the text at first, which serves kernels best and is right for what never changes. One
that differs when the same operators are recorded again is read from a tensor from then on: an
offset that grows compiles twice, at its first two values.
"""
from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

import lathe.torch._mod_division  # noqa: F401  the operators that a mod may have
import lathe.torch._mod_operations  # noqa: F401
from lathe._errors import Unsupported
from lathe.torch._calls import count
from lathe.torch._mod_blocks import Blocks, block_text
from lathe.torch._mod_helpers import helpers_of
from lathe.torch._mod_numbers import numbers_on
from lathe.torch._mod_captures import MOST_CAPTURES
from lathe.torch._mod_record import Record
from lathe.torch._mod_text import Numbers, Writer
from lathe.torch._mod_types import BOOL, FLOAT, c_type

Callback = Callable[..., Any]


class Mods(NamedTuple):
    """Device texts of a score_mod and a mask_mod, and the tensors that they read."""

    score_mod: str | None
    mask_mod: str | None
    captures: tuple[Tensor, ...]


class _Texts(NamedTuple):
    """Texts of all calls that record the same, and what their numbers were; None for symbols."""

    score_mod: str | None
    mask_mod: str | None
    values: tuple[int | None, ...]
    varying: frozenset[int]
    used: tuple[int, ...]  # the constants that texts read from a capture


_texts: dict[Any, _Texts] = {}
_MOST_TEXTS = 1024
_INDICES = "int batch, int head, int q_idx, int kv_idx"


class _Run(NamedTuple):
    """What a run of both mods recorded, and the results of their functions."""

    record: Record
    score: Any
    score_bwd: Any
    mask: Any
    blocks: Blocks | None


def _run(score_mod: Callback | None, mask_mod: Callback | None, gradient: bool,
         device: torch.device, blocks: Blocks | None, places: bool = False) -> _Run:
    score = score_bwd = mask = None
    with ExitStack() as stack:
        # Neither torch.func.vmap nor a mode that traces must see what a mod does.
        if torch._C._functorch.peek_interpreter_stack() is not None:
            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        record = Record(device, places)
        if blocks is not None:
            record.tokens += ("blocks", blocks.block_size, bool(blocks.states.shape[0] == 1),
                              bool(blocks.states.shape[1] == 1), mask_mod is None)
            record.capture(blocks.states)
        if score_mod is not None:
            record.tokens.append("score_mod")
            score, score_bwd = record.score(score_mod, gradient)
        if mask_mod is not None:
            record.tokens.append("mask_mod")
            mask = record.mask(mask_mod)
    return _Run(record, score, score_bwd, mask, blocks)


# ---- texts ---------------------------------------------------------------------------------------


def _function(record: Record, numbers: Numbers, result: Any, dtype: torch.dtype, name: str,
              parameters: str) -> str:
    """Returns the text of a function of the device."""
    writer = Writer(record, numbers, result)
    end = f"  return {writer.returned(dtype)};"  # it may add a line that reads a capture
    lines = "\n".join([*writer.lines, end])
    if "captures." in lines:
        parameters += ", const Captures& captures"
    return f"__device__ {c_type(dtype)} {name}({parameters}) {{\n{lines}\n}}\n"


def _written(run: _Run, varying: frozenset[int]) -> _Texts:
    """Returns the texts of a run, in which the constants in `varying` are read from a capture."""
    record = run.record
    slot: int | None = len(record.captures.groups)
    slot = slot if slot != MOST_CAPTURES else None
    numbers = Numbers(record, varying, slot)
    score = mask = None
    if run.score is not None:
        score = _function(record, numbers, run.score, FLOAT, "score_mod",
                          f"float score, {_INDICES}")
        if run.score_bwd is not None:
            score += _function(record, numbers, run.score_bwd, FLOAT, "score_mod_bwd",
                               f"float dscore, float score, {_INDICES}")
        score = helpers_of(score) + score
    if run.mask is not None:
        name = "mask_mod" if run.blocks is None else "mask_within"
        mask = _function(record, numbers, run.mask, BOOL, name, _INDICES)
        mask = helpers_of(mask) + mask
    if run.blocks is not None:
        mask = block_text(run.blocks, mask, numbers)
    count("wrote the text of a mod")
    return _Texts(score, mask, _comparable(record.values()), varying, tuple(numbers.used))


def _comparable(values: tuple[Any, ...]) -> tuple[int | None, ...]:
    """Returns values with None for a symbol of torch.compile.

    To compare a symbol would guard on its value, and one that is kept belongs to another trace.
    """
    return tuple(each if type(each) is int else None for each in values)


def _texts_of(run: _Run, again: Callable[[], _Run]) -> _Texts:
    """Returns the texts of a run; `again` runs the mods again, for the line of a message."""
    key: Any = run.record.key()
    values = _comparable(run.record.values())
    if len(run.record.captures.groups) == MOST_CAPTURES:  # none has room for numbers: all literals
        key = key, values
    known = _texts.get(key)
    if known is not None and known.values == values:
        return known
    varying = known.varying if known is not None else frozenset()
    changed = {at for at, value in enumerate(values) if at not in varying and (
        value is None or known is not None and known.values[at] != value)}
    if known is not None and not changed:
        return known
    try:
        found = _written(run, varying | changed)
    except Unsupported:
        _written(again(), varying | changed)  # which raises it with the user's line
        raise
    if len(_texts) >= _MOST_TEXTS:
        _texts.clear()
    _texts[key] = found
    return found


def trace_mods(score_mod: Callback | None, mask_mod: Callback | None, gradient: bool,
               device: torch.device, blocks: Blocks | None = None) -> Mods:
    """Returns the texts of two callables, either of which may be None, and their captures."""
    run = _run(score_mod, mask_mod, gradient, device, blocks)
    texts = _texts_of(run, lambda: _run(score_mod, mask_mod, gradient, device, blocks, True))
    captures = run.record.captures.flat()
    if texts.used:
        values = run.record.values()
        captures += (numbers_on(device, tuple(values[at] for at in texts.used)),)
    return Mods(texts.score_mod, texts.mask_mod, captures)
