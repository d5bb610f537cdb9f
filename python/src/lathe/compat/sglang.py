# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""SGLang's linear attention by lathe (September 2026): a LinearAttnKernelBase for Kimi Delta
Attention, and the convolutions of its hybrid models.

register() makes SGLang's KDA layers compute on lathe. States are [S,HV,V,K]; a negative slot, or
one that is none of the pool's, is padding. Drafts that form a tree, and replay rings, are refused.
seq_lens_cpu decides nothing: lengths are read on the device.
"""
from __future__ import annotations

import importlib
from typing import Any, Sequence

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat import vllm_conv
from lathe.compat._conv import slots_of, take_states
from lathe.compat._fla_checks import flat_float
from lathe.compat._serving_kda import gate_options, parts, prefill, recurrent
from lathe.torch import kda_recurrent
from lathe.torch._calls import count

__all__ = ["causal_conv1d_fn", "causal_conv1d_fn_split_qkv", "causal_conv1d_update",
           "kernel_class", "kernel_specs", "register"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn", "cast to the states' dtype; transposed to channel-first", ""),
    ("causal_conv1d_fn_split_qkv", "cast to the states' dtype", ""),
    ("causal_conv1d_update", "cast to the states' dtype", "cache_seqlens; retrieve_parent_token"),
    ("kernel_class",
     "cast to float32; states of drafts copied to slots and back", ""),
    ("kernel_specs", "", ""),
    ("register", "", ""),
)

PAD_SLOT_ID = -1
_NO_SLOT = -1  # SGLang's slot 0 is one like any other
_KERNELS = "sglang.srt.layers.attention.linear.kernels"


# ---- convolution ---------------------------------------------------------------------------------


def causal_conv1d_fn(x: Tensor, weight: Tensor, bias: Tensor | None, conv_states: Tensor,
                     query_start_loc: Tensor, seq_lens_cpu: Sequence[int] | None = None,
                     cache_indices: Tensor | None = None, has_initial_state: Tensor | None = None,
                     activation: bool | str | None = "silu", pad_slot_id: int = PAD_SLOT_ID,
                     validate_data: bool = False, **kwargs: Any) -> Tensor:
    """Returns y [D,T] of packed sequences x [D,T] and leaves their states in conv_states [S,D,L]."""
    return vllm_conv.causal_conv1d_fn(x, weight, bias, conv_states, query_start_loc, cache_indices,
                                      has_initial_state, activation, null_block_id=pad_slot_id)


def causal_conv1d_fn_split_qkv(x: Tensor, weight: Tensor, bias: Tensor | None, conv_states: Tensor,
                               query_start_loc: Tensor, seq_lens_cpu: Sequence[int] | None,
                               *sizes: Any, **more: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns q, k and v of x [D,T], each contiguous.

    SGLang has had two forms of what follows, and both are taken:

    k_dim, v_dim, cache_indices=None, has_initial_state=None, activation="silu", pad_slot_id=-1:
        q and k are [T,k_dim], and v is [T,v_dim].
    q_dim, k_dim, v_dim, num_q_heads=, num_k_heads=, num_v_heads=, head_q_dim=, head_k_dim=,
    head_v_dim=, and then as before: they are [1,T,heads,width].
    """
    heads = "q_dim" in more or len(sizes) > 2 and isinstance(sizes[2], int)
    widths, options = (_split_of_heads if heads else _split_of_two)(*sizes, **more)
    split = tuple(each[0] * each[1] for each in widths)
    if x.shape[0] != sum(split):
        names = "q_dim + k_dim + v_dim" if heads else "2 k_dim + v_dim"
        raise InvalidArgument(f"x has {x.shape[0]} channels; allowed are {names} = {sum(split)}")
    indices, states, activation, pad_slot_id = options
    q, k, v = vllm_conv.prefilled(x, weight, bias, conv_states, query_start_loc, indices, states,
                                  activation, pad_slot_id, split=split)
    if not heads:
        return q, k, v
    q, k, v = (each.view(1, -1, *width) for each, width in zip((q, k, v), widths))
    return q, k, v


_Split = tuple[tuple[tuple[int, int], ...], tuple[Tensor | None, Tensor | None, str, int]]


def _split_of_two(k_dim: int, v_dim: int, cache_indices: Tensor | None = None,
                  has_initial_state: Tensor | None = None, activation: str = "silu",
                  pad_slot_id: int = PAD_SLOT_ID) -> _Split:
    """Returns (heads, width) of q, k and v, and what vllm_conv.prefilled takes before `split`."""
    return (((1, k_dim), (1, k_dim), (1, v_dim)),
            (cache_indices, has_initial_state, activation, pad_slot_id))


