# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""set_log(): the library's messages in Python's logging."""
import logging
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import lathe


@pytest.fixture
def log(caplog):
    """The messages of the logger "lathe"; nobody gets them before set_log and after the test."""
    caplog.set_level(logging.DEBUG, "lathe")
    yield caplog
    lathe.set_log(None)


def conv(width, cache):
    """Runs a convolution of this many taps in a context of its own, with its kernels in `cache`."""
    context = lathe.Context("sim", cache_dir=cache)
    x, weight = np.ones((1, 8, 16), "f"), np.ones((16, width), "f")
    return lathe.run("causal_conv1d", context=context, x=x, weight=weight)


def kernels(log):
    return [(each.name, each.levelno, each.getMessage().partition(" comes from the ")[2])
            for each in log.records if each.getMessage().startswith("causal_conv1d for ")]


def test_messages_go_to_the_logger_that_is_named(log, tmp_path):
    conv(4, tmp_path)
    assert not log.records
    lathe.set_log()
    conv(3, tmp_path)
    conv(3, tmp_path)
    assert kernels(log) == [("lathe", logging.INFO, "compiler"), ("lathe", logging.INFO, "disk")]
    log.clear()
    lathe.set_log(logging.getLogger("lathe.kernels"))
    conv(3, tmp_path)
    assert kernels(log) == [("lathe.kernels", logging.INFO, "disk")]
    log.clear()
    lathe.set_log(None)
    conv(3, tmp_path)
    assert not log.records


def test_a_handler_that_fails_fails_no_run(log, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_type))

    class Failing(logging.Logger):
        def log(self, *arguments, **keywords):
            lathe.set_log(None)  # and a sink may take itself away
            raise ZeroDivisionError

    lathe.set_log(Failing("failing"))
    assert conv(4, tmp_path).y.shape == (1, 8, 16)
    assert seen == [ZeroDivisionError]


# A compiler of the C++ tests, which counts for as long as it may where a text says so.
FAKE = pathlib.Path(lathe._core.__file__).parents[2] / "tests/fake_nvrtc/fake_a.so"
SLOW = """
import logging, lathe
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
lathe.set_log()
tensors = {name: ("f16", (1, 64, 1, 32)) for name in ("q", "k", "v", "out")}
tensors["lse"] = ("f32", (1, 1, 64))
mod = lathe.DeviceText('''// fake: loop
__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) {
  return score;
}
''')
problem = lathe.Problem("flash_attention", tensors, score_mod=mod)
try:
    lathe.Plan(lathe.Context("none", arch="sm_80", cache_dir="off"), problem)
except lathe.CompileFailed as failed:
    print(failed)
"""


@pytest.mark.skipif(not FAKE.exists(), reason=f"there is no {FAKE}: the C++ tests are not built")
def test_a_plan_that_takes_long_says_that_interrupts_wait():
    environment = {**os.environ, "LATHE_NVRTC": str(FAKE), "LATHE_COMPILE_SECONDS": "3"}
    done = subprocess.run([sys.executable, "-c", SLOW], env=environment, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0 and "LATHE_COMPILE_SECONDS" in done.stdout, done
    assert "lathe: a plan has been in the making for 2 s; an interrupt" in done.stderr
