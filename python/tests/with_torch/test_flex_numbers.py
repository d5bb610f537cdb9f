# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers in mods: each operator and dtype, element by element against torch on whole tensors.

The mods compare what they compute with torch's own values, which are a captured table, and mask
what differs. Queries are zeros, so the lse of a row is the logarithm of how many keys are kept.
"""
import math

import pytest
import torch

from lathe.flex import flex_attention

N = 20  # values of x, and of y

INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def values(dtype, seed):
    """Returns N values of a dtype, among them its ends, and numbers near 0."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(N, generator=generator) < 0.5
    if dtype in INTS:
        info = torch.iinfo(dtype)
        edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100, 5, 12]
        edges += [-1, -2, -7, -100] if info.min < 0 else [31, 200, 128, 127]
        more = torch.randint(info.min, info.max, (N - len(edges),), generator=generator,
                             dtype=torch.int64)
        found = torch.cat([torch.tensor(edges, dtype=torch.int64), more]).to(dtype)
    else:
        edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.5, -2.5, 0.5, 7.0, -7.3,
                 0.1, 3e-8, -6e-5, 60000.0]
        more = torch.randn(N - len(edges), generator=generator, dtype=torch.float64) * 9
        found = torch.cat([torch.tensor(edges, dtype=torch.float64), more]).to(dtype)
    return found[torch.randperm(N, generator=generator)]


def kept(cases, x, y, tolerance):
    """Returns how many of the N x N values of all cases are torch's."""
    wanted = [torch.as_tensor(case(x[:, None], y[None, :])).expand(N, N) for case in cases.values()]
    exact = all(not each.dtype.is_floating_point for each in wanted)
    wide = torch.int64 if exact else max(
        (each.dtype for each in wanted), key=lambda dtype: dtype.itemsize)
    wide = torch.float32 if wide in FLOATS[:2] else wide
    table = torch.stack([each.to(wide) for each in wanted])

    def mod(score, b, h, i, j):
        same = i >= 0
        for c, (case, each) in enumerate(zip(cases.values(), wanted)):
            found, right = torch.as_tensor(case(x[i], y[j])), table[c][i, j]
            assert found.dtype == each.dtype, (found.dtype, each.dtype)
            found = found.to(wide)
            if exact:
                same = same & (found == right)
            else:
                near = (found - right).abs() <= tolerance * right.abs()
                same = same & ((found == right) | ((found != found) & (right != right)) | near)
        return torch.where(same, 0.0, -1e9)

    q = torch.zeros(1, 1, N, 8)
    _, lse = flex_attention(q, q, q, mod, return_lse=True)
    return int(lse.exp().round().sum())


def agree(cases, x, y, *, tolerance=0.0):
    """Asserts that each case of x[i] and y[j] has torch's values on the device."""
    names = list(cases)
    for few in (names[i:i + 12] for i in range(0, len(names), 12)):  # a kernel each
        agree_at_once({name: cases[name] for name in few}, x, y, tolerance)


def agree_at_once(cases, x, y, tolerance):
    if kept(cases, x, y, tolerance) != N * N:
        wrong = {name: N * N - kept({name: case}, x, y, tolerance) for name, case in cases.items()}
        assert any(wrong.values()), "the cases are right one by one"
        raise AssertionError({name: many for name, many in wrong.items() if many})


ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: 5 - x,
    "alpha": lambda x, y: torch.add(x, y, alpha=3),
    "mul": lambda x, y: x * y,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: torch.sign(x),
    "square": lambda x, y: x**2,
    "minimum": lambda x, y: torch.minimum(x, y),
    "maximum": lambda x, y: torch.maximum(x, y),
    "clamp": lambda x, y: x.clamp(3, 90),
    "clamp_min": lambda x, y: x.clamp(min=4),
    "relu": lambda x, y: torch.relu(x),
    "where": lambda x, y: torch.where(x > y, x, 3),
    "masked_fill": lambda x, y: x.masked_fill(x <= y, 2),
    "compare": lambda x, y: (x < y) | (x >= 7) & (y != 3) | (x == y),
    "logical": lambda x, y: torch.logical_xor(x, y) | torch.logical_not(x),
    "floor_divide by 7": lambda x, y: x // 7,
    "remainder by 7": lambda x, y: x % 7,
    "fmod by 7": lambda x, y: torch.fmod(x, 7),
    "rounding": lambda x, y: torch.floor(x) + torch.round(y),
    "bool": lambda x, y: x.bool(),
}
INTEGERS = {
    "product of three": lambda x, y: (x * 2654435 + y) * 12345 % 7 // 2,
    "floor_divide": lambda x, y: x // torch.where((y == 0) | (y == -1), 3, y),
    "remainder": lambda x, y: x % torch.where((y == 0) | (y == -1), 3, y),
    "fmod": lambda x, y: torch.fmod(x, torch.where((y == 0) | (y == -1), 3, y)),
    "trunc": lambda x, y: torch.div(x, torch.where((y == 0) | (y == -1), 3, y),
                                    rounding_mode="trunc"),
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
    "<< 3": lambda x, y: x << 3,
    ">> 2": lambda x, y: x >> 2,
    "<<": lambda x, y: x << (y & 7),
    ">>": lambda x, y: x >> (y & 7),
    "shift by the width": lambda x, y: (x << 40) + (x >> 70),
    "pow 3": lambda x, y: x**3,
    "pow": lambda x, y: x ** (y & 3),
    "sum": lambda x, y: x.unsqueeze(0).sum(0) if x.dim() else x.sum(),
}


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_ints(dtype):
    agree({**ARITHMETIC, **INTEGERS}, values(dtype, 1), values(dtype, 2))


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=str)
def test_floats(dtype):
    tolerance = {torch.float32: 3e-7, torch.float64: 1e-15}.get(dtype, 0.0)
    few = ("add", "mul", "neg", "abs", "sign", "minimum", "maximum", "clamp", "relu", "compare")
    cases = {**{name: ARITHMETIC[name] for name in few}, "div": lambda x, y: x / y, "floor_divide": lambda x, y: x // y,
             "remainder": lambda x, y: x % y, "fmod": lambda x, y: torch.fmod(x, y),
             "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
             "special": lambda x, y: torch.isnan(x) | torch.isinf(y) | torch.isfinite(x * y),
             "fmin": lambda x, y: torch.fmin(x, y), "fmax": lambda x, y: torch.fmax(x, y),
             "reciprocal": lambda x, y: torch.reciprocal(x), "times 0.3": lambda x, y: x * 0.3,
             "plus 0.75": lambda x, y: 0.75 + x, "minus 2**-8": lambda x, y: x - 2**-8}
    agree(cases, values(dtype, 3), values(dtype, 4), tolerance=tolerance)


