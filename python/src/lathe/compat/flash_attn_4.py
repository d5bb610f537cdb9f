# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of FlashAttention 4 (flash_attn.cute, as of flash-attention 2.8.4).

    from lathe.compat.flash_attn_4 import flash_attn_func

Both return (out, lse); lse has a gradient with return_lse, and learnable_sink always. Device code
of CuTe (score_mod, mask_mod) and block sparsity are refused: lathe.flex takes functions of torch.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from torch import Tensor

from lathe.compat._arguments import NOT_TENSORS, refuse_others
from lathe.compat._attention import attend, float_sinks, options_for, refuse, refuse_float8
from lathe.compat._ragged import attend_varlen
from lathe.torch._calls import Options

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("flash_attn_func",
     "padded to a width that is a multiple of 8; cast sinks to float32",
     "qv; gather_kv_indices; score_mod; score_mod_bwd; mask_mod; aux_tensors; aux_scalars; "
     "block_sparse_tensors; block_sparse_tensors_bwd"),
    ("flash_attn_varlen_func",
     "padded to a width that is a multiple of 8; cast sinks to float32; cast to int32; moved used "
     "rows together; moved results to their slots; gathered keys and values from pages; "
     "waited for the device: lengths",
     "qv; gather_kv_indices; score_mod; score_mod_bwd; mask_mod; aux_tensors; aux_scalars; "
     "block_sparse_tensors"),
)

Window = Sequence["int | None"]


def _options(softmax_scale: float | None, causal: bool, window: Window, softcap: float,
             deterministic: bool, **refused: Any) -> Options:
    """Returns the options. None is no bound; two bounds whose sum is negative are none either."""
    left, right = window
    if causal:
        right = 0
    if left is not None and right is not None and left + right < 0:
        left = right = None
    for name, bound in (("left", left), ("right", right)):
        if bound is not None and bound < 0:
            refuse(f"window_size's {name} bound", bound, "None is no bound")
    return options_for(softmax_scale, causal, (left, right), softcap, deterministic, **refused)


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, qv: Tensor | None = None,
                    gather_kv_indices: Tensor | None = None, softmax_scale: float | None = None,
                    causal: bool = False, window_size: Window = (None, None),
                    learnable_sink: Tensor | None = None, softcap: float = 0.0,
                    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
                    score_mod: Callable[..., Any] | None = None,
                    score_mod_bwd: Callable[..., Any] | None = None,
                    mask_mod: Callable[..., Any] | None = None,
                    aux_tensors: list[Tensor] | None = None,
                    aux_scalars: tuple[Any, ...] | None = None, block_sparse_tensors: Any = None,
                    block_sparse_tensors_bwd: Any = None, return_lse: bool = False
                    ) -> tuple[Tensor, Tensor]:
    """Returns (out [B,Sq,H,DV], lse [B,H,Sq]) for q [B,Sq,H,D], k [B,Sk,HK,D], v [B,Sk,HK,DV]."""
    try:
        refuse_float8(q=q, k=k)
        options = _options(softmax_scale, causal, window_size, softcap, deterministic, qv=qv,
                           gather_kv_indices=gather_kv_indices, score_mod=score_mod,
                           score_mod_bwd=score_mod_bwd, mask_mod=mask_mod, aux_tensors=aux_tensors,
                           aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors,
                           block_sparse_tensors_bwd=block_sparse_tensors_bwd)
        out, lse = attend(options, q, k, v, None, float_sinks(learnable_sink))
        return out, lse if return_lse else lse.detach()
    except NOT_TENSORS:
        refuse_others(flash_attn_func, locals())
        raise


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, qv: Tensor | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
                           max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
                           min_seqlen_k: int | None = None, seqused_q: Tensor | None = None,
                           seqused_k: Tensor | None = None, gather_kv_indices: Tensor | None = None,
                           page_table: Tensor | None = None, softmax_scale: float | None = None,
                           causal: bool = False, window_size: Window = (None, None),
                           learnable_sink: Tensor | None = None, softcap: float = 0.0,
                           num_splits: int = 1, pack_gqa: bool | None = None,
                           deterministic: bool = False, score_mod: Callable[..., Any] | None = None,
                           score_mod_bwd: Callable[..., Any] | None = None,
                           mask_mod: Callable[..., Any] | None = None,
                           block_sparse_tensors: Any = None,
                           aux_tensors: list[Tensor] | None = None,
                           aux_scalars: tuple[Any, ...] | None = None, return_lse: bool = False,
                           scheduler_metadata: Any = None, seqlen_k_per_split: int | None = None,
                           disable_scheduler_metadata: bool = False) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) for packed or batched queries and keys, or keys in pages.

    Slots used in part (seqused) are moved by torch. With a page table there is no gradient.
    """
    try:
        refuse_float8(q=q, k=k)
        options = _options(softmax_scale, causal, window_size, softcap, deterministic, qv=qv,
                           gather_kv_indices=gather_kv_indices, score_mod=score_mod,
                           score_mod_bwd=score_mod_bwd, mask_mod=mask_mod, aux_tensors=aux_tensors,
                           aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors)
        out, lse = attend_varlen(options, q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k,
                                 page_table, None, float_sinks(learnable_sink))
        return out, lse if return_lse else lse.detach()
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_func, locals())
        raise
