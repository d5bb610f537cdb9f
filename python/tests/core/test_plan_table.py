# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""PlanTable: what shares an entry, and what needs one of its own."""
import numpy as np
import pytest

import lathe
from lathe import _core

NAMES = ("x", "weight", "bias")


class Builder:
    """Builds problems of causal_conv1d and counts them."""

    def __init__(self):
        self.alignments = []

    def __call__(self, options, alignment, x, weight, bias):
        self.alignments.append(alignment)
        tensors = {"x": ("f32", x.shape), "weight": ("f32", weight.shape)}
        if bias is not None:
            tensors["bias"] = ("f32", bias.shape)
        problem = lathe.Problem("causal_conv1d", tensors, **dict(options))
        problem.infer()
        return len(self.alignments), problem


def x(tokens=8, channels=16):
    return np.zeros((1, tokens, channels), np.float32)


def weight(channels=16, width=4):
    return np.zeros((channels, width), np.float32)


def test_lengths_share_an_entry_and_widths_do_not():
    build = Builder()
    table = _core.PlanTable(NAMES, build)
    silu = (("activation", "silu"),)
    assert table(silu, x(), weight(), None) == 1
    assert table(silu, x(9), weight(), None) == 1
    assert table(silu, x(0), weight(), None) == 1
    assert table(silu, x(8, 32), weight(32), None) == 2
    assert table(silu, x(), weight(width=3), None) == 3
    assert table(silu, x(), weight(), np.zeros(16, np.float32)) == 4
    assert table((), x(), weight(), None) == 5
    assert table((("activation", "silu"),), x(100), weight(), None) == 1
    assert len(table) == 5
    table.clear()
    assert len(table) == 0 and table(silu, x(), weight(), None) == 6


