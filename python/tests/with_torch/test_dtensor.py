# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""DTensors that are sharded over heads or the batch are computed where they lie."""
import pathlib
import re
import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import lathe
import lathe.torch as lt
from dtensor_shared import append, decode_inputs, layer, layer_inputs
from tensors import NARROW
from threads import over_ranks

WORLD = 2
# torch keeps in variables of the process whether a mode is on, which a call on DTensors enters.
# Ranks that are threads would leave them set, and torch.compile would do nothing from then on.
ONE_AT_A_TIME = threading.Lock()
with FakeTensorMode():  # torch 2.10 ends the process if the first thread that enters it is gone
    pass


def randn(*shape, dtype=torch.float16):
    return torch.randn(shape, dtype=dtype)


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def sharded(function, inputs, placements):
    """Returns the results of a call on DTensors as they are whole, and how they were placed.

    Raises if the call communicates.
    """
    def on_rank(rank):
        mesh = init_device_mesh("cpu", (WORLD,))
        given = []
        for each, placement in zip(inputs, placements):
            if isinstance(placement, Shard):
                each = each.chunk(WORLD, placement.dim)[rank].contiguous()
            given.append(DTensor.from_local(each, mesh, [placement], run_check=False))
        with ONE_AT_A_TIME, CommDebugMode() as traffic:
            found = function(*given)
        assert traffic.get_total_counts() == 0, traffic.get_comm_counts()
        return [each.full_tensor() for each in found], [each.placements[0] for each in found]

    return over_ranks(WORLD, on_rank)[0]


def check(function, inputs, placements, wanted_placements):
    torch.manual_seed(0)
    found, placed = sharded(function, inputs, placements)
    assert placed == wanted_placements
    for mine, theirs in zip(found, function(*inputs), strict=True):
        # Sums over ranks are added in another order.
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-2)


def attention(**options):
    return lambda q, k, v: lt.flash_attention(q, k, v, causal=True, **options)


@pytest.mark.parametrize("dim, lse", ((2, 1), (0, 0)))
def test_attention_by_heads_and_by_batch(dim, lse):
    q, k = randn(2, 9, 4, 16), randn(2, 9, 2, 16)
    check(attention(), (q, k, k), [Shard(dim)] * 3, [Shard(dim), Shard(lse)])


def test_heads_that_share_one_key_head():
    q, k = randn(2, 9, 4, 16), randn(2, 9, 1, 16)
    check(attention(), (q, k, k), [Shard(2), Replicate(), Replicate()], [Shard(2), Shard(1)])


def test_packed_sequences_by_heads():
    q, k, cu = randn(10, 4, 16), randn(10, 2, 16), offsets(3, 7)
    check(lambda q, k, cu: lt.flash_attention(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu),
          (q, k, cu), [Shard(1), Shard(1), Replicate()], [Shard(1), Shard(0)])


def test_gradients_of_attention():
    q, k, sinks = randn(2, 9, 4, 16), randn(2, 9, 2, 16), torch.randn(4)

    def gradients(q, k, sinks):
        leaves = [each.detach().requires_grad_() for each in (q, k, sinks)]
        out, _ = lt.flash_attention(leaves[0], leaves[1], leaves[1], sinks=leaves[2])
        return torch.autograd.grad(out, leaves, out.detach())

    check(gradients, (q, k, sinks), [Shard(2), Shard(2), Shard(0)],
          [Shard(2), Shard(2), Shard(0)])
    check(gradients, (q, k, sinks), [Shard(0), Shard(0), Replicate()],
          [Shard(0), Shard(0), Partial()])


def test_convolution_by_channels_and_by_batch():
    x, weight = torch.randn(2, 9, 8), torch.randn(8, 4)

    def gradients(x, weight):
        leaves = [each.detach().requires_grad_() for each in (x, weight)]
        y, _ = lt.causal_conv1d(*leaves, activation="silu")
        return torch.autograd.grad(y, leaves, y.detach())

    check(gradients, (x, weight), [Shard(2), Shard(0)], [Shard(2), Shard(0)])
    check(gradients, (x, weight), [Shard(0), Replicate()], [Shard(0), Partial()])


