# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Traces score_mod and mask_mod, callables of torch, and keeps the device text of what was traced.

A text is found again by the code of a callable and all that it closes over, where that can be
known; tensors count with their dtype and shape. A callable that cannot be known so is traced at
each call.
"""
from __future__ import annotations

import functools
import os
import sys
import traceback
import types
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import lathe.torch._mod_operations  # noqa: F401  the operators that a mod may have
from lathe._errors import Unsupported
from lathe.torch._calls import count
from lathe.torch._mod_text import MOST_CAPTURES, Number, View, Writer, helpers_of

Callback = Callable[..., Any]

_INDICES = tuple(Number(name, "int", True) for name in ("batch", "head", "q_idx", "kv_idx"))
_SCORE = Number("score", "float")
_DSCORE = Number("dscore", "float")
_OURS = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))


class Mods(NamedTuple):
    """Device texts of a score_mod and a mask_mod, and the tensors that they read."""

    score_mod: str | None
    mask_mod: str | None
    captures: tuple[Tensor, ...]


# ---- tracing -------------------------------------------------------------------------------------


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Returns true if two tensors are one, or two views of the same elements."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.shape == b.shape
                      and a.stride() == b.stride())


class _Captures:
    """The tensors from outside that functions of one call read, in the order in which they come."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def view(self, tensor: Tensor, where: str) -> View:
        if tensor.requires_grad:
            raise Unsupported(f"a captured tensor of shape {list(tensor.shape)} requires grad, and "
                              f"no gradient reaches captures; give it detached{where}")
        for at, known in enumerate(self.tensors):
            if _is_same(known, tensor):
                return View(at, "0", tuple(tensor.shape), tensor.dtype)
        if len(self.tensors) == MOST_CAPTURES:
            raise Unsupported(f"score_mod and mask_mod capture over {MOST_CAPTURES} tensors; "
                              f"allowed are {MOST_CAPTURES}, so join some of them{where}")
        self.tensors.append(tensor)
        return View(len(self.tensors) - 1, "0", tuple(tensor.shape), tensor.dtype)


class _Found(Exception):
    """Ends a run of a mod at the operator that is looked for."""


