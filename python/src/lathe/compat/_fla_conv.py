# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Causal convolution as flash-linear-attention 0.6 calls it (fla.modules.convolution)."""
from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

import lathe.torch
from lathe._errors import InvalidArgument, Unsupported
from lathe.compat._conv_checks import check_tensors
from lathe.compat._fla_checks import unknown
from lathe.compat._fla_context import context_of
from lathe.torch._calls import count
from lathe.torch._tensors import dense

_Activation = Literal["none", "silu"]
_ACTIVATIONS: dict[str | None, _Activation] = {None: "none", "silu": "silu", "swish": "silu"}
_BACKENDS = ("triton", "cuda", "mix")


def activation_name(activation: str | None) -> _Activation:
    """Returns the operator's name of an activation."""
    if activation not in _ACTIVATIONS:
        raise Unsupported(f"activation is {activation!r}; allowed are None, 'silu' and 'swish': "
                          "apply another one to the result")
    return _ACTIVATIONS[activation]


def given(weight: Tensor | None) -> Tensor:
    """Returns the weight, which the peer's signature lets one leave out."""
    if weight is None:
        raise InvalidArgument("weight is None; a convolution needs one of shape [D, W]")
    return weight


def flattened(x: Tensor) -> Tensor:
    """Returns x [B, T, D] as it is, and [B, T, H, D/H] as [B, T, D].

    The dimensions decide: the peer flattens where the last one is not D, and so refuses H = 1.
    """
    if x.dim() <= 3:
        return x
    if x.shape[2] != 1 and x.stride(2) != x.shape[3] * x.stride(3):
        count("copied to contiguous rows")
    return x.flatten(2)


