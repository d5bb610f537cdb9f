# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The operators as autograd.Functions, whose backwards are lathe's."""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from lathe.torch._calls import Call, Options, Over, count
from lathe.torch._operator_calls import (CAUSAL_CONV1D, CAUSAL_CONV1D_BWD, CAUSAL_CONV1D_FINAL, KDA,
                                         KDA_BWD, KDA_CHUNKS, KDA_FINAL, KDA_FINAL_CHUNKS,
                                         FLASH_ATTENTION, FLASH_ATTENTION_BWD,
                                         SPARSE_FLASH_ATTENTION, SPARSE_FLASH_ATTENTION_BWD)
from lathe.torch._tensors import dense_upstream, no_second_gradient, upstream_or_zeros

# ---- what a backward returns ---------------------------------------------------------------------


def places_of(call: Call, gradients: Sequence[str], others: int) -> tuple[int, ...]:
    """Returns for each argument of a forward the place of its gradient; -1: it has none.

    The arguments are `others` that are no inputs, then the inputs of the call. The gradient of an
    input x is called dx.
    """
    wanted = [f"d{name}" for name in call.inputs]
    assert set(gradients) <= set(wanted), (call.name, gradients)
    return (*[-1] * others, *[gradients.index(name) if name in gradients else -1
                              for name in wanted])


def for_arguments(found: Sequence[Tensor | None], places: tuple[int, ...]
                  ) -> tuple[Tensor | None, ...]:
    """Returns what a backward returns: the gradients that were found, at their arguments."""
    found = (*found, None)  # at place -1
    return tuple([found[place] for place in places])


# ---- causal convolution --------------------------------------------------------------------------

_CONV_PLACES = places_of(CAUSAL_CONV1D, (*CAUSAL_CONV1D_BWD.outputs, "dresidual"), others=3)
_RESIDUAL = _CONV_PLACES.index(len(CAUSAL_CONV1D_BWD.outputs))  # among the forward's arguments


class CausalConv1d(torch.autograd.Function):
    """causal_conv1d with gradients; `final`: with the final state."""

    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, final: bool,
                *tensors: Tensor | None) -> Any:
        ctx.save_for_backward(*tensors)
        ctx.over, ctx.options = over, options
        ctx.set_materialize_grads(False)
        return (CAUSAL_CONV1D_FINAL if final else CAUSAL_CONV1D)(options, *tensors, over=over)

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dy: Tensor | None, dfinal: Tensor | None = None) -> Any:
        x, _, _, residual, _, cu_seqlens = saved
        dy = upstream_or_zeros(dy, x)
        found = CAUSAL_CONV1D_BWD(ctx.options, *saved, dy, dense_upstream(dfinal), over=ctx.over)
        dresidual = None
        if residual is not None and ctx.needs_input_grad[_RESIDUAL]:
            dresidual = _residual_gradient(dy, cu_seqlens, ctx.over)
        return for_arguments((*found, dresidual), _CONV_PLACES)


def _residual_gradient(dy: Tensor, cu_seqlens: Tensor | None, over: Over | None) -> Tensor:
    """Returns the gradient of what is added after all else: dy, and 0 in rows of no sequence."""
    if cu_seqlens is None:
        return dy
    count("gradients of a residual with rows of no sequence set to 0")
    first = 0 if over is None else over.first_token()  # offsets are those of all ranks
    rows = torch.arange(first, first + dy.shape[1], device=dy.device)
    return dy.masked_fill((rows >= cu_seqlens[-1]).view(1, -1, 1), 0)


# ---- Kimi Delta Attention ------------------------------------------------------------------------

_KDA_PLACES = places_of(KDA, KDA_BWD.outputs, others=5)
_STATE_TOKENS = 64  # tokens between two of the states that a forward keeps


def kda_call(final: bool, chunks: bool) -> Call:
    """Returns the Call of kda with the final state, and with the states of chunks."""
    if final:
        return KDA_FINAL_CHUNKS if chunks else KDA_FINAL
    return KDA_CHUNKS if chunks else KDA


