# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.transformers: each kind of mask, and what is refused, without a model."""
import types

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: "
                                           "tests/peers/install.sh installs it")

from transformers import masking_utils as masking

import lathe
import lathe.torch
import lathe.compat.transformers as ours
from lathe.compat import _transformers_mask as masks
from transformers_models import attention, error

B, H, HK, D = 2, 4, 2, 16
CAUSAL = types.SimpleNamespace(is_causal=True, layer_idx=0)
BOTH_WAYS = types.SimpleNamespace(is_causal=False, layer_idx=0)


def inputs(queries, keys, dtype=torch.float32, batch=B):
    make = torch.Generator().manual_seed(queries * 100 + keys)
    shapes = ((batch, H, queries, D), (batch, HK, keys, D), (batch, HK, keys, D))
    return [torch.randn(shape, generator=make).to(dtype) for shape in shapes]


def check(module, mask, table, given, bound=1e-5, **keywords):
    """Asserts that attention with a mask is that with a table of booleans, with its gradients."""
    narrow = [each.clone().requires_grad_(each.dtype == torch.float32) for each in given]
    exact = [each.double().requires_grad_() for each in given]
    out, weights = ours.attention_forward(module, *narrow, mask, **keywords)
    expected, _ = attention(module, *exact, table)
    assert weights is None and error(out, expected) < bound
    if narrow[0].requires_grad:
        upstream = torch.randn_like(out)
        out.backward(upstream)
        expected.backward(upstream.double())
        for found, wanted in zip(narrow, exact):
            assert error(found.grad, wanted.grad) < 10 * bound


def both_masks(function, queries, keys, q_offset=0, kv_offset=0, padding=None, batch=B):
    """Returns lathe's mask and transformers' table for one mask function."""
    arguments = dict(batch_size=batch, q_length=queries, kv_length=keys, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=function, attention_mask=padding)
    table = masking.sdpa_mask(**arguments, allow_is_causal_skip=False)
    return masks.attention_mask(**arguments, allow_is_causal_skip=False, dtype=torch.float32), table


LEFT = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 10]).bool()
HOLES = torch.tensor([[0, 0, 1, 1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 1, 1, 1, 1, 1, 0]]).bool()
NUMBERS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]])
POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]])


def packed(function, batch=2):
    return masking.packed_sequence_compatibility_function(function, POSITIONS[:batch],
                                                          NUMBERS[:batch])


WINDOW = masking.sliding_window_causal_mask_function(4)
CHUNKS = masking.chunked_causal_mask_function(4, torch.tensor([3, 0]))
BLOCKS = masking.or_masks(masking.causal_mask_function, masking.blockwise_overlay(
    torch.tensor([[-1, 0, 0, 0, -1, -1, 1, 1, 1, -1], [-1] * 10])))
