# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.causal_conv1d against torch's convolution in float64."""
import pytest
import torch

import golden
import lathe
import lathe.torch
from lathe.compat import causal_conv1d as compat
from signatures import bare
from tensors import to_numpy, to_torch

SIGNATURES = {  # of causal-conv1d 1.6.1
    "causal_conv1d_fn": "(x, weight, bias=None, seq_idx=None, initial_states=None, "
                        "return_final_states=False, final_states_out=None, activation=None)",
    "causal_conv1d_update": "(x, conv_state, weight, bias=None, activation=None, "
                            "cache_seqlens=None, conv_state_indices=None)",
    "causal_conv1d_varlen_states": "(x, cu_seqlens, state_len)",
}
TOLERANCES = {torch.float32: (3e-4, 1e-3), torch.float16: (3e-3, 5e-3),
              torch.bfloat16: (1e-2, 5e-2)}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert bare(getattr(compat, name)) == SIGNATURES[name]


def reference(x, weight, bias, states=None, activation=None):
    """Returns (y, the last width - 1 inputs) of one or more whole sequences [B,D,T], in float64."""
    width = weight.shape[1]
    if states is None:
        states = x.new_zeros(*x.shape[:2], width - 1)
    seen = torch.cat([states, x], -1)
    y = bias[:, None] if bias is not None else torch.zeros_like(x)
    for i in range(width):
        y = y + weight[:, i, None] * seen[..., i:i + x.shape[-1]]
    if activation is not None:
        y = y * torch.sigmoid(y)
    return y, seen[..., seen.shape[-1] - (width - 1):]


def close(found, wanted, dtype):
    rtol, atol = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), wanted.detach(), rtol=rtol, atol=atol)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def doubles(*tensors):
    return [None if each is None else each.detach().double().requires_grad_() for each in tensors]


@pytest.mark.parametrize("channel_last", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width, has_states, activation", [(2, True, None), (3, False, "silu"),
                                                           (4, True, "swish")])
def test_values_and_gradients(channel_last, dtype, width, has_states, activation):
    batch, channels, tokens = 2, 48, 21
    x = randn(batch, tokens, channels + 16, dtype=dtype)[..., 8:-8].transpose(1, 2)
    x = (x if channel_last else x.contiguous()).detach().requires_grad_()
    weight = randn(channels, width, seed=1).requires_grad_()  # float32 whatever x is
    bias = randn(channels, seed=2).requires_grad_()
    states = None
    if has_states:
        states = randn(batch, width - 1, channels, seed=3, dtype=dtype).transpose(1, 2)
        states.requires_grad_()
    inputs = [x, weight, bias, states]
    wide = doubles(*inputs)

    y, last = compat.causal_conv1d_fn(x, weight, bias, initial_states=states,
                                      return_final_states=True, activation=activation)
    assert y.dtype == dtype and y.stride() == torch.empty_like(x).stride()
    y_wide, last_wide = reference(*wide, activation=activation)
    close(y, y_wide, dtype)
    assert torch.equal(last.double(), last_wide)

    # Callers change what they get in place, and send gradients that are expanded.
    y += last.sigmoid().sum(-1, keepdim=True)
    y_wide = y_wide + last_wide.sigmoid().sum(-1, keepdim=True)
    upstream = randn(batch, channels, 1, seed=4, dtype=dtype).expand_as(y)
    y.backward(upstream)
    y_wide.backward(upstream.double())
    for given, exact in zip(inputs, wide):
        if given is not None:
            assert given.grad.dtype == given.dtype and given.grad.shape == given.shape
            close(given.grad, exact.grad, given.dtype)


