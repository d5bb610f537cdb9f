#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's or SGLang's own tests of kernels on lathe's functions and the simulator.

    python servers_suite.py CHECKOUT [--sample 60] [--seed 0] [pytest's arguments]

CHECKOUT is a checkout of vLLM 0.27 to 0.33, or its source distribution, or a checkout of SGLang.
Nothing of it is built or imported: files of tests are read, devices are replaced in their text, and
that runs from a folder that is removed at the end. The server's modules are stand-ins, which have
lathe's functions where a running server gets them (lathe.compat.vllm.register,
lathe.compat.sglang.register), and a test that calls anything else of the server is skipped and says
what it called. Shapes are capped, since the simulator is slow. A sample of the cases is drawn, as
many of each test as it has; --sample 0 runs all.
"""
from __future__ import annotations

import argparse
import collections
import importlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import types
from typing import Any

os.environ.setdefault("LATHE_DEVICE", "sim")

import pytest
import torch
import torch._dynamo  # it takes notes of functions of torch.cuda that are replaced below

import lathe.torch
from lathe.compat import fla, sglang, vllm, vllm_conv, vllm_glm, vllm_kda

FILES = ("tests/kernels/mamba/test_causal_conv1d.py", "tests/kernels/attention/test_flash_attn.py",
         "tests/models/kimi_k3/test_kda.py", "tests/models/glm5next/test_kda_recurrent.py",
         "tests/kernels/mamba/test_gdn_causal_conv1d_contract.py")
# SGLang's files move from release to release: those that have one of these words are run.
WORDS = ("causal_conv1d_fn_split_qkv", "fused_recurrent_kda_packed_decode")
CAPS = {"seqlen": 256, "dim": 528, "batch": 4, "num_blocks": 256, "H": 4, "num_heads": 12,
        "num_seqs": 8}
# A kernel of vLLM's refuses strides that kernels here take; a layer of vLLM's.
NOT_OURS = ("test_fused_recurrent_kda_rejects_unaddressable_layouts",
            "test_kda_warmup_skips_missing_metadata")
MOST_TOKENS = 1200  # of a packed call
# A default device would put a mode of torch before every call.
DEVICES = ((r"""(["'])cuda\1""", r"\1cpu\1"), (r"torch\.cuda\.is_available\(\)", "True"),
           (r"torch\.set_default_device", "(lambda _: None)"),
           (r"torch\.accelerator\.synchronize", "(lambda *_: None)"),
           (r"torch\.ops\._flashkda_C", "__import__('vllm._flashkda_C', fromlist=['fwd'])"))

# ---- stand-ins of the servers' modules -----------------------------------------------------------


class Own:
    """What a stand-in does not have: a test that calls it is the server's, and is skipped."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        pytest.skip(f"calls the server's {self.name}")

    def __getitem__(self, grid: Any) -> Own:  # of a kernel in Triton
        return self

    def __getattr__(self, name: str) -> Own:
        if name.startswith("__"):
            raise AttributeError(name)
        return Own(f"{self.name}.{name}")


def l2norm_fwd(x: torch.Tensor) -> torch.Tensor:
    return (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _chunk_kda(*arguments: Any, **keywords: Any) -> Any:
    """FLA's, whose states vLLM keeps with values first."""
    return fla.chunk_kda(*arguments, **keywords, state_v_first=True)


def _fused_recurrent_kda_fwd(*arguments: Any, **keywords: Any) -> Any:
    return fla.fused_recurrent_kda_fwd(*arguments, **keywords, state_v_first=True)


def _kda() -> dict[str, Any]:
    found = {name: getattr(vllm_kda, name) for name in vllm_kda.__all__}
    return {**found, "chunk_kda": _chunk_kda, "fused_recurrent_kda_fwd": _fused_recurrent_kda_fwd}


def _flashkda_prefill(q: Any, k: Any, v: Any, g: Any, beta: Any, A_log: Any, dt_bias: Any,
                      lower_bound: float, initial_state: Any, cu_seqlens: Any, out: Any,
                      final_state: Any, workspace: Any, **checkpoints: Any
                      ) -> tuple[torch.Tensor, torch.Tensor]:
    vllm_kda.flashkda_fwd(q, k, v, g, beta, q.shape[-1]**-0.5, out, workspace, A_log, dt_bias,
                          lower_bound, initial_state, final_state, cu_seqlens, **checkpoints)
    return out, final_state


class Platform:
    """A GPU of NVIDIA that is no special one."""

    device_type = "cpu"
    seed_everything = staticmethod(torch.manual_seed)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: name in ("is_cuda", "is_cuda_alike")


