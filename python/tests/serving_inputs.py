# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of KDA as servers give them, raw gates and states [S,H,V,K], and float64 results."""
import torch

import fla_reference

H, K, V = 2, 16, 16
BOUND = 2e-5


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


A_LOG, BIAS = randn(H) / 4, randn(H * K) / 4


def tokens(n, seed=0):
    """Returns q, k, v of one packed projection with a gate behind them, raw gates and logits."""
    packed = randn(n, 2 * H * K + H * V + 8, seed=seed)[:, :-8]
    q, k, v = packed.split([H * K, H * K, H * V], 1)
    return {"q": q.view(n, H, K)[None], "k": k.view(n, H, K)[None], "v": v.view(n, H, V)[None],
            "raw_g": randn(1, n, H, K, seed=seed + 1), "raw_beta": randn(1, n, H, seed=seed + 2)}


def wanted(given, state, lower_bound, part=slice(None), norms=True):
    """Returns (o [n,H,V], the state after it [H,V,K]) of one sequence, in float64."""
    q, k, v, g, beta = (given[name][:, part].double() for name in
                        ("q", "k", "v", "raw_g", "raw_beta"))
    o, final = fla_reference.kda(q, k, v, g, beta, A_LOG.double(), BIAS.double(),
                                 state[None].double(), gate=True, sigmoid=True, norms=norms,
                                 lower_bound=lower_bound, state_v_first=True)
    return o[0], final[0]
