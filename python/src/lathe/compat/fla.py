# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of flash-linear-attention 0.6 for Kimi Delta Attention and causal convolution.

In place of fla.ops.cp, fla.ops.kda, fla.ops.kda.fused_recurrent and fla.modules.convolution (since
0.6 fla.modules.causal_conv1d):

    from lathe.compat.fla import chunk_kda, fused_recurrent_kda, causal_conv1d, ShortConvolution

or, where fla's own layers shall use lathe, once and before they run:

    lathe.compat.fla.register()

With register() fla keeps the calls that no kernel of lathe takes. Widths of KDA are multiples of 4
from 8 to 256. Over ranks states neither come in nor go out, as there.
"""
from lathe.compat._fla_context import FLACPContext, build_cp_context
from lathe.compat._fla_conv import ShortConvolution, causal_conv1d, causal_conv1d_update
from lathe.compat._fla_kda import chunk_kda, fused_recurrent_kda, fused_recurrent_kda_fwd
from lathe.compat._fla_register import register

__all__ = ["FLACPContext", "ShortConvolution", "build_cp_context", "causal_conv1d",
           "causal_conv1d_update", "chunk_kda", "fused_recurrent_kda", "fused_recurrent_kda_fwd",
           "register"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("FLACPContext", "", ""),
    ("ShortConvolution",
     "x multiplied by a mask; final state copied into cache; state copied back into cache; state "
     "of zeros",
     ""),
    ("build_cp_context", "offsets read on the host", ""),
    ("causal_conv1d", "", "activation (others than silu and swish); cp_context (made by fla)"),
    ("causal_conv1d_update",
     "state copied back into cache",
     "activation (others than silu and swish)"),
    ("chunk_kda",
     "cast to float32; states of chunks cast to k's dtype",
     "beta (one for each channel); lower_bound (outside of [-5, 0)); cp_context (made by fla)"),
    ("fused_recurrent_kda",
     "cast to float32",
     "beta (one for each channel); lower_bound (outside of [-5, 0))"),
    ("fused_recurrent_kda_fwd",
     "cast to float32; num_accepted_tokens cast to the dtype of ssm_state_indices; final state "
     "copied into initial_state; result copied into out",
     "beta (one for each channel); lower_bound (outside of [-5, 0)); inplace_final_state (False "
     "with ssm_state_indices)"),
    ("register", "states by a convolution with a weight of zeros", ""),
)
