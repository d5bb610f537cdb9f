# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.nn: layers against their mathematics in float64, with and without caches."""
import pytest
import torch
import torch.nn.functional as F

import fla_reference
import lathe
import lathe.compat
import lathe.torch
from lathe import nn

HIDDEN, B, T = 48, 2, 20


def error(found, expected):
    found, expected = found.detach().double(), expected.detach()
    return float((found - expected).norm() / expected.norm())


def doubled(layer):
    return {name: each.detach().double().requires_grad_() for name, each in
            layer.named_parameters()}


# ---- references --------------------------------------------------------------------------------


def kda(layer, p, x, starts=None):
    """Returns the layer's output for x [B,T,hidden] in float64; p are parameters by name."""
    def conv(name):
        y = x @ p[f"{name}_proj.weight"].T
        if not layer.use_short_conv:
            return F.silu(y)
        return fla_reference.conv(y, p[f"{name}_conv1d.weight"].squeeze(1),
                                  p.get(f"{name}_conv1d.bias"), cu_seqlens=starts, silu=True)[0]

    q, k, v = (conv(name).unflatten(-1, (heads, -1)) for name, heads in
               (("q", layer.heads), ("k", layer.heads), ("v", layer.v_heads)))
    g = (x @ p["f_proj.0.weight"].T @ p["f_proj.1.weight"].T).unflatten(-1, (layer.v_heads, -1))
    o, _ = fla_reference.kda(q, k, v, g, x @ p["b_proj.weight"].T, p["A_log"], p["dt_bias"],
                             cu_seqlens=starts, norms=True, gate=True, sigmoid=True,
                             negative=layer.allow_neg_eigval, lower_bound=layer.lower_bound)
    gate = x @ p["g_proj.0.weight"].T @ p["g_proj.1.weight"].T + p["g_proj.1.bias"]
    o = o / (o.square().mean(-1, keepdim=True) + layer.o_norm.eps).sqrt() * p["o_norm.weight"]
    return (o.flatten(2) * torch.sigmoid(gate)) @ p["o_proj.weight"].T


def attention(layer, p, x, starts=None):
    """The same for one row of attention at a time."""
    bounds = [(b, 0, x.shape[1]) for b in range(x.shape[0])] if starts is None else [
        (0, begin, end) for begin, end in zip(starts.tolist(), starts.tolist()[1:])]
    rows = torch.cat([_attention_row(layer, p, x[b, begin:end]) for b, begin, end in bounds])
    return rows.view(x.shape)


