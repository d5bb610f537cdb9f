# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.vllm_conv against sequences that are convolved one by one in float64."""

import pytest
import torch

import lathe
from lathe.compat import vllm_conv
from signatures import bare

SIGNATURES = {
    "causal_conv1d_fn":
        "(x, weight, bias, conv_states, query_start_loc, cache_indices=None, "
        "has_initial_state=None, activation='silu', pad_slot_id=-1, null_block_id=0, "
        "block_idx_first_scheduled_token=None, block_idx_last_scheduled_token=None, "
        "initial_state_idx=None, num_computed_tokens=None, "
        "block_size_to_align=0, metadata=None, validate_data=False)",
    "causal_conv1d_update":
        "(x, conv_state, weight, bias=None, activation=None, conv_state_indices=None, "
        "num_accepted_tokens=None, query_start_loc=None, max_query_len=-1, null_block_id=0, "
        "block_idx_last_scheduled_token=None, initial_state_idx=None, validate_data=False, "
        "out=None, *, pad_slot_id=None)",
}
D, W = 32, 4
KEPT = W - 1


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    """pad_slot_id of the update is the older name of null_block_id."""
    assert bare(getattr(vllm_conv, name)) == SIGNATURES[name]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHT, BIAS = randn(D, W, seed=8), randn(D, seed=9)


def pool_of(slots, columns, channels_first=False):
    pool = randn(slots, columns, D, seed=1).transpose(1, 2)
    return pool.contiguous() if channels_first else pool


LAYOUTS = pytest.mark.parametrize("channels_first", [False, True],
                                  ids=["channels last", "channels first"])


def one(x, before):
    """Returns y [D,n] of x [D,n] behind `before` [D,W-1], with SiLU, in float64."""
    seen = torch.cat([before, x], 1).double()
    y = BIAS.double()[:, None] + sum(WEIGHT.double()[:, i, None] * seen[:, i:i + x.shape[1]]
                                     for i in range(W))
    return y * y.sigmoid()


def close(found, wanted):
    torch.testing.assert_close(found.double(), wanted, rtol=3e-4, atol=1e-3)


@pytest.mark.parametrize("null, padding", [(0, -1), (0, 0), (2, 2)])
@pytest.mark.parametrize("channel_last", [True, False])
@LAYOUTS
def test_prefill(null, padding, channel_last, channels_first):
    lengths, places = [5, 2, 0, 7, 1], [3, padding, 4, 1, 6]
    has = torch.tensor([True, True, False, False, True])
    offsets = torch.tensor([0, 5, 7, 7, 14, 15], dtype=torch.int32)
    x, pool = randn(15, D).t(), pool_of(8, KEPT + 2, channels_first)
    x = x if channel_last else x.contiguous()
    wanted, ys = pool.clone(), []
    for part, place, known in zip(x.split(lengths, 1), places, has):
        before = pool[place, :, :KEPT] if known else torch.zeros(D, KEPT)
        ys.append(one(part, before))
        if place != padding and part.shape[1]:
            wanted[place, :, :KEPT] = torch.cat([before, part], 1)[:, -KEPT:]
    lathe.torch.stats(reset=True)
    y = vllm_conv.causal_conv1d_fn(x, WEIGHT, BIAS, pool, offsets,
                                   torch.tensor(places, dtype=torch.int32), has, null_block_id=null)
    assert y.shape == x.shape and y.stride() == x.stride()
    if channel_last:
        assert lathe.torch.stats() == {}  # no state is copied, in either layout
    sure = [i for i in range(15) if not 5 <= i < 7]  # the rest is padding
    close(y[:, sure], torch.cat(ys, 1)[:, sure])
    assert torch.equal(pool, wanted)


@LAYOUTS
@pytest.mark.parametrize("tokens", [None, 1, 3])
def test_update(tokens, channels_first):
    x, places = randn(3, tokens or 1, D).transpose(1, 2), [5, -1, 2]
    pool = pool_of(6, KEPT + 1, channels_first)
    lathe.torch.stats(reset=True)
    wanted = pool.clone()
    y = vllm_conv.causal_conv1d_update(x if tokens else x[..., 0], pool, WEIGHT, BIAS, "silu",
                                       torch.tensor(places, dtype=torch.int32))
    for row, place in enumerate(places):
        if place >= 0:
            before = wanted[place, :, :KEPT].clone()
            close((y if tokens else y[..., None])[row], one(x[row], before))
            wanted[place, :, :KEPT] = torch.cat([before, x[row]], 1)[:, -KEPT:]
    assert torch.equal(pool, wanted)
    assert lathe.torch.stats() == {}  # one launch and nothing else


