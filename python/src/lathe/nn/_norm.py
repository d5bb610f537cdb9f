# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Norms of layers, by torch: x / rms(x) * weight, in float32, and with a gate."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, rounded once to x's dtype."""

    def __init__(self, width: int, eps: float = 1e-5, device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype))

    def _normed(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight.float()

    def forward(self, x: Tensor) -> Tensor:
        """Returns x normed."""
        return self._normed(x).to(x.dtype)


class GatedRMSNorm(RMSNorm):
    """The same, times sigmoid(gate)."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:  # type: ignore[override]
        """Returns x normed and gated."""
        return (self._normed(x) * torch.sigmoid(gate.float())).to(x.dtype)
