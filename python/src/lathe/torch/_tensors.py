# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls with gradients: whether one is wanted, upstream gradients, and no second derivative."""
from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Sequence

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._calls import Call, Options, Over, options_of, traced
from lathe.torch._layout import dense as dense, laid as laid, lies_nowhere, usable as usable
from lathe.torch._statistics import is_compiling
from lathe.torch._transforms import refuse_transforms

_NO_CONTEXT = nullcontext()


def no_gradients() -> ContextManager[Any]:
    """Returns a context in which none is recorded; it costs nothing if none is anyway."""
    return torch.no_grad() if torch.is_grad_enabled() else _NO_CONTEXT


def wants_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Returns true if autograd has to know of a call on these tensors."""
    if torch.is_grad_enabled():
        for each in tensors:
            if each is not None and each.requires_grad:
                refuse_transforms(tensors, gradients=True)
                return True
    return False


def computed(call: Call, node: Any, options: Options | dict[str, Any],
             tensors: tuple[Tensor | None, ...], over: Over | None = None, *chosen: Any) -> Any:
    """Returns the outputs of a call on any strides.

    If a gradient is wanted, they are those of node.apply(over, options, *chosen, *tensors), where
    node is an autograd.Function.
    """
    if over is None and not is_compiling():
        try:
            found = call.inference(options, tensors)
        except Exception:
            if not lies_nowhere(tensors):
                raise
        else:
            if found is not None:
                return found
    tensors = laid(call, tensors)
    if wants_gradient(tensors):
        pairs = options_of(**options) if isinstance(options, dict) else options
        return node.apply(over, pairs, *chosen, *each_once(tensors))
    return call(options, *tensors, over=over)


def each_once(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Returns tensors of which in a trace none is there twice, as the offsets of queries and keys.

    torch.compile does not take one tensor for two arguments of an autograd.Function; a view is
    another one.
    """
    if not is_compiling():
        return tensors
    found: list[Tensor | None] = []
    for each in tensors:
        is_there = each is not None and any(each is other for other in found)
        found.append(each.view_as(each) if each is not None and is_there else each)
    return tuple(found)


# ---- backwards -----------------------------------------------------------------------------------


def upstream(gradient: Tensor, take: Callable[[Tensor], Tensor] = usable) -> Tensor:
    """Returns an upstream gradient as kernels take it."""
    # torch.autograd.grad(is_grads_batched=True) hands on tensors that lie nowhere.
    if not is_compiling() and not torch._C._has_storage(gradient) and not traced():
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
        if not torch.is_grad_enabled():
            return backward(ctx, saved, *gradients)
        with torch.no_grad():
            found = backward(ctx, saved, *gradients)
        if is_compiling():
            return found
        sources = [each for each in (*saved, *gradients)
                   if each is not None and each.requires_grad]
        tensors = [each for each in found if each is not None]
        refusing = iter(_SecondGradient.apply(len(tensors), *tensors, *sources))
        return tuple(None if each is None else next(refusing) for each in found)
    return wrapped
