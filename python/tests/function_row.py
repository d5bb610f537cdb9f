# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A row of the table of functions: functions.py has the table."""
from typing import Any, Callable, NamedTuple

import torch


class Row(NamedTuple):
    """A function of the package with the inputs that tests give it."""

    module: Any
    function: str
    make: Callable[..., Any]  # make(n, dtype): inputs by name; n is the number of tokens
    call: Callable[..., Any]  # call(**inputs) returns a tuple of outputs
    gradients: tuple[int, ...] = ()  # the places of the outputs that have gradients
    what: str = ""  # what is special about this call
    half: torch.dtype = torch.float16
    full: torch.dtype | None = torch.float32  # None: the function takes 16 bits only
    exact: Callable[..., Any] | None = None  # the same call in float64, where `full` is None

    refusal: str = ""  # what the backward of output 0 says, where this call has no gradient

    def __str__(self) -> str:
        short = self.module.__name__.removeprefix("lathe.").removeprefix("compat.")
        return f"{short}.{self.function}" + (f" {self.what}" if self.what else "")

    def inputs(self, n: int = 9, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        """Returns inputs, the same ones at every call, none of which requires a gradient."""
        with torch.random.fork_rng():
            torch.manual_seed(n)
            found: dict[str, torch.Tensor] = self.make(n, dtype or self.full or self.half)
            return found
