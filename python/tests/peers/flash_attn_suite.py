# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a sample of flash-attention's own tests against lathe.compat, on the simulator.

    git clone https://github.com/Dao-AILab/flash-attention
    pip install einops pytest
    python flash_attn_suite.py flash-attention --sample 8

The file tests/test_flash_attn.py of the checkout, or hopper/test_flash_attn.py with --version 3, is
read, not copied: its syntax tree gets CPU tensors for CUDA ones, at most 2 sequences and 4 heads,
values up to 256 wide, no attention_chunk and short loops; lengths are capped at 256.
Of each test's parameters, thousands, a sample is drawn; the same seed draws the same. A case is
refused if it asks for what lathe has not (dropout, rotary embedding, left padding); others are
drawn in its place. Tests of the peer's extension itself are "internal".
"""
from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import os
import pathlib
import random
import sys
import time
import traceback
import types
from typing import Any, Callable, Iterator

os.environ.setdefault("LATHE_DEVICE", "sim")

import pytest
import torch
import torch._dynamo  # takes notes of torch.cuda, so it comes before the stubs

import lathe
import lathe.torch
from lathe.compat import flash_attn, flash_attn_3

MOST_TOKENS, MOST_ROWS, MOST_HEADS, MOST_REPEATS, MOST_WIDTH = 256, 2, 4, 2, 256
_CAPS = {"batch_size": MOST_ROWS, "nheads": MOST_HEADS, "nheads_k": MOST_HEADS // 2,
         "dv_vals": MOST_WIDTH}
_FILES = {2: "tests/test_flash_attn.py", 3: "hopper/test_flash_attn.py"}


# ---- the peer's file -----------------------------------------------------------------------------


class _Fitting(ast.NodeTransformer):
    """Fits the tests to the simulator: CPU tensors, few rows and heads, few repetitions."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in _CAPS:
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant) and type(each.value) is int:
                    each.value = min(each.value, _CAPS[target.id])
        if isinstance(target, ast.Name) and target.id == "attention_chunk_vals":
            node.value = ast.List([ast.Constant(0)], ast.Load())
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        gigabytes = isinstance(node.op, ast.Pow) and ast.unparse(node) == "1024 ** 3"
        return ast.copy_location(ast.Constant(1), node) if gigabytes else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        for each in ast.walk(node.iter):
            if isinstance(each, ast.Constant) and type(each.value) is int and each.value >= 50:
                each.value = MOST_REPEATS
        return self.generic_visit(node)


def _stub_packages(checkout: pathlib.Path, version: int) -> None:
    """Puts packages of lathe's functions and the checkout's plain modules in place."""
    def rotate(x: Any, *unused: Any, **more: Any) -> Any:
        return x  # the rotary embedding is refused where it matters

    def internal(*unused: Any, **more: Any) -> Any:
        raise ImportError("lathe has no functions for the parts of a split")

    package: Any = types.ModuleType("flash_attn")
    package.__path__ = [str(checkout / "flash_attn")]
    for name in flash_attn.__all__:
        setattr(package, name, getattr(flash_attn, name))
    interface: Any = types.ModuleType("flash_attn.flash_attn_interface")
    interface._get_block_size_n = None
    interface.USE_TRITON_ROCM = False
    rotary: Any = types.ModuleType("flash_attn.layers.rotary")
    rotary.apply_rotary_emb = rotate
    sys.modules.update({"flash_attn": package, "flash_attn.flash_attn_interface": interface,
                        "flash_attn.layers.rotary": rotary})
    three: Any = types.ModuleType("flash_attn_interface")
    three.flash_attn_combine = internal
    for name in flash_attn_3.__all__:
        setattr(three, name, getattr(flash_attn_3, name))
    sys.modules["flash_attn_interface"] = three
    os.environ["FLASH_ATTENTION_DISABLE_FP8"] = "TRUE"
    sys.path.insert(0, str(checkout / "hopper"))
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda device=None: (9, 0) if version == 3 else (8, 0)
    cuda.get_device_properties = lambda device=None: types.SimpleNamespace(total_memory=1 << 40)
    cuda.synchronize = lambda device=None: None


def load_tests(checkout: pathlib.Path, version: int) -> dict[str, Callable[..., None]]:
    """Returns the tests of a version of flash attention by name."""
    file = checkout / _FILES[version]
    tree = ast.fix_missing_locations(_Fitting().visit(ast.parse(file.read_text(), str(file))))
    _stub_packages(checkout, version)
    names: dict[str, Any] = {"__name__": "test_flash_attn", "__file__": str(file)}
    exec(compile(tree, str(file), "exec"), names)
    return {name: value for name, value in names.items()
            if name.startswith("test_") and callable(value)}


# ---- cases ---------------------------------------------------------------------------------------


def _capped(name: str, value: Any) -> Any:
    return min(value, MOST_TOKENS) if name.startswith("seqlen") and type(value) is int else value


def draw(test: Any, generator: random.Random) -> dict[str, Any]:
    """Returns parameters of a test, one of each of its lists at random."""
    case: dict[str, Any] = {}
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names = [name.strip() for name in mark.args[0].split(",")]
        chosen = generator.choice(list(mark.args[1]))
        values = chosen if len(names) > 1 else (chosen,)
        case.update({name: _capped(name, value) for name, value in zip(names, values)})
    return case


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def run(test: Callable[..., None], case: dict[str, Any]) -> tuple[str, str]:
    """Returns how a case ended, and why."""
    try:
        with _quiet():
            test(**case)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except lathe.Unsupported as refused:
        return "refused", str(refused)
    except (ImportError, AttributeError) as absent:
        return "internal", str(absent)  # it tests the peer's extension itself
    except (Exception, pytest.fail.Exception) as failed:
        lines = [at.lineno for at in traceback.extract_tb(failed.__traceback__)
                 if at.filename.endswith("test_flash_attn.py")]
        return "failed", f"{type(failed).__name__} at line {lines[-1]}: {failed}"
    return "passed", ""


def run_sample(name: str, test: Callable[..., None], size: int, seed: int
               ) -> collections.Counter[str]:
    """Runs cases until `size` of them passed or failed, prints failures and returns counts."""
    generator = random.Random(f"{seed}/{name}")
    ends: collections.Counter[str] = collections.Counter()
    seen = set()
    for _ in range(40 * size):
        case = draw(test, generator)
        key = repr(case)
        if key in seen:
            continue
        seen.add(key)
        end, why = run(test, case)
        ends[end] += 1
        if end == "failed":
            print(f"  {name} {case}\n    {why[:300]}", flush=True)
        if ends["passed"] + ends["failed"] >= size or end == "internal":
            break
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path, help="of Dao-AILab/flash-attention")
    parser.add_argument("--version", type=int, default=2, choices=_FILES, help="2 or 3 (2)")
    parser.add_argument("--sample", type=int, default=4, help="cases of each test (4)")
    parser.add_argument("--seed", type=int, default=0, help="which cases (0)")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    arguments = parser.parse_args()
    lathe.torch.use_simulator()
    total: collections.Counter[str] = collections.Counter()
    for name, test in load_tests(arguments.checkout, arguments.version).items():
        if arguments.only not in name:
            continue
        start = time.monotonic()
        ends = run_sample(name, test, arguments.sample, arguments.seed)
        total += ends
        text = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        print(f"{name}: {text} ({time.monotonic() - start:.0f} s)", flush=True)
    print("total: " + ", ".join(f"{count} {end}" for end, count in sorted(total.items())))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
