# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of lathe.compat's modules, for scripts/docs. Modules are read, not imported: no torch.

A module's docstring has the peer and the remarks, its DROP_INS the rows of its functions. Wrong() is
raised where these do not fit the code: a function without a row, a counter that nothing counts, a
refused parameter that the function does not have.
"""
import ast
import re

PACKAGE = "python/src/lathe"


class Wrong(Exception):
    """A module of lathe.compat and its rows differ."""


class Module:
    def __init__(self, root, path):
        self.name = ".".join(path.relative_to(root / "python/src").with_suffix("").parts)
        self.root, self.tree = root, ast.parse(path.read_text())
        self.values = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value

    def literal(self, name):
        if name not in self.values:
            raise Wrong(f"{self.name} has no {name}")
        return ast.literal_eval(self.values[name])

    def summary(self):
        """The docstring's first sentence, and the rest of it without examples."""
        first, *rest = ast.get_docstring(self.tree).split("\n\n")
        prose = [" ".join(each.split()) for each in rest if not each.startswith(" ")]
        return first.replace("\n", " "), " ".join(each for each in prose if not each.endswith(":"))

    def function(self, name):
        """The definition of a function, here or where it is imported from; None for what is none."""
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
                path = self.root / "python/src" / (node.module.replace(".", "/") + ".py")
                return Module(self.root, path).function(name)
        return None

    def rows(self, counters):
        """[(function, texts of counters, refused)], checked."""
        found = self.literal("DROP_INS")
        wanted = {name for name in self.literal("__all__") if name not in self.values}
        if wanted != {name for name, _, _ in found}:
            raise Wrong(f"DROP_INS of {self.name} has not the functions of __all__: "
                        f"{', '.join(sorted(wanted ^ {name for name, _, _ in found}))}")
        for name, around, refused in found:
            for text in filter(None, around.split("; ")):
                if text not in counters:
                    raise Wrong(f"{self.name}.{name}: nothing counts '{text}'")
            for text in filter(None, refused.split("; ")):
                if text.split(" ")[0] not in parameters(self.function(name)):
                    raise Wrong(f"{self.name}.{name} has no parameter {text.split(' ')[0]}")
        return found


def parameters(node):
    """The parameters of a function, or of a class's __init__."""
    if isinstance(node, ast.ClassDef):
        node = next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


def counters_of(root):
    """What the package's code counts: the texts of count("...")."""
    text = "".join(path.read_text() for path in sorted((root / PACKAGE).rglob("*.py")))
    return set(re.findall(r'\bcount\("([^"]+)"\)', text))


def modules_of(root):
    paths = [path for path in sorted((root / PACKAGE / "compat").glob("*.py")) if not path.name.startswith("_")]
    return [Module(root, path) for path in (*paths, root / PACKAGE / "flex.py")]


def joined(modules, counters):
    """Rows [functions, counters, refused]. Functions with equal texts share one; the last has those without any."""
    found = {("", ""): {}}
    for module in modules:
        for name, around, refused in module.rows(counters):
            names = found.setdefault((around, refused), {}).setdefault(module.name.rpartition(".")[2], [])
            names.append(f"`{name}`")
    found[("", "")] = found.pop(("", ""))
    return [["; ".join(f"{name}: {', '.join(names)}" for name, names in functions.items()),
             around.replace("; ", ", ") or "nothing", refusals(refused) or "nothing"]
            for (around, refused), functions in found.items()]


def refusals(text):
    """Names as code; what stands in brackets behind one stays prose."""
    return ", ".join(re.sub(r"^\S+", lambda name: f"`{name[0]}`", each) for each in filter(None, text.split("; ")))


def tables(root, table):
    """The Markdown of both tables; `table(head, rows)` formats one."""
    counters, modules = counters_of(root), modules_of(root)
    first = table(["module", "follows", "remarks"], [[f"`{each.name}`", *each.summary()] for each in modules])
    rows = joined(modules, counters)
    return f"{first}\n{table(['module: functions', 'torch may do around the kernel', 'refused'], rows)}\n"