def test_null_blocks():
    """Slot 0 is vLLM's null block; older versions name another slot, or none."""
    x, slots = randn(2, D), torch.tensor([0, 1], dtype=torch.int32)
    for more, padding in (({}, True), ({"pad_slot_id": -1}, False), ({"null_block_id": 1}, False)):
        pool = pool_of(3, KEPT, True)
        y = vllm_conv.causal_conv1d_update(x, pool, WEIGHT, BIAS, True, slots, **more)
        assert (y[0] == 0).all() == padding
        assert (y[1] == 0).all() == ("null_block_id" in more)


@LAYOUTS
def test_update_in_blocks(channels_first):
    """A state is read from one block's slot and written to another's; out is the caller's."""
    x, pool = randn(3, D), pool_of(8, KEPT, channels_first)
    wanted, out = pool.clone(), torch.empty(3, D)
    table = torch.tensor([[1, 2, 3], [4, 5, 0], [6, 7, 0]], dtype=torch.int32)
    read, written = (torch.tensor(each, dtype=torch.int32) for each in ([0, 1, 0], [1, 1, 2]))
    y = vllm_conv.causal_conv1d_update(x, pool, WEIGHT, BIAS, True, table, out=out,
                                       initial_state_idx=read,
                                       block_idx_last_scheduled_token=written)
    assert y is out
    for row, (source, slot) in enumerate(((1, 2), (5, 5))):
        before = wanted[source].clone()
        close(y[row, :, None], one(x[row, :, None], before))
        wanted[slot] = torch.cat([before, x[row, :, None]], 1)[:, -KEPT:]
    assert (y[2] == 0).all() and torch.equal(pool, wanted)  # the last one's block is null


@LAYOUTS
@pytest.mark.parametrize("packed", [False, True])
def test_update_with_drafts(packed, channels_first):
    """The state keeps the tokens of the last call, so that a later call takes back some."""
    lengths, most, places = [3, 2, 3] if packed else [3, 3, 3], 3, [5, 1, 2]
    accepted = torch.tensor([1, 3, 2], dtype=torch.int32)
    flat, pool = randn(sum(lengths), D), pool_of(6, KEPT - 1 + most, channels_first)
    wanted = pool.clone()
    slots = torch.tensor(places, dtype=torch.int32)
    if packed:
        offsets = torch.tensor([0, 3, 5, 8], dtype=torch.int32)
        y = vllm_conv.causal_conv1d_update(flat, pool, WEIGHT, BIAS, True, slots, accepted, offsets,
                                           most)
    else:
        y = vllm_conv.causal_conv1d_update(flat.view(3, 3, D).transpose(1, 2), pool, WEIGHT, BIAS,
                                           True, slots, accepted).transpose(1, 2).reshape(-1, D)
    for rows, part, place, n in zip(y.split(lengths), flat.split(lengths), places, accepted):
        before = wanted[place, :, n - 1:n - 1 + KEPT].clone()
        close(rows.t(), one(part.t(), before))
        wanted[place, :, :KEPT - 1] = before[:, 1:]
        wanted[place, :, KEPT - 1:KEPT - 1 + len(part)] = part.t()
    assert torch.equal(pool, wanted)


def test_dtypes_and_refusals():
    x, pool, offsets = randn(4, D).t(), pool_of(2, KEPT), torch.tensor([0, 4], dtype=torch.int32)
    y = vllm_conv.causal_conv1d_fn(x.bfloat16(), WEIGHT, BIAS, pool, offsets)
    assert y.dtype == torch.bfloat16
    close(y, one(x.bfloat16().float(), torch.zeros(D, KEPT)).bfloat16().double())
    with pytest.raises(lathe.InvalidArgument, match="initial_state_idx is not given"):
        vllm_conv.causal_conv1d_fn(x, WEIGHT, BIAS, pool, offsets,
                                   block_idx_last_scheduled_token=offsets[:1])
    with pytest.raises(lathe.InvalidArgument, match=r"cache_indices has shape \[1, 2\]; allowed"):
        vllm_conv.causal_conv1d_fn(x, WEIGHT, BIAS, pool, offsets, offsets[None])
    with pytest.raises(ValueError, match="conv_state has 2 columns; allowed are 3 or more"):
        vllm_conv.causal_conv1d_update(x[..., 0][None], pool[..., 1:], WEIGHT)
    with pytest.raises(NotImplementedError, match="activation must be None, silu, or swish"):
        vllm_conv.causal_conv1d_fn(x, WEIGHT, BIAS, pool, offsets, activation="gelu")
    with pytest.raises(TypeError, match="retrieve_parent_token"):
        vllm_conv.causal_conv1d_update(x[..., 0][None], pool, WEIGHT, retrieve_parent_token=offsets)


