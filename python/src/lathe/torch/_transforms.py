# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What a call tells autograd and torch.compile, and which of torch's transforms it refuses."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence, TypeVar

import torch
from torch.autograd import forward_ad

from lathe._errors import Unsupported

_Function = TypeVar("_Function", bound=Callable[..., Any])
_functorch_level = torch._C._functorch.peek_interpreter_stack


def in_forward_mode() -> bool:
    """Returns true within forward_ad.dual_level()."""
    return forward_ad._current_level >= 0


def _is_differentiated(tensor: torch.Tensor) -> bool:
    """Returns true if a transform of torch.func, or forward-mode autograd, follows a tensor.

    A tensor within vmap says that it requires no gradient; the one that vmap goes over may.
    """
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_gradtrackingtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
        if tensor.requires_grad and torch.is_grad_enabled():
            return True
    if not in_forward_mode():
        return False
    dual = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    return dual.tangent is not None


def refuse_transforms(tensors: Sequence[torch.Tensor | None], gradients: bool = False) -> None:
    """Raises Unsupported for tensors whose derivatives would be lost.

    gradients: autograd records this call, which it cannot do within any transform.
    """
    if torch.compiler.is_compiling():
        return
    level = _functorch_level()
    if level is None and not in_forward_mode():
        return
    if (gradients and level is not None) or any(
            each is not None and _is_differentiated(each) for each in tensors):
        raise Unsupported("a tensor is differentiated by torch.func or in forward mode; lathe has "
                          "gradients by backward() and torch.autograd.grad alone: call them, "
                          "outside of torch.func's transforms")


def note_change(tensors: Iterable[torch.Tensor | None]) -> None:
    """Tells autograd of changes in place, so that a backward which needs old values is refused."""
    changed = [each for each in tensors if each is not None and not each.is_inference()]
    if changed:
        torch.autograd.graph.increment_version(changed)


def constant_in_traces(function: _Function) -> _Function:
    """Marks a function that torch.compile calls while it traces, and whose result it keeps.

    This is torch.compiler.assume_constant_result, which imports torch._dynamo: that takes as long
    as all of torch, and a program that compiles nothing does not need it.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
