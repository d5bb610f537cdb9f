# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention of vLLM 0.27 to 0.33 (Kimi K3 and third_party/flash_linear_attention).

States are [S,H,V,K], in slots of a pool. Slot 0 is vLLM's null block: it and indices below 0 or
past the pool are padding, whose rows give 0 and write nothing. Packed rows of q, k and v are read
where they lie. fused_kda_decode is one launch, with either layout of conv_state. flashkda_fwd is
torch.ops._flashkda_C.fwd.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat._conv_checks import check_shape
from lathe.compat._fla_checks import flat_float
from lathe.compat._serving_kda import (copied, decoded_layer, floated, gate_options, parts,
                                       prefill, recurrent)
from lathe.torch import kda
from lathe.torch._calls import count

__all__ = ["chunk_kda_with_fused_gate", "flashkda_fwd", "fused_kda_decode", "fused_kda_gate",
           "fused_recurrent_kda", "fused_recurrent_kda_packed_decode",
           "fused_sigmoid_gating_delta_rule_update"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("chunk_kda_with_fused_gate", "cast to float32; result copied into out", ""),
    ("flashkda_fwd", "states copied to slots and back; cast to float32; result copied into out",
     ""),
    ("fused_kda_decode", "transposed a filter; cast to float32; result copied into out", ""),
    ("fused_kda_gate", "computed a gate", ""),
    ("fused_recurrent_kda",
     "cast to float32; num_accepted_tokens cast to the dtype of the slots; result copied into out",
     ""),
    ("fused_recurrent_kda_packed_decode", "cast to float32; result copied into out", ""),
    ("fused_sigmoid_gating_delta_rule_update", "cast to float32; num_accepted_tokens cast to the dtype of the slots",
     "is_kda (False); beta (of the softplus, others than 1); threshold (others than 20); "
     "inplace_final_state (False)"),
)

_THRESHOLD = 20.0  # from which on a softplus is taken for its argument


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, raw_g: Tensor, raw_beta: Tensor,
                        A_log: Tensor, dt_bias: Tensor | None, lower_bound: float | None,
                        initial_state: Tensor, cu_seqlens: Tensor, ssm_state_indices: Tensor,
                        num_accepted_tokens: Tensor | None = None, out: Tensor | None = None,
                        fuse_gate: bool | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out [1,T,H,V], initial_state, changed) of packed sequences, token by token.

    ssm_state_indices [N], or [N,spec] with num_accepted_tokens: the state after each token goes to
    the slot of its column. fuse_gate decides nothing here.
    """
    return recurrent(q, k, v, raw_g, raw_beta, A_log, dt_bias, initial_state, ssm_state_indices,
                     gate_options(lower_bound, None), cu_seqlens, num_accepted_tokens,
                     out), initial_state


def fused_recurrent_kda_packed_decode(mixed_qkv: Tensor, raw_g: Tensor, raw_beta: Tensor,
                                      A_log: Tensor, dt_bias: Tensor,
                                      lower_bound: float | None, initial_state: Tensor,
                                      state_indices: Tensor, scale: float | None = None,
                                      out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out [1,B,H,V], initial_state, changed): one token of each of B sequences.

    mixed_qkv [B, 2 H K + H V] is what a convolution leaves; raw_g [1,B,H,K], raw_beta [1,B,H].
    """
    if initial_state.dim() != 4:
        raise ValueError("`initial_state` must have shape [cache, H, V, K].")
    _, heads, values, keys = initial_state.shape
    q, k, v = parts(mixed_qkv, heads, keys, heads, values)
    rows = mixed_qkv.shape[0]
    check_shape("raw_g", raw_g, "[1, B, H, K]", (1, rows, heads, keys), "give one for each token")
    check_shape("raw_beta", raw_beta, "[1, B, H]", (1, rows, heads), "give one for each token")
    o = recurrent(q, k, v, raw_g.transpose(0, 1), raw_beta.transpose(0, 1), A_log, dt_bias,
                  initial_state, state_indices, gate_options(lower_bound, scale),
                  out=None if out is None else out.transpose(0, 1))
    return o.transpose(0, 1) if out is None else out, initial_state