def causal_conv1d(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
                  residual: Tensor | None = None, initial_state: Tensor | None = None,
                  output_final_state: bool | None = False, activation: str | None = None,
                  backend: str | None = "triton", cu_seqlens: Tensor | None = None,
                  cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
                  cp_context: Any = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Returns (y, final_state or None) of x [B, T, D] or [B, T, H, D/H] and weight [D, W].

    All backends are the same here; cu_seqlens_cpu and chunk_indices change nothing. kwargs:
    seq_idx, which may come beside cu_seqlens. cp_context may be lathe.torch.Ranks, as in chunk_kda.
    """
    if backend not in _BACKENDS:
        raise ValueError(f"backend is {backend!r}; allowed are {', '.join(_BACKENDS)}")
    if kwargs:
        seq_idx = kwargs.pop("seq_idx", None)
        if kwargs:
            raise unknown("causal_conv1d", kwargs)
        if seq_idx is not None and cu_seqlens is None:
            raise Unsupported("seq_idx is given without cu_seqlens; allowed is None: give the "
                              "sequences' offsets as cu_seqlens")
    over = context_of(cp_context, cu_seqlens, initial_state, final=bool(output_final_state))
    if over is not None:
        cu_seqlens = over.cu_seqlens  # the context's own are those of this rank
    check_tensors(x=x, weight=weight, bias=bias, residual=residual, initial_state=initial_state,
                  cu_seqlens=cu_seqlens)
    shape, rows = x.shape, flattened(x)
    if residual is not None:
        residual = flattened(residual)
    y, final = lathe.torch.causal_conv1d(
        rows, given(weight), bias, residual=residual, initial_state=initial_state,
        cu_seqlens=cu_seqlens, activation=activation_name(activation),
        output_final_state=bool(output_final_state), over=over and over.ranks)
    return (y if y.shape == shape else y.view(shape)), final


def _tokens(x: Tensor) -> Tensor:
    """Returns [N, D] of one token for each sequence."""
    x = flattened(x)
    if x.dim() == 3 and x.shape[1] == 1:
        x = x.squeeze(1)
    elif x.dim() == 3 and x.shape[0] == 1:
        x = x.squeeze(0)
    if x.dim() != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed are [N, D], [N, 1, D] and "
                         "[1, N, D]: a step takes one token of each sequence")
    return x


def causal_conv1d_update(x: Tensor, cache: Tensor, residual: Tensor | None = None,
                         weight: Tensor | None = None, bias: Tensor | None = None,
                         activation: str | None = None) -> tuple[Tensor, Tensor]:
    """Returns (y, cache) for one token of each sequence; rolls cache [N, D, W] in place.

    x is [N, D], [N, 1, D] or [1, N, D], or has heads in place of D. There is no gradient.
    """
    check_tensors(x=x, cache=cache, residual=residual, weight=weight, bias=bias)
    rows = _tokens(x)
    if residual is not None:
        residual = _tokens(residual)
    state = dense(cache)
    y = lathe.torch.causal_conv1d_update(rows, state.detach(), given(weight), bias,
                                         residual=residual,
                                         activation=activation_name(activation))
    if state is not cache:
        count("state copied back into cache")
        cache.detach().copy_(state)
    if x.dim() == 3:
        return y.unsqueeze(1 if x.shape[1] == 1 else 0), cache
    return (y if x.dim() == 2 else y.view(x.shape)), cache


class ShortConvolution(nn.Conv1d):
    """A depthwise causal convolution of width kernel_size, with a state of the last tokens.

    Its parameters are those of nn.Conv1d: weight [D, 1, W] and bias [D].
    """

    def __init__(self, hidden_size: int, kernel_size: int, bias: bool = False,
                 activation: str | None = "silu", backend: str | None = "triton",
                 device: Any = None, dtype: torch.dtype | None = None, **kwargs: Any) -> None:
        if kwargs.pop("use_fast_conv1d", None) is not None:
            warnings.warn("use_fast_conv1d is deprecated and changes nothing; nor does backend",
                          stacklevel=2)
        if kwargs:
            raise unknown("ShortConvolution", kwargs)
        if backend not in ("cuda", "triton"):
            raise ValueError(f"backend is {backend!r}; allowed are cuda and triton")
        assert activation in _ACTIVATIONS, \
            f"activation is {activation!r}; it must be None, 'silu' or 'swish'"
        super().__init__(hidden_size, hidden_size, kernel_size, padding=kernel_size - 1,
                         groups=hidden_size, bias=bias, device=device, dtype=dtype)
        self.hidden_size = hidden_size
        self.activation = activation
        self.backend = backend

    def extra_repr(self) -> str:
        """Returns what print(module) shows."""
        shown: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return shown if self.activation is None else f"{shown}, activation={self.activation}"

    def forward(self, x: Tensor, residual: Tensor | None = None,  # type: ignore[override]
                mask: Tensor | None = None, cache: Tensor | None = None,
                output_final_state: bool = False, cu_seqlens: Tensor | None = None,
                chunk_indices: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Returns (y, final_state or None) for x [B, T, D]; cache [N, D, W] is the state before.

        mask [B, T] multiplies x in place. Where no gradient is recorded and each sequence has one
        token, this is a step of decoding, as in the peer: the cache is changed in place.
        """
        check_tensors(x=x, mask=mask, cache=cache, cu_seqlens=cu_seqlens)
        if x.dim() < 3:
            raise InvalidArgument(f"x has shape {list(x.shape)}; allowed is [B, T, D]: give a batch "
                                  "and tokens their dimensions")
        if mask is not None:
            if cu_seqlens is not None:
                raise ValueError("mask and cu_seqlens are both given; one can be")
            if mask.dim() != 2 or mask.shape[0] not in (1, x.shape[0]) or (
                    mask.shape[1] != x.shape[1]):
                raise InvalidArgument(f"mask has shape {list(mask.shape)}; allowed is [B, T], here "
                                      f"{list(x.shape[:2])}: give one number for each token")
            count("x multiplied by a mask")
            x = x.mul_(mask.unsqueeze(-1))
        decodes = not torch.is_grad_enabled() and (
            x.shape[1] == 1 if cu_seqlens is None
            else x.shape[0] * x.shape[1] == cu_seqlens.shape[0] - 1)
        if decodes and cu_seqlens is None and not kwargs:
            return self.step(x, residual, cache, output_final_state)
        in_place = decodes and cache is not None
        y, final = causal_conv1d(x, self.weight.squeeze(1), self.bias, residual, cache,
                                 output_final_state or in_place, self.activation, self.backend,
                                 cu_seqlens, None, chunk_indices, **kwargs)
        if in_place:
            assert cache is not None and final is not None
            count("final state copied into cache")
            if cu_seqlens is None:
                final = cache.copy_(final)
            else:
                # Only the device knows whether each packed sequence has one token. So the general
                # kernel is right here, and the one that changes the state in place may not be.
                one_each = (cu_seqlens.diff() == 1).all()
                cache.copy_(torch.where(one_each, final, cache))
        return y, final if output_final_state else None

    def step(self, x: Tensor, residual: Tensor | None, cache: Tensor | None,
             output_final_state: bool = False, cu_seqlens: Tensor | None = None
             ) -> tuple[Tensor, Tensor | None]:
        """Returns (y, cache or None) for one token of each sequence; the cache changes in place."""
        if cache is None:
            sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
            count("state of zeros")
            cache = x.new_zeros(sequences, self.hidden_size, self.kernel_size[0])
        y, cache = causal_conv1d_update(x, cache, residual, self.weight.squeeze(1), self.bias,
                                        self.activation)
        return y, cache if output_final_state else None

    @property
    def state_size(self) -> int:
        """The elements of one sequence's state."""
        return self.hidden_size * self.kernel_size[0]
