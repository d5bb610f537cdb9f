# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The rule of torch.func.vmap for lathe's operators.

Where every input that vmap goes over begins with the dimension B, as every output does, that of
vmap becomes a part of it: one call. Elsewhere there is one call for each of vmap's slices: weights
of their own for each, packed sequences, mods (which read the index in B), gradients that are summed
over B. A tensor that is changed in place has vmap's dimension too, or the call is refused.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe._operators import operator
from lathe.torch._calls import Call, count, follow
from lathe.torch._layout import laid
from lathe.torch._traced import TracedOperator, library, options_of_text, present

Dims = Sequence[int | None]
Tensors = Sequence[Tensor | None]

# Options whose meaning depends on the index in B, by the values that do not.
_BY_ROW = {"score_mod": (None,), "mask_mod": (None,), "index_space": (None, "sequence")}


def _begins_with_batch(call: Call, tensors: Tensors, name: str, ndim: int) -> bool:
    """Returns true if a tensor of a call that is not packed has B in front, or N or rows, which
    are as many; so are the slots of a pool where no state_indices name them.
    """
    given = dict(zip(call.inputs, tensors))
    batch = ["B", "N", "rows"]
    if "state_indices" in given and given["state_indices"] is None:
        batch.append("S")
    forms = [form.split(",") for form in operator(call.op).tensors[name].shape.split("|")]
    return any(len(form) == ndim and form[0] in batch for form in forms)


def _spread(traced: TracedOperator, given: Sequence[Any]) -> list[Any]:
    """Returns what is given for an operator's inputs, for all inputs of its call."""
    found: list[Any] = [None] * len(traced.call.inputs)
    for i, each in zip(traced.inputs, given):
        found[i] = each
    return found


def _refuse_shared(call: Call, names: Sequence[str], indices: Sequence[int], dims: Dims) -> None:
    for i in indices:
        if dims[i] is None:
            name = names[i].removesuffix("_into")
            raise Unsupported(
                f"{name} is changed in place by {call.op} and has no dimension of vmap, while "
                "another input has one; give it one too (in_dims), or call outside of vmap")


def _folds(traced: TracedOperator, tensors: Tensors, dims: Dims, text: str) -> bool:
    """Returns true if one call over a larger B gives what a call for each slice would."""
    call = traced.call
    table, options = operator(call.op).tensors, dict(options_of_text(text))
    if any(options.get(name) not in free for name, free in _BY_ROW.items()):
        return False
    for i, (name, tensor, dim) in enumerate(zip(call.inputs, tensors, dims)):
        if tensor is None:
            continue
        if name.startswith("cu_seqlens"):
            return False
        if dim is None:
            continue
        if not _begins_with_batch(call, tensors, name, tensor.dim() - 1):
            return False
        if i in traced.changed and not _is_flat(tensor.movedim(dim, 0)):
            return False
    return all(table[name].shape[:2] in ("B,", "N,")
               for name, there in zip(call.outputs, present(call, tensors)) if there)


def _is_flat(tensor: Tensor) -> bool:
    """Returns true if the first two dimensions are one without a copy."""
    return 1 in tensor.shape[:2] or tensor.stride(0) == tensor.stride(1) * tensor.shape[1]


def _folded(traced: TracedOperator, size: int, dims: Dims, tensors: Tensors, text: str) -> Any:
    call = traced.call
    flat: list[Tensor | None] = []
    for name, tensor, dim in zip(call.inputs, tensors, dims):
        if tensor is not None and dim is not None:
            moved = tensor.movedim(dim, 0)
        elif tensor is not None and _begins_with_batch(call, tensors, name, tensor.dim()):
            moved = tensor.expand(size, *tensor.shape)
        else:
            flat.append(tensor)
            continue
        if not _is_flat(moved):
            count("copied for vmap")
        flat.append(moved.flatten(0, 1))
    lying = laid(call, tuple(flat))
    found = traced.operator(*[lying[i] for i in traced.inputs], text)
    results = found if isinstance(found, (tuple, list)) else (found,)
    there = present(call, tensors)
    results = [each.unflatten(0, (size, each.shape[0] // size)) if is_there else each
               for each, is_there in zip(results, there)]
    return _in_form(found, results, there)


def _looped(traced: TracedOperator, size: int, dims: Dims, tensors: Tensors, text: str) -> Any:
    count("called for each slice of vmap")
    made = []
    for slice in range(size):
        cut = [each if each is None or dim is None else each.select(dim, slice)
               for each, dim in zip(tensors, dims)]
        lying = laid(traced.call, tuple(cut))
        made.append(traced.operator(*[lying[i] for i in traced.inputs], text))
    columns = list(zip(*(each if isinstance(each, (tuple, list)) else (each,) for each in made)))
    there = present(traced.call, tensors)
    results = [torch.stack(column) if is_there else column[0]
               for column, is_there in zip(columns, there)]
    return _in_form(made[0], results, there)


def _in_form(found: Any, results: Sequence[Tensor], there: Sequence[bool]) -> Any:
    """Returns results and their dimensions of vmap, in an operator's form: a tuple, or one."""
    dims = [0 if is_there else None for is_there in there]
    if isinstance(found, (tuple, list)):
        return tuple(results), tuple(dims)
    return results[0], dims[0]


def _rule(traced: TracedOperator, info: Any, in_dims: Dims, *arguments: Any) -> Any:
    *given, text = arguments
    tensors, dims = _spread(traced, given), _spread(traced, in_dims[:-1])
    changed = [i for i in traced.changed if tensors[i] is not None]
    _refuse_shared(traced.call, traced.call.inputs, changed, dims)
    compute = _folded if _folds(traced, tensors, dims, text) else _looped
    return compute(traced, info.batch_size, dims, tensors, text)


def _rule_into(traced: TracedOperator, info: Any, in_dims: Dims, *arguments: Any) -> Any:
    *given, text = arguments
    call, inputs = traced.call, len(traced.inputs)
    names = [call.inputs[i] for i in traced.inputs] + [f"{name}_into" for name in call.outputs]
    written = [at for at, each in enumerate(given) if each is not None
               and (at >= inputs or traced.inputs[at] in traced.changed)]
    _refuse_shared(call, names, written, in_dims)
    count("called for each slice of vmap")
    for slice in range(info.batch_size):
        cut = [each if each is None or dim is None else each.select(dim, slice)
               for each, dim in zip(given, in_dims)]
        lying = laid(call, tuple(_spread(traced, cut[:inputs])))
        traced.operator(*[lying[i] for i in traced.inputs], *cut[inputs:], text)
    return None, None


def _register(call: Call) -> None:
    for traced in call.traced.all:
        rule = functools.partial(_rule_into if traced.is_into else _rule, traced)
        library.impl(traced.operator._opname, functools.partial(_called, traced.operator, rule),
                     "FuncTorchBatched", with_keyset=True)


def _called(traced: Any, rule: Callable[..., Any], keys: Any, *arguments: Any) -> Any:
    # What torch.library.register_vmap does, which would import these at once.
    from torch._functorch.autograd_function import custom_function_call_vmap_helper
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    interpreter: Any = retrieve_current_functorch_interpreter()
    return custom_function_call_vmap_helper(interpreter, rule, traced, *arguments)


def install() -> None:
    """Gives vmap the rule, for every call there is and will be."""
    follow(_register)
