# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""`lathe check -- PROGRAM`: a client of the driver in Python, and programs of nvcc, with faults and without."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from harness import Case

HERE = pathlib.Path(__file__).resolve().parent
SUM = HERE.parent.parent / "sim/examples/sum.ptx"
# Launches KERNEL(float* in, float* out) of a PTX file with a block of 256 threads, by the driver API alone.
CLIENT = textwrap.dedent("""\
    import ctypes, sys
    cuda = ctypes.CDLL("libcuda.so.1")
    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status: sys.exit(f"{name}: {status}")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device, buffers = ctypes.c_int(), [ctypes.c_uint64(), ctypes.c_uint64()]
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuModuleLoad", ctypes.byref(module), sys.argv[1].encode())
    call("cuModuleGetFunction", ctypes.byref(function), module, sys.argv[2].encode())
    for buffer, words in zip(buffers, (1024, 4)):
        call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * words))
        call("cuMemsetD32_v2", buffer, 0x3f800000, ctypes.c_size_t(words))
    arguments = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(b), ctypes.c_void_p) for b in buffers))
    call("cuLaunchKernel", function, 4, 1, 1, 256, 1, 1, 0, None, arguments, None)
    call("cuCtxSynchronize")
    for buffer in buffers: call("cuMemFree_v2", buffer)
    call("cuCtxDestroy_v2", context)
    print("the client ran with", sys.argv[3:])
    sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    """)
# Each case of races.cu, and the kinds that the simulator may call its fault.
RACES = {"barrier": {"race"}, "copy": {"in_flight"}, "flag": {"race"},
         "streams": {"race"}, "bounds": {"out_of_bounds"}}


def nvcc():
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if folder and (pathlib.Path(folder) / "bin/nvcc").exists():
            return str(pathlib.Path(folder) / "bin/nvcc")
    return shutil.which("nvcc")


class ProgramCases(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.client = pathlib.Path(folder.name) / "client.py"
        self.client.write_text(CLIENT)

    def check(self, *flags, words, **variables):
        return self.lathe("check", *flags, "--", *map(str, words), **variables)

    def sum(self, kernel, *more):
        return [sys.executable, self.client, SUM, kernel, *more]

    def test_a_race_by_source_line(self):
        status, out, err = self.check(words=self.sum("sum"))
        self.assertEqual(status, 1, err)
        self.assertRegex(out, r"(?m)^the client ran with \[\]$")
        self.assertRegex(out, r"(?m)^sum\.cu:\d+: error: racecheck race: .*thread \(\d+, 0, 0\).* \[sum, cta \[\d,0,0\], thread "
                              r"\[\d+,0,0\], PTX line \d+\]")
        self.assertRegex(err, r"(?m)^lathe: \d+ findings in 1 launches, exit 0$")

    def test_nothing_found(self):
        status, out, err = self.check(words=self.sum("sum_fixed"))
        self.assertEqual((status, out), (0, "the client ran with []\n"), err)
        self.assertIn("lathe: 0 findings in 1 launches, exit 0", err)

    def test_json_stands_alone(self):
        status, out, err = self.check("--json", "--seeds", "3", "--gpu", "a100", words=self.sum("sum"))
        self.assertEqual(status, 1, err)
        report = json.loads(out)
        self.assertIn("the client ran", err)
        self.assertEqual((report["gpu"], report["seeds"], report["ended"], report["launches"]), ("a100", 3, "exit 0", 3))
        races = [each for each in report["findings"] if each["kind"] == "race"]
        self.assertTrue(races)
        self.assertTrue(all(each["times"] >= 3 and each["source"].startswith("sum.cu:") for each in races), races)

    def test_github(self):
        _, out, _ = self.check("--github", words=self.sum("sum"))
        self.assertRegex(out, r"(?m)^::error file=sum\.cu,line=\d+,title=racecheck race::store to shared address")

    def test_clock(self):
        status, out, err = self.check("--clock", words=self.sum("sum_fixed"))
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"(?m)^sum_fixed  [0-9.]+ us on h100 by the clock, bound by ")

    def test_the_program_s_own_end(self):
        self.assertEqual(self.check(words=self.sum("sum_fixed", "7"))[0], 7)
        status, _, err = self.check(words=[sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"])
        self.assertEqual(status, 3)
        self.assertIn("died of signal 11", err)

    def test_what_checks_nothing_is_no_success(self):
        status, _, err = self.check(words=["true"])
        self.assertEqual(status, 3)
        self.assertIn("no kernel was launched on the simulator", err)

    def test_refused(self):
        for flags, words, said in (((), ["/nowhere/program"], '"/nowhere/program" cannot be started: No such file'),
                                   ((), [], "behind -- there is no program"),
                                   (("--seeds", "0"), ["true"], "--seeds"),
                                   (("--gpu", "h1000"), ["true"], "h1000"),
                                   (("--json", "--github"), ["true"], "--github"),
                                   (("--input", "x"), ["true"], "--input")):
            status, _, err = self.check(*flags, words=words)
            self.assertEqual(status, 2, err)
            self.assertIn(said, err)

    @unittest.skipUnless(nvcc(), "there is no nvcc")
    def test_programs_of_nvcc(self):
        program = self.client.parent / "races"
        subprocess.run([nvcc(), "-std=c++17", "-O1", "-lineinfo", "-cudart", "shared", "-gencode",
                        "arch=compute_90a,code=compute_90a", "-o", program, HERE / "races.cu"], check=True)
        for race, kinds in RACES.items():
            with self.subTest(race=race):
                status, out, err = self.check("--json", words=[program, race])
                found = json.loads(out)["findings"]
                self.assertEqual(status, 1, err)
                self.assertTrue({each["kind"] for each in found} & kinds, found)
                self.assertTrue(any("races.cu:" in each["source"] for each in found), found)
                status, out, err = self.check("--json", "--seeds", "3", words=[program, race, "mended"])
                self.assertEqual((status, json.loads(out)["findings"]), (0, []), err)