class _Finder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises _Found with the user's line where an operator is called."""

    def __init__(self, target: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.target = target

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self.target:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.startswith(_OURS):
                frame = frame.f_back  # type: ignore[assignment]
            if frame is not None:
                raise _Found(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return func(*args, **(kwargs or {}))


def _line_of(function: Any, traced: Any, arguments: tuple[Tensor, ...], node: Node | None) -> str:
    """Returns " (FILE:LINE)": the user's line that made a node, else where the function begins."""
    try:
        if node is not None and node.op == "call_function":
            with TransformGetItemToIndex(), _Finder(node.target):
                traced(*arguments)
    except _Found as found:
        return f" ({found})"
    except Exception:  # the function cannot run so; its beginning is known all the same
        pass
    code = getattr(_inner(function), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _inner(function: Any) -> Any:
    """Returns the function inside of partials, methods and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        function = getattr(type(function), "__call__", function)
    return getattr(function, "__func__", function)


def _traced(function: Callback, traced: Callback, arguments: tuple[Tensor, ...]) -> GraphModule:
    """Returns the graph of `traced`, which calls the user's function."""
    try:
        with TransformGetItemToIndex():
            return make_fx(traced)(*arguments)
    except RuntimeError as error:
        if "value out of a tracing tensor" not in str(error):
            raise
        raise Unsupported("a mod asks for the value of a number, as `if` and int() do; use "
                          "torch.where" + _user_line(error, function)) from error


def _user_line(error: BaseException, function: Callback) -> str:
    """Returns " (FILE:LINE)" of the user's line in which an error came up."""
    frames = [each for each in traceback.extract_tb(error.__traceback__)
              if not each.filename.startswith(_OURS)]
    code = getattr(_inner(function), "__code__", None)
    inside = [each for each in frames if code is not None and each.filename == code.co_filename]
    return f" ({inside[-1].filename}:{inside[-1].lineno})" if inside else ""


def _constants(module: GraphModule, captures: _Captures, where: Callback) -> Callback:
    def constant(node: Node) -> View | int | float | bool:
        tensor = functools.reduce(getattr, str(node.target).split("."), module)
        assert isinstance(tensor, Tensor)
        # A number that became a tensor while the function ran is a literal.
        if tensor.dim() == 0 and all(getattr(user.target, "overloadpacket", None) in (
                torch.ops.aten.lift_fresh_copy, torch.ops.aten.lift_fresh) for user in node.users):
            value = tensor.item()
            assert isinstance(value, (int, float, bool))
            return value
        return captures.view(tensor, where(None))
    return constant


def _body(function: Callback, traced: Callback, arguments: tuple[Tensor, ...], name: str,
          parameters: tuple[Number, ...], kind: str, captures: _Captures) -> str:
    """Returns the text of a function of the device."""
    module = _traced(function, traced, arguments)
    module.graph.eliminate_dead_code()
    where = functools.partial(_line_of, function, traced, arguments)
    writer = Writer(module.graph, parameters, _constants(module, captures, where), where)
    end = f"  return {writer.returned(kind)};"  # it may add a line that reads a capture
    lines = "\n".join([*writer.lines, end])
    declared = ", ".join(f"{each.kind} {each.text}" for each in parameters)
    if "captures." in lines:
        declared += ", const Captures& captures"
    return f"__device__ {kind} {name}({declared}) {{\n{lines}\n}}\n"


def _numbers(device: torch.device) -> tuple[Tensor, ...]:
    """Returns a score and four indices to trace with."""
    score = torch.zeros((), device=device)
    return (score, *(torch.zeros((), dtype=torch.int32, device=device) for _ in range(4)))


def _score_text(function: Callback, gradient: bool, device: torch.device, captures: _Captures
                ) -> str:
    given = _numbers(device)

    # The user's function may have more parameters, and those of what is traced are counted.
    def forward(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
        return function(score, b, h, q, k)

    def backward(dscore: Tensor, score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
        def of_score(s: Tensor) -> Tensor:
            return torch.as_tensor(function(s, b, h, q, k)).to(torch.float32)
        return torch.func.vjp(of_score, score)[1](dscore)[0]

    text = _body(function, forward, given, "score_mod", (_SCORE, *_INDICES), "float", captures)
    if gradient:
        text += _body(function, backward, (torch.ones_like(given[0]), *given), "score_mod_bwd",
                      (_DSCORE, _SCORE, *_INDICES), "float", captures)
    return helpers_of(text) + text


def _mask_text(function: Callback, device: torch.device, captures: _Captures) -> str:
    def forward(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
        return function(b, h, q, k)

    text = _body(function, forward, _numbers(device)[1:], "mask_mod", _INDICES, "bool", captures)
    return helpers_of(text) + text


# ---- finding it again ----------------------------------------------------------------------------


class _Unknown(Exception):
    """A callable has something in it that cannot be compared."""


_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)
_FIXED = (types.BuiltinFunctionType, type, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@functools.cache
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names that a function and those inside of it may look up."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return tuple(sorted({*code.co_names, *(name for names in inner for name in names)}))


def _key_of(value: Any, tensors: list[Tensor], seen: set[int]) -> Any:
    """Returns what tells a value from others, and adds the tensors in it to `tensors`."""
    if isinstance(value, Tensor):
        same = next((at for at, each in enumerate(tensors) if _is_same(each, value)), len(tensors))
        tensors.append(value)
        return ("tensor", same, value.dtype, tuple(value.shape), value.requires_grad)
    if isinstance(value, _PLAIN):
        return (type(value).__name__, repr(value))
    if isinstance(value, (tuple, list)):
        return tuple(_key_of(each, tensors, seen) for each in value)
    if isinstance(value, dict):
        return tuple(_key_of(each, tensors, seen) for each in value.items())
    if isinstance(value, functools.partial):
        return tuple(_key_of(each, tensors, seen)
                     for each in (value.func, value.args, value.keywords))
    if isinstance(value, _FIXED):
        return value
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] not in ("torch", "math", "operator", "functools"):
            raise _Unknown
        return value
    if not isinstance(value, types.FunctionType):
        raise _Unknown
    if id(value) in seen or (value.__module__ or "").partition(".")[0] == "torch" and (
            value.__closure__ is None):
        return value
    seen.add(id(value))
    cells = [each.cell_contents for each in value.__closure__ or ()]
    known = value.__globals__
    parts = (cells, value.__defaults__, value.__kwdefaults__,
             [known[name] for name in _names(value.__code__) if name in known])
    return (value.__code__, *(_key_of(each, tensors, seen) for each in parts))


_texts: dict[Any, tuple[str | None, str | None, tuple[int, ...]]] = {}
_MOST_TEXTS = 1024


def trace_mods(score_mod: Callback | None, mask_mod: Callback | None, gradient: bool,
               device: torch.device) -> Mods:
    """Returns the texts of two callables, either of which may be None, and their captures."""
    tensors: list[Tensor] = []
    key: Any = None
    found = None
    try:
        key = (gradient, *(_key_of(each, tensors, set()) for each in (score_mod, mask_mod)))
        found = _texts.get(key)
    except (_Unknown, TypeError, ValueError):  # ValueError: an empty cell
        pass
    if found is not None:
        return Mods(found[0], found[1], tuple(tensors[at] for at in found[2]))
    captures = _Captures()
    score = _score_text(score_mod, gradient, device, captures) if score_mod is not None else None
    mask = _mask_text(mask_mod, device, captures) if mask_mod is not None else None
    count("traced a mod")
    places = [next((at for at, each in enumerate(tensors) if _is_same(each, wanted)), -1)
              for wanted in captures.tensors]
    if key is not None and -1 not in places:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        _texts[key] = (score, mask, tuple(places))
    return Mods(score, mask, tuple(captures.tensors))
