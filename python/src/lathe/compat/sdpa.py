# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""torch's scaled_dot_product_attention and varlen_attn by lathe (the registry of torch 2.15).

    lathe.compat.sdpa.register()
    torch.nn.attention.activate_flash_attention_impl("lathe")

Where torch chooses flash attention on a GPU it then calls lathe; restore_flash_attention_impl()
undoes it. Dropout and the debug mask raise RuntimeError. is_causal of scaled_dot_product_attention
counts from the top left, so with queries and keys of two lengths it raises RuntimeError too.
"""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.compat._attention import options_for
from lathe.compat._ragged import attend_varlen
from lathe.torch._calls import count
from lathe.torch._operator_calls import FLASH_ATTENTION_BWD
from lathe.torch._tensors import dense, usable

__all__ = ["register"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("register", "", ""),
)


class _Handle:
    """Keeps the kernels registered in torch's dispatcher until remove()."""

    def __init__(self, key: str) -> None:
        make_library: Any = torch.library.Library
        self.library = make_library("aten", "IMPL", key)
        for name, kernel in _KERNELS.items():
            self.library.impl(name, kernel, key)

    def remove(self) -> None:
        """Gives torch its own kernels back."""
        self.library = None


def register(name: str = "lathe") -> None:
    """Tells torch of lathe's flash attention; activate_flash_attention_impl(name) turns it on."""
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        raise Unsupported(f"torch {torch.__version__} has no registry of flash attention; upgrade "
                          "it, or call lathe.compat.flash_attn")
    torch.nn.attention.register_flash_attention_impl(name, register_fn=lambda: _Handle("CUDA"))


# ---- arguments -----------------------------------------------------------------------------------


def _refuse(dropout_p: float, debug_mask: bool = False) -> None:
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; allowed is 0.0 with lathe")
    if debug_mask:
        raise Unsupported("return_debug_mask is True; allowed is False with lathe")


def _refuse_top_left(query: Tensor, key: Tensor, is_causal: bool) -> None:
    if is_causal and query.shape[2] != key.shape[2]:
        raise Unsupported(f"is_causal is True with {query.shape[2]} queries and {key.shape[2]} "
                          "keys; allowed are as many: the mask would count from the top left")


def _like(query: Tensor, width: int) -> Tensor:
    """Returns an empty [B,H,S,width] with the query's order of dimensions; rows are contiguous."""
    if width == query.shape[-1] and query.stride(3) == 1:
        return torch.empty_like(query)
    order = sorted(range(3), key=lambda d: query.stride(d) or math.inf, reverse=True) + [3]
    shape = [*query.shape[:3], width]
    back = [order.index(d) for d in range(4)]
    return query.new_empty([shape[d] for d in order]).permute(back)


def _rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Returns [B,S,H,D] views of [B,H,S,D]."""
    return tuple(each.transpose(1, 2) for each in tensors)


def _extras(query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a random state, its offset and a debug mask: there is nothing in them."""
    return (torch.zeros(2, dtype=torch.uint64, device=query.device),
            torch.zeros((), dtype=torch.uint64, device=query.device), query.new_empty(0))


# ---- forward and backward ------------------------------------------------------------------------


def _forward(query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Tensor | None,
             cum_seq_k: Tensor | None, max_q: int, max_k: int, is_causal: bool, scale: float | None,
             left: int | None = None, right: int | None = None, seqused_k: Tensor | None = None,
             slopes: Tensor | None = None, table: Tensor | None = None,
             num_splits: int | None = None, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return attend_varlen(options_for(scale, is_causal, (left, right), 0.0), query, key, value,
                             cum_seq_q, cum_seq_k, None, seqused_k, table, slopes,
                             None, num_splits or 0, out)


def _flash_forward(query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Tensor | None,
                   cum_seq_k: Tensor | None, max_q: int, max_k: int, dropout_p: float,
                   is_causal: bool, return_debug_mask: bool, *, scale: float | None = None,
                   window_size_left: int | None = None, window_size_right: int | None = None,
                   seqused_k: Tensor | None = None, alibi_slopes: Tensor | None = None,
                   block_table: Tensor | None = None, num_splits: int | None = None) -> Any:
    _refuse(dropout_p, return_debug_mask)
    found = _forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale,
                     window_size_left, window_size_right, seqused_k, alibi_slopes, block_table,
                     num_splits)
    return *found, *_extras(query)


