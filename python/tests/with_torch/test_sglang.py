# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.sglang against float64, and what SGLang takes: a class, specs, hooks.

SGLang is not installed here: small modules stand in for those of its that lathe looks at.
"""
import abc
import enum
import sys
import types

import pytest
import torch

import fla_reference
import lathe
import lathe.torch
from fla_reference import assert_near
from lathe.compat import _plugins, sglang
from serving_inputs import A_LOG, BIAS, BOUND, H, K, V, ints, randn, tokens, wanted


class Base(abc.ABC):
    """What LinearAttnKernelBase asks of its subclasses."""

    @abc.abstractmethod
    def decode(self): ...

    @abc.abstractmethod
    def extend(self): ...


class Registry:
    hooks: list = []

    @classmethod
    def register(cls, target, hook, hook_type):
        cls.hooks.append((target, hook, hook_type))


class Requirement:
    @classmethod
    def cuda(cls, min_sm):
        return ("cuda", min_sm)


def module(monkeypatch, name, **members):
    found = types.ModuleType(name)
    vars(found).update(members)
    for i in range(1, name.count(".") + 1):
        parent = name.rsplit(".", i)[0]
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, found)
    return found


@pytest.fixture
def peer(monkeypatch):
    kernels = "sglang.srt.layers.attention.linear.kernels"
    module(monkeypatch, f"{kernels}.kernel_backend", LinearAttnKernelBase=Base)
    module(monkeypatch, "sglang.srt.layers.attention.mamba.causal_conv1d_triton",
           causal_conv1d_fn=None, causal_conv1d_update=None)
    module(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=Registry,
           HookType=enum.Enum("HookType", ["REPLACE"]))
    module(monkeypatch, "sglang.kernels.spec", CapabilityRequirement=Requirement,
           KernelBackend=enum.Enum("KernelBackend", ["JIT"]),
           KernelSpec=lambda **fields: types.SimpleNamespace(**fields))
    Registry.hooks = []


def served(given):
    """Returns q, k, v, a, b of a call; SGLang's raw gates may come as [1,T,H K]."""
    return (*(given[name] for name in "qkv"), given["raw_g"].flatten(2), given["raw_beta"])


def test_the_class_is_sglang_s(peer):
    made = sglang.kernel_class()
    assert issubclass(made, Base) and made.__name__ == "LatheKDAKernel"
    assert made().supports_packed_decode and made is not sglang.kernel_class()


def test_register_replaces_what_is_there(peer, monkeypatch):
    _plugins.sglang()  # SGLANG_PLUGINS does not name lathe
    assert Registry.hooks == []
    monkeypatch.setenv("SGLANG_PLUGINS", "other, lathe")
    _plugins.sglang()
    names = [target.rsplit(".", 1)[1] for target, _, _ in Registry.hooks]
    assert names == ["TritonKDAKernel", "causal_conv1d_fn", "causal_conv1d_update"]
    assert Registry.hooks[1][1] is sglang.causal_conv1d_fn
    specs = sglang.kernel_specs()
    for spec in specs:
        path, name = spec.target.split(":")
        assert getattr(sys.modules[path], name).__name__ == spec.op.split(".")[1]
        assert spec.capabilities == {("cuda", (8, 0))}
    assert len(specs) == 3


@pytest.mark.parametrize("packed", [False, True])
def test_decode(peer, packed):
    slots, given, pool = [3, -1, 0], tokens(3), randn(5, H, V, K, seed=5)
    before, kernel = pool.clone(), sglang.kernel_class()()
    more = {"A_log": A_LOG, "dt_bias": BIAS, "ssm_states": pool, "cache_indices": ints(*slots)}
    q, k, v, a, b = served(given)
    if packed:
        mixed = q.as_strided((3, 2 * H * K + H * V), (q.stride(1), 1))
        o = kernel.packed_decode(mixed, a[0], b[0], **more, scale=K**-0.5, num_v_heads=H,
                                 head_v_dim=V)
    else:
        o = kernel.decode(q, k, v, a, b, **more, query_start_loc=ints(0, 1, 2, 3))
    assert o.shape == (1, 3, H, V) and (o[0, 1] == 0).all()
    for row, slot in ((0, 3), (2, 0)):
        y, state = wanted(given, before[slot], None, slice(row, row + 1))
        assert_near(o[0, row:row + 1], y, BOUND)
        assert_near(pool[slot], state, BOUND)
        before[slot] = pool[slot]
    assert torch.equal(pool, before)


@pytest.mark.parametrize("fused", [False, True])
def test_extend(peer, fused):
    offsets, given, pool = ints(0, 40, 40, 75), tokens(75), randn(5, H, V, K, seed=5)
    before, kernel = pool.clone(), sglang.kernel_class()()
    q, k, v, g, beta = served(given)
    more = {"A_log": A_LOG, "dt_bias": BIAS, "lower_bound": -5.0} if fused else {}
    if not fused:
        g, beta = -g.abs(), torch.sigmoid(beta)
    o = kernel.extend(q, k, v, g, beta, ssm_states=pool, cache_indices=ints(4, 1, 2),
                      query_start_loc=offsets, **more)
    for n, slot in ((0, 4), (2, 2)):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        if fused:
            y, state = wanted(given, before[slot], -5.0, part)
        else:
            rows = [each[:, part].double() for each in (q, k, v, g.view(1, 75, H, K), beta)]
            y, state = fla_reference.kda(*rows, initial_state=before[slot][None].double(),
                                         norms=True, state_v_first=True)
            y, state = y[0], state[0]
        assert_near(o[0, part], y, 1e-4)
        assert_near(pool[slot], state, 1e-4)
    for slot in (0, 1, 3):
        assert torch.equal(pool[slot], before[slot])


