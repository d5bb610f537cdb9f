# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What importing the package imports: no torch._dynamo, which takes as long as all of torch."""
import pkgutil
import subprocess
import sys

import lathe.compat

MODULES = ("lathe.torch", "lathe.flex", *(
    f"lathe.compat.{name}" for _, name, _ in pkgutil.iter_modules(lathe.compat.__path__)
    if not name.startswith("_")))
PROGRAM = """
import importlib, sys, torch
for name in sys.argv[1:]:
    importlib.import_module(name)
    for module in ("torch._dynamo", "torch._inductor", "sympy"):
        assert module not in sys.modules, f"{name} imports {module}"
"""


def test_dynamo_is_not_imported():
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *MODULES],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
