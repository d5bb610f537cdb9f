# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.flex under torch.compile: whatever a mod closes over, and how often that compiles.

A number is a literal at first, as with torch's own, and a symbol from its second value on. It may
be computed from others, within the mod or outside, and from the lengths of tensors.
"""
import math
import types

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import lathe
from lathe.flex import flex_attention

WHOLE = lathe.flex._GRAPHS  # in torch 2.6 a mod breaks the graph
S = 24
LENGTHS = (20, 23, 31, 24)
FLOATS, INTS = (0.5, 0.25, 2.0, 1.5), (3, 5, 4, 9)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def qkv(length=S):
    return [randn(1, 2, length, 16, seed=i) for i in range(3)]


def graphs_of(function, calls, *, whole=WHOLE, dynamic=None, gradient=False):
    """Returns how many graphs there were after each call, whose results are right."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters["stats"]
    counters.clear()
    compiled, made = torch.compile(function, backend="aot_eager", fullgraph=whole,
                                   dynamic=dynamic), []
    for given in calls:
        results = []
        for run in (function, compiled):
            leaves = [each.clone().requires_grad_(gradient) for each in given[:3]]
            results.append([run(*leaves, *given[3:])])
            if gradient:
                results[-1][0].square().sum().backward()
                results[-1] += [each.grad for each in leaves]
        for eager, found in zip(*results):
            assert torch.allclose(found, eager, rtol=1e-5, atol=1e-6)
        made.append(counters["unique_graphs"])
    return made


# ---- numbers -------------------------------------------------------------------------------------

# How a mod's text has the number w, and the values that it takes.
NUMBERS = {
    "a float": (lambda w, s, i, j: s * s + w * j, FLOATS),
    "twice": (lambda w, s, i, j: s * w - w * j, FLOATS),
    "a sum within": (lambda w, s, i, j: s + (w * 2 + 1) * j, FLOATS),
    "a root": (lambda w, s, i, j: s + math.sqrt(w) * j, FLOATS),
    "where": (lambda w, s, i, j: torch.where(i >= j, s, w), FLOATS),
    "clamp": (lambda w, s, i, j: s.clamp(-w, w), FLOATS),
    "a power": (lambda w, s, i, j: s + (j + 1) ** w, (0.5, 1.5, 2.5, 3.5)),  # torch asks for 2.0
    "tensor()": (lambda w, s, i, j: s + torch.tensor(w) * j, FLOATS),
    "full()": (lambda w, s, i, j: s + torch.full((), w) * j, FLOATS),
    "returned": (lambda w, s, i, j: w, FLOATS),
    "an int": (lambda w, s, i, j: s + w * j, INTS),
    "quotients": (lambda w, s, i, j: s + j // w + 1 / w, INTS),
    "computed ints": (lambda w, s, i, j: s + max(w, 4) * j + (w // 2) * i - w % 3, INTS),
    "an exact int": (lambda w, s, i, j: torch.where(i + w > j + w - 1, s, -2.0),
                     (2**24 + 1, 2**24 + 3, 2**31 - 99, 9)),
}


@pytest.mark.skipif(not WHOLE, reason="in torch 2.6 a mod breaks the graph")
@pytest.mark.parametrize("way", NUMBERS)
def test_numbers_compile_twice(way):
    mod, values = NUMBERS[way]
    holder = types.SimpleNamespace()

    def calls():
        for holder.w in values:
            yield qkv()

    def attend(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: mod(holder.w, s, i, j))
    gradient = way in ("a float", "twice", "an int")
    assert graphs_of(attend, calls(), gradient=gradient) == [1, 2, 2, 2]


def test_an_int_beyond_int32_has_another_type():
    def attend(q, k, v, n):
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(
            j.to(torch.int64) * 2**31 > n, s, -2.0))
    made = graphs_of(attend, [(*qkv(), n) for n in (3, 5, 2**33, 2**34, 2**35 + 1)])
    assert made == [1, 2, 3, 3, 3] or not WHOLE


@pytest.mark.parametrize("n", [torch.tensor(3), torch.tensor(0.75), torch.tensor([0.5, 1.5])],
                         ids=["int", "float", "element"])
@pytest.mark.parametrize("mod", [
    lambda n, s, i, j: s + n.view(-1)[-1].item() * j,
    lambda n, s, i, j: s + torch.full((), n.view(-1)[-1].item()) * j,
    lambda n, s, i, j: n.view(-1)[-1].item()], ids=["number", "full", "returned"])
def test_item_is_computed_in_the_graph(n, mod):
    def attend(q, k, v, n):
        return flex_attention(q, k, v, lambda s, b, h, i, j: mod(n, s, i, j))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        made = graphs_of(attend, [(*qkv(), n * factor) for factor in (1, 2, 3)])
    assert made == [1, 1, 1] or not WHOLE


def test_a_mod_that_breaks_the_graph_is_called_without_it():
    def attend(q, k, v, n):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + n.item() * j)
    graphs_of(attend, [(*qkv(), torch.tensor(n)) for n in (3.0, 5.0)], whole=False, gradient=True)


def test_a_number_in_a_tensor_of_the_processor():
    """As torch's operators take a tensor without dimensions, wherever the others are."""
    def attend(q, n):
        return flex_attention(q, q, q, lambda s, b, h, i, j: s + n * j)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=WHOLE)
    query = torch.empty(1, 2, S, 16, device="meta")
    assert compiled(query, torch.tensor(0.5)).device.type == "meta"


