# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.flex over several calls: nothing is stale, numbers that vary compile once; block lists."""
import functools
import os
import types

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask

import lathe
import lathe.torch
from lathe.flex import flex_attention
from flex_reference import reference

S = 24


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


Q, K, V = (randn(1, 2, S, 16, seed=i) for i in range(3))


def wide(mod=None, mask=None, q=Q, k=K, v=V):
    return reference(q.double(), k.double(), v.double(), mod, mask)[0]


def close(found, wanted):
    assert (found.double() - wanted).abs().max() < 1e-5


# ---- what a mod reads ----------------------------------------------------------------------------


class Slots:
    __slots__ = ("w",)


class Reader:
    """Has the number in a place of each kind; put() changes it there."""

    def __init__(self):
        self.slots, self.names, self.tensor = Slots(), types.SimpleNamespace(), torch.zeros(2)
        self.dict, self.list, self.module = {}, [[0.0]], types.ModuleType("numbers_of_a_test")
        self.numbers = self.again = None

    def put(self, w):
        self.slots.w = self.names.w = self.module.w = self.dict["w"] = self.list[0][0] = w
        self.tensor.fill_(w)
        self.numbers = iter([w] * 3)
        os.environ["LATHE_TEST_W"] = repr(w)
        type(self).of_class = w

    @property
    def computed(self):
        return type(self).of_class


