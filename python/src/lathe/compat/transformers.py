# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Models of transformers 5 (as of 5.23) by lathe: attention, causal convolution and KDA.

    lathe.compat.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="lathe")

Whole, padded and packed batches, growing and static caches, windows, softcap and sinks are read
where they lie. Masks of other kinds become a table that the kernel reads. "lathe_flash3" is the
name for continuous batching. Dropout, output_attentions and a position_bias are refused.
"""
from __future__ import annotations

import functools
import importlib
from typing import Any

from torch import Tensor

from lathe._errors import Unsupported
from lathe.compat import flash_attn
from lathe.compat._transformers_attention import attention_forward
from lathe.compat._transformers_functions import give_functions_back, take_functions
from lathe.compat._transformers_mask import attention_mask, pattern_of

__all__ = ["attention_forward", "register", "unregister"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("attention_forward",
     "waited for the device: attention_mask; waited for the device: packed sequences; waited for "
     "the device: position_ids; copied to one row of sequences; cast attention_mask; copied "
     "attention_mask; cast sinks to float32; padded to a width that is a multiple of 8",
     "dropout; output_attentions; position_bias"),
    ("register", "", ""),
    ("unregister", "", ""),
)

NAME = "lathe"
# transformers lets continuous batching run with names that have "flash" and a version in them.
FLASH_NAME = "lathe_flash3"


def _flash_mask(*arguments: Any, **keywords: Any) -> Tensor | None:
    """Returns the mask of FLASH_NAME: packed sequences come with offsets and need none."""
    pattern = pattern_of(keywords.get("mask_function"))
    if pattern is not None and pattern.sequence is not None:
        return None
    return attention_mask(*arguments, **keywords)


def _parts() -> tuple[Any, Any, Any]:
    """Returns the modules of transformers that keep attention, masks and flash attention."""
    found = [importlib.import_module(f"transformers.{name}") for name in
             ("modeling_utils", "masking_utils", "modeling_flash_attention_utils")]
    if not hasattr(found[0], "AttentionInterface") or not hasattr(found[1],
                                                                  "AttentionMaskInterface"):
        version = importlib.import_module("transformers").__version__
        raise Unsupported(f"transformers is {version}; allowed are versions with "
                          "AttentionMaskInterface: upgrade it, or call lathe.compat.flash_attn")
    return found[0], found[1], found[2]


def _imports(theirs: Any) -> Any:
    """Returns transformers' choice of flash attention's functions, with ours for FLASH_NAME."""

    @functools.wraps(theirs)
    def imports(implementation: str | None, *arguments: Any, **keywords: Any) -> Any:
        if implementation != FLASH_NAME:
            return theirs(implementation, *arguments, **keywords)
        module = importlib.import_module("transformers.modeling_flash_attention_utils")
        return (flash_attn.flash_attn_func, flash_attn.flash_attn_varlen_func,
                flash_attn.flash_attn_with_kvcache, module._pad_input, module._unpad_input)

    imports._lathe_in_place_of = theirs  # type: ignore[attr-defined]
    return imports


def register() -> list[str]:
    """Tells transformers of lathe; returns the names that it knows now. May be called again.

    attn_implementation="lathe" then computes attention. Models with causal convolutions and Kimi
    Delta Attention call lathe for these whatever their attention is, imported before or after.
    """
    modeling, masking, flash = _parts()
    for name, mask in ((NAME, attention_mask), (FLASH_NAME, _flash_mask)):
        modeling.AttentionInterface.register(name, attention_forward)
        masking.AttentionMaskInterface.register(name, mask)
    if hasattr(flash, "_lazy_imports") and not hasattr(flash._lazy_imports, "_lathe_in_place_of"):
        flash._lazy_imports = _imports(flash._lazy_imports)
    return [NAME, FLASH_NAME, *take_functions()]


def unregister() -> None:
    """Undoes register(), for models that are made or called afterwards."""
    modeling, masking, flash = _parts()
    for name in (NAME, FLASH_NAME):
        modeling.AttentionInterface._global_mapping.pop(name, None)
        masking.AttentionMaskInterface._global_mapping.pop(name, None)
    found = getattr(flash, "_lazy_imports", None)
    flash._lazy_imports = getattr(found, "_lathe_in_place_of", found)
    give_functions_back()
