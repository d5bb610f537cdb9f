# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny inputs by name for the rows of functions.py. n is the number of tokens."""
import torch

from flex_reference import reference


def attention_inputs(n, dtype, heads=2, width=32, sinks=""):
    """Returns q, k and v; sinks: the name of the sinks, if there are any."""
    found = {"q": torch.randn(2, n, 4, width), "k": torch.randn(2, n + 3, heads, width),
             "v": torch.randn(2, n + 3, heads, width)}
    found = {name: each.to(dtype) for name, each in found.items()}
    return {**found, sinks: torch.randn(4)} if sinks else found


def offsets(n):
    """Returns offsets of three sequences, of which one is empty, in 2n rows."""
    return torch.tensor([0, n - 2, n - 2, 2 * n], dtype=torch.int32)


def rows_inputs(n, dtype, **options):
    """Returns attention_inputs of packed sequences, with as many keys as queries."""
    found = attention_inputs(n, dtype, **options)
    return {name: each[:, :n].flatten(0, 1) if each.dim() == 4 else each
            for name, each in found.items()}


def heads_first(n, dtype, heads=4):
    return {name: each.transpose(1, 2).contiguous()
            for name, each in attention_inputs(n, dtype, heads).items()}


def packed_inputs(parts, rows=False):
    """Returns a maker of q and one tensor of k and v (2 parts), or of q, k and v (3)."""
    def made(n, dtype):
        found = {"q": torch.randn(2, n, 4, 32), "packed": torch.randn(2, n, parts, 2, 32)}
        return {name: (each.flatten(0, 1) if rows else each).to(dtype)
                for name, each in found.items()}
    return made


def pages(n, dtype):
    """Returns two sequences over three pages of 8 keys, of which n + 1 at most are in use."""
    return {"q": torch.randn(2, 2, 4, 32).to(dtype), "k_cache": torch.randn(3, 8, 2, 32).to(dtype),
            "v_cache": torch.randn(3, 8, 2, 32).to(dtype),
            "table": torch.tensor([[2, 0], [1, 2]], dtype=torch.int32),
            "lengths": torch.tensor([min(n, 13), 3], dtype=torch.int32),
            "k": torch.randn(2, 2, 2, 32).to(dtype), "v": torch.randn(2, 2, 2, 32).to(dtype)}


def kda_inputs(n, dtype, gate=True, sequences=2):
    found = {"q": torch.randn(2, n, 1, 16), "k": torch.randn(2, n, 1, 16) / 4,
             "v": torch.randn(2, n, 2, 16), "g": -torch.rand(2, n, 2, 16),
             "beta": torch.rand(2, n, 2)}
    found = {name: each.to(dtype) for name, each in found.items()}
    if gate:
        found |= {"A_log": torch.rand(2), "dt_bias": torch.randn(32)}
    return found | {"initial_state": torch.randn(sequences, 2, 16, 16)}


def kda_layer_inputs(n, dtype):
    """Returns inputs of kda_decode: a step of n sequences in a pool of n + 2 slots."""
    found = {"qkv": torch.randn(n, 64), "conv_weight": torch.randn(64, 4) / 2,
             "conv_pool": torch.randn(n + 2, 64, 3), "g": -torch.rand(n, 2, 16),
             "beta": torch.rand(n, 2)}
    found = {name: each.to(dtype) for name, each in found.items()}
    return found | {"state_pool": torch.randn(n + 2, 2, 16, 16),
                    "state_indices": torch.arange(n, dtype=torch.int32),
                    "output_gate": torch.randn(n, 2, 16).to(dtype), "norm_weight": torch.rand(16)}


def conv_inputs(n, dtype, width=4):
    return {"x": torch.randn(2, n, 32).to(dtype), "weight": torch.randn(32, 4).to(dtype),
            "bias": torch.randn(32).to(dtype), "residual": torch.randn(2, n, 32).to(dtype),
            "initial_state": torch.randn(2, 32, width).to(dtype)}


def channels_last(n, dtype):
    """Returns inputs of causal-conv1d: x [B,D,T], channel-last, and states of width - 1."""
    found = conv_inputs(n, dtype, 3)
    found["x"] = found["x"].transpose(1, 2)
    del found["residual"]
    return found


def pool_inputs(n, dtype):
    """Returns inputs of vLLM's convolutions: x [D,T] and a pool of states; a slot is padding."""
    found = conv_inputs(n, dtype)
    return {"x": found["x"].flatten(0, 1).t(),
            "pool": torch.randn(5, 3, 32).transpose(1, 2).to(dtype),
            "weight": found["weight"], "bias": found["bias"],
            "slots": torch.tensor([4, -1, 2], dtype=torch.int32)}


def only(make, *names):
    """Returns a maker of the inputs of these names."""
    def made(n, dtype):
        found = make(n, dtype)
        return {name: found[name] for name in names}
    return made


def sparse_inputs(n, dtype):
    """Returns lists of three different keys, so that a mask says the same."""
    found = {"q": torch.randn(2, n, 4, 32), "k": torch.randn(2, n, 1, 32),
             "v": torch.randn(2, n, 1, 32), "q_rope": torch.randn(2, n, 4, 16),
             "k_rope": torch.randn(2, n, 1, 16)}
    lists = torch.rand(2, n, 1, n).argsort(-1)[..., :3].int()
    lists[0, 1] = -1
    return {**{name: each.to(dtype) for name, each in found.items()}, "indices": lists,
            "sinks": torch.randn(4)}


def sparse_exact(q, k, v, q_rope, k_rope, indices, sinks):
    """Returns the out of sparse attention in float64: a sink is one more key, whose value is 0."""
    q, k = torch.cat([q, q_rope], -1).transpose(1, 2), torch.cat([k, k_rope], -1).transpose(1, 2)
    found = indices[:, :, 0].long()
    seen = torch.zeros(*found.shape[:2], k.shape[2] + 1, dtype=torch.bool)
    seen.scatter_(2, torch.where(found < 0, k.shape[2], found), True)
    out, lse = reference(q, k, v.transpose(1, 2), None, lambda b, h, i, j: seen[b, i, j], 0.2)
    kept = torch.where(lse.isinf(), 0.0, torch.sigmoid(lse - sinks[:, None]))
    return (torch.where(kept[..., None] > 0, out, 0.0) * kept[..., None]).transpose(1, 2),


def mla_inputs(n, dtype):
    return {"q": torch.randn(n, 4, 576).to(dtype), "kv": torch.randn(16, 1, 576).to(dtype),
            "indices": torch.randint(-1, 16, (n, 1, 6), dtype=torch.int32),
            "sink": torch.randn(4)}
