# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The lists of blocks of a BlockMask, as a table on the device that its mask's text looks up.

As in torch's compiled flex_attention a list restricts keys whatever mask_mod says: a block in
kv_indices keeps what mask_mod keeps, a block in full_kv_indices keeps all, others keep nothing.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.torch._calls import count
from lathe.torch._mod_text import Numbers

ABSENT, PARTIAL, FULL = 0, 1, 2


class Blocks(NamedTuple):
    """states: [B or 1, H or 1, rows, columns + 2] of ABSENT, PARTIAL or FULL, in int32.

    Column j + 1 is block j of keys; the first and the last one are no blocks.
    """

    states: Tensor
    block_size: tuple[int, int]


def blocks_of(block_mask: Any, query: Tensor, key: Tensor) -> Blocks:
    """Returns the blocks of a BlockMask for a query [B,H,Sq,D] and a key [B,HK,Sk,D].

    The table is made anew at each call, by about ten kernels, because the lists may have changed
    in place. Entries behind a row's count and entries that name no block are padding.
    """
    rows_of, columns_of = block_mask.BLOCK_SIZE
    counts, indices = block_mask.kv_num_blocks, block_mask.kv_indices
    _check(block_mask, query, key, counts, indices)
    count("laid out lists of blocks")
    rows, columns = counts.shape[2], -(-key.shape[2] // columns_of)
    states = torch.zeros(counts.shape[0], counts.shape[1], rows, columns + 2, dtype=torch.int32,
                         device=counts.device)
    _put(states, counts, indices, PARTIAL)
    if block_mask.full_kv_num_blocks is not None:
        _put(states, block_mask.full_kv_num_blocks, block_mask.full_kv_indices, FULL)
    return Blocks(states, (rows_of, columns_of))


def _put(states: Tensor, counts: Tensor, indices: Tensor, state: int) -> None:
    """Writes a state for all blocks of lists; torch scatters to columns that are there alone."""
    columns = indices.clamp(-1, states.shape[3] - 2).add_(1).to(torch.int64)
    within = torch.arange(indices.shape[3], device=indices.device) < counts.unsqueeze(-1)
    states.scatter_(3, columns.mul_(within), state)


def _check(block_mask: Any, query: Tensor, key: Tensor, counts: Tensor, indices: Tensor) -> None:
    if counts.dim() != 3 or indices.dim() != 4:
        raise InvalidArgument(
            f"block_mask.kv_num_blocks has shape {list(counts.shape)} and kv_indices "
            f"{list(indices.shape)}; allowed are [B,H,rows] and [B,H,rows,blocks]")
    if counts.device != query.device:
        raise InvalidArgument(f"block_mask is on {counts.device}; allowed is {query.device}, where "
                              "query is: move it by block_mask.to(...)")
    lengths = tuple(block_mask.shape[-2:])
    for name, found, allowed in (("queries", lengths[0], query.shape[2]),
                                 ("keys", lengths[1], key.shape[2])):
        if found != allowed:
            raise InvalidArgument(f"block_mask was made for {found} {name}; the call has "
                                  f"{allowed}: make one for these lengths")
    if counts.shape[2] * block_mask.BLOCK_SIZE[0] < query.shape[2]:
        raise InvalidArgument(
            f"block_mask has {counts.shape[2]} rows of {block_mask.BLOCK_SIZE[0]} queries; the "
            f"call has {query.shape[2]} queries, so give a row for each block of them")
    full = block_mask.full_kv_num_blocks
    shapes = {"kv_num_blocks": counts.shape, "kv_indices": indices.shape[:3]}
    if full is not None:
        shapes["full_kv_num_blocks"] = full.shape
        shapes["full_kv_indices"] = block_mask.full_kv_indices.shape[:3]
    for name, shape in shapes.items():
        if tuple(shape) != tuple(counts.shape):
            raise InvalidArgument(f"block_mask.{name} has leading extents {list(shape)}; allowed "
                                  f"are {list(counts.shape)}, those of kv_num_blocks")
    for name, found, allowed in (("batches", counts.shape[0], query.shape[0]),
                                 ("heads", counts.shape[1], query.shape[1])):
        if found not in (1, allowed):
            raise InvalidArgument(f"block_mask has {found} {name}; allowed are 1 and {allowed}, as "
                                  "query has")


def block_text(blocks: Blocks, within: str | None, numbers: Numbers) -> str:
    """Returns the text of a mask_mod and its mask_tile over a table of blocks, capture 0.

    within: the text of mask_within, which a partial block keeps; None: it keeps all.
    """
    batches, heads, _, _ = blocks.states.shape
    heads_text, rows, columns = (numbers.extent(0, dim).text for dim in (1, 2, 3))
    batch = "0" if batches == 1 else "batch"
    head = "0" if heads == 1 else "head"
    queries, keys = blocks.block_size
    given = "batch, head, q_idx, kv_idx"
    if within is not None and "captures." in within:
        given += ", captures"
    partial = "state != 0" if within is None else (
        f"state == 2 || (state == 1 && mask_within({given}))")
    whole = "state != 0" if within is None else "state == 2"
    return f"""{within or ""}\
__device__ int block_state(int batch, int head, int row, int column, const Captures& captures) {{
  const long long list = (long long){batch} * {heads_text} + {head};
  return captures.get<0>((list * {rows} + row) * {columns} + column + 1);
}}
__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx, const Captures& captures) {{
  const int state = block_state(batch, head, q_idx / {queries}, kv_idx / {keys}, captures);
  return {partial};
}}
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1,
                         const Captures& captures) {{
  bool none = true, all = true;
  for (int row = q0 / {queries}; row <= (q1 - 1) / {queries}; ++row) {{
    for (int column = k0 / {keys}; column <= (k1 - 1) / {keys}; ++column) {{
      const int state = block_state(batch, head, row, column, captures);
      none = none && state == 0;
      all = all && ({whole});
      if (!none && !all) return 1;
    }}
  }}
  return none ? 0 : all ? 2 : 1;
}}
"""
