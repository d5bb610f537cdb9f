# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The console script `lathe`: it starts the program that came with the package."""
from __future__ import annotations

import os
import sys
from pathlib import Path

from lathe import _library


def main() -> None:
    """Replaces this process by the program."""
    program = Path(__file__).with_name("bin") / "lathe"
    if not program.exists():
        sys.exit(f"lathe: there is no {program}: this copy of the package came without the program")
    _library.find_compiler()
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
