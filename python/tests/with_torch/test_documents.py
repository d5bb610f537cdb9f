# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The documents' snippets with torch: run on the simulator, or their names looked up."""
import ast
import builtins
import functools
import inspect

import pytest
import torch

import snippets
from threads import over_ranks

WITH_TORCH = [each for each in snippets.snippets() if each.kind]
DOCUMENTS = sorted({each.document for each in WITH_TORCH})


def on_the_cpu(snippet):
    return snippet._replace(text=snippet.text.replace('"cuda"', '"cpu"')).code()


def unresolved(snippet, names):
    """Returns the names of a snippet that mean nothing; `names` are those of earlier snippets."""
    tree = ast.parse(snippet.text)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module(imports, []), str(snippet), "exec"), names)
    stored = {node.id for node in ast.walk(tree)
              if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = {*names, *stored, *dir(builtins)}
    missing = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known
    return missing | {ast.unparse(node) for node in ast.walk(tree)
                      if isinstance(node, ast.Attribute) and not exists(node, names)}


def exists(node, names):
    """Returns false if a module or a class lacks an attribute; values are not looked at."""
    parts = ast.unparse(node).split(".")
    at = names.get(parts[0])
    for part in parts[1:]:
        if not (inspect.ismodule(at) or inspect.isclass(at)):
            return True
        if not hasattr(at, part):
            return False
        at = getattr(at, part)
    return True


@pytest.mark.parametrize("document", DOCUMENTS)
def test_snippets(document, monkeypatch):
    monkeypatch.chdir(snippets.ROOT)  # where documents name files from
    # Inductor would compile C++ for a minute; the graph is the same.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    names = {"__name__": "__main__"}
    for snippet in WITH_TORCH:
        if snippet.document != document:
            continue
        if snippet.kind == "torch":
            exec(on_the_cpu(snippet), names)
        elif snippet.kind == "ranks":
            over_ranks(2, lambda rank: exec(on_the_cpu(snippet), {"__name__": "__main__"}))
        else:
            assert unresolved(snippet, names) == set(), snippet


def test_a_name_that_is_not_there_is_found():
    text = "import torch\nprint(torch.cuda.no_such_stream, nothing)\n"
    assert unresolved(snippets.Snippet("here", 1, "gpu", text), {}) == {
        "nothing", "torch.cuda.no_such_stream"}
