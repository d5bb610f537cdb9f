# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A call outside of a graph of torch.compile; imported late, because it imports torch._dynamo."""
from __future__ import annotations

from typing import Any, Callable

import torch


def _call(function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)


outside: Callable[..., Any] = torch.compiler.disable(_call)  # type: ignore[no-untyped-call]
