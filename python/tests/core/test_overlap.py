# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Views of one buffer: those that share no element, caches, and what is refused."""
import numpy as np
import pytest

import lathe
from arrays import rms_error

PAGES, PAGE, HEADS, WIDTH = 6, 16, 2, 16


def caches(layout):
    """Returns (k_cache, v_cache, pages of the two sequences) of a server's layout."""
    draw = np.random.default_rng(1).standard_normal
    if layout == "two tensors":
        k, v = (draw((PAGES, PAGE, HEADS, WIDTH)).astype(np.float16) for _ in range(2))
        return k, v, (0, 3)
    if layout == "[P,2,page,H,D]":
        both = draw((PAGES, 2, PAGE, HEADS, WIDTH)).astype(np.float16)
        return both[:, 0], both[:, 1], (0, 3)
    if layout == "[P,page,2,H,D]":
        both = draw((PAGES, PAGE, 2, HEADS, WIDTH)).astype(np.float16)
        return both[:, :, 0], both[:, :, 1], (0, 3)
    both = draw((2 * PAGES, PAGE, HEADS, WIDTH)).astype(np.float16)  # pages K0 V0 K1 V1
    return both[:-1], both[1:], (0, 4)


@pytest.mark.parametrize("layout", ["two tensors", "[P,2,page,H,D]", "[P,page,2,H,D]",
                                    "K0 V0 K1 V1"])
def test_caches_in_one_buffer(layout):
    k_cache, v_cache, pages = caches(layout)
    before = k_cache.copy(), v_cache.copy()
    draw = np.random.default_rng(2).standard_normal
    q, k, v = (draw((2, 1, HEADS, WIDTH)).astype(np.float16) for _ in range(3))
    lengths = np.array([5, 9], np.int32)
    out = lathe.run("flash_attention_decode", q=q, k_cache=k_cache, v_cache=v_cache, k_new=k,
                    v_new=v, block_table=np.array(pages, np.int32)[:, None],
                    cache_seqlens=lengths).out
    for b, (page, length) in enumerate(zip(pages, lengths)):
        np.testing.assert_array_equal(k_cache[page, length], k[b, 0])
        np.testing.assert_array_equal(v_cache[page, length], v[b, 0])
        keys = np.concatenate([before[0][page, :length], k[b]]).astype(np.float64)
        values = np.concatenate([before[1][page, :length], v[b]]).astype(np.float64)
        p = np.exp(np.einsum("hd,thd->ht", q[b, 0].astype(np.float64), keys) / np.sqrt(WIDTH))
        want = np.einsum("ht,thd->hd", p / p.sum(-1, keepdims=True), values)
        assert rms_error(out[b, 0], want) < 2e-3
    # What no sequence appended to is as it was.
    for now, then, new in ((k_cache, before[0], k), (v_cache, before[1], v)):
        changed = {tuple(at[:2]) for at in np.argwhere(now != then)}
        others = {(page + step, length) for page, length in zip(pages, lengths)
                  for step in (-1, 0, 1)}  # the other cache's page lies one further
        assert changed <= others


def conv(x, y):
    weight = np.random.default_rng(3).standard_normal((x.shape[2], 4)).astype(np.float32)
    lathe.run("causal_conv1d", x=x, weight=weight, y=y)
    return sum(np.pad(np.asarray(x, np.float64), ((0, 0), (3, 0), (0, 0)))[:, i:i + x.shape[1]]
               * weight[:, i] for i in range(4))


def test_an_output_may_lie_between_the_rows_of_an_input():
    both = np.random.default_rng(0).standard_normal((1, 20, 2, 8)).astype(np.float32)
    x = both[:, :, 0].copy()
    want = conv(both[:, :, 0], both[:, :, 1])
    assert rms_error(both[:, :, 1], want) < 1e-6
    np.testing.assert_array_equal(both[:, :, 0], x)


@pytest.mark.parametrize("tokens", [0, 1, 10])
def test_an_output_with_elements_of_an_input_is_refused(tokens):
    buffer = np.zeros((1, 40, 8), np.float32)
    x, y = buffer[:, :20], buffer[:, tokens:tokens + 20]
    with pytest.raises(lathe.InvalidArgument, match="y lies from .* and x from .* in common"):
        conv(x, y)
    conv(x, buffer[:, 20:])  # the next element is another's


def test_two_outputs_with_elements_in_common_are_refused():
    q, k, v = (np.zeros((1, 9, 2, 16), np.float16) for _ in range(3))
    grads = np.zeros((1, 9, 3, 16), np.float16)
    forward = lathe.run("flash_attention", q=q, k=k, v=v)
    with pytest.raises(lathe.InvalidArgument, match="dq lies from .* and dk from"):
        lathe.run("flash_attention", q=q, k=k, v=v, out=forward.out, lse=forward.lse, dout=q,
                  saved_forward=1, dq=grads[:, :, :2], dk=grads[:, :, 1:],
                  dv=np.zeros_like(v))
