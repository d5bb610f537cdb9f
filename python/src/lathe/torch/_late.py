# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Work that waits for a module of torch which lathe does not import itself, as it is slow to."""
from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from typing import Any, Callable


class _Waiting(MetaPathFinder):
    """Finds a module as the other finders do, and has `act` called once it is executed."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.act()

        loader.exec_module = exec_module
        return spec


def after_import(name: str, act: Callable[[], None]) -> None:
    """Calls act() once a module is imported: now if it is, else at the end of its import."""
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Waiting(name, act))