NONE = torch.zeros(0, dtype=torch.int32)
TWO = torch.tensor([1, 0], dtype=torch.int32)


@pytest.mark.parametrize("slots", [0, 3])
def test_no_sequence(slots):
    """A rank without requests calls with no row, and with offsets of no sequence."""
    pool, one_offset = pool_of(slots, KEPT + 2), NONE.new_zeros(1)
    kept = pool.clone()
    assert vllm_conv.causal_conv1d_fn(randn(D, 0), WEIGHT, BIAS, pool, one_offset, NONE,
                                      NONE.bool()).shape == (D, 0)
    for shape in ((0, D), (0, D, 1), (0, D, 3)):
        for accepted in (None, NONE):
            y = vllm_conv.causal_conv1d_update(randn(*shape), pool, WEIGHT, BIAS, True, NONE,
                                               accepted)
            assert y.shape == shape
    for offsets, named in ((one_offset, NONE), (NONE.new_zeros(3), TWO)):
        for accepted in (None, torch.ones_like(named)):
            y = vllm_conv.causal_conv1d_update(randn(0, D), pool, WEIGHT, BIAS, True, named,
                                               accepted, offsets, 0)
            assert y.shape == (0, D)
    y = vllm_conv.causal_conv1d_update(randn(2, D, 0), pool, WEIGHT, BIAS, True, TWO, TWO + 1)
    assert y.shape == (2, D, 0) and torch.equal(pool, kept)


def test_a_pool_of_no_slot():
    """All rows are padding, then."""
    y = vllm_conv.causal_conv1d_update(randn(2, D), pool_of(0, KEPT), WEIGHT, BIAS, True, TWO)
    assert torch.equal(y, torch.zeros(2, D))
    assert vllm_conv.causal_conv1d_fn(randn(4, D).t(), WEIGHT, BIAS, pool_of(0, KEPT),
                                      torch.tensor([0, 1, 4]), TWO).shape == (D, 4)


def update(x, **more):
    return vllm_conv.causal_conv1d_update(x, pool_of(3, KEPT), WEIGHT, **more)


def prefill(x, offsets=TWO, **more):
    return vllm_conv.causal_conv1d_fn(x, WEIGHT, None, pool_of(3, KEPT), offsets, **more)


REFUSED = {
    "few slots": (lambda: update(randn(2, D), conv_state_indices=TWO[:1]),
                  r"conv_state_indices has shape \[1\]; allowed is \[B\], here \[2\]"),
    "list": (lambda: update(randn(2, D), conv_state_indices=[1, 0]), "is a list; allowed is"),
    "few states": (lambda: update(randn(4, D)), "3 states for 4 sequences; .*conv_state_indices"),
    "counts": (lambda: update(randn(2, D), conv_state_indices=TWO, num_accepted_tokens=NONE),
               r"num_accepted_tokens has shape \[0\]; allowed is \[B\], here \[2\]"),
    "drafts": (lambda: update(randn(2, D, 2), conv_state_indices=TWO, num_accepted_tokens=TWO),
               "conv_state has 3 columns; allowed are 4 or more"),
    "max_query_len": (lambda: update(randn(2, D), conv_state_indices=TWO, num_accepted_tokens=TWO,
                                     query_start_loc=torch.tensor([0, 1, 2]), max_query_len=4),
                      "conv_state has 3 columns; allowed are 6 or more"),
    "channels": (lambda: update(randn(2, D + 1)), r"x has shape \[2, 33\]; allowed is \[B, D\] or"),
    "packed": (lambda: update(randn(2, D, 1), conv_state_indices=TWO,
                              query_start_loc=torch.tensor([0, 1, 2])), r"\[tokens, D\]"),
    "prefill": (lambda: prefill(randn(4, D)), r"x has shape \[4, 32\]; allowed is \[D, T\]"),
    "offsets": (lambda: prefill(randn(D, 4), NONE), "query_start_loc is empty; allowed are N"),
    "offsets' dtype": (lambda: prefill(randn(D, 4), randn(2)), "query_start_loc has dtype float32"),
    "has": (lambda: prefill(randn(D, 4), has_initial_state=TWO),
            r"has_initial_state has shape \[2\]; allowed is \[N\], here \[1\]"),
    "has is a list": (lambda: prefill(randn(D, 4), has_initial_state=[True]),
                      "has_initial_state is a list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(lathe.InvalidArgument, match=words):
        call()
