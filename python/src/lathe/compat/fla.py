# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of flash-linear-attention 0.6 for Kimi Delta Attention and causal convolution.

In place of fla.ops.cp, fla.ops.kda, fla.ops.kda.fused_recurrent and fla.modules.convolution (since
0.6 fla.modules.causal_conv1d):

    from lathe.compat.fla import chunk_kda, fused_recurrent_kda, causal_conv1d, ShortConvolution

or, where fla's own layers shall use lathe, once and before they run:

    lathe.compat.fla.register()
"""
from lathe.compat._fla_context import FLACPContext, build_cp_context
from lathe.compat._fla_conv import ShortConvolution, causal_conv1d, causal_conv1d_update
from lathe.compat._fla_kda import chunk_kda, fused_recurrent_kda, fused_recurrent_kda_fwd
from lathe.compat._fla_register import register

__all__ = ["FLACPContext", "ShortConvolution", "build_cp_context", "causal_conv1d",
           "causal_conv1d_update", "chunk_kda", "fused_recurrent_kda", "fused_recurrent_kda_fwd",
           "register"]
