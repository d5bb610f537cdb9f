# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Functions with the names of vLLM (mid 2026): attention of vllm.vllm_flash_attn."""
from lathe.compat._vllm_attention import (fa_version_unsupported_reason, flash_attn_varlen_func,
                                          get_scheduler_metadata, is_fa_version_supported)

__all__ = ["fa_version_unsupported_reason", "flash_attn_varlen_func", "get_scheduler_metadata",
           "is_fa_version_supported"]
