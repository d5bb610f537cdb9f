# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What importing the package imports, and what its modules take of one another."""
import ast
import pathlib
import pkgutil
import subprocess
import sys

import lathe
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
    """torch._dynamo takes as long to import as all of torch."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *MODULES],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# torch's own names of its balancers begin so.
PEERS_NAMES = {"_create_default_load_balancer", "_HeadTailLoadBalancer", "_LoadBalancer",
               "_PerDocumentHeadTailLoadBalancer", "_PTRRLoadBalancer"}


def test_no_module_uses_a_name_that_another_keeps_to_itself():
    root = pathlib.Path(lathe.__file__).parent
    files = sorted(root.rglob("*.py"))
    modules = {file.stem for file in [*files, *root.rglob("*.pyi")]}
    found = set()
    for file in files:
        tree = ast.parse(file.read_text())
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lathe"):
                names = {alias.name for alias in node.names}
                found |= {(file.name, name) for name in names - modules if name.startswith("_")}
                imported |= {alias.asname or alias.name for alias in node.names} & modules
        found |= {(file.name, node.attr) for node in ast.walk(tree)
                  if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                  and node.value.id in imported and node.attr.startswith("_")
                  and not node.attr.startswith("__")}
    assert {name for _, name in found} == PEERS_NAMES
