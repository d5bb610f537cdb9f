# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The calls that calls.py times. Their sizes do not matter, since no kernel runs."""
from __future__ import annotations

from typing import Any, Callable

import torch

import lathe.torch
from lathe.compat import causal_conv1d as conv_peer
from lathe.compat import fla, flash_attn
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