@pytest.mark.parametrize("dtype", (torch.bool, *INTS), ids=str)
def test_casts_from_ints(dtype):
    cases = {str(to): lambda x, y, to=to: x.to(to) for to in (torch.bool, *INTS)}
    agree(cases, values(dtype, 5), values(dtype, 6))
    cases = {str(to): lambda x, y, to=to: x.to(to) for to in FLOATS}
    agree({**cases, "div": lambda x, y: x / 3}, values(dtype, 5), values(dtype, 6))


def test_casts_of_floats():
    for dtype in FLOATS:
        x = values(dtype, 7)
        agree({str(to): lambda x, y, to=to: x.to(to) for to in FLOATS}, x, x)
        inside = torch.where(x.abs() < 100, x, 3)
        agree({str(to): lambda x, y, to=to: x.to(to) for to in (torch.bool, *INTS[1:])}, inside, x)


def test_mixed_types():
    """Which dtype counts where two meet, and a Python number among them."""
    dtypes = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64)
    pairs = [(a, b) for a in dtypes for b in dtypes if a != b]
    cases = {}
    for a, b in pairs:
        cases[f"{a} {b}"] = lambda x, y, a=a, b=b: x.to(a) * y.to(b) + (x.to(a) > y.to(b)) + 3
    agree(cases, values(torch.int32, 8), values(torch.int32, 9))
    agree({"float": lambda x, y: x + 0.5, "half": lambda x, y: x * y.to(torch.float16),
           "where": lambda x, y: torch.where(x > 3, x, 0.25),
           "compare": lambda x, y: x < 2.5, "true division": lambda x, y: x / y.abs().clamp(1, 9)},
          values(torch.int32, 8), values(torch.int32, 9), tolerance=3e-7)


def test_division_by_zero_and_by_minus_one():
    """torch raises errors on a CPU; here the result is 0, and the least int wraps."""
    x = values(torch.int32, 1)
    quotient = torch.where(x == torch.iinfo(torch.int32).min, x, -x)

    def mask(b, h, i, j):
        by_zero = (x[i] // (j - j) == 0) & (x[i] % (j - j) == 0) & (torch.fmod(x[i], j - j) == 0)
        return by_zero & (x[i] // (j - j - 1) == quotient[i]) & (x[i] % (j - j - 1) == 0)

    q = torch.zeros(1, 1, N, 8)
    lse = flex_attention(q, q, q, lambda s, b, h, i, j: torch.where(mask(b, h, i, j), 0.0, -9e9),
                         return_lse=True)[1]
    assert torch.allclose(lse.exp(), torch.full((1, 1, N), float(N)))


def test_numbers_that_no_int_holds():
    """torch lets a Python number wrap to the dtype of the tensor that it meets."""
    for dtype, number in ((torch.int32, 2**40 + 3), (torch.int8, 300), (torch.uint8, -1)):
        agree({"sum": lambda x, y: x + number, "less": lambda x, y: x < number,
               "quotient": lambda x, y: x // number}, values(dtype, 1), values(dtype, 2))
