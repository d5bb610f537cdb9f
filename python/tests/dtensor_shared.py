# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls on DTensors that change what every rank has, or cannot be cut: they are computed whole.

A program for with_torch/test_dtensor.py, which also takes the calls. It prints a word for each call
whose results are those of one rank, of which no other rank's copy may differ.
"""
import os

os.environ.setdefault("LATHE_DEVICE", "sim")

import torch
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import lathe.torch as lt
from threads import over_ranks

WORLD = 2
WHOLE, BATCH = Replicate(), Shard(0)


def layer(qkv, weight, conv_pool, g, beta, pool, slots):
    conv_pool, pool = conv_pool.clone(), pool.clone()
    return lt.kda_decode(qkv, weight, conv_pool, g, beta, pool, slots), conv_pool, pool


def layer_inputs():
    """Returns four heads whose channels, cut in two, would be taken for those of fewer."""
    return (torch.randn(2, 192), torch.randn(192, 4) / 2, torch.randn(3, 192, 3),
            -torch.rand(2, 4, 16), torch.rand(2, 4), torch.randn(3, 4, 16, 16),
            torch.tensor([2, 0], dtype=torch.int32))


def append(q, k_cache, v_cache, table, lengths, k, v):
    """Returns results over pages, and the pages, to which keys are appended."""
    k_cache, v_cache = k_cache.clone(), v_cache.clone()
    found = lt.flash_attention_decode(q, k_cache, v_cache, table, lengths, k_new=k, v_new=v)
    return *found, k_cache, v_cache


def decode_inputs():
    return (torch.randn(2, 2, 4, 16).half(), torch.randn(4, 8, 2, 16).half(),
            torch.randn(4, 8, 2, 16).half(), torch.tensor([[1, 2], [3, 0]], dtype=torch.int32),
            torch.tensor([9, 12], dtype=torch.int32))


def update(x, weight, pool, slots):
    pool = pool.clone()
    return lt.causal_conv1d_update(x, pool, weight, state_indices=slots), pool


CALLS = {
    "slots": (update, lambda: (torch.randn(2, 8), torch.randn(8, 4), torch.randn(3, 8, 4),
                               torch.tensor([2, 0], dtype=torch.int32)),
              (BATCH, WHOLE, WHOLE, BATCH)),
    "layer": (layer, layer_inputs, (BATCH, WHOLE, WHOLE, BATCH, BATCH, WHOLE, BATCH)),
    "pages": (append, lambda: (*decode_inputs(), torch.randn(2, 2, 2, 16).half(),
                               torch.randn(2, 2, 2, 16).half()),
              (BATCH, WHOLE, WHOLE, BATCH, BATCH, BATCH, BATCH)),
}


def on_rank(function, inputs, placements, rank):
    mesh = init_device_mesh("cpu", (WORLD,))
    given = []
    for each, placement in zip(inputs, placements):
        local = each if placement is WHOLE else each.chunk(WORLD, placement.dim)[rank].contiguous()
        given.append(DTensor.from_local(local, mesh, [placement], run_check=False,
                                        shape=each.shape, stride=each.stride()))
    found = function(*given)
    assert all(each.placements == (WHOLE,) for each in found), [each.placements for each in found]
    return [each.to_local() for each in found]


def main():
    lt.use_simulator()
    with FakeTensorMode():  # torch 2.10 ends the process if the first thread that enters it is gone
        pass
    torch.manual_seed(0)
    for name, (function, make, placements) in CALLS.items():
        inputs = make()
        wanted = function(*inputs)
        for found in over_ranks(WORLD, lambda rank: on_rank(function, inputs, placements, rank)):
            for mine, theirs in zip(found, wanted, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-2)
        print(name)


if __name__ == "__main__":
    main()