def _nothing_else(*_: Any, **__: Any) -> bool:
    return False


def _sglang_kda() -> Any:
    """Returns the kernels of a layer as SGLang makes them, whose base class is a stand-in too."""
    return type("TritonKDAKernel", (sglang._Kda,), {})()


def _sglang_update(A_log: Any, dt_bias: Any, q: Any, k: Any, v: Any, a: Any, b: Any,
                   initial_state_source: Any, initial_state_indices: Any, cu_seqlens: Any,
                   **_: Any) -> torch.Tensor:
    return _sglang_kda().decode(q, k, v, a, b, A_log=A_log, dt_bias=dt_bias,
                                ssm_states=initial_state_source,
                                cache_indices=initial_state_indices, query_start_loc=cu_seqlens)


def _sglang_packed(mixed_qkv: Any, a: Any, b: Any, A_log: Any, dt_bias: Any, scale: float,
                   initial_state: Any, out: Any, ssm_state_indices: Any, **_: Any) -> None:
    found = _sglang_kda().packed_decode(
        mixed_qkv, a, b, A_log=A_log, dt_bias=dt_bias, scale=scale, ssm_states=initial_state,
        cache_indices=ssm_state_indices, num_v_heads=out.shape[2], head_v_dim=out.shape[3])
    out.copy_(found.transpose(0, 1))


def _sglang_recurrent(*arguments: Any, **keywords: Any) -> Any:
    return fla.fused_recurrent_kda(*arguments, **keywords, output_final_state=True,
                                   state_v_first=True)


def _split(packed: torch.Tensor, *sizes: int) -> tuple[torch.Tensor, ...]:
    parts = packed.split([heads * width for heads, width in zip(sizes[:3], sizes[3:])], 1)
    return tuple(each.reshape(1, -1, heads, width)
                 for each, heads, width in zip(parts, sizes[:3], sizes[3:]))


def _nothing(*_: Any, **__: Any) -> None:
    pass


_FLA = "sglang.srt.layers.attention.fla"
MODULES: dict[str, dict[str, Any]] = {
    "sglang.test.ci.ci_register": {"register_cuda_ci": _nothing, "register_amd_ci": _nothing},
    "sglang.srt.utils.common": {"get_device": lambda: "cpu"},
    "sglang.kernels.ops.mamba.causal_conv1d_triton":
        {"PAD_SLOT_ID": -1, **{name: getattr(sglang, name) for name in (
            "causal_conv1d_fn", "causal_conv1d_fn_split_qkv", "causal_conv1d_update")}},
    "sglang.kernels.ops.attention.triton_gdn_fused_proj": {"fused_qkv_split_gdn_prefill": _split},
    f"{_FLA}.fused_recurrent": {"fused_recurrent_kda_packed_decode": _sglang_packed},
    f"{_FLA}.fused_sigmoid_gating_recurrent":
        {"fused_sigmoid_gating_delta_rule_update": _sglang_update},
    f"{_FLA}.kda": {"fused_recurrent_kda": _sglang_recurrent},
    "sglang.srt.layers.attention.linear.kernels.kda_triton": {"TritonKDAKernel": _sglang_kda},
    "vllm._flashkda_C": {"fwd": vllm_kda.flashkda_fwd, "get_workspace_size": lambda *_: 0},
    "vllm.model_executor.layers.mamba.ops.causal_conv1d":
        {name: getattr(vllm_conv, name) for name in vllm_conv.__all__},
    "vllm.models.kimi_k3.nvidia.ops.third_party.kda": _kda(),
    "vllm.models.kimi_k3.amd.ops.third_party.kda": {},
    "vllm.models.glm5next.nvidia.ops.third_party.kda":
        {name: getattr(vllm_glm, name) for name in vllm_glm.__all__},
    "vllm.models.kimi_k3.nvidia.kda": {
        "_flashkda_prefill": _flashkda_prefill, "is_flashkda_supported": lambda *_: True,
        "is_fused_kda_decode_supported": lambda *_, num_spec, **__: num_spec == 0,
        **dict.fromkeys(("is_flashinfer_fused_kda_decode_supported",
                         "is_flashinfer_fused_kda_spec_decode_supported",
                         "is_flashinfer_recurrent_kda_prefill_supported"), _nothing_else)},
    "vllm._custom_ops": {"fused_kda_decode": vllm_kda.fused_kda_decode},
    "vllm.vllm_flash_attn": {name: getattr(vllm, name) for name in vllm.__all__},
    "vllm.platforms": {"current_platform": Platform()},
    "vllm.utils.torch_utils": {"set_random_seed": torch.manual_seed},
    "vllm.third_party.flash_linear_attention.ops.l2norm": {"l2norm_fwd": l2norm_fwd},
    "vllm.v1.attention.backends.utils": {"NULL_BLOCK_ID": 0, "PAD_SLOT_ID": -1},
}


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of a server: one of MODULES, or one that has nothing but Own."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("vllm", "sglang"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(MODULES.get(module.__name__, {}))
        vars(module)["__getattr__"] = lambda name: self._own(module.__name__, name)

    @staticmethod
    def _own(module: str, name: str) -> Own:
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{module}.{name}" in MODULES:
            return importlib.import_module(f"{module}.{name}")
        return Own(f"{module.rpartition('.')[2]}.{name}")


