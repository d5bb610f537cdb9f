# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of vLLM's fork of flash-attention (vllm.vllm_flash_attn, mid 2026).

Up to 16 queries a sequence, on average, as in decoding, read the pages in place; for more, as in a
prefill, torch gathers them first. Nothing depends on the maximal lengths but how it is done. There
are no gradients over pages or into a given `out`.
"""
from lathe.compat._vllm_attention import (fa_version_unsupported_reason, flash_attn_varlen_func,
                                          get_scheduler_metadata, is_fa_version_supported)

__all__ = ["fa_version_unsupported_reason", "flash_attn_varlen_func", "get_scheduler_metadata",
           "is_fa_version_supported"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("fa_version_unsupported_reason", "", ""),
    ("flash_attn_varlen_func",
     "padded to a width that is a multiple of 8; cast sinks to float32; cast to int32; moved "
     "queries into parts; moved results of parts to their rows; gathered keys and values from "
     "pages; waited for the device: lengths; copied into the given out",
     "dropout_p; q_v; output_scale; cp_world_size; mask_mod; aux_tensors; block_sparse_tensors; "
     "dynamic_causal"),
    ("get_scheduler_metadata", "", ""),
    ("is_fa_version_supported", "", ""),
)
