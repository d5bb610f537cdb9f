# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention as flash-linear-attention 0.6 calls it (fla.ops.kda)."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import LatheError
from lathe.compat._conv_checks import check_tensors
from lathe.compat._fla_checks import (check_chunks, check_gate, check_negative, check_sequences,
                                      check_state_in_place, explain_kda, explain_packed,
                                      explain_unsupported, flat_float, state_layout, unknown)
from lathe.compat._fla_context import context_of
from lathe.torch import kda, kda_recurrent
from lathe.torch._calls import count

# After such an error arguments are looked at once more. In front of each call it would take longer.
_MAY_BE_EXPLAINED = (LatheError, AttributeError, TypeError)


def _options(scale: float | None, norms: bool, gate: bool, sigmoid: bool, negative: bool,
             lower_bound: float | None, state_v_first: bool) -> dict[str, Any]:
    """Returns the options that differ from the operator's defaults."""
    options: dict[str, Any] = {}
    if scale is not None:
        options["scale"] = scale
    if norms:
        options["use_qk_l2norm_in_kernel"] = 1
    if gate:
        options["use_gate_in_kernel"] = 1
        if lower_bound is not None:
            options["lower_bound"] = lower_bound
    if sigmoid:
        options["use_beta_sigmoid_in_kernel"] = 1
        if negative:
            options["allow_neg_eigval"] = 1
    if state_v_first:
        options["state_v_first"] = 1
    return options


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False,
              use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
              use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
              safe_gate: bool = False, lower_bound: float | None = None,
              disable_recompute: bool = False, return_intermediate_states: bool = False,
              state_v_first: bool = False, cu_seqlens: Tensor | None = None,
              cu_seqlens_cpu: Tensor | None = None, cp_context: Any = None, use_graph: bool = False,
              max_num_seqs: int | None = None, **kwargs: Any) -> tuple[Tensor | None, ...]:
    """Returns (o, final_state or None), and the states of all chunks if they are asked for.

    kwargs: A_log, dt_bias, chunk_size (64), transpose_state_layout (an old name of state_v_first).
    cu_seqlens_cpu, use_graph and max_num_seqs change nothing: lengths are read on the device, so
    every call can be captured in a CUDA graph. Rows past the last offset are 0. With a cp_context
    the tensors hold this rank's tokens and cu_seqlens does not matter; where it is
    lathe.torch.Ranks, in any layout, cu_seqlens are those of the whole axis and states come in and
    go out.
    """
    A_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    chunk_size = kwargs.pop("chunk_size", 64)
    if kwargs:
        state_v_first = state_layout(state_v_first, kwargs)
        if kwargs:
            raise unknown("chunk_kda", kwargs)
    over = context_of(cp_context, cu_seqlens, initial_state, final=output_final_state)
    if over is not None:
        cu_seqlens = over.cu_seqlens  # the context's own are those of this rank
    if use_graph:
        check_tensors(cu_seqlens=cu_seqlens)
        check_sequences(cu_seqlens, max_num_seqs)
    # safe_gate chooses a kernel of flash-linear-attention that trusts the bound of g. lathe's are safe
    # for any g, so beyond what is refused here it goes no further.
    if use_gate_in_kernel:
        check_gate(lower_bound, safe_gate, A_log)
    else:
        A_log = dt_bias = lower_bound = None
    check_chunks(chunk_size, return_intermediate_states, disable_recompute)
    check_negative(allow_neg_eigval, use_beta_sigmoid_in_kernel)
    options = _options(scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                       use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound, state_v_first)
    if return_intermediate_states:
        options["chunk_size"] = chunk_size
    if disable_recompute:
        options["disable_recompute"] = 1
    try:
        o, final, states = kda(q, k, v, g, beta, A_log=flat_float(A_log),
                               dt_bias=flat_float(dt_bias), initial_state=initial_state,
                               cu_seqlens=cu_seqlens, output_final_state=output_final_state,
                               output_chunk_states=return_intermediate_states,
                               over=over and over.ranks, **options)
    except _MAY_BE_EXPLAINED:
        check_tensors(q=q, k=k, v=v, g=g, beta=beta, A_log=A_log, dt_bias=dt_bias,
                      initial_state=initial_state, cu_seqlens=cu_seqlens)
        explain_kda(q, k, v, g, beta, initial_state, cu_seqlens, lower_bound)
        raise
    if not return_intermediate_states:
        return o, final
    assert states is not None
    if states.dtype is not k.dtype:
        count("states of chunks cast to k's dtype")
        states = states.to(k.dtype)
    return o, final, states


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                        A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                        scale: float | None = None, initial_state: Tensor | None = None,
                        output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                        use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
                        allow_neg_eigval: bool = False, lower_bound: float | None = None,
                        state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Returns (o, final_state or None), token by token. There is no gradient: results are detached.

    kwargs: transpose_state_layout (an old name of state_v_first).
    """
    if kwargs:
        state_v_first = state_layout(state_v_first, kwargs)
        if kwargs:
            raise unknown("fused_recurrent_kda", kwargs)
    check_negative(allow_neg_eigval, use_beta_sigmoid_in_kernel)
    return fused_recurrent_kda_fwd(
        q, k, v, g, beta, A_log, dt_bias, initial_state, scale, output_final_state, False,
        state_v_first, cu_seqlens, None, None, use_qk_l2norm_in_kernel, use_gate_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound)


def fused_recurrent_kda_fwd(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                            A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                            initial_state: Tensor | None = None, scale: float | None = None,
                            output_final_state: bool = False, inplace_final_state: bool = True,
                            state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                            ssm_state_indices: Tensor | None = None,
                            num_accepted_tokens: Tensor | None = None,
                            use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                            use_beta_sigmoid_in_kernel: bool = False,
                            allow_neg_eigval: bool = False, lower_bound: float | None = None,
                            out: Tensor | None = None, **kwargs: Any
                            ) -> tuple[Tensor, Tensor | None]:
    """Returns (out, final_state); with inplace_final_state the second is initial_state, changed.

    With ssm_state_indices [N] or [N, spec], initial_state is a pool of states in slots; a negative
    index is padding. There is no gradient: results are detached.
    """
    if kwargs:
        state_v_first = state_layout(state_v_first, kwargs)
        if kwargs:
            raise unknown("fused_recurrent_kda_fwd", kwargs)
    check_tensors(initial_state=initial_state, num_accepted_tokens=num_accepted_tokens,
                  ssm_state_indices=ssm_state_indices, out=out)
    check_state_in_place(initial_state, inplace_final_state, ssm_state_indices)
    if out is not None:
        assert out.shape == v.shape, f"out has shape {tuple(out.shape)}; it must be v's, " \
                                     f"{tuple(v.shape)}"
    if not use_gate_in_kernel:
        A_log = dt_bias = lower_bound = None
    pool = initial_state if ssm_state_indices is not None else None
    if pool is None and initial_state is not None and initial_state.dtype is not torch.float32:
        count("cast to float32")
        initial_state = initial_state.float()
    if num_accepted_tokens is not None and ssm_state_indices is not None \
            and num_accepted_tokens.dtype is not ssm_state_indices.dtype:
        count("num_accepted_tokens cast to the dtype of ssm_state_indices")
        num_accepted_tokens = num_accepted_tokens.to(ssm_state_indices.dtype)
    options = _options(scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                       use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound, state_v_first)
    with_state = pool is None and (output_final_state or inplace_final_state)
    direct = out is not None and not with_state and _takes(out, q)
    try:
        o, final = kda_recurrent(
            q, k, v, g, beta, A_log=flat_float(A_log), dt_bias=flat_float(dt_bias),
            cu_seqlens=cu_seqlens, initial_state=initial_state if pool is None else None,
            state_pool=None if pool is None else pool.detach(),
            state_indices=ssm_state_indices, num_accepted_tokens=num_accepted_tokens,
            output_final_state=with_state, out=out if direct else None, **options)
    except _MAY_BE_EXPLAINED:
        check_tensors(q=q, k=k, v=v, g=g, beta=beta, A_log=A_log, dt_bias=dt_bias,
                      cu_seqlens=cu_seqlens)
        explain_packed(q, initial_state if pool is None else None, cu_seqlens)
        explain_unsupported(q, v, beta, lower_bound)
        raise
    if pool is not None:
        final = pool
    elif inplace_final_state:
        assert initial_state is not None and final is not None
        count("final state copied into initial_state")
        final = _copied(final, initial_state)
    if out is not None and not direct:
        count("result copied into out")
        o = _copied(o, out)
    return o, final


def _takes(out: Tensor, q: Tensor) -> bool:
    """Returns true if a kernel can write its result into a tensor that the caller has."""
    if torch.compiler.is_compiling():
        return False  # a trace does not know where a tensor lies
    return (out.dtype is q.dtype and out.is_contiguous()
            and bool(out.storage_offset() * out.element_size() % 16 == 0))


def _copied(source: Tensor, target: Tensor) -> Tensor:
    """Returns the target, with the source's values."""
    target.detach().copy_(source)
    return target
