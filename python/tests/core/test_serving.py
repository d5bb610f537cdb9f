# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""No compile after start: a model's manifest, warmed into a bundle, has all that serving it needs.

The bundle is made once for all tests here. What serves has no compiler, no cache and no place to
write: LATHE_JIT=off, and LATHE_NVRTC names no file.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

import lathe

MODEL = """
{"model": "hybrid", "dtype": "bf16", "batch": [1, 8], "tokens": [1, 64], "drafts": [1, 2]}
{"layer": "kda", "extents": {"H": 2, "K": 16, "W": 4}, "with": ["A_log", "dt_bias", "norm_weight", "output_gate"],
 "dtypes": {"g": "bf16", "norm_weight": "f32"}, "options": {"use_gate_in_kernel": 1, "use_qk_l2norm_in_kernel": 1,
 "use_beta_sigmoid_in_kernel": 1, "lower_bound": -5, "null_slot": 0, "activation": "silu", "update_state": 1}}
{"layer": "attention", "extents": {"H": 4, "HK": 2, "D": 32}, "options": {"causal": 1}}
""".replace("\n ", " ").strip()
PROGRAM = pathlib.Path(lathe._core.__file__).parents[2] / "bin/lathe"
TESTS = str(pathlib.Path(__file__).resolve().parents[1])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The kernels of MODEL for the simulator's device."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "model.jsonl").write_text(MODEL)
    arch = lathe.context("sim").info()["arch"]
    done = subprocess.run([PROGRAM, "warm", folder / "model.jsonl", "--arch", arch, "--bundle",
                           folder / "model.bundle", "--json"], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bundle"]["entries"] > 10
    return folder / "model.bundle"


def serve(bundle, program, *arguments):
    """Runs a program of serving_steps.py where nothing can be compiled; returns what it prints."""
    environment = {**os.environ, "LATHE_BUNDLES": str(bundle), "LATHE_JIT": "off",
                   "LATHE_CACHE_DIR": "off", "LATHE_NVRTC": "/nonexistent",
                   "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), TESTS])}
    done = subprocess.run([sys.executable, "-m", "serving_steps", program, *map(str, arguments)],
                          env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_500_steps_compile_nothing(bundle):
    """Prefill, decoding and drafts of all layers, with arrivals, ends and padding."""
    found = serve(bundle, "steps", 500)
    assert found["steps"] == 500 and found["compiled"] == 0 and found["told"] == 0
    assert found["from"] == ["bundle"] and found["finite"]
    assert min(found["calls"].values()) > 20, found["calls"]


def test_any_call_within_the_ranges_is_there(bundle):
    """Random calls of random forms, with what the manifest says may come and go."""
    found = serve(bundle, "draws", 600, random.randrange(10**6))
    assert found["plans"] == 600 and found["missed"] == []


def test_a_call_outside_is_refused_with_the_line_that_adds_it(bundle, tmp_path):
    for line in serve(bundle, "outside"):
        problem = lathe.Problem.parse(line)  # the whole problem, as a manifest has it
        assert problem.text() == line
    warmed = lathe.warm([line], lathe.context("sim").info()["arch"], cache_dir=tmp_path)
    assert [(each["op"], each["line"]) for each in warmed] == [(problem.op, 1)]
    assert warmed[0]["compiled"] + warmed[0]["hits"] > 0


def test_a_late_compile_is_told(tmp_path, monkeypatch):
    import numpy as np

    seen = []
    log = tmp_path / "compiles.log"
    monkeypatch.setenv("LATHE_COMPILE_LOG", str(log))
    lathe.on_compile(seen.append)
    try:
        context = lathe.Context("sim", cache_dir=tmp_path / "cache")
        x, weight = np.ones((1, 9, 24), "f"), np.ones((24, 3), "f")
        for _ in range(2):
            lathe.run("causal_conv1d", context=context, x=x, weight=weight)
    finally:
        lathe.on_compile(None)
    lathe.run("causal_conv1d", context=context, x=x[..., :8], weight=weight[:8])
    assert [each.kernel for each in seen] == ["causal_conv1d"]
    told = seen[0]
    assert told.call.startswith("causal_conv1d(x f32[1, 9, 24], weight f32[24, 3], ")
    assert told.milliseconds > 0 and lathe.Problem.parse(told.line).op == "causal_conv1d"
    first, *_ = log.read_text().splitlines()
    assert told.key in first and told.call in first


def test_a_listener_that_fails_fails_no_call(tmp_path, monkeypatch):
    import numpy as np

    failures = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: failures.append(found.exc_type))

    def failing(told):
        lathe.on_compile(None)
        raise ZeroDivisionError

    lathe.on_compile(failing)
    context = lathe.Context("sim", cache_dir=tmp_path)
    x, weight = np.ones((1, 9, 40), "f"), np.ones((40, 3), "f")
    assert lathe.run("causal_conv1d", context=context, x=x, weight=weight).y.shape == (1, 9, 40)
    assert failures == [ZeroDivisionError]


def test_a_manifest_s_errors_name_the_line():
    for lines, words in (([MODEL.splitlines()[0], '{"layer": "kda"}'], "line 2: .*is missing"),
                         (["# a comment", "", '{"layer": "moe"}'], "line 3: layer is 'moe'")):
        with pytest.raises(lathe.InvalidArgument, match=words):
            lathe.warm(lines, "sm_80")


def test_the_document_s_manifest():
    """The model that docs/cache.md shows is one, in lines of its own."""
    text = (pathlib.Path(__file__).parents[3] / "docs/cache.md").read_text()
    shown = text.split("```json\n")[1].split("```")[0]
    numbers = {number for number, _ in lathe._core.manifest_lines(shown)}
    assert numbers == {2, 3}
