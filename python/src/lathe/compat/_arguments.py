# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals of arguments that are no tensors: lists, arrays of NumPy and their like, by name."""
from __future__ import annotations

import inspect
from typing import Any, Callable

from torch import Tensor

from lathe._errors import InvalidArgument

# What an argument that is no tensor leads to. Arguments are looked at after such an error, because
# in front of every call it would take longer than what else is done there.
NOT_TENSORS = (AttributeError, IndexError, TypeError)

_WORDS = {"Tensor": "a tensor of torch", "int": "an int"}


def refuse_others(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Raises InvalidArgument for the first argument that has to be a tensor and is none.

    given: the function's locals() in an error.
    """
    for name, parameter in inspect.signature(function).parameters.items():
        allowed, value = str(parameter.annotation).split(" | "), given[name]
        if "Tensor" not in allowed or value is None or isinstance(value, Tensor):
            continue
        if not ("int" in allowed and isinstance(value, int)):
            kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
            words = " or ".join(_WORDS.get(each, each) for each in allowed)
            raise InvalidArgument(f"{name} is a {kind}; allowed is {words}: torch.as_tensor "
                                  "makes a tensor of it")