def _flash_forward_inplace(out: Tensor, query: Tensor, key: Tensor, value: Tensor,
                           cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int,
                           max_k: int, dropout_p: float, is_causal: bool, return_debug_mask: bool,
                           *, scale: float | None = None, window_size_left: int | None = None,
                           window_size_right: int | None = None, seqused_k: Tensor | None = None,
                           alibi_slopes: Tensor | None = None, block_table: Tensor | None = None,
                           num_splits: int | None = None) -> Tensor:
    _refuse(dropout_p, return_debug_mask)
    return _forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale,
                    window_size_left, window_size_right, seqused_k, alibi_slopes, block_table,
                    num_splits, out)[1]


def _flash_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor,
                    logsumexp: Tensor, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None,
                    max_q: int, max_k: int, dropout_p: float, is_causal: bool, rng_state: Tensor,
                    unused: Tensor, *, scale: float | None = None,
                    window_size_left: int | None = None, window_size_right: int | None = None
                    ) -> tuple[Tensor, ...]:
    _refuse(dropout_p)
    options = (*options_for(scale, is_causal, (window_size_left, window_size_right), 0.0),
               ("saved_forward", 1))
    tensors = FLASH_ATTENTION_BWD.ordered(
        q=usable(query), k=usable(key), v=usable(value), cu_seqlens_q=dense(cum_seq_q),
        cu_seqlens_k=dense(cum_seq_k), dout=usable(grad_out), out=usable(out),
        lse=dense(logsumexp))
    # Inductor takes the gradients' strides for those that torch's own kernels give them.
    made = tuple(torch.empty_like(each) for each in (query, key, value))
    if all(each.stride(-1) == 1 for each in made):
        FLASH_ATTENTION_BWD.into(options, tensors, (*made, None))
        return made
    count("copied to contiguous rows")
    for each, found in zip(made, FLASH_ATTENTION_BWD(options, *tensors)):
        each.copy_(found)
    return made


def _sdpa_forward(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
                  is_causal: bool = False, return_debug_mask: bool = False, *,
                  scale: float | None = None) -> Any:
    _refuse(dropout_p, return_debug_mask)
    _refuse_top_left(query, key, is_causal)
    out = _like(query, value.shape[-1])
    lengths = (query.shape[2], key.shape[2])
    q, k, v = _rows(query, key, value)
    _, lse = _forward(q, k, v, None, None, *lengths, is_causal, scale, out=out.transpose(1, 2))
    return out, lse, None, None, *lengths, *_extras(query)


def _sdpa_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor,
                   logsumexp: Tensor, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None,
                   max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Tensor,
                   philox_offset: Tensor, *, scale: float | None = None) -> tuple[Tensor, ...]:
    _refuse_top_left(query, key, is_causal)
    dout, q, k, v, rows = _rows(grad_out, query, key, value, out)
    return _rows(*_flash_backward(dout, q, k, v, rows, logsumexp, None, None, max_q, max_k,
                                  dropout_p, is_causal, philox_seed, philox_offset, scale=scale))


_KERNELS = {"_scaled_dot_product_flash_attention": _sdpa_forward,
            "_scaled_dot_product_flash_attention_backward": _sdpa_backward,
            "_flash_attention_forward": _flash_forward,
            "_flash_attention_forward_no_dropout_inplace": _flash_forward_inplace,
            "_flash_attention_backward": _flash_backward}
