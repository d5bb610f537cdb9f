# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A driver that is older than the newest compiler: the simulator answers as the driver of CUDA 12.4."""
import json
import os
import pathlib

import harness
from harness import Case, conv, save

OLD = {"LATHE_SIM_DRIVER_VERSION": "12040"}
SHAPE = ["f32", [-1, -1, 16]]
LINE = {"op": "causal_conv1d", "tensors": {"x": SHAPE, "weight": ["f32", [16, 4]], "y": SHAPE}}
NEEDED = (r"the driver, of CUDA 12\.4, loads no code of a newer major version; found is NVRTC 13\.\d+ \(.*\), needed is NVRTC 12: "
          r"pip install nvidia-cuda-nvrtc-cu12 and set LATHE_NVRTC")


def fake(name):
    return str(pathlib.Path(harness.PROGRAM).resolve().parent.parent / "tests/fake_nvrtc" / f"fake_{name}.so")


def older_compiler():
    """An NVRTC 12 that makes PTX 8.4 or older, where there is one."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    named = os.environ.get("LATHE_TEST_NVRTC_12", root / ".deps/nvrtc12/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    return str(named) if os.path.exists(named) else None


class DriverCases(Case):
    def run_conv(self, **env):
        save(self.input, conv())
        process = self.start(self.command("causal_conv1d", flags=["--json", "--cache-dir", self.folder / "cache"]), **OLD, **env)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def warm(self, **env):
        path = self.folder / "manifest.jsonl"
        path.write_text(json.dumps(LINE) + "\n")
        status, _, err = self.lathe("warm", path, "--arch", "sm_90a", "--cache-dir", self.folder / "cache", **env)
        self.assertEqual(status, 0, err)

    def test_a_compiler_that_is_too_new_is_refused_before_it_compiles(self):
        for inside in ("on", "off"):
            with self.subTest(process=inside):
                status, out, err = self.run_conv(LATHE_NVRTC=fake("13"), LATHE_COMPILE_PROCESS=inside)
                self.assertEqual((status, out), (3, ""))
                self.assertRegex(err, NEEDED)

    def test_what_a_newer_compiler_published_is_not_taken(self):
        self.warm(LATHE_NVRTC=fake("13"))
        status, _, err = self.run_conv(LATHE_NVRTC="/nonexistent", LATHE_JIT="off")
        self.assertEqual(status, 3, err)
        self.assertIn("the compilers that published there are too new for the driver", err)
        # The note that the cache has of this file is the same for every driver.
        status, _, err = self.run_conv(LATHE_NVRTC=fake("13"))
        self.assertEqual(status, 3, err)
        self.assertRegex(err, NEEDED)

    def test_what_an_older_compiler_published_is_taken(self):
        self.warm(LATHE_NVRTC=fake("12"))
        status, _, err = self.run_conv(LATHE_NVRTC=fake("13"))
        # The fake's code is none: that it was loaded is what is seen.
        self.assertEqual(status, 3, err)
        self.assertIn("cuLibraryLoadData", err)

    def test_doctor_says_what_is_needed(self):
        status, out, err = self.lathe("doctor", LATHE_NVRTC=fake("13"), **OLD)
        self.assertIn(status, (0, 1), err)
        if "libcuda.so.1 13" in out:
            self.skipTest("the machine's own driver is not old")
        self.assertRegex(out, NEEDED)

    def test_an_older_compiler_works_through_the_simulator(self):
        library = older_compiler()
        if library is None:
            self.skipTest("no NVRTC 12: pip install --target .deps/nvrtc12 nvidia-cuda-nvrtc-cu12==12.4.127")
        status, out, err = self.run_conv(LATHE_NVRTC=library)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["compiled"], 1)
