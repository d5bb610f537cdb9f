# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The operators as functions of torch: the names, shapes and options of the operator table.

`over` are the ranks that share a sequence (lathe.torch.Ranks); each calls with its tokens. Where an
input requires a gradient, the call is an autograd.Function whose backward is lathe's. The
gradient of a gradient is not there. Options not named here are keywords with the table's names.
"""
from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.torch._calls import Call, Options, Over, count, options_of
from lathe.torch._tensors import (computed, dense_upstream, laid, no_second_gradient,
                                  upstream_or_zeros)

_Two = tuple[Tensor, Tensor]
_Four = tuple[Tensor, Tensor, Tensor, Tensor]

# ---- causal convolution --------------------------------------------------------------------------

_CONV = ("x", "weight", "bias", "residual", "initial_state", "cu_seqlens")
_conv, _conv_final = (Call("causal_conv1d" + "_final" * final, "causal_conv1d", _CONV,
                           ("y",) + ("final_state",) * final, rows=("x", "residual"))
                      for final in (False, True))
_conv_bwd = Call("causal_conv1d_bwd", "causal_conv1d", (*_CONV, "dy", "dfinal_state"),
                 ("dx", "dweight", "dbias", "dinitial_state"), rows=("x", "residual", "dy"))
_conv_update = Call("causal_conv1d_update", "causal_conv1d_update",
                    ("x", "weight", "bias", "residual", "state"), ("y",), rows=("x", "residual"))


class _CausalConv1d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, final: bool,
                *tensors: Tensor | None) -> Any:
        ctx.save_for_backward(*tensors)
        ctx.over, ctx.options = over, options
        ctx.set_materialize_grads(False)
        return (_conv_final if final else _conv)(options, *tensors, over=over)

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dy: Tensor | None, dfinal: Tensor | None = None) -> Any:
        x, weight, bias, residual, state, cu_seqlens = saved
        dy = upstream_or_zeros(dy, x)
        dx, dweight, dbias, dstate = _conv_bwd(ctx.options, x, weight, bias, residual, state,
                                               cu_seqlens, dy, dense_upstream(dfinal),
                                               over=ctx.over)
        dresidual = None
        if residual is not None and ctx.needs_input_grad[6]:
            dresidual = _residual_gradient(dy, cu_seqlens, ctx.over)
        return None, None, None, dx, dweight, dbias, dresidual, dstate, None


def _residual_gradient(dy: Tensor, cu_seqlens: Tensor | None, over: Over | None) -> Tensor:
    """Returns the gradient of what is added after all else: dy, and 0 in rows of no sequence."""
    if cu_seqlens is None:
        return dy
    count("gradients of a residual with rows of no sequence set to 0")
    first = 0 if over is None else over.first_token()  # offsets are those of all ranks
    rows = torch.arange(first, first + dy.shape[1], device=dy.device)
    return dy.masked_fill((rows >= cu_seqlens[-1]).view(1, -1, 1), 0)


def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                  residual: Tensor | None = None, initial_state: Tensor | None = None,
                  cu_seqlens: Tensor | None = None, activation: str = "none",
                  output_final_state: bool = False, over: Over | None = None
                  ) -> tuple[Tensor, Tensor | None]:
    """Returns (y, final_state): x [B,T,D] convolved along T with weight [D,W]."""
    found = computed(_conv_final if output_final_state else _conv, _CausalConv1d,
                     {"activation": activation},
                     (x, weight, bias, residual, initial_state, cu_seqlens), over,
                     output_final_state)
    return (found[0], found[1] if output_final_state else None)


def causal_conv1d_update(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                         residual: Tensor | None = None, activation: str = "none") -> Tensor:
    """Returns y [B,D] for one token a row; rolls state [B,D,W] in place. Has no gradient."""
    (y,) = _conv_update({"activation": activation}, x, weight, bias, residual, state)
    return cast(Tensor, y)


# ---- Kimi Delta Attention ------------------------------------------------------------------------

_KDA = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state", "cu_seqlens")
_SAVED = ("saved_values", "saved_states")
_kda = {(final, chunks): Call("kda" + "_final" * final + "_chunks" * chunks, "kda",
                              (*_KDA, *_SAVED), ("o",) + ("final_state",) * final
                              + ("chunk_states",) * chunks, rows=_KDA[:5])
        for final in (False, True) for chunks in (False, True)}
_kda_bwd = Call("kda_bwd", "kda", (*_KDA, "do", "dht", *_SAVED),
                ("dq", "dk", "dv", "dg", "dbeta", "dA_log", "ddt_bias", "dinitial_state"),
                rows=(*_KDA[:5], "do"))
_POOL = ("state_pool", "state_indices", "num_accepted_tokens")
_kda_recurrent = {final: Call("kda_recurrent" + "_final" * final, "kda_recurrent",
                              (*_KDA, *(() if final else _POOL)),
                              ("o",) + ("final_state",) * final, into=not final,
                              rows=(*_KDA[:5], "initial_state"))
                  for final in (False, True)}
_STATE_TOKENS = 64  # tokens between two of the states that a forward keeps


def _saved(q: Tensor, v: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns room for what a forward leaves to its backward (the rows of the operator table)."""
    batch, tokens, heads, width = v.shape
    slots = batch * -(-tokens // _STATE_TOKENS)
    if cu_seqlens is not None:
        slots = tokens // _STATE_TOKENS + cu_seqlens.shape[0] - 1
    return (v.new_empty(v.shape), v.new_empty((slots, heads, width, q.shape[-1])))


class _Kda(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, final: bool, chunks: bool,
                keeps: bool, *inputs: Tensor | None) -> Any:
        *tensors, _, _ = inputs
        q, v, cu_seqlens = tensors[0], tensors[2], tensors[8]
        assert q is not None and v is not None
        saved: tuple[Tensor | None, ...] = (None, None)
        if keeps:
            options, saved = (*options, ("disable_recompute", 1)), _saved(q, v, cu_seqlens)
        found = _kda[final, chunks](options, *tensors, *saved, over=over)
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
        found = _kda_bwd(ctx.options, *tensors, do, dense_upstream(dht), values, states,
                         over=ctx.over)
        return (None, None, None, None, None, *found, None, None, None)


def kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, A_log: Tensor | None = None,
        dt_bias: Tensor | None = None, initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None, output_final_state: bool = False,
        output_chunk_states: bool = False, over: Over | None = None, **options: Any
        ) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns (o, final_state, chunk_states) of chunked Kimi Delta Attention."""
    final, chunks = bool(output_final_state), bool(output_chunk_states)
    # Without a backward there is nothing to keep anything for.
    keeps = bool(options.pop("disable_recompute", False))
    found = computed(_kda[final, chunks], _Kda, options,
                     (q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens, None, None),
                     over, final, chunks, keeps)
    return (found[0], found[1] if final else None, found[-1] if chunks else None)


def kda_recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *,
                  A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                  initial_state: Tensor | None = None, cu_seqlens: Tensor | None = None,
                  state_pool: Tensor | None = None, state_indices: Tensor | None = None,
                  num_accepted_tokens: Tensor | None = None, output_final_state: bool = False,
                  out: Tensor | None = None, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Returns (o, final_state), token by token; a pool of states is changed in place.

    out: where o is written, if there is no final state; its rows are contiguous.
    """
    call = _kda_recurrent[bool(output_final_state)]
    tensors: tuple[Tensor | None, ...] = (q, k, v, g, beta, A_log, dt_bias, initial_state,
                                          cu_seqlens)
    pool = (state_pool, state_indices, num_accepted_tokens)
    if not output_final_state:
        tensors = (*tensors, *pool)
    elif any(each is not None for each in pool):
        raise InvalidArgument("state_pool, state_indices or num_accepted_tokens is given and "
                              "output_final_state is True; one can be: a pool's states are "
                              "written in place")
    if out is not None:
        if output_final_state:
            raise InvalidArgument("out is given and output_final_state is True; one can be")
        call.into(options_of(**options), laid(call, tensors), (out,))
        return out, None
    found = call(options, *tensors)
    return (found[0], found[1] if output_final_state else None)


