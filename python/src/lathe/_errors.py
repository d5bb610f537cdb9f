# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each kind of failure that a program can do something about."""
from __future__ import annotations

import enum
import re


class Status(enum.IntEnum):
    """The statuses of the C API (lathe_status)."""

    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    NO_DEVICE = 3
    COMPILE_FAILED = 4
    NOT_CACHED = 5
    CACHE_IO = 6
    CUDA = 7
    NCCL = 8
    TIMEOUT = 9
    INTERNAL = 10


class LatheError(RuntimeError):
    """A call of the library failed; nothing was launched or written. `status` says how."""

    status = Status.INTERNAL

    def __init__(self, text: str = "", status: Status | None = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class InvalidArgument(LatheError, ValueError):
    """An input is wrong: the text has its name, the value found and the values allowed."""

    status = Status.INVALID_ARGUMENT


class Unsupported(LatheError, NotImplementedError):
    """The input is legal, but nothing here computes it; the text says what would."""

    status = Status.UNSUPPORTED


class NoDevice(LatheError):
    """There is no driver or no GPU; the text names the remedy."""

    status = Status.NO_DEVICE


class CompileFailed(LatheError):
    """The compiler refused a kernel. `log` is its output, `source` the unit's file or None."""

    status = Status.COMPILE_FAILED

    def __init__(self, text: str = "", status: Status | None = None) -> None:
        super().__init__(text, status)
        self.log = text
        found = re.search(r"; unit saved in (.+)\n", text)
        named = found is not None and not found[1].startswith("no file")
        self.source = found[1] if found is not None and named else None


class NotCached(LatheError):
    """Compilation is off and a kernel is not cached. `line` is the problem's line of a manifest."""

    status = Status.NOT_CACHED

    def __init__(self, text: str = "", status: Status | None = None) -> None:
        super().__init__(text, status)
        lines = [line for line in text.split("\n") if line.startswith('{"op"')]
        self.line = lines[0] if lines else None


class Timeout(LatheError, TimeoutError):
    """A rank did not come."""

    status = Status.TIMEOUT


_CLASSES = {each.status: each for each in (InvalidArgument, Unsupported, NoDevice, CompileFailed,
                                           NotCached, Timeout)}


def of(status: int, text: str) -> LatheError:
    """Returns the exception of a status; the extension raises it."""
    known = Status(status)
    return _CLASSES.get(known, LatheError)(text, known)
