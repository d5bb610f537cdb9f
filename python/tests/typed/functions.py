# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of lathe.torch in the eyes of mypy --strict, which test.sh runs; nothing runs this file.

Where a comment ignores an error there has to be that error: --strict refuses needless comments.
"""
from typing import assert_type

import torch
from torch import Tensor

import lathe.torch

x = torch.zeros(1)

assert_type(lathe.torch.flash_attention(x, x, x, causal=True, softcap=5, window_left=3),
            tuple[Tensor, Tensor])
lathe.torch.flash_attention(x, x, x, softmax_scale=None, deterministic=None, dispatch="home")
lathe.torch.flash_attention_decode(x, x, None, x, x, num_splits=2, causal=True)
assert_type(lathe.torch.kda(x, x, x, x, x, lower_bound=-5.0, chunk_size=32),
            tuple[Tensor, Tensor | None, Tensor | None])
lathe.torch.kda_recurrent(x, x, x, x, x, state_v_first=True, out=x)
lathe.torch.causal_conv1d(x, x, activation="silu", over=None)
assert_type(lathe.torch.causal_conv1d_update(x, x, x), Tensor)
lathe.torch.sparse_flash_attention(x, x, None, x, scale=0.1, index_space="absolute")

lathe.torch.flash_attention(x, x, x, casual=True)  # type: ignore[call-arg]
lathe.torch.flash_attention(x, x, x, softcap="5")  # type: ignore[arg-type]
lathe.torch.flash_attention(x, x, x, dispatch="never")  # type: ignore[arg-type]
lathe.torch.flash_attention(x, x, x, saved_forward=True)  # type: ignore[call-arg]
lathe.torch.flash_attention_decode(x, x, x, x, x, splits=2)  # type: ignore[call-arg]
lathe.torch.kda(x, x, x, x, x, chunk_size=32.0)  # type: ignore[arg-type]
lathe.torch.kda_recurrent(x, x, x, x, x, scale="1")  # type: ignore[arg-type]
lathe.torch.causal_conv1d(x, x, activation="gelu")  # type: ignore[arg-type]
lathe.torch.causal_conv1d_update(x, x, x, residual=1)  # type: ignore[arg-type]
lathe.torch.sparse_flash_attention(x, x, x, x)  # type: ignore[call-arg]
