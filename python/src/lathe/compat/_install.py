# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for whole packages, for programs that ask for a distribution by its name.

An installed package is found by `import`, importlib.util.find_spec, importlib.metadata and the
checks of transformers, in this process alone.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import types
from typing import Any, Iterable, NamedTuple, Sequence

from lathe._errors import InvalidArgument


class _Package(NamedTuple):
    """A package that lathe stands in for."""

    version: str
    distributions: tuple[str, ...]
    modules: dict[str, str]  # a module's name, and whose names it has in lathe.compat; "": none


_PACKAGES = {
    "flash_attn": _Package("2.8.4", ("flash-attn",), {
        "flash_attn": "flash_attn", "flash_attn.flash_attn_interface": "flash_attn",
        "flash_attn.bert_padding": "_bert_padding"}),
    "flash_attn_3": _Package("3.0.0", ("flash-attn-3",), {
        "flash_attn_interface": "flash_attn_3", "flash_attn_3": "",
        "flash_attn_3.flash_attn_interface": "flash_attn_3"}),
    "flash_attn_4": _Package("4.0.0", ("flash-attn-4",), {
        "flash_attn": "", "flash_attn.cute": "flash_attn_4",
        "flash_attn.cute.interface": "flash_attn_4"}),
    "causal_conv1d": _Package("1.6.1", ("causal-conv1d",), {
        "causal_conv1d": "causal_conv1d",
        "causal_conv1d.causal_conv1d_interface": "causal_conv1d",
        "causal_conv1d.causal_conv1d_varlen": "causal_conv1d"}),
    "fla": _Package("0.6.0", ("flash-linear-attention", "fla-core"), {
        "fla": "", "fla.ops": "fla", "fla.ops.kda": "fla", "fla.modules": "fla",
        "fla.modules.convolution": "fla"}),
    "flash_mla": _Package("1.0.0", ("flash-mla",), {
        "flash_mla": "flash_mla", "flash_mla.flash_mla_interface": "flash_mla"}),
}
_ALIASES = {"flash_attn_interface": "flash_attn_3", "flash_linear_attention": "fla",
            "fla_core": "fla"}

_installed: dict[str, _Package] = {}
_replaced: dict[str, types.ModuleType] = {}  # the peers' own modules, that uninstall puts back


# ---- what importlib.metadata finds -------------------------------------------------------------


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str, package: _Package) -> None:
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {package.version}\n"
                        "Summary: lathe stands in for this package\n",
            "top_level.txt": "".join(f"{module}\n" for module in package.modules
                                     if "." not in module)}

    def read_text(self, filename: str | os.PathLike[str]) -> str | None:
        """Returns the text of a file of metadata; None if there is none."""
        return self._texts.get(str(filename))

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Refuses: there are no files."""
        raise FileNotFoundError(f"{path}: lathe stands in for this package, which has no files")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Finder(importlib.metadata.DistributionFinder):
    """Finds the distributions of installed packages. Modules are in sys.modules already."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: types.ModuleType | None = None) -> None:
        """Returns None: no module is found here."""
        return None

    def find_distributions(self, context: Any = importlib.metadata.DistributionFinder.Context()
                           ) -> Iterable[importlib.metadata.Distribution]:
        """Returns the distributions that have the context's name, or all."""
        return [_Distribution(name, package) for package in _installed.values()
                for name in package.distributions
                if context.name is None or _normal(context.name) == name]


_finder = _Finder()


def _tell_others() -> None:
    """Lets transformers, where it is imported, ask anew which packages there are."""
    importlib.invalidate_caches()
    checks = sys.modules.get("transformers.utils.import_utils")
    for check in list(vars(checks).values()) if checks is not None else ():
        if hasattr(check, "cache_clear"):
            check.cache_clear()


# ---- modules -----------------------------------------------------------------------------------


def _is_ours(module: types.ModuleType) -> bool:
    return isinstance(getattr(module, "__spec__", None), importlib.machinery.ModuleSpec) and \
        getattr(module.__spec__, "origin", None) == "lathe"


def _module(name: str, package: _Package, source: str) -> types.ModuleType:
    """Returns a module with the names of one of lathe.compat."""
    made = types.ModuleType(name, f"lathe.compat.{source} under another name.")
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="lathe", is_package=True)
    made.__path__ = []
    made.__dict__["__version__"] = package.version
    if source:
        whose = importlib.import_module(f"lathe.compat.{source}")
        made.__dict__.update({each: getattr(whose, each) for each in whose.__all__})
    return made


def _take_away(package: _Package, replace: bool) -> None:
    """Takes the peer's own modules out of sys.modules, if it may."""
    for root in {name.partition(".")[0] for name in package.modules}:
        theirs = {name: module for name, module in sys.modules.items()
                  if (name == root or name.startswith(f"{root}.")) and not _is_ours(module)}
        if theirs and not replace:
            place = getattr(theirs.get(root), "__file__", None) or "an unknown place"
            raise InvalidArgument(f"{root} is imported already, from {place}; call install before "
                                  "that, or give replace=True")
        _replaced.update(theirs)
        for name in theirs:
            del sys.modules[name]


def _package(name: str) -> tuple[str, _Package]:
    plain = name.replace("-", "_")
    plain = _ALIASES.get(plain, plain)
    if plain not in _PACKAGES:
        raise InvalidArgument(f"'{name}' is no package that lathe stands in for; allowed are "
                              f"{', '.join(_PACKAGES)}")
    return plain, _PACKAGES[plain]


def _put_modules() -> None:
    """Puts the modules of installed packages into sys.modules and into their parents."""
    names: dict[str, tuple[_Package, str]] = {}
    for package in _installed.values():
        for name, source in package.modules.items():
            if source or name not in names:  # a parent alone does not hide functions
                names[name] = (package, source)
    for name, (package, source) in names.items():
        sys.modules[name] = _module(name, package, source)
    for name in names:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])


def install(*names: str, replace: bool = False) -> None:
    """Puts lathe's functions in the places of packages, such as "flash_attn", for this process.

    A package that is imported already is refused, unless it may be replaced; who has taken a
    function from it keeps that one. Installing a package twice changes nothing.
    """
    packages = dict(_package(name) for name in names)
    for name, package in packages.items():
        if name not in _installed:
            _take_away(package, replace)
    if all(name in _installed for name in packages):
        return
    _installed.update(packages)
    _put_modules()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _tell_others()


def uninstall(*names: str) -> None:
    """Undoes install for these packages, or for all, and puts back the modules it replaced."""
    for name in [_package(name)[0] for name in names] or list(_installed):
        _installed.pop(name, None)
    for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
        del sys.modules[name]
    _put_modules()
    roots = {name.partition(".")[0] for each in _installed.values() for name in each.modules}
    for name in list(_replaced):
        if name.partition(".")[0] not in roots:
            sys.modules[name] = _replaced.pop(name)
    if not _installed and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    _tell_others()