@pytest.mark.parametrize("buffered", [False, True])
def test_target_verify(peer, buffered):
    """Drafts are computed, states after each go to a scratch pool, and the pool stays."""
    offsets, given, pool = ints(0, 3, 6, 9), tokens(9), randn(5, H, V, K, seed=5)
    before, kernel = pool.clone(), sglang.kernel_class()()
    buffer, rows = torch.full((4, 3, H, V, K), 7.0), ints(2, 0, 1)
    more = {"intermediate_states_buffer": buffer, "intermediate_state_indices": rows,
            "cache_steps": 3} if buffered else {}
    q, k, v, a, b = served(given)
    o = kernel.target_verify(A_LOG, BIAS, q, k, v, a, b, ssm_states=pool,
                             cache_indices=ints(3, -1, 1), query_start_loc=offsets, **more)
    assert torch.equal(pool, before) and (o[0, 3:6] == 0).all()
    for n, slot in ((0, 3), (2, 1)):
        for column in range(3):
            part = slice(3 * n, 3 * n + column + 1)
            y, state = wanted(given, before[slot], None, part)
            assert_near(o[0, part], y, BOUND)
            if buffered:
                assert_near(buffer[rows[n], column], state, BOUND)
    assert (buffer[[0, 3]] == 7.0).all()
    with pytest.raises(lathe.Unsupported, match="retrieve_parent_token is given"):
        kernel.target_verify(A_LOG, BIAS, q, k, v, a, b, ssm_states=pool,
                             cache_indices=ints(3, -1, 1), query_start_loc=offsets,
                             retrieve_parent_token=rows)


def test_convolution_split():
    """q, k and v are dense; slot 0 is one like any other, and -1 is padding."""
    k_dim, v_dim, taps = 16, 32, 4
    D = 2 * k_dim + v_dim
    x, weight, bias = randn(7, D).t(), randn(D, taps, seed=1), randn(D, seed=2)
    pool = randn(4, D, taps - 1, seed=3)
    before, offsets = pool.clone(), ints(0, 4, 5, 7)
    parts = sglang.causal_conv1d_fn_split_qkv(
        x, weight, bias, pool, offsets, [4, 1, 2], k_dim, v_dim, ints(0, -1, 2),
        torch.tensor([True, True, False]))
    assert [tuple(each.shape) for each in parts] == [(7, k_dim), (7, k_dim), (7, v_dim)]
    assert all(each.is_contiguous() for each in parts)
    with_heads = sglang.causal_conv1d_fn_split_qkv(
        x, weight, bias, before.clone(), offsets, None, k_dim, k_dim, v_dim, num_q_heads=2,
        num_k_heads=4, num_v_heads=2, head_q_dim=8, head_k_dim=4, head_v_dim=16,
        cache_indices=ints(0, -1, 2), has_initial_state=torch.tensor([True, True, False]))
    assert [tuple(each.shape) for each in with_heads] == [(1, 7, 2, 8), (1, 7, 4, 4), (1, 7, 2, 16)]
    assert all(torch.equal(one.flatten(2)[0], two) for one, two in zip(with_heads, parts))
    with pytest.raises(lathe.InvalidArgument, match=r"v_dim is 32; allowed .*= 48"):
        sglang.causal_conv1d_fn_split_qkv(
            x, weight, bias, pool, offsets, None, q_dim=16, k_dim=16, v_dim=32, num_q_heads=2,
            num_k_heads=4, num_v_heads=3, head_q_dim=8, head_k_dim=4, head_v_dim=16)
    y = torch.cat(parts, 1)
    for n, slot in ((0, 0), (2, 2)):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        state = before[slot].double() if n == 0 else torch.zeros(D, taps - 1).double()
        seen = torch.cat([state, x[:, part].double()], 1)
        full = sum(seen[:, i:i + part.stop - part.start] * weight[:, i, None].double()
                   for i in range(taps)) + bias[:, None].double()
        assert_near(y[part].t(), torch.nn.functional.silu(full), BOUND)
        assert torch.equal(pool[slot], seen[:, -(taps - 1):].float())
    assert torch.equal(pool[[1, 3]], before[[1, 3]])
    y = sglang.causal_conv1d_update(x.t()[:2], pool, weight, bias, "silu",
                                    conv_state_indices=ints(0, -1))
    assert (y[0] != 0).any() and (y[1] == 0).all()
    with pytest.raises(lathe.Unsupported, match="cache_seqlens is given"):
        sglang.causal_conv1d_update(x.t()[:2], pool, weight, cache_seqlens=offsets)
    with pytest.raises(lathe.InvalidArgument, match="2 k_dim"):
        sglang.causal_conv1d_fn_split_qkv(x, weight, bias, pool, offsets, None, 8, v_dim)


def test_vllm_takes_what_it_has(monkeypatch):
    """register() replaces functions where they are defined and where they were imported."""
    from lathe.compat import vllm, vllm_conv

    def theirs():
        raise AssertionError

    place = "vllm.model_executor.layers.mamba.ops.causal_conv1d"
    ops = module(monkeypatch, place, causal_conv1d_update=theirs)
    layer = module(monkeypatch, "vllm.model_executor.layers.mamba.layer", update=theirs)
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        sys.modules[name].__spec__ = types.SimpleNamespace()
        sys.modules[name].__path__ = []
    _plugins.vllm()
    assert ops.causal_conv1d_update is theirs  # VLLM_PLUGINS does not name lathe
    monkeypatch.setenv("VLLM_PLUGINS", "lathe")
    _plugins.vllm()
    assert ops.causal_conv1d_update is layer.update is vllm_conv.causal_conv1d_update
    assert vllm.register() == []  # it was done
