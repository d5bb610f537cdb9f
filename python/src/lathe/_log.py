# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""set_log(): the library's messages in Python's logging. on_compile(): compiled kernels."""
from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Callable, NamedTuple

from lathe import _core

if TYPE_CHECKING:
    import logging


def set_log(logger: logging.Logger | str | None = "lathe") -> None:
    """Sends the library's messages to a logger, or to the one of this name; None: to nobody.

    At first nobody gets them. Warnings are WARNING; what was compiled, found or waited for is INFO,
    the rest DEBUG. Any thread may send one, so a handler may be called in any thread.
    """
    atexit.unregister(_core.set_log)
    _core.set_log(None)
    if logger is None:
        return
    import logging  # not at the top: it takes as long as the rest of the import

    chosen = logging.getLogger(logger) if isinstance(logger, str) else logger
    levels = {1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}
    _core.set_log(lambda level, text: chosen.log(levels.get(level, logging.DEBUG), "%s", text))
    # Threads of the library may outlive the interpreter.
    atexit.register(_core.set_log, None)


class Compile(NamedTuple):
    """A kernel that was compiled while the program ran."""

    kernel: str
    arch: str
    key: str
    spec: str
    call: str  # "kda_decode(qkv bf16[64, 4608], ...)": the call that needed it; "": none did
    line: str  # its line of a manifest
    milliseconds: float


def on_compile(function: Callable[[Compile], object] | None) -> None:
    """Calls the function for each kernel that the process compiles from now on; None: for none.

    A server that is up calls this to hear of compiles that its manifest does not have. The call
    comes before the call that needs the kernel goes on, from any thread, and perhaps from several.
    An exception is printed as Python's unraisable ones are, and changes nothing.
    """
    atexit.unregister(_core.on_compile)
    _core.on_compile(None)
    if function is None:
        return
    tell = function
    _core.on_compile(lambda *fields: tell(Compile(*fields)))
    atexit.register(_core.on_compile, None)
