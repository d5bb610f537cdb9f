# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""KDA and causal convolution in float64, written out with torch; autograd differentiates them."""
import torch
import torch.nn.functional as F


def doubled(tensors):
    """Returns copies in float64 that require gradients, by name; what has no fraction as it is."""
    return {name: each.detach().double().requires_grad_() if each.is_floating_point() else each
            for name, each in tensors.items()}


def _kda_row(q, k, v, g, beta, state):
    """Returns (o, state) of one sequence: q, k [T,HV,K], v [T,HV,V], state [HV,K,V]."""
    out = []
    for t in range(q.shape[0]):
        state = state * g[t].exp()[..., None]
        error = v[t] - torch.einsum("hk,hkv->hv", k[t], state)
        state = state + torch.einsum("hk,hv->hkv", k[t], beta[t][:, None] * error)
        out.append(torch.einsum("hk,hkv->hv", q[t], state))
    return (torch.stack(out) if out else v[:0]), state


def kda(q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, cu_seqlens=None, *,
        scale=None, norms=False, gate=False, lower_bound=None, sigmoid=False, negative=False,
        state_v_first=False):
    """Returns (o, final states)."""
    heads, width = v.shape[2], q.shape[-1]
    if norms:
        q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(heads // x.shape[2], 2) for x in (q, k))
    q = q * (width**-0.5 if scale is None else scale)
    if gate:
        bias = 0 if dt_bias is None else dt_bias.reshape(heads, width)
        rate = 1 if A_log is None else A_log.reshape(heads, 1).exp()
        g = -rate * F.softplus(g + bias) if lower_bound is None \
            else lower_bound * torch.sigmoid(rate * (g + bias))
    if sigmoid:
        beta = torch.sigmoid(beta) * (2 if negative else 1)
    if cu_seqlens is None:
        pieces = [(b, 0, q.shape[1]) for b in range(q.shape[0])]
    else:
        offsets = cu_seqlens.tolist()
        pieces = [(0, begin, end) for begin, end in zip(offsets, offsets[1:])]
    out, finals = [], []
    for n, (b, begin, end) in enumerate(pieces):
        state = q.new_zeros(heads, width, v.shape[-1])
        if initial_state is not None:
            state = initial_state[n].transpose(-1, -2) if state_v_first else initial_state[n]
        o, state = _kda_row(*(x[b, begin:end] for x in (q, k, v, g, beta)), state)
        out.append(o)
        finals.append(state.transpose(-1, -2) if state_v_first else state)
    joined = torch.stack(out) if cu_seqlens is None else torch.cat(out)[None]
    return joined, torch.stack(finals)


def conv(x, weight, bias=None, residual=None, initial_state=None, cu_seqlens=None, silu=False):
    """Returns (y, final states) of x [B,T,D] and weight [D,W]."""
    width = weight.shape[1]
    offsets = None if cu_seqlens is None else cu_seqlens.tolist()
    rows = list(x) if offsets is None else [x[0, i:j] for i, j in zip(offsets, offsets[1:])]
    out, finals = [], []
    for n, row in enumerate(rows):
        before = row.new_zeros(width, row.shape[1])
        if initial_state is not None:
            before = initial_state[n].transpose(0, 1)
        full = torch.cat([before, row])
        y = sum(full[i + 1:i + 1 + row.shape[0]] * weight[:, i] for i in range(width))
        out.append(y if bias is None else y + bias)
        finals.append(full[-width:].transpose(0, 1))
    y = torch.stack(out) if offsets is None else torch.cat(out)[None]
    y = F.silu(y) if silu else y
    return (y if residual is None else y + residual), torch.stack(finals)


def assert_near(found, wanted, bound, name=""):
    """Asserts that the relative error, of the root of the mean square, is below a bound."""
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    wanted = wanted.detach().double()
    error = (found.detach().double() - wanted).square().mean().sqrt()
    relative = float(error / (wanted.square().mean().sqrt() + 1e-12))
    assert relative < bound, (name, relative, bound)
