# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The types of lathe.run for each operator, for scripts/docs: python/src/lathe/_signatures.pyi."""
import textwrap

INPUT, OUTPUT = 0, 1  # lathe_operator_tensor.role; the third is in and out
INT, DOUBLE = 0, 1    # lathe_operator_option.type; the third is a string
COLUMNS = 100

HEAD = '''\
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Written by scripts/docs: change ops/*/schema.cpp, not this file.
"""The types of lathe.run for each operator: its tensors and options, and the names of its results.

A type checker reads this file in place of lathe._run.run, which takes any operator.
"""
from os import PathLike
from typing import Any, Literal, Protocol, Sequence, overload

from lathe._objects import Context, Group, Shard
from lathe._operators import Operator
from lathe._run import Results

class Array(Protocol):
    """An array of NumPy or CuPy, a tensor of torch, or what else has a shape and a dtype."""
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
'''
COMMON = ("context: Context | None = None, stream: Any = None, shard: Shard | None = None, "
          "group: Group | None = None, flags: Sequence[str] = ()")


def results_name(operator):
    return "".join(word.capitalize() for word in operator.name.decode().split("_")) + "Results"


def option_type(option):
    if option.type in (INT, DOUBLE):
        return "int" if option.type == INT else "float"
    words = option.allowed.decode().split("|")
    if "FILE" in words:  # a name, or lathe.DeviceText
        return "str | PathLike[str]"
    if "LIST" in words:
        return "str | Sequence[int]"
    return f"Literal[{', '.join(repr(word) for word in words)}]".replace("'", '"')


def parameters(operator):
    """The parameters of one operator: the tensors that it needs first, then what may be left out."""
    tensors = [operator.tensors[index] for index in range(operator.tensor_count)]
    given = [tensor for tensor in tensors if not tensor.alias_of]
    needed = [tensor for tensor in given if tensor.role != OUTPUT and not tensor.optional]
    free = [tensor for tensor in given if tensor.role == OUTPUT or tensor.optional]
    options = [operator.options[index] for index in range(operator.option_count)]
    return [f"op: Literal[\"{operator.name.decode()}\"]", "*",
            *(f"{tensor.name.decode()}: Array" for tensor in needed),
            *(f"{tensor.name.decode()}: Array | None = None" for tensor in free),
            *(f"{option.name.decode()}: {option_type(option)} | None = None" for option in options),
            *COMMON.split(", ")]


def wrapped(head, words, tail):
    """head, the words with commas between them, and tail, in lines below one another."""
    # A word with blanks stays in one line.
    text = ", ".join(word.replace(" ", "\0") for word in words) + tail.replace(" ", "\0")
    lines = textwrap.wrap(text, COLUMNS - len(head), break_long_words=False, break_on_hyphens=False)
    return head + ("\n" + " " * len(head)).join(lines).replace("\0", " ") + "\n"


def results(operator):
    names = [operator.tensors[index].name.decode() for index in range(operator.tensor_count)
             if operator.tensors[index].role != INPUT]
    return f"\nclass {results_name(operator)}(Results):\n" + "".join(f"    {name}: Any\n" for name in names)


def signature(operator):
    return "\n@overload\n" + wrapped("def run(", parameters(operator), f") -> {results_name(operator)}: ...")


def any_signature():
    """The overload for an operator whose name is known only when the program runs."""
    words = ["op: Operator", "*", *COMMON.split(", "), "**given: Any"]
    return "\n@overload\n" + wrapped("def run(", words, ") -> Results: ...")


def stub(operators):
    """Returns the text of the stub. Type checkers want a function's overloads together."""
    return HEAD + "".join([results(each) for each in operators] +
                          [signature(each) for each in operators]) + any_signature()
