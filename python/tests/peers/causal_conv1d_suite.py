#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a checkout of Dao-AILab/causal-conv1d on lathe's functions and the simulator.

    python causal_conv1d_suite.py CHECKOUT [--sample 40] [--seed 0] [--tokens 256] [--batch 2]

Their test file is read from the checkout, changed in memory and run from a temporary folder:
devices become the CPU, tokens, channels and batches are capped, and long loops are cut. Their
reference functions stay theirs. A sample of the cases is drawn; --sample 0 runs all.
"""
import argparse
import ast
import importlib
import pathlib
import random
import sys
import tempfile
import types

import pytest
import torch

MOST_REPEATS = 3


class Capped(ast.NodeTransformer):
    """Rewrites devices, sizes and loops of the test file."""

    def __init__(self, caps):
        self.caps = caps

    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node

    def visit_Assign(self, node):
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else None
        if name in self.caps and isinstance(node.value, ast.Constant):
            node.value = ast.copy_location(
                ast.Constant(min(node.value.value, self.caps[name])), node.value)
        return self.generic_visit(node)

    def visit_Call(self, node):
        text = ast.unparse(node.func)
        if text == "torch.cuda.is_available":
            return ast.copy_location(ast.Constant(True), node)
        if text == "pytest.mark.parametrize" and node.args[0].value in self.caps:
            most = self.caps[node.args[0].value]
            values = eval(ast.unparse(node.args[1]), {})  # a list of sums of integers
            kept = [each for each in values if each <= most] or [most]
            node.args[1] = ast.copy_location(ast.parse(repr(kept), mode="eval").body, node.args[1])
        if text == "range" and isinstance(node.args[-1], ast.Constant):
            most = min(node.args[-1].value, MOST_REPEATS)
            node.args[-1] = ast.copy_location(ast.Constant(most), node.args[-1])
        return self.generic_visit(node)


class Sample:
    """Keeps a seeded sample of the cases that are collected, and counts what becomes of them."""

    def __init__(self, size, seed):
        self.size, self.seed, self.counts = size, seed, {}

    def pytest_collection_modifyitems(self, items):
        # A case that only skips itself says nothing.
        useful = [item for item in items if not self._is_skipped(item)]
        random.Random(self.seed).shuffle(useful)
        items[:] = sorted(useful[:self.size or None], key=lambda item: item.nodeid)

    @staticmethod
    def _is_skipped(item):
        given = item.callspec.params if hasattr(item, "callspec") else {}
        states = given.get("has_initial_states") or given.get("return_final_states")
        return states and not given.get("channel_last", True)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            self.counts[report.outcome] = self.counts.get(report.outcome, 0) + 1


def rearrange(tensor, pattern):
    """Permutes the dimensions of a tensor: all that these tests ask of einops."""
    before, after = (side.split() for side in pattern.split("->"))
    return tensor.permute(*[before.index(name) for name in after])


def stub_modules():
    """Puts stubs where their package imports its extension and einops."""
    torch.cuda.is_available()  # before the simulator, which it might take for a GPU
    importlib.import_module("torch._dynamo")  # it takes notes of torch.cuda's functions
    for name in ("synchronize", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *arguments: None)
    sys.modules["causal_conv1d_cuda"] = types.ModuleType("causal_conv1d_cuda")
    if importlib.util.find_spec("einops") is None:
        sys.modules["einops"] = types.ModuleType("einops")
        sys.modules["einops"].rearrange = rearrange


def replace_functions(checkout):
    """Imports their package from the checkout and puts lathe's functions in the place of theirs."""
    from lathe.compat import causal_conv1d as ours
    sys.path.insert(0, str(checkout))
    for name in ("causal_conv1d_interface", "causal_conv1d_varlen"):
        module = importlib.import_module(f"causal_conv1d.{name}")
        for function in ours.__all__:
            if hasattr(module, function):
                setattr(module, function, getattr(ours, function))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--channels", type=int, default=4128)
    given, rest = parser.parse_known_args()
    source = (given.checkout / "tests/test_causal_conv1d.py").read_text()
    caps = {"seqlen": given.tokens, "batch": given.batch, "dim": given.channels}
    tree = ast.fix_missing_locations(Capped(caps).visit(ast.parse(source)))
    stub_modules()
    import lathe.torch
    lathe.torch.use_simulator()
    replace_functions(given.checkout.resolve())
    sample = Sample(given.sample, given.seed)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "test_causal_conv1d.py")
        file.write_text(ast.unparse(tree))
        status = pytest.main(["-q", "--rootdir", folder, "-p", "no:cacheprovider", str(file),
                              *rest], plugins=[sample])
    print(f"sample of {given.sample or 'all'}, seed {given.seed}: {sample.counts}")
    return status


if __name__ == "__main__":
    sys.exit(main())
