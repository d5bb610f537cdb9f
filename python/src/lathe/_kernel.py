# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""kernel(): an operator of a text of one's own, which is called like a function."""
from __future__ import annotations

import os
from typing import Any

from lathe import _core
from lathe._errors import InvalidArgument
from lathe._operators import Operator, of_row
from lathe._run import Results, run


class Kernel:
    """A kernel of one's own: device text with its description in front (docs/own_kernels.md).

    `operator` is its table and `name` its name, which Problem and run() take like those of lathe's
    operators for as long as the Kernel is there.
    """

    def __init__(self, text: str | bytes, file: str = "kernel.cuh") -> None:
        data = text.encode() if isinstance(text, str) else text
        self._handle, row = _core.parse_operator(data, file)
        self.operator: Operator = of_row(row)

    @property
    def name(self) -> str:
        """The operator's name: the text's, or the file's, and the first digits of its digest."""
        return self.operator.name

    def __call__(self, **given: Any) -> Results:
        """Runs the kernel once, as lathe.run does: tensors and options by their names."""
        return run(self.operator, **given)

    def __repr__(self) -> str:
        return f"lathe.kernel({self.name!r})"


def kernel(path: str | os.PathLike[str]) -> Kernel:
    """Reads a kernel of one's own from a file.

        rms_norm = lathe.kernel("rms_norm.cuh")
        y = rms_norm(x=x, weight=weight, eps=1e-5).y

    The kernel is cached by the bytes of the file, wherever that lies. InvalidArgument names the
    line and what is allowed there.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise InvalidArgument(f"the kernel {os.fspath(path)!r} cannot be read: "
                              f"{error.strerror}") from None
    return Kernel(text, os.fspath(path))
