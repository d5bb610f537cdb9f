# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty compiled steps of every function that decodes: one graph, one plan, states in place.

And what inductor makes of caches: none is copied, also where both are views of one buffer.
"""
import re

import pytest
import torch
import torch._dynamo.testing
from torch._inductor.utils import run_and_get_code

import lathe.torch as lt
from lathe.compat import causal_conv1d, fla, flash_attn, flash_attn_3, flash_mla, vllm, vllm_conv
from lathe.torch import _calls
from tensors import NARROW

STEPS = 20
TABLE = torch.tensor([[1, 2, 5], [3, 0, 4]], dtype=torch.int32)
SLOTS = torch.tensor([2, 0], dtype=torch.int32)
ROWS = torch.tensor([0, 1, 2], dtype=torch.int32)


def made(*shape, dtype=torch.float16):
    generator = torch.Generator().manual_seed(len(shape) + shape[-1])
    return torch.randn(shape, generator=generator).to(dtype)


def pages():
    """Returns two caches of six pages of 8 tokens, which are views of one buffer."""
    buffer = made(6, 2, 8, 2, 16)
    return buffer[:, 0], buffer[:, 1]


def over_pages(function, table="block_table", **options):
    """Returns a step that appends one token and attends."""
    def step(state, lengths, x):
        k_cache, v_cache = state
        return function(x, k_cache, v_cache, k=x[:, :, :2], v=x[:, :, 2:], cache_seqlens=lengths,
                        causal=True, **{table: TABLE}, **options)
    return pages, step, (2, 1, 4, 16)


def vllm_pages(state, lengths, x):
    return vllm.flash_attn_varlen_func(x.flatten(0, 1), *state, 1, ROWS, 24, seqused_k=lengths + 1,
                                       block_table=TABLE, causal=True)


def latent(state, lengths, x):
    return flash_mla.flash_mla_with_kvcache(x, state[0], TABLE, lengths + 1, 512,
                                            flash_mla.FlashMLASchedMeta())[0]


def kda_rows(x):
    rows = x.reshape(1, -1, 1, 16).float()
    gate = -rows.expand(-1, -1, 2, -1).sigmoid()
    return rows, rows / 4, gate * 2, gate, gate[..., 0] + 1


def kda_pool():
    return (made(4, 2, 16, 16, dtype=torch.float32),)


def kda_pool_step(state, lengths, x):
    return lt.kda_recurrent(*kda_rows(x), state_pool=state[0], state_indices=SLOTS,
                            cu_seqlens=ROWS)[0]


def fla_pool_step(state, lengths, x):
    return fla.fused_recurrent_kda_fwd(*kda_rows(x), initial_state=state[0],
                                       ssm_state_indices=SLOTS, cu_seqlens=ROWS)[0]


def fla_step(state, lengths, x):
    o, final = fla.fused_recurrent_kda(*kda_rows(x), initial_state=state[0][:2],
                                       output_final_state=True, cu_seqlens=ROWS)
    state[0][:2].copy_(final)
    return o


WEIGHT, BIAS = made(32, 4), made(32)
TAPS = made(64, 4)


def rings():
    """Returns records of four slots, in which four steps have room, and how many there are."""
    return (made(4, 4, 1, 16), made(4, 4, 2, 16, dtype=torch.float32),
            -made(4, 4, 2, 16, dtype=torch.float32).abs(), torch.zeros(4, dtype=torch.int32))


def layer():
    return made(4, 64, 3), made(4, 2, 16, 16, dtype=torch.float32)


def layer_step(state, lengths, x, **named):
    gate = -x[:, :32].unflatten(1, (2, 16)).float().sigmoid()
    return lt.kda_decode(x, TAPS, state[0], gate, gate[..., 0] + 1, state[1], SLOTS,
                         output_gate=gate, norm_weight=BIAS[:16], **named)


def layer_rings_step(state, lengths, x):
    k, u, g, count = state[2:]
    return layer_step(state, lengths, x, ring_k=k, ring_u=u, ring_g=g, ring_count=count)


def kda_rings_step(state, lengths, x):
    k, u, g, count = state[1:]
    return lt.kda_recurrent(*(each.half() for each in kda_rows(x)), state_pool=state[0],
                            state_indices=SLOTS, cu_seqlens=ROWS, ring_k=k, ring_u=u, ring_g=g,
                            ring_count=count)[0]


def kda_chunk_step(state, lengths, x):
    return lt.kda(*kda_rows(x), state_pool=state[0], state_indices=SLOTS, cu_seqlens=ROWS)[0]


def pages_of_codes():
    """Returns caches as bytes, and a scale for each of their rows."""
    codes = [each.to(torch.float8_e4m3fn).view(torch.uint8) for each in pages()]
    return *codes, torch.ones(6, 8, 2), torch.ones(6, 8, 2)


def ragged_step(state, lengths, x):
    """Two rows of the first sequence and one of the second, which turn by where they stand."""
    angle = torch.arange(48.0)[:, None] * torch.tensor([1.0, 0.1])
    return lt.flash_attention_decode(
        x, *state, TABLE, lengths, k_new=x[:, :2], v_new=x[:, 2:], causal=True,
        cu_seqlens_q=torch.tensor([0, 2, 3], dtype=torch.int32), rope_cos=angle.cos(),
        rope_sin=angle.sin(), leftpad=torch.tensor([0, 2], dtype=torch.int32))[0]


def codes_step(state, lengths, x):
    codes = [each.view(torch.float8_e4m3fn) for each in state[:2]]
    return lt.flash_attention_decode(x, *codes, TABLE, lengths, k_new=x[:, :, :2],
                                     v_new=x[:, :, 2:], k_scale=state[2], v_scale=state[3],
                                     causal=True)[0]


def conv_states(slots, width=4):
    return lambda: (made(slots, 32, width),)


DECODING = {
    "flash_attention_decode": over_pages(
        lambda q, k_cache, v_cache, block_table, cache_seqlens, k, v, **options:
        lt.flash_attention_decode(q, k_cache, v_cache, block_table, cache_seqlens, k_new=k,
                                  v_new=v, **options)[0]),
    "flash_attention_decode ragged": (pages, ragged_step, (3, 4, 16)),
    **({"flash_attention_decode 8 bits": (pages_of_codes, codes_step, (2, 1, 4, 16))}
       if NARROW else {}),
    "flash_attn.flash_attn_with_kvcache": over_pages(flash_attn.flash_attn_with_kvcache),
    "flash_attn_3.flash_attn_with_kvcache": over_pages(flash_attn_3.flash_attn_with_kvcache,
                                                       "page_table"),
    "vllm.flash_attn_varlen_func": (pages, vllm_pages, (2, 1, 4, 16)),
    "flash_mla.flash_mla_with_kvcache": (lambda: (made(6, 8, 1, 576),), latent, (2, 1, 4, 576)),
    "kda_recurrent": (kda_pool, kda_pool_step, (2, 16)),
    "kda_recurrent rings": (lambda: (*kda_pool(), *rings()), kda_rings_step, (2, 16)),
    "kda": (kda_pool, kda_chunk_step, (2, 16)),
    "kda_decode": (layer, layer_step, (2, 64)),
    "kda_decode rings": (lambda: (*layer(), *rings()), layer_rings_step, (2, 64)),
    "fla.fused_recurrent_kda_fwd": (kda_pool, fla_pool_step, (2, 16)),
    "fla.fused_recurrent_kda": (kda_pool, fla_step, (2, 16)),
    "causal_conv1d_update": (
        conv_states(2), lambda state, lengths, x: lt.causal_conv1d_update(
            x, state[0], WEIGHT, BIAS, activation="silu"), (2, 32)),
    "causal_conv1d_update slots": (
        conv_states(4), lambda state, lengths, x: lt.causal_conv1d_update(
            x, state[0], WEIGHT, BIAS, state_indices=SLOTS, activation="silu"), (2, 32)),
    "fla.causal_conv1d_update": (
        conv_states(2), lambda state, lengths, x: fla.causal_conv1d_update(
            x, state[0], None, WEIGHT, BIAS, "silu")[0], (2, 32)),
    "causal_conv1d.causal_conv1d_update": (
        conv_states(4, 3), lambda state, lengths, x: causal_conv1d.causal_conv1d_update(
            x, state[0], WEIGHT, BIAS, "silu", conv_state_indices=SLOTS), (2, 32)),
    "vllm_conv.causal_conv1d_update": (
        conv_states(4, 3), lambda state, lengths, x: vllm_conv.causal_conv1d_update(
            x, state[0], WEIGHT, BIAS, True, SLOTS), (2, 32)),
}


@pytest.mark.parametrize("name", DECODING)
def test_twenty_steps(name):
    make, step, shape = DECODING[name]
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    plain, traced, plans = make(), make(), None
    with torch.no_grad():
        for at in range(STEPS):
            lengths, x = torch.tensor([at, 3], dtype=torch.int32), made(*shape) + at / 10
            assert torch.equal(compiled(traced, lengths, x), step(plain, lengths, x)), at
            for one, other in zip(traced, plain):
                assert torch.equal(one, other), at
            found = sum(len(call.table) for call in _calls._calls)
            assert plans in (None, found), "a step made a plan"
            plans = found
    assert counter.frame_count == 1


# ---- what inductor copies ------------------------------------------------------------------------

NEW = made(2, 1, 2, 16)


def attend(q, k_cache, v_cache, lengths, **new):
    return flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths,
                                              block_table=TABLE, causal=True, **new)


def append(buffer, q, lengths):
    return attend(q, buffer[:, 0], buffer[:, 1], lengths, k=NEW, v=NEW)


def append_twice(buffer, q, lengths):
    out = append(buffer, q, lengths)
    return attend(out, *buffer.unbind(1), lengths + 1, k=NEW * 2, v=NEW)


def append_and_read(buffer, q, lengths):
    out = append(buffer, q, lengths)
    return attend(out, buffer[:, 0], buffer[:, 1], lengths)


@pytest.mark.parametrize("call", [append, append_twice, append_and_read])
def test_caches_that_are_views_are_not_copied(call):
    buffers, q = [made(6, 2, 8, 2, 16) for _ in range(2)], made(2, 1, 4, 16)
    lengths = torch.tensor([4, 10], dtype=torch.int32)
    torch._dynamo.reset()
    with torch.no_grad():
        found, (code,) = run_and_get_code(torch.compile(call, fullgraph=True), buffers[0], q,
                                          lengths)
        assert torch.equal(found, call(buffers[1], q, lengths))
    assert torch.equal(*buffers)
    sizes = [eval(shape) for shape in re.findall(r"empty_strided_\w+\((\([^()]*\)),", code)]
    assert all(torch.Size(size).numel() <= q.numel() for size in sizes), sizes


def test_caches_that_the_program_fills():
    """Here torch's index_put_ copies the views; what is read is the same."""
    def call(buffer, q, lengths):
        k_cache, v_cache = buffer[:, 0], buffer[:, 1]
        for cache in (k_cache, v_cache):
            cache.index_put_((TABLE[:, 0], lengths), NEW[:, 0])
        return attend(q, k_cache, v_cache, lengths)

    buffers, q = [made(6, 2, 8, 2, 16) for _ in range(2)], made(2, 1, 4, 16)
    lengths = torch.tensor([4, 7], dtype=torch.int32)
    torch._dynamo.reset()
    found = torch.compile(call, fullgraph=True)(buffers[0], q, lengths)
    assert torch.equal(found, call(buffers[1], q, lengths)) and torch.equal(*buffers)
