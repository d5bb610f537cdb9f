# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of lathe.compat's attention, in the order and with the defaults of the peers."""
import inspect

import pytest

from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, vllm

COMMON = ("dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
          "alibi_slopes=None, deterministic=False, return_attn_probs=False")
PACKED = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
DESCALES = "q_descale=None, k_descale=None, v_descale=None"
METADATA = ("batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, "
            "cache_seqlens, qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, "
            "cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, max_seqlen_k_new=0, "
            "causal=False, window_size=(-1, -1), {}has_softcap=False, num_splits=0, pack_gqa=None, "
            "sm_margin=0")
MODS = "score_mod=None, score_mod_bwd=None, mask_mod=None, "

SIGNATURES = {
    flash_attn: {
        "flash_attn_func": f"q, k, v, {COMMON}",
        "flash_attn_kvpacked_func": f"q, kv, {COMMON}",
        "flash_attn_qkvpacked_func": f"qkv, {COMMON}",
        "flash_attn_varlen_func": f"q, k, v, {PACKED}, {COMMON}, block_table=None",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {PACKED}, {COMMON}",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {COMMON}",
        "flash_attn_with_kvcache":
            "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
            "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, "
            "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
            "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    },
    # s_aux is of the peer's forks, which callers give by name; it is last, so that the rest is as
    # in the peer.
    flash_attn_3: {
        "flash_attn_func":
            f"q, k, v, softmax_scale=None, causal=False, qv=None, {DESCALES}, "
            "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, "
            "deterministic=False, sm_margin=0, return_attn_probs=False, s_aux=None",
        "flash_attn_qkvpacked_func":
            f"qkv, softmax_scale=None, causal=False, {DESCALES}, window_size=(-1, -1), "
            "attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, "
            "return_attn_probs=False",
        "flash_attn_varlen_func":
            f"q, k, v, {PACKED}, seqused_q=None, seqused_k=None, softmax_scale=None, causal=False, "
            f"qv=None, {DESCALES}, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
            "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, "
            "return_attn_probs=False, s_aux=None",
        "flash_attn_with_kvcache":
            "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
            "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, "
            "cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
            f"{DESCALES}, softmax_scale=None, causal=False, window_size=(-1, -1), "
            "attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, "
            "num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False, s_aux=None",
        "get_scheduler_metadata": METADATA.format("attention_chunk=0, "),
    },
    flash_attn_4: {
        "flash_attn_func":
            "q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, "
            "window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, "
            f"pack_gqa=None, deterministic=False, {MODS}aux_tensors=None, aux_scalars=None, "
            "block_sparse_tensors=None, block_sparse_tensors_bwd=None, return_lse=False",
        "flash_attn_varlen_func":
            "q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, "
            "max_seqlen_k=None, min_seqlen_k=None, seqused_q=None, seqused_k=None, "
            "gather_kv_indices=None, page_table=None, softmax_scale=None, causal=False, "
            "window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, "
            f"pack_gqa=None, deterministic=False, {MODS}block_sparse_tensors=None, "
            "aux_tensors=None, aux_scalars=None, return_lse=False, scheduler_metadata=None, "
            "seqlen_k_per_split=None, disable_scheduler_metadata=False",
    },
    vllm: {
        "flash_attn_varlen_func":
            "q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, "
            "q_v=None, dropout_p=0.0, softmax_scale=None, causal=False, window_size=None, "
            "softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, "
            "block_table=None, return_softmax_lse=False, out=None, scheduler_metadata=None, "
            f"{DESCALES}, num_splits=0, output_scale=None, fa_version=2, s_aux=None, "
            "cp_world_size=1, cp_rank=0, cp_tot_seqused_k=None, mask_mod=None, "
            "block_sparse_tensors=None, aux_tensors=None, aux_tensor_leading_dims=None, "
            "dynamic_causal=None, gather_kv_indices=None, gather_kv_valid_length=None",
        "get_scheduler_metadata": METADATA.format(""),
        "is_fa_version_supported": "fa_version",
        "fa_version_unsupported_reason": "fa_version",
    },
}


@pytest.mark.parametrize("module, name", [
    pytest.param(module, name, id=f"{module.__name__}.{name}")
    for module, names in SIGNATURES.items() for name in names])
def test_signature(module, name):
    found = inspect.signature(getattr(module, name)).parameters.values()
    text = ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in found)
    assert text == SIGNATURES[module][name]
    with pytest.raises(TypeError, match="colour"):
        getattr(module, name)(*[None] * text.count(", "), colour=1)
