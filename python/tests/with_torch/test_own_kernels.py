# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of one's own as operators of torch, whose backwards are other kernels."""
import pathlib

import pytest
import torch
import torch.nn.functional as F

import lathe
import lathe.torch as lt

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "own_kernels"


def gelu():
    return lt.kernel(EXAMPLES / "gelu.cuh", backward=EXAMPLES / "gelu_backward.cuh")


def inputs(dtype=torch.float32, rows=5, width=40):
    torch.manual_seed(1)
    return (torch.randn(rows, width, dtype=dtype, requires_grad=True),
            torch.randn(width, dtype=dtype, requires_grad=True))


def near(found, expected, bound):
    assert found.dtype == expected.dtype or expected.dtype == torch.float64
    assert (found.double() - expected.double()).abs().max() < bound


def exact(x, bias, scale):
    """The result and its gradients in float64, under an upstream gradient of cosines."""
    wide = [each.detach().double().requires_grad_() for each in (x, bias) if each is not None]
    y = F.gelu(wide[0] + wide[1] if bias is not None else wide[0]) * scale
    return y.detach(), torch.autograd.grad(y, wide, y.detach().cos().to(x.dtype).double())


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-5), (torch.bfloat16, 0.15)])
@pytest.mark.parametrize("given", [True, False])
def test_values_and_gradients(dtype, bound, given):
    x, bias = inputs(dtype)
    if not given:
        bias = None
    y = gelu()(x, bias, scale=0.5)
    wanted, gradients = exact(x, bias, 0.5)
    near(y, wanted, bound)
    y.backward(wanted.cos().to(dtype))
    near(x.grad, gradients[0], bound)
    if given:
        near(bias.grad, gradients[1], bound)


def test_without_a_gradient_and_by_name():
    x, bias = inputs()
    kernel = gelu()
    with torch.no_grad():
        y = kernel(bias=bias, x=x, scale=2)
    assert not y.requires_grad
    near(y, exact(x, bias, 2)[0], 2e-5)
    # A column of a wider tensor is copied; an expanded upstream gradient too.
    wide = torch.randn(5, 80, requires_grad=True)
    kernel(wide[:, ::2], bias).sum().backward()
    cut = wide.detach()[:, ::2].clone().requires_grad_()
    F.gelu(cut + bias.detach()).sum().backward()
    near(wide.grad[:, ::2], cut.grad, 2e-5)
    assert wide.grad[:, 1::2].abs().max() == 0


def test_compiled_and_checked_by_torch():
    x, bias = inputs()
    kernel = gelu()
    kernel(x, bias)  # names the operator of torch
    compiled = torch.compile(lambda x, bias: kernel(x * 2, bias, scale=0.5).square(),
                             backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x, bias).sum(), (x, bias))
    wanted = torch.autograd.grad((F.gelu(x * 2 + bias) * 0.5).square().sum(), (x, bias))
    for a, b in zip(found, wanted):
        near(a, b, 5e-5)
    names = [name for name in dir(torch.ops.lathe) if name.startswith("gelu_")]
    operator = getattr(torch.ops.lathe, kernel._calls["x", "bias"].name)
    assert operator.default.name().split("::")[1] in names
    torch.library.opcheck(operator, (x.detach().requires_grad_(), bias.detach(), ""),
                          test_utils=("test_schema", "test_autograd_registration",
                                      "test_faketensor"))


def test_several_outputs_and_dims_that_follow():
    torch.manual_seed(2)
    quantise = lt.kernel(EXAMPLES / "quantise.cuh")
    x = torch.randn(3, 512)
    outputs = quantise(x)
    codes, scale = outputs[0], outputs[1]
    assert codes.dtype == torch.float8_e4m3fn and scale.shape == (3,)
    assert ((codes.float() * scale[:, None] - x).abs() <= x.abs() / 16 + scale[:, None] / 512).all()
    topk = lt.kernel(EXAMPLES / "topk.cuh")
    values, indices = topk(x, k=7)
    wanted = x.topk(7)
    assert torch.equal(values, wanted.values)
    assert torch.equal(indices.long(), wanted.indices)
    with pytest.raises(RuntimeError):  # no gradient is known of it
        topk(x.requires_grad_(), k=7)[0].sum().backward()


def test_one_text_is_one_operator():
    assert gelu() is gelu()
    assert gelu() is not lt.kernel(EXAMPLES / "gelu.cuh")
    assert gelu().name.startswith("gelu@")


def test_refusals(tmp_path):
    kernel = gelu()
    x, bias = inputs()
    for call, words in ((lambda: kernel(x, bias, x), "was given 3 tensors; allowed are x, bias"),
                        (lambda: kernel(bias=bias), "needs x; it takes x, bias"),
                        (lambda: kernel(x, x=x), "was given x twice"),
                        (lambda: kernel(x, scales=2), "no input or option scales.*did you mean scale"),
                        (lambda: kernel(x.half()), "x has dtype f16; allowed are f32|bf16"),
                        (lambda: lt.kernel(EXAMPLES / "gelu.cuh", backward=EXAMPLES / "gelu.cuh"),
                         "gives y; a backward of gelu@[0-9a-f]* gives dx, dbias"),
                        (lambda: lt.kernel(tmp_path / "none.cuh"), "cannot be read")):
        with pytest.raises(lathe.InvalidArgument, match=words):
            call()
    text = (EXAMPLES / "gelu_backward.cuh").read_text()
    other = tmp_path / "other.cuh"
    other.write_text(text.replace("dy ", "dz ").replace("p.dy", "p.dz"))
    with pytest.raises(lathe.InvalidArgument, match="takes dz; a backward of .* takes x, bias, y, dy"):
        lt.kernel(EXAMPLES / "gelu.cuh", backward=other)
    other.write_text(text.replace(", optional = true }\ndy", " }\ndy").replace(", optional = true, needs", ", what"))
    needing = lt.kernel(EXAMPLES / "gelu.cuh", backward=other)
    with pytest.raises(lathe.InvalidArgument, match="needs bias, which x give no call"):
        needing(x)
