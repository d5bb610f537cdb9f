# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of lathe.torch as callers see them, for scripts/docs: python/src/lathe/torch/_signatures.py.

A function is read, not imported: no torch. Its own parameters come first; the operator's options stand in the
place of **options. Types, defaults and sentences of tensors and options are those of the operator table.
"""
import ast
import textwrap

from signatures import COLUMNS, INT, option_type, wrapped

SOURCE = "python/src/lathe/torch/_functions.py"
HEAD = '''\
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Written by scripts/docs: change ops/*/schema.cpp or torch/_functions.py, not this file.
"""The functions of lathe.torch as callers see them: each tensor and option with its type and text.

help(), inspect.signature, editors and type checkers read this file; calls go to _functions.py.
"""
from os import PathLike
from typing import Any, Literal, Sequence

from torch import Tensor

from lathe.torch._calls import Over
'''

# Options that a backward sets by itself.
INNER = {"saved_forward"}
# Parameters that are no tensor or option of the operator's, and those of which the table says less.
SENTENCES = {
    "over": "The ranks that share the sequence, lathe.torch.Ranks; each calls with its own tokens.",
    "captures": "Up to four arrays of numbers that mods read: captures.get<0>(i) and so on.",
    "out": "Where o is written, if there is no final state. Its rows are contiguous.",
    "output_final_state": "Whether final_state is computed and returned.",
    "output_chunk_states": "Whether chunk_states are computed and returned.",
}
WORDS = {"any": "any number", "FILE": "the name of a file, lathe.DeviceText", "LIST": "whole numbers", "None: none": "None"}
BY_TORCH = ("deterministic", "None: as torch.use_deterministic_algorithms says.")


class Option:
    """An option as a parameter."""

    def __init__(self, option, by_torch):
        self.name, self.sentence = option.name.decode(), option.sentence.decode()
        fallback, allowed = option.fallback.decode(), option.allowed.decode().split("|")
        self.type, self.default, self.allowed = option_type(option), fallback, [fallback, *allowed]
        if "any" in allowed:
            self.allowed = ["any"]
        if option.type == INT and set(allowed) == {"0", "1"}:
            self.type, self.default, self.allowed = "bool", str(fallback == "1"), []
        elif self.type.startswith("Literal"):
            self.default = f'"{fallback}"'
        elif self.type == "float" and fallback.lstrip("-").isdigit():
            self.default = f"{fallback}.0"
        elif self.type != "int":  # what stands for the default is no value
            self.type, self.default = f"{self.type} | None", "None"
            self.allowed = [*allowed[1:], f"None: {fallback}"]
        if by_torch and self.name == BY_TORCH[0]:
            self.type, self.default = f"{self.type} | None", "None"
            self.sentence += f" {BY_TORCH[1]}"

    def text(self):
        allowed = list(dict.fromkeys(WORDS.get(each, each) for each in self.allowed))
        return self.sentence + (f" Allowed: {', '.join(allowed)}." if allowed else "")


def tensor_text(tensor):
    shapes = " or ".join(f"[{shape}]" for shape in tensor.shape.decode().split("|"))
    found = f"{shapes}. {tensor.sentence.decode()}"
    return found + (f" It is only read unless {tensor.changed_by.decode()} is given." if tensor.changed_by else "")


def own_parameters(function, options):
    """[(name, its text with type and default)] of what a function names itself, and where the keywords begin."""
    given = function.args
    named = [*given.args, *given.kwonlyargs]
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    found = []
    for each, default in zip(named, defaults):
        option = options.get(each.arg)
        kind = option.type if option else ast.unparse(each.annotation)
        if default is None and option:
            kind, option.allowed = option.type.removesuffix(" | None"), option.allowed[:-1]
        if default is None:
            found.append((each.arg, f"{each.arg}: {kind}"))
        else:
            found.append((each.arg, f"{each.arg}: {kind} = {option.default if option else ast.unparse(default)}"))
    return found, len(given.args)


def sentence_of(name, tensors, options):
    if name in SENTENCES:
        return SENTENCES[name]
    return options[name].text() if name in options else tensor_text(tensors[name])


def paragraph(text, indent, hanging=0):
    return textwrap.fill(text, COLUMNS, initial_indent=" " * indent, break_long_words=False,
                         subsequent_indent=" " * (indent + hanging), break_on_hyphens=False)


def declaration(function, operator, by_torch):
    """A function with its options as parameters, and with what the table says of each parameter."""
    tensors = {each.name.decode(): each for each in operator.tensors[:operator.tensor_count]}
    options = {each.name.decode(): Option(each, by_torch) for each in operator.options[:operator.option_count]}
    found, first_keyword = own_parameters(function, options)
    if function.args.kwarg:
        named = {name for name, _ in found} | INNER
        found += [(name, f"{name}: {option.type} = {option.default}") for name, option in options.items()
                  if name not in named]
    words = [text for _, text in found]
    words[first_keyword:first_keyword] = ["*"]
    start = f"def {function.name}("
    head = wrapped(start, words, "") + f"{' ' * len(start)}) -> {ast.unparse(function.returns)}:\n"
    text = ast.get_docstring(function)
    lines = [paragraph(f"{name}: {sentence_of(name, tensors, options)}", 8, 4) for name, _ in found]
    return (f'\n\n{head}    """{textwrap.indent(text, "    ").strip()}\n\n    Args:\n' + "\n".join(lines)
            + '\n    """\n    raise NotImplementedError\n')


def module(root, operators):
    source = (root / SOURCE).read_text()
    by_name = {operator.name.decode(): operator for operator in operators}
    functions = [each for each in ast.parse(source).body
                 if isinstance(each, ast.FunctionDef) and each.name in by_name]
    return HEAD + "".join(
        declaration(each, by_name[each.name], "are_deterministic" in ast.get_source_segment(source, each))
        for each in functions)
