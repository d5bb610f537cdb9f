# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A sink of +inf takes all weight: out 0, lse +inf, gradients 0 but the sink's, which is dlse's.

Both families of kernels, whole and in parts; the other heads are as in float64.
"""
import numpy as np
import pytest

import lathe
from arrays import rms_error

TOKENS, KEYS, HEADS, KV_HEADS, WIDTH = 20, 70, 4, 2, 64
SINKS = np.array([np.inf, 0.5, -np.inf, np.inf], np.float32)
FREE = np.isfinite(SINKS) | (SINKS < 0)  # heads whose keys count


def inputs(dtype=np.float16):
    draw = np.random.default_rng(0).standard_normal
    q = draw((1, TOKENS, HEADS, WIDTH)).astype(dtype)
    k, v = (draw((1, KEYS, KV_HEADS, WIDTH)).astype(dtype) for _ in range(2))
    return q, k, v


def reference(q, k, v):
    """Returns out and lse in float64, the sinks counted."""
    k, v = (np.repeat(each.astype(np.float64), HEADS // KV_HEADS, axis=2) for each in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q.astype(np.float64), k) / np.sqrt(WIDTH)
    with np.errstate(over="ignore"):
        sink = np.where(FREE, SINKS, 0).astype(np.float64)
        total = np.exp(s).sum(-1) + np.exp(sink)[:, None]
    out = np.einsum("bhij,bjhd->bihd", np.exp(s) / total[..., None], v)
    out[:, :, ~FREE] = 0
    lse = np.log(total)
    lse[:, ~FREE] = np.inf
    return out, lse


def check(out, lse, wanted):
    assert (out[:, :, ~FREE] == 0).all()
    assert (lse[:, ~FREE] == np.inf).all()
    assert rms_error(out, wanted[0]) < 3e-3
    assert rms_error(lse[:, FREE], wanted[1][:, FREE]) < 1e-4


@pytest.mark.parametrize("dtype", [np.float16, np.float32])  # warpgroups, and the portable family
def test_forward_and_backward(dtype):
    q, k, v = inputs(dtype)
    draw = np.random.default_rng(1).standard_normal
    dout = draw(q.shape).astype(dtype)
    dlse = draw((1, HEADS, TOKENS)).astype(np.float32)
    found = lathe.run("flash_attention", q=q, k=k, v=v, sinks=SINKS, dout=dout, dlse=dlse)
    check(found.out, found.lse, reference(q, k, v))
    assert all(np.isfinite(found[name]).all() for name in ("dq", "dk", "dv", "dsinks"))
    assert (found.dq[:, :, ~FREE] == 0).all()
    np.testing.assert_allclose(found.dsinks[~FREE], dlse[0, ~FREE].sum(-1), rtol=1e-4, atol=1e-5)
    # Gradients of the keys are those of the heads that see them.
    dout[:, :, ~FREE] = 0
    dlse[:, ~FREE] = 0
    other = lathe.run("flash_attention", q=q, k=k, v=v, sinks=np.where(FREE, SINKS, -np.inf).astype(
        np.float32), dout=dout, dlse=dlse)
    for name in ("dk", "dv"):
        assert rms_error(found[name], other[name]) < 1e-3


@pytest.mark.parametrize("splits", [1, 3])
def test_decoding(splits):
    q, k, v = inputs()
    page = 16
    pages = -(-KEYS // page)
    k_cache, v_cache = (np.zeros((pages * page, KV_HEADS, WIDTH), np.float16) for _ in range(2))
    k_cache[:KEYS], v_cache[:KEYS] = k[0], v[0]
    shape = (pages, page, KV_HEADS, WIDTH)
    found = lathe.run("flash_attention_decode", q=q[:, :4], k_cache=k_cache.reshape(shape),
                      v_cache=v_cache.reshape(shape), sinks=SINKS, num_splits=splits,
                      block_table=np.arange(pages, dtype=np.int32)[None],
                      cache_seqlens=np.array([KEYS], np.int32))
    out, lse = reference(q, k, v)
    check(found.out, found.lse, (out[:, :4], lse[:, :, :4]))


@pytest.mark.parametrize("splits", [1, 3])
def test_sparse(splits):
    q, k, v = inputs()
    lists = np.broadcast_to(np.arange(KEYS, dtype=np.int32), (1, TOKENS, KV_HEADS, KEYS)).copy()
    dout = np.random.default_rng(1).standard_normal(q.shape).astype(np.float16)
    found = lathe.run("sparse_flash_attention", q=q, k=k, v=v, indices=lists, sinks=SINKS,
                      scale=WIDTH ** -0.5, num_splits=splits, dout=dout)
    check(found.out, found.lse, reference(q, k, v))
    statistics = found.softmax_max.reshape(1, HEADS // KV_HEADS, -1)
    assert np.isinf(statistics).any() and not np.isnan(found.softmax_sum).any()
    assert all(np.isfinite(found[name]).all() for name in ("dq", "dk", "dv", "dsinks"))
    assert (found.dq[:, :, ~FREE] == 0).all() and (found.dsinks[~FREE] == 0).all()
