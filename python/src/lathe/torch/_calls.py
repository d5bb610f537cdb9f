# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A call of an operator on torch's tensors, in eager mode and under tracing.

In eager mode a Call finds its plan in a table of the extension and runs it. Where torch traces
(torch.compile, fake tensors, functorch, any mode), the same call is an operator of torch.library.

The path of lathe.torch.flash_attention(q, k, v):

  _functions.flash_attention   puts the inputs in the order of the table
  _tensors.computed            calls FLASH_ATTENTION.inference; for None its autograd.Function, if a
                               gradient is wanted, or else Call.__call__
  PlanTable.inference          python/src/core/plan_table.c, which begins with the path within C: it
                               finds what Call._prepare made, a Prepared, and runs it
  Call._prepare                at the first call of a kind: Problem, Plan, Prepared
  Call.traced                  after None, if torch has to see the call: the operator of
                               torch.library (_traced.py)
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, Protocol, Sequence

import torch
from torch.nn import Parameter

from lathe import _core
from lathe._errors import LatheError, Status, Unsupported
from lathe._objects import Plan, Problem
from lathe._operators import operator
from lathe.torch import _device, _shapes
from lathe.torch._layout import aligned_copy, laid, lies_nowhere, refuse_negated
from lathe.torch._statistics import count as count, is_compiling as is_compiling, stats as stats
from lathe.torch._traced import Operators, Options as Options, Tensors as Tensors
from lathe.torch._transforms import in_forward_mode, note_change, refuse_transforms

# Whether torch has to see operators: modes that trace, and transforms. In front of an eager call
# only is_compiling is asked here, since torch.compile looks for it; the extension asks _modes.
is_compiling = torch.compiler.is_compiling
_modes = (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack,
          torch._C._are_functorch_transforms_active, in_forward_mode)

_calls: list[Call] = []
_followers: list[Callable[[Call], None]] = []


def traced() -> bool:
    """Returns true if torch has to see operators: in a trace, in which no values can be read."""
    return is_compiling() or any(mode() for mode in _modes)


def options_of(**options: Any) -> Options:
    """Returns options as a Call takes them: those that are not None, in the order given."""
    return tuple((name, value) for name, value in options.items() if value is not None)


class Over(Protocol):
    """Ranks that a call runs over: lathe.torch.Ranks."""

    def run(self, call: Call, options: Options, tensors: Tensors) -> tuple[Any, ...]:
        """Runs the call on this rank and returns the outputs, None for those that are not."""

    def first_token(self) -> int:
        """Returns the number of this rank's first token among those of all ranks."""


