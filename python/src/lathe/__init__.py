# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe: CUDA kernels of attention, KDA and convolution, made at run time for the problem at hand.

    import lathe
    out = lathe.run("flash_attention", q=q, k=k, v=v, causal=True).out

This module knows no framework: arrays come from whatever has DLPack or a buffer. lathe.torch has
what torch needs, lathe.compat the names of other packages.
"""
from typing import TYPE_CHECKING

from lathe import _core
from lathe._check import Finding, check
from lathe._errors import (CompileFailed, InvalidArgument, LatheError, NoDevice, NotCached, Status,
                           Timeout, Unsupported)
from lathe._log import Compile, on_compile, set_log
from lathe._objects import Context, DeviceText, Group, Plan, Problem, Shard, context
from lathe._operators import Operator, operators
from lathe._run import Results, warm

if TYPE_CHECKING:  # the same function, with the tensors and options of each operator
    from lathe._signatures import run
else:
    from lathe._run import run

__version__ = _core.version()

__all__ = ["Compile", "CompileFailed", "Context", "DeviceText", "Finding", "Group",
           "InvalidArgument", "LatheError", "NoDevice", "NotCached", "Operator", "Plan", "Problem",
           "Results", "Shard", "Status", "Timeout", "Unsupported", "check", "context", "on_compile",
           "operators", "run", "set_log", "warm"]