def _saved(q: Tensor, v: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns room for what a forward leaves to its backward (the rows of the operator table)."""
    batch, tokens, heads, width = v.shape
    slots = batch * -(-tokens // _STATE_TOKENS)
    if cu_seqlens is not None:
        slots = tokens // _STATE_TOKENS + cu_seqlens.shape[0] - 1
    return (v.new_empty(v.shape), v.new_empty((slots, heads, width, q.shape[-1])))


class Kda(torch.autograd.Function):
    """kda with gradients; `keeps`: the forward leaves values and states to the backward."""

    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, final: bool, chunks: bool,
                keeps: bool, *inputs: Tensor | None) -> Any:
        *tensors, _, _ = inputs
        q, v, cu_seqlens = tensors[0], tensors[2], tensors[8]
        assert q is not None and v is not None
        saved: tuple[Tensor | None, ...] = (None, None)
        if keeps:
            options, saved = (*options, ("disable_recompute", 1)), _saved(q, v, cu_seqlens)
        found = kda_call(final, chunks)(options, *tensors, *saved, over=over)
        ctx.save_for_backward(*tensors, *saved)
        ctx.over, ctx.options, ctx.final = over, options, final
        ctx.set_materialize_grads(False)
        if chunks:
            ctx.mark_non_differentiable(found[-1])
        return found

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, do: Tensor | None, *rest: Tensor | None) -> Any:
        *tensors, values, states = saved
        dht = rest[0] if ctx.final else None  # states of chunks have no gradient
        do = upstream_or_zeros(do, tensors[2])
        found = KDA_BWD(ctx.options, *tensors, do, dense_upstream(dht), values, states,
                        over=ctx.over)
        return for_arguments(found, _KDA_PLACES)


# ---- attention -----------------------------------------------------------------------------------

_ATTENTION_PLACES = places_of(FLASH_ATTENTION, FLASH_ATTENTION_BWD.outputs, others=2)
_FIRST_CAPTURE = FLASH_ATTENTION.inputs.index("capture_0")


class FlashAttention(torch.autograd.Function):
    """flash_attention with gradients, of out and of lse."""

    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, *tensors: Tensor | None) -> Any:
        out, lse = FLASH_ATTENTION(options, *tensors, over=over)
        ctx.save_for_backward(*tensors, out, lse)
        ctx.over, ctx.options = over, options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dout: Tensor | None, dlse: Tensor | None) -> Any:
        *tensors, out, lse = saved
        dout = upstream_or_zeros(dout, out)
        options = (*ctx.options, ("saved_forward", 1))
        found = FLASH_ATTENTION_BWD(options, *tensors[:_FIRST_CAPTURE], dout, dense_upstream(dlse),
                                    *tensors[_FIRST_CAPTURE:], out, lse, over=ctx.over)
        return for_arguments(found, _ATTENTION_PLACES)


_SPARSE_PLACES = places_of(SPARSE_FLASH_ATTENTION, SPARSE_FLASH_ATTENTION_BWD.outputs, others=2)


class SparseFlashAttention(torch.autograd.Function):
    """sparse_flash_attention with gradients, of out alone."""

    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, *tensors: Tensor | None) -> Any:
        out, most, total, lse = SPARSE_FLASH_ATTENTION(options, *tensors, over=over)
        ctx.save_for_backward(*tensors, out, lse)
        ctx.over, ctx.options = over, options
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(most, total, lse)
        return out, most, total, lse

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dout: Tensor | None, *unused: Any) -> Any:
        *tensors, out, lse = saved
        dout = upstream_or_zeros(dout, out)
        options = (*ctx.options, ("saved_forward", 1))
        found = SPARSE_FLASH_ATTENTION_BWD(options, *tensors, dout, out, lse, over=ctx.over)
        return for_arguments(found, _SPARSE_PLACES)
