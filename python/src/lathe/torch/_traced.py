# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls as torch sees them where it traces: operators of torch.library."""
from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Sequence

import torch

from lathe._errors import LatheError, Status
from lathe._operators import operator
from lathe.torch import _device, _shapes
from lathe.torch._layout import laid
from lathe.torch._transforms import note_change

if TYPE_CHECKING:
    from lathe.torch._calls import Call

Options = tuple[tuple[str, Any], ...]
Tensors = Sequence[torch.Tensor | None]

library: Any = torch.library.Library("lathe", "DEF")  # type: ignore[no-untyped-call]


def text_of(options: Options) -> str:
    """Returns options as the one text that an operator of torch.library takes."""
    return "\n".join([f"{name}={value!r}" for name, value in options])


def options_of_text(text: str) -> Options:
    """Returns the options of the text that an operator of torch.library takes."""
    pairs = [line.partition("=") for line in text.split("\n") if line]
    return tuple((name, ast.literal_eval(value)) for name, _, value in pairs)


def _plain(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a tensor without its gradient, which an autograd.Function around the call has.

    Other tensors stay as they are: inductor changes a view in place only if it knows whose view
    it is, and after detach() it does not.
    """
    # The mode comes first: in a trace of a backward torch 2.6 lets nobody ask for requires_grad.
    if not torch.is_grad_enabled() or tensor is None or not tensor.requires_grad:
        return tensor
    return tensor.detach()


def present(call: Call, tensors: Tensors) -> list[bool]:
    """Returns which outputs there are: a gradient only of an input that is given."""
    found = []
    for name in call.outputs:
        source = name[1:] if name.startswith("d") and name[1:] in call.inputs else None
        found.append(source is None or tensors[call.inputs.index(source)] is not None)
    return found


class Operators:
    """The operators of torch.library for one call.

    Inductor may copy what an operator's schema says to be changed, so a call that changes some of
    its inputs only at times has two operators: the one that changes nothing has the call's name and
    lacks the inputs that make it change something, the other one has them all.
    """

    def __init__(self, call: Call, into: bool) -> None:
        self.call = call
        every = tuple(range(len(call.inputs)))
        changed = tuple(i for i, _ in call.may_change)
        makers = {by for _, by in call.may_change}
        always = any(not _is_optional(call, by) for by in makers)
        rest = tuple(i for i in every if i not in makers)
        name = call.name if always or not makers else f"{call.name}_in_place"
        self.changing = TracedOperator(call, name, every, changed, False) if makers else None
        self.reading = None if always else TracedOperator(call, call.name, rest, (), False)
        self.changing_into = self.reading_into = None
        if into and makers:
            self.changing_into = TracedOperator(call, f"{name}_into", every, changed, True)
        if into and not always:
            self.reading_into = TracedOperator(call, f"{call.name}_into", rest, (), True)
        each = (self.reading, self.changing, self.reading_into, self.changing_into)
        self.all = tuple(one for one in each if one is not None)

    def __call__(self, options: Options, tensors: Tensors) -> tuple[Any, ...]:
        """Returns the outputs, as a Call does."""
        chosen = self.changing if self.call.changed(tensors) else self.reading
        assert chosen is not None
        found = chosen(options, tensors, ())
        found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(each if there else None
                     for each, there in zip(found, present(self.call, tensors)))

    def into(self, options: Options, tensors: Tensors, outputs: Tensors) -> None:
        """Writes the outputs, as Call.into does."""
        chosen = self.changing_into if self.call.changed(tensors) else self.reading_into
        assert chosen is not None
        chosen(options, tensors, outputs)


def _is_optional(call: Call, index: int) -> bool:
    tensor = operator(call.op).tensors[call.inputs[index]]
    return tensor.optional or tensor.given_if is not None


class TracedOperator:
    """An operator of torch.library: some of the inputs of a call, and its outputs if `into`."""

    def __init__(self, call: Call, name: str, inputs: Sequence[int], changed: Sequence[int],
                 into: bool) -> None:
        self.call, self.inputs, self.changed, self.is_into = call, inputs, changed, into
        parameters = [self._parameter(i, call.inputs[i], i in changed, _is_optional(call, i))
                      for i in inputs]
        if into:
            parameters += [self._parameter(len(call.inputs) + i, f"{output}_into", True, True)
                           for i, output in enumerate(call.outputs)]
        results = ", ".join("Tensor" for _ in call.outputs)
        results = "()" if into else results if len(call.outputs) == 1 else f"({results})"
        library.define(f"{name}({', '.join(parameters)}, str options) -> {results}",
                        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
        for key in ("CPU", "CUDA"):
            library.impl(name, self._run, key)
        torch.library.register_fake(f"lathe::{name}", self._fake, lib=library)
        self.operator = getattr(torch.ops.lathe, name).default

    @staticmethod
    def _parameter(index: int, name: str, changed: bool, optional: bool) -> str:
        kind = f"Tensor({chr(ord('a') + index)}!)" if changed else "Tensor"
        return f"{kind}{'?' if optional else ''} {name}"

    def __call__(self, options: Options, tensors: Tensors, outputs: Tensors) -> Any:
        plain = [_plain(tensors[i]) for i in self.inputs]
        return self.operator(*plain, *map(_plain, outputs), text_of(options))

    def _arguments(self, arguments: Sequence[Any]) -> tuple[Options, list[Any], list[Any]]:
        """Returns the options, the inputs of the call, and the outputs that were given."""
        *given, text = arguments
        tensors = [None] * len(self.call.inputs)
        for i, each in zip(self.inputs, given):
            tensors[i] = each
        return options_of_text(text), tensors, given[len(self.inputs):]

    def _run(self, *arguments: Any) -> Any:
        *given, text = arguments
        # An array of DLPack cannot require a gradient.
        given = [each.detach() if each is not None else None for each in given]
        options, tensors, outputs = self._arguments((*given, text))
        tensors = list(laid(self.call, tuple(tensors)))
        if self.is_into:
            self.call.table(options, *tensors).into(*tensors, *outputs)
            made: Any = ()
        else:
            made = self.call.table.run(options, tuple(tensors))
            assert made is not None
        note_change([*outputs, *(tensors[i] for i in self.changed)])  # torch does it for none
        return None if self.is_into else self._returned(made, tensors)

    def _returned(self, made: Tensors, tensors: Tensors) -> Any:
        """Returns outputs in a schema's fixed number: empty ones for those that are not."""
        first = next(each for each in tensors if each is not None)
        full = [each if each is not None else first.new_empty(0) for each in made]
        return full[0] if len(full) == 1 else tuple(full) if full else None

    def _fake(self, *arguments: Any) -> Any:
        options, tensors, written = self._arguments(arguments)
        call, named = self.call, dict(options)
        device = _device.device_of((*call.inputs, *call.outputs), (*tensors, *written))
        if self.is_into:
            return None
        problem = _shapes.wanted_problem(call.op, call.inputs, tensors, named, call.outputs)
        outputs = _shapes.outputs_of(problem, call.inputs)
        known: dict[str, Any] = {}
        if any(output.extents is None for output in outputs):
            known = _shapes.known_shapes(call.op, call.inputs, tensors, named, call.outputs)
        by_name = {}
        for output in outputs:
            shape = known.get(output.name)
            if output.extents is not None:
                shape = _shapes.shape_of(output.extents, tensors)
            if shape is None:
                raise LatheError(f"the shape of {output.name} depends on values, which a trace "
                                 "does not have", Status.UNSUPPORTED)
            by_name[output.name] = torch.empty(shape, dtype=output.dtype, device=device)
        return self._returned([by_name.get(name) for name in call.outputs], tensors)
