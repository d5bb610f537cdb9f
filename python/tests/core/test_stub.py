# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe/_core.pyi says of each function and method what the extension says of it."""
import ast
import pathlib

import lathe
from lathe import _core

STUB = pathlib.Path(lathe.__file__).with_name("_core.pyi")


def own_text(thing):
    """Returns what the extension says of a thing, without the line of its parameters."""
    parts = (thing.__doc__ or "").split("\n\n", 1)
    return " ".join(parts[-1].split())


def described():
    """Yields (name, text in the stub, the thing) for each class, function, method and property."""
    for node in ast.parse(STUB.read_text()).body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        thing = getattr(_core, node.name)
        yield node.name, ast.get_docstring(node), thing
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("__"):
                yield (f"{node.name}.{inner.name}", ast.get_docstring(inner),
                       getattr(thing, inner.name))


def test_the_stub_has_the_texts_of_the_extension():
    found = {name: (" ".join((text or "").split()), own_text(thing))
             for name, text, thing in described()}
    assert {name: texts for name, texts in found.items() if texts[0] != texts[1]} == {}
    assert all(text for text, _ in found.values())


def test_the_stub_has_every_name():
    names = {name for name, _, _ in described()}
    for name, thing in vars(_core).items():
        if name.startswith("_"):
            continue
        assert name in names
        if isinstance(thing, type):
            inner = {each for each in vars(thing) if not each.startswith("_")}
            assert {f"{name}.{each}" for each in inner} <= names
