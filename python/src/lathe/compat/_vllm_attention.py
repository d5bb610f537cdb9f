# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of lathe.compat.vllm."""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat._arguments import NOT_TENSORS, refuse_others
from lathe.compat._attention import float_sinks, options_for, refuse, refuse_float8
from lathe.compat._places import int32
from lathe.compat._ragged import attend_varlen
from lathe.torch._calls import Options

_VERSIONS = (2, 3, 4)


def is_fa_version_supported(fa_version: int) -> bool:
    """Returns true: one set of kernels stands for all versions."""
    return fa_version_unsupported_reason(fa_version) is None


def fa_version_unsupported_reason(fa_version: int) -> str | None:
    """Returns None, or raises ValueError for a version that there is not."""
    if fa_version not in _VERSIONS:
        raise ValueError(f"Unsupported FA version: {fa_version}")
    return None


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, max_seqlen_q: int, cu_seqlens_q: Tensor,
                           max_seqlen_k: int, cu_seqlens_k: Tensor | None = None,
                           seqused_k: Tensor | None = None, q_v: Tensor | None = None,
                           dropout_p: float = 0.0, softmax_scale: float | None = None,
                           causal: bool = False, window_size: Sequence[Any] | None = None,
                           softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                           deterministic: bool = False, return_attn_probs: bool = False,
                           block_table: Tensor | None = None, return_softmax_lse: bool = False,
                           out: Tensor | None = None, scheduler_metadata: Any = None,
                           q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                           v_descale: Tensor | None = None, num_splits: int = 0,
                           output_scale: Tensor | None = None, fa_version: int = 2,
                           s_aux: Tensor | None = None, cp_world_size: int = 1, cp_rank: int = 0,
                           cp_tot_seqused_k: Tensor | None = None, mask_mod: Any = None,
                           block_sparse_tensors: Any = None, aux_tensors: Any = None,
                           aux_tensor_leading_dims: Any = None,
                           dynamic_causal: Tensor | None = None,
                           gather_kv_indices: Tensor | None = None,
                           gather_kv_valid_length: Tensor | None = None) -> Any:
    """Returns out [Tq,H,DV], or (out, lse [H,Tq]), for packed queries over packed keys or pages.

    A given `out` is written by the kernel, with its strides. s_aux are sinks, one logit a head.
    With cp_world_size the pages hold key j * cp_world_size + cp_rank of a sequence in place j, and
    cp_tot_seqused_k [B] counts the keys of all ranks; lse then merges the ranks' results.
    """
    try:
        assert cu_seqlens_k is not None or seqused_k is not None, \
            "cu_seqlens_k or seqused_k must be provided"
        assert cu_seqlens_k is None or seqused_k is None, \
            "cu_seqlens_k and seqused_k cannot be provided at the same time"
        assert block_table is None or seqused_k is not None, \
            "seqused_k must be provided if block_table is provided"
        fa_version_unsupported_reason(fa_version)
        refuse_float8(q=q, k=k)
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p, output_scale=output_scale, q_v=q_v,
                              mask_mod=mask_mod, aux_tensors=aux_tensors,
                              block_sparse_tensors=block_sparse_tensors,
                              dynamic_causal=dynamic_causal,
                              gather_kv_indices=gather_kv_indices,
                              gather_kv_valid_length=gather_kv_valid_length)
        total = None
        if cp_world_size != 1:
            options, total = _shared_keys(options, cp_world_size, cp_rank, cp_tot_seqused_k,
                                          block_table)
        found, lse = attend_varlen(options, q, k, v, cu_seqlens_q, cu_seqlens_k, None, seqused_k,
                                   block_table, alibi_slopes, float_sinks(s_aux), num_splits, out,
                                   total)
        return (found, lse) if return_softmax_lse else found
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_func, locals())
        raise


def _shared_keys(options: Options, world: int, rank: int, total: Tensor | None,
                 table: Tensor | None) -> tuple[Options, Tensor]:
    """Returns the options and the keys over all ranks, where a rank has every world-th key."""
    if table is None or total is None:
        refuse("cp_world_size", world, "give block_table and cp_tot_seqused_k with it: keys of "
               "decode context parallelism are in pages")
    if not 0 <= rank < world:
        raise InvalidArgument(f"cp_rank is {rank}; allowed are 0 to {world - 1}, as cp_world_size "
                              f"is {world}")
    assert total is not None
    return ((*options, ("key_stride", world), ("key_offset", rank)),
            int32("cp_tot_seqused_k", total))


def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int,
                           num_heads_kv: int, headdim: int, cache_seqlens: Tensor,
                           qkv_dtype: torch.dtype = torch.bfloat16, headdim_v: int | None = None,
                           cu_seqlens_q: Tensor | None = None,
                           cu_seqlens_k_new: Tensor | None = None,
                           cache_leftpad: Tensor | None = None, page_size: int | None = None,
                           max_seqlen_k_new: int = 0, causal: bool = False,
                           window_size: Sequence[Any] = (-1, -1), has_softcap: bool = False,
                           num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0
                           ) -> Tensor:
    """Returns an empty tensor: kernels here need no schedule that is made before."""
    return torch.empty(0, dtype=torch.int32, device=cache_seqlens.device)