def test_seq_idx():
    lengths, tokens = [[5, 1, 9, 2], [3, 14]], 17
    numbers = torch.tensor([[0] * 5 + [1] + [-1] * 9 + [2] * 2, [0] * 3 + [7] * 14],
                           dtype=torch.int32)
    x = randn(2, tokens, 32).transpose(1, 2).requires_grad_()
    weight, bias = randn(32, 4, seed=1).requires_grad_(), randn(32, seed=2).requires_grad_()
    wide = doubles(x, weight, bias)
    y = compat.causal_conv1d_fn(x, weight, bias, seq_idx=numbers, activation="silu")
    rows = [torch.cat([reference(part, *wide[1:], activation="silu")[0]
                       for part in wide[0][b:b + 1].split(lengths[b], -1)], -1) for b in range(2)]
    y_wide = torch.cat(rows) * (numbers >= 0)[:, None]
    close(y, y_wide, torch.float32)
    upstream = randn(2, 32, tokens, seed=3)
    y.backward(upstream)
    y_wide.backward(upstream.double())
    for given, exact in zip((x, weight, bias), wide):
        close(given.grad, exact.grad, torch.float32)
    with pytest.raises(AssertionError, match="initial_states must be None"):
        compat.causal_conv1d_fn(x, weight, seq_idx=numbers, initial_states=randn(2, 32, 3))
    with pytest.raises(AssertionError, match="not returned"):
        compat.causal_conv1d_fn(x, weight, seq_idx=numbers, return_final_states=True)


def test_short_sequences_and_their_states():
    for tokens in (1, 2):
        x, states = randn(2, tokens, 32).transpose(1, 2), randn(2, 32, 3, seed=1)
        weight = randn(32, 4, seed=2)
        out = torch.full((2, 32, 3), torch.nan)
        y, last = compat.causal_conv1d_fn(x, weight, initial_states=states,
                                          return_final_states=True, final_states_out=out)
        y_wide, last_wide = reference(*doubles(x, weight, None, states))
        close(y, y_wide, torch.float32)
        assert last is out and torch.equal(out.double(), last_wide)


def seq_idx_of(*shape):
    return torch.zeros(shape, dtype=torch.int32)