# ---- flash attention -----------------------------------------------------------------------------

_ATTENTION = ("q", "k", "v", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_k")
_CAPTURES = ("capture_0", "capture_1", "capture_2", "capture_3")
_attention = Call("flash_attention", "flash_attention", (*_ATTENTION, *_CAPTURES), ("out", "lse"),
                  rows=_ATTENTION[:3], into=True)
_attention_bwd = Call("flash_attention_bwd", "flash_attention",
                      (*_ATTENTION, "dout", "dlse", *_CAPTURES, "out", "lse"),
                      ("dq", "dk", "dv", "dsinks"), rows=(*_ATTENTION[:3], "dout", "out"),
                      into=True)
_decode = Call("flash_attention_decode", "flash_attention_decode",
               ("q", "k_cache", "v_cache", "block_table", "cache_seqlens", "k_new", "v_new",
                "alibi_slopes", "sinks", *_CAPTURES), ("out", "lse"), rows=("q", "k_new", "v_new"),
               into=True)


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, *tensors: Tensor | None) -> Any:
        out, lse = _attention(options, *tensors, over=over)
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
        dq, dk, dv, dsinks = _attention_bwd(options, *tensors[:7], dout, dense_upstream(dlse),
                                            *tensors[7:], out, lse, over=ctx.over)
        return (None, None, dq, dk, dv, None, dsinks, None, None, None, None, None, None)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, alibi_slopes: Tensor | None = None,
                    sinks: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
                    cu_seqlens_k: Tensor | None = None, captures: tuple[Tensor, ...] = (),
                    over: Over | None = None, **options: Any) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) of softmax attention; both can be differentiated."""
    padded = (*captures, *(None,) * (len(_CAPTURES) - len(captures)))
    tensors = (q, k, v, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_k, *padded)
    if "deterministic" not in options and torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = 1
    return cast(_Two, computed(_attention, _FlashAttention, options, tensors, over))


def flash_attention_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor | None, block_table: Tensor,
                           cache_seqlens: Tensor, *, k_new: Tensor | None = None,
                           v_new: Tensor | None = None, alibi_slopes: Tensor | None = None,
                           sinks: Tensor | None = None, captures: tuple[Tensor, ...] = (),
                           **options: Any) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) over a cache in pages, to which k_new and v_new are appended in place.

    Without v_cache, values are the first 512 of the 576 columns of k_cache.
    """
    padded = (*captures, *(None,) * (len(_CAPTURES) - len(captures)))
    tensors = (q, k_cache, v_cache, block_table, cache_seqlens, k_new, v_new, alibi_slopes, sinks,
               *padded)
    return cast(_Two, _decode(options, *tensors))