def _split_of_heads(q_dim: int, k_dim: int, v_dim: int, *, num_q_heads: int, num_k_heads: int,
                    num_v_heads: int, head_q_dim: int, head_k_dim: int, head_v_dim: int,
                    cache_indices: Tensor | None = None, has_initial_state: Tensor | None = None,
                    activation: str = "silu", pad_slot_id: int = PAD_SLOT_ID) -> _Split:
    widths = ((num_q_heads, head_q_dim), (num_k_heads, head_k_dim), (num_v_heads, head_v_dim))
    for name, dim, (heads, width) in zip("qkv", (q_dim, k_dim, v_dim), widths):
        if dim != heads * width:
            raise InvalidArgument(f"{name}_dim is {dim}; allowed is num_{name}_heads * "
                                  f"head_{name}_dim = {heads * width}")
    return widths, (cache_indices, has_initial_state, activation, pad_slot_id)


def causal_conv1d_update(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                         activation: bool | str | None = None,
                         cache_seqlens: Tensor | None = None,
                         conv_state_indices: Tensor | None = None,
                         num_accept_tokens: Tensor | None = None,
                         intermediate_conv_window: Tensor | None = None,
                         intermediate_state_indices: Tensor | None = None,
                         retrieve_next_token: Tensor | None = None,
                         retrieve_next_sibling: Tensor | None = None,
                         retrieve_parent_token: Tensor | None = None,
                         pad_slot_id: int = PAD_SLOT_ID, metadata: Any = None,
                         validate_data: bool = False) -> Tensor:
    """Returns y, shaped as x, and changes the slots of conv_state [S,D,L] in place."""
    given = {"cache_seqlens": cache_seqlens, "intermediate_conv_window": intermediate_conv_window,
             "retrieve_next_token": retrieve_next_token,
             "retrieve_parent_token": retrieve_parent_token}
    for name, value in given.items():
        if value is not None:
            raise Unsupported(f"{name} is given; allowed is None: states of drafts are kept in the "
                              "pool (num_accept_tokens), and drafts are in a row")
    return vllm_conv.causal_conv1d_update(x, conv_state, weight, bias, activation,
                                          conv_state_indices, num_accept_tokens,
                                          pad_slot_id=pad_slot_id)


# ---- Kimi Delta Attention ------------------------------------------------------------------------


class _Kda:
    """The calls of a KDA layer, in SGLang's names."""

    uses_state_checkpoints = False
    supports_packed_decode = True

    def decode(self, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, *, A_log: Tensor,
               dt_bias: Tensor, ssm_states: Tensor, cache_indices: Tensor,
               query_start_loc: Tensor, lower_bound: float | None = None, **kwargs: Any) -> Tensor:
        """Returns o [1,B,HV,V] of a token of each sequence; q, k, v [1,B,H,K]."""
        return recurrent(q, k, v, a.view(v.shape[:3] + (k.shape[3],)), b.view(v.shape[:3]), A_log,
                         dt_bias, ssm_states, cache_indices,
                         gate_options(lower_bound, None, null_slot=_NO_SLOT), query_start_loc)

    def packed_decode(self, mixed_qkv: Tensor, a: Tensor, b: Tensor, *, A_log: Tensor,
                      dt_bias: Tensor, scale: float, ssm_states: Tensor, cache_indices: Tensor,
                      num_v_heads: int, head_v_dim: int, lower_bound: float | None = None,
                      **kwargs: Any) -> Tensor:
        """Returns o [1,B,HV,V]; mixed_qkv [B, 2 H K + HV V] is what the convolution leaves."""
        for name in ("replayssm_d", "replayssm_k", "replayssm_g", "replayssm_write_pos"):
            if kwargs.get(name) is not None:
                raise Unsupported(f"{name} is given; allowed is None: records of lathe's replay "
                                  "have a layout of their own (lathe.torch.kda_recurrent, ring_k)")
        rows, keys = mixed_qkv.shape[0], ssm_states.shape[3]
        heads = (mixed_qkv.shape[1] - num_v_heads * head_v_dim) // (2 * keys)
        q, k, v = parts(mixed_qkv, heads, keys, num_v_heads, head_v_dim)
        o = recurrent(q, k, v, a.reshape(rows, 1, num_v_heads, keys),
                      b.reshape(rows, 1, num_v_heads), A_log, dt_bias, ssm_states, cache_indices,
                      gate_options(lower_bound, scale, null_slot=_NO_SLOT))
        return o.transpose(0, 1)

    def extend(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *,
               ssm_states: Tensor, cache_indices: Tensor, query_start_loc: Tensor,
               A_log: Tensor | None = None, dt_bias: Tensor | None = None,
               lower_bound: float | None = None, return_intermediate_states: bool = False,
               **kwargs: Any) -> Tensor:
        """Returns o [1,T,HV,V] of packed sequences; their states change in place.

        With A_log g is the raw gate and beta the logit, else they are as the recurrence takes them.
        """
        if return_intermediate_states:
            raise Unsupported("return_intermediate_states is True; allowed is False: "
                              "lathe.torch.kda writes states to slots (cu_checkpoints)")
        options = gate_options(lower_bound, None, null_slot=_NO_SLOT)
        if A_log is None:
            for name in ("use_gate_in_kernel", "use_beta_sigmoid_in_kernel"):
                del options[name]
            options.pop("lower_bound", None)
            dt_bias = None
        return prefill(q, k, v, g.view(v.shape[:3] + (k.shape[3],)), beta.view(v.shape[:3]), A_log,
                       dt_bias, query_start_loc, ssm_states, cache_indices, options)

    def target_verify(self, A_log: Tensor, dt_bias: Tensor, q: Tensor, k: Tensor, v: Tensor,
                      a: Tensor, b: Tensor, *, ssm_states: Tensor, cache_indices: Tensor,
                      query_start_loc: Tensor, intermediate_states_buffer: Tensor | None = None,
                      intermediate_state_indices: Tensor | None = None, cache_steps: int = 0,
                      retrieve_parent_token: Tensor | None = None,
                      lower_bound: float | None = None, **kwargs: Any) -> Tensor:
        """Returns o [1,T,HV,V] of drafts; the pool stays as it is.

        intermediate_states_buffer [R, cache_steps, HV, V, K]: the state after each draft of
        sequence n goes to its row intermediate_state_indices[n] (n without them).
        """
        if retrieve_parent_token is not None:
            raise Unsupported("retrieve_parent_token is given; allowed is None: drafts are in a "
                              "row, not in a tree")
        options = gate_options(lower_bound, None, null_slot=_NO_SLOT)
        g, beta = a.view(v.shape[:3] + (k.shape[3],)), b.view(v.shape[:3])
        if intermediate_states_buffer is None:
            options["update_state"] = 0
            return recurrent(q, k, v, g, beta, A_log, dt_bias, ssm_states, cache_indices, options,
                             query_start_loc)
        return _verified(q, k, v, g, beta, A_log, dt_bias, ssm_states, cache_indices,
                         query_start_loc, intermediate_states_buffer, intermediate_state_indices,
                         cache_steps, options)