def fused_sigmoid_gating_delta_rule_update(
        A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor, q: Tensor, k: Tensor, v: Tensor,
        beta: float = 1.0, threshold: float = _THRESHOLD, scale: float | None = None,
        initial_state: Tensor | None = None, inplace_final_state: bool = True,
        cu_seqlens: Tensor | None = None, ssm_state_indices: Tensor | None = None,
        num_accepted_tokens: Tensor | None = None, use_qk_l2norm_in_kernel: bool = False,
        is_kda: bool = False) -> tuple[Tensor, Tensor]:
    """Returns (o, initial_state, changed) of KDA with raw gates a and logits b.

    The result has q's dtype.
    """
    if not is_kda:
        raise Unsupported("is_kda is False; allowed is True: lathe has gates for each channel of "
                          "the keys, and none for whole heads")
    if beta != 1.0 or threshold != _THRESHOLD:
        raise Unsupported(f"beta is {beta} and threshold {threshold}; allowed are 1.0 and "
                          f"{_THRESHOLD}, those of KDA's gate")
    if not inplace_final_state or initial_state is None or ssm_state_indices is None:
        raise Unsupported("inplace_final_state is False, or initial_state or ssm_state_indices is "
                          "not given; allowed is a pool of states that is changed in place")
    options = gate_options(None, scale, use_qk_l2norm_in_kernel)
    o = recurrent(q, k, v, a.view(v.shape[:3] + (k.shape[3],)), b.view(v.shape[:3]), A_log,
                  dt_bias, initial_state, ssm_state_indices, options, cu_seqlens,
                  num_accepted_tokens)
    return o, initial_state


def chunk_kda_with_fused_gate(q: Tensor, k: Tensor, v: Tensor, raw_g: Tensor, raw_beta: Tensor,
                              A_log: Tensor, g_bias: Tensor | None, scale: float | None = None,
                              initial_state: Tensor | None = None,
                              output_final_state: bool = False, lower_bound: float | None = None,
                              use_qk_l2norm_in_kernel: bool = False,
                              cu_seqlens: Tensor | None = None, out: Tensor | None = None
                              ) -> tuple[Tensor, Tensor | None]:
    """Returns (o [1,T,H,V], final_state [N,H,V,K] or None) of a prefill, float32 states.

    A given `out` gets the result, and is o.
    """
    options = gate_options(lower_bound, scale, use_qk_l2norm_in_kernel)
    del options["null_slot"]  # there are no slots
    if initial_state is not None:
        initial_state = floated(initial_state)
    o, final, _ = kda(q, k, v, raw_g, raw_beta, A_log=flat_float(A_log),
                      dt_bias=flat_float(g_bias), initial_state=initial_state,
                      cu_seqlens=cu_seqlens, output_final_state=output_final_state, **options)
    if out is None:
        return o, final
    copied(o, out)
    return out, final


