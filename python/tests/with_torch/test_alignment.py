# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Views that begin at any element: results are those of aligned tensors, and copies are counted."""
import pytest
import torch

import lathe
import lathe.torch as lt

COPIED = "copied to an aligned place"


def shifted(tensor):
    """Returns an equal tensor that begins one element into its storage."""
    found = tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.shape)
    return found.copy_(tensor)


def draw(*shape):
    return torch.randn(shape).bfloat16()


def kda(q, k, v, g, beta):
    return lt.kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True)


def kda_recurrent(q, k, v, g, beta):
    return lt.kda_recurrent(q, k, v, g, beta, use_qk_l2norm_in_kernel=True,
                            use_beta_sigmoid_in_kernel=True)


def sparse(q, k, v):
    lists = torch.arange(8, dtype=torch.int32).expand(1, 20, 2, 8).contiguous()
    return lt.sparse_flash_attention(q, k, v, lists, scale=0.25)


def attention(q, k, v):
    return lt.flash_attention(q, k, v)


def inputs(function):
    torch.manual_seed(0)
    found = {name: draw(1, 20, 2, 16) for name in ("q", "k", "v")}
    if "kda" in function.__name__:
        found.update(g=-torch.rand(1, 20, 2, 16), beta=draw(1, 20, 2))
    return found


@pytest.mark.parametrize("function,copied", [
    (kda, ("q", "k", "v", "g")), (kda_recurrent, ()), (sparse, ("q", "k", "v")), (attention, ())])
def test_each_tensor(function, copied):
    given = inputs(function)
    want = function(**given)[0]
    for name in given:
        lt.stats(reset=True)
        found = function(**{**given, name: shifted(given[name])})[0]
        # Kernels of another family, where the alignment chooses one, round otherwise.
        torch.testing.assert_close(found, want, rtol=2e-2, atol=2e-2)
        assert lt.stats().get(COPIED, 0) == (name in copied), name


def test_a_gradient_of_a_view():
    given = {name: shifted(each).requires_grad_() for name, each in inputs(kda).items()}
    other = {name: each.requires_grad_() for name, each in inputs(kda).items()}
    for tensors in (given, other):
        kda(**tensors)[0].float().square().sum().backward()
    for name in given:
        torch.testing.assert_close(given[name].grad, other[name].grad, rtol=2e-2, atol=2e-2)


def test_the_table_says_who_needs_what():
    table = lathe.operators()
    assert {name: op.least_alignment for name, op in table.items() if op.least_alignment > 1} == {
        "kda": 8, "sparse_flash_attention": 16}
    assert not table["kda"].tensors["beta"].wide and table["kda"].tensors["q"].wide
