# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A call of an operator on torch's tensors, in eager mode and under tracing.

In eager mode a Call finds its plan in a table of the extension and runs it. Where torch traces
(torch.compile, fake tensors, functorch, any mode), the same call is an operator of torch.library.
"""
from __future__ import annotations

import ast
from typing import Any, Callable, Protocol, Sequence

import torch
from torch.nn import Parameter

from lathe import _core
from lathe._errors import LatheError, Status, Unsupported
from lathe._objects import Plan, Problem
from lathe._operators import operator
from lathe.torch import _device, _shapes
from lathe.torch._transforms import in_forward_mode, note_change, refuse_transforms

Options = tuple[tuple[str, Any], ...]

# Whether torch has to see operators: modes that trace, and transforms. In front of an eager call
# only is_compiling is asked here, since torch.compile looks for it; the extension asks _modes.
is_compiling = torch.compiler.is_compiling
_modes = (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack,
          torch._C._are_functorch_transforms_active, in_forward_mode)

library: Any = torch.library.Library("lathe", "DEF")  # type: ignore[no-untyped-call]
_calls: list[Call] = []
_followers: list[Callable[[Call], None]] = []
_statistics: dict[str, int] = {}


def traced() -> bool:
    """Returns true if torch has to see operators: in a trace, in which no values can be read."""
    return is_compiling() or any(mode() for mode in _modes)


def count(what: str) -> None:
    """Counts something that happened around the kernels, such as a copy.

    A trace does not count: the number would be part of what torch.compile checks before each call.
    """
    if not is_compiling():
        _statistics[what] = _statistics.get(what, 0) + 1


def stats(reset: bool = False) -> dict[str, int]:
    """Returns how often something was done beside the kernels: copies, casts, waits."""
    found = dict(_statistics)
    if reset:
        _statistics.clear()
    return found


def options_of(**options: Any) -> Options:
    """Returns options as a Call takes them: those that are not None, in the order given."""
    return tuple((name, value) for name, value in options.items() if value is not None)


def _text_of(options: Options) -> str:
    """Returns options as the one text that an operator of torch.library takes."""
    return "\n".join([f"{name}={value!r}" for name, value in options])


def options_of_text(text: str) -> Options:
    """Returns the options of the text that an operator of torch.library takes."""
    pairs = [line.partition("=") for line in text.split("\n") if line]
    return tuple((name, ast.literal_eval(value)) for name, _, value in pairs)


Tensors = Sequence[torch.Tensor | None]


def _defined(name: str, parameters: Sequence[str], results: str, run: Any, fake: Any) -> Any:
    """Defines an operator of torch.library; `run` computes it, `fake` says its outputs' shapes."""
    library.define(f"{name}({', '.join(parameters)}, str options) -> {results}",
                    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    for key in ("CPU", "CUDA"):
        library.impl(name, run, key)
    torch.library.register_fake(f"lathe::{name}", fake, lib=library)
    return getattr(torch.ops.lathe, name).default


def _aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy at an address and with strides that every kernel takes."""
    count("copied to an aligned place")
    return tensor.clone(memory_format=torch.contiguous_format)


class Over(Protocol):
    """Ranks that a call runs over: lathe.torch.Ranks."""

    def run(self, call: Call, options: Options, tensors: Tensors) -> tuple[Any, ...]:
        """Runs the call on this rank and returns the outputs, None for those that are not."""


class Call:
    """An operator with the inputs that it takes and the outputs that are wanted of it.

    call(options, *tensors) returns the outputs, fresh and contiguous, in the order of `outputs`;
    None for one that these inputs do not have. Inputs are in the order of the operator's table,
    None where there is none; those that the operator changes are changed in place. The options
    may be a dictionary.
    call.inference(options, tensors) does so at once, or returns None if torch has to see the call:
    to trace it, or as a gradient is wanted of it; or if a tensor would have to be copied first. The
    inputs in `rows` need contiguous rows; others that are not changed in place are contiguous.
    _tensors.laid makes them so.
    call.into(options, tensors, outputs) writes outputs that are given; a Call made with into=True
    has it. reads: inputs that other calls of the operator change, and this one reads.
    """

    def __init__(self, name: str, op: str, inputs: Sequence[str], outputs: Sequence[str], *,
                 rows: Sequence[str] = (), into: bool = False, reads: Sequence[str] = ()) -> None:
        self.name, self.op = name, op
        table = operator(op).tensors
        order = list(table)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        assert list(self.inputs) == sorted(self.inputs, key=order.index), (name, self.inputs)
        assert list(self.outputs) == sorted(self.outputs, key=order.index), (name, self.outputs)
        assert not any(table[name].alias_of for name in self.outputs), (name, self.outputs)
        self.changed = tuple(i for i, name in enumerate(self.inputs)
                             if table[name].role == "inout" and name not in reads)
        self.rows = frozenset(self.inputs.index(name) for name in rows)
        self.table = _core.PlanTable(self.inputs, self._prepare, (torch.Tensor, Parameter),
                                     modes=_modes, gradients=torch.is_grad_enabled,
                                     rows=sum(1 << i for i in self.rows), op=op,
                                     copy=_aligned_copy)
        self.eager, self.inference = self.table.eager, self.table.inference
        self._define()
        self.traced_into: Any = None
        if into:
            self._define_into()
        _calls.append(self)
        for tell in _followers:
            tell(self)

    # ---- eager ---------------------------------------------------------------------------------

    def problem(self, options: Options, tensors: Tensors) -> Problem:
        """Returns the problem of a call, open in what may vary."""
        problem = _shapes.wanted_problem(self.op, self.inputs, tensors, dict(options), self.outputs)
        problem.open()
        return problem

    def _prepare(self, options: Options, alignment: int, *tensors: torch.Tensor | None
                 ) -> tuple[_core.Prepared, Problem]:
        where = _device.context_of(self.inputs, tensors)
        problem = self.problem(options, tensors)
        problem.alignment(alignment)
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise LatheError("a plan would be made while a CUDA graph is captured; run once before "
                             f"the capture, with tensors like these:\n{problem.text()}",
                             Status.UNSUPPORTED)
        device = next(each for each in tensors if each is not None).device
        outputs = _shapes.outputs_of(problem, self.inputs)
        made = _shapes.prepared(Plan(where, problem), self.outputs, outputs, device, self._shapes)
        return made, problem

    def _shapes(self, t: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        """Returns the outputs' shapes, where they depend on values, of (options, *tensors)."""
        count("offsets read on the host")
        return _shapes.inferred_shapes(self.op, self.inputs, t[1:], dict(t[0]), self.outputs)

    def __call__(self, options: Options | dict[str, Any], *tensors: torch.Tensor | None,
                 over: Over | None = None) -> tuple[Any, ...]:
        if over is None:
            if self.changed:
                self._check_changed(tensors)
            made = None if is_compiling() else self.eager(options, tensors)
            if made is not None:
                if self.changed:
                    note_change(tensors[i] for i in self.changed)
                return made
        refuse_transforms(tensors)
        if isinstance(options, dict):
            options = options_of(**options)
        if over is not None:
            return over.run(self, options, tensors)
        # Gradients are made by an autograd.Function around the call, if at all.
        plain = [each.detach() if each is not None else None for each in tensors]
        found = self.traced(*plain, _text_of(options))
        found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(each if there else None for each, there in zip(found, self.present(tensors)))

    def into(self, options: Options, tensors: Tensors, outputs: Tensors) -> None:
        """Writes the outputs given, one for each that these inputs have; None for the others.

        Their rows are contiguous, other strides are free.
        """
        refuse_transforms(tensors)
        self._check_changed(tensors)
        value = None if traced() else self.table(options, *tensors)
        if value is None:
            plain = [each.detach() if each is not None else None for each in (*tensors, *outputs)]
            self.traced_into(*plain, _text_of(options))
            return
        value.into(*tensors, *outputs)
        note_change([*outputs, *(tensors[i] for i in self.changed)])

    def _check_changed(self, tensors: Tensors) -> None:
        """Raises Unsupported if autograd would have to know of a change in place."""
        for i in self.changed:
            tensor = tensors[i]
            if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
                raise Unsupported(f"{self.inputs[i]} requires a gradient and is changed in place, "
                                  "which has none; detach it, or call under torch.no_grad()")

    # ---- under tracing -------------------------------------------------------------------------

    def present(self, tensors: Sequence[torch.Tensor | None]) -> list[bool]:
        """Returns which outputs there are: a gradient only of an input that is given."""
        found = []
        for name in self.outputs:
            source = name[1:] if name.startswith("d") and name[1:] in self.inputs else None
            found.append(source is None or tensors[self.inputs.index(source)] is not None)
        return found

    def _parameters(self) -> list[str]:
        """Returns the inputs as a schema has them."""
        table = operator(self.op).tensors
        parts = []
        for i, name in enumerate(self.inputs):
            kind = f"Tensor({chr(ord('a') + i)}!)" if i in self.changed else "Tensor"
            optional = table[name].optional or table[name].given_if is not None
            parts.append(f"{kind}{'?' if optional else ''} {name}")
        return parts

    def _define(self) -> None:
        results = ", ".join("Tensor" for _ in self.outputs)
        results = f"({results})" if len(self.outputs) != 1 else results
        self.traced = _defined(self.name, self._parameters(), results, self._traced_run,
                               self._traced_fake)

    def _define_into(self) -> None:
        first = ord("a") + len(self.inputs)
        outputs = [f"Tensor({chr(first + i)}!)? {name}_into" for i, name in enumerate(self.outputs)]
        self.traced_into = _defined(f"{self.name}_into", self._parameters() + outputs, "()",
                                    self._traced_run_into, lambda *arguments: None)

    def _returned(self, made: Sequence[torch.Tensor | None],
                  tensors: Sequence[torch.Tensor | None]) -> Any:
        """Returns outputs in a schema's fixed number: empty ones for those that are not."""
        first = next(each for each in tensors if each is not None)
        full = [each if each is not None else first.new_empty(0) for each in made]
        return full[0] if len(full) == 1 else tuple(full) if full else None

    def _traced_run(self, *arguments: Any) -> Any:
        *tensors, text = arguments
        plain = [each.detach() if each is not None else None for each in tensors]
        made = self.table.run(options_of_text(text), tuple(plain))
        assert made is not None
        note_change(plain[i] for i in self.changed)  # torch does it for none of these operators
        return self._returned(made, plain)

    def _traced_run_into(self, *arguments: Any) -> None:
        *tensors, text = arguments
        plain = [each.detach() if each is not None else None for each in tensors]
        inputs = len(self.inputs)
        self.table(options_of_text(text), *plain[:inputs]).into(*plain)
        note_change([*plain[inputs:], *(plain[i] for i in self.changed)])

    def _traced_fake(self, *arguments: Any) -> Any:
        *tensors, text = arguments
        options = dict(options_of_text(text))
        problem = _shapes.wanted_problem(self.op, self.inputs, tensors, options, self.outputs)
        outputs = _shapes.outputs_of(problem, self.inputs)
        known: dict[str, Any] = {}
        if any(output.extents is None for output in outputs):
            known = _shapes.known_shapes(self.op, self.inputs, tensors, options, self.outputs)
        by_name = {}
        first = next(each for each in tensors if each is not None)
        for output in outputs:
            shape = known.get(output.name)
            if output.extents is not None:
                shape = _shapes.shape_of(output.extents, tensors)
            if shape is None:
                raise LatheError(f"the shape of {output.name} depends on values, which a trace "
                                 "does not have", Status.UNSUPPORTED)
            by_name[output.name] = torch.empty(shape, dtype=output.dtype, device=first.device)
        return self._returned([by_name.get(name) for name in self.outputs], tensors)


def follow(tell: Callable[[Call], None]) -> None:
    """Tells of every Call: those there are, and those that will be made."""
    for call in _calls:
        tell(call)
    _followers.append(tell)


def forget_plans() -> None:
    """Forgets all plans: for tests, and when what a device is has changed."""
    for call in _calls:
        call.table.clear()


_device._forget.append(forget_plans)
