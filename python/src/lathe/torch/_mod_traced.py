# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors without data on which a mod runs, and the nodes that they stand for."""
from __future__ import annotations

import functools
import os
import sys
from typing import Any, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lathe._errors import Unsupported

_OURS = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))
_OTHER_NAMES = {"__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
                "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
                "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift"}
_FACTORIES = {torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.full,
              torch.zeros, torch.ones}
_WHERE = {torch.where}
_SYMBOLS = {torch.SymInt: 1, torch.SymFloat: 1.0}


class Wide(int):
    """The kind of a Constant whose values an int32 need not hold."""


class Constant:
    """A Python number that a mod gave to an operator: its place among a record's constants.

    kind: int, Wide or float.
    """

    __slots__ = ("index", "kind")

    def __init__(self, index: int, kind: type) -> None:
        self.index, self.kind = index, kind


class Node:
    """An operator that a mod called; its operands are Nodes, Constants and what else it takes.

    A parameter of the mod has its name for a target, and a captured tensor the number of it.
    """

    __slots__ = ("target", "name", "args", "kwargs", "dtype", "shape", "index")

    def __init__(self, target: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any],
                 dtype: torch.dtype, shape: tuple[int, ...], index: int) -> None:
        self.target, self.name, self.args, self.kwargs = target, name, args, kwargs
        self.dtype, self.shape, self.index = dtype, shape, index


class Traced(Tensor):
    """A tensor without data that stands for a node."""

    node: Node
    record: Any  # the Record that it lies in
    shared: bool  # with a view of it, or what it is a view of

    @staticmethod
    def made(record: Any, node: Node, gradient: bool = False) -> Traced:
        found: Any = Tensor._make_wrapper_subclass(
            Traced, node.shape, dtype=node.dtype, device=record.device, requires_grad=gradient)
        found.node, found.record, found.shared = node, record, False
        assert isinstance(found, Traced)
        return found

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in args:
            if type(each) is Traced:
                return each.record.call(func, args, kwargs or {})
            if type(each) in (list, tuple):
                for inner in each:
                    if type(inner) is Traced:
                        return inner.record.call(func, args, kwargs or {})
        raise Unsupported(f"{func} is called on a score or an index by keyword; give it as an "
                          "argument" + user_line())


def user_line() -> str:
    """Returns " (FILE:LINE)" of the user's line that is running now."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f" ({frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""


@functools.cache
def name_of(func: Any) -> str:
    """Returns the name of an operator of aten, the same for one in place; "" for another's."""
    space, _, name = str(func._schema.name).partition("::")
    if space != "aten":
        return ""
    return _OTHER_NAMES.get(name, name if name.startswith("__") else name.rstrip("_"))


class Tensors(TorchFunctionMode):
    """Keeps indices and numbers of a mod from becoming values where torch would ask for them."""

    def __init__(self, record: Any) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(type(each) is Traced for each in indices) and all(map(_is_place, indices)):
                return indexed(args[0], indices)
        elif func in _WHERE and len(args) == 3:
            args = self._chosen_numbers(*args)
        elif func in _FACTORIES and args and not isinstance(args[0], Tensor):
            # A symbol of torch.compile has no value yet: another number shows the dtype.
            symbols = [each for each in (*args, *(kwargs or {}).values()) if type(each) in _SYMBOLS]
            made = func(*map(_some, args), **{word: _some(each) for word, each in
                                              {**(kwargs or {}), "device": "cpu"}.items()})
            if made.dim() == 0 and not made.requires_grad:
                return self.record.scalar(symbols[0] if symbols else made.item(), made.dtype)
        return func(*args, **(kwargs or {}))

    def _chosen_numbers(self, condition: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
        """Returns the operands of torch.where without Python numbers, of which it makes tensors."""
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            dtype = torch.result_type(a, b)
            a, b = (each if isinstance(each, Tensor) else self.record.scalar(each, dtype)
                    for each in (a, b))
        return condition, a, b


class NumbersOfGradients(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the numbers of which autograd's formulas make tensors, such as the 0 of a where."""

    def __init__(self, record: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, dtype = name_of(func), kwargs.get("dtype") or torch.float32
        if name == "scalar_tensor":
            return self.record.scalar(args[0], dtype)
        if name in ("zeros", "ones") and not args[0]:
            return self.record.scalar(0 if name == "zeros" else 1, dtype)
        return func(*args, **kwargs)


def indexed(tensor: Tensor, indices: Sequence[Any]) -> Tensor:
    """Returns what single indices leave of a tensor, without asking for the values of tensors."""
    for each in indices:  # each takes the dimension that is then the first
        tensor = (torch.ops.aten.index.Tensor(tensor, [each]) if isinstance(each, Tensor)
                  else torch.select(tensor, 0, each))
    return tensor


def _some(value: Any) -> Any:
    return _SYMBOLS.get(type(value), value)


def _is_place(index: Any) -> bool:
    return (isinstance(index, Tensor) and index.dim() == 0 and index.dtype not in
            (torch.bool, torch.uint8)) or type(index) is int
