# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""kernel(): a kernel of one's own as an operator of torch, whose backward is another kernel."""
from __future__ import annotations

import os
import re
from typing import Any, Sequence, Union

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe._kernel import Kernel
from lathe._kernel import kernel as read_kernel
from lathe._operators import Operator, nearest, remember
from lathe.torch import _shapes
from lathe.torch._calls import Call, Options, is_compiling, options_of
from lathe.torch._layout import laid
from lathe.torch._tensors import upstream, wants_gradient
from lathe.torch._traced import library, options_of_text, text_of

Path = Union[str, "os.PathLike[str]"]

# torch keeps operators for as long as the process runs, so one text is one of them.
_kernels: dict[tuple[str, str | None], TorchKernel] = {}
_backwards: dict[str, Call] = {}


def _names(op: Operator, *roles: str) -> tuple[str, ...]:
    return tuple(each.name for each in op.tensors.values() if each.role in roles)


class TorchKernel:
    """A kernel of one's own that torch's tensors go through (kernel())."""

    def __init__(self, forward: Kernel, backward: Kernel | None) -> None:
        self.forward, self.backward = forward, backward
        remember(forward.operator)
        self.inputs = _names(forward.operator, "input", "inout")
        self.outputs = _names(forward.operator, "output")
        # By the names of the inputs that are given: which outputs there are follows from them.
        self._calls: dict[tuple[str, ...], Call] = {}
        if backward is not None:
            self._check_backward(backward.operator)
            remember(backward.operator)

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.forward.name

    def __repr__(self) -> str:
        return f"lathe.torch.kernel({self.name!r})"

    def _check_backward(self, op: Operator) -> None:
        """Raises InvalidArgument unless the forward has what the backward takes and gives."""
        if _names(self.forward.operator, "inout"):
            raise InvalidArgument(f"{self.name} changes {_names(self.forward.operator, 'inout')[0]}"
                                  " in place, which has no gradient; allowed are in and out")
        taken = (*self.inputs, *self.outputs, *[f"d{name}" for name in self.outputs])
        given = tuple(f"d{name}" for name in self.inputs)
        for tensor in op.tensors.values():
            known = given if tensor.role == "output" else taken
            if tensor.role == "inout" or tensor.name not in known:
                what = "takes" if tensor.role == "input" else "gives"
                raise InvalidArgument(f"{op.name} {what} {tensor.name}; a backward of {self.name} "
                                      f"{what} {', '.join(known)}{nearest(tensor.name, known)}")

    def __call__(self, *tensors: Tensor | None, **named: Any) -> Any:
        """Computes the outputs: one tensor, or a tuple of them in the order of the description.

        Inputs come by position, in the order of the description, or by name; options by name.
        """
        given, options = self._split(tensors, named)
        call = self._call(given, options)
        ordered: tuple[Tensor | None, ...] = tuple([given[name] for name in call.inputs])
        if not is_compiling():
            found = call.inference(options, ordered)
            if found is not None:
                return found[0] if len(found) == 1 else found
        ordered = laid(call, ordered)
        if self.backward is not None and wants_gradient(ordered):
            assert call.traced.reading is not None
            return call.traced.reading.operator(*ordered, text_of(options))
        found = call(options, *ordered)
        return found[0] if len(found) == 1 else found

    def _split(self, tensors: Sequence[Tensor | None], named: dict[str, Any]
               ) -> tuple[dict[str, Tensor], Options]:
        if len(tensors) > len(self.inputs):
            raise InvalidArgument(f"{self.name} was given {len(tensors)} tensors; allowed are "
                                  f"{', '.join(self.inputs)}")
        given = {name: each for name, each in zip(self.inputs, tensors) if each is not None}
        options = {}
        for name, value in named.items():
            if name in given:
                raise InvalidArgument(f"{self.name} was given {name} twice; allowed is once")
            if name in self.inputs:
                if value is not None:
                    given[name] = value
            elif name in self.forward.operator.options:
                options[name] = value
            else:
                names = (*self.inputs, *self.forward.operator.options)
                raise InvalidArgument(f"{self.name} has no input or option {name}; allowed are "
                                      f"{', '.join(names)}{nearest(name, names)}")
        for name in self.inputs:
            if name not in given and not self.forward.operator.tensors[name].optional:
                raise InvalidArgument(f"{self.name} needs {name}; it takes "
                                      f"{', '.join(self.inputs)}")
        return given, options_of(**options)

    def _call(self, given: dict[str, Tensor], options: Options) -> Call:
        """Returns the Call of these inputs."""
        inputs = tuple([name for name in self.inputs if name in given])
        call = self._calls.get(inputs)
        if call is None:
            if is_compiling():
                raise Unsupported(f"{self.name} is called with {', '.join(inputs)} for the first "
                                  "time in a trace; call it once before torch.compile does")
            call = self._made_call(inputs, tuple(given[i] for i in inputs), options)
            if self.backward is not None:
                self._register(call)
            self._calls[inputs] = call
        return call

    def _made_call(self, inputs: tuple[str, ...], tensors: tuple[Tensor, ...], options: Options
                   ) -> Call:
        op = self.forward.operator
        problem = _shapes.declared_problem(op.name, inputs, tensors, dict(options))
        problem.infer()
        outputs = tuple(row["name"] for row in problem.tensors()
                        if row["declared"] and op.tensors[row["name"]].role == "output")
        name = _identifier(op.name, inputs, self.inputs)
        if self.backward is not None:  # with another one it is another operator of torch
            name += "_" + _identifier(self.backward.name, (), ())
        return Call(name, op.name, inputs, outputs)

    # ---- the gradient ------------------------------------------------------------------------

    def _register(self, call: Call) -> None:
        """Tells torch the backward of a call."""
        assert self.backward is not None and call.traced.reading is not None
        backward = self.backward.operator
        takes, gives = _names(backward, "input"), _names(backward, "output")
        inputs = tuple(name for name in takes if name in call.inputs or name in call.outputs
                       or name[1:] in call.outputs)
        wanted = tuple(name for name in gives if name[1:] in call.inputs)
        missing = [name for name in takes
                   if name not in inputs and not backward.tensors[name].optional]
        if missing:
            raise InvalidArgument(f"{backward.name} needs {missing[0]}, which "
                                  f"{', '.join(call.inputs)} give no call of {self.name}; allowed "
                                  "is optional = true there")
        options = tuple(backward.options)
        name = _identifier(backward.name, inputs, takes)
        made = _backwards.get(name)
        if made is None:
            made = _backwards[name] = Call(name, backward.name, inputs, wanted)
        gradient = made
        known = (*call.inputs, *call.outputs)
        kept = tuple(i for i, name in enumerate(known) if name in inputs)

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            tensors = (*inputs[:-1], *(output if isinstance(output, tuple) else (output,)))
            ctx.save_for_backward(*[tensors[i] for i in kept])
            ctx.options = inputs[-1]

        def run(ctx: Any, *gradients: Tensor) -> Any:
            given = {known[i]: each for i, each in zip(kept, ctx.saved_tensors)}
            given.update((f"d{name}", upstream(each))
                         for name, each in zip(call.outputs, gradients))
            chosen = tuple((name, value) for name, value in options_of_text(ctx.options)
                           if name in options)
            found = gradient(chosen, *laid(gradient, tuple([given[name] for name in inputs])))
            by_name = dict(zip(wanted, found))
            return (*[by_name.get(f"d{name}") for name in call.inputs], None)

        torch.library.register_autograd(f"lathe::{call.name}", run, setup_context=setup_context,
                                        lib=library)


def _identifier(name: str, inputs: Sequence[str], every: Sequence[str]) -> str:
    """Returns the name of an operator of torch.library: letters, digits and _."""
    plain = re.sub(r"\W", "_", name)
    given = "".join("1" if each in inputs else "0" for each in every)
    return plain if "0" not in given else f"{plain}_{given}"


def kernel(path: Path, backward: Path | None = None) -> TorchKernel:
    """Reads a kernel of one's own from a file, as an operator of torch.

        gelu = lathe.torch.kernel("gelu.cuh", backward="gelu_backward.cuh")
        gelu(x, bias).sum().backward()

    It is torch.ops.lathe's operator of its name, which torch.compile keeps in its graph. The
    backward is another kernel: it takes, by their names, inputs and outputs of the forward and the
    gradients of outputs, dy of an output y, and gives gradients of inputs, dx of an input x; inputs
    without one have none. Options of both by one name have one value.
    """
    forward = read_kernel(path)
    other = read_kernel(backward) if backward is not None else None
    key = (forward.name, other.name if other is not None else None)
    if key not in _kernels:
        _kernels[key] = TorchKernel(forward, other)
    return _kernels[key]
