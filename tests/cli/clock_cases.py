# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The clock's report of a call is the same for any number of host threads and for any instruction set of the host."""
import json

from explain_cases import KDA, PAGES, SPARSE, words
from harness import Case

ROWS = "bf16:1,384,2,64"
ATTENTION = {"q": ROWS, "k": ROWS, "v": ROWS}
WIDE = {name: "bf16:1,256,2,128" for name in "qkv"}
# Operator, tensors, options, the family of attention's kernels, and a kernel or a unit that must be among those that were timed.
CALLS = (
    ("flash_attention", {**ATTENTION, "dout": ROWS}, ("causal=1",), "portable", r"backward"),
    ("flash_attention", ATTENTION, ("causal=1",), "auto", r"wgmma"),
    ("flash_attention", WIDE, (), "auto", r"wgmma"),
    ("flash_attention_decode", PAGES, (), "auto", r"decode"),
    ("sparse_flash_attention", SPARSE, ("scale=0.1",), "auto", r"sparse"),
    ("sparse_flash_attention", {**SPARSE, "dout": "bf16:64,16,64"}, ("scale=0.1",), "auto", r"backward"),
    ("kda", KDA, (), "auto", r"kda"),
    ("causal_conv1d", {"x": "bf16:1,512,256", "weight": "bf16:256,4"}, (), "auto", r"conv"),
)
# Threads and instruction set; the first is what the others are held against.
HOSTS = (("1", "base"), ("2", "base"), ("3", "avx2"), ("8", "avx512"))


class ClockCases(Case):
    def clock(self, call, threads, isa):
        """What the clock says of a call; None if this build or machine lacks the instruction set."""
        op, tensors, options, family, _ = call
        status, out, err = self.lathe("explain", op, *words(tensors, options), "--gpu", "h100", "--clock", "--json",
                                      "--cache-dir", str(self.folder / "kernels"), LATHE_FAMILY=family,
                                      LATHE_SIM_THREADS=threads, LATHE_SIM_ISA=isa)
        if isa != "base" and "CUDA_ERROR_NO_DEVICE" in err:
            return None
        self.assertEqual(status, 0, err)
        return json.loads(out)["clock"]

    def test_any_host(self):
        for call in CALLS:
            first = self.clock(call, *HOSTS[0])
            names = " ".join(" ".join((kernel["name"], *kernel["use"])) for kernel in first[0]["kernels"])
            self.assertRegex(names, call[4])
            for host in HOSTS[1:]:
                with self.subTest(call=call, host=host):
                    clock = self.clock(call, *host)
                    if clock is None:
                        self.skipTest(f"no {host[1]} here")
                    self.assertEqual(clock, first)

    def test_blocks_that_wait(self):
        """Blocks of an ordered backward wait for one another. Few of them run, without these waits, and the report says so."""
        rows = "bf16:4,4096,16,64"
        tensors = words({name: rows for name in ("q", "k", "v", "dout")}, ("deterministic=1",))
        arguments = ("explain", "flash_attention", *tensors, "--gpu", "h100", "--clock", "--cache-dir", str(self.folder / "kernels"))
        status, out, err = self.lathe(*arguments, "--json", LATHE_FAMILY="sm90")
        self.assertEqual(status, 0, err)
        kernels = {kernel["name"]: kernel for kernel in json.loads(out)["clock"][0]["kernels"]}
        waiting = [name for name, kernel in kernels.items() if kernel.get("waits_left_out")]
        self.assertEqual(waiting, ["attention_backward_warpgroups"])
        self.assertGreater(kernels[waiting[0]]["tflop_per_s"], 100)
        status, out, err = self.lathe(*arguments, LATHE_FAMILY="sm90")
        self.assertEqual((status, out.count("left out ")), (0, 1), err)