CASES = {
    "causal": (masking.causal_mask_function, 10, 10, {}, "extents"),
    "causal, keys before": (masking.causal_mask_function, 3, 10, {"q_offset": 7}, "extents"),
    "causal, room after": (masking.causal_mask_function, 4, 10, {"q_offset": 0}, "extents"),
    "causal, a static cache": (masking.causal_mask_function, 3, 10,
                               {"q_offset": torch.tensor(4)}, "intervals"),
    "causal, padded": (masking.causal_mask_function, 10, 10, {"padding": LEFT}, "intervals"),
    "causal, padded, keys before": (masking.causal_mask_function, 2, 10,
                                    {"padding": HOLES, "q_offset": 8}, "intervals"),
    "one query, padded": (masking.causal_mask_function, 1, 10,
                          {"padding": HOLES, "q_offset": 9}, "intervals"),
    "causal, holes": (masking.causal_mask_function, 10, 10, {"padding": HOLES}, "intervals"),
    "causal, no padding at all": (masking.causal_mask_function, 10, 10,
                                  {"padding": torch.ones_like(LEFT)}, "extents"),
    "window": (WINDOW, 10, 10, {}, "extents"),
    "window, keys before": (WINDOW, 3, 6, {"q_offset": 9, "kv_offset": 6}, "extents"),
    "window, padded": (WINDOW, 10, 10, {"padding": HOLES}, "intervals"),
    "window, a static cache": (WINDOW, 3, 10, {"q_offset": torch.tensor(5)}, "intervals"),
    "both ways": (masking.bidirectional_mask_function, 10, 10, {}, "extents"),
    "both ways, padded": (masking.bidirectional_mask_function, 10, 10, {"padding": HOLES},
                          "intervals"),
    "both ways, window": (masking.sliding_window_bidirectional_mask_function(2), 10, 10, {},
                          "extents"),
    "packed": (packed(masking.causal_mask_function, 1), 10, 10, {"batch": 1}, "offsets"),
    "packed rows": (packed(masking.causal_mask_function), 10, 10, {}, "offsets"),
    "packed, window": (packed(WINDOW, 1), 10, 10, {"batch": 1}, "offsets"),
    "chunks": (CHUNKS, 10, 10, {}, "table"),
    "blocks": (BLOCKS, 10, 10, {}, "table"),
    "packed, both ways": (packed(masking.bidirectional_mask_function, 1), 10, 10, {"batch": 1},
                          "table"),
}