def test_kda_by_heads():
    q, k, v = (randn(1, 70, 2, 32) for _ in range(3))
    g, beta, rate, bias = torch.rand(1, 70, 2, 32), torch.rand(1, 70, 2), randn(2), randn(64)
    options = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
               "output_final_state": True}
    check(lambda *t: lt.kda(*t[:5], A_log=t[5], dt_bias=t[6], **options)[:2],
          (q, k, v, g, beta, rate.float(), bias.float()), [Shard(2)] * 5 + [Shard(0)] * 2,
          [Shard(2), Shard(1)])


def test_a_state_is_changed_where_it_lies():
    x, weight, state = torch.randn(2, 8), torch.randn(8, 4), torch.randn(2, 8, 4)

    def step(x, weight, state):
        state = state.clone()
        return lt.causal_conv1d_update(x, state, weight), state

    check(step, (x, weight, state), [Shard(1), Shard(0), Shard(1)], [Shard(1), Shard(1)])


# ---- slots, pages and positions ------------------------------------------------------------------

SLOTS = torch.tensor([2, 0], dtype=torch.int32)


def test_what_every_rank_has_is_changed_by_every_rank():
    """In a process of its own: ranks that communicate cannot compute one at a time."""
    program = pathlib.Path(__file__).parents[1] / "dtensor_shared.py"
    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert found.stdout.split() == ["slots", "layer", "pages"], found.stderr[-3000:]


def test_slots_by_channels():
    x, weight, pool = torch.randn(2, 8), torch.randn(8, 4), torch.randn(3, 8, 4)

    def step(x, weight, pool, slots):
        pool = pool.clone()
        return lt.causal_conv1d_update(x, pool, weight, state_indices=slots), pool

    check(step, (x, weight, pool, SLOTS), [Shard(1), Shard(0), Shard(1), Replicate()],
          [Shard(1)] * 2)


def test_slots_that_are_the_sequences():
    """Without state_indices the state has a slot for each sequence, in their order."""
    x, weight, state = torch.randn(2, 8), torch.randn(8, 4), torch.randn(2, 8, 4)

    def step(x, weight, state):
        state = state.clone()
        return lt.causal_conv1d_update(x, state, weight), state

    check(step, (x, weight, state), [Shard(0), Replicate(), Shard(0)], [Shard(0)] * 2)


def test_states_of_heads_in_slots():
    inputs = (randn(1, 4, 2, 16), randn(1, 4, 2, 16), randn(1, 4, 4, 16),
              -torch.rand(1, 4, 4, 16), torch.rand(1, 4, 4), torch.randn(3, 4, 16, 16), SLOTS,
              offsets(3, 1))

    def step(q, k, v, g, beta, pool, slots, cu):
        pool = pool.clone()
        return lt.kda_recurrent(q, k, v, g, beta, state_pool=pool, state_indices=slots,
                                cu_seqlens=cu)[0], pool

    check(step, inputs, [*[Shard(2)] * 5, Shard(1), Replicate(), Replicate()],
          [Shard(2), Shard(1)])


def test_channels_of_a_layer_are_those_of_several_heads():
    refused(layer, layer_inputs(), [Shard(1), Shard(0), Shard(1), *[Replicate()] * 4],
            r"qkv of kda_decode is sharded over its dimension 1 \(D\); a DTensor may be sharded "
            "over the batch;")


