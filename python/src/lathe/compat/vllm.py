# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of vLLM's fork of flash-attention (vllm.vllm_flash_attn, 0.27 to 0.33).

Packed queries of 16 bits, any number of each sequence, read the pages in place, in one call.
Nothing depends on the maximal lengths. register() makes a running vLLM call these functions, those
of vllm_conv and those of vllm_kda. There are no gradients over pages or into a given `out`.
"""
from lathe.compat._vllm_register import register
from lathe.compat._vllm_attention import (fa_version_unsupported_reason, flash_attn_varlen_func,
                                          get_scheduler_metadata, is_fa_version_supported)

__all__ = ["fa_version_unsupported_reason", "flash_attn_varlen_func", "get_scheduler_metadata",
           "is_fa_version_supported", "register"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("fa_version_unsupported_reason", "", ""),
    ("flash_attn_varlen_func",
     "padded to a width that is a multiple of 8; cast sinks to float32; cast to int32; gathered "
     "keys and values from pages; waited for the device: lengths; copied into the given out",
     "dropout_p; q_v; output_scale; cp_world_size (without pages); mask_mod; aux_tensors; "
     "block_sparse_tensors; dynamic_causal; gather_kv_indices; gather_kv_valid_length"),
    ("get_scheduler_metadata", "", ""),
    ("is_fa_version_supported", "", ""),
    ("register", "", ""),
)
