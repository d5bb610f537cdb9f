# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""compat.fla over four ranks that are threads, against one rank; a context's words of each rank."""
import inspect
import json

import pytest
import torch
import torch.distributed as dist

import golden
import lathe
import lathe.torch as lt
from lathe.compat import fla
from threads import over_ranks

WORLD = 4


def error(found, wanted):
    return ((found - wanted).double().pow(2).mean() / wanted.double().pow(2).mean()).sqrt().item()


def randn(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def both(function, tensors, upstream):
    leaves = [each.detach().clone().requires_grad_() for each in tensors]
    out = function(*leaves)
    out.backward(upstream)
    return [out.detach(), *(each.grad for each in leaves)]


def compare(offsets, function, tensors, upstream, strict, parameters=(), layout="contiguous"):
    """Compares function(context, cu_seqlens, *tensors) over ranks with one rank."""
    whole_offsets = torch.tensor(offsets, dtype=torch.int32)
    whole = both(lambda *each: function(None, whole_offsets, *each), tensors, upstream)
    total = offsets[-1]
    count = 2 * WORLD if layout == "zigzag" else WORLD
    bounds = [total * part // count for part in range(count + 1)]

    def tokens(rank):
        held = [rank, 2 * WORLD - 1 - rank] if layout == "zigzag" else [rank]
        return torch.cat([torch.arange(bounds[part], bounds[part + 1]) for part in held])

    def work(rank):
        cut = tokens(rank)
        context = fla.build_cp_context(whole_offsets, dist.group.WORLD, conv1d_kernel_size=4,
                                       strict=strict, layout=layout)
        assert context.cu_seqlens_cpu[-1] == len(cut)
        parts = [each if i in parameters else each[:, cut] for i, each in enumerate(tensors)]
        return both(lambda *each: function(context, context.cu_seqlens, *each), parts,
                    upstream[:, cut])

    results = over_ranks(WORLD, work)
    for i, wanted in enumerate(whole):
        found = [each[i] for each in results]
        parts = [each.double() for each in found]
        order = torch.cat([tokens(rank) for rank in range(WORLD)])
        joined = (sum(parts) if i - 1 in parameters
                  else torch.cat(parts, 1)[:, torch.argsort(order)])
        assert error(joined, wanted) < 4e-3, i


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("offsets, strict", [([0, 30, 96, 160], True), ([0, 5, 5, 131], False)])
def test_kda(offsets, strict, layout):
    total = offsets[-1]
    q, k, v, do = (randn(1, total, 2, 32, seed=seed) for seed in range(4))
    g = torch.nn.functional.logsigmoid(randn(1, total, 2, 32, seed=4, dtype=torch.float32))
    beta = randn(1, total, 2, seed=5, dtype=torch.float32).sigmoid()
    compare(offsets, lambda context, cu, *t: fla.chunk_kda(
        *t, cu_seqlens=cu, cp_context=context, use_qk_l2norm_in_kernel=True)[0],
        (q, k, v, g, beta), do, strict, layout=layout)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_conv(layout):
    x, dy = randn(1, 160, 64), randn(1, 160, 64, seed=1)
    weight, bias = randn(64, 4, seed=2), randn(64, seed=3)
    compare([0, 30, 96, 160], lambda context, cu, x, w, b: fla.causal_conv1d(
        x, w, b, activation="silu", cu_seqlens=cu, cp_context=context)[0], (x, weight, bias), dy,
        True, parameters=(1, 2), layout=layout)


def test_ranks_in_any_layout_are_a_context():
    """One Ranks, a table of uneven ranges, for the convolution and for KDA; states in and out."""
    offsets, table = [0, 30, 30, 131], [[(0, 7), (60, 99)], [(7, 60)], [], [(99, 131)]]
    cu, total = torch.tensor(offsets, dtype=torch.int32), offsets[-1]
    x, dy = randn(1, total, 64), randn(1, total, 64, seed=1)
    weight = randn(64, 4, seed=2)
    history = randn(3, 64, 4, seed=3)
    k, v, do = (randn(1, total, 2, 32, seed=seed) for seed in range(4, 7))
    g = torch.nn.functional.logsigmoid(randn(1, total, 2, 32, seed=7, dtype=torch.float32))
    beta = randn(1, total, 2, seed=8, dtype=torch.float32).sigmoid()
    state = randn(3, 2, 32, 32, seed=9, dtype=torch.float32)

    def run(over, take):
        leaves = [each.detach().clone().requires_grad_() for each in (take(x), history, state)]
        rows, tail = fla.causal_conv1d(leaves[0], weight, initial_state=leaves[1],
                                       output_final_state=True, cu_seqlens=cu, cp_context=over)
        q = rows.view(1, -1, 2, 32)
        out, last = fla.chunk_kda(q, take(k), take(v), take(g), take(beta),
                                  initial_state=leaves[2], output_final_state=True, cu_seqlens=cu,
                                  cp_context=over, use_qk_l2norm_in_kernel=True)
        torch.autograd.backward([out, rows], [take(do), take(dy)])
        return ([out.detach(), rows.detach(), leaves[0].grad],
                [tail.detach(), last.detach(), leaves[1].grad, leaves[2].grad])

    whole = run(None, lambda each: each)

    def work(rank):
        over = lt.Ranks(None, total, cu_seqlens=offsets, ranges=table)
        return run(over, lambda each: over.take(each, 1))

    results = over_ranks(WORLD, work)
    order = torch.cat([torch.arange(*each) for held in table for each in held])
    for i, wanted in enumerate(whole[0]):
        joined = torch.cat([tokens[i].double() for tokens, _ in results], 1)
        assert error(joined[:, torch.argsort(order)], wanted) < 4e-3, i
    for i, wanted in enumerate(whole[1]):  # each row of one rank, and 0 of the others
        assert error(sum(states[i].double() for _, states in results), wanted) < 4e-3, i


def test_contexts_are_those_of_the_peer():
    file = golden.FOLDER / "cp/cp_context.json"
    if not file.exists():
        pytest.skip(f"no {file}: set LATHE_GOLDEN")
    cases = [case for case in json.loads(file.read_text())["cases"]
             if case["world_size"] <= WORLD]
    assert cases
    for case in cases:
        def work(rank, case=case):
            offsets = torch.tensor(case["cu_seqlens"])
            if case["error"]:
                with pytest.raises(ValueError) as caught:
                    fla.build_cp_context(offsets, dist.group.WORLD, layout=case["layout"])
                found = str(caught.value).replace("`", "")
                assert found.startswith(case["error"].split(" for ")[0]), found
                return
            context = fla.build_cp_context(offsets, dist.group.WORLD, conv1d_kernel_size=4,
                                           layout=case["layout"])
            wanted = case["ranks"][rank]
            names = ("pre_num_ranks", "post_num_ranks", "is_first_rank", "is_last_rank",
                     "pre_num_conv_tokens", "part_len", "front_num_seqs", "pre_num_ranks_by_part",
                     "post_num_ranks_by_part", "is_first_by_part", "is_last_by_part",
                     "pre_num_conv_tokens_by_part")
            for name in names:
                found = getattr(context, name)
                found = list(found) if isinstance(found, tuple) else found
                assert found == wanted.get(name), (name, wanted)
            assert context.cu_seqlens.tolist() == wanted["cu_seqlens"]
            assert context.num_seqs == len(wanted["cu_seqlens"]) - 1 and context.is_cp_enabled
            copy = context.copy_for_backward()
            assert copy.cu_seqlens is not context.cu_seqlens
            assert copy._lathe.ranks is context._lathe.ranks

        over_ranks(case["world_size"], work)


def test_cuts_are_kept():
    def work(rank):
        made = [fla.build_cp_context(torch.tensor([0, 64]), dist.group.WORLD) for _ in range(2)]
        return made[0]._lathe.ranks is made[1]._lathe.ranks

    assert over_ranks(2, work) == [True, True]


def test_refusals():
    offsets = torch.tensor([0, 64])

    def work(rank):
        group = dist.group.WORLD
        with pytest.raises(ValueError, match="`layout` must be 'contiguous' or 'zigzag', got 'ring'"):
            fla.build_cp_context(offsets, group, layout="ring")
        with pytest.raises(ValueError, match="use_tf32x3_affine_chain is False"):
            fla.build_cp_context(offsets, group, use_tf32x3_affine_chain=False)
        with pytest.raises(TypeError, match="Unexpected CP keyword arguments: x"):
            fla.build_cp_context(offsets, group, x=1)
        context = fla.build_cp_context(offsets, group)
        x = randn(1, 32, 2, 32)
        with pytest.raises(AssertionError, match="output_final_state is True"):
            fla.chunk_kda(x, x, x, x, x[..., 0], output_final_state=True, cp_context=context)

    over_ranks(2, work)


def test_signature():
    assert list(inspect.signature(fla.build_cp_context).parameters) == [
        "cu_seqlens", "group", "conv1d_kernel_size", "cu_seqlens_cpu", "use_tf32x3_affine_chain",
        "layout", "strict", "kwargs"]
