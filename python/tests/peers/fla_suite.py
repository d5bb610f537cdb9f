# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs flash-linear-attention's own tests of KDA and convolution on lathe, on the simulator.

    python fla_suite.py CHECKOUT [--registered] [pytest's arguments]

CHECKOUT is a checkout of flash-linear-attention, 0.5 or 0.6. Its package is imported from there, or
from where Python finds it if it is not in the checkout; it needs einops, triton and transformers.
Its functions are replaced by lathe's in all its modules; with --registered they stay, and lathe is
their backend. The files of tests are read, devices are replaced in their text, and that runs from a
folder that is removed at the end. Shapes are capped, since the simulator is slow.
"""
from __future__ import annotations

import argparse
import collections
import importlib
import os
import pathlib
import re
import sys
import tempfile
import types
from typing import Any

os.environ.setdefault("LATHE_DEVICE", "sim")

import pytest
import torch
import torch._dynamo  # it takes notes of functions of torch.cuda that are replaced below

import triton

import lathe.compat.fla
import lathe.torch

FILES = ("tests/ops/test_kda.py", "tests/modules/test_conv.py")
CAPS = {"T": 256, "B": 2, "N": 4, "H": 4, "HV": 8, "D": 256}
# Tests of what lathe does not replace: the gate alone, other packages, other devices.
NOT_OURS = ("test_gate", "test_flash_kda", "test_triton_ascend")
REPLACED = ("chunk_kda", "fused_recurrent_kda", "fused_recurrent_kda_fwd", "causal_conv1d",
            "causal_conv1d_update", "ShortConvolution")


def stub_devices(registered: bool) -> None:
    """Makes torch and fla believe in a GPU where they only ask, and never use it."""
    lathe.torch.use_simulator()
    properties = types.SimpleNamespace(multi_processor_count=8, name="simulator", major=8, minor=0)
    torch.cuda.get_device_capability = lambda *_: (8, 0)
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.device_count = lambda: 1
    torch.cuda.set_device = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    # No kernel of the peer's runs, and the versions of triton differ in what they let it tune.
    triton.autotune = lambda *_, **__: lambda kernel: kernel
    if registered:
        return
    # So that tests of the backend "cuda", which is this package's, are not skipped.
    package = types.ModuleType("causal_conv1d")
    package.causal_conv1d_fn = package.causal_conv1d_update = _never
    sys.modules["causal_conv1d"] = package


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a function of causal_conv1d was called; lathe's should have been")


def _fast_causal_conv1d_fn(*arguments: Any, **keywords: Any) -> Any:
    return lathe.compat.fla.causal_conv1d(*arguments, **keywords, backend="mix")


def replace_functions() -> int:
    """Replaces the peer's function objects wherever a module of it has them; returns how many."""
    for name in ("fla.ops.kda.fused_recurrent", "fla.modules.convolution", "fla.layers.kda"):
        importlib.import_module(name)
    ours = {name: getattr(lathe.compat.fla, name) for name in REPLACED}
    ours["fast_causal_conv1d_fn"] = _fast_causal_conv1d_fn
    replaced = 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "fla":
            continue
        for attribute, function in ours.items():
            held = vars(module).get(attribute)
            if callable(held) and held is not function:
                setattr(module, attribute, function)
                replaced += 1
    return replaced


def capped(name: str, value: Any) -> Any:
    """Returns a parameter of a test as small as the simulator wants it."""
    if name in CAPS and isinstance(value, int):
        return min(value, CAPS[name])
    if name == "cu_seqlens" and isinstance(value, list) and value[-1] > CAPS["T"]:
        return [offset * CAPS["T"] // value[-1] for offset in value]
    if name == "lengths" and isinstance(value, list) and sum(value) > CAPS["T"]:
        return [*value[:3], CAPS["T"] - sum(value[:3])]
    return value


class Suite:
    """A plugin of pytest: caps shapes, leaves out what is not lathe's, notes errors and results."""

    def __init__(self, left_out: tuple[str, ...]) -> None:
        self.left_out = left_out
        self.results: dict[str, collections.Counter[str]] = {}
        self.errors: dict[str, dict[str, tuple[float, float]]] = {}
        self.test = ""

    def watch_errors(self) -> None:
        """Wraps the peer's assert_close, to tell how near its bounds the results are."""
        import fla.utils

        compare = fla.utils.assert_close

        def assert_close(prefix: str, ref: torch.Tensor, tri: torch.Tensor, ratio: float,
                         *arguments: Any, **keywords: Any) -> None:
            error = (ref.detach().double() - tri.detach().double()).square().mean().sqrt()
            found = float(error / (ref.detach().double().square().mean().sqrt() + 1e-8))
            worst = self.errors.setdefault(self.test, {})
            name = prefix.strip()
            if found >= worst.get(name, (0.0, 0.0))[0]:
                worst[name] = (found, ratio)
            compare(prefix, ref, tri, ratio, *arguments, **keywords)

        fla.utils.assert_close = assert_close

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        left_out = [item for item in items if item.originalname.startswith(self.left_out)]
        for item in left_out:
            self.results.setdefault(item.originalname, collections.Counter())["not lathe's"] += 1
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> None:
        self.test = pyfuncitem.originalname
        for name, value in pyfuncitem.funcargs.items():
            pyfuncitem.funcargs[name] = capped(name, value)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.partition("::")[2].partition("[")[0]
            self.results.setdefault(name, collections.Counter())[report.outcome] += 1

    def tell(self) -> None:
        """Prints a line for each test, with the worst error for each of its bounds."""
        print("\n| test | result | worst error (bound) |\n|---|---|---|")
        for name, counts in self.results.items():
            result = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
            worst = "; ".join(f"{tensor} {error:.1e} ({bound:g})" for tensor, (error, bound)
                              in self.errors.get(name, {}).items())
            print(f"| {name} | {result} | {worst} |")
        total = sum(self.results.values(), collections.Counter())
        print("total: " + ", ".join(f"{number} {outcome}" for outcome, number in total.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--registered", action="store_true",
                        help="leave fla's functions and register lathe as their backend")
    arguments, rest = parser.parse_known_args()
    sys.path.insert(0, str(arguments.checkout.resolve()))
    stub_devices(arguments.registered)
    import fla.utils

    fla.utils.device = "cpu"
    fla.utils.IS_NVIDIA = True
    left_out = NOT_OURS
    if arguments.registered:
        registered = lathe.compat.fla.register()
        print("registered:", ", ".join(registered))
        if "fused_recurrent_kda_fwd" not in registered:
            left_out = (*left_out, "test_fused_recurrent")
    else:
        print("function objects replaced:", replace_functions())
    suite = Suite(left_out)
    suite.watch_errors()
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            text = (arguments.checkout / file).read_text(encoding="utf-8")
            text = re.sub(r"(torch\.device\([^)]*|\bdevice ?= ?)([\"'])cuda\2", r"\1\2cpu\2", text)
            (pathlib.Path(folder) / pathlib.Path(file).name).write_text(text, encoding="utf-8")
        status = pytest.main(["-q", "-p", "no:cacheprovider", "--tb=line", "-W", "ignore",
                              "--rootdir", folder, folder, *rest], plugins=[suite])
    suite.tell()
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
