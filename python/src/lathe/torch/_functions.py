# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The operators as functions of torch: the names, shapes and options of the operator table.

`over` are the ranks that share a sequence (lathe.torch.Ranks); each calls with its tokens. Where an
input requires a gradient, the call is an autograd.Function whose backward is lathe's. The
gradient of a gradient is not there.

**options are the operator's, by the table's names. What callers see in their place, with types,
defaults and sentences, scripts/docs writes from these functions and the table: _signatures.py. A
parameter for each option would have to be filled and compared at every call, which takes 0.2 us.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable, TypeVar, cast

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.torch import _signatures
from lathe.torch._calls import Over
from lathe.torch._gradients import (CausalConv1d, FlashAttention, Kda, SparseFlashAttention,
                                    kda_call)
from lathe.torch._operator_calls import (CAPTURES, CAUSAL_CONV1D, CAUSAL_CONV1D_FINAL,
                                         CAUSAL_CONV1D_PARTS, CAUSAL_CONV1D_PARTS_FINAL,
                                         CAUSAL_CONV1D_POOL, CAUSAL_CONV1D_UPDATE, FLASH_ATTENTION,
                                         FLASH_ATTENTION_DECODE, FLASH_ATTENTION_NARROW, KDA_DECODE,
                                         KDA_POOL, KDA_POOL_CHUNKS, KDA_RECURRENT,
                                         KDA_RECURRENT_FINAL, SPARSE_FLASH_ATTENTION)
from lathe.torch._tensors import computed, wants_gradient

_Two = tuple[Tensor, Tensor]
_Four = tuple[Tensor, Tensor, Tensor, Tensor]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _declared(function: _Function) -> _Function:
    """Gives a function the signature and the text that _signatures.py has for its name."""
    declared = getattr(_signatures, function.__name__)
    function.__doc__, function.__annotations__ = declared.__doc__, declared.__annotations__
    function.__signature__ = inspect.signature(declared)  # type: ignore[attr-defined]
    return function


# ---- causal convolution --------------------------------------------------------------------------


@_declared
def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                  residual: Tensor | None = None, initial_state: Tensor | None = None,
                  cu_seqlens: Tensor | None = None, output_final_state: bool = False,
                  over: Over | None = None, state_pool: Tensor | None = None,
                  state_indices: Tensor | None = None, source_indices: Tensor | None = None,
                  has_initial_state: Tensor | None = None, cu_checkpoints: Tensor | None = None,
                  checkpoint_tokens: Tensor | None = None, checkpoint_slots: Tensor | None = None,
                  **options: Any) -> tuple[Any, Tensor | None]:
    """Returns (y, final_state): x [B,T,D] convolved along T with weight [D,W].

    With split, y is a tuple of its parts, each contiguous; where a gradient is wanted they are
    views of one result. A pool of states is changed in place, and has no gradient and no final
    state. Neither has a group.
    """
    tensors = (x, weight, bias, residual, initial_state, cu_seqlens)
    no_pool = (state_pool is state_indices is source_indices is has_initial_state is
               cu_checkpoints is checkpoint_tokens is checkpoint_slots is None)
    if not no_pool or options.get("split") not in (None, "none"):
        pool = (state_pool, state_indices, source_indices, has_initial_state, cu_checkpoints,
                checkpoint_tokens, checkpoint_slots)
        return _convolved(tensors, pool, bool(output_final_state), over, options)
    found = computed(CAUSAL_CONV1D_FINAL if output_final_state else CAUSAL_CONV1D, CausalConv1d,
                     options, tensors, over, output_final_state)
    return (found[0], found[1] if output_final_state else None)


def _convolved(tensors: tuple[Tensor | None, ...], pool: tuple[Tensor | None, ...], final: bool,
               over: Over | None, options: dict[str, Any]) -> tuple[Any, Tensor | None]:
    """Computes causal_conv1d with a pool of states, or with y in parts."""
    pooled = any(each is not None for each in pool)
    what = ("a tensor of a pool is given (state_pool, state_indices, source_indices, "
            "has_initial_state or one of checkpoints)" if pooled else "split is given")
    other = "over is given" if over is not None else "output_final_state is True"
    if over is not None or (pooled and final):
        raise InvalidArgument(f"{what} and {other}; one can be: a pool's states are written in "
                              "place, and parts and pools are on one rank")
    split = options.get("split")
    if split in (None, "none"):
        (y,) = CAUSAL_CONV1D_POOL(options, *tensors, *pool)
        return y, None
    words = split if isinstance(split, str) else ",".join(map(str, split))
    widths = [int(each) for each in words.split(",") if each.isdigit()]
    x = tensors[0]
    fit = x is not None and sum(widths) == x.shape[-1] and ",".join(map(str, widths)) == words
    if fit and not pooled and wants_gradient(tensors):
        del options["split"]
        found = computed(CAUSAL_CONV1D_FINAL if final else CAUSAL_CONV1D, CausalConv1d, options,
                         tensors, None, final)
        return found[0].split(widths, -1), found[1] if final else None
    options["split"] = words
    if final:
        *parts, state = CAUSAL_CONV1D_PARTS_FINAL(options, *tensors)
    else:
        parts, state = list(CAUSAL_CONV1D_PARTS(options, *tensors, *pool)), None
    # In a trace there are as many outputs as there can be, and those behind the parts are empty.
    return tuple(parts[:words.count(",") + 1]), state


