# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The layer of causal softmax attention, with a cache of keys and values."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lathe._errors import InvalidArgument
from lathe.compat import _kvcache, _places
from lathe.compat._attention import float_sinks, options_for
from lathe.compat._transformers_attention import Arguments, by_intervals
from lathe.compat._transformers_mask import Pattern, intervals
from lathe.nn._cache import Cache, Keys, Packing, packing_of, refuse_gradients
from lathe.nn._norm import RMSNorm
from lathe.torch import flash_attention
from lathe.torch._calls import Options


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns x [B,T,H,D] rotated in pairs of one half's column and the other's, in float32."""
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


class Attention(nn.Module):
    """Causal attention: projections, norms of q and k, rotary positions, softmax and output.

    window_size counts the query's own key. rope_theta None: no rotation. sinks: a learned logit
    for each head beside the keys. softcap 0: none.
    """

    def __init__(self, hidden_size: int = 2048, num_heads: int = 32,
                 num_kv_heads: int | None = None, qkv_bias: bool = False, qk_norm: bool = False,
                 window_size: int | None = None, rope_theta: float | None = 10000.0,
                 layer_idx: int = 0, head_dim: int | None = None, sinks: bool = False,
                 softcap: float = 0.0, norm_eps: float = 1e-5, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.heads = num_heads
        self.kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = hidden_size // num_heads if head_dim is None else head_dim
        if num_heads % self.kv_heads or self.head_dim % 2:
            raise InvalidArgument(f"num_kv_heads is {self.kv_heads} with {num_heads} heads of "
                                  f"{self.head_dim}; allowed are divisors of num_heads, and even "
                                  "widths")
        if window_size is not None and window_size < 1:
            raise InvalidArgument(f"window_size is {window_size}; allowed are 1 and more, as it "
                                  "counts the query's own key: give None for no window")
        if not 0 <= softcap < float("inf"):
            raise InvalidArgument(f"softcap is {softcap}; allowed are positive numbers: give 0 for "
                                  "none")
        self.window_size, self.layer_idx = window_size, layer_idx
        self.rope_theta, self.softcap = rope_theta, softcap
        made = {"device": device, "dtype": dtype}
        width, kv_width = num_heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(hidden_size, width, bias=qkv_bias, **made)
        self.k_proj = nn.Linear(hidden_size, kv_width, bias=qkv_bias, **made)
        self.v_proj = nn.Linear(hidden_size, kv_width, bias=qkv_bias, **made)
        self.o_proj = nn.Linear(width, hidden_size, bias=False, **made)
        self.qk_norm = qk_norm
        if qk_norm:
            self.q_norm = RMSNorm(self.head_dim, norm_eps, device)
            self.k_norm = RMSNorm(self.head_dim, norm_eps, device)
        self.sinks = nn.Parameter(torch.zeros(num_heads, device=device)) if sinks else None

    def _options(self) -> Options:
        left = -1 if self.window_size is None else self.window_size - 1
        return options_for(None, True, (left, -1), self.softcap)

    def _projected(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q, k, v [B,T,heads,D] of x [B,T,hidden]; positions are [B|1,T]."""
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim))
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope_theta is not None:
            power = torch.arange(0, self.head_dim, 2, device=x.device) / self.head_dim
            angle = positions[..., None, None] * self.rope_theta**-power.float()
            q, k = (_rotated(each, angle.cos(), angle.sin()) for each in (q, k))
        return q, k, v

    def forward(self, hidden_states: Tensor, cache: Cache | None = None,
                attention_mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Returns [B,T,hidden] for hidden_states of that shape.

        attention_mask [B,T]: 0 where there is padding, in which results are 0. cu_seqlens: offsets
        of packed sequences, with B = 1; these fill no cache. A cache, under torch.no_grad(), has
        the keys before and gets the new ones.
        """
        refuse_gradients(cache)
        if hidden_states.dim() != 3 or hidden_states.shape[2] != self.q_proj.in_features:
            raise InvalidArgument(f"hidden_states has shape {list(hidden_states.shape)}; allowed "
                                  f"is [B,T,{self.q_proj.in_features}]: give a batch and tokens "
                                  "their dimensions")
        if cache is not None and cu_seqlens is not None:
            raise InvalidArgument("cache and cu_seqlens are given; allowed is one: give sequences "
                                  "as a batch with an attention_mask")
        keys = None if cache is None else cache.layers.get(self.layer_idx)
        packing = packing_of(attention_mask, cu_seqlens, keys is not None)
        if keys is not None:
            out = self._continued(hidden_states, keys)
        else:
            x = hidden_states
            if packing is not None:
                x, cu_seqlens = packing.pack(x), packing.starts
            out = self._begun(x, cache, packing, cu_seqlens)
        out = self.o_proj(out.flatten(2))
        return out if packing is None else packing.unpack(out)

    def _begun(self, x: Tensor, cache: Cache | None, packing: Packing | None,
               cu_seqlens: Tensor | None) -> Tensor:
        """Returns out [B,T,H,D] of sequences that begin here, and fills a cache."""
        positions = torch.arange(x.shape[1], device=x.device)[None]
        if cu_seqlens is not None:
            positions = _places.find(cu_seqlens, x.shape[1])[1][None]
        q, k, v = self._projected(x, positions)
        if cache is not None:
            batch, tokens = x.shape[:2] if packing is None else packing.shape
            keys = cache.layers[self.layer_idx] = Keys(k, v, batch, cache.length)
            keys.make_room(tokens)
            keys.k[:, :tokens] = k if packing is None else packing.in_rows(k)
            keys.v[:, :tokens] = v if packing is None else packing.in_rows(v)
            keys.added(tokens, tokens if packing is None else packing.lengths)
        options = dict(self._options())
        if cu_seqlens is None:
            return flash_attention(q, k, v, sinks=float_sinks(self.sinks), **options)[0]
        out, _ = flash_attention(q[0], k[0], v[0], sinks=float_sinks(self.sinks),
                                 cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, **options)
        return out[None]

    def _continued(self, x: Tensor, keys: Keys) -> Tensor:
        """Returns out [B,T,H,D] of tokens that follow those in the cache."""
        batch, tokens = x.shape[:2]
        keys.make_room(tokens)
        at = keys.lengths[:, None] + torch.arange(tokens, device=x.device)
        q, k, v = self._projected(x, at)
        table = _kvcache.table_of(keys.k, batch, None, None)
        before = keys.lengths
        keys.added(tokens, tokens)
        if q.dtype != torch.float32:
            out, _ = _kvcache.decode(self._options(), q, keys.k, keys.v, before, table, k, v, None,
                                     float_sinks(self.sinks))
            return out
        # Kernels that decode take 16-bit numbers alone.
        _kvcache.append(keys.k, keys.v, table, before, k, v)
        left = None if self.window_size is None else self.window_size - 1
        mask = intervals(batch, tokens, keys.k.shape[1], before[:, None], 0, Pattern(left, 0), None,
                         x.device)
        return by_intervals(mask, Arguments(None, self.softcap, self.sinks), q, keys.k, keys.v)
