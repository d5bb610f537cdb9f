# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of one's own from Python: called like functions, with the names of their description."""
import gc
import pathlib

import numpy
import pytest

import lathe

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "own_kernels"

TEXT = """/* lathe
[tensors]
x = { in = "f32", shape = "T D", what = "The input." }
counter = { inout = "i32", shape = "1", optional = true }
y = { out = "f32", shape = "T D" }
[options]
factor = { default = 2.0 }
[launch]
grid = "T * D"
block = 32
*/
template <class Config> __device__ void kernel(const Params& p) {
  if (threadIdx.x != 0) return;
  p.y[blockIdx.x] = p.x[blockIdx.x] * p.factor;
  if (Config::has_counter && blockIdx.x == 0) p.counter[0] += 5;
}
"""


@pytest.fixture
def x():
    return numpy.random.default_rng(3).normal(size=(5, 40)).astype("float32")


def test_a_file_is_a_function(x):
    rms_norm = lathe.kernel(EXAMPLES / "rms_norm.cuh")
    weight = numpy.linspace(0.5, 2, 40, dtype="float32")
    found = rms_norm(x=x, weight=weight, residual=x, eps=1e-5)
    h = 2 * x.astype("float64")
    expected = h / numpy.sqrt((h * h).mean(axis=1, keepdims=True) + 1e-5) * weight
    assert abs(found.y - expected).max() < 2e-6
    assert (found.sum == 2 * x).all()
    assert set(rms_norm(x=x, weight=weight)) == {"y"}


def test_the_table_and_the_name(x):
    kernel = lathe.Kernel(TEXT, "dir/double.cuh")
    assert kernel.name.startswith("double@") and repr(kernel) == f"lathe.kernel({kernel.name!r})"
    assert list(kernel.operator.tensors) == ["x", "counter", "y"]
    assert kernel.operator.tensors["x"].sentence == "The input."
    assert kernel.operator.options["factor"].default == "2"
    counter = numpy.array([7], dtype="int32")
    found = kernel(x=x, counter=counter, factor=3)
    assert (found.y == 3 * x).all() and counter[0] == 12 and found.counter is counter
    # The name stands wherever an operator's does.
    problem = lathe.Problem(kernel.name)
    problem.tensor("x", "f32", (-1, 40))
    problem.infer()
    assert [each["name"] for each in problem.tensors() if each["declared"]] == ["x", "y"]
    assert kernel.name not in lathe.operators()


def test_a_kernel_goes_with_its_last_holder(x):
    kernel = lathe.Kernel(TEXT)
    name = kernel.name
    problem = lathe.Problem(name)
    del kernel
    gc.collect()
    lathe.Problem(name)
    del problem
    gc.collect()
    with pytest.raises(lathe.InvalidArgument, match=f"there is no operator '{name}'"):
        lathe.Problem(name)


def test_what_is_refused(x, tmp_path):
    with pytest.raises(lathe.InvalidArgument, match="cannot be read: No such file"):
        lathe.kernel(tmp_path / "none.cuh")
    with pytest.raises(lathe.InvalidArgument, match=r"k.cuh:3:7: in has .f33."):
        lathe.Kernel(TEXT.replace('in = "f32"', 'in = "f33"'), "k.cuh")
    kernel = lathe.Kernel(TEXT)
    with pytest.raises(lathe.InvalidArgument, match="has no tensor or option z"):
        kernel(x=x, z=x)
    with pytest.raises(lathe.InvalidArgument, match="x has dtype i32; allowed are f32"):
        kernel(x=numpy.zeros((2, 2), "int32"))
    wrong = lathe.Kernel(TEXT.replace("p.factor;", "p.factr;"), "wrong.cuh")
    with pytest.raises(lathe.InvalidArgument, match=r"wrong.cuh does not compile for (?s:.*)wrong.cuh\(14\): error"):
        wrong(x=x)