@_declared
def causal_conv1d_update(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                         residual: Tensor | None = None, cu_seqlens: Tensor | None = None,
                         state_indices: Tensor | None = None, source_indices: Tensor | None = None,
                         cache_seqlens: Tensor | None = None,
                         num_accepted_tokens: Tensor | None = None, **options: Any) -> Tensor:
    """Returns y, shaped as x, and rolls state in place. Has no gradient."""
    (y,) = CAUSAL_CONV1D_UPDATE(options, x, weight, bias, residual, state, cu_seqlens,
                                state_indices, source_indices, cache_seqlens, num_accepted_tokens)
    return cast(Tensor, y)


# ---- Kimi Delta Attention ------------------------------------------------------------------------


@_declared
def kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, A_log: Tensor | None = None,
        dt_bias: Tensor | None = None, initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None, output_final_state: bool = False,
        output_chunk_states: bool = False, over: Over | None = None,
        state_pool: Tensor | None = None, state_indices: Tensor | None = None,
        source_indices: Tensor | None = None, has_initial_state: Tensor | None = None,
        cu_checkpoints: Tensor | None = None, checkpoint_tokens: Tensor | None = None,
        checkpoint_slots: Tensor | None = None, out: Tensor | None = None, **options: Any
        ) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns (o, final_state, chunk_states) of chunked Kimi Delta Attention.

    A pool of states is changed in place. Such a call has no final state, no gradient and no group;
    it writes `out` if that is given.
    """
    final, chunks = bool(output_final_state), bool(output_chunk_states)
    pool = (state_pool, state_indices, source_indices, has_initial_state, cu_checkpoints,
            checkpoint_tokens, checkpoint_slots)
    if any(each is not None for each in pool):
        if final or over is not None:
            raise InvalidArgument("a tensor of a pool is given (state_pool, state_indices, "
                                  "source_indices, has_initial_state or one of checkpoints) and "
                                  f"{'output_final_state is True' if final else 'over is given'}; "
                                  "one can be: a pool's states are written in place, on one rank")
        tensors = (q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens, *pool)
        if out is not None:
            if chunks:
                raise InvalidArgument("out is given and output_chunk_states is True; one can be")
            KDA_POOL.written(options, tensors, (out,))
            return out, None, None
        results = (KDA_POOL_CHUNKS if chunks else KDA_POOL)(options, *tensors)
        return results[0], None, results[1] if chunks else None
    if out is not None:
        raise InvalidArgument("out is given and state_pool is not; allowed is a call over a pool")
    # Without a backward there is nothing to keep anything for.
    keeps = bool(options.pop("disable_recompute", False))
    found = computed(kda_call(final, chunks), Kda, options,
                     (q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens, None, None),
                     over, final, chunks, keeps)
    return (found[0], found[1] if final else None, found[-1] if chunks else None)


@_declared
def kda_recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *,
                  A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                  initial_state: Tensor | None = None, cu_seqlens: Tensor | None = None,
                  state_pool: Tensor | None = None, state_indices: Tensor | None = None,
                  num_accepted_tokens: Tensor | None = None, output_final_state: bool = False,
                  out: Tensor | None = None, source_indices: Tensor | None = None,
                  has_initial_state: Tensor | None = None, ring_k: Tensor | None = None,
                  ring_u: Tensor | None = None, ring_g: Tensor | None = None,
                  ring_count: Tensor | None = None,
                  **options: Any) -> tuple[Tensor, Tensor | None]:
    """Returns (o, final_state), token by token; a pool of states and its rings of records are
    changed in place.

    There is no gradient.
    """
    tensors = (q, k, v, g, beta, A_log, dt_bias, initial_state, cu_seqlens)
    pool = (state_pool, state_indices, source_indices, has_initial_state, num_accepted_tokens,
            ring_k, ring_u, ring_g, ring_count)
    if output_final_state:
        if any(each is not None for each in pool):
            raise InvalidArgument("a tensor of a pool is given (state_pool, state_indices, "
                                  "source_indices, has_initial_state, num_accepted_tokens or a "
                                  "ring) and output_final_state is True; one can be: a pool's states are "
                                  "written in place")
        if out is not None:
            raise InvalidArgument("out is given and output_final_state is True; one can be")
        o, final_state = KDA_RECURRENT_FINAL(options, *tensors)
        return o, final_state
    if out is not None:
        KDA_RECURRENT.written(options, (*tensors, *pool), (out,))
        return out, None
    (o,) = KDA_RECURRENT(options, *tensors, *pool)
    return o, None


@_declared
def kda_decode(qkv: Tensor, conv_weight: Tensor, conv_pool: Tensor, g: Tensor, beta: Tensor,
               state_pool: Tensor, state_indices: Tensor, *, conv_bias: Tensor | None = None,
               A_log: Tensor | None = None, dt_bias: Tensor | None = None,
               source_indices: Tensor | None = None, output_gate: Tensor | None = None,
               norm_weight: Tensor | None = None, ring_k: Tensor | None = None,
               ring_u: Tensor | None = None, ring_g: Tensor | None = None,
               ring_count: Tensor | None = None, out: Tensor | None = None,
               **options: Any) -> Tensor:
    """Returns o [B,HV,V] or [B,T,HV,V]: a decoding step of a layer in one launch. Both pools and
    the rings of records are changed in place.

    There is no gradient.
    """
    tensors = (qkv, conv_weight, conv_pool, g, beta, A_log, dt_bias, conv_bias, state_pool,
               state_indices, source_indices, output_gate, norm_weight, ring_k, ring_u, ring_g,
               ring_count)
    if out is not None:
        KDA_DECODE.written(options, tensors, (out,))
        return out
    (o,) = KDA_DECODE(options, *tensors)
    return cast(Tensor, o)


# ---- attention -----------------------------------------------------------------------------------


@_declared
def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, alibi_slopes: Tensor | None = None,
                    sinks: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
                    cu_seqlens_k: Tensor | None = None, q_scale: Tensor | None = None,
                    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
                    captures: tuple[Tensor, ...] = (), over: Over | None = None,
                    **options: Any) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) of softmax attention; both can be differentiated.

    Queries, keys and values of float8_e4m3fn have scales, and no gradient.
    """
    padded = (*captures, *(None,) * (len(CAPTURES) - len(captures)))
    if q_scale is not None or k_scale is not None or v_scale is not None:
        if over is not None:
            raise InvalidArgument("over is given with q_scale; allowed with scales is one rank")
        return cast(_Two, FLASH_ATTENTION_NARROW(
            options, q, k, v, alibi_slopes, sinks, q_scale, k_scale, v_scale, cu_seqlens_q,
            cu_seqlens_k, *padded))
    tensors = (q, k, v, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_k, *padded)
    if options.get("deterministic") is None and torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = 1
    return cast(_Two, computed(FLASH_ATTENTION, FlashAttention, options, tensors, over))


