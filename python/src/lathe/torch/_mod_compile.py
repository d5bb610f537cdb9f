# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""flex_attention with mods under torch.compile: dynamo traces the mods, as it traces torch's own.

A higher-order operator stands in dynamo's graph, with a graph of both mods and with the tensors and
symbols that these close over as operands. So what a mod reads is guarded as in any compiled code,
and a number that varies is a symbol. When the graph is traced further, the operator runs the mods'
graph for its text (_mod_trace.py) and calls the kernels' operator; it lies in no later graph.

Imported when torch.compile first traces a call, since torch's higher-order operators take time to
import.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch._dynamo.variables import higher_order_ops as dynamo
from torch._higher_order_ops import BaseHOP
from torch.fx import GraphModule, Interpreter, Node

from lathe.torch._mod_blocks import Blocks
from lathe.torch._traced import library

_NAMES = ("score", "batch", "head", "q_idx", "kv_idx")

library.define("flex_like(Tensor query, Tensor key, Tensor value, Tensor? states, int rows, "
                "int columns, float? scale, bool scored, bool masked) -> (Tensor, Tensor)",
                tags=(torch.Tag.pt2_compliant_tag,))
library.define("mod_place(Tensor query, int which) -> Tensor",
                tags=(torch.Tag.pt2_compliant_tag,))


def _flex_like(query: Tensor, key: Tensor, value: Tensor, states: Tensor | None, rows: int,
               columns: int, scale: float | None, scored: bool, masked: bool
               ) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    out = query.new_empty(batch, queries, heads, value.shape[3]).transpose(1, 2)
    return out, query.new_empty(batch, heads, queries, dtype=torch.float32)


def _mod_place(query: Tensor, which: int) -> Tensor:
    # Of one element, since torch asks for the value of a tensor without a dimension that is an
    # index. What dynamo's graph makes of it is not computed; the graph runs on a record's numbers.
    return query.new_empty((1,), dtype=torch.int32 if which else torch.float32)


torch.library.register_fake("lathe::flex_like", _flex_like, lib=library)
torch.library.register_fake("lathe::mod_place", _mod_place, lib=library)
_like, _place = torch.ops.lathe.flex_like, torch.ops.lathe.mod_place


class _Known(Interpreter):
    """Computes what results of a graph need and no score or index decides: operands and numbers.

    It runs before the mods do, where the tracer sees operators, which it does not within a mod: a
    quotient of lengths, or the item() of the tensor by which some dynamos give a number.
    """

    def __init__(self, graph: GraphModule, results: Sequence[Any]) -> None:
        super().__init__(graph, garbage_collect_values=False)
        free: set[Node] = set()
        for node in graph.graph.nodes:
            if node.target is not _place and free.issuperset(node.all_input_nodes):
                free.add(node)
        self.known = [node for node in _needed_by(results, ()) if node in free and (
            node.op == "placeholder" or _makes_number(node))]
        self.steps = _needed_by(self.known, ())

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            return {node: self.env[node] for node in self.known}
        return super().run_node(n) if n.op == "placeholder" or n in self.steps else None


def _needed_by(results: Sequence[Any], known: Any) -> set[Node]:
    """Returns the nodes that results need; those in `known` and the places need no others."""
    found: set[Node] = set()
    left = [each for each in results if isinstance(each, Node)]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += [] if node.target is _place or node in known else node.all_input_nodes
    return found


def _makes_number(node: Node) -> bool:
    value = node.meta.get("val", node.meta.get("example_value"))
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _readable(value: Any, query: Tensor) -> Any:
    """Returns what a mod closes over as a record takes it."""
    if isinstance(value, torch.SymBool):
        return bool(value)  # a text has no symbol for it, so it is guarded
    if not isinstance(value, Tensor):
        return value
    if value.dim() == 0 and value.device.type == "cpu":  # torch takes it for a number
        value = value.to(query.device)
    return value.contiguous()


