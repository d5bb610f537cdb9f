# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of every function of the table against differences.

In float32 a function is compared with differences of itself. In 16 bits, where its rounding hides
differences, it is compared with itself in float32; without a float32, with differences of the same
attention in float64.
"""
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import functions
import lathe.torch as lt
from differences import errors, evaluate, leaves, relative_error, upstream
from lathe.compat import torch_cp
from threads import over_ranks

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")
BOUND = 3e-3
HALF = {torch.float16: 6e-3, torch.bfloat16: 2.5e-2}  # all below the 0.05 that must be found


def worst(row, gradients=None):
    """Returns the errors of a row's gradients, or of others given for them, by differences."""
    tensors = row.inputs()
    outputs, found = evaluate(row, tensors)
    chosen = [outputs[i] for i in row.gradients]
    given = found if gradients is None else gradients
    if row.full is None:
        tensors = {name: each.double() if each.is_floating_point() else each
                   for name, each in tensors.items()}
        return errors(row.exact, tensors, given, upstream(chosen))
    return errors(lambda **t: [row.call(**t)[i] for i in row.gradients], tensors, given,
                  upstream(chosen))


@pytest.mark.parametrize("row", functions.DIFFERENTIABLE, ids=str)
def test_differences(row):
    found = worst(row)
    assert found and max(found.values()) < BOUND, found


@pytest.mark.parametrize("row", [row for row in functions.DIFFERENTIABLE if row.full], ids=str)
def test_sixteen_bits(row):
    tensors = row.inputs(dtype=row.half)
    wide = {name: each.float() if each.is_floating_point() else each
            for name, each in tensors.items()}
    ups = upstream([row.call(**tensors)[i] for i in row.gradients])
    _, found = evaluate(row, tensors, given=ups)
    _, wanted = evaluate(row, wide, given=[each.float() for each in ups])
    off = {name: relative_error(found[name], each) for name, each in wanted.items()}
    assert max(off.values()) < HALF[row.half], off


# ---- errors that are planted ---------------------------------------------------------------------

_BY_NAME = {str(row): row for row in functions.ROWS}
PLANTED = [_BY_NAME[name] for name in ("torch.flash_attention", "torch.sparse_flash_attention",
                                       "torch.kda", "torch.causal_conv1d")]


@pytest.mark.parametrize("row", PLANTED, ids=str)
def test_a_wrong_factor_is_found(row):
    _, gradients = evaluate(row, row.inputs())
    found = worst(row, {name: 1.05 * each for name, each in gradients.items()})
    assert min(found.values()) > 10 * BOUND, found
    assert max(HALF.values()) < 0.05, "and so it is in 16 bits"


@pytest.mark.parametrize("row", [row for row in PLANTED if len(row.gradients) > 1], ids=str)
def test_a_missing_term_is_found(row):
    """The gradients of the first output alone are not those of both."""
    tensors = row.inputs()
    ups = upstream([row.call(**tensors)[i] for i in row.gradients])
    _, whole = evaluate(row, tensors, given=ups)
    _, part = evaluate(row, tensors, given=[ups[0], None])
    found = worst(row, part)
    missing = [name for name in whole if relative_error(part[name], whole[name]) > 0.05]
    assert missing and min(found[name] for name in missing) > 3 * BOUND, found


@pytest.mark.parametrize("row", PLANTED, ids=str)
def test_a_token_without_a_gradient_is_found(row):
    _, gradients = evaluate(row, row.inputs())
    name = next(iter(gradients))
    broken = gradients[name].clone()
    broken[:, -1] = 0
    assert worst(row, {name: broken})[name] > 10 * BOUND


# ---- over ranks ----------------------------------------------------------------------------------

WORLD, N = 2, 9


class _Mesh:
    """As much of a DeviceMesh as context parallelism asks for: threads cannot share a real one."""

    def size(self):
        return dist.get_world_size()

    def get_group(self):
        return dist.group.WORLD


def _context_parallel(ranks, q, k, v):
    with torch_cp.context_parallel(_Mesh(), buffers=[torch.zeros(1, N)], buffer_seq_dims=[1]):
        out = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)),
                                             is_causal=True)
    return out.transpose(1, 2)


OVER_RANKS = {
    "flash_attention": (lambda ranks, **t: lt.flash_attention(**t, causal=True, over=ranks)[0],
                        ("q", "k", "v"), functions.attention_inputs),
    "context_parallel": (_context_parallel, ("q", "k", "v"),
                         lambda n, t: functions.attention_inputs(n, t, heads=4)),
    "kda": (lambda ranks, **t: lt.kda(**t, over=ranks)[0], ("q", "k", "v", "g", "beta"),
            functions.kda_inputs),
    "causal_conv1d": (lambda ranks, **t: lt.causal_conv1d(**t, over=ranks)[0], ("x", "weight"),
                      functions.conv_inputs),
}


def _over_two(call, tensors, up=None):
    """Returns (the whole output, gradients by name); each rank holds contiguous tokens."""
    def work(rank):
        ranks = lt.Ranks(None, N)
        local = leaves({name: each if name == "weight" else ranks.take(each, 1)
                        for name, each in tensors.items()})
        out = call(ranks, **local)
        if up is not None:
            out.backward(ranks.take(up, 1))
        return out.detach(), {name: each.grad for name, each in local.items()}

    outs, found = zip(*over_ranks(WORLD, work))
    if up is None:
        return torch.cat(outs, 1), {}
    return torch.cat(outs, 1), {
        name: sum(each[name] for each in found) if name == "weight"
        else torch.cat([each[name] for each in found], 1) for name in tensors}


@pytest.mark.parametrize("name", OVER_RANKS)
def test_differences_over_ranks(name):
    call, names, make = OVER_RANKS[name]
    row = functions.Row(lt, name, functions.only(lambda n, t: {
        each: tensor[:, :n] if tensor.dim() > 2 else tensor
        for each, tensor in make(n, t).items()}, *names), call)
    tensors = row.inputs(N)
    (up,) = upstream([_over_two(call, tensors)[0]])
    _, gradients = _over_two(call, tensors, up)
    found = errors(lambda **t: (_over_two(call, t)[0],), tensors, gradients, (up,), directions=1)
    assert max(found.values()) < BOUND, found
