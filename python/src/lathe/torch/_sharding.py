# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How DTensor shards lathe's operators: over the batch, or over heads (channels of a convolution).

Such a call is computed by each rank on its shard, without communication. A tensor that is sharded
over another dimension, tokens before all, is refused: lathe.torch.Ranks computes over a sequence
that ranks share. Where placements do not fit each other, DTensor redistributes as for its own
operators: so a call over the slots of a pool, or one that appends to pages, is made by every rank
for the whole batch, as each of them changes what the others hold too.
"""
from __future__ import annotations

import functools
import math
from typing import Any, Mapping, NamedTuple, Sequence

from lathe._errors import Unsupported
from lathe._operators import operator
from lathe.torch._calls import Call, follow
from lathe.torch._late import after_import
from lathe.torch._traced import TracedOperator, options_of_text, present

# Dimensions that are sharded together with the batch: `rows` are sequences, unless they are packed.
_BATCH = ("B", "N", "rows")
# Numbers that are one for each head, unless there is one for all.
_OF_HEADS = {"q_scales": "H", "k_scales": "HK", "v_scales": "HK"}
# Operators whose channels are those of queries, keys and values, one behind the other.
_JOINED = ("kda_decode",)


class _Argument(NamedTuple):
    """A tensor of a call: the names of its dimensions, and what DTensor knows of it, if given."""

    name: str
    dims: list[str]
    spec: Any  # a DTensorSpec; None for a result

    def extents(self, letters: Sequence[str]) -> list[int]:
        return [extent for dim, extent in zip(self.dims, self.spec.shape) if dim in letters]


def _forms(shape: str) -> list[list[str]]:
    """Returns the forms of a tensor of the table; of its dimensions, "HV*K" is sharded as HV is."""
    return [[dim.split("*")[0] for dim in form.split(",")] for form in shape.split("|")]


def _dims(shape: str, extents: Sequence[int]) -> list[str]:
    form = next((form for form in _forms(shape) if len(form) == len(extents)), [])
    return [_OF_HEADS.get(dim, dim) if extent > 1 else dim for dim, extent in zip(form, extents)]


def _dims_of_output(shape: str, known: frozenset[str]) -> list[str]:
    """Returns the form of an output that follows from the dimensions that the inputs have."""
    return min(_forms(shape), key=lambda form: (len(set(form) - known), -len(form)))


def _heads_of(call: Call, arguments: Sequence[_Argument]) -> tuple[str, ...]:
    """Returns the dimensions that are sharded together with the heads; none if they cannot be."""
    if call.op in _JOINED:
        return ()
    extents = {dim: extent for each in arguments for dim, extent in zip(each.dims, each.spec.shape)}
    if "H" not in extents:
        return ("D",)
    # Heads of queries that share one key head: keys are whole on every rank.
    return ("H", "G") if extents.get("HK") == 1 else ("H", "HK", "HV")


def _even(arguments: Sequence[_Argument], heads: Sequence[str]) -> bool:
    """Returns true if every rank gets as many heads: those of queries and of keys then match.

    Several dimensions of the mesh may shard the heads; none of them may leave a rest.
    """
    shape = arguments[0].spec.mesh.shape
    together = math.prod(
        size for i, size in enumerate(shape)
        if any(each.dims[dim] in heads for each in arguments
               for dim in [getattr(each.spec.placements[i], "dim", None)]
               if dim is not None and dim < len(each.dims)))
    return all(extent % size == 0 for each in arguments for extent in each.extents(heads)
               for size in (together, *shape))


def _batch_of(call: Call, arguments: Sequence[_Argument]) -> tuple[str, ...]:
    """Returns the dimensions that are sharded together with the batch; none in a packed call."""
    names = [each.name for each in arguments]
    if any(name.startswith("cu_seqlens") for name in names):
        return ()
    # Without state_indices the slots of a pool are the sequences.
    return _BATCH if "state_indices" not in call.inputs or "state_indices" in names \
        else (*_BATCH, "S")


def _has_own_part(arguments: Sequence[_Argument], changed: Sequence[str], batch: Sequence[str]
                  ) -> bool:
    """Returns true if what is changed has parts of the batch, too.

    A rank's copy of a pool, or of pages, would have the changes of its own sequences alone.
    """
    return all(set(each.dims) & set(batch) for each in arguments if each.name in changed)


def _refuse_other_dims(call: Call, arguments: Sequence[_Argument], heads: Sequence[str],
                       batch: Sequence[str]) -> None:
    allowed = [*(["heads" if heads[0] == "H" else "channels"] if heads else ()),
               *(["the batch"] if batch else ())]
    found = f"sharded over {' or '.join(allowed)}" if allowed else "replicated"
    for each in arguments:
        for placement in each.spec.placements:
            dim = getattr(placement, "dim", None)
            if dim is None:
                continue
            letter = each.dims[dim] if dim < len(each.dims) else "?"
            if letter not in heads and letter not in batch:
                raise Unsupported(
                    f"{each.name} of {call.op} is sharded over its dimension {dim} ({letter}); a "
                    f"DTensor may be {found}; for a sequence that ranks share call with "
                    "over=lathe.torch.Ranks(...), or redistribute the tensor first")


def _refuse_mods(call: Call, options: Mapping[str, Any], arguments: Sequence[_Argument]) -> None:
    """Refuses shards of what reads indices: those of a shard begin at 0."""
    for name in ("score_mod", "mask_mod"):
        sharded = [each.name for each in arguments
                   if not all(placement.is_replicate() for placement in each.spec.placements)]
        if options.get(name) is not None and sharded:
            raise Unsupported(f"{name} reads indices of the batch and of heads, which begin at 0 "
                              f"in each shard of {sharded[0]}; redistribute it to Replicate() "
                              "first")


def _refuse_moved(traced: TracedOperator, offered: Sequence[Any], given: Sequence[Any]) -> None:
    """Refuses a call whose tensors that it changes would be copies: the change would be lost."""
    call = traced.call
    for at, (i, spec) in enumerate(zip(traced.inputs, given)):
        if i not in traced.changed or spec is None:
            continue
        fits = [row for row in offered if row[1][at] == spec.placements[0]]
        if len(spec.placements) != 1 or not fits:
            raise Unsupported(
                f"{call.inputs[i]} is changed in place by {call.op} and has the placements "
                f"{spec.placements}; allowed are one dimension of the mesh, and a shard over what "
                "the other inputs are sharded over, or Replicate()")


def _sharded(letters: Sequence[str], dims: Sequence[str], otherwise: Any) -> Any:
    """Returns the placement of a tensor when the dimensions `letters` are sharded."""
    from torch.distributed.tensor import Shard

    return next((Shard(d) for d, dim in enumerate(dims) if dim in letters), otherwise)


def _offered(traced: TracedOperator, *given: Any) -> list[tuple[list[Any], list[Any]]]:
    """Returns which placements of outputs follow from which of inputs, for DTensor to choose."""
    from torch.distributed.tensor import Partial, Replicate

    *specs, text = given
    call = traced.call
    names = [call.inputs[i] for i in traced.inputs]
    every = dict(zip(names, specs))
    there = present(call, [every.get(name) for name in call.inputs])
    table, options = operator(call.op).tensors, dict(options_of_text(text))
    arguments = [_Argument(name, _dims(table[name].shape, spec.shape), spec)
                 for name, spec in zip(names, specs) if spec is not None]
    heads, batch = _heads_of(call, arguments), _batch_of(call, arguments)
    _refuse_other_dims(call, arguments, heads, batch)
    _refuse_mods(call, options, arguments)
    ways: list[tuple[str, ...]] = [()]
    if heads and _even(arguments, heads):
        ways.append(heads)
    changed = [call.inputs[i] for i in traced.changed]
    if (batch and options.get("index_space") != "absolute"
            and _has_own_part(arguments, changed, batch)):
        ways.append(batch)
    known = frozenset(dim for each in arguments for dim in each.dims)
    rows = []
    for letters in ways:
        inputs = [None if spec is None
                  else _sharded(letters, _dims(table[name].shape, spec.shape), Replicate())
                  for name, spec in zip(names, specs)]
        # What has none of the sharded dimensions is a sum over them: gradients of weights.
        outputs = [_sharded(letters, _dims_of_output(table[name].shape, known),
                            Partial() if letters else Replicate()) if is_there else Replicate()
                   for name, is_there in zip(call.outputs, there)]
        rows.append((outputs, [*inputs, None]))
    _refuse_moved(traced, rows, specs)
    return rows


def _register(call: Call) -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    # DTensor keeps what it has chosen: for the same placements, and here for the same options.
    kept: Any = DTensor._op_dispatcher.sharding_propagator
    for traced in call.traced.all:
        if traced.is_into:
            continue
        register_sharding(traced.operator)(functools.partial(_offered, traced))
        kept.op_to_schema_info[traced.operator] = RuntimeSchemaInfo(len(traced.inputs),
                                                                    needs_pytree=True)


def install() -> None:
    """Gives DTensor the rule, once its module is imported."""
    after_import("torch.distributed.tensor", lambda: follow(_register))
