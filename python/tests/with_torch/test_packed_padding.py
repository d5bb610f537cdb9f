# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows past the last offset: 0 in every result and gradient, and NaN in them reaches nothing.

The convolution against its sequences in float64; attention and KDA against the same call without
these rows.
"""
import pytest
import torch
import torch.nn.functional as F

import lathe.torch as lt
from differences import relative_error

TOKENS, USED, CHANNELS, WIDTH = 40, 33, 8, 4
OFFSETS = torch.tensor([0, 10, 25, USED], dtype=torch.int32)


def draw(*shape, padded=True):
    found = torch.randn(shape)
    if padded:
        found[:, USED:] = torch.nan
    return found


def convolved(x, weight, bias, residual):
    """Returns y of the sequences in float64, 0 elsewhere."""
    parts = []
    for first, last in zip(OFFSETS[:-1], OFFSETS[1:]):
        rows = F.pad(x[:, first:last].transpose(1, 2), (WIDTH - 1, 0))
        z = F.conv1d(rows, weight[:, None], bias, groups=CHANNELS).transpose(1, 2)
        parts.append(F.silu(z) + residual[:, first:last])
    return F.pad(torch.cat(parts, 1), (0, 0, 0, TOKENS - USED))


def test_convolution():
    torch.manual_seed(0)
    x, residual, dy = (draw(1, TOKENS, CHANNELS) for _ in range(3))
    weight, bias = draw(CHANNELS, WIDTH, padded=False), torch.randn(CHANNELS)
    ours = [t.clone().requires_grad_() for t in (x, weight, bias, residual)]
    y, _ = lt.causal_conv1d(*ours[:3], residual=ours[3], cu_seqlens=OFFSETS, activation="silu")
    y.backward(dy)
    theirs = [t.double().nan_to_num().requires_grad_() for t in (x, weight, bias, residual)]
    want = convolved(*theirs)
    want.backward(dy.double().nan_to_num())
    assert relative_error(y, want) < 1e-5 and (y[:, USED:] == 0).all()
    for name, own, other in zip(("x", "weight", "bias", "residual"), ours, theirs):
        assert relative_error(own.grad, other.grad) < 1e-5, name
    assert (ours[0].grad[:, USED:] == 0).all() and (ours[3].grad[:, USED:] == 0).all()


def attention(q, k, v):
    offsets = OFFSETS[:2].clone()
    offsets[1] = q.shape[1] if q.shape[1] < TOKENS else USED
    return lt.flash_attention(q[0], k[0], v[0], cu_seqlens_q=offsets, cu_seqlens_k=offsets)[0]


def kda(q, k, v):
    g = torch.full_like(q, -0.3)
    return lt.kda(q, k * 0.1, v, g, torch.full(q.shape[:3], 0.5), cu_seqlens=OFFSETS)[0]


@pytest.mark.parametrize("function", [attention, kda])
def test_like_a_call_without_these_rows(function):
    torch.manual_seed(0)
    shape = (1, TOKENS, 2, 16)
    whole = [draw(*shape).requires_grad_() for _ in range(3)]
    short = [t.detach()[:, :USED].clone().requires_grad_() for t in whole]
    out, want = function(*whole), function(*short)
    rows = out.reshape(1, TOKENS, 2, 16)
    assert (rows[:, USED:] == 0).all()
    assert relative_error(rows[:, :USED], want.reshape(1, USED, 2, 16)) < 1e-6
    upstream = torch.randn(shape)
    out.backward(upstream.reshape(out.shape))
    want.backward(upstream[:, :USED].reshape(want.shape))
    for own, other in zip(whole, short):
        assert (own.grad[:, USED:] == 0).all()
        assert relative_error(own.grad[:, :USED], other.grad) < 1e-5
