# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention with mods on whole tensors, in float64."""
import math

import torch


def grids(batch, heads, queries, keys):
    return [torch.arange(n).view([-1 if i == d else 1 for i in range(4)])
            for d, n in enumerate((batch, heads, queries, keys))]


def reference(q, k, v, mod=None, mask=None, scale=None):
    """Returns (out, lse) of attention over all keys, in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    scores = q @ k.transpose(2, 3) * (scale or 1 / math.sqrt(q.shape[3]))
    where = grids(*scores.shape)
    if mod is not None:
        scores = mod(scores, *where)
    if mask is not None:
        scores = scores.masked_fill(~mask(*where), -torch.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp().nan_to_num() @ v, lse
