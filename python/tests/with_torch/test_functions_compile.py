# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every function of the table within torch.compile(fullgraph=True), forward and backward.

Inductor compiles C++ here, which takes seconds for a group, so one group has it and the others have
"aot_eager", with the same graphs, guards and shapes; LATHE_TEST_INDUCTOR=1 gives it to all.
test_compile_decoding.py has the steps of decoding.
"""
import os

import pytest
import torch
import torch._dynamo.testing

import functions
import lathe.torch as lt
from lathe import flex
from lathe.torch import _mod_trace
from differences import evaluate, leaves, same, upstream

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")
# In torch 2.6 a mod breaks the graph, so calls with one have no whole graph there.
BREAKING = [row for row in functions.TORCH if row.module is flex and not flex._GRAPHS]
GROUPS = {
    "torch": [row for row in functions.TORCH if not row.what and row not in BREAKING],
    "torch, variants": [row for row in functions.TORCH if row.what and row not in BREAKING],
    **({"mods": BREAKING} if BREAKING else {}),
    "serving": functions.SERVING,
    "adapters": functions.ADAPTERS,
    "fla": functions.FLA,
    "causal_conv1d": functions.CONV,
    "attention": functions.ATTENTION[:len(functions.ATTENTION) // 2],
    "more attention": functions.ATTENTION[len(functions.ATTENTION) // 2:],
}


ALL = os.environ.get("LATHE_TEST_INDUCTOR") == "1"
INDUCTOR = list(GROUPS) if ALL else ["torch"]


def together(rows, sizes, backend="aot_eager", **options):
    """Asserts that one graph with all rows gives what each gives in eager mode.

    Rows of BREAKING, which are in a group of their own, may be in more graphs than one.
    """
    def run(given):
        return [row.call(**each) for row, each in zip(rows, given)]

    torch._dynamo.reset()
    _mod_trace._texts.clear()  # mods are traced while the graph is
    compiled = torch.compile(run, fullgraph=rows is not BREAKING, backend=backend, **options)
    for n in sizes:
        tensors = [row.inputs(n) for row in rows]
        given = [leaves(each) for each in tensors]
        found = compiled(given)
        pairs = []
        for row, outputs in zip(rows, found):
            chosen = [outputs[i] for i in row.gradients]
            pairs += zip(chosen, upstream(chosen))
        if pairs:
            torch.autograd.backward(*zip(*pairs))
        for row, outputs, leaf, each in zip(rows, found, given, tensors):
            assert row.refusal or tuple(
                i for i, output in enumerate(outputs) if output is not None
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
    together(GROUPS[name], (9,), "inductor" if name in INDUCTOR else "aot_eager")


@pytest.mark.parametrize("name", INDUCTOR if ALL else ["torch, variants", "serving"])
def test_inductor_without_gradients(name):
    """Nothing is kept for a backward, and what is written in place is an input of the graph."""
    rows = GROUPS[name]
    torch._dynamo.reset()
    _mod_trace._texts.clear()
    compiled = torch.compile(lambda given: [row.call(**each) for row, each in zip(rows, given)],
                             fullgraph=True)
    given = [row.inputs() for row in rows]
    with torch.no_grad():
        for row, outputs, each in zip(rows, compiled(given), given):
            wanted = row.call(**each)
            assert len(outputs) == len(wanted), row
            same(([each for each in outputs if each is not None], {}),
                 ([each for each in wanted if each is not None], {}))


def _packed_by(function):
    return lambda x, cu: function(x, x, x, cu_seqlens_q=cu, cu_seqlens_k=cu)


ONE_FOR_MANY = {
    "flash_attention": lambda x, cu: _packed_by(lt.flash_attention)(x, cu)[0],
    "flash_attn_varlen_func": lambda x, cu: functions.flash_attn.flash_attn_varlen_func(
        x, x, x, cu, cu, 7, 7),
    "flash_attn_varlen_kvpacked_func":
        lambda x, cu: functions.flash_attn.flash_attn_varlen_kvpacked_func(
            x, torch.stack([x, x], 1), cu, cu, 7, 7),
    "flex_attention": lambda x, cu: flex.flex_attention(*[x.transpose(0, 1)[None]] * 3),
    "kda": lambda x, cu: lt.kda(*[x[None]] * 3, -x[None].abs(), x[None, :, :, 0].sigmoid())[0],
    "sparse_flash_attention": lambda x, cu: lt.sparse_flash_attention(
        x, x, x, torch.arange(4, dtype=torch.int32).expand(9, 2, 4), scale=0.2, cu_seqlens_q=cu,
        cu_seqlens_k=cu)[0],
}


@pytest.mark.parametrize("name", ONE_FOR_MANY)
def test_a_tensor_for_several_inputs(name):
    """As the offsets of queries and keys are where a sequence attends to itself."""
    call, cu = ONE_FOR_MANY[name], torch.tensor([0, 2, 9], dtype=torch.int32)
    x = torch.randn(9, 2, 16, generator=torch.Generator().manual_seed(2)).half()
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    gradients = []
    for each in (compiled, call):
        leaf = x.clone().requires_grad_()
        out = each(leaf, cu)
        out.backward(upstream([out])[0])
        gradients.append((out.detach(), leaf.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    # Gradients of one tensor are added in float16, in another order.
    same(([gradients[0][1]], {}), ([gradients[1][1]], {}), bound=1e-3)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_extents_that_vary(backend):
    """With symbols for extents one graph serves all lengths."""
    rows = [row for row in GROUPS["torch"] if "attention" in row.function and row.gradients
            and row.module is lt]
    together(rows, (9, 12), backend, dynamic=True)


@pytest.mark.parametrize("function", [lt.kda, lt.causal_conv1d], ids=lambda each: each.__name__)
def test_lengths_that_are_marked(function):
    """mark_dynamic makes an extent a symbol from the first call on: one graph for all lengths."""
    row = next(row for row in functions.TORCH if row.function == function.__name__)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(row.call, fullgraph=True, backend=counter)
    for n in (9, 12, 70):
        given = leaves(row.inputs(n))
        for name, each in given.items():
            if each.dim() > 2 and "state" not in name:
                torch._dynamo.mark_dynamic(each, 1)
        found = evaluate(row, given, call=compiled, gradients=given)
        same(found, evaluate(row, row.inputs(n)))
    assert counter.frame_count == 1