X, WEIGHT = randn(1, 8, 32).transpose(1, 2), randn(32, 4)
REFUSED = {  # the call, its class, its words
    "activation": (lambda: compat.causal_conv1d_fn(X, WEIGHT, activation="gelu"),
                   NotImplementedError, "activation must be None, silu, or swish"),
    "unknown": (lambda: compat.causal_conv1d_fn(X, WEIGHT, dilation=2), TypeError, "dilation"),
    "bias": (lambda: compat.causal_conv1d_fn(X, WEIGHT, randn(32).half()), lathe.InvalidArgument,
             "bias"),
    "array": (lambda: compat.causal_conv1d_fn(X.numpy(), WEIGHT), lathe.InvalidArgument,
              "x is a numpy.ndarray; allowed is a tensor of torch: torch.as_tensor makes a"),
    "list": (lambda: compat.causal_conv1d_fn(X, WEIGHT, seq_idx=[[0] * 8]), lathe.InvalidArgument,
             "seq_idx is a list; allowed is a tensor"),
    "x": (lambda: compat.causal_conv1d_fn(X[0], WEIGHT), lathe.InvalidArgument,
          r"x has shape \[32, 8\]; allowed is \[B, D, T\] with weight's 32 channels"),
    "turned": (lambda: compat.causal_conv1d_fn(X.transpose(1, 2), WEIGHT), lathe.InvalidArgument,
               r"x has shape \[1, 8, 32\]; allowed is \[B, D, T\].*transpose x"),
    "weight": (lambda: compat.causal_conv1d_fn(X, WEIGHT[:, None]), lathe.InvalidArgument,
               r"weight has shape \[32, 1, 4\]; allowed is \[D, W\]: squeeze"),
    "seq_idx": (lambda: compat.causal_conv1d_fn(X, WEIGHT, seq_idx=seq_idx_of(1, 5)),
                lathe.InvalidArgument, r"seq_idx has shape \[1, 5\]; allowed is \[B, T\], here "
                                       r"\[1, 8\]: give one number for each token"),
    "one seq_idx": (lambda: compat.causal_conv1d_fn(X, WEIGHT, seq_idx=seq_idx_of(1, 1)),
                    lathe.InvalidArgument, r"seq_idx has shape \[1, 1\]"),
    "seq_idx's dtype": (lambda: compat.causal_conv1d_fn(X, WEIGHT, seq_idx=randn(1, 8)),
                        lathe.InvalidArgument, "seq_idx has dtype float32; allowed are int32 and"),
    "states": (lambda: compat.causal_conv1d_fn(X, WEIGHT, initial_states=randn(1, 32, 4)),
               lathe.InvalidArgument, r"initial_states has shape .*\[B, D, W - 1\].*slice it"),
    "states' dtype": (lambda: compat.causal_conv1d_fn(X, WEIGHT,
                                                      initial_states=randn(1, 32, 3).half()),
                      lathe.InvalidArgument, "initial_states has dtype float16; allowed is that"),
    "out": (lambda: compat.causal_conv1d_fn(X, WEIGHT, return_final_states=True,
                                            final_states_out=randn(2, 32, 3)),
            lathe.InvalidArgument, r"final_states_out has shape \[2, 32, 3\]"),
    "update": (lambda: compat.causal_conv1d_update(X[..., 0], randn(1, 32, 2), WEIGHT),
               lathe.InvalidArgument, "conv_state has 2 columns; allowed are 3 or more"),
    "update of a list": (lambda: compat.causal_conv1d_update(
        X[..., 0], randn(1, 32, 4), WEIGHT, conv_state_indices=[0]), lathe.InvalidArgument,
        "conv_state_indices is a list"),
    "few states": (lambda: compat.causal_conv1d_update(randn(3, 32), randn(2, 32, 4), WEIGHT),
                   lathe.InvalidArgument, "conv_state has 2 states for 3 rows; .*one for each"),
    "one state": (lambda: compat.causal_conv1d_update(randn(3, 32, 2), randn(1, 32, 4), WEIGHT),
                  lathe.InvalidArgument, "conv_state has 1 states for 3 rows"),
    "pool": (lambda: compat.causal_conv1d_update(X, randn(1, 4, 32), WEIGHT),
             lathe.InvalidArgument, r"conv_state has shape .* \[S, D, L\], here \[any, 32, any\]"),
    "pool's dtype": (lambda: compat.causal_conv1d_update(X, randn(1, 32, 4).half(), WEIGHT),
                     lathe.InvalidArgument, "conv_state has dtype float16; allowed is that of x"),
    "few slots": (lambda: compat.causal_conv1d_update(
        randn(3, 32), randn(5, 32, 4), WEIGHT, conv_state_indices=torch.tensor([0])),
        lathe.InvalidArgument, r"conv_state_indices has shape \[1\]; allowed is \[B\], here \[3\]"),
    "counts": (lambda: compat.causal_conv1d_update(
        X, randn(1, 32, 4), WEIGHT, cache_seqlens=torch.tensor([1.0])), lathe.InvalidArgument,
        "cache_seqlens has dtype float32"),
    "offsets": (lambda: compat.causal_conv1d_varlen_states(X[0].t(), torch.tensor([]).int(), 2),
                lathe.InvalidArgument, r"cu_seqlens is empty; .*give 0 for none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("tokens, slots", [(None, 3), (1, 4), (5, 4), (2, 9)])
def test_update(indexed, ring, tokens, slots):
    batch, channels, width = 4, 32, 4
    x = randn(batch, tokens or 1, channels).transpose(1, 2)
    pool = randn(9 if indexed else batch, slots, channels, seed=1).transpose(1, 2)
    weight, bias = randn(channels, width, seed=2).requires_grad_(), randn(channels, seed=3)
    places = [7, -1, 0, 4] if indexed else list(range(batch))
    taken = torch.tensor([0, 1, 11, 1000], dtype=torch.int32)
    wanted, wanted_y = pool.clone(), torch.zeros(x.shape, dtype=torch.float64)
    for b, place in enumerate(places):
        if place < 0:
            continue
        # A ring's slots in order, the oldest first.
        order = [(int(taken[b]) + i) % slots for i in range(slots)] if ring else list(range(slots))
        seen = torch.cat([pool[place][:, order], x[b]], -1)
        y, _ = reference(x[b:b + 1].double(), weight.double(), bias.double(),
                         seen[None, :, slots - (width - 1):slots].double(), "silu")
        wanted_y[b] = y[0]
        for i in range(x.shape[2]):
            wanted[place][:, order[i % slots]] = x[b, :, i]
        if not ring:
            wanted[place] = seen[:, -slots:]
    y = compat.causal_conv1d_update(
        x if tokens else x[..., 0], pool, weight, bias, "silu", taken if ring else None,
        torch.tensor(places, dtype=torch.int32) if indexed else None)
    assert not y.requires_grad
    close(y if tokens else y[..., None], wanted_y, torch.float32)
    assert torch.equal(pool, wanted)


def test_update_when_all_rows_are_padding():
    pool = randn(3, 32, 4)
    kept = pool.clone()
    y = compat.causal_conv1d_update(randn(2, 32), pool, randn(32, 4),
                                    conv_state_indices=torch.tensor([-1, -1], dtype=torch.int32))
    assert torch.equal(pool, kept) and torch.equal(y, torch.zeros(2, 32))


@pytest.mark.parametrize("slots", [3, 4])
def test_a_token_of_three_dimensions(slots):
    """[B,D,1] is one launch, as [B,D] is; it is the same in all ways."""
    batch, bias = 3, randn(32, seed=3)
    x, states = randn(batch, 32), randn(batch, 32, slots, seed=1)
    wide = [states.clone(), states.clone(), states.transpose(1, 2).contiguous().transpose(1, 2)]
    wanted_y, wanted = reference(x[..., None].double(), WEIGHT.double(), bias.double(),
                                 states[..., slots - 3:].double(), "silu")
    for given, token in zip(wide, (x, x[..., None], x[..., None])):
        lathe.torch.stats(reset=True)
        y = compat.causal_conv1d_update(token, given, WEIGHT, bias, "silu")
        copies = lathe.torch.stats(reset=True)
        assert copies == {}
        assert y.shape == token.shape
        close(y.view(batch, 32, 1), wanted_y, torch.float32)
        assert torch.equal(given[..., slots - 3:].double(), wanted)


NO_ROWS = {"state of each row": {}, "slots": {"conv_state_indices": seq_idx_of(0)},
           "ring": {"cache_seqlens": seq_idx_of(0)},
           "slots of rings": {"conv_state_indices": seq_idx_of(0), "cache_seqlens": seq_idx_of(0)}}


@pytest.mark.parametrize("shape", [(0, 32), (0, 32, 1), (0, 32, 5), (0, 32, 0)])
@pytest.mark.parametrize("slots", [3, 4, 6])
@pytest.mark.parametrize("name", NO_ROWS)
def test_update_of_no_row(name, slots, shape):
    named = "conv_state_indices" in NO_ROWS[name]
    for pool in (randn(3 if named else 0, 32, slots), randn(0, 32, slots)):
        kept = pool.clone()
        y = compat.causal_conv1d_update(randn(*shape), pool, WEIGHT, **NO_ROWS[name])
        assert y.shape == shape and torch.equal(pool, kept)


def test_update_of_no_token_and_of_no_pool():
    pool, taken = randn(3, 32, 4), torch.tensor([2, 0, 1], dtype=torch.int32)
    for more in ({}, {"conv_state_indices": taken}, {"cache_seqlens": taken}):
        kept = pool.clone()
        y = compat.causal_conv1d_update(randn(3, 32, 0), pool, WEIGHT, **more)
        assert y.shape == (3, 32, 0) and torch.equal(pool, kept)
    for tokens in (1, 2):
        y = compat.causal_conv1d_update(randn(3, 32, tokens), pool[:0], WEIGHT,
                                        conv_state_indices=taken)
        assert torch.equal(y, torch.zeros(3, 32, tokens)), "no slot is there: all rows are padding"


def test_no_token_with_seq_idx():
    for shape in ((2, 32, 0), (0, 32, 4)):
        x = randn(*shape).requires_grad_()
        y = compat.causal_conv1d_fn(x, WEIGHT, seq_idx=seq_idx_of(shape[0], shape[2]))
        y.sum().backward()
        assert y.shape == shape and x.grad.shape == shape


@pytest.mark.parametrize("file", golden.cases("causal_conv1d_update"))
def test_update_golden(file):
    case = golden.load(file)
    given = {name: to_torch(array) for name, array in case.inputs.items()}
    if "residual" in given:
        pytest.skip("the peer has no residual")
    activation = None if case.options.get("activation", "none") == "none" else "silu"
    y = compat.causal_conv1d_update(given["x"], given["state"], given["weight"], given.get("bias"),
                                    activation)
    case.compare({"y": to_numpy(y), "state": to_numpy(given["state"])})


@pytest.mark.parametrize("file", golden.cases("causal_conv1d"))
def test_golden(file):
    case = golden.load(file)
    given = {name: to_torch(array) for name, array in case.inputs.items()}
    offsets, states = given.get("cu_seqlens"), given.get("initial_state")
    if offsets is not None and states is not None:
        pytest.skip("the peer has no packed sequences with states")
    numbers = None
    if offsets is not None:
        numbers = torch.repeat_interleave(offsets.diff())[None].to(torch.int32)
    # The oldest of our slots is not among the peer's, so its gradient cannot be given.
    backward = "dy" in given and "dfinal_state" not in given
    for name in ("x", "weight", "bias", "residual"):
        if name in given and backward:
            given[name].requires_grad_()
    y = compat.causal_conv1d_fn(
        given["x"].transpose(1, 2), given["weight"], given.get("bias"), numbers,
        states[..., 1:] if states is not None else None, bool(case.options["output_final_state"]),
        activation=None if case.options["activation"] == "none" else "silu")
    found = {}
    if case.options["output_final_state"]:
        y, last = y
        found["final_state"] = to_numpy(last)
        case.wanted["final_state"] = case.wanted["final_state"][..., 1:]
    y = y.transpose(1, 2) + given["residual"] if "residual" in given else y.transpose(1, 2)
    found["y"] = to_numpy(y)
    if backward:
        y.backward(given["dy"])
        found.update({"d" + name: to_numpy(each.grad) for name, each in given.items()
                      if each.grad is not None})
    else:
        case = case._replace(wanted={name: case.wanted[name] for name in found})
    case.compare(found)


def test_varlen_states():
    x, offsets = randn(12, 32), torch.tensor([0, 3, 3, 12])
    states = compat.causal_conv1d_varlen_states(x, offsets, 5)
    assert states.shape == (3, 32, 5)
    for n in range(3):
        part = x[offsets[n]:offsets[n + 1]]
        wanted = torch.cat([torch.zeros(5, 32), part])[-5:].T
        assert torch.equal(states[n], wanted)
    assert torch.equal(compat.causal_conv1d_varlen_states(x[:0], torch.tensor([0, 0]), 2),
                       torch.zeros(1, 32, 2))


def test_statistics():
    x, weight = randn(2, 9, 32).transpose(1, 2), randn(32, 4)
    lathe.torch.stats(reset=True)
    compat.causal_conv1d_fn(x, weight)
    compat.causal_conv1d_update(randn(2, 32), randn(2, 32, 4), weight)
    assert lathe.torch.stats() == {}, "the plain ways are the kernel alone"
    compat.causal_conv1d_fn(x.contiguous(), weight)
    assert set(lathe.torch.stats(reset=True)) == {"copied to contiguous rows",
                                                  "transposed to channel-first"}
    channels_last = randn(2, 4, 32).transpose(1, 2)
    for states in (randn(2, 32, 5), randn(2, 32, 6)[..., :4], channels_last):
        compat.causal_conv1d_update(randn(2, 32), states, weight)
        compat.causal_conv1d_update(randn(2, 32), states, weight,
                                    conv_state_indices=torch.tensor([1, 0]))
    assert lathe.torch.stats(reset=True) == {}, "states are changed where they lie"


def test_compile_update_without_slots():
    weight, x = torch.nn.Parameter(randn(32, 4)), randn(2, 32, seed=2)
    step = torch.compile(compat.causal_conv1d_update, fullgraph=True, backend="aot_eager")
    states = [randn(2, 32, 4, seed=1) for _ in range(2)]
    y, found = compat.causal_conv1d_update(x, states[0], weight), step(x, states[1], weight)
    assert not y.requires_grad and not found.requires_grad
    torch.testing.assert_close(found, y)
    assert torch.equal(*states)
