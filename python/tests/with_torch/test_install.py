# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.install: packages that a program asks for by name."""
import importlib
import importlib.metadata
import importlib.util
import sys
import types

import pytest
import torch

import lathe
import lathe.compat
from lathe.compat import _bert_padding, _install, flash_attn


@pytest.fixture(autouse=True)
def clean():
    yield
    lathe.compat.uninstall()


def installed_really(module):
    """Returns true where the peer itself is installed."""
    return importlib.util.find_spec(module) is not None


ROOTS = {"flash_attn": "flash_attn", "flash_attn_3": "flash_attn_interface",
         "flash_attn_4": "flash_attn", "causal_conv1d": "causal_conv1d", "flash_mla": "flash_mla"}


@pytest.mark.parametrize("package", ROOTS)
def test_a_package_is_found_and_goes_again(package):
    root = ROOTS[package]
    assert not installed_really(root)
    lathe.compat.install(package)
    lathe.compat.install(package)  # changes nothing
    for name, source in _install._PACKAGES[package].modules.items():
        module = importlib.import_module(name)
        assert importlib.util.find_spec(name) is not None
        if source:
            whose = importlib.import_module(f"lathe.compat.{source}")
            assert all(getattr(module, each) is getattr(whose, each) for each in whose.__all__)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{root}.no_such_module")
    version = importlib.metadata.version(package)
    assert version == importlib.metadata.version(package.replace("_", "-"))
    assert package.replace("_", "-") in importlib.metadata.packages_distributions()[root]
    lathe.compat.uninstall(package)
    assert root not in sys.modules and not installed_really(root)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version(package)


def test_two_packages_share_a_module():
    lathe.compat.install("flash_attn", "flash-attn-4")
    import flash_attn as module
    import flash_attn.cute
    assert module.flash_attn_func is flash_attn.flash_attn_func
    lathe.compat.uninstall("flash_attn")
    module = importlib.import_module("flash_attn")
    assert not hasattr(module, "flash_attn_func") and module.cute.flash_attn_func


def test_a_peer_that_is_imported_is_refused_or_replaced(monkeypatch):
    theirs = types.ModuleType("causal_conv1d")
    theirs.__file__ = "/somewhere/causal_conv1d/__init__.py"
    monkeypatch.setitem(sys.modules, "causal_conv1d", theirs)
    with pytest.raises(lathe.InvalidArgument, match="causal_conv1d is imported already, from "
                                                    "/somewhere.*replace=True"):
        lathe.compat.install("causal_conv1d")
    assert sys.modules["causal_conv1d"] is theirs
    lathe.compat.install("causal_conv1d", replace=True)
    assert importlib.import_module("causal_conv1d") is not theirs
    lathe.compat.uninstall()
    assert sys.modules["causal_conv1d"] is theirs


def test_a_name_that_is_none():
    with pytest.raises(lathe.InvalidArgument, match="'xformers'.*allowed are flash_attn"):
        lathe.compat.install("xformers")


def test_checks_of_transformers(monkeypatch):
    checks = pytest.importorskip("transformers.utils.import_utils",
                                 reason="transformers is not installed")
    monkeypatch.setattr(checks, "is_torch_cuda_available", lambda: True)
    monkeypatch.setitem(checks.__dict__, "is_kernels_available", lambda: False)
    names = ("is_flash_attn_2_available", "is_flash_attn_3_available", "is_flash_attn_4_available",
             "is_causal_conv1d_available")
    assert not any(getattr(checks, name)() for name in names)  # which it keeps
    lathe.compat.install(*ROOTS)
    assert all(getattr(checks, name)() for name in names)
    lathe.compat.uninstall()
    assert not any(getattr(checks, name)() for name in names)
    monkeypatch.undo()
    _install._tell_others()


# ---- flash_attn.bert_padding -------------------------------------------------------------------


def test_padding_there_and_back():
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    x = torch.randn(3, 4, 2, 5, requires_grad=True)
    rows, indices, starts, longest, used = _bert_padding.unpad_input(x, mask)
    assert indices.tolist() == [1, 2, 3, 4, 5] and starts.tolist() == [0, 3, 5, 5]
    assert longest == 3 and used.tolist() == [3, 2, 0]
    assert torch.equal(rows, torch.stack([x[0, 1], x[0, 2], x[0, 3], x[1, 0], x[1, 1]]))
    back = _bert_padding.pad_input(rows, indices, 3, 4)
    assert torch.equal(back, x * mask[:, :, None, None])
    back.sum().backward()
    assert torch.equal(x.grad, mask[:, :, None, None].expand_as(x).float())


def test_places_that_are_taken_and_not_used():
    mask, unused = torch.tensor([[1, 0, 0], [1, 1, 0]]), torch.tensor([[0, 1, 0], [0, 0, 0]])
    x = torch.randn(2, 3, 1)
    _, indices, starts, longest, used = _bert_padding.unpad_input(x, mask, unused)
    assert indices.tolist() == [0, 1, 3, 4] and starts.tolist() == [0, 2, 4]
    assert longest == 2 and used.tolist() == [1, 2]


def test_an_index_outside_names_no_row():
    x, indices = torch.randn(3, 2), torch.tensor([2, -1, 7])
    assert torch.equal(_bert_padding.index_first_axis(x, indices),
                       torch.stack([x[2], torch.zeros(2), torch.zeros(2)]))
    assert torch.equal(_bert_padding.index_put_first_axis(x, indices, 4),
                       torch.stack([torch.zeros(2), torch.zeros(2), x[0], torch.zeros(2)]))
