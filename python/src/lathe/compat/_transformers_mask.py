# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The masks that transformers hands from its masking functions to lathe's attention.

A mask must pass as one tensor of four dimensions through models, generate() and torch.compile. It
is None where the attention's own arguments say everything, else a tensor of one of these kinds.
Nobody makes masks of unsigned words, so their dtype tells them from masks of the caller's:

- `Extents`: uint32 [0,sides,keys,window], without elements. sides 1: causal, counted from the last
  of the first `keys` keys, and a query sees at most `window` keys. sides 2: a query sees the keys
  that are at most `window` away.
- `Intervals`: uint32 [1,1,1,..], of padded batches and static caches: the place of each key, -1 if
  it is padding, and the first and the last place that each query sees. A mask_mod reads it.
- `Offsets`: uint64 [1,1,window,N+1]. The rows of the batch, one after the other, are N sequences,
  and each is causal with that window.
- `Starts`: uint64 [1,2,1,1+B*S], in a trace, which cannot know N: S, then the first place that each
  query sees up to its own.
- anything else is a table [B|1,H|1,Sq|1,Sk], bool or to be added, as the caller made it.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lathe.compat._kvcache import capturing
from lathe.torch._calls import count, traced

_LAST = 2**31 - 1
_HEADER = 4  # numbers before the places of an Intervals: keys, queries, rows of the batch, unused

# Device text. The array holds the header, places [B,Sk], first [B,Sq] and last [B,Sq].
INTERVALS_MOD = """\
__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx, const Captures& captures) {
  const long long keys = captures.get<0>(0), queries = captures.get<0>(1);
  const long long first = 4 + captures.get<0>(2) * keys + batch * queries + q_idx;
  const int place = captures.get<0>(4 + batch * keys + kv_idx);
  return place >= captures.get<0>(first) &&
         place <= captures.get<0>(first + captures.get<0>(2) * queries);
}
"""

# Device text, beside causal. The array holds the length of a row and the first places, which rise.
STARTS_MOD = """\
__device__ long long first_place(int batch, int q_idx, const Captures& captures) {
  return captures.get<0>(1 + batch * captures.get<0>(0) + q_idx);
}
__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx, const Captures& captures) {
  return kv_idx >= first_place(batch, q_idx, captures);
}
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1,
                         const Captures& captures) {
  if (k1 - 1 < first_place(batch, q0, captures)) return 0;
  return k0 >= first_place(batch, q1 - 1, captures) ? 2 : 1;
}
"""


class Pattern(NamedTuple):
    """Which keys a query sees: from `left` places before its own to `right` after it."""

    left: int | None  # None: all
    right: int | None
    sequence: Tensor | None = None  # [B,S]: tokens of one number are a sequence of their own


# ---- recognising -------------------------------------------------------------------------------


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _both(a: Pattern, b: Pattern) -> Pattern | None:
    """Returns the keys that both patterns keep; None if no pattern says it."""
    if a.sequence is not None and b.sequence is not None:
        return None
    sequence = a.sequence if b.sequence is None else b.sequence
    return Pattern(_least(a.left, b.left), _least(a.right, b.right), sequence)


def pattern_of(mask: Any) -> Pattern | None:
    """Returns the pattern of one of transformers' mask functions; None for one not known here.

    A function is known by the name of what made it and by what it closes over. Positions within a
    packed sequence count like indices, because a sequence is a run of positions that rise by one.
    """
    if getattr(mask, "__module__", None) != "transformers.masking_utils":
        return None
    maker = mask.__qualname__.partition(".")[0]
    if maker == "causal_mask_function":
        return Pattern(None, 0)
    if maker == "bidirectional_mask_function":
        return Pattern(None, None)
    closed = {name: cell.cell_contents
              for name, cell in zip(mask.__code__.co_freevars, mask.__closure__ or ())}
    if maker == "sliding_window_overlay":
        return Pattern(closed["sliding_window"] - 1, None)
    if maker == "sliding_window_bidirectional_overlay":
        return Pattern(closed["sliding_window"], closed["sliding_window"])
    if maker == "packed_sequence_mask_function":
        return Pattern(None, None, closed["packed_sequence_mask"])
    if maker == "remap_positions_for_packed_sequence":
        return pattern_of(closed["mask_function"])
    if maker != "and_masks":
        return None
    found: Pattern | None = Pattern(None, None)
    for part in closed["mask_functions"]:
        known = pattern_of(part)
        found = None if found is None or known is None else _both(found, known)
    return found


# ---- kinds -------------------------------------------------------------------------------------


def extents(sides: int, keys: int, window: int, device: Any) -> Tensor:
    """Returns an Extents."""
    return torch.empty((0, sides, keys, window), dtype=torch.uint32, device=device)


def sequences(number: Tensor, window: int) -> Tensor:
    """Returns the Offsets of rows [B,S] in which tokens of one number are a sequence, or Starts."""
    starts = torch.ones_like(number, dtype=torch.bool)
    starts[:, 1:] = number[:, 1:] != number[:, :-1]
    if traced() or capturing():
        at = torch.arange(number.shape[1], device=number.device).expand(number.shape)
        first = torch.where(starts, at, 0).cummax(1).values
        first = torch.maximum(first, at - (window - 1))
        length = torch.full((1,), number.shape[1], device=number.device)
        return torch.cat([length, first.flatten()]).view(torch.uint64).expand(1, 2, 1, -1)
    count("waited for the device: packed sequences")
    found = torch.nn.functional.pad(starts.flatten().nonzero().flatten(), (0, 1),
                                    value=number.numel())
    return found.view(torch.uint64).expand(1, 1, window, -1)