@pytest.mark.parametrize("case", CASES)
def test_masks(case):
    function, queries, keys, keywords, kind = CASES[case]
    mask, table = both_masks(function, queries, keys, **keywords)
    assert masks.kind_of(mask) == kind
    module = BOTH_WAYS if case.startswith("both") else CAUSAL
    check(module, mask, table, inputs(queries, keys, batch=keywords.get("batch", B)))


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][1] < 10])
def test_masks_of_decoding(case):
    """16-bit inputs without gradients: the kernels that split the keys."""
    function, queries, keys, keywords, _ = CASES[case]
    mask, table = both_masks(function, queries, keys, **keywords)
    lathe.torch.stats(reset=True)
    with torch.no_grad():
        check(CAUSAL, mask, table, inputs(queries, keys, torch.float16), 1e-3)
    assert "copied to contiguous rows" not in lathe.torch.stats(reset=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.parametrize("shape", [(B, 1, 10, 10), (1, H, 10, 10), (B, 1, 1, 10), (1, 1, 10, 10)])
def test_tables_of_the_callers(shape, dtype):
    table = torch.rand(shape, generator=torch.Generator().manual_seed(3)) > 0.4
    table[..., 0] = True
    mask = table if dtype == torch.bool else torch.zeros(shape).masked_fill(
        ~table, torch.finfo(dtype).min)
    check(CAUSAL, mask, table, inputs(10, 10))


def test_a_row_without_keys_is_zero():
    mask, _ = both_masks(masking.causal_mask_function, 10, 10, padding=LEFT)
    out, _ = ours.attention_forward(CAUSAL, *inputs(10, 10), mask)
    assert torch.equal(out[0, :3], torch.zeros(3, H, D))
    assert not out.isnan().any()


def test_offsets_that_a_collator_gives():
    given = inputs(10, 10, batch=1)
    starts = torch.tensor([0, 3, 5, 10], dtype=torch.int32)
    _, table = both_masks(packed(masking.causal_mask_function, 1), 10, 10, batch=1)
    check(CAUSAL, None, table, given, cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=5,
          max_length_k=5)
    with pytest.raises(lathe.InvalidArgument, match="attention_mask and cu_seq_lens_q"):
        ours.attention_forward(CAUSAL, *given, table, cu_seq_lens_q=starts, cu_seq_lens_k=starts)


def test_positions_that_start_anew():
    """A model that does not give positions to its mask, as with a cache that is empty."""
    given, positions = inputs(10, 10, batch=1), POSITIONS[:1]
    _, table = both_masks(packed(masking.causal_mask_function, 1), 10, 10, batch=1)
    lathe.torch.stats(reset=True)
    check(CAUSAL, None, table, given, position_ids=positions)
    check(CAUSAL, None, table, given, position_ids=positions)
    counted = lathe.torch.stats(reset=True)
    assert counted["waited for the device: position_ids"] == 1
    assert counted["waited for the device: packed sequences"] == 1
    positions.copy_(torch.arange(10))
    check(CAUSAL, None, masking.sdpa_mask(1, 10, 10, allow_is_causal_skip=False), given,
          position_ids=positions)


class Pages:
    """What continuous batching gives attention for one token of each sequence."""

    def __init__(self, k_cache, v_cache, table):
        self.given = {"k_cache": k_cache, "v_cache": v_cache, "block_table": table}

    def update(self, key_states, value_states, layer_idx, kwargs):
        kwargs.update(self.given)
        return key_states, value_states


def test_pages_of_continuous_batching():
    q, k, v = (each.transpose(0, 2).transpose(1, 2).reshape(1, -1, B, D)
               for each in inputs(1, 1, torch.float16))
    make = torch.Generator().manual_seed(5)
    k_cache, v_cache = (torch.randn(4, 8, HK, D, generator=make).half() for _ in range(2))
    lengths, table = torch.tensor([5, 11]), torch.tensor([[3, -1], [1, 0]], dtype=torch.int32)
    starts = torch.tensor([0, 6, 18], dtype=torch.int32)
    before = k_cache.clone(), v_cache.clone()
    with torch.no_grad():
        out, _ = ours.attention_forward(CAUSAL, q, k, v, None, cache=Pages(k_cache, v_cache, table),
                                        cu_seq_lens_q=torch.arange(3), cu_seq_lens_k=starts)
    for b in range(B):
        length, pages = int(lengths[b]), [page for page in table[b].tolist() if page >= 0]
        keys, values = (torch.cat([cache[pages].flatten(0, 1)[:length], new[0, :, b][None]])
                        for cache, new in zip(before, (k, v)))
        expected, _ = attention(CAUSAL, q[:, :, b:b + 1], keys.transpose(0, 1)[None],
                                values.transpose(0, 1)[None], None)
        assert error(out[:, b:b + 1], expected) < 1e-3
        assert torch.equal(k_cache[pages].flatten(0, 1)[length], k[0, :, b])


@pytest.mark.parametrize("keywords, text", [
    ({"dropout": 0.1}, "dropout is 0.1; allowed is 0.0"),
    ({"output_attentions": True}, "output_attentions is True"),
    ({"position_bias": torch.zeros(1, H, 4, 4)}, "position_bias is given")])
def test_refusals(keywords, text):
    with pytest.raises(lathe.Unsupported, match=text):
        ours.attention_forward(CAUSAL, *inputs(4, 4), None, **keywords)


@pytest.mark.parametrize("mask", [torch.zeros(B, 1, 4, 5), torch.zeros(B, 4),
                                  torch.zeros(1, 1, 1, 9, dtype=torch.uint32),
                                  *(torch.ones(1, 1, 4, 4, dtype=dtype) for dtype in
                                    (torch.int8, torch.int32, torch.int64))])
def test_masks_that_are_none(mask):
    with pytest.raises(lathe.InvalidArgument, match="attention_mask has"):
        ours.attention_forward(CAUSAL, *inputs(4, 4), mask)


def test_registering_is_undone():
    import transformers
    from transformers.models.lfm2 import modeling_lfm2 as model

    ours.unregister()  # of whatever test came before
    theirs = model.causal_conv1d_fn
    names = ours.register()
    assert ours.register() == names and names[0] == "lathe"
    assert "lathe" in transformers.AttentionInterface() and model.causal_conv1d_fn is not theirs
    ours.unregister()
    assert "lathe" not in transformers.AttentionInterface() and model.causal_conv1d_fn is theirs