def rearrange(tensor: torch.Tensor, pattern: str) -> torch.Tensor:
    """Permutes the dimensions of a tensor: all that these tests ask of einops."""
    before, after = (side.split() for side in pattern.split("->"))
    return tensor.permute(*[before.index(name) for name in after])


def stand_in() -> None:
    """Finds modules of the servers, and leaves out of torch what only a GPU has."""
    lathe.torch.use_simulator()
    for name in ("synchronize", "empty_cache", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *_: None)
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
    sys.meta_path.insert(0, StandIns())
    if importlib.util.find_spec("einops") is None:
        sys.modules["einops"] = types.ModuleType("einops")
        sys.modules["einops"].rearrange = rearrange  # type: ignore[attr-defined]


# ---- cases ---------------------------------------------------------------------------------------


class Sample:
    """Caps the sizes of the cases that are collected, keeps a seeded sample of them, and counts
    what becomes of it."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self.counts: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        kept = {}
        for item in items:
            given = item.callspec.params if hasattr(item, "callspec") else {}
            if item.originalname in NOT_OURS or not self._is_ours(given):
                continue
            for name, most in CAPS.items():
                if isinstance(given.get(name), int):
                    given[name] = min(given[name], most)
            kept.setdefault((item.originalname, str(sorted(given.items(), key=str))), item)
        order = list(kept.values())
        random.Random(self.seed).shuffle(order)
        turns: collections.Counter[str] = collections.Counter()
        dealt = []  # as many of each test, as far as it has them
        for item in order:
            turns[item.originalname] += 1
            dealt.append((turns[item.originalname], item.nodeid, item))
        items[:] = [item for _, _, item in sorted(dealt, key=lambda each: each[:2])
                    ][:self.size or None]

    @staticmethod
    def _is_ours(given: dict[str, Any]) -> bool:
        if given.get("impl") == "amd" or "flash" in str(given.get("decode_backend")):
            return False  # other functions
        offsets = given.get("cu_seqlens")
        return not isinstance(offsets, list) or offsets[-1] <= MOST_TOKENS

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Counts a call that lathe refuses, with its reason, as skipped."""
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, lathe.Unsupported):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1], f"refused: {call.excinfo.value}")
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            self.counts[report.outcome] += 1
            if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
                self.reasons[report.longrepr[2]] += 1


def sources(checkout: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of tests, and says which are not in this checkout."""
    if not (checkout / FILES[0]).exists():
        return [each for each in sorted(checkout.glob("test/registered/**/test_*.py"))
                if any(word in each.read_text() for word in WORDS)]
    for name in FILES:
        if not (checkout / name).exists():
            print(f"{name} is not in this checkout")
    return [checkout / name for name in FILES if (checkout / name).exists()]


def copied(checkout: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Returns the files of tests in the folder, with their devices replaced, and what lies beside
    them."""
    found = []
    for source in sources(checkout):
        to = folder / source.parent.relative_to(checkout)
        if not to.exists():
            shutil.copytree(source.parent, to, ignore=lambda _, names: [
                each for each in names if each.startswith("test_") or not each.endswith(".py")])
            (to / "__init__.py").touch()
        for each in (source, *to.glob("*.py")):
            text = each.read_text()
            for pattern, replacement in DEVICES:
                text = re.sub(pattern, replacement, text)
            (to / each.name).write_text(text)
        found.append(str(to / source.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given, rest = parser.parse_known_args()
    stand_in()
    sample = Sample(given.sample, given.seed)
    with tempfile.TemporaryDirectory() as folder:
        files = copied(given.checkout.resolve(), pathlib.Path(folder))
        status = pytest.main(["-q", "--rootdir", folder, "-p", "no:cacheprovider", "-c",
                              os.devnull, *files, *rest], plugins=[sample])
    for reason, count in sample.reasons.most_common():
        print(f"{count} skipped: {reason}")
    print(f"sample of {given.sample or 'all'}, seed {given.seed}: {dict(sample.counts)}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
