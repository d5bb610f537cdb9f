# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors without values and without elements through every function of the table."""
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import functions
import lathe
import lathe.torch as lt
from differences import leaves

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")


def shapes(outputs):
    return [None if each is None else (tuple(each.shape), each.dtype) for each in outputs]


@pytest.mark.parametrize("row", functions.ROWS, ids=str)
def test_fake(row):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        found = row.call(**{name: mode.from_tensor(each) for name, each in row.inputs().items()})
    assert shapes(found) == shapes(row.call(**row.inputs()))


@pytest.mark.parametrize("row", functions.ROWS, ids=str)
def test_meta(row):
    """Outputs of the right shapes; where the row's call has tensors of the CPU, one sentence."""
    tensors = {name: each.to("meta") for name, each in row.inputs().items()}
    try:
        found = row.call(**tensors)
    except (lathe.InvalidArgument, RuntimeError) as error:
        assert "device" in str(error) and len(str(error).splitlines()) == 1
        return
    assert all(each is None or each.is_meta for each in found)
    assert shapes(found) == shapes(row.call(**row.inputs()))


@pytest.mark.parametrize("row", [row for row in functions.TORCH if row.gradients
                                 and row.module is lt and not row.what], ids=str)
def test_meta_has_gradients(row):
    tensors = {name: each.to("meta").requires_grad_(each.is_floating_point())
               for name, each in row.inputs().items()}
    outputs = row.call(**tensors)
    torch.autograd.backward([outputs[i] for i in row.gradients],
                            [torch.empty_like(outputs[i]) for i in row.gradients])
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            assert tensor.grad.is_meta and tensor.grad.shape == tensor.shape, name


# Extents of these inputs do not follow from the batch or the tokens.
_WHOLE = ("weight", "bias", "A_log", "dt_bias", "sinks", "k_cache", "v_cache", "learnable_sink",
          "conv_weight", "conv_pool", "state_pool", "norm_weight")


@pytest.mark.parametrize("dim, what", [(0, "batch"), (1, "tokens")])
@pytest.mark.parametrize("row", [row for row in functions.TORCH if row.module is lt
                                 and "packed" not in row.what], ids=str)
def test_empty(row, dim, what):
    if dim == 1 and row.function in ("causal_conv1d_update", "kda_decode",
                                     "sparse_flash_attention"):
        dim = 0  # the first two have no tokens, and kernels of the last read lists of topk > 0
    tensors = {name: each if name in _WHOLE or (dim == 1 and "state" in name) or each.dim() <= dim
               else each.narrow(dim, 0, 0) for name, each in leaves(row.inputs()).items()}
    if dim == 1 and "table" in tensors:
        tensors["table"] = row.inputs()["table"]
    tensors = {name: each.detach().requires_grad_(each.is_floating_point())
               for name, each in tensors.items()}
    outputs = row.call(**tensors)
    assert outputs[0].numel() == 0
    for i in row.gradients:
        torch.autograd.backward(outputs[i], torch.ones_like(outputs[i]), retain_graph=True)
    if row.gradients:
        for name, tensor in tensors.items():
            if tensor.requires_grad:
                assert tensor.grad.shape == tensor.shape, name


@pytest.mark.parametrize("row", functions.SERVING, ids=str)
def test_no_sequence_is_served(row):
    """Batches without sequences, and packed rows of which there are none."""
    outputs = row.call(**leaves(row.inputs(0)))
    assert outputs[0].numel() == 0
