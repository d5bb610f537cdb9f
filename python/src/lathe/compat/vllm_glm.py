# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention of GLM-5 in vLLM 0.30 to 0.33 (vllm.models.glm5next).

As lathe.compat.vllm_kda: states are [S,H,V,K], in slots of a pool, and slot 0 is vLLM's null block.
"""
from __future__ import annotations

from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat._fla_checks import flat_float
from lathe.compat._serving_kda import floated, gate_options, recurrent
from lathe.torch import kda

__all__ = ["chunk_kda_with_fused_gate", "fused_recurrent_kda"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("chunk_kda_with_fused_gate", "cast to float32", ""),
    ("fused_recurrent_kda",
     "cast to float32; num_accepted_tokens cast to the dtype of the slots; result copied into out",
     "inplace_final_state (False)"),
)


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None,
                        scale: float | None = None, initial_state: Tensor | None = None,
                        inplace_final_state: bool = True, use_qk_l2norm_in_kernel: bool = True,
                        cu_seqlens: Tensor | None = None, ssm_state_indices: Tensor | None = None,
                        num_accepted_tokens: Tensor | None = None, out: Tensor | None = None,
                        sigmoid_beta: bool = False, a_log: Tensor | None = None,
                        g_bias: Tensor | None = None, compute_gate: bool = False,
                        lower_bound: float | None = -5.0) -> tuple[Tensor, Tensor]:
    """Returns (out [1,T,H,V], initial_state, changed) of packed sequences, token by token.

    g is the logarithm of the decay, or with compute_gate raw; beta is a logit with sigmoid_beta.
    """
    if not inplace_final_state or initial_state is None or ssm_state_indices is None:
        raise Unsupported("inplace_final_state is False, or initial_state or ssm_state_indices is "
                          "not given; allowed is a pool of states that is changed in place")
    if beta is None:
        raise InvalidArgument("beta is not given; allowed is one for each token and head")
    if compute_gate and (a_log is None or g_bias is None or lower_bound is None):
        raise InvalidArgument("compute_gate is True, and a_log, g_bias or lower_bound is not "
                              "given; allowed is a bounded gate, which has all three")
    options = gate_options(lower_bound if compute_gate else None, scale, use_qk_l2norm_in_kernel)
    if not compute_gate:
        del options["use_gate_in_kernel"]
        a_log = g_bias = None
    if not sigmoid_beta:
        del options["use_beta_sigmoid_in_kernel"]
    return recurrent(q, k, v, g, beta, a_log, g_bias, initial_state, ssm_state_indices, options,
                     cu_seqlens, num_accepted_tokens, out), initial_state


def chunk_kda_with_fused_gate(q: Tensor, k: Tensor, v: Tensor, raw_g: Tensor, beta: Tensor,
                              A_log: Tensor, g_bias: Tensor | None, scale: float | None = None,
                              initial_state: Tensor | None = None,
                              output_final_state: bool = False,
                              use_qk_l2norm_in_kernel: bool = False,
                              cu_seqlens: Tensor | None = None, safe_gate: bool = False,
                              lower_bound: float = -5.0) -> tuple[Tensor, Tensor | None]:
    """Returns (o [1,T,H,V], final_state [N,H,V,K] or None) of a prefill, float32 states.

    beta is no logit. The gate is bounded with safe_gate.
    """
    options = gate_options(lower_bound if safe_gate else None, scale, use_qk_l2norm_in_kernel)
    del options["null_slot"], options["use_beta_sigmoid_in_kernel"]
    o, final, _ = kda(q, k, v, raw_g, beta, A_log=flat_float(A_log), dt_bias=flat_float(g_bias),
                      initial_state=None if initial_state is None else floated(initial_state),
                      cu_seqlens=cu_seqlens, output_final_state=output_final_state, **options)
    return o, final