# ---- lengths -------------------------------------------------------------------------------------


def of_lengths(n, s, i, j):
    return (s + max(n, 24) * j + n * n - n // 3 + n % 5 + min(n, 23) - n / 7 + math.sqrt(n)
            + int(n * 0.5) * i) * 0.01


def table_of(made, pick=lambda t, i, j: t[i, j]):
    def attend(q, k, v):
        table = made(q.shape[2])
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + pick(table, i, j) * 0.1)
    return attend


def of_blocks(q, k, v):
    n = q.shape[2]
    bias = torch.ones(2, 2 * n).cumsum(1)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu",
                             BLOCK_SIZE=16)
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i - j], mask)


def outside(q, k, v):
    n, root = max(q.shape[2], 24), math.sqrt(q.shape[2])
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + n * j / root)


COMPUTED = {
    "within a mod": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: of_lengths(q.shape[2], s, i, j)),
    "outside": outside,
    "a scale": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + j,
                                              scale=1 / math.sqrt(q.shape[2])),
    "the greater of two": table_of(lambda n: torch.arange(max(n, 24)), lambda t, i, j: t[j]),
    "a square": table_of(lambda n: torch.ones(n * (n + 1)).cumsum(0).view(n, n + 1)),
    "a quotient": table_of(lambda n: torch.ones(max(n, 24), 30 - (-n // 8)).cumsum(1)),
    "transposed": table_of(lambda n: torch.ones(max(n, 24), 2 * n).cumsum(1).t()),
    "every second": table_of(lambda n: torch.ones(n + 3, 2 * n).cumsum(1)[:, ::2]),
    "from the end": table_of(lambda n: torch.ones(n + 3).cumsum(0),
                             lambda t, i, j: t[t.shape[0] - 1 - j] + t[t.shape[0] - 2]),
    "blocks": of_blocks,
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static first", "dynamic"])
@pytest.mark.parametrize("way", COMPUTED)
def test_numbers_of_lengths(way, dynamic):
    made = graphs_of(COMPUTED[way], [qkv(n) for n in LENGTHS], dynamic=dynamic,
                     gradient=way in ("within a mod", "transposed", "blocks"))
    if WHOLE and way != "a scale":  # which is an option of a plan, one for each value
        assert made == ([1] * 4 if dynamic else [1, 2, 2, 2])


def test_another_trace_leaves_nothing():
    """The text of a mod is kept over traces, whose symbols mean nothing to each other."""
    def attend(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + q.shape[2] * j * 0.125)
    for dynamic in (True, None, True):
        flex_attention(*qkv(), lambda s, b, h, i, j: s + S * j * 0.125)
        made = graphs_of(attend, [qkv(n) for n in (S, 23, 31)], dynamic=dynamic)
        assert made == ([1, 1, 1] if dynamic else [1, 2, 2]) or not WHOLE


# ---- views of one tensor -------------------------------------------------------------------------


def parts_of_one(x):
    q, k, v = x.view(1, x.shape[1], 3, 2, 16).permute(2, 0, 3, 1, 4)
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + 0.1 * j)


def detached_rows(q, k, v):
    row = q.detach()[0, 1, :, 3]
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + row[i])


def given(q, k, v):
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + 0.1 * j)


VIEWS = {
    "query, key and value": (parts_of_one, lambda n: [randn(1, n, 96)]),
    "they are given": (given, lambda n: randn(3, 1, 2, n, 16).unbind(0)),
    "a row of the query": (detached_rows, qkv),
}


@pytest.mark.parametrize("way", VIEWS)
def test_views_of_one_tensor(way):
    function, of_length = VIEWS[way]
    graphs_of(function, [of_length(n) for n in (20, 21, 22)], gradient=True)


def test_rows_of_one_table():
    table = randn(2, 40, seed=7)

    def attend(q, k, v, table):
        first, second = table[0], table[1]
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + first[i] - second[j])
    graphs_of(attend, [(*qkv(n), table) for n in (20, 21, 22)])
