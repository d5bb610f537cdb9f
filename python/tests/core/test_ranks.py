# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Groups and shards: ranks as threads on the simulator, against one rank."""
import pathlib
import runpy
import threading

import numpy as np
import pytest

import lathe
from arrays import rms_error

WORLD, TOKENS = 4, 203


def over_ranks(work):
    """Calls work(rank, group) in a thread for each rank; returns what they return."""
    context = lathe.context("sim")
    unique = context.unique_id()
    results, failures = [None] * WORLD, []

    def rank(index):
        try:
            results[index] = work(index, lathe.Group(context, unique, WORLD, index))
        except BaseException as failure:  # a rank that fails must not keep the others waiting
            failures.append(failure)

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


TABLE = [[(0, 30), (150, 160)], [(30, 31), (90, 150)], [], [(31, 90), (160, TOKENS)]]


@pytest.mark.parametrize("layout, flags", [({}, ()), ({"balance": "head_tail"}, ()),
                                           ({}, ("allgather",)), ({"ranges": TABLE}, ())])
def test_attention_over_ranks_is_that_of_one(layout, flags):
    r = np.random.default_rng(0)
    q, k, v, dout = (r.standard_normal((1, TOKENS, 2, 32)).astype(np.float16) for _ in range(4))
    whole = lathe.run("flash_attention", q=q, k=k, v=v, dout=dout, causal=True)

    def work(rank, group):
        shard = lathe.Shard(WORLD, rank, TOKENS, **layout)
        rows = np.concatenate([np.arange(0), *(np.arange(b, e) for b, e in shard.intervals())])
        parts = {name: np.ascontiguousarray(array[:, rows])
                 for name, array in dict(q=q, k=k, v=v, dout=dout).items()}
        found = lathe.run("flash_attention", **parts, causal=True, group=group, flags=flags,
                          shard=shard)
        return rows, found

    results = over_ranks(work)
    for name in ("out", "dq", "dk", "dv"):
        joined = np.zeros_like(whole[name])
        for rows, found in results:
            joined[:, rows] = found[name]
        assert rms_error(joined, whole[name]) < 3e-3, name


def test_shards_say_who_holds_what():
    first = lathe.Shard(2, 0, 10, balance="head_tail")
    assert first.intervals() == [(0, 2), (7, 10)] or first.intervals() == [(0, 2), (8, 10)]
    with pytest.raises(lathe.InvalidArgument, match="balance"):
        lathe.Shard(2, 0, 10, balance="tail")
    with pytest.raises(lathe.InvalidArgument, match="rank is 2; allowed are 0 to 1"):
        lathe.Shard(2, 2, 10)
    assert lathe.Shard(WORLD, 3, TOKENS, ranges=TABLE).intervals() == TABLE[3]
    with pytest.raises(lathe.InvalidArgument, match="token 4 lies in no range of any rank"):
        lathe.Shard(2, 0, 10, ranges=[[(0, 4)], [(5, 10)]])
    with pytest.raises(lathe.InvalidArgument, match="token 3 lies in ranges of rank 0 and of rank 1"):
        lathe.Shard(2, 0, 10, ranges=[[(0, 4)], [(3, 10)]])
    with pytest.raises(lathe.InvalidArgument, match="lists for 1 ranks; the world has 2"):
        lathe.Shard(2, 0, 10, ranges=[[(0, 10)]])
    with pytest.raises(TypeError, match="a range is a pair"):
        lathe.Shard(1, 0, 10, ranges=[[(0, 5, 10)]])


def test_groups_split():
    def work(rank, group):
        half = group.split(rank % 2, rank)
        return group.rank, group.world, half.rank, half.world

    assert over_ranks(work) == [(0, 4, 0, 2), (1, 4, 0, 2), (2, 4, 1, 2), (3, 4, 1, 2)]


def test_the_layers_of_the_example_are_those_of_one_rank():
    example = pathlib.Path(__file__).resolve().parents[3] / "examples" / "hybrid.py"
    assert runpy.run_path(str(example))["main"]() < 0.01


def test_rank_invariant_calls_have_the_same_bits_for_every_number_of_ranks():
    r = np.random.default_rng(1)
    q, k, v = (r.standard_normal((1, 256, 2, 32)).astype(np.float16) for _ in range(3))
    g = -np.abs(r.standard_normal((1, 256, 2, 32))).astype(np.float32) / 10
    beta = r.random((1, 256, 2)).astype(np.float16)
    rows = dict(q=q, k=k, v=v, g=g, beta=beta, do=v)
    flags = ("rank_invariant", "reduce_parameter_grads")

    def run(group, held, shard):
        parts = {name: np.ascontiguousarray(array[:, held]) for name, array in rows.items()}
        return lathe.run("kda", **parts, use_qk_l2norm_in_kernel=True, group=group, flags=flags,
                         shard=shard)

    context = lathe.context("sim")
    alone = lathe.Group(context, context.unique_id(), 1, 0)
    one = run(alone, np.arange(256), lathe.Shard(1, 0, 256))
    table = [[(0, 64)], [(192, 256)], [], [(64, 192)]]

    def work(rank, group):
        shard = lathe.Shard(WORLD, rank, 256, ranges=table)
        held = np.concatenate([np.arange(0), *(np.arange(b, e) for b, e in shard.intervals())])
        return held, run(group, held, shard)

    for held, found in over_ranks(work):
        for name, array in found.items():
            np.testing.assert_array_equal(array, one[name][:, held], err_msg=name)
