# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the kernels of one row on the simulator: worker.py MODULE.FUNCTION OPTIONS_AS_JSON."""
import importlib
import json
import sys


def main() -> None:
    module, _, function = sys.argv[1].partition(".")
    try:
        getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    except (ImportError, RuntimeError) as problem:
        if not isinstance(problem, ImportError) and type(problem).__name__ != "Skipped":
            raise
        sys.exit(f"skipped: {problem}")


if __name__ == "__main__":
    main()