def test_what_is_promised_of_alignment():
    build = Builder()
    table = _core.PlanTable(NAMES, build)
    flat = np.zeros(4096, np.float32)
    start = -(flat.ctypes.data // 4) % 4  # elements to the next multiple of 16 bytes
    at = flat[start:]
    table((), at[:128].reshape(1, 8, 16), weight(), None)          # as an allocator gives it
    table((), at[1:129].reshape(1, 8, 16), weight(), None)         # begins 4 bytes later
    table((), at[2:130].reshape(1, 8, 16), weight(), None)         # 8 bytes
    table((), at[:144].reshape(1, 8, 18)[..., :16], weight(), None)  # rows 8 bytes apart
    table((), at[:120].reshape(1, 8, 15), weight(15), None)        # contiguous rows of 15
    assert build.alignments == [16, 4, 8, 16]
    assert len(table) == 4, "rows 8 bytes apart and a start at 8 bytes promise the same"


def test_other_types_are_not_looked_at():
    table = _core.PlanTable(NAMES, Builder(), (np.ndarray,))
    assert table((), memoryview(x()), weight(), None) is None
    assert table((), x(), weight(), None) == 1


def prepared(plan, *outputs):
    return _core.Prepared(plan, outputs, None, np.empty_like)


class Runner:
    """Builds what PlanTable.run needs of causal_conv1d, for arrays of NumPy."""

    def __init__(self, dim=0):
        self.extents = ((0, dim, 0), (0, 1, 0), (-1, 0, 16))

    def __call__(self, options, alignment, x, weight, bias):
        tensors = {"x": ("f32", x.shape), "weight": ("f32", weight.shape), "y": ("f32", x.shape)}
        problem = lathe.Problem("causal_conv1d", tensors, **dict(options))
        problem.open()
        plan = lathe.Plan(lathe.context("sim"), problem)
        keywords = {"dtype": np.float32}
        made = (lambda *shape, dtype: np.empty(shape, dtype), keywords, self.extents, 0)
        return prepared(plan, made, None), problem


def test_a_run_makes_its_outputs_and_none_for_what_is_not_there():
    table = _core.PlanTable(NAMES, Runner())
    given = (x() + 1, weight() + 1, None)
    y, absent = table.run((), given)
    assert y.shape == (1, 8, 16) and absent is None
    assert y[0, :4, 0].tolist() == [1, 2, 3, 4]
    longer = np.ones((1, 12, 32), np.float32)[:, :, :16]  # is not contiguous: made by its extents
    assert table.run((), (longer, *given[1:]))[0].shape == (1, 12, 16)


def test_what_is_not_run_at_once():
    on = []
    table = _core.PlanTable(NAMES, Runner(), modes=(lambda: bool(on),), gradients=lambda: False,
                            rows=1)
    given = (x(), weight(), None)
    assert table.inference({"activation": None}, given)[0].shape == (1, 8, 16)
    assert table.inference((), given) is not None
    assert len(table) == 1, "an option that is None does not count"
    expanded = np.broadcast_to(x()[:, :1], (1, 8, 16))
    cut = np.zeros((16, 8), np.float32)[:, :4]
    assert table.inference((), (expanded, given[1], None)) is None
    assert table.inference((), (x(8, 32)[:, :, ::2], given[1], None)) is None
    assert table.inference((), (x(8, 32)[:, :, :16], cut, None)) is None
    assert table.inference((), (x(8, 32)[:, :, :16], given[1], None)) is not None
    on.append(1)
    assert table.inference((), given) is None and table.eager((), given) is None
    assert table.run((), given) is not None


def test_a_dictionary_of_any_length_reaches_build_as_pairs():
    seen = []

    def build(options, alignment, *tensors):
        seen.append(options)
        raise KeyError("built")

    pairs = tuple((f"option_{i}", i) for i in range(100))
    with pytest.raises(KeyError, match="built"):
        _core.PlanTable(NAMES, build).eager({"absent": None, **dict(pairs)}, (x(), weight(), None))
    assert seen == [pairs]


def test_a_recipe_must_fit_the_call():
    table = _core.PlanTable(NAMES, Runner(dim=3))
    with pytest.raises(lathe.InvalidArgument, match="recipe"):
        table.run((), (x(), weight(), None))


class Attention:
    """Builds what PlanTable.run needs of flash_attention; keeps what was promised of alignment."""

    def __init__(self):
        self.alignments = []

    def __call__(self, options, alignment, q, k, v):
        self.alignments.append(alignment)
        shapes = [("q", q), ("k", k), ("v", v), ("out", q)]
        tensors = {name: ("f16", each.shape) for name, each in shapes}
        tensors["lse"] = ("f32", (q.shape[0], q.shape[2], q.shape[1]))
        problem = lathe.Problem("flash_attention", tensors, alignment=alignment, **dict(options))
        problem.open()
        plan = lathe.Plan(lathe.context("sim"), problem)
        extents = ((0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0))
        rows = ((0, 0, 0), (0, 2, 0), (0, 1, 0))

        def fresh(*shape, dtype):
            return np.empty(shape, dtype)
        return prepared(plan, (fresh, {"dtype": np.float16}, extents, 0),
                        (fresh, {"dtype": np.float32}, rows, -1)), problem


def test_attention_of_views_that_begin_an_element_off():
    build = Attention()
    table = _core.PlanTable(("q", "k", "v"), build)
    random = np.random.default_rng(3)
    count = 24 * 2 * 80
    buffers = [np.empty(count + 64, np.float16) for _ in range(3)]
    starts = [-(each.ctypes.data // 2) % 8 for each in buffers]
    values = [random.standard_normal(count).astype(np.float16) for _ in range(3)]
    found = []
    for off in (0, 1, 2, 4):  # elements of two bytes
        views = []
        for buffer, start, value in zip(buffers, starts, values):
            view = buffer[start + off:][:count]
            view[:] = value
            views.append(view.reshape(1, 24, 2, 80))
        found.append(table.run((), tuple(views)))
    assert build.alignments == [16, 2, 4, 8] and len(table) == 4
    q, k, v = (value.reshape(24, 2, 80).transpose(1, 0, 2).astype(np.float64) for value in values)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(80)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2)
    for out, _ in found:
        assert np.abs(out[0] - expected).max() < 5e-3
