# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention in float64 for tests: a plain formula, written once, for whole sequences."""
import pytest
import torch


def skip_without_pages_of_aten():
    """Skips a test that gives torch's own operator a block table."""
    schema = torch.ops.aten._flash_attention_forward.default._schema
    if all(each.name != "block_table" for each in schema.arguments):
        pytest.skip("this torch's _flash_attention_forward has no block_table: torch 2.15 has it")


def visible(queries, keys, causal=False, left=-1, right=-1):
    """Returns which keys each query sees; the last query stands at the last key."""
    row = torch.arange(queries)[:, None] + keys - queries
    column = torch.arange(keys)[None, :]
    right = 0 if causal else right
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left >= 0:
        seen &= column >= row - left
    if right >= 0:
        seen &= column <= row + right
    return seen


def reference(q, k, v, *, scale=None, causal=False, left=-1, right=-1, softcap=0.0, slopes=None,
              sinks=None):
    """Returns (out [B,Sq,H,DV], lse [B,H,Sq]) in float64 for q [B,Sq,H,D], k, v [B,Sk,HK,*]."""
    q, k, v = (each.double().transpose(1, 2) for each in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys = q.shape[2], k.shape[2]
    score = q @ k.mT * (q.shape[-1]**-0.5 if scale is None else scale)
    if softcap > 0:
        score = softcap * torch.tanh(score / softcap)
    if slopes is not None:
        row = torch.arange(queries)[:, None] + keys - queries
        distance = (row - torch.arange(keys)).abs()
        score = score - slopes.double().reshape(-1, q.shape[1], 1, 1) * distance
    score = score.masked_fill(~visible(queries, keys, causal, left, right), float("-inf"))
    if sinks is not None:
        column = sinks.double().reshape(1, -1, 1, 1).expand(*score.shape[:3], 1)
        score = torch.cat([score, column], 3)
    lse = score.logsumexp(3)
    weight = torch.where(lse.isinf()[..., None], 0.0, (score - lse[..., None]).exp())
    return (weight[..., :keys] @ v).transpose(1, 2), lse


def error(found, wanted):
    """Returns the root of the mean square error, relative to that of what is wanted."""
    found, wanted = found.detach().double(), wanted.detach().double()
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    return ((found - wanted).pow(2).mean() / wanted.pow(2).mean().clamp(min=1e-30)).sqrt().item()


def sequences(tensor, offsets):
    """Returns packed sequences as a list of batches of one."""
    return [tensor[begin:end][None] for begin, end in zip(offsets[:-1], offsets[1:])]