def _attention_row(layer, p, x):
    q, k, v = ((x @ p[f"{name}_proj.weight"].T + p.get(f"{name}_proj.bias", 0)).unflatten(
        -1, (-1, layer.head_dim)) for name in "qkv")
    if layer.qk_norm:
        q, k = (each / (each.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p[f"{name}.weight"]
                for name, each in (("q_norm", q), ("k_norm", k)))
    at = torch.arange(x.shape[0], dtype=torch.float64)
    if layer.rope_theta is not None:
        power = torch.arange(0, layer.head_dim, 2, dtype=torch.float64) / layer.head_dim
        turn = torch.polar(torch.ones(()).double(), at[:, None] * layer.rope_theta**-power)[:, None]
        q, k = ((torch.complex(*each.chunk(2, -1)) * turn) for each in (q, k))
        q, k = (torch.cat([each.real, each.imag], -1) for each in (q, k))
    k, v = (each.repeat_interleave(layer.heads // layer.kv_heads, 1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * layer.head_dim**-0.5
    if layer.softcap:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    away = at[:, None] - at
    seen = (away >= 0) & (away < (layer.window_size or 1e9))
    scores = scores.masked_fill(~seen, -torch.inf)
    if layer.sinks is not None:
        sinks = p["sinks"].view(-1, 1, 1).expand(-1, x.shape[0], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = torch.softmax(scores, -1)[..., :x.shape[0]]
    return torch.einsum("hqk,khd->qhd", weights, v).flatten(1) @ p["o_proj.weight"].T


# ---- layers ------------------------------------------------------------------------------------


def make_kda(**keywords):
    torch.manual_seed(0)
    return nn.KimiDeltaAttention(HIDDEN, head_dim=16, num_heads=2, **keywords), kda


def make_attention(**keywords):
    torch.manual_seed(0)
    layer = nn.Attention(HIDDEN, num_heads=4, num_kv_heads=2, head_dim=16, **keywords)
    if layer.sinks is not None:
        torch.nn.init.normal_(layer.sinks)
    return layer, attention


LAYERS = {
    "kda": lambda: make_kda(),
    "kda, more values": lambda: make_kda(num_v_heads=4, expand_v=2, conv_bias=True,
                                         allow_neg_eigval=True),
    "kda, a bound": lambda: make_kda(lower_bound=-5.0, safe_gate=True, use_short_conv=False),
    "attention": lambda: make_attention(),
    "attention, window and sinks": lambda: make_attention(window_size=5, sinks=True, softcap=3.0),
    "attention, norms": lambda: make_attention(qk_norm=True, qkv_bias=True, rope_theta=None),
}
EXACT = {"kda": 5e-3, "att": 1e-5}  # KDA multiplies in 16 bits whatever its inputs are


def bound_of(name):
    return EXACT[name[:3]]


def tokens(length=T):
    return torch.randn(B, length, HIDDEN, generator=torch.Generator().manual_seed(2))


MASKS = {"left": torch.tensor([[0] * 6 + [1] * (T - 6), [1] * T]),
         "right": torch.tensor([[1] * (T - 6) + [0] * 6, [1] * T]),
         "one row": torch.tensor([[1] * T, [0] * T])}


def by_rows(layer, reference, parameters, x, mask):
    """Returns what a padded batch must give: each row without its padding, and zeros."""
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        kept = mask[b].bool()
        if kept.any():
            row = reference(layer, parameters, x[b, kept][None])
            out = out.index_put((torch.tensor(b), kept.nonzero().flatten()), row[0])
    return out


@pytest.mark.parametrize("how", ["whole", "packed", *MASKS])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients(name, how):
    layer, reference = LAYERS[name]()
    x = tokens().requires_grad_()
    exact, parameters = x.detach().double().requires_grad_(), doubled(layer)
    if how == "whole":
        found, expected = layer(x), reference(layer, parameters, exact)
    elif how == "packed":
        starts = torch.tensor([0, 9, 9, 32, B * T], dtype=torch.int32)
        found = layer(x.view(1, B * T, HIDDEN), cu_seqlens=starts).view(x.shape)
        expected = reference(layer, parameters, exact.view(1, B * T, HIDDEN), starts).view(x.shape)
    else:
        found = layer(x, attention_mask=MASKS[how])
        expected = by_rows(layer, reference, parameters, exact, MASKS[how])
    assert error(found, expected) < bound_of(name)
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    found.backward(upstream)
    expected.backward(upstream.double())
    assert error(x.grad, exact.grad) < 4 * bound_of(name)
    for which, parameter in layer.named_parameters():
        assert error(parameter.grad, parameters[which].grad) < 4 * bound_of(name), which


NARROW = ("kda, more values", "attention, window and sinks")  # others would only compile more


@pytest.mark.parametrize("name, dtype", [*((name, torch.float32) for name in LAYERS),
                                         *((name, torch.bfloat16) for name in NARROW)])
@pytest.mark.parametrize("how", ["whole", "left", "right"])
def test_steps_with_a_cache(name, how, dtype):
    """A prompt, five tokens one by one, three at once, as the whole sequence gives them."""
    layer, reference = LAYERS[name]()
    layer.to(dtype)
    rest = torch.randn(B, 8, HIDDEN, generator=torch.Generator().manual_seed(4))
    x, rest = tokens().to(dtype), rest.to(dtype)
    mask = MASKS.get(how, torch.ones(B, T, dtype=torch.int64))
    cache = nn.Cache(length=T + 8)
    with torch.no_grad():
        found = [layer(x, cache=cache, attention_mask=MASKS.get(how))]
        found += [layer(rest[:, at:at + 1], cache=cache) for at in range(5)]
        found.append(layer(rest[:, 5:], cache=cache))
        both = torch.cat([x, rest], 1).double()
        mask = torch.cat([mask, torch.ones(B, 8, dtype=torch.int64)], 1)
        expected = by_rows(layer, reference, doubled(layer), both, mask)
    found = torch.cat(found, 1)
    bound = max(bound_of(name), 0 if dtype == torch.float32 else 2e-2)
    assert error(found, expected) < bound
    assert error(found[:, T:], expected[:, T:]) < bound
    if name.startswith("attention"):
        with torch.no_grad(), pytest.raises(lathe.InvalidArgument, match="29 tokens come into a "
                                                                          "cache of 28"):
            layer(rest[:, :1], cache=cache)


def test_a_cache_of_keys_grows(monkeypatch):
    monkeypatch.setattr(nn._cache, "_FIRST", 4)
    layer, reference = make_attention()
    x, cache = tokens(), nn.Cache()
    with torch.no_grad():
        found = torch.cat([layer(each, cache=cache) for each in x.split([3, 1, 1, 15], 1)], 1)
        assert error(found, reference(layer, doubled(layer), x.double())) < 1e-5
    cache.reset()
    assert cache.layers == {}


def test_states_lie_where_they_lay():
    """Steps change the state of KDA in place, so that a CUDA graph can hold them."""
    layer, _ = make_kda()
    cache = nn.Cache()
    with torch.no_grad():
        layer(tokens(), cache=cache)
        states = cache.layers[0]
        places = [states.state.data_ptr(), *(each.data_ptr() for each in states.conv)]
        before = states.state.clone()
        layer(tokens(1), cache=cache)
        assert places == [states.state.data_ptr(), *(each.data_ptr() for each in states.conv)]
        assert not torch.equal(before, states.state)


def test_refusals():
    layer, _ = make_kda()
    keyed, _ = make_attention()
    cache = nn.Cache()
    with pytest.raises(lathe.Unsupported, match="cache is given while gradients"):
        layer(tokens(), cache=cache)
    with torch.no_grad():
        for each in (layer, keyed):
            cache.reset()
            each(tokens(), cache=cache)
            with pytest.raises(lathe.InvalidArgument, match="attention_mask is given with a cache"):
                each(tokens(), cache=cache, attention_mask=MASKS["left"])
            with pytest.raises(lathe.InvalidArgument, match="attention_mask and cu_seqlens"):
                each(tokens(), attention_mask=MASKS["left"], cu_seqlens=torch.tensor([0, T]))
            with pytest.raises(lathe.InvalidArgument, match=r"shape \[2, 20\] with inputs of"):
                each(tokens(3), attention_mask=MASKS["left"])
    with pytest.raises(lathe.InvalidArgument, match="num_v_heads is 3 with 2 heads"):
        nn.KimiDeltaAttention(HIDDEN, head_dim=16, num_heads=2, num_v_heads=3)
    with pytest.raises(lathe.InvalidArgument, match="num_kv_heads is 3 with 4 heads"):
        nn.Attention(HIDDEN, num_heads=4, num_kv_heads=3)
    for size in (0, -1):  # 0 and -1 would mean: no window
        with pytest.raises(lathe.InvalidArgument, match=f"window_size is {size}; allowed are 1"):
            nn.Attention(HIDDEN, num_heads=4, window_size=size)
    with pytest.raises(lathe.InvalidArgument, match="softcap is -1.0; allowed are positive"):
        nn.Attention(HIDDEN, num_heads=4, softcap=-1.0)
    for shape in ((T, HIDDEN), (B, T, HIDDEN + 1)):
        with pytest.raises(lathe.InvalidArgument, match="hidden_states has shape"):
            keyed(torch.zeros(shape))


@pytest.fixture
def fla_layers():
    """fla's own modules; its attention asks for flash_attn when it is imported."""
    pytest.importorskip("transformers", reason="fla's layers need transformers")
    lathe.compat.install("flash_attn")
    layers = pytest.importorskip("fla.layers", reason="fla is not installed")
    yield layers
    lathe.compat.uninstall()


def test_state_dicts_of_fla_load(fla_layers):
    from fla.modules import ShortConvolution

    both = {"hidden_size": HIDDEN, "num_heads": 4}
    pairs = [
        (fla_layers.KimiDeltaAttention, nn.KimiDeltaAttention, dict(both, head_dim=16)),
        (fla_layers.KimiDeltaAttention, nn.KimiDeltaAttention,
         dict(both, head_dim=16, num_v_heads=8, expand_v=2, conv_bias=True, lower_bound=-4.0)),
        (fla_layers.Attention, nn.Attention, dict(both, num_kv_heads=2)),
        (fla_layers.Attention, nn.Attention,
         dict(both, num_kv_heads=2, qk_norm=True, qkv_bias=True, window_size=4)),
        (ShortConvolution, nn.ShortConvolution, dict(hidden_size=HIDDEN, kernel_size=4, bias=True)),
    ]
    for theirs, ours, keywords in pairs:
        source, layer = theirs(**keywords), ours(**keywords)
        layer.load_state_dict(source.state_dict())
        assert {name: each.shape for name, each in layer.state_dict().items()} == {
            name: each.shape for name, each in source.state_dict().items()}
