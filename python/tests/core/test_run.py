# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""run() and Plan on NumPy's arrays: results, layouts, what is refused and with which words."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import lathe
from arrays import rms_error, to_bf16, to_float


def rng(seed=0):
    return np.random.default_rng(seed)


def attention_inputs(dtype=np.float16, tokens=48, heads=2, width=32):
    r = rng()
    return [r.standard_normal((1, tokens, heads, width)).astype(dtype) for _ in range(3)]


def attention(q, k, v):
    """Causal attention in float64."""
    q, k, v = (to_float(x).transpose(0, 2, 1, 3) for x in (q, k, v))
    s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    s = np.where(np.tril(np.ones(s.shape[-2:])) > 0, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return ((p / p.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3)


def conv_problem(dtype="f32", channels=16):
    return lathe.Problem("causal_conv1d", {"x": (dtype, (-1, -1, channels)),
                                           "weight": (dtype, (channels, 4)),
                                           "y": (dtype, (-1, -1, channels))})


def conv(x, weight):
    padded = np.concatenate([np.zeros((x.shape[0], 3, x.shape[2])), x], axis=1)
    return sum(padded[:, i:i + x.shape[1]] * weight[:, i] for i in range(4))


def test_results_have_names_and_attributes():
    q, k, v = attention_inputs()
    found = lathe.run("flash_attention", q=q, k=k, v=v, causal=True)
    assert list(found) == ["out", "lse"] and found.out is found["out"]
    assert rms_error(found.out, attention(q, k, v)) < 2e-3
    with pytest.raises(AttributeError, match="there are out, lse"):
        found.dq  # noqa: B018


def test_bfloat16_is_unsigned_16_bit():
    q, k, v = (to_bf16(x) for x in attention_inputs(np.float32))
    found = lathe.run("flash_attention", q=q, k=k, v=v, causal=True).out
    assert found.dtype == np.uint16
    assert rms_error(found, attention(q, k, v)) < 1e-2


def test_outputs_that_are_given_are_written_and_alone_computed():
    q, k, v = attention_inputs()
    room = np.full((1, 48, 2, 64), 7, np.float16)
    out = room[..., 32:]  # rows with a gap between them
    found = lathe.run("flash_attention", q=q, k=k, v=v, causal=True, out=out,
                      lse=np.zeros((1, 2, 48), np.float32))
    assert found.out is out
    assert rms_error(room[..., 32:], attention(q, k, v)) < 2e-3
    assert (room[..., :32] == 7).all(), "what lies between the rows was written"


def test_outputs_that_lie_between_each_other_keep_apart():
    q, k, v = attention_inputs()
    dout = rng(1).standard_normal(q.shape).astype(np.float16)
    apart = lathe.run("flash_attention", q=q, k=k, v=v, dout=dout, causal=True)
    both = np.full((1, 48, 2, 2, 32), 7, np.float16)  # rows of dk and dv in turn
    lathe.run("flash_attention", q=q, k=k, v=v, dout=dout, causal=True, out=np.empty_like(q),
              lse=np.empty((1, 2, 48), np.float32), dq=np.empty_like(q), dk=both[:, :, 0],
              dv=both[:, :, 1])
    assert rms_error(both[:, :, 0], apart.dk) < 1e-3
    assert rms_error(both[:, :, 1], apart.dv) < 1e-3


def test_a_state_is_changed_in_place():
    r = rng()
    x, weight = (r.standard_normal(s).astype(np.float32) for s in ((2, 8), (8, 4)))
    state = r.standard_normal((2, 8, 4)).astype(np.float32)
    before = state.copy()
    found = lathe.run("causal_conv1d_update", x=x, weight=weight, state=state)
    rolled = np.concatenate([before[..., 1:], x[..., None]], -1)
    assert np.array_equal(state, rolled) and found.state is state
    assert np.allclose(found.y, (rolled * weight).sum(-1), atol=1e-5)


def test_a_plan_serves_other_lengths_and_layouts():
    plan = lathe.Plan(lathe.context(), conv_problem())
    assert plan.slots == ("x", "weight", "y")
    weight = rng().standard_normal((16, 4)).astype(np.float32)
    for batch, tokens in ((1, 1), (2, 37), (3, 130)):
        x = rng(tokens).standard_normal((batch, tokens, 32)).astype(np.float32)[..., :16]
        y = np.empty((batch, tokens, 16), np.float32)
        assert plan(x, None, weight, None, y) is None  # Nones do not count
        assert np.allclose(y, conv(x, weight), atol=1e-4)


def test_what_a_plan_says():
    plan = lathe.Plan(lathe.context(), conv_problem())
    arrays = (np.zeros((1, 8, 16), np.float32), np.zeros((16, 4), np.float32),
              np.zeros((1, 8, 16), np.float32))
    assert plan.workspace(*arrays) == 0
    assert plan.estimate(*arrays)["launches"] == 1
    (kernel,) = plan.kernels()
    assert kernel["name"] == "causal_conv1d" and int(kernel["key"], 16) > 0


def test_a_problem_survives_its_text():
    problem = conv_problem()
    assert lathe.Problem.parse(problem.text()).text() == problem.text()
    assert problem.op == "causal_conv1d"


@pytest.mark.parametrize("change, words", [
    (dict(qq=1), "did you mean q"),
    (dict(q=None), "q is missing|q is not declared|q must"),
    (dict(v=np.zeros((1, 48, 2, 32), np.float64)), "v has dtype float64; allowed are"),
    (dict(v=np.zeros((1, 47, 2, 32), np.float16)), "47"),
    (dict(causal=3), "causal"),
    (dict(out=np.zeros((1, 48, 2, 32), np.float32)), "out"),
])
def test_refusals_name_what_is_wrong(change, words):
    q, k, v = attention_inputs()
    with pytest.raises(lathe.InvalidArgument, match=words) as caught:
        lathe.run("flash_attention", **{**dict(q=q, k=k, v=v), **change})
    assert caught.value.status == lathe.Status.INVALID_ARGUMENT
    assert isinstance(caught.value, (ValueError, lathe.LatheError))


def test_refusals_of_a_run():
    plan = lathe.Plan(lathe.context(), conv_problem())
    x, w, y = (np.zeros(s, np.float32) for s in ((1, 8, 16), (16, 4), (1, 8, 16)))
    with pytest.raises(lathe.InvalidArgument, match="given 2 tensors; the plan takes 3"):
        plan(x, w)
    with pytest.raises(lathe.InvalidArgument, match="negative strides"):
        plan(x[..., ::-1], w, y)
    # As of ml_dtypes' bfloat16, NumPy gives no buffer of these.
    with pytest.raises(lathe.InvalidArgument, match="x has elements without a format"):
        plan(x.astype("M8[s]"), w, y)
    y.flags.writeable = False
    with pytest.raises(lathe.InvalidArgument, match="y is read-only"):
        plan(x, w, y)
    with pytest.raises(TypeError, match="no tensor"):
        plan(x, w, 3)
    with pytest.raises(lathe.InvalidArgument, match="y lies from .* and x from .*memory of its own for"):
        plan(x, w, x)


def test_an_unknown_operator():
    with pytest.raises(lathe.InvalidArgument, match="did you mean flash_attention"):
        lathe.run("flash_atention", q=1)


def test_the_table_of_operators():
    table = lathe.operators()
    assert table["kda"].tensors["beta"].shape == "B,T,HV"
    assert table["kda"].options["scale"].sentence
    assert "initial_state" in str(table["kda"])


def test_threads_share_plans():
    q, k, v = attention_inputs()
    wanted = attention(q, k, v)
    errors = []

    def work():
        for _ in range(3):
            errors.append(rms_error(lathe.run("flash_attention", q=q, k=k, v=v, causal=True).out,
                                    wanted))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 9 and max(errors) < 2e-3


def python(text, **environment):
    return subprocess.run([sys.executable, "-c", text], text=True, capture_output=True,
                          env=dict(os.environ, **environment), check=False)


def test_check_finds_what_the_simulator_finds():
    found = python(
        "import lathe, numpy\n"
        "with lathe.check() as findings:\n"
        "    lathe.run('causal_conv1d', x=numpy.zeros((1, 8, 16), 'f'),\n"
        "              weight=numpy.zeros((16, 4), 'f'))\n"
        "print(len(findings))")
    assert found.stdout == "0\n", found.stderr


def test_what_is_not_cached_comes_with_its_line(tmp_path):
    found = python("import lathe, numpy\n"
                   "try:\n"
                   "    lathe.run('causal_conv1d', x=numpy.zeros((1, 8, 16), 'f'),\n"
                   "              weight=numpy.zeros((16, 4), 'f'))\n"
                   "except lathe.NotCached as error:\n"
                   "    print(lathe.Problem.parse(error.line).op)\n",
                   LATHE_JIT="off", LATHE_CACHE_DIR=str(tmp_path))
    assert found.stdout == "causal_conv1d\n", found.stderr


def test_warming_needs_no_device(tmp_path):
    line = conv_problem().text()
    rows = lathe.warm([line], ["sm_80", "sm_90a"], cache_dir=str(tmp_path))
    assert [(row["arch"], row["compiled"]) for row in rows] == [("sm_80", 1), ("sm_90a", 1)]
    assert lathe.warm([line], "sm_80", cache_dir=str(tmp_path))[0]["hits"] == 1


def test_a_child_of_fork_is_told():
    found = python("import lathe, os, sys\n"
                   "lathe.context('sim')\n"
                   "child = os.fork()\n"
                   "if child == 0:\n"
                   "    try:\n"
                   "        lathe.context('sim')\n"
                   "    except lathe.LatheError as error:\n"
                   "        print('spawn' in str(error), flush=True)\n"
                   "    os._exit(0)\n"
                   "os.waitpid(child, 0)\n")
    assert found.stdout == "True\n", found.stderr


def test_importing_is_cheap_and_brings_no_framework():
    found = python("import sys, time\n"
                   "before = set(sys.modules)\n"
                   "import lathe\n"
                   "heavy = {'numpy', 'torch', 'ctypes', 'asyncio'} & (set(sys.modules) - before)\n"
                   "print(sorted(heavy))")
    assert found.stdout == "[]\n", found.stdout + found.stderr


@pytest.mark.parametrize("value", [np.True_, np.int64(1), np.uint8(1), np.array(1)])
def test_numbers_of_numpy_are_options(value):
    q, k, v = attention_inputs()
    found = lathe.run("flash_attention", q=q, k=k, v=v, causal=value).out
    assert rms_error(found, attention(q, k, v)) < 3e-3
    scaled = lathe.run("flash_attention", q=q, k=k, v=v, causal=value,
                       softmax_scale=np.float32(32 ** -0.5)).out
    assert rms_error(scaled, attention(q, k, v)) < 3e-3


@pytest.mark.parametrize("change,words", [
    (dict(causal=1.0), "causal is set to 1 as a .*it takes an integer: allowed are 0|1"),
    (dict(softcap=float("nan")), "softcap is nan, but must be finite"),
    (dict(softcap=float("inf")), "softcap is inf, but must be finite"),
    (dict(softcap=-1.0), "softcap is '-1'; allowed are"),
    (dict(softmax_scale=float("nan")), "softmax_scale is nan, but must be finite"),
    (dict(softmax_scale=0.0), "softmax_scale is '0'; allowed are"),
    (dict(sinks=[0.0, 1.0]), "sinks is of type list; allowed is an array"),
    (dict(q=3), "q is of type int; allowed is an array"),
    (dict(causal=[1]), r"causal is \[1\]; allowed are text and one number"),
    (dict(window_left=2 ** 63), "window_left is 9223372036854775808; allowed are text and one"),
    (dict(q=np.ma.masked_array(np.zeros((1, 4, 2, 32), "e"))), "q is a masked array, .* plain")])
def test_what_is_no_number_and_what_is_no_array(change, words):
    q, k, v = attention_inputs()
    with pytest.raises(lathe.InvalidArgument, match=words):
        lathe.run("flash_attention", **{**dict(q=q, k=k, v=v), **change})


def test_buffers_are_arrays():
    q, k, v = attention_inputs()
    found = lathe.run("flash_attention", q=memoryview(q), k=memoryview(k), v=memoryview(v),
                      causal=True).out
    assert isinstance(found, np.ndarray)
    assert rms_error(found, attention(q, k, v)) < 3e-3


class Frozen:
    """What JAX gives: DLPack on the host, immutable, in a library without a function empty."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


Frozen.__module__ = "jaxlib._jax"


def test_arrays_that_never_change():
    q, k, v = attention_inputs()
    found = lathe.run("flash_attention", q=Frozen(q), k=Frozen(k), v=Frozen(v), causal=True).out
    assert isinstance(found, np.ndarray)
    assert rms_error(found, attention(q, k, v)) < 3e-3
    with pytest.raises(lathe.InvalidArgument, match="out is an array of JAX, which never changes"):
        lathe.run("flash_attention", q=q, k=k, v=v, out=Frozen(q.copy()))
    state = np.zeros((2, 16, 4), np.float32)
    x, w = np.ones((2, 16), np.float32), np.ones((16, 4), np.float32)
    with pytest.raises(lathe.InvalidArgument, match="state is an array of JAX, which never"):
        lathe.run("causal_conv1d_update", x=x, weight=w, state=Frozen(state))


def test_views_that_begin_at_any_element():
    r = rng()
    wide = r.standard_normal((1, 20, 41)).astype(np.float32)
    w = r.standard_normal((8, 4)).astype(np.float32)
    x = wide[:, :, 33:41]
    assert rms_error(lathe.run("causal_conv1d", x=x, weight=w).y, conv(x, w)) < 1e-6
    q, k, v = (r.standard_normal((1, 20, 2, 16)).astype(np.float16) for _ in range(3))
    g = -r.random((1, 20, 2, 16)).astype(np.float32)
    beta = wide[:, :, 33:35]  # of a fused projection: its rows begin anywhere
    given = dict(q=q, k=k, v=v, use_qk_l2norm_in_kernel=1, use_beta_sigmoid_in_kernel=1)
    whole = lathe.run("kda", **given, g=g, beta=beta.copy()).o
    for op in ("kda", "kda_recurrent"):
        assert rms_error(lathe.run(op, **given, g=g, beta=beta).o, whole) < 3e-3
    shifted = np.zeros(g.size + 1, np.float32)[1:].reshape(g.shape)
    shifted[:] = g
    assert rms_error(lathe.run("kda_recurrent", **given, g=shifted, beta=beta).o, whole) < 3e-3
    with pytest.raises(lathe.Unsupported, match="g begins at an address, .* multiples of 4 bytes; "
                                                "kda takes multiples of 8: give a copy"):
        lathe.run("kda", **given, g=shifted, beta=beta)


def test_packed_rows_of_no_sequence_are_refused_where_the_offsets_can_be_read():
    x, w = np.ones((1, 12, 8), np.float32), np.ones((8, 4), np.float32)
    with pytest.raises(lathe.InvalidArgument, match="cu_seqlens ends with 9; allowed is T = 12"):
        lathe.run("causal_conv1d", x=x, weight=w, cu_seqlens=np.array([0, 4, 9], np.int32))
