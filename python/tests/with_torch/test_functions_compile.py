# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every function of the table within torch.compile(fullgraph=True), forward and backward.

The backend is "aot_eager": it has the graphs, the guards and the shapes of "inductor", and nothing
is compiled by a C++ compiler. What inductor adds is how operators are called with the strides that
they need; one case has it.
"""
import pytest
import torch

import functions
import lathe.torch as lt
from lathe.torch import _mod_trace
from differences import evaluate, leaves, same, upstream

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")
GROUPS = {
    "torch": [row for row in functions.TORCH if not row.what],
    "torch, variants": [row for row in functions.TORCH if row.what],
    "fla": functions.FLA,
    "causal_conv1d": functions.CONV,
    "attention": functions.ATTENTION[:len(functions.ATTENTION) // 2],
    "more attention": functions.ATTENTION[len(functions.ATTENTION) // 2:],
}


def together(rows, sizes, **options):
    """Asserts that one graph with all rows gives what each gives in eager mode."""
    def run(given):
        return [row.call(**each) for row, each in zip(rows, given)]

    torch._dynamo.reset()
    _mod_trace._texts.clear()  # mods are traced while the graph is
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", **options)
    for n in sizes:
        tensors = [row.inputs(n) for row in rows]
        given = [leaves(each) for each in tensors]
        found = compiled(given)
        pairs = []
        for row, outputs in zip(rows, found):
            chosen = [outputs[i] for i in row.gradients]
            pairs += zip(chosen, upstream(chosen))
        torch.autograd.backward(*zip(*pairs))
        for row, outputs, leaf, each in zip(rows, found, given, tensors):
            assert tuple(i for i, output in enumerate(outputs) if output is not None
                         and output.requires_grad) == row.gradients, row
            gradients = {name: tensor.grad for name, tensor in leaf.items()
                         if tensor.requires_grad and row.gradients}
            plain = [output.detach() for output in outputs if output is not None]
            outputs, wanted = evaluate(row, each)
            same((plain, gradients), (outputs, wanted if row.gradients else {}))


def test_groups_are_whole():
    grouped = [str(row) for rows in GROUPS.values() for row in rows]
    assert sorted(grouped) == sorted(map(str, functions.ROWS))


@pytest.mark.parametrize("name", GROUPS)
def test_compiled(name):
    together(GROUPS[name], (9,))


def test_extents_that_vary():
    """With symbols for extents one graph serves all lengths."""
    rows = [row for row in GROUPS["torch"] if "attention" in row.function and row.gradients
            and row.module is lt]
    together(rows, (9, 12), dynamic=True)


def test_inductor():
    x, weight = torch.randn(2, 9, 32).requires_grad_(), torch.randn(32, 4).requires_grad_()

    def run(x, weight):
        return lt.causal_conv1d(x[:, 2:], weight, activation="silu")[0]

    torch._dynamo.reset()
    wanted = run(x, weight)
    found = torch.compile(run, fullgraph=True, backend="inductor")(x, weight)
    up = torch.randn(found.shape)
    for pair in zip((found, *torch.autograd.grad(found, (x, weight), up)),
                    (wanted, *torch.autograd.grad(wanted, (x, weight), up))):
        assert torch.equal(*pair)