WAYS = {
    "an attribute": lambda r: r.names.w,
    "a slot": lambda r: r.slots.w,
    "an attribute of a module": lambda r: r.module.w,
    "a dictionary": lambda r: r.dict["w"],
    "a nested list": lambda r: r.list[0][0],
    "a property": lambda r: r.computed,
    "the environment": lambda r: float(os.environ["LATHE_TEST_W"]),
    "an iterator": lambda r: next(r.numbers),
    "item()": lambda r: r.tensor[0].item(),
    "float()": lambda r: float(r.tensor[1]),
    "tolist()": lambda r: r.tensor.tolist()[0],
    "numpy()": lambda r: float(r.tensor.numpy()[0]),
    "an element": lambda r: r.tensor[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_stale(way):
    reader, read = Reader(), WAYS[way]

    def mod(score, b, h, i, j):
        return score + read(reader) * j

    def through_a_method(self, score, b, h, i, j):
        return mod(score, b, h, i, j)

    for function in (mod, types.MethodType(through_a_method, reader), functools.partial(mod)):
        for w in (0.25, -0.375, 0.5):
            reader.put(w)
            close(flex_attention(Q, K, V, function), wide(lambda s, b, h, i, j: s + w * j))


def test_a_mod_runs_once_a_call():
    """Its gradient is of the same run: an iterator has not moved on."""
    numbers = iter([2.0, 3.0])
    for w in (2.0, 3.0):
        q = Q.clone().requires_grad_()
        flex_attention(q, K, V, lambda s, b, h, i, j: s * next(numbers) + s * s).sum().backward()
        exact = Q.double().requires_grad_()
        wide(lambda s, b, h, i, j: s * w + s * s, q=exact).sum().backward()
        close(q.grad, exact.grad)


def test_gradients_that_a_mod_says_itself():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def mod(score, b, h, i, j):
        with torch.no_grad():
            fixed = score * 3
        return Twice.apply(score) + fixed.detach() * 0.25

    def same(score, b, h, i, j):
        return score * 2 + score.detach() * 0.75

    grads = []
    for q, function in ((Q.clone(), mod), (Q.clone(), same)):
        q.requires_grad_()
        flex_attention(q, K, V, function).sum().backward()
        grads.append(q.grad)
    assert torch.allclose(*grads, atol=1e-6)


def test_a_score_changed_in_place():
    def mod(score, b, h, i, j):
        score += 0.5 * j
        return score.mul_(2)

    close(flex_attention(Q, K, V, mod), wide(lambda s, b, h, i, j: (s + 0.5 * j) * 2))

    def of_a_view(score, b, h, i, j):
        score.view(()).add_(1)
        return score

    with pytest.raises(lathe.Unsupported, match="something else reads too.*test_flex_calls.py"):
        flex_attention(Q, K, V, of_a_view)
    table = torch.zeros(S)
    with pytest.raises(lathe.Unsupported, match="changes a tensor"):
        flex_attention(Q, K, V, lambda s, b, h, i, j: table.add_(s)[j])


@pytest.mark.parametrize("ask", [
    lambda i: i.item(), lambda i: i.tolist(), lambda i: 1 if i else 0, lambda i: int(i),
    lambda i: float(i), lambda i: i.numpy().sum()], ids=range(6))
def test_an_index_has_no_value(ask):
    with pytest.raises((lathe.Unsupported, RuntimeError, TypeError, ValueError)):
        flex_attention(Q, K, V, lambda s, b, h, i, j: s + ask(i))


# ---- numbers -------------------------------------------------------------------------------------


def compiled_texts(calls):
    """Returns how many texts each call wrote."""
    found = []
    for call in calls:
        lathe.torch.stats(reset=True)
        call()
        found.append(lathe.torch.stats(reset=True).get("wrote the text of a mod", 0))
    return found


def test_an_offset_that_grows_is_compiled_twice():
    def step(offset, exact=True):
        def mod(score, b, h, i, j):
            return torch.where(i + offset >= j, score * 0.5, score - slope) * 1.5
        slope = 1 / offset
        found = flex_attention(Q, K, V, mod)
        if exact:  # else the number wraps to int32, which the reference's int64 do not
            close(found, wide(mod))

    offsets = [3, 5, -4, 2**24 + 1, 2**31 - 99, 9]
    assert compiled_texts([functools.partial(step, each) for each in offsets]) == [
        1, 1, 0, 0, 0, 0]
    assert compiled_texts([functools.partial(step, 2**33, False)]) == [1], "another type"


def test_a_number_beside_four_captures_is_compiled_each_time():
    tables = [randn(S, seed=9 + i) for i in range(4)]

    def step(w):
        def mod(score, b, h, i, j):
            return score + tables[0][i] + tables[1][j] + tables[2][i] - tables[3][j] + w * j
        close(flex_attention(Q, K, V, mod), wide(mod))

    weights = (0.5, 0.25, 0.125, 0.25)
    assert compiled_texts([functools.partial(step, w) for w in weights]) == [1, 1, 1, 0]


def test_ints_are_exact():
    for number in (16777217, 16777219, 2147483647):  # float32 has none of them
        values = torch.tensor([number, number - 1] * (S // 2), dtype=torch.int32)

        def mod(score, b, h, i, j):
            return torch.where(values[j] == number, score, -float("inf"))
        close(flex_attention(Q, K, V, mod), wide(mod))


def test_lengths_of_captures_compile_once():
    def step(n):
        q, k, v = (randn(1, 2, n, 16, seed=i) for i in range(3))
        bias, starts = randn(2, 2 * n, seed=4), torch.arange(n, dtype=torch.int32) - n // 2

        def mod(score, b, h, i, j):
            return score + bias[h, i - j] + starts[j]  # negative ones count from the end
        close(flex_attention(q, k, v, mod), wide(mod, q=q, k=k, v=v))

    assert compiled_texts([functools.partial(step, n) for n in (20, 21, 22, 25)]) == [1, 1, 0, 0]


def test_rows_of_one_table_are_one_capture():
    table = randn(8, S, seed=5)
    columns, strided = table.t(), randn(S, 6, seed=6)[:, ::2]
    lathe.torch.stats(reset=True)

    def mod(score, b, h, i, j):
        rows = table[0][i] + table[1][j] + table[2, i] + table[3, j] + table[4][5] + table[-1][i]
        return score + rows + columns[j][3] + strided[i, h]

    close(flex_attention(Q, K, V, mod), wide(
        lambda s, b, h, i, j: s + table[0][i] + table[1][j] + table[2, i] + table[3, j]
        + table[4][5] + table[-1][i] + columns[j][..., 3] + strided[i, h]))
    assert "copied a capture" not in lathe.torch.stats(reset=True)


def test_indices_from_a_tensor():
    """-1 is the last element, as in torch; what lies outside is 0 and never read."""
    places = torch.tensor([-1, 0, 3, -S] * (S // 4), dtype=torch.int32)
    table = randn(S, seed=7)

    def mod(score, b, h, i, j):
        return score + table[places[j]]
    close(flex_attention(Q, K, V, mod), wide(lambda s, b, h, i, j: s + table[places[j].long()]))
    places[5], places[6] = 10**6, -10**6
    inside = table[places.clamp(-S, S - 1).long()] * (places.abs() <= S)
    close(flex_attention(Q, K, V, mod), wide(lambda s, b, h, i, j: s + inside[j]))


# ---- lists of blocks -----------------------------------------------------------------------------


def listed(kept, full=None, block=(8, 4), mod=None, junk=-7):
    """Returns a BlockMask with lists for tables [B,H,rows,columns], and entries behind them."""
    def lists(table):
        count = table.sum(-1).to(torch.int32)
        order = torch.argsort(table.to(torch.int32), dim=-1, descending=True, stable=True)
        behind = torch.arange(table.shape[-1]) >= count[..., None]
        return count, order.to(torch.int32).masked_fill(behind, junk)

    given = (*lists(kept), *(lists(full) if full is not None else ()))
    return BlockMask.from_kv_blocks(*given, BLOCK_SIZE=block, mask_mod=mod, seq_lengths=(S, S))


def causal(b, h, i, j):
    return i >= j


@pytest.mark.parametrize("extents", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("mod", [None, causal])
def test_lists_restrict(extents, mod):
    q, k, v = (randn(2, 2, S, 16, seed=i) for i in range(3))
    rows, columns = S // 8, S // 4
    states = torch.randint(0, 3, (*extents, rows, columns),
                           generator=torch.Generator().manual_seed(8))
    states[..., 1, :] = 0  # rows of queries without a block
    mask = listed(states == 1, states == 2, mod=mod)
    wider = states.repeat_interleave(8, -2).repeat_interleave(4, -1)
    dense = (wider == 2) | (wider == 1) & (True if mod is None else torch.ones(S, S).tril().bool())
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    out = flex_attention(*leaves, block_mask=mask)
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    wanted = reference(*exact, mask=lambda *unused: dense)[0]
    close(out, wanted)
    out.square().sum().backward()
    wanted.square().sum().backward()
    for leaf, each in zip(leaves, exact):
        close(leaf.grad, each.grad.nan_to_num())


def test_lists_that_change_in_place():
    kept = torch.eye(3, 6, dtype=torch.bool)[None, None]
    mask = listed(kept)
    before = flex_attention(Q, K, V, block_mask=mask)
    mask.kv_indices[0, 0, 0, 0] = 3
    after = flex_attention(Q, K, V, block_mask=mask)
    assert torch.equal(before[:, :, 8:], after[:, :, 8:]) and not torch.equal(before, after)


def test_refused_lists():
    mask = listed(torch.ones(1, 1, 3, 6, dtype=torch.bool))
    assert mask.mask_mod is noop_mask
    for q, k, words in ((Q[:, :, :20], K, "24 queries; the call has 20"),
                        (Q, K[:, :, :20], "24 keys; the call has 20"),
                        (Q.expand(3, -1, -1, -1), K.expand(3, -1, -1, -1), None)):
        if words is None:
            flex_attention(q, k, k, block_mask=mask)
            continue
        with pytest.raises(lathe.InvalidArgument, match=words):
            flex_attention(q, k, k, block_mask=mask)
    short = listed(torch.ones(1, 1, 2, 6, dtype=torch.bool))
    with pytest.raises(lathe.InvalidArgument, match="2 rows of 8 queries"):
        flex_attention(Q, K, V, block_mask=short)
    two = listed(torch.ones(2, 1, 3, 6, dtype=torch.bool))
    with pytest.raises(lathe.InvalidArgument, match="2 batches; allowed are 1 and 3"):
        flex_attention(*(each.expand(3, -1, -1, -1) for each in (Q, K, V)), block_mask=two)


# ---- torch.compile -------------------------------------------------------------------------------

WHOLE = lathe.flex._GRAPHS  # in torch 2.6 a mod breaks the graph

def test_compiled_offsets_and_lengths():
    """As with torch's own: a number that varies is a symbol from its second value on."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: flex_attention(*given), fullgraph=WHOLE)
    graphs = torch._dynamo.utils.counters["stats"]
    graphs.clear()

    def mask_from(offset):
        return create_block_mask(lambda b, h, i, j: i + offset >= j, None, None, S, S,
                                 device="cpu")

    bias, made = randn(2, 2 * S, seed=9), []
    for offset in (2, 3, 5, 11):
        def mod(score, b, h, i, j):
            return score + bias[h, i - j + S]
        leaves = [each.clone().requires_grad_() for each in (Q, K, V)]
        exact = [each.double().requires_grad_() for each in (Q, K, V)]
        out = compiled(*leaves, mod, mask_from(offset))
        wanted = reference(*exact, mod, lambda b, h, i, j: i + offset >= j)[0]
        close(out, wanted)
        out.square().sum().backward()
        wanted.square().sum().backward()
        for leaf, each in zip(leaves, exact):
            close(leaf.grad, each.grad)
        made.append(graphs["unique_graphs"])
    assert made == [1, 2, 2, 2] or not WHOLE


def test_compiled_lengths():
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: flex_attention(*given), fullgraph=WHOLE,
                             dynamic=True)
    for n in (20, 23, 31):
        q, k, v = (randn(1, 2, n, 16, seed=i).requires_grad_() for i in range(3))
        bias = randn(2, 2 * n, seed=9)
        out = compiled(q, k, v, lambda s, b, h, i, j: s + bias[h, i - j],
                       create_block_mask(causal, None, None, n, n, device="cpu"))
        close(out, wide(lambda s, b, h, i, j: s + bias[h, i - j], causal, q, k, v))
        out.sum().backward()


def test_compiled_mods_are_not_stale():
    """A mod that reads an attribute is guarded as other code is."""
    torch._dynamo.reset()
    holder = types.SimpleNamespace(w=0.5)
    compiled = torch.compile(lambda q: flex_attention(
        q, K, V, lambda s, b, h, i, j: s + holder.w * j), fullgraph=WHOLE)
    for w in (0.5, -0.25, 0.125):
        holder.w = w
        close(compiled(Q), wide(lambda s, b, h, i, j: s + w * j))