class _Mod(Interpreter):
    """Runs what a result of a graph needs, on numbers of a record and what the mod closes over."""

    def __init__(self, graph: GraphModule, result: Any, given: Sequence[Any],
                 closed: dict[Node, Any]) -> None:
        super().__init__(graph)
        self.result, self.given, self.closed = result, given, closed
        self.record = next(each for each in given if each is not None).record
        self.needed = _needed_by((result,), closed)

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            return self.env[self.result] if isinstance(self.result, Node) else self.result
        if n not in self.needed:
            return None
        if n not in self.closed:
            return super().run_node(n)
        value = self.closed[n]
        return self.record.captured(value) if isinstance(value, Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is _place:
            return self.given[args[1]]
        return super().call_function(target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> Any:
        if n.target is _place:
            return n.args, n.kwargs
        return super().fetch_args_kwargs_from_env(n)


class _Flex(BaseHOP):
    """flex(body, *operands) in dynamo's graph, where the body is that of in_a_graph."""

    def __init__(self) -> None:
        super().__init__("lathe_flex")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, body: Any, *operands: Any) -> tuple[Any, ...]:
        from lathe.flex import computed

        if not isinstance(body, GraphModule):  # a mod broke the graph, so this is an eager call
            of = inspect.getclosurevars(body).nonlocals
            query, key, value = operands
            return computed(of["score_mod"], of["mask_mod"], of["blocks"], query, key, value,
                            of["scale"])
        nodes = list(body.graph.nodes)
        like = next(node for node in nodes if node.target is _like)
        results = list(next(node for node in nodes if node.op == "output").args[0])
        scored, masked = like.args[-2:]
        score = results[2] if scored else None
        mask = results[-1] if masked else None
        known = _Known(body, (*like.args, score, mask)).run(*operands)
        query, key, value, states, rows, columns, scale = (
            known[each] if isinstance(each, Node) else each for each in like.args[:-2])
        blocks = None if states is None else Blocks(states, (int(rows), int(columns)))
        closed = {node: _readable(known[node], query)
                  for node in _needed_by((score, mask), known) if node in known}
        found = computed(_mod_of(body, score, closed, 0), _mod_of(body, mask, closed, 1),
                         blocks, query, key, value, scale)
        return (*found, *(None for _ in results[2:]))  # nobody asks for what mods returned


def _mod_of(body: GraphModule, result: Any, closed: dict[Node, Any], first: int
            ) -> Callable[..., Any] | None:
    """Returns a result of a body as a mod, whose parameters are _NAMES from `first` on."""
    if result is None:
        return None

    def mod(*numbers: Any) -> Any:
        return _Mod(body, result, (None,) * first + numbers, closed).run()
    return mod


class _Variable(dynamo.BaseHOPVariable):
    """_Flex to dynamo; its operands may be views of one tensor, as query and key often are."""

    supports_aliasing = True


_flex = _Flex()
getattr(dynamo, "_hop_name_to_variable_class", {})["lathe_flex"] = _Variable


def _tensor(found: Any, query: Tensor) -> Tensor:
    """Returns what a mod returned as a new tensor: outputs of a body are no inputs."""
    if not isinstance(found, Tensor):
        return torch.full((), found, device=query.device)
    return found.clone()


def in_a_graph(score_mod: Callable[..., Any] | None, mask_mod: Callable[..., Any] | None,
               blocks: Blocks | None, query: Tensor, key: Tensor, value: Tensor,
               scale: float | None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse), where dynamo traces."""
    def body(query: Tensor, key: Tensor, value: Tensor) -> Any:
        states, sizes = (None, (0, 0)) if blocks is None else blocks
        out, lse = torch.ops.lathe.flex_like(query, key, value, states, sizes[0], sizes[1], scale,
                                             score_mod is not None, mask_mod is not None)
        numbers = [torch.ops.lathe.mod_place(query, which) for which in range(5)]
        results = [out, lse]
        if score_mod is not None:
            results.append(_tensor(score_mod(*numbers), query))
        if mask_mod is not None:
            results.append(_tensor(mask_mod(*numbers[1:]), query))
        return tuple(results)

    found = _flex(body, query, key, value)
    return found[0], found[1]
