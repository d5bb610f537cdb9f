# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The entry points by which a running vLLM or SGLang takes lathe (python/pyproject.toml).

Servers call every plugin that is installed. That lathe is installed says nothing of its use, so
these do nothing unless the server's own variable names lathe: VLLM_PLUGINS=lathe,
SGLANG_PLUGINS=lathe.
"""
from __future__ import annotations

import os

_NAME = "lathe"


def _asked(variable: str) -> bool:
    return _NAME in (each.strip() for each in os.environ.get(variable, "").split(","))


def vllm() -> None:
    """Is called by vLLM in each of its processes (vllm.general_plugins)."""
    if _asked("VLLM_PLUGINS"):
        from lathe.compat.vllm import register

        register()


def sglang() -> None:
    """Is called by SGLang before its engine starts (sglang.srt.plugins)."""
    if _asked("SGLANG_PLUGINS"):
        from lathe.compat.sglang import register

        register()
