# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What servers send where nothing is: padding rows, unused entries of tables, stale lengths.

A row of the tables (padding_attention.py and its like) makes the arguments of one function with
garbage in every place that belongs to nobody. check() asserts three things: what belongs to
somebody is right in float64, bits that nobody named stay, and no operator of torch is given an
index out of range: on a GPU that would end the CUDA context. with_torch/test_padding.py runs all.
"""
from typing import Any, Callable, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attention import error


class Garbage(NamedTuple):
    """What stands in the places of nobody."""

    name: str
    index: int  # in tables, lists and slots
    length: int  # of a sequence that is padding
    number: float  # in rows of tensors

    def __str__(self) -> str:
        return self.name


NAN = float("nan")
GARBAGE = (Garbage("-1", -1, -1, NAN), Garbage("zeros", 0, 0, 0.0),
           Garbage("huge", 2**31 - 1, 2**31 - 1, float("inf")),
           Garbage("lowest", -2**31, -2**31, NAN), Garbage("stale", 3, 5, 1e4))


class Row(NamedTuple):
    """A function with arguments in which some places belong to nobody."""

    module: Any
    function: str
    make: Callable[[Garbage], dict[str, Any]]  # arguments by name, the same ones at every call
    call: Callable[..., tuple[Any, ...]]  # call(**arguments) returns outputs, and what is changed
    # wanted(**arguments) returns these outputs in float64; NaN: any value may be there.
    wanted: Callable[..., tuple[Any, ...]]
    # named(**arguments) returns masks of the places that the call may change, by argument.
    named: Callable[..., dict[str, torch.Tensor]] = lambda **arguments: {}
    gradients: tuple[str, ...] = ()  # arguments whose gradient, through output 0, is compared
    what: str = ""  # what is special about this call
    bound: float = 3e-3

    def __str__(self) -> str:
        short = self.module.__name__.removeprefix("lathe.").removeprefix("compat.")
        return f"{short}.{self.function}" + (f" {self.what}" if self.what else "")


# ---- indices that torch gets ---------------------------------------------------------------------


def _indices(operator, arguments):
    """Returns pairs (index tensor, size of what it counts) of a call of an operator of torch."""
    given = dict(zip((each.name for each in operator._schema.arguments), arguments))
    source = given.get("self", given.get("weight"))
    found = given.get("indices", given.get("index"))
    if found is None or isinstance(found, int) or not isinstance(source, torch.Tensor):
        return []  # an integer, as that of select, is checked on the host
    if isinstance(found, torch.Tensor):
        size = source.shape[given["dim"]] if source.dim() and "dim" in given else source.numel()
        return [(found, source.shape[0] if "weight" in given else size)]
    return [(each, source.shape[dim]) for dim, each in enumerate(found)
            if each is not None and each.dtype != torch.bool]


class IndexRanges(TorchDispatchMode):
    """Raises AssertionError where torch is given an index out of range, or would wait.

    An index below 0 is one out of range: it wraps around to what belongs to somebody.
    """

    WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal")

    def __torch_dispatch__(self, operator, types, arguments=(), named=None):
        if operator.namespace == "aten":
            assert operator.name() not in self.WAITS, f"{operator.name()} waits for the device"
            for index, size in _indices(operator, arguments):
                if index.numel():
                    low, high = (int(each) for each in index.aminmax())
                    assert 0 <= low and high < size, (
                        f"{operator.name()} gets indices {low} to {high} of {size}")
        return operator(*arguments, **(named or {}))


# ---- the check -----------------------------------------------------------------------------------


def _tensors(arguments):
    return {name: each for name, each in arguments.items() if isinstance(each, torch.Tensor)}


def _copied(arguments):
    return {name: each.clone() if isinstance(each, torch.Tensor) else each
            for name, each in arguments.items()}


def _compare(name, found, wanted, bound):
    somebody = ~wanted.isnan()
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    found, wanted = found.detach().double()[somebody], wanted[somebody]
    finite = wanted.isfinite()
    assert torch.equal(found[~finite], wanted[~finite]), f"{name} is finite, or not, elsewhere"
    assert found.numel() == 0 or error(found[finite], wanted[finite]) < bound, name
    assert (found[wanted == 0] == 0).all(), f"{name} is not 0 where it has to be"


def _exact(row, arguments):
    """Returns what is wanted and its gradients, both in float64."""
    leaves = {name: each.double().requires_grad_() if name in row.gradients else each
              for name, each in arguments.items()}
    wanted = row.wanted(**leaves)
    if not row.gradients:
        return wanted, ()
    upstream = torch.linspace(-1, 1, wanted[0].numel(), dtype=torch.float64).view(wanted[0].shape)
    found = torch.autograd.grad(wanted[0], [leaves[name] for name in row.gradients],
                                upstream.where(~wanted[0].isnan(), 0.0), materialize_grads=True)
    return tuple(each.detach() for each in wanted), found


def check(row: Row, garbage: Garbage, seen: bool) -> None:
    """Asserts that a row's call is right. seen: under IndexRanges, so as torch.compile sees it."""
    before = row.make(garbage)
    wanted, gradients = _exact(row, before)
    given = _copied(before)
    for name in row.gradients:
        given[name].requires_grad_()
    if seen:
        with IndexRanges():
            outputs = row.call(**given)
    else:
        outputs = row.call(**given)
    for i, (found, exact) in enumerate(zip(outputs, wanted, strict=True)):
        _compare(f"output {i}", found, exact, row.bound)
    _unchanged(row, before, given)
    if row.gradients:
        up = torch.linspace(-1, 1, outputs[0].numel()).view(outputs[0].shape).to(outputs[0].dtype)
        # Padding rows have upstream gradients of nobody, too.
        up = up.masked_fill(wanted[0].flatten(1).eq(0).all(1).view(-1, *[1] * (up.dim() - 1)),
                            garbage.number)
        found = torch.autograd.grad(outputs[0], [given[name] for name in row.gradients], up)
        for name, one, exact in zip(row.gradients, found, gradients):
            _compare(f"gradient of {name}", one, exact, 3 * row.bound)


def _bits(tensor):
    """Returns a tensor's elements as integers, among which one NaN is like another."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(integers[tensor.element_size()])


def _unchanged(row, before, after):
    """Asserts that bits which nobody named stay."""
    named = row.named(**before)
    for name, tensor in _tensors(before).items():
        same = _bits(tensor) == _bits(after[name])
        if name in named:
            same |= _spread(named[name], same)
        assert same.all(), f"{name} is changed where nobody named it"


def _spread(mask, like):
    """Returns a mask of leading dimensions as one of all elements."""
    return mask.reshape(*mask.shape, *[1] * (like.dim() - mask.dim())).expand(like.shape)
