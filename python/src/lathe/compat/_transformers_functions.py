# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of hybrid models of transformers: causal convolution and Kimi Delta Attention.

A model's module takes such a function by a decorator when it is imported: from a package if there
is one, else its own function of torch. Here the decorator takes lathe's, and modules that have
been imported before get lathe's in place of what they took.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from typing import Any, Callable

from lathe.compat import causal_conv1d, fla

_Function = Callable[..., Any]

# lathe's function for a name of the decorator, and the name in modules of models.
FUNCTIONS: dict[str, tuple[_Function, str]] = {
    "causal_conv1d_fn": (causal_conv1d.causal_conv1d_fn, "causal_conv1d_fn"),
    "causal_conv1d_update": (causal_conv1d.causal_conv1d_update, "causal_conv1d_update"),
    "chunk_kda": (fla.chunk_kda, "chunk_kimi_delta_attention"),
    "fused_recurrent_kda": (fla.fused_recurrent_kda, "recurrent_kimi_delta_attention"),
}
_DECORATOR = "use_kernel_func_from_hub_with_fallback"
_MARK = "_lathe_in_place_of"  # on lathe's functions in modules of models: what they replaced
_KNOWN = {name: frozenset(inspect.signature(function).parameters)
          for name, (function, _) in FUNCTIONS.items()}


def _in_place_of(name: str, original: _Function) -> _Function:
    """Returns a function with the original's signature that calls lathe's.

    As the peer's decorator does, it leaves out keywords that the function has not: models hand all
    of theirs on.
    """
    function, _ = FUNCTIONS[name]
    known = _KNOWN[name]

    @functools.wraps(original)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **{key: keywords[key] for key in keywords if key in known})

    setattr(wrapped, _MARK, original)
    return wrapped


def _decorator(theirs: _Function) -> _Function:
    """Returns the decorator that takes lathe's functions where there are some."""

    @functools.wraps(theirs)
    def decorator(func_name: str, *arguments: Any, **keywords: Any) -> _Function:
        decorate: _Function = theirs(func_name, *arguments, **keywords)
        if func_name not in FUNCTIONS:
            return decorate
        return lambda original: _in_place_of(func_name, decorate(original))

    setattr(decorator, _MARK, theirs)
    return decorator


def _models() -> list[types.ModuleType]:
    """Returns the modules of models that have been imported."""
    return [module for name, module in list(sys.modules.items())
            if name.startswith("transformers.models.") and ".modeling_" in name]


def _decorated() -> list[types.ModuleType]:
    """Returns the modules that hold the decorator for others to import."""
    found = []
    for name in ("transformers.integrations.hub_kernels", "transformers.integrations"):
        module = importlib.import_module(name)
        if hasattr(module, _DECORATOR):
            found.append(module)
    return found


def take_functions() -> list[str]:
    """Puts lathe's functions into models, imported or not; returns their names."""
    owners = _decorated()
    if not owners:
        return []
    theirs = getattr(owners[0], _DECORATOR)
    if not hasattr(theirs, _MARK):
        ours = _decorator(theirs)
        for owner in owners:
            setattr(owner, _DECORATOR, ours)
    for module in _models():
        for name, (_, attribute) in FUNCTIONS.items():
            original = vars(module).get(attribute)
            if original is not None and not hasattr(original, _MARK):
                setattr(module, attribute, _in_place_of(name, original))
    return list(FUNCTIONS)


def give_functions_back() -> None:
    """Undoes take_functions."""
    for owner in _decorated():
        theirs = getattr(owner, _DECORATOR)
        setattr(owner, _DECORATOR, getattr(theirs, _MARK, theirs))
    for module in _models():
        for _, attribute in FUNCTIONS.values():
            found = vars(module).get(attribute)
            if hasattr(found, _MARK):
                setattr(module, attribute, getattr(found, _MARK))