def first_place(batch: int) -> int:
    """Returns where the header of an Intervals begins: after the lengths, aligned to 16 bytes."""
    return -(-batch // 4) * 4


def intervals(batch: int, queries: int, keys: int, q_offset: Any, kv_offset: int,
               pattern: Pattern, padding: Tensor | None, device: Any) -> Tensor:
    """Returns an Intervals; before it come how many keys of each row there are, for a cache.

    q_offset, the place of the first query, is a number or [B,1].
    """
    at = torch.arange(queries, dtype=torch.int32, device=device) + q_offset
    first = torch.zeros_like(at) if pattern.left is None else (at - pattern.left).clamp(min=0)
    last = torch.full_like(at, _LAST) if pattern.right is None else at + pattern.right
    places = torch.arange(keys, dtype=torch.int32, device=device) + kv_offset
    rows = places.expand(batch, keys)
    if padding is not None:
        rows = torch.where(padding, rows, -1)
    used = torch.full((1,), keys, dtype=torch.int32, device=device)
    if pattern.right is not None:
        used = (last[..., -1] + (1 - kv_offset)).clamp(max=keys)
    header = [torch.full((1,), number, device=device) for number in (keys, queries, batch, 0)]
    unused = torch.zeros(first_place(batch) - batch, device=device)
    parts = [used.expand(batch), unused, *header, rows.flatten(),
             first.expand(batch, queries).flatten(), last.expand(batch, queries).flatten()]
    numbers = torch.cat([part.to(torch.int32) for part in parts])
    return numbers.view(torch.uint32)[None, None, None]


def intervals_size(batch: int, queries: int, keys: int) -> int:
    """Returns how many numbers an Intervals has."""
    return first_place(batch) + _HEADER + batch * (keys + 2 * queries)


def kind_of(mask: Tensor | None) -> str:
    """Returns the kind of a mask by its name in lower case; None is "extents" too."""
    if mask is None:
        return "extents"
    if mask.dim() == 4 and mask.dtype == torch.uint64:
        return "offsets" if mask.shape[1] == 1 else "starts"
    if mask.dim() == 4 and mask.dtype == torch.uint32:
        return "extents" if mask.shape[0] == 0 else "intervals"
    return "table"


def numbers_of(mask: Tensor) -> Tensor:
    """Returns the numbers of an Intervals, Offsets or Starts, in one dimension."""
    return mask[0, 0, 0].view(torch.int32 if mask.dtype == torch.uint32 else torch.int64)


# ---- what transformers calls -------------------------------------------------------------------


def _padding_of(attention_mask: Tensor | None, keys: int, kv_offset: int, queries: int
                ) -> Tensor | None:
    """Returns which keys are no padding [B,Sk]; None if all are none.

    A prompt's mask is looked at, which waits for the device, once for all layers: without padding
    faster kernels run. The mask of one token is taken as it comes.
    """
    if attention_mask is None:
        return None
    missing = keys + kv_offset - attention_mask.shape[-1]
    if missing > 0:
        attention_mask = torch.nn.functional.pad(attention_mask, (0, missing))
    found = attention_mask[:, kv_offset:kv_offset + keys].to(torch.bool)
    if queries > 1 and not traced() and not capturing():
        count("waited for the device: attention_mask")
        if bool(found.all()):
            return None
    return found


def attention_mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0,
                   kv_offset: int = 0, mask_function: Any = None,
                   attention_mask: Tensor | None = None, device: Any = "cpu", **more: Any
                   ) -> Tensor | None:
    """Returns the mask for lathe's attention, as AttentionMaskInterface asks for it."""
    pattern = pattern_of(mask_function)
    if pattern is None or (pattern.sequence is not None and pattern.right != 0):
        from transformers.masking_utils import sdpa_mask

        more.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        table: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset,
                                         mask_function, attention_mask, device=device, **more)
        return table
    padding = _padding_of(attention_mask, kv_length, kv_offset, q_length)
    if pattern.sequence is not None:
        window = q_length if pattern.left is None else min(pattern.left + 1, q_length)
        return sequences(pattern.sequence, window)
    known = not isinstance(q_offset, Tensor) and padding is None
    if known and pattern.left is None and pattern.right is None:
        return None
    used = q_offset + q_length - kv_offset if known else 0
    if known and pattern.right == 0:
        window = used if pattern.left is None else min(pattern.left + 1, used)
        return None if window == used == kv_length else extents(1, used, window, device)
    if known and pattern.left == pattern.right and pattern.left is not None:
        return extents(2, kv_length, pattern.left, device) if used == kv_length else intervals(
            batch_size, q_length, kv_length, q_offset, kv_offset, pattern, None, device)
    return intervals(batch_size, q_length, kv_length, q_offset, kv_offset, pattern, padding,
                      device)
