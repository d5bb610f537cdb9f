# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls over ranks of torch's threaded process group, forward and backward, against one rank."""
import pytest
import torch

import lathe
import lathe.torch as lt
from threads import over_ranks

WORLD, TOKENS = 4, 157


def error(found, wanted):
    return ((found - wanted).double().pow(2).mean() / wanted.double().pow(2).mean()).sqrt().item()


def inputs(*shapes, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def both(function, tensors, upstream):
    """Returns the result and the gradients of the tensors."""
    tensors = [each.detach().clone().requires_grad_() for each in tensors]
    out = function(*tensors)
    out.backward(upstream)
    return [out.detach(), *(each.grad for each in tensors)]


def compare(function, tensors, upstream, make_ranks, summed=()):
    """Compares a function of (over, tensors...) over ranks with one rank; tokens are dim 1."""
    whole = both(lambda *each: function(None, *each), tensors, upstream)

    def work(rank):
        over = make_ranks()
        parts = [each if i in summed else over.take(each, 1) for i, each in enumerate(tensors)]
        found = both(lambda *each: function(over, *each), parts, over.take(upstream, 1))
        return over.shard.intervals(), found

    results = over_ranks(WORLD, work)
    for i, wanted in enumerate(whole):
        if i - 1 in summed:
            joined = sum(found[i].double() for _, found in results)
        else:
            joined = torch.empty_like(wanted)
            for intervals, found in results:
                rows = torch.cat([torch.arange(0), *(torch.arange(b, e) for b, e in intervals)])
                joined[:, rows] = found[i]
        assert error(joined, wanted) < 4e-3, i


@pytest.mark.parametrize("balance, flags", [("none", ()), ("head_tail", ("allgather",))])
def test_attention(balance, flags):
    q, k, v, dout = inputs(*[(1, TOKENS, 2, 32)] * 4)
    compare(lambda over, q, k, v: lt.flash_attention(q, k, v, causal=True, over=over)[0], (q, k, v),
            dout, lambda: lt.Ranks(None, TOKENS, balance=balance, flags=flags))


TABLE = [[(0, 3), (60, 90)], [(3, 60), (90, TOKENS)], *[[]] * (WORLD - 2)]
LAYOUTS = [{}, {"balance": "head_tail"}, {"ranges": TABLE}]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kda(layout):
    q, k, v, do = inputs(*[(1, TOKENS, 2, 32)] * 4)
    k = torch.nn.functional.normalize(k.float(), dim=-1).half()
    (g,) = inputs((1, TOKENS, 2, 32), dtype=torch.float32, seed=1)
    (beta,) = inputs((1, TOKENS, 2), dtype=torch.float32, seed=2)
    compare(lambda over, *t: lt.kda(*t, over=over)[0],
            (q, k, v, torch.nn.functional.logsigmoid(g), beta.sigmoid()), do,
            lambda: lt.Ranks(None, TOKENS, **layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conv_leaves_parameter_gradients_apart(layout):
    x, dy = inputs((1, TOKENS, 32), (1, TOKENS, 32))
    (weight,) = inputs((32, 4))
    compare(lambda over, x, w: lt.causal_conv1d(x, w, activation="silu", over=over)[0], (x, weight),
            dy, lambda: lt.Ranks(None, TOKENS, **layout), summed=(1,))


def test_padding_of_a_convolution_with_a_residual():
    """Offsets count the tokens of all ranks; in rows past the last one even NaN becomes 0."""
    used, offsets = 90, torch.tensor([0, 50, 90], dtype=torch.int32)
    x, residual, dy = inputs(*[(1, TOKENS, 32)] * 3, dtype=torch.float32)
    (weight,) = inputs((32, 4), dtype=torch.float32)
    x[:, used:], residual[:, used:], dy[:, used:] = torch.nan, torch.nan, torch.nan

    def work(rank):
        over = lt.Ranks(None, TOKENS)
        parts = [over.take(each, 1).requires_grad_() for each in (x, residual)]
        y, _ = lt.causal_conv1d(parts[0], weight, residual=parts[1], cu_seqlens=offsets, over=over)
        y.backward(over.take(dy, 1))
        return parts[0].grad, parts[1].grad

    dx, dresidual = (torch.cat(each, 1) for each in zip(*over_ranks(WORLD, work)))
    assert torch.equal(dresidual[:, :used], dy[:, :used]) and not dresidual[:, used:].any()
    assert not dx[:, used:].any() and dx.isfinite().all()


def test_a_capacity_takes_other_layouts():
    """The same Ranks, and so the same plan, over two layouts; rows behind the tokens are anything."""
    layouts = [(60, [0, 20, 60], {"ranges": [[(0, 5), (30, 41)], [(5, 30)], [], [(41, 60)]]}),
               (100, [0, 100, 100], {"balance": "head_tail"})]
    (weight,) = inputs((32, 4), dtype=torch.float32)

    def work(rank):
        over, found = None, []
        for length, offsets, layout in layouts:
            x, dy = inputs(*[(1, length, 32)] * 2, dtype=torch.float32, seed=length)
            if over is None:
                over = lt.Ranks(None, length, cu_seqlens=offsets, capacity=(30, 6), **layout)
            else:
                over.change_layout(length, cu_seqlens=offsets, **layout)
            part = over.take(x, 1).requires_grad_()
            assert part.shape[1] == 30
            y, _ = lt.causal_conv1d(part, weight, cu_seqlens=torch.tensor(offsets), over=over)
            y.backward(over.take(dy, 1))
            found.append((over.shard.intervals(), y.detach(), part.grad))
        with pytest.raises(lathe.InvalidArgument, match="rank 0 holds 40 tokens; capacity_tokens is"):
            over.change_layout(100, cu_seqlens=[0, 50, 100], bounds=[0, 40, 60, 80, 100])
        return found

    results = over_ranks(WORLD, work)
    for i, (length, offsets, _) in enumerate(layouts):
        x, dy = inputs(*[(1, length, 32)] * 2, dtype=torch.float32, seed=length)
        x.requires_grad_()
        y, _ = lt.causal_conv1d(x, weight, cu_seqlens=torch.tensor(offsets))
        y.backward(dy)
        for each in results:
            intervals, part, grad = each[i]
            rows = torch.cat([torch.arange(0), *(torch.arange(b, e) for b, e in intervals)])
            assert torch.equal(part[:, :len(rows)], y[:, rows])
            # The gradient of a row that two ranks have terms of is rounded twice.
            assert torch.allclose(grad[:, :len(rows)], x.grad[:, rows], atol=1e-6, rtol=1e-5)


def test_groups_are_kept_and_flags_are_checked():
    def work(rank):
        assert lt.group() is lt.group()
        with pytest.raises(lathe.InvalidArgument, match='a flag is "ring"'):
            lt.Ranks(None, 8, flags=("ring",))
        return lt.group().rank

    assert over_ranks(WORLD, work) == list(range(WORLD))
