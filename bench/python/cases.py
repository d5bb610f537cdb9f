# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The calls that calls.py times. Their sizes do not matter, since no kernel runs."""
from __future__ import annotations

from typing import Any, Callable

import torch

import lathe.torch
from lathe.compat import causal_conv1d as conv_peer
from lathe.compat import fla, flash_attn, vllm, vllm_conv, vllm_kda
from lathe.torch._operator_calls import CAUSAL_CONV1D, FLASH_ATTENTION

Calls = list[tuple[str, Callable[[], object]]]


def _random(*shape: int, gradient: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16).requires_grad_(gradient)


def attention(gradient: bool) -> tuple[torch.Tensor, ...]:
    """Returns q, k, v."""
    return tuple(_random(1, 128, heads, 64, gradient=gradient) for heads in (8, 2, 2))


def delta(gradient: bool) -> tuple[torch.Tensor, ...]:
    """Returns q, k, v, g, beta."""
    wide = [_random(1, 128, 8, 64, gradient=gradient) for _ in range(4)]
    return (*wide, _random(1, 128, 8, gradient=gradient))


def convolution(gradient: bool) -> tuple[torch.Tensor, ...]:
    """Returns x, weight."""
    return _random(1, 128, 64, gradient=gradient), _random(64, 4, gradient=gradient)


def three_ways(name: str, call: Callable[..., torch.Tensor],
               inputs: Callable[[bool], tuple[torch.Tensor, ...]]) -> Calls:
    """Returns a call without gradients, with them, and with its backward."""
    plain, recorded = inputs(False), inputs(True)
    gradient = torch.empty_like(call(*plain))
    return [(name, lambda: call(*plain)), (f"{name}, forward with gradients",
                                           lambda: call(*recorded)),
            (f"{name}, forward and backward",
             lambda: torch.autograd.grad(call(*recorded), recorded, gradient))]


def plans() -> list[tuple[str, str, list[tuple[str, torch.Tensor]], Callable[[], object]]]:
    """Returns (name, the problem's line, the slots' dtypes and tensors, a call of the plan)."""
    found = []
    none = (None,) * 8
    for call, options, given in (
            (FLASH_ATTENTION, (("causal", True),), (*attention(False), *none)),
            (CAUSAL_CONV1D, (("activation", "silu"),), (*convolution(False), *none[:4]))):
        problem, prepared = call.problem(options, given), call.table(options, *given)
        names = dict(zip((*call.inputs, *call.outputs), (*given, *call(options, *given))))
        dtypes = {each["name"]: each["dtype"] for each in problem.tensors() if each["declared"]}
        slots = [(dtypes[slot], names[slot]) for slot in prepared.plan.slots]
        tensors = [tensor for _, tensor in slots]
        found.append((f"{call.op}, {len(slots)} tensors", problem.text(), slots,
                      _bound(prepared.plan, tensors)))
    return found


def _bound(plan: Any, tensors: list[torch.Tensor]) -> Callable[[], object]:
    return lambda: plan(*tensors)


def lathe_calls() -> Calls:
    """Returns the calls of lathe.torch and of lathe.compat."""
    return [
        *three_ways("lathe.torch.flash_attention",
                    lambda q, k, v: lathe.torch.flash_attention(q, k, v, causal=True)[0],
                    attention),
        *three_ways("lathe.torch.kda", lambda *given: lathe.torch.kda(*given)[0], delta),
        *three_ways("lathe.torch.causal_conv1d",
                    lambda x, weight: lathe.torch.causal_conv1d(x, weight, activation="silu")[0],
                    convolution),
        *three_ways("lathe.compat.flash_attn.flash_attn_func",
                    lambda q, k, v: flash_attn.flash_attn_func(q, k, v, causal=True), attention),
        *three_ways("lathe.compat.fla.chunk_kda", lambda *given: fla.chunk_kda(*given)[0], delta),
        *three_ways("lathe.compat.causal_conv1d.causal_conv1d_fn",
                    lambda x, weight: conv_peer.causal_conv1d_fn(x, weight, activation="silu"),
                    lambda gradient: (convolution(False)[0].transpose(1, 2)
                                      .requires_grad_(gradient), convolution(gradient)[1]))]


def _slots(count: int) -> torch.Tensor:
    return torch.arange(1, count + 1, dtype=torch.int32)


def serving_calls() -> Calls:
    """Returns the calls of a server's decoding step: 32 sequences, 12 heads of 128, pools."""
    rows, heads, width, taps = 32, 12, 128, 4
    channels, slots = 3 * heads * width, _slots(rows)
    conv, states = _random(40, channels, taps - 1), torch.randn(40, heads, width, width)
    qkv, weight = _random(rows, channels), _random(channels, taps)
    gate, beta, out_gate = (_random(rows, heads, width), _random(rows, heads),
                            _random(rows, heads, width))
    rate, bias, norm = torch.randn(heads), torch.randn(heads * width), torch.randn(width)
    options = {"use_gate_in_kernel": 1, "use_beta_sigmoid_in_kernel": 1, "null_slot": 0,
               "use_qk_l2norm_in_kernel": 1, "state_v_first": 1, "lower_bound": -5.0}
    q, new = _random(rows, heads, width), _random(rows, 2, width)
    pages = [_random(64, 16, 2, width) for _ in range(2)]
    table = torch.arange(64, dtype=torch.int32).view(rows, 2)
    lengths, starts = _slots(rows) % 16, torch.arange(rows + 1, dtype=torch.int32)
    split = _random(3, taps, heads * width)
    one = torch.empty_like(out_gate).unsqueeze(0)
    return [
        ("lathe.torch.kda_decode", lambda: lathe.torch.kda_decode(
            qkv, weight, conv, gate, beta, states, slots, A_log=rate, dt_bias=bias,
            output_gate=out_gate, norm_weight=norm, **options)),
        ("lathe.torch.causal_conv1d_update over slots", lambda: lathe.torch.causal_conv1d_update(
            qkv, conv, weight, state_indices=slots, activation="silu", null_slot=0)),
        ("lathe.torch.flash_attention_decode", lambda: lathe.torch.flash_attention_decode(
            q, *pages, table, lengths, k_new=new, v_new=new, cu_seqlens_q=starts, causal=True)),
        ("lathe.compat.vllm_kda.fused_kda_decode", lambda: vllm_kda.fused_kda_decode(
            qkv, split, None, conv, gate[None], beta[None], rate, bias, slots, states, one, -5.0,
            out_gate, norm)),
        ("lathe.compat.vllm_kda.fused_recurrent_kda_packed_decode",
         lambda: vllm_kda.fused_recurrent_kda_packed_decode(
             qkv, gate[None], beta[None], rate, bias, -5.0, states, slots, out=one)),
        ("lathe.compat.vllm_conv.causal_conv1d_update", lambda: vllm_conv.causal_conv1d_update(
            qkv, conv, weight, None, "silu", slots)),
        ("lathe.compat.vllm.flash_attn_varlen_func", lambda: vllm.flash_attn_varlen_func(
            q, *pages, 1, starts, 32, seqused_k=lengths, causal=True, block_table=table,
            out=one[0])),
    ]


class _Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return torch.empty_like(tensors[0])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return tuple(torch.empty_like(each) for each in ctx.saved_tensors)


def torch_alone() -> Calls:
    """Returns what torch takes for the same outputs when nothing is computed."""
    q, k, v = attention(False)
    return [("torch.empty_like(q)", lambda: torch.empty_like(q)),
            *three_ways("an autograd.Function of q, k, v that computes nothing", _Nothing.apply,
                        attention)[1:]]
