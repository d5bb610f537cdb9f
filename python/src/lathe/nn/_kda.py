# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The layer of Kimi Delta Attention (Kimi Linear, arXiv 2510.26692)."""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lathe._errors import InvalidArgument
from lathe.compat.fla import ShortConvolution, chunk_kda, fused_recurrent_kda_fwd
from lathe.nn._cache import Cache, States, packing_of, refuse_gradients
from lathe.nn._norm import GatedRMSNorm

_MOST_STEPS = 64  # tokens of a call up to which they go one by one
_NAMES = "qkv"


class KimiDeltaAttention(nn.Module):
    """Kimi Delta Attention: projections, short convolutions, gates, recurrence and gated norm.

    Heads of values are num_v_heads, a multiple of num_heads, of width head_dim * expand_v. beta is
    sigmoid(b_proj(x)), twice that with allow_neg_eigval. The decay's logarithm is
    -exp(A_log) * softplus(f_proj(x) + dt_bias), or lower_bound * sigmoid(exp(A_log) * (..)).
    """

    def __init__(self, hidden_size: int = 2048, expand_v: float = 1.0, head_dim: int = 128,
                 num_heads: int = 16, num_v_heads: int | None = None, use_short_conv: bool = True,
                 allow_neg_eigval: bool = False, safe_gate: bool = False,
                 lower_bound: float | None = None, conv_size: int = 4, conv_bias: bool = False,
                 layer_idx: int = 0, norm_eps: float = 1e-5, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.head_dim, self.layer_idx = head_dim, layer_idx
        self.heads = num_heads
        self.v_heads = num_heads if num_v_heads is None else num_v_heads
        self.v_dim = round(head_dim * expand_v)
        if self.v_heads % num_heads or self.v_dim != head_dim * expand_v:
            raise InvalidArgument(
                f"num_v_heads is {self.v_heads} with {num_heads} heads and expand_v {expand_v} of "
                f"head_dim {head_dim}; allowed are multiples of num_heads and whole widths")
        self.allow_neg_eigval, self.safe_gate = allow_neg_eigval, safe_gate
        self.lower_bound = lower_bound
        made = {"device": device, "dtype": dtype}
        widths = {"q": num_heads * head_dim, "k": num_heads * head_dim,
                  "v": self.v_heads * self.v_dim}
        for name, width in widths.items():
            self.add_module(f"{name}_proj", nn.Linear(hidden_size, width, bias=False, **made))
        self.use_short_conv = use_short_conv
        for name, width in widths.items() if use_short_conv else ():
            self.add_module(f"{name}_conv1d", ShortConvolution(width, conv_size, conv_bias, "silu",
                                                               **made))
        gates = self.v_heads * head_dim
        self.f_proj = nn.Sequential(nn.Linear(hidden_size, self.v_dim, bias=False, **made),
                                    nn.Linear(self.v_dim, gates, bias=False, **made))
        self.b_proj = nn.Linear(hidden_size, self.v_heads, bias=False, **made)
        self.A_log = nn.Parameter(torch.empty(self.v_heads, device=device))
        self.dt_bias = nn.Parameter(torch.empty(gates, device=device))
        self.g_proj = nn.Sequential(nn.Linear(hidden_size, self.v_dim, bias=False, **made),
                                    nn.Linear(self.v_dim, widths["v"], bias=True, **made))
        self.o_norm = GatedRMSNorm(self.v_dim, norm_eps, **made)
        self.o_proj = nn.Linear(widths["v"], hidden_size, bias=False, **made)
        self.reset_gates()

    @torch.no_grad()
    def reset_gates(self) -> None:
        """Draws A_log and dt_bias: rates of 1 to 16 and steps of 0.001 to 0.1."""
        if self.safe_gate:
            self.A_log.zero_()
        else:
            self.A_log.uniform_(1, 16).log_()
        step = self.dt_bias.uniform_(math.log(1e-3), math.log(0.1)).exp_().clamp_(min=1e-4)
        step.add_(torch.log(-torch.expm1(-step)))  # softplus gives the step again

    def _convolved(self, x: Tensor, states: States | None, keeps: bool, cu_seqlens: Tensor | None
                   ) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
        """Returns q, k, v [B,T,width] and the convolutions' states."""
        found: list[Tensor] = []
        kept: list[Tensor | None] = []
        for i, name in enumerate(_NAMES):
            part = self.get_submodule(f"{name}_proj")(x)
            if not self.use_short_conv:
                found.append(F.silu(part))
                kept.append(None)
                continue
            y, state = self.get_submodule(f"{name}_conv1d")(
                part, cache=None if states is None else states.conv[i], output_final_state=keeps,
                cu_seqlens=cu_seqlens)
            found.append(y)
            kept.append(state)
        return found, tuple(kept)

    def forward(self, hidden_states: Tensor, cache: Cache | None = None,
                attention_mask: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Returns [B,T,hidden] for hidden_states of that shape.

        attention_mask [B,T]: 0 where there is padding, in which results are 0. cu_seqlens: offsets
        of packed sequences, with B = 1. A cache, under torch.no_grad(), has the state before and
        gets the one after.
        """
        refuse_gradients(cache)
        states = None if cache is None else cache.layers.get(self.layer_idx)
        packing = packing_of(attention_mask, cu_seqlens, states is not None)
        x = hidden_states
        if packing is not None:
            x, cu_seqlens = packing.pack(x), packing.starts
        (q, k, v), conv = self._convolved(x, states, cache is not None, cu_seqlens)
        rows = x.shape[:2]
        q, k = (each.view(*rows, self.heads, self.head_dim) for each in (q, k))
        v = v.view(*rows, self.v_heads, self.v_dim)
        g = self.f_proj(x).view(*rows, self.v_heads, self.head_dim)
        o, state = self._recurrence((q, k, v, g, self.b_proj(x)), states, cache is not None,
                                    cu_seqlens)
        if cache is not None and states is None:
            assert state is not None
            cache.layers[self.layer_idx] = States(conv, state)
        elif states is not None:
            states.conv = conv
            states.state = states.state if state is None else state
        gate = self.g_proj(x).view(*rows, self.v_heads, self.v_dim)
        out: Tensor = self.o_proj(self.o_norm(o, gate).flatten(2))
        return out if packing is None else packing.unpack(out)

    def _recurrence(self, inputs: tuple[Tensor, ...], states: States | None, keeps: bool,
                    cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Returns o [B,T,HV,V] and the state; None if it has been changed in place."""
        options: dict[str, Any] = {
            "A_log": self.A_log, "dt_bias": self.dt_bias, "use_qk_l2norm_in_kernel": True,
            "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
            "allow_neg_eigval": self.allow_neg_eigval, "lower_bound": self.lower_bound,
            "state_v_first": True, "cu_seqlens": cu_seqlens}
        q, k, v, g, beta = inputs
        if states is not None and q.shape[1] <= _MOST_STEPS:
            o, _ = fused_recurrent_kda_fwd(q, k, v, g, beta, initial_state=states.state,
                                           ssm_state_indices=states.slots, **options)
            return o, None
        found = chunk_kda(q, k, v, g, beta, initial_state=None if states is None else states.state,
                          output_final_state=keeps, safe_gate=self.safe_gate, **options)
        assert found[0] is not None
        return found[0], found[1]