@_declared
def flash_attention_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor | None, block_table: Tensor,
                           cache_seqlens: Tensor, *, k_new: Tensor | None = None,
                           v_new: Tensor | None = None, alibi_slopes: Tensor | None = None,
                           sinks: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
                           leftpad: Tensor | None = None, total_seqlens: Tensor | None = None,
                           rope_cos: Tensor | None = None, rope_sin: Tensor | None = None,
                           rope_positions: Tensor | None = None, k_scale: Tensor | None = None,
                           v_scale: Tensor | None = None, captures: tuple[Tensor, ...] = (),
                           **options: Any) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) over a cache in pages, to which k_new and v_new are appended in place.

    With cu_seqlens_q the queries are packed, any number of rows for each sequence. Without v_cache,
    values are the first 512 of the 576 columns of k_cache. Caches of float8_e4m3fn have k_scale and
    v_scale. There is no gradient.
    """
    padded = (*captures, *(None,) * (len(CAPTURES) - len(captures)))
    tensors = (q, k_cache, v_cache, block_table, cache_seqlens, k_new, v_new, alibi_slopes, sinks,
               k_scale, v_scale, cu_seqlens_q, leftpad, total_seqlens, rope_cos, rope_sin, rope_positions, *padded)
    return cast(_Two, FLASH_ATTENTION_DECODE(options, *tensors))


@_declared
def sparse_flash_attention(q: Tensor, k: Tensor, v: Tensor | None, indices: Tensor, *, scale: float,
                           q_rope: Tensor | None = None, k_rope: Tensor | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
                           q_pos: Tensor | None = None, sinks: Tensor | None = None,
                           topk_length: Tensor | None = None, k_extra: Tensor | None = None,
                           indices_extra: Tensor | None = None,
                           topk_length_extra: Tensor | None = None,
                           over: Over | None = None, **options: Any
                           ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns (out, softmax_max, softmax_sum, lse) over the keys that each row's list names.

    out can be differentiated, but for a second cache (k_extra) and rows of bytes.
    """
    tensors = (q, k, v, q_rope, k_rope, indices, cu_seqlens_q, cu_seqlens_k, q_pos, sinks,
               topk_length, k_extra, indices_extra, topk_length_extra)
    if options.get("deterministic") is None and torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = 1
    options["scale"] = scale
    return cast(_Four, computed(SPARSE_FLASH_ATTENTION, SparseFlashAttention, options, tensors,
                                over))
