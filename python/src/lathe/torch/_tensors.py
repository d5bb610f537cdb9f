# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors as kernels take them: rows are contiguous and no two elements share a place.

And what a backward has in common: its upstream gradients, and that it has no gradient itself.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence, overload

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._calls import count, traced
from lathe.torch._transforms import refuse_transforms


def wants_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Returns true if autograd has to know of a call on these tensors."""
    if not torch.is_grad_enabled() or not any(each is not None and each.requires_grad
                                              for each in tensors):
        return False
    refuse_transforms(tensors, gradients=True)
    return True


@overload
def usable(tensor: Tensor) -> Tensor: ...
@overload
def usable(tensor: None) -> None: ...
@overload
def usable(tensor: Tensor | None) -> Tensor | None: ...
def usable(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor, or a contiguous copy if its rows are not contiguous or it is expanded."""
    if tensor is None or tensor.is_contiguous():
        return tensor
    overlaps = any(stride == 0 and extent > 1
                   for stride, extent in zip(tensor.stride(), tensor.shape))
    if tensor.stride(-1) == 1 and not overlaps:
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()


@overload
def dense(tensor: Tensor) -> Tensor: ...
@overload
def dense(tensor: None) -> None: ...
@overload
def dense(tensor: Tensor | None) -> Tensor | None: ...
def dense(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor, or a contiguous copy."""
    if tensor is None or tensor.is_contiguous():
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()


# ---- backwards -----------------------------------------------------------------------------------


def upstream(gradient: Tensor, take: Callable[[Tensor], Tensor] = usable) -> Tensor:
    """Returns an upstream gradient as kernels take it."""
    # torch.autograd.grad(is_grads_batched=True) hands on tensors that lie nowhere.
    if not traced() and not torch._C._has_storage(gradient):
        raise Unsupported("an upstream gradient is batched (is_grads_batched, or vmap over a "
                          "backward); allowed is one: call backward once for each")
    return take(gradient)


def upstream_or_zeros(gradient: Tensor | None, output: Tensor) -> Tensor:
    """Returns an upstream gradient, of zeros if nothing depends on the output."""
    return torch.zeros_like(output) if gradient is None else upstream(gradient)


def dense_upstream(gradient: Tensor | None) -> Tensor | None:
    """Returns an upstream gradient without gaps; None if nothing depends on the output."""
    return None if gradient is None else upstream(gradient, dense)


class _SecondGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, found: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.detach() for each in tensors[:found])

    @staticmethod
    def backward(ctx: Any, *unused: Any) -> Any:
        raise Unsupported("a gradient of lathe is differentiated again; there are no gradients of "
                          "gradients: leave create_graph out, or detach the gradient")


def no_second_gradient(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes backward(ctx, saved, *upstream) that of an autograd.Function.

    torch's once_differentiable leaves out what a gradient owes to saved tensors, in silence. Here
    its derivative with respect to any of them raises Unsupported.
    """
    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # once: checkpoints refuse a second time
        with torch.no_grad():
            found = backward(ctx, saved, *gradients)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return found
        sources = [each for each in (*saved, *gradients)
                   if each is not None and each.requires_grad]
        tensors = [each for each in found if each is not None]
        refusing = iter(_SecondGradient.apply(len(tensors), *tensors, *sources))
        return tuple(None if each is None else next(refusing) for each in found)
    return wrapped
