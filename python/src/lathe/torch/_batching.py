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
from lathe.torch._calls import Call, count, follow, library, options_of_text
from lathe.torch._tensors import laid

Dims = Sequence[int | None]
Tensors = Sequence[Tensor | None]

# Options whose meaning depends on the index in B, by the values that do not.
_BY_ROW = {"score_mod": (None,), "mask_mod": (None,), "index_space": (None, "sequence")}


def _begins_with_batch(shape: str, ndim: int) -> bool:
    """Returns true if a tensor of the operator's table has B, or N sequences, in front."""
    forms = [form.split(",") for form in shape.split("|")]
    return any(len(form) == ndim and form[0] in ("B", "N") for form in forms)


def _changed(call: Call, tensors: Tensors) -> list[int]:
    """Returns the inputs that this call changes in place; some change only if another is given."""
    given = {name for name, each in zip(call.inputs, tensors) if each is not None}
    table = operator(call.op).tensors
    return [i for i in call.changed if call.inputs[i] in given
            and (table[call.inputs[i]].changed_by or call.inputs[i]) in given]


def _refuse_shared(call: Call, names: Sequence[str], indices: Sequence[int], dims: Dims) -> None:
    for i in indices:
        if dims[i] is None:
            name = names[i].removesuffix("_into")
            raise Unsupported(
                f"{name} is changed in place by {call.op} and has no dimension of vmap, while "
                "another input has one; give it one too (in_dims), or call outside of vmap")


def _folds(call: Call, tensors: Tensors, dims: Dims, text: str) -> bool:
    """Returns true if one call over a larger B gives what a call for each slice would."""
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
        if not _begins_with_batch(table[name].shape, tensor.dim() - 1):
            return False
        if i in call.changed and not _is_flat(tensor.movedim(dim, 0)):
            return False
    return all(table[name].shape[:2] in ("B,", "N,")
               for name, there in zip(call.outputs, call.present(tensors)) if there)


def _is_flat(tensor: Tensor) -> bool:
    """Returns true if the first two dimensions are one without a copy."""
    return 1 in tensor.shape[:2] or tensor.stride(0) == tensor.stride(1) * tensor.shape[1]


def _folded(call: Call, size: int, dims: Dims, tensors: Tensors, text: str) -> Any:
    table = operator(call.op).tensors
    flat: list[Tensor | None] = []
    for name, tensor, dim in zip(call.inputs, tensors, dims):
        if tensor is not None and dim is not None:
            moved = tensor.movedim(dim, 0)
        elif tensor is not None and _begins_with_batch(table[name].shape, tensor.dim()):
            moved = tensor.expand(size, *tensor.shape)
        else:
            flat.append(tensor)
            continue
        if not _is_flat(moved):
            count("copied for vmap")
        flat.append(moved.flatten(0, 1))
    found = call.traced(*laid(call, tuple(flat)), text)
    results = found if isinstance(found, (tuple, list)) else (found,)
    present = call.present(tensors)
    results = [each.unflatten(0, (size, each.shape[0] // size)) if there else each
               for each, there in zip(results, present)]
    return _in_form(found, results, present)


def _looped(call: Call, size: int, dims: Dims, tensors: Tensors, text: str) -> Any:
    count("called for each slice of vmap")
    made = []
    for slice in range(size):
        cut = [each if each is None or dim is None else each.select(dim, slice)
               for each, dim in zip(tensors, dims)]
        made.append(call.traced(*laid(call, tuple(cut)), text))
    columns = list(zip(*(each if isinstance(each, (tuple, list)) else (each,) for each in made)))
    present = call.present(tensors)
    results = [torch.stack(column) if there else column[0]
               for column, there in zip(columns, present)]
    return _in_form(made[0], results, present)


def _in_form(found: Any, results: Sequence[Tensor], present: Sequence[bool]) -> Any:
    """Returns results and their dimensions of vmap, in an operator's form: a tuple, or one."""
    dims = [0 if there else None for there in present]
    if isinstance(found, (tuple, list)):
        return tuple(results), tuple(dims)
    return results[0], dims[0]


def _rule(call: Call, info: Any, in_dims: Dims, *arguments: Any) -> Any:
    *tensors, text = arguments
    dims = in_dims[:-1]
    _refuse_shared(call, call.inputs, _changed(call, tensors), dims)
    compute = _folded if _folds(call, tensors, dims, text) else _looped
    return compute(call, info.batch_size, dims, tensors, text)


def _rule_into(call: Call, info: Any, in_dims: Dims, *arguments: Any) -> Any:
    *tensors, text = arguments
    names = (*call.inputs, *(f"{name}_into" for name in call.outputs))
    written = [i for i in range(len(call.inputs), len(names)) if tensors[i] is not None]
    _refuse_shared(call, names, [*_changed(call, tensors), *written], in_dims)
    count("called for each slice of vmap")
    for slice in range(info.batch_size):
        cut = [each if each is None or dim is None else each.select(dim, slice)
               for each, dim in zip(tensors, in_dims)]
        inputs = laid(call, tuple(cut[:len(call.inputs)]))
        call.traced_into(*inputs, *cut[len(call.inputs):], text)
    return None, None


def _register(call: Call) -> None:
    for traced, rule in ((call.traced, _rule), (call.traced_into, _rule_into)):
        if traced is not None:
            known = functools.partial(rule, call)
            library.impl(traced._opname, functools.partial(_called, traced, known),
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
