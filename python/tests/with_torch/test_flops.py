# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""FlopCounterMode counts lathe's operators: against pairs that are counted one by one, torch's own
formula of attention, and what the library says of the same problem (Plan.estimate)."""
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

import functions
import lathe.torch as lt
from lathe.torch._calls import _calls


def counted(function, *tensors):
    with FlopCounterMode(display=False) as counter:
        function(*tensors)
    return counter.get_total_flops()


def randn(*shape):
    return torch.randn(shape, dtype=torch.float16)


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def pairs_of(queries, keys, causal=False, left=-1, right=-1):
    """Counts the pairs that are kept, one by one."""
    right = 0 if causal else right
    kept = 0
    for row in range(queries):
        at = row + keys - queries
        kept += sum((right < 0 or key <= at + right) and (left < 0 or key >= at - left)
                    for key in range(keys))
    return kept


# ---- attention -----------------------------------------------------------------------------------

MASKS = ({}, {"causal": True}, {"window_left": 3}, {"window_right": 2}, {"window_left": 0},
         {"window_left": 5, "window_right": 1}, {"causal": True, "window_left": 4})


@pytest.mark.parametrize("queries, keys", ((9, 9), (5, 12), (12, 5), (1, 16)))
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_attention_counts_the_pairs_that_are_kept(queries, keys, mask):
    q, k, v = randn(2, queries, 4, 16), randn(2, keys, 2, 16), randn(2, keys, 2, 24)
    q.requires_grad_()
    names = {"window_left": "left", "window_right": "right"}
    pairs = 2 * 4 * pairs_of(queries, keys, **{names.get(n, n): each for n, each in mask.items()})
    assert counted(lambda: lt.flash_attention(q, k, v, **mask)) == pairs * 2 * (16 + 24)

    def both():
        lt.flash_attention(q, k, v, **mask)[0].sum().backward()

    # The backward has scores, dq and dk of width 16, dP and dv of width 24.
    assert counted(both) == pairs * 2 * (16 + 24) + pairs * 2 * (3 * 16 + 2 * 24)


def test_whole_attention_counts_as_torch_does():
    q, k, v = (randn(2, 32, 4, 16).requires_grad_() for _ in range(3))
    mine = counted(lambda: lt.flash_attention(q, k, v)[0].sum().backward())
    heads_first = [each.detach().transpose(1, 2) for each in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        forward = counted(scaled_dot_product_attention, *heads_first)
    assert mine == forward * 7 // 2  # torch's formula of a backward is five products to two


def test_packed_sequences_count_by_their_lengths():
    lengths = (3, 0, 7)
    q, cu = randn(10, 2, 16), offsets(*lengths)
    pairs = sum(pairs_of(each, each, causal=True) for each in lengths)
    found = counted(lambda: lt.flash_attention(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu,
                                               causal=True))
    assert found == 2 * pairs * 2 * 32


def test_lengths_that_cannot_be_read_count_as_one_sequence():
    with FakeTensorMode():
        q, cu = randn(10, 2, 16), torch.zeros(4, dtype=torch.int32)
        found = counted(lambda: lt.flash_attention(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu))
    assert found == 2 * 10 * 10 * 2 * 32


def test_decoding_counts_the_keys_of_the_cache():
    q, cache = randn(2, 1, 4, 16), randn(6, 8, 2, 16)
    table = torch.arange(6, dtype=torch.int32).view(2, 3)
    lengths = torch.tensor([5, 24], dtype=torch.int32)
    assert counted(lt.flash_attention_decode, q, cache, cache.clone(), table,
                   lengths) == 4 * (5 + 24) * 2 * 32


# ---- all operators beside the library ------------------------------------------------------------


class _Estimates:
    """Adds up what the library estimates of the calls that pass through torch.library."""

    def __init__(self, monkeypatch):
        self.flops = 0
        for call in _calls:
            for traced in call.traced.all:
                monkeypatch.setattr(traced, "_returned", self.noting(call, traced._returned))

    def noting(self, call, returned):
        def wrapped(made, tensors):
            named = {**dict(zip(call.inputs, tensors)), **dict(zip(call.outputs, made))}
            plan = call.table(self.options, *tensors).plan
            slots = [named[slot].detach() for slot in plan.slots]
            self.flops += plan.estimate(*slots)["flops"]
            return returned(made, tensors)
        return wrapped


# The library knows no lengths that are on the device: those rows are counted above.
ON_DEVICE = ("torch.flash_attention packed", "torch.flash_attention_decode")
ROWS = [row for row in functions.ROWS if row.module is lt and not str(row).startswith(ON_DEVICE)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_operators_count_what_the_library_estimates(row, monkeypatch):
    tensors = row.inputs(40)
    if row.gradients:
        tensors = {name: each.requires_grad_(each.is_floating_point())
                   for name, each in tensors.items()}
    estimates = _Estimates(monkeypatch)

    class Options(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator.namespace == "lathe":
                estimates.options = lt._traced.options_of_text(args[-1])
            return operator(*args, **(kwargs or {}))

    with Options(), FlopCounterMode(display=False) as counter:
        found = row.call(**tensors)
        for i in row.gradients:
            found[i].sum().backward(retain_graph=True)
    mine = sum(number for operator, number in counter.get_flop_counts()["Global"].items()
               if "lathe" in str(operator))
    assert mine == estimates.flops > 0


# ---- when the formulas are there -----------------------------------------------------------------

IMPORTS = """
import sys
import torch
{}
import lathe.torch
lathe.torch.use_simulator()
there = "torch.utils.flop_counter" in sys.modules
from torch.utils.flop_counter import FlopCounterMode
x, w = torch.ones(1, 8, 4), torch.ones(4, 3)
with FlopCounterMode(display=False) as counter:
    torch.ops.lathe.causal_conv1d(x, w, None, None, None, None, "")
print(there, counter.get_total_flops())
"""


def test_formulas_come_with_torch_module_in_either_order():
    for first, there in (("", False), ("import torch.utils.flop_counter", True)):
        run = [sys.executable, "-c", IMPORTS.format(first)]
        found = subprocess.run(run, capture_output=True, text=True)
        assert found.stdout == f"{there} {2 * 3 * 8 * 4}\n", found.stderr[-2000:]