def flashkda_fwd(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float,
                 out: Tensor, workspace: Any, A_log: Tensor, dt_bias: Tensor, lower_bound: float,
                 initial_state: Tensor | None, final_state: Tensor | None,
                 cu_seqlens: Tensor, checkpoint_state: Tensor | None = None,
                 checkpoint_offsets: Tensor | None = None) -> None:
    """Writes out [1,T,H,V], final_state and checkpoint_state [N,H,V,K] of a prefill.

    checkpoint_offsets [N]: after so many tokens of its sequence its state is also written to
    checkpoint_state; 0 and less, or more than it has: none is. workspace does not matter.
    """
    count("states copied to slots and back")
    sequences = cu_seqlens.shape[0] - 1
    shape = (q.shape[2], v.shape[3], q.shape[3])
    device = q.device
    numbers = torch.arange(sequences, dtype=torch.int32, device=device)
    before = q.new_zeros((sequences, *shape), dtype=torch.float32)
    if initial_state is not None:
        before.copy_(initial_state)
    # Slots of the states before, after, and at the checkpoints.
    pool = torch.cat([before, torch.empty_like(before), torch.empty_like(before)])
    slots: dict[str, Tensor | None] = {"source_indices": numbers}
    if checkpoint_state is not None and checkpoint_offsets is not None:
        check_shape("checkpoint_offsets", checkpoint_offsets, "[N]", (sequences,),
                    "give one for each sequence")
        places = checkpoint_offsets.to(torch.int32)
        there = (places > 0) & (places <= cu_seqlens.diff())
        slots.update(cu_checkpoints=torch.arange(sequences + 1, dtype=torch.int32, device=device),
                     checkpoint_tokens=places.clamp(min=0).where(there, 0),
                     checkpoint_slots=(numbers + 2 * sequences).where(there, -1))
    prefill(q, k, v, g, beta, A_log, dt_bias, cu_seqlens, pool, numbers + sequences,
            gate_options(lower_bound, scale, null_slot=-1), out, **slots)
    if final_state is not None:
        final_state.copy_(pool[sequences:2 * sequences])
    if checkpoint_state is not None and checkpoint_offsets is not None:
        checkpoint_state.copy_(torch.where(there[:, None, None, None], pool[2 * sequences:],
                                           checkpoint_state.float()))


def fused_kda_decode(x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor,
                     raw_g: Tensor, raw_beta: Tensor, A_log: Tensor, dt_bias: Tensor,
                     state_indices: Tensor, state: Tensor, out: Tensor | None = None,
                     lower_bound: float | None = None, output_gate: Tensor | None = None,
                     norm_weight: Tensor | None = None, norm_eps: float = 1e-5) -> Tensor:
    """Returns out [1,B,H,V]: a layer's step of B sequences; conv_state and state are changed.

    x [B, 3 D] rows of q, k and v; weight [3,W,D]; conv_state [S, 3 D, W - 1] of either layout;
    raw_g [1,B,H,K], raw_beta [1,B,H]; output_gate [B,H,V]; norm_weight [V].
    """
    rows, (_, heads, values, keys) = x.shape[0], state.shape
    check_shape("raw_g", raw_g, "[1, B, H, K]", (1, rows, heads, keys), "give one for each token")
    check_shape("raw_beta", raw_beta, "[1, B, H]", (1, rows, heads), "give one for each token")
    if output_gate is not None:
        output_gate = output_gate.view(rows, heads, values)
    options = gate_options(lower_bound, None)
    options["norm_eps"] = float(norm_eps)
    o = decoded_layer(x, weight, bias, conv_state, raw_g[0], raw_beta[0], A_log, dt_bias,
                      state_indices, state, None if out is None else out[0], output_gate,
                      norm_weight, options)
    return o.unsqueeze(0) if out is None else out


def fused_kda_gate(g: Tensor, A: Tensor, head_k_dim: int, g_bias: Tensor | None = None,
                   beta: float = 1.0, threshold: float = _THRESHOLD,
                   lower_bound: float | None = None) -> Tensor:
    """Returns the natural logarithm of the decay [..,H,K], float32, of raw gates [.., H K].

    torch computes it; the kernels here take raw gates.
    """
    if g.shape[-1] % head_k_dim:
        raise InvalidArgument(f"g has shape {list(g.shape)}; allowed is a last extent that is a "
                              f"multiple of head_k_dim, {head_k_dim}")
    count("computed a gate")
    heads = g.shape[-1] // head_k_dim
    wide = g.float() if g_bias is None else g.float() + g_bias.float().flatten()
    wide = wide.view(*g.shape[:-1], heads, head_k_dim)
    rate = A.float().flatten()[:, None].exp()
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * wide)
    return -rate * torch.nn.functional.softplus(wide, beta, threshold)
