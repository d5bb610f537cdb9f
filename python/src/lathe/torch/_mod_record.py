# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Records the operators that a call of a mod makes on its score and its indices.

A mod runs once for each call of flex_attention, on tensors that have a dtype and no data. So
whatever it reads is read anew: attributes, globals, values of tensors. No value of a score or an
index can leave it, because there is none; all that it does with them is an operator of aten, which
is recorded here. Tensors from outside of which it asks by such an index are its captures.
"""
from __future__ import annotations

import math
import struct
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from lathe._errors import Unsupported
from lathe.torch._mod_captures import Captures
from lathe.torch._mod_traced import (Constant, Node, NumbersOfGradients, Tensors, Traced, Wide,
                                     name_of, user_line)

_ALIASES = {"detach", "alias", "view", "_unsafe_view", "reshape", "expand", "squeeze"}
# Operators whose Python numbers may vary from call to call without another text.
_LIFTING = {"add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod",
            "eq", "ne", "lt", "le", "gt", "ge", "minimum", "maximum", "clamp", "clamp_min",
            "clamp_max", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
            "bitwise_right_shift", "masked_fill", "full", "new_full", "full_like", "scalar_tensor"}

# The names of operators that have a text; _mod_operations fills it.
known_operators: set[str] = {"index", "select"}


def bits_of(value: Any) -> Any:
    """Returns a number as the int64 that kernels read it from: a float is its bits."""
    if isinstance(value, float):
        return struct.unpack("q", struct.pack("d", value))[0]
    return value


def _fits(value: Any) -> bool:
    """Returns whether an int32 holds an int. A symbol is guarded, one without a value trusted."""
    return isinstance(value, torch.SymInt) and not value.node.has_hint() or bool(
        -2**31 <= value < 2**31)


_shapes: dict[Any, tuple[torch.dtype, tuple[int, ...]]] = {}
_MOST_SHAPES = 4096


class Record:
    """The operators of the mods of one call.

    key() is the same for two records if and only if their texts differ in no more than the values
    of their constants. constants: the numbers that operators were given, as bits_of has them, and
    their Python types; the extents of captures come after them.
    """

    def __init__(self, device: torch.device, places: bool = False) -> None:
        self.device = device
        self.nodes: list[Node] = []
        self.tokens: list[Any] = []
        self.constants: list[Any] = []
        self.captures = Captures()
        self.gradients = False  # whether a backward is being recorded
        self._captured: dict[int, Node] = {}
        self._kept: list[Tensor] = []
        self._places: list[str] | None = [] if places else None
        self.parameters = {name: self._node(name, name, (), {}, torch.float32 if "score" in name
                                            else torch.int32, ())
                           for name in ("score", "dscore", "batch", "head", "q_idx", "kv_idx")}
        self.dscore, self.indices = Traced.made(self, self.parameters["dscore"]), tuple(
            Traced.made(self, self.parameters[name])
            for name in ("batch", "head", "q_idx", "kv_idx"))

    # ---- running a mod -------------------------------------------------------------------------

    def score(self, function: Callable[..., Any], gradient: bool) -> tuple[Any, Any]:
        """Runs a score_mod. Returns what it returned, and the gradient of the score or None."""
        with Tensors(self):
            if not gradient:
                score = Traced.made(self, self.parameters["score"])
                return self.operand(function(score, *self.indices)), None
            # Hooks of checkpoints must not see what a mod's gradient saves.
            with torch.enable_grad(), saved_tensors_hooks(lambda each: each, lambda each: each):
                leaf = Traced.made(self, self.parameters["score"], gradient=True)
                found = function(leaf.clone(), *self.indices)  # a mod may change its score
                forward = self.operand(found)
                if not isinstance(found, Tensor) or not found.requires_grad:
                    return forward, 0.0
                self.gradients = True
                with NumbersOfGradients(self):
                    backward = torch.autograd.grad(found.to(torch.float32), leaf, self.dscore,
                                                   allow_unused=True)[0]
                self.gradients = False
                return forward, 0.0 if backward is None else self.operand(backward)

    def mask(self, function: Callable[..., Any]) -> Any:
        """Runs a mask_mod and returns what it returned."""
        with Tensors(self):
            return self.operand(function(*self.indices))

    def scalar(self, value: Any, dtype: torch.dtype) -> Tensor:
        """Returns a tensor of one number that a mod made."""
        self.tokens += (torch.scalar_tensor, dtype)
        operand = self._number(value)
        return Traced.made(self, self._node(None, "scalar_tensor", (operand,), {}, dtype, ()))

    def operand(self, value: Any) -> Any:
        """Returns a value that a mod returned, and adds it to the tokens."""
        self.tokens.append("result")
        if isinstance(value, (Tensor, bool, int, float)):
            return self._operand(value, True, [])
        raise Unsupported(f"a mod returned {type(value).__name__}; allowed are a tensor and a "
                          "number")

    # ---- operators -----------------------------------------------------------------------------

    def _node(self, target: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any],
              dtype: torch.dtype, shape: tuple[int, ...]) -> Node:
        made = Node(target, name, args, kwargs, dtype, shape, len(self.nodes))
        self.nodes.append(made)
        if self._places is not None:
            self._places.append(user_line())
        return made

    def place(self, node: Node) -> str:
        """Returns " (FILE:LINE)" of the line that made a node; "" unless the record keeps them."""
        return self._places[node.index] if self._places is not None else ""

    def _number(self, value: Any) -> Any:
        """Returns a Constant for a number, or the number where the text depends on it."""
        kind = type(value)
        if kind is bool or (isinstance(value, float) and not math.isfinite(value)):
            self.tokens.append((kind, repr(value)))
            return value
        of: type = float  # the value of a symbol of torch.compile is known when the graph runs
        if isinstance(value, (int, torch.SymInt)):  # one that an int32 cannot hold has another type
            of = int if _fits(value) else Wide
        self.tokens.append(of)
        made = Constant(len(self.constants), of)
        self.constants.append(bits_of(value))
        return made

    def _operand(self, value: Any, lift: bool, kinds: list[Any]) -> Any:
        """Returns an operand as a node has it, adds its token, and to `kinds` what shapes ask."""
        kind = type(value)
        if kind is Traced:
            node = value.node
            self.tokens.append(node.index)
            kinds += (node.dtype, len(node.shape))
            return node
        if isinstance(value, Tensor):
            node = self.capture(value)
            self.tokens.append(node.index)
            kinds += (node.dtype, len(node.shape))
            return node
        if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat)):
            if lift or isinstance(value, (torch.SymInt, torch.SymFloat)):
                kinds.append(kind)
                return self._number(value)
            self.tokens.append((kind, value))
            kinds.append((kind, value))
            return value
        if kind in (list, tuple):
            self.tokens.append((kind, len(value)))
            kinds.append((kind, len(value)))
            return [self._operand(each, False, kinds) for each in value]
        self.tokens.append(value)
        kinds.append(value)
        return value

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """Records a call of an operator and returns its result."""
        name = name_of(func)
        if name == "_local_scalar_dense":
            raise Unsupported("a mod asks for the value of a number, as `if` and int() do; use "
                              "torch.where" + user_line())
        if name not in known_operators:
            raise Unsupported(f"{func} has no text of the device; allowed are arithmetic, "
                              "comparisons, torch.where, elementary functions and reading captured "
                              "tensors by index" + user_line())
        changed = args[0] if func._schema.is_mutable else None
        if changed is not None and (type(changed) is not Traced or "out" in kwargs or
                                    changed.shared and not self.gradients):
            raise Unsupported(f"{func} changes a tensor that something else reads too; a mod "
                              "changes its own numbers alone, so use the operator that returns a "
                              "new one" + user_line())
        self.tokens += (func, len(args), *kwargs)
        lift, kinds = name in _LIFTING, [func]
        operands = [self._operand(each, lift, kinds) for each in args]
        named = {word: self._operand(each, False, kinds) for word, each in kwargs.items()
                 if word not in ("device", "layout", "pin_memory", "memory_format")}
        dtype, shape = self._result(func, name, kinds, operands, args, kwargs)
        node = self._node(func, name, operands, named, dtype, shape)
        if changed is not None:
            changed.node = node
            return changed
        made = Traced.made(self, node)
        if name in _ALIASES and type(args[0]) is Traced:
            made.shared = args[0].shared = True
        return made

    def _result(self, func: Any, name: str, kinds: list[Any], operands: list[Any], args: Any,
                kwargs: dict[str, Any]) -> tuple[torch.dtype, tuple[int, ...]]:
        """Returns the dtype and the shape of an operator's result."""
        if name in ("index", "select"):
            return self._chosen(func, name, operands)
        key = tuple(kinds)
        found = _shapes.get(key)
        if found is None:
            made = func(*map(_on_meta, args), **{word: torch.device("meta") if word == "device" else
                                                 _on_meta(each) for word, each in kwargs.items()})
            if not isinstance(made, Tensor) or made.dim() > 0:
                raise Unsupported(f"{func} makes {_words_of(made)}; a mod computes single numbers, "
                                  "so prepare tensors outside of it" + user_line())
            if len(_shapes) >= _MOST_SHAPES:
                _shapes.clear()
            found = _shapes[key] = (made.dtype, ())
        return found

    def _chosen(self, func: Any, name: str, operands: list[Any]
                ) -> tuple[torch.dtype, tuple[int, ...]]:
        """Returns the dtype and the shape of what indices leave of a capture."""
        view = operands[0]
        indices = operands[1] if name == "index" else [operands[2]]
        if any(each is None for each in indices) or (name == "select" and operands[1] != 0) or (
                any(isinstance(each, Node) and each.shape for each in indices)):
            raise Unsupported("a captured tensor is indexed behind its first dimensions, or by a "
                              "tensor of indices; allowed are single indices of the leading ones"
                              + user_line())
        if any(isinstance(each, Node) and each.dtype not in (
                torch.int8, torch.int16, torch.int32, torch.int64) for each in indices):
            raise Unsupported("a captured tensor is indexed by a number that is no signed int; "
                              "convert it by .to(torch.int32)" + user_line())
        if len(indices) > len(view.shape):
            raise IndexError(f"a tensor of shape {list(view.shape)} has too many indices: "
                             f"{len(indices)}" + user_line())
        return view.dtype, view.shape[len(indices):]

    # ---- captures ------------------------------------------------------------------------------

    def capture(self, tensor: Tensor) -> Node:
        """Returns the node of a tensor from outside."""
        found = self._captured.get(id(tensor))
        if found is not None:
            return found
        if tensor.requires_grad and torch.is_grad_enabled():
            raise Unsupported(f"a captured tensor of shape {list(tensor.shape)} requires grad, and "
                              "no gradient reaches captures; give it detached" + user_line())
        if tensor.device != self.device:
            if tensor.dim() > 0 or tensor.device.type != "cpu":
                raise Unsupported(f"a captured tensor is on the device {tensor.device}; allowed is "
                                  f"{self.device}, where query is" + user_line())
            number = self.scalar(tensor.item(), tensor.dtype)  # as torch takes it: for a number
            assert isinstance(number, Traced)
            found = number.node
        else:
            try:
                at, group = self.captures.add(tensor)
            except Unsupported as error:
                raise Unsupported(f"{error}{user_line()}") from error
            found = self._node(at, "capture", (), {}, tensor.dtype, tuple(tensor.shape))
            self.tokens += ("capture", group, tensor.dtype, tensor.dim())
        self._captured[id(tensor)] = found
        self._kept.append(tensor)  # so that no other tensor gets its id
        return found

    def captured(self, tensor: Tensor) -> Traced:
        """Returns what stands for a captured tensor, so that operators on it are recorded too."""
        return Traced.made(self, self.capture(tensor))

    def key(self) -> tuple[Any, ...]:
        return tuple(self.tokens)

    def values(self) -> tuple[Any, ...]:
        """Returns all constants: those of operators, and where the captures lie."""
        return (*self.constants, *self.captures.values())


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [_on_meta(each) for each in value]
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else value


def _words_of(made: Any) -> str:
    return (f"a tensor of shape {list(made.shape)}" if isinstance(made, Tensor)
            else f"a {type(made).__name__} of tensors")
