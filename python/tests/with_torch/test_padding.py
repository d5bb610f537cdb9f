# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every function that takes lengths, offsets, tables or lists, with garbage where nothing is."""
import inspect
import re

import pytest
import torch

import padding
import padding_attention
import padding_conv
import padding_fla
import padding_serving
import padding_torch

_TABLES = (padding_attention, padding_conv, padding_fla, padding_serving, padding_torch)
ROWS = tuple(row for table in _TABLES for row in table.ROWS)
MODULES = tuple(module for table in _TABLES for module in table.MODULES)
REASONS = {**padding_attention.REASONS, **padding_fla.REASONS, **padding_serving.REASONS}

# Parameters in which servers send padding.
_SENT = re.compile("cu_seqlens|cu_seq_lens|seqused|cache_seqlens|block_table|page_table|batch_idx"
                   "|indices|topk_length|cache_indices|num_accepted|seq_idx|has_initial_state"
                   "|query_start_loc|leftpad|total_seqlens|rope_positions|checkpoint|ring_count")


@pytest.mark.usefixtures("sdpa_on_cpu")
@pytest.mark.parametrize("seen", [False, True], ids=["eager", "seen by torch"])
@pytest.mark.parametrize("garbage", padding.GARBAGE, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_padding(row, garbage, seen):
    padding.check(row, garbage, seen)


def test_every_function_has_a_row():
    there = {(row.module, row.function) for row in ROWS}
    sent = {(module, name) for module in MODULES for name in module.__all__
            if inspect.isfunction(getattr(module, name))
            and any(map(_SENT.search, inspect.signature(getattr(module, name)).parameters))}
    assert there & set(REASONS) == set()
    assert sent <= there | set(REASONS), sent - there - set(REASONS)


# ---- the mechanism itself ------------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: x.gather(0, i),
    lambda x, i: torch.take(x, i), lambda x, i: x.clone().index_put_((i,), x[:1]),
    lambda x, i: x.clone().index_copy_(0, i, x[:1]), lambda x, i: x.scatter(0, i, x[:1]),
    lambda x, i: x.index_add(0, i, x[:1]),
    lambda x, i: torch.nn.functional.embedding(i, x[:, None])])
def test_an_index_of_padding_is_found(call):
    x = torch.arange(4.0)
    with padding.IndexRanges():
        call(x, torch.tensor([3]))
        for index in (-1, 4):
            with pytest.raises(AssertionError, match=f"{index} of 4"):
                call(x, torch.tensor([index]))


def test_a_wait_is_found():
    with padding.IndexRanges(), pytest.raises(AssertionError, match="waits"):
        int(torch.zeros(1))
