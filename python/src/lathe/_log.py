# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""set_log(): the library's messages in Python's logging."""
from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

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
