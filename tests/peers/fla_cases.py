# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of the installed flash-linear-attention package, called through its own functions.

The package is imported inside a case: it asks for the device as soon as it is loaded.
"""
import sys

import torch

from cases import EQUAL_STORES, case


def noise(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def one_configuration():
    """Every tuned kernel keeps its first configuration: all of them are right, and time means nothing here."""
    import bridge
    for name, module in list(sys.modules.items()):
        if name.startswith("fla."):
            bridge.first_configuration(module)


def conv_reference(x, weight, bias, lengths):
    """silu of the causal depthwise convolution of every sequence, in double; x [1, T, D], weight [D, W]."""
    width, parts, at = weight.shape[1], [], 0
    for length in lengths:
        part = x[:, at:at + length].transpose(1, 2)
        at += length
        y = torch.nn.functional.conv1d(part, weight.unsqueeze(1), bias, padding=width - 1,
                                       groups=weight.shape[0])[..., :length]
        parts.append(torch.nn.functional.silu(y).transpose(1, 2))
    return torch.cat(parts, 1)


def conv(lengths, dtype, bound):
    from fla.modules.causal_conv1d import causal_conv1d
    one_configuration()
    tokens, channels, width = sum(lengths), 48, 4
    x, weight, bias = (t.requires_grad_() for t in (
        noise(1, tokens, channels, dtype=dtype), noise(channels, width, dtype=dtype, seed=2),
        noise(channels, dtype=dtype, seed=3)))
    offsets = torch.tensor([0, *lengths]).cumsum(0) if len(lengths) > 1 else None
    y, _ = causal_conv1d(x, weight, bias, activation="silu", backend="triton", cu_seqlens=offsets)
    slope = noise(1, tokens, channels, dtype=dtype, seed=4)
    y.backward(slope)
    exact = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    want = conv_reference(*exact, lengths)
    want.backward(slope.double())
    name = f"{dtype} {lengths}"
    return [(f"y {name}", y.detach(), want.detach(), bound)] + [
        (f"d{what} {name}", got.grad, ref.grad, bound) for what, got, ref in
        zip(("x", "weight", "bias"), (x, weight, bias), exact)]


@case("fla", known=EQUAL_STORES)
def fla_conv1d():
    return conv([130], torch.float32, 1e-5) + conv([100], torch.bfloat16, 2**-7)


@case("fla", known=EQUAL_STORES)
def fla_conv1d_varlen():
    return conv([37, 64, 3, 90], torch.float32, 1e-5)


def kda_inputs(tokens, dtype, heads=2, K=64, V=64):
    q, k = (torch.nn.functional.normalize(noise(1, tokens, heads, K, seed=s), dim=-1).to(dtype) for s in (1, 2))
    v = noise(1, tokens, heads, V, dtype=dtype, seed=3)
    g = torch.nn.functional.logsigmoid(noise(1, tokens, heads, K, seed=4))
    beta = torch.sigmoid(noise(1, tokens, heads, seed=5)).to(dtype)
    state = noise(1, heads, K, V, seed=6)
    return q, k, v, g, beta, state


def kda_reference(q, k, v, g, beta, state):
    """The recurrence of Kimi Delta Attention, token by token, in double."""
    q, k, v, g, beta, state = (t.double() for t in (q, k, v, g, beta, state))
    out, scale = [], q.shape[-1]**-0.5
    for t in range(q.shape[1]):
        state = state * g[:, t, :, :, None].exp()
        seen = torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t, :, None] * (v[:, t] - seen))
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, state))
    return torch.stack(out, 1), state


@case("fla", known=EQUAL_STORES)
def fla_kda_recurrent():
    from fla.ops.kda import fused_recurrent_kda
    one_configuration()
    inputs = kda_inputs(40, torch.float32)
    with torch.no_grad():
        out, state = fused_recurrent_kda(*inputs[:5], initial_state=inputs[5], output_final_state=True)
    want, want_state = kda_reference(*inputs)
    return [("out", out, want, 1e-5), ("state", state, want_state, 1e-5)]


def kda_chunk(dtype, bound, backward):
    from fla.ops.kda import chunk_kda
    one_configuration()
    inputs = kda_inputs(128, dtype)
    leaves = [t.clone().requires_grad_(backward) for t in inputs]
    with torch.set_grad_enabled(backward):
        out, state = chunk_kda(*leaves[:5], initial_state=leaves[5], output_final_state=True)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    want, want_state = kda_reference(*exact)
    results = [("out", out.detach(), want.detach(), bound), ("state", state.detach(), want_state.detach(), bound)]
    if backward:
        slope = noise(*out.shape, dtype=dtype, seed=7)
        out.backward(slope)
        want.backward(slope.double())
        results += [(f"d{what}", got.grad, ref.grad, 2 * bound)
                    for what, got, ref in zip(("q", "k", "v", "g", "beta", "state"), leaves, exact)]
    return results


@case("fla")
def fla_kda_chunk_forward():
    return kda_chunk(torch.bfloat16, 2**-6, backward=False)


@case("fla")
def fla_kda_chunk_backward():
    return kda_chunk(torch.bfloat16, 2**-6, backward=True)


@case("fla")
def fla_kda_chunk_f32():
    return kda_chunk(torch.float32, 5e-3, backward=False)