def test_pages_that_are_read_and_pages_of_heads_that_are_written():
    by_batch = [Shard(0), Replicate(), Replicate(), Shard(0), Shard(0)]
    check(lt.flash_attention_decode, decode_inputs(), by_batch, [Shard(0)] * 2)
    check(append, (*decode_inputs(), randn(2, 2, 2, 16), randn(2, 2, 2, 16)),
          [*[Shard(2)] * 3, Replicate(), Replicate(), Shard(2), Shard(2)],
          [Shard(2), Shard(1), Shard(2), Shard(2)])


def test_positions_of_sequences():
    def turned(q, k_cache, v_cache, table, lengths, positions, angle):
        return lt.flash_attention_decode(q, k_cache, v_cache, table, lengths,
                                         rope_positions=positions, rope_cos=angle.cos(),
                                         rope_sin=angle.sin())

    check(turned, (*decode_inputs(), torch.tensor([3, 20]).int(), torch.randn(32, 4)),
          [Shard(0), Replicate(), Replicate(), Shard(0), Shard(0), Shard(0), Replicate()],
          [Shard(0)] * 2)


@pytest.mark.skipif(not NARROW, reason="this torch lends no tensors of 8-bit floats")
@pytest.mark.parametrize("numbers", (1, 2))
def test_scales_of_heads_and_one_of_all(numbers):
    def narrow(q, k_cache, v_cache, table, lengths, scale):
        codes = [each.to(torch.float8_e4m3fn) for each in (k_cache, v_cache)]
        return lt.flash_attention_decode(q, *codes, table, lengths, k_scale=scale, v_scale=scale)

    check(narrow, (*decode_inputs(), torch.rand(numbers) + 0.5),
          [*[Shard(2)] * 3, Replicate(), Replicate(), Shard(0) if numbers > 1 else Replicate()],
          [Shard(2), Shard(1)])


def test_heads_that_a_mesh_of_two_dimensions_does_not_divide():
    """Six key heads over two by two ranks would be 2, 1, 2, 1, and queries 3 each."""
    torch.manual_seed(0)
    q, k = randn(1, 8, 12, 16), randn(1, 8, 6, 16)

    def on_rank(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        given = [distribute_tensor(each, mesh, [Shard(2), Shard(2)]) for each in (q, k)]
        return attention()(given[0], given[1], given[1])[0].full_tensor()

    for found in over_ranks(4, on_rank):
        assert torch.equal(found, attention()(q, k, k)[0])


# ---- what is refused -----------------------------------------------------------------------------


def refused(function, inputs, placements, match):
    with pytest.raises(Exception) as raised:
        sharded(function, inputs, placements)
    chain, error = [], raised.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__
    assert any(re.search(match, each) for each in chain), chain


def test_a_sequence_that_is_sharded():
    q = randn(2, 8, 4, 16)
    refused(attention(), (q, q, q), [Shard(1)] * 3,
            r"q of flash_attention is sharded over its dimension 1 \(Sq\).*lathe.torch.Ranks")
    x, weight = torch.randn(2, 8, 8), torch.randn(8, 4)
    refused(lambda x, w: lt.causal_conv1d(x, w), (x, weight), [Shard(1), Replicate()],
            r"x of causal_conv1d is sharded over its dimension 1 \(T\).*lathe.torch.Ranks")


def test_mods_know_no_shards():
    """The same placements without the mod first: DTensor keeps what it chose for these."""
    q = randn(2, 8, 4, 16)
    text = "__device__ float score_mod(float score, int, int head, int, int) " \
           "{ return score * head; }"
    check(attention(), (q, q, q), [Shard(2)] * 3, [Shard(2), Shard(1)])
    refused(attention(score_mod=text), (q, q, q), [Shard(2)] * 3, "score_mod reads indices")


def test_a_state_that_would_be_copied():
    x, weight, state = torch.randn(2, 8), torch.randn(8, 4), torch.randn(2, 8, 4)
    refused(lambda x, w, s: (lt.causal_conv1d_update(x, s, w),), (x, weight, state),
            [Shard(1), Shard(0), Partial()], "state is changed in place")
