# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""check(): what the simulator's checkers find in the kernels that a block of code runs."""
from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator

from lathe import _objects
from lathe._errors import InvalidArgument


class Finding(dict[str, Any]):
    """One finding, as the simulator reports it: check, kind, text, kernel, place."""

    def __str__(self) -> str:
        return f"{self.get('check', '')} {self.get('kind', '')}: {self.get('text', '')}"


@contextlib.contextmanager
def check(checks: str = "all") -> Iterator[list[Finding]]:
    """Runs a block under the simulator's checkers; the list is filled when the block ends.

        with lathe.check() as findings:
            lathe.run("kda", q=q, ...)
        assert not findings

    The simulator reads its environment once, so this must come before the process uses it.
    """
    if any(each.device == "sim" for each in _objects.shared_contexts.values()):
        if os.environ.get("LATHE_SIM_REPORT", "") == "":
            raise InvalidArgument("the simulator is in use already, without a report; let check() "
                                  "come before the first context")
    path = os.environ.get("LATHE_SIM_REPORT", "")
    if path == "":
        import tempfile  # it takes a third of the import

        path = os.path.join(tempfile.mkdtemp(prefix="lathe-check-"), "report")
        os.environ.update(LATHE_SIM_REPORT=path, LATHE_SIM_CHECK=checks, LATHE_SIM_QUIET="1")
    start = os.path.getsize(path) if os.path.exists(path) else 0
    findings: list[Finding] = []
    yield findings
    if os.path.exists(path):
        import json

        with open(path, encoding="utf-8") as file:
            file.seek(start)
            findings.extend(Finding(json.loads(line)) for line in file if line.strip())
