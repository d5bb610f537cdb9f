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

from typing import Any, Callable, Sequence

import torch
from torch import Tensor
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


class _Mod(Interpreter):
    """Runs what a result of a graph needs, on the numbers of a record."""

    def __init__(self, graph: GraphModule, result: Any, given: Sequence[Any]) -> None:
        super().__init__(graph)
        self.result, self.given = result, given
        self.record = next(each for each in given if each is not None).record
        self.needed: set[Node] = set()
        left = [result] if isinstance(result, Node) else []
        while left:
            node = left.pop()
            if node not in self.needed:
                self.needed.add(node)
                left += [] if node.target is _place else node.all_input_nodes

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            return self.env[self.result] if isinstance(self.result, Node) else self.result
        value = super().run_node(n) if n in self.needed or n.op == "placeholder" else None
        return self.record.captured(value) if (n.op == "placeholder" and n in self.needed and
                                               isinstance(value, Tensor)) else value

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

    def __call__(self, body: Any, *operands: Any) -> tuple[Any, ...]:
        from lathe.flex import computed

        nodes = list(body.graph.nodes)
        given = dict(zip((node for node in nodes if node.op == "placeholder"), operands))
        like = next(node for node in nodes if node.target is _like)
        query, key, value, states, rows, columns, scale, scored, masked = (
            given.get(each, each) if isinstance(each, Node) else each for each in like.args)
        results = list(next(node for node in nodes if node.op == "output").args[0])
        score = results[2] if scored else None
        mask = results[-1] if masked else None
        blocks = None if states is None else Blocks(states, (int(rows), int(columns)))
        found = computed(_mod_of(body, score, operands, 0), _mod_of(body, mask, operands, 1),
                          blocks, query, key, value, scale)
        return (*found, *(None for _ in results[2:]))  # nobody asks for what mods returned


def _mod_of(body: GraphModule, result: Any, operands: Sequence[Any], first: int
            ) -> Callable[..., Any] | None:
    """Returns a result of a body as a mod, whose parameters are _NAMES from `first` on."""
    if result is None:
        return None

    def mod(*numbers: Any) -> Any:
        return _Mod(body, result, (None,) * first + numbers).run(*operands)
    return mod


_flex = _Flex()


def _tensor(found: Any, query: Tensor) -> Tensor:
    """Returns what a mod returned as a new tensor: outputs of a body are no inputs."""
    if not isinstance(found, Tensor):
        return torch.full((), found, device=query.device)
    return found.clone()


def in_a_graph(score_mod: Callable[..., Any] | None, mask_mod: Callable[..., Any] | None,
               blocks: Blocks | None, query: Tensor, key: Tensor, value: Tensor,
               scale: float | None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse), where dynamo traces."""
    states, sizes = (None, (0, 0)) if blocks is None else blocks

    def body(query: Tensor, key: Tensor, value: Tensor) -> Any:
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
