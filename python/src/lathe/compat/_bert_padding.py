# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What flash_attn.bert_padding has: padded batches to packed rows and back, by torch."""
from __future__ import annotations

import torch
from torch import Tensor

from lathe.torch._calls import count

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input"]


def _wide(flag: Tensor, like: Tensor) -> Tensor:
    """Returns a flag for each row with as many dimensions as the rows' tensor has."""
    return flag.view(-1, *(1,) * (like.dim() - 1))


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Returns rows [N,...] of input [R,...]; a row is 0 whose index lies outside."""
    inside = (indices >= 0) & (indices < input.shape[0])
    rows = input.index_select(0, torch.where(inside, indices, 0))
    return torch.where(_wide(inside, rows), rows, 0)


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Returns [first_axis_dim,...] of zeros with rows at their indices; those outside are left out.
    """
    inside = (indices >= 0) & (indices < first_axis_dim)
    place = torch.where(inside, indices, first_axis_dim)
    out = values.new_zeros((first_axis_dim + 1, *values.shape[1:]))
    return out.index_copy(0, place.long(), values)[:first_axis_dim]


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
                ) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Returns (rows [T,...], their indices, offsets [B+1], the longest sequence, used tokens [B]).

    hidden_states is [B,S,...] and attention_mask [B,S], where 1 is a token. unused_mask names
    places that get rows too and are not used.
    """
    taken = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = taken.sum(-1, dtype=torch.int32)
    count("waited for the device: attention_mask")
    indices = taken.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() else 0
    return (hidden_states.flatten(0, 1).index_select(0, indices), indices, starts, longest,
            attention_mask.sum(-1, dtype=torch.int32))


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Returns [B,S,...] of packed rows [T,...]; places without a row are 0."""
    rows = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return rows.view(batch, seqlen, *rows.shape[1:])
