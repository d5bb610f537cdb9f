# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Views whose memory holds the negative of their values: torch's negative bit."""
import pytest
import torch

import functions
import lathe
import lathe.torch as lt
from differences import evaluate, same

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")


def negated(tensor):
    """Returns a tensor with the same values and the bit, in one piece of memory."""
    return torch._neg_view(tensor.detach().neg())


def imaginary(tensor):
    """Returns a tensor with the same values, as the imaginary part of a conjugate."""
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


@pytest.mark.parametrize("row", functions.ROWS, ids=str)
def test_values_are_read(row):
    plain = row.inputs()
    changed = [name for name in plain if "cache" in name or "state" in name or name == "pool"]
    given = {name: negated(each) if each.is_floating_point() and name not in changed else each
             for name, each in plain.items()}
    gradients = {name: each.requires_grad_(each.is_floating_point())
                 for name, each in given.items()}
    same(evaluate(row, gradients, gradients=gradients), evaluate(row, plain))


def test_imaginary_parts_are_copied_once():
    q, k, v = (torch.randn(1, 8, 2, 16) for _ in range(3))
    wanted = lt.flash_attention(q, k, v)[0]
    lt.stats(reset=True)
    assert torch.equal(lt.flash_attention(imaginary(q), k, v)[0], wanted)
    assert lt.stats(reset=True) == {"resolved a negative view": 1}


def test_a_negative_state_is_refused():
    x, weight = torch.randn(2, 32), torch.randn(32, 4)
    with pytest.raises(lathe.Unsupported, match="state is written in place and is a negative view"):
        lt.causal_conv1d_update(x, negated(torch.randn(2, 32, 4)), weight)


def test_complex_tensors_are_refused():
    q = torch.randn(1, 8, 2, 16, dtype=torch.complex64)
    for given in (q, q.conj()):
        with pytest.raises((lathe.InvalidArgument, RuntimeError, BufferError)):  # torch before 2.10
            lt.flash_attention(given, given, given)
