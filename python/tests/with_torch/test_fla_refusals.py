# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What lathe.compat.fla refuses, and that it takes batches of nothing."""
import pytest
import torch

import lathe
import lathe.torch
from lathe.compat import fla

H, K = 1, 16
X, WEIGHT = torch.ones(1, 4, K), torch.ones(K, 4)
STATE, OFFSETS = torch.ones(1, H, K, K), torch.tensor([0, 1, 4])


def tokens(batch=1, length=4, **others):
    torch.manual_seed(batch + length)
    q = torch.randn(batch, length, H, K)
    found = {"q": q, "k": q / 4, "v": q + 1, "g": -q.abs(), "beta": torch.rand(batch, length, H)}
    return {**found, **others}


def in_place(**given):
    return fla.fused_recurrent_kda_fwd(**{"initial_state": STATE.clone(), **given})


KDA = {"chunk_kda": fla.chunk_kda, "fused_recurrent_kda": fla.fused_recurrent_kda,
       "fused_recurrent_kda_fwd": in_place}
NO_TENSORS = {"list": ([[0, 4]], "a list"), "array": (X.numpy(), "a numpy.ndarray"),
              "number": (2.5, "a float")}


@pytest.mark.parametrize("what", NO_TENSORS)
@pytest.mark.parametrize("name", ["q", "v", "beta", "A_log", "initial_state", "cu_seqlens"])
@pytest.mark.parametrize("function", KDA)
def test_what_is_no_tensor_is_refused_by_name(function, name, what):
    value, words = NO_TENSORS[what]
    given = tokens(use_gate_in_kernel=True, A_log=torch.zeros(H))
    with pytest.raises(lathe.InvalidArgument, match=f"^{name} is {words}; allowed is a tensor"):
        KDA[function](**{**given, name: value})


@pytest.mark.parametrize("name", ["ssm_state_indices", "num_accepted_tokens", "out"])
def test_no_tensors_of_a_server_are_refused_by_name(name):
    with pytest.raises(lathe.InvalidArgument, match=f"^{name} is a list; allowed is a tensor"):
        in_place(**tokens(**{name: [1]}))


@pytest.mark.parametrize("function", KDA)
@pytest.mark.parametrize("name, value, words", [
    ("q", X, "q has rank 3"), ("v", X, "v has rank 3"),
    ("cu_seqlens", OFFSETS[None], "cu_seqlens has rank 2"),
    ("cu_seqlens", OFFSETS[:0], r"cu_seqlens has shape \[0\]")])
def test_dimensions(function, name, value, words):
    with pytest.raises(lathe.InvalidArgument, match=words):
        KDA[function](**tokens(**{name: value}))


def test_no_heads():
    given = {name: each[:, :, :0] for name, each in tokens().items()}
    o, _ = fla.chunk_kda(**given)
    assert o.shape == given["v"].shape


LAYER = fla.ShortConvolution(K, 4)
CONV = {
    "x": (lambda: fla.causal_conv1d(X.numpy(), WEIGHT), "x is a numpy.ndarray; allowed is a"),
    "offsets": (lambda: fla.causal_conv1d(X, WEIGHT, cu_seqlens=[0, 4]), "cu_seqlens is a list"),
    "rank": (lambda: fla.causal_conv1d(X[0], WEIGHT), "x has rank 2"),
    "weight": (lambda: fla.causal_conv1d(X, WEIGHT[:, None]), "weight has rank 3"),
    "cache": (lambda: fla.causal_conv1d_update(X[:, 0], [1], weight=WEIGHT), "cache is a list"),
    "few caches": (lambda: fla.causal_conv1d_update(X[0], torch.ones(1, K, 4), weight=WEIGHT),
                   "state has S = 1; allowed without state_indices is 4"),
    "two tokens": (lambda: fla.causal_conv1d_update(torch.ones(2, 2, K), torch.ones(2, K, 4),
                                                    weight=WEIGHT),
                   r"x has shape \(2, 2, 16\); allowed are .*a step takes one token"),
    "mask": (lambda: LAYER(X.clone(), mask=torch.ones(1, 5)),
             r"mask has shape \[1, 5\]; allowed is \[B, T\], here \[1, 4\]"),
    "list as mask": (lambda: LAYER(X.clone(), mask=[1]), "mask is a list"),
    "layer": (lambda: LAYER(X[0]), r"x has shape \[4, 16\]; allowed is \[B, T, D\]"),
}


@pytest.mark.parametrize("name", CONV)
def test_convolution(name):
    call, words = CONV[name]
    with pytest.raises(ValueError, match=words):  # InvalidArgument is one
        call()


# ---- nothing to do -------------------------------------------------------------------------------

NOTHING = {"no tokens": (2, 0, None), "no rows": (0, 4, None), "packed": (1, 0, [0, 0, 0]),
           "no sequence": (1, 0, [0])}


@pytest.mark.parametrize("shape", NOTHING)
@pytest.mark.parametrize("function", KDA)
def test_kda_of_nothing_keeps_states(function, shape):
    batch, length, offsets = NOTHING[shape]
    count = batch if offsets is None else len(offsets) - 1
    state = torch.randn(count, H, K, K)
    cu_seqlens = None if offsets is None else torch.tensor(offsets)
    o, final = KDA[function](**tokens(batch, length), initial_state=state.clone(),
                             output_final_state=True, cu_seqlens=cu_seqlens)
    assert o.shape == (batch, length, H, K) and torch.equal(final, state)


@pytest.mark.parametrize("shape", NOTHING)
def test_kda_of_nothing_with_slots(shape):
    batch, length, offsets = NOTHING[shape]
    count = batch if offsets is None else len(offsets) - 1
    cu_seqlens = None if offsets is None else torch.tensor(offsets)
    pool = torch.randn(4, H, K, K)
    for slots in (torch.arange(count), torch.zeros(count, 4, dtype=torch.int64)):
        kept = pool.clone()
        o, found = fla.fused_recurrent_kda_fwd(**tokens(batch, length), initial_state=pool,
                                               cu_seqlens=cu_seqlens, ssm_state_indices=slots)
        assert o.shape == (batch, length, H, K) and found is pool and torch.equal(pool, kept)


@pytest.mark.parametrize("shape", NOTHING)
def test_convolution_of_nothing_keeps_states(shape):
    batch, length, offsets = NOTHING[shape]
    count = batch if offsets is None else len(offsets) - 1
    state, x = torch.randn(count, K, 4), torch.randn(batch, length, K, requires_grad=True)
    cu_seqlens = None if offsets is None else torch.tensor(offsets)
    y, final = fla.causal_conv1d(x, WEIGHT, initial_state=state, output_final_state=True,
                                 cu_seqlens=cu_seqlens)
    y.sum().backward()
    assert y.shape == x.shape == x.grad.shape and torch.equal(final, state)