def _verified(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor,
              dt_bias: Tensor, pool: Tensor, indices: Tensor, offsets: Tensor, buffer: Tensor,
              rows: Tensor | None, steps: int, options: dict[str, Any]) -> Tensor:
    """Returns o; writes the state after each draft to its place of the buffer.

    The kernel writes to the pool that it reads, which has to stay: the states before are copied
    behind those of the buffer.
    """
    count("states of drafts copied to slots and back")
    sequences, (held, room) = offsets.shape[0] - 1, buffer.shape[:2]
    numbers = torch.arange(sequences, device=indices.device)
    found = slots_of(pool, indices)
    scratch = torch.cat([buffer.flatten(0, 1).to(pool.dtype), take_states(pool, found)])
    row = slots_of(buffer, numbers if rows is None else rows)
    places = row.at.unsqueeze(1) * room + torch.arange(steps or room, device=indices.device)
    places = torch.where((found.valid & row.valid).unsqueeze(1), places, -1)
    o, _ = kda_recurrent(q, k, v, g, beta, A_log=flat_float(A_log), dt_bias=flat_float(dt_bias),
                         cu_seqlens=offsets, state_pool=scratch, state_indices=places.int(),
                         source_indices=(held * room + numbers).int(), **options)
    buffer.copy_(scratch[:held * room].view(buffer.shape))
    return o


# ---- what SGLang takes ---------------------------------------------------------------------------


def kernel_class() -> type[Any]:
    """Returns LatheKDAKernel, a subclass of SGLang's LinearAttnKernelBase."""
    base = importlib.import_module(f"{_KERNELS}.kernel_backend").LinearAttnKernelBase
    return type("LatheKDAKernel", (_Kda, base), {"__doc__": _Kda.__doc__})


def kernel_specs() -> list[Any]:
    """Returns a KernelSpec of sglang.kernels for each function that SGLang's kernels name."""
    spec = importlib.import_module("sglang.kernels.spec")
    names = ("causal_conv1d_fn", "causal_conv1d_fn_split_qkv", "causal_conv1d_update")
    needs = frozenset({spec.CapabilityRequirement.cuda(min_sm=(8, 0))})
    return [spec.KernelSpec(op=f"mamba.{name}", backend=spec.KernelBackend.JIT,
                            target=f"lathe.compat.sglang:{name}", capabilities=needs,
                            description="lathe: causal convolution over slots of a pool")
            for name in names]


_CONV = "sglang.srt.layers.attention.mamba.causal_conv1d_triton"


def register() -> list[str]:
    """Makes SGLang's KDA layers compute on lathe; returns the names of what was replaced.

    Called by SGLang itself where SGLANG_PLUGINS names lathe, and before its engine starts.
    """
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    replaced: dict[str, Any] = {f"{_KERNELS}.kda_triton.TritonKDAKernel": kernel_class()}
    conv = importlib.import_module(_CONV)
    for function in (causal_conv1d_fn, causal_conv1d_fn_split_qkv, causal_conv1d_update):
        if hasattr(conv, function.__name__):
            replaced[f"{_CONV}.{function.__name__}"] = function
    for target, ours in replaced.items():
        hooks.HookRegistry.register(target, ours, hooks.HookType.REPLACE)
    return list(replaced)
