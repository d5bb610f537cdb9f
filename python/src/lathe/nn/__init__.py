# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Layers of models: attention, Kimi Delta Attention and short convolutions, with caches.

    layer = lathe.nn.KimiDeltaAttention(hidden_size=2048, num_heads=16, head_dim=128, layer_idx=0)
    out = layer(hidden)                    # [B,T,hidden], with gradients
    cache = lathe.nn.Cache()
    out = layer(prompt, cache=cache)       # under torch.no_grad(): then one token after the other

State dicts of fla.layers.KimiDeltaAttention, fla.layers.Attention and fla.modules.ShortConvolution
load: parameters have the same names, shapes and meaning.
"""
from lathe.compat.fla import ShortConvolution
from lathe.nn._attention import Attention
from lathe.nn._cache import Cache
from lathe.nn._kda import KimiDeltaAttention
from lathe.nn._norm import GatedRMSNorm, RMSNorm

__all__ = ["Attention", "Cache", "GatedRMSNorm", "KimiDeltaAttention", "RMSNorm",
           "ShortConvolution"]