class Call:
    """An operator with the inputs that it takes and the outputs that are wanted of it.

    call(options, *tensors) returns the outputs, fresh and contiguous, in the order of `outputs`;
    None for one that these inputs do not have. Inputs are in the order of the operator's table,
    None where there is none; those that the operator changes are changed in place. The options
    may be a dictionary. Inputs may have any strides: kernels take those in `rows` with contiguous
    rows, others that are not changed in place contiguous, and _layout.laid copies what is not so.
    call.inference(options, tensors) does so at once, or returns None if torch has to see the call:
    to trace it, or as a gradient is wanted of it; or if a tensor would have to be copied first.
    call.into(options, tensors, outputs) writes outputs that are given; a Call made with into=True
    has it.
    """

    def __init__(self, name: str, op: str, inputs: Sequence[str], outputs: Sequence[str], *,
                 rows: Sequence[str] = (), into: bool = False) -> None:
        self.name, self.op = name, op
        table = operator(op).tensors
        order = list(table)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        assert list(self.inputs) == sorted(self.inputs, key=order.index), (name, self.inputs)
        assert list(self.outputs) == sorted(self.outputs, key=order.index), (name, self.outputs)
        assert not any(table[name].alias_of for name in self.outputs), (name, self.outputs)
        self.may_change = tuple(self._changes())
        self.rows = frozenset(self.inputs.index(name) for name in rows)
        self.table = _core.PlanTable(self.inputs, self._prepare, (torch.Tensor, Parameter),
                                     modes=_modes, gradients=torch.is_grad_enabled,
                                     negated=torch.Tensor.is_neg,
                                     rows=sum(1 << i for i in self.rows),
                                     kept=sum(1 << i for i, _ in self.may_change), op=op,
                                     copy=aligned_copy, changes=self.may_change,
                                     note=torch.autograd.graph.increment_version)
        # PlanTable.eager and PlanTable.inference of the extension (_core.pyi), looked up once.
        self.eager = self.table.eager
        self.inference = self.table.inference
        self.traced = Operators(self, into)
        _calls.append(self)
        for tell in _followers:
            tell(self)

    def _changes(self) -> Iterator[tuple[int, int]]:
        """Yields each input that may be changed in place, with the one that it takes to do so."""
        for i, name in enumerate(self.inputs):
            tensor = operator(self.op).tensors[name]
            if tensor.role != "inout":
                continue
            if tensor.changed_by is None or tensor.changed_by in self.outputs:
                yield i, i
            elif tensor.changed_by in self.inputs:
                yield i, self.inputs.index(tensor.changed_by)

    def ordered(self, **tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Returns inputs in the order of a call; None for each that is not given."""
        found = tuple([tensors.pop(name, None) for name in self.inputs])
        assert not tensors, (self.name, list(tensors))
        return found

    def changed(self, tensors: Tensors) -> list[int]:
        """Returns which inputs this call changes in place."""
        return [i for i, by in self.may_change if tensors[by] is not None]

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
        if over is not None:
            refuse_transforms(tensors)
            pairs = options_of(**options) if isinstance(options, dict) else options
            return over.run(self, pairs, tensors)
        if self.may_change and not is_compiling():
            made = self.changed_at_once(options, tensors)
            if made is not None:
                return made
        changed = self._checked_changes(tensors) if self.may_change else ()
        made = None if is_compiling() else self._at_once(options, tensors)
        if made is not None:
            if changed:
                note_change(tensors[i] for i in changed)
            return made
        refuse_transforms(tensors)
        pairs = options_of(**options) if isinstance(options, dict) else options
        return self.traced(pairs, laid(self, tensors))

    def changed_at_once(self, options: Options | dict[str, Any],
                        tensors: tuple[torch.Tensor | None, ...],
                        *outputs: tuple[torch.Tensor | None, ...]) -> tuple[Any, ...] | None:
        """Returns the outputs of a call that changes inputs in place, which a server makes often.

        None if autograd or torch has to know of it, or if a tensor would have to be copied. Outputs
        that are given, a tuple, are written.
        """
        try:
            return self.inference(options, tensors, *outputs)
        except Exception:
            if lies_nowhere(tensors):
                return None
            raise

    def _at_once(self, options: Options | dict[str, Any], tensors: tuple[torch.Tensor | None, ...]
                 ) -> tuple[Any, ...] | None:
        """Returns the outputs, or None if torch has to see the call."""
        try:
            made = self.eager(options, tensors)
            if made is None and not traced():
                made = self.eager(options, laid(self, tensors))
            return made
        except Exception:
            if lies_nowhere(tensors):
                return None
            raise

    def written(self, options: Options | dict[str, Any], tensors: tuple[torch.Tensor | None, ...],
                outputs: tuple[torch.Tensor | None, ...]) -> None:
        """Writes outputs as into does, of inputs with any strides."""
        if is_compiling() or self.changed_at_once(options, tensors, outputs) is None:
            pairs = options_of(**options) if isinstance(options, dict) else options
            self.into(pairs, laid(self, tensors), outputs)

    def into(self, options: Options, tensors: Tensors, outputs: Tensors) -> None:
        """Writes the outputs given, one for each that these inputs have; None for the others.

        Their rows are contiguous, other strides are free.
        """
        refuse_transforms(tensors)
        changed = self._checked_changes(tensors)
        refuse_negated(self.outputs, outputs)
        try:
            value = None if traced() else self.table(options, *tensors)
        except Exception:
            if not lies_nowhere(tensors):
                raise
            value = None
        if value is None:
            self.traced.into(options, tensors, outputs)
            return
        value.into(*tensors, *outputs)
        note_change([*outputs, *(tensors[i] for i in changed)])

    def _checked_changes(self, tensors: Tensors) -> list[int]:
        """Returns which inputs this call changes; Unsupported if autograd would have to know."""
        found = self.changed(tensors)
        for i in found:
            tensor = tensors[i]
            if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
                raise Unsupported(f"{self.inputs[i]} requires a gradient and is changed in place, "
                                  "which has none; detach it, or call under torch.no_grad()")
        return found


def follow(tell: Callable[[Call], None]) -> None:
    """Tells of every Call: those there are, and those that will be made."""
    for call in _calls:
        tell(call)
    _followers.append(tell)


def forget_plans() -> None:
    """Forgets all plans: for tests, and when what a device is has changed."""
    for call in _calls:
        call.table.clear()


_device.forgetters.append(forget_plans)