# ---- sparse flash attention ----------------------------------------------------------------------

_SPARSE = ("q", "k", "v", "q_rope", "k_rope", "indices", "cu_seqlens_q", "cu_seqlens_k", "q_pos",
           "sinks")
_STATISTICS = ("softmax_max", "softmax_sum", "lse")
_sparse = Call("sparse_flash_attention", "sparse_flash_attention", _SPARSE, ("out", *_STATISTICS),
               rows=_SPARSE[:6])
_sparse_bwd = Call("sparse_flash_attention_bwd", "sparse_flash_attention",
                   (*_SPARSE, "dout", "out", "lse"),
                   ("dq", "dk", "dv", "dq_rope", "dk_rope", "dsinks"),
                   rows=(*_SPARSE[:6], "dout", "out"))


class _SparseFlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, over: Over | None, options: Options, *tensors: Tensor | None) -> Any:
        out, most, total, lse = _sparse(options, *tensors, over=over)
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
        dq, dk, dv, dq_rope, dk_rope, dsinks = _sparse_bwd(options, *tensors, dout, out, lse,
                                                           over=ctx.over)
        return (None, None, dq, dk, dv, dq_rope, dk_rope, None, None, None, None, dsinks)


def sparse_flash_attention(q: Tensor, k: Tensor, v: Tensor | None, indices: Tensor, *, scale: float,
                           q_rope: Tensor | None = None, k_rope: Tensor | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
                           q_pos: Tensor | None = None, sinks: Tensor | None = None,
                           over: Over | None = None, **options: Any
                           ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns (out, softmax_max, softmax_sum, lse) over the keys that each row's list names."""
    tensors = (q, k, v, q_rope, k_rope, indices, cu_seqlens_q, cu_seqlens_k, q_pos, sinks)
    if "deterministic" not in options and torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = 1
    options["scale"] = scale
    return cast(_Four, computed(_sparse, _SparseFlashAttention, options, tensors, over))
