# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Machine code by nvdisasm, real where one is found, and ptxas's remarks from a planted kernel to the screen."""
import json
import os
import pathlib
import re

from harness import Case

X = ["--tensor", "x=bf16:1,-1,64", "--tensor", "weight=bf16:64,4", "--arch", "sm_90a"]
SASS = ["dump", "causal_conv1d", *X, "--what", "sass"]
# Two things that ptxas dislikes: setmaxnreg without bounds, and an accumulator read before the wait.
PLANTED = r'''
extern "C" __global__ void planted(float* out, unsigned long long a, unsigned long long b) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  float d[4] = {out[0], out[1], out[2], out[3]};
  for (int i = 0; i < 9; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    out[i * 128 + threadIdx.x] = d[0];
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
'''


class DumpCases(Case):
    def stub(self, *lines):
        """An nvdisasm of these lines of shell."""
        program = self.folder / "nvdisasm"
        program.write_text("\n".join(("#!/bin/sh", *lines, "")))
        program.chmod(0o755)
        self.addCleanup(program.unlink, missing_ok=True)
        return str(program)

    def assert_refused_alone(self, result, pattern, code):
        status, out, err = result
        self.assertEqual((status, out, len(err.splitlines())), (code, "", 1), err)
        self.assertRegex(err, pattern)

    def counts(self, listing):
        return {name: int(value) for name, value in re.findall(r"^// (\w+) +(\d+)", listing, re.M)}

    def planted(self):
        library = os.environ.get("LATHE_NVRTC", "")
        if "lathe_nvrtc_memo" not in library:
            self.skipTest("LATHE_NVRTC does not name the tests' compiler library, which plants a kernel")
        file = self.folder / "planted.cuh"
        file.write_text(PLANTED)
        # The key of a kernel knows nothing of what is planted behind it: a cache of its own.
        return {"LATHE_TEST_NVRTC_PLANT": str(file), "LATHE_CACHE_DIR": str(self.folder / "cache")}

    def test_a_stub(self):
        """It is given the kernel's machine code as a file, and no shell sees the words."""
        stub = self.stub("echo \"words $# $1\"", "head -c 4 \"$2\" | od -An -c", "echo '        /*0000*/   @P0 HMMA.16816 R1 ;'",
                         "echo '        /*0010*/   BAR.SYNC 0x0 ;'")
        status, out, err = self.lathe(*SASS, LATHE_NVDISASM=stub)
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"^words 2 -c\n 177 +E +L +F\n")
        counts = self.counts(out)
        self.assertEqual((counts["instructions"], counts["HMMA"], counts["BAR"], counts["HGMMA"], counts["STL"]), (2, 1, 1, 0, 0))
        self.assertIn("// remarks       none\n", out)

    def test_where_it_is_found(self):
        stub = pathlib.Path(self.stub("echo found in PATH"))
        other = self.folder / "home" / "bin"
        other.mkdir(parents=True)
        (other / "nvdisasm").write_text("#!/bin/sh\necho found in CUDA_HOME\n")
        (other / "nvdisasm").chmod(0o755)
        path = os.environ["PATH"]
        status, out, err = self.lathe(*SASS, PATH=f"{self.folder}:{path}", CUDA_HOME=str(other.parent))
        self.assertEqual((status, out.splitlines()[0]), (0, "found in PATH"), err)
        doctor = {item["name"]: item for item in json.loads(self.lathe("doctor", "--json", PATH=f"{self.folder}:{path}")[1])["items"]}
        self.assertEqual((doctor["nvdisasm"]["state"], doctor["nvdisasm"]["where"]), ("found", str(stub)))
        stub.chmod(0o644)  # is none that can be run
        status, out, err = self.lathe(*SASS, PATH=f"{self.folder}::.:/usr/bin:/bin", CUDA_HOME=str(other.parent))
        self.assertEqual((status, out.splitlines()[0]), (0, "found in CUDA_HOME"), err)

    def test_without_one(self):
        self.assert_refused_alone(self.lathe(*SASS, LATHE_NVDISASM="/nowhere/nvdisasm"),
                                  "LATHE_NVDISASM is '/nowhere/nvdisasm'.*pip install nvidia-cuda-nvdisasm", 2)
        self.assert_refused_alone(self.lathe(*SASS, LATHE_NVDISASM=str(self.folder)), "no program that can be run", 2)

    def test_one_that_fails(self):
        stub = self.stub("echo half a listing", "echo 'nvdisasm fatal : no' >&2", "exit 9")
        self.assert_refused_alone(self.lathe(*SASS, LATHE_NVDISASM=stub), r'nvdisasm" failed: its exit status is 9: "nvdisasm fatal : no"', 3)
        broken = self.folder / "nvdisasm"
        broken.write_text("no program")
        self.assert_refused_alone(self.lathe(*SASS, LATHE_NVDISASM=str(broken)), "cannot be started", 3)

    def test_the_real_one(self):
        items = {item["name"]: item for item in json.loads(self.lathe("doctor", "--json", **self.named())[1])["items"]}
        if items["nvdisasm"]["state"] != "found":
            self.skipTest(items["nvdisasm"]["where"])
        q = [word for name in "qkv" for word in ("--tensor", f"{name}=bf16:1,1024,8,64")]
        own = {"portable": ("HMMA", "LDSM", "LDGSTS"), "sm90": ("HGMMA", "UTMALDG")}  # instructions of a family alone
        for family, others in (("portable", "sm90"), ("sm90", "portable")):
            status, out, err = self.lathe("dump", "flash_attention", *q, "--arch", "sm_90a", "--what", "sass",
                                          **self.named(), LATHE_FAMILY=family)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, r"\.target\s+sm_90a")
            counts = self.counts(out)
            for name in own[family]:
                self.assertEqual(counts[name], len(re.findall(rf"\*/ .*\b{name}\.", out)), name)
            self.assertGreater(min(counts[name] for name in ("instructions", "BAR", *own[family])), 0)
            self.assertEqual([counts[name] for name in (*own[others], "LDL", "STL")], [0] * (len(own[others]) + 2))
        planted = self.planted()
        status, out, err = self.lathe(*SASS, **planted, **self.named())
        self.assertEqual((status, err), (0, ""))
        # A loop that ptxas may have unrolled, serialised: a wait behind every product.
        comments = out[out.index("// instructions"):]
        self.assertRegex(comments, r"// HGMMA +(1|(\d+)); between waits \(WARPGROUP.DEPBAR\): 1( x\2)?\n")
        self.assertRegex(comments, "// remark +C75.., loss: Potential Performance Loss")

    def named(self):
        """The test's own variable reaches the program, which the harness would take away."""
        return {name: os.environ[name] for name in ("LATHE_NVDISASM",) if name in os.environ}

    def test_remarks(self):
        planted = self.planted()
        seen = []
        for origin in ("compiler", "disk"):
            status, out, err = self.lathe("explain", "causal_conv1d", *X, "--json", **planted)
            self.assertEqual((status, err), (0, ""))
            kernel, = json.loads(out)["kernels"]
            self.assertEqual(kernel["from"], origin)
            seen.append(kernel["remarks"])
        self.assertEqual(seen[0], seen[1])
        losses = {remark["code"]: remark["text"] for remark in seen[0] if remark["class"] == "loss"}
        self.assertIn("'setmaxnreg' ignored", losses.get("C7508", ""), seen)
        self.assertTrue(any("wgmma.mma_async instructions are serialized" in text for text in losses.values()), seen)
        status, out, err = self.lathe("explain", "causal_conv1d", *X, **planted)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(len(re.findall(r"^  remark     C7\d\d\d, (?:loss|note)(?:, \d+ lines)?: \S", out, re.M)), len(seen[0]), out)

    def hopper(self, *flags, **env):
        """The kernels of an attention whose every kernel for Hopper the compiler makes slow."""
        words = [word for name in "qkv" for word in ("--tensor", f"{name}=bf16:1,-1,4,64")]
        status, out, err = self.lathe("explain", "flash_attention", *words, "--arch", "sm_90a", "--json", *flags, **env)
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)["kernels"]

    def test_a_kernel_that_the_compiler_made_slow(self):
        planted = self.planted()
        self.assertEqual([kernel["family"] for kernel in self.hopper()], ["sm90"])
        for origin in ("compiler", "disk"):
            kernel, = self.hopper(**planted)
            self.assertEqual((kernel["family"], kernel["from"]), ("portable", origin))
            self.assertRegex(kernel["family_reason"], "^not sm90: the compiler reports C75.*")

    def test_warming_with_an_old_compiler(self):
        """It makes the kernels too that plans take where the compiler has made Hopper's slow, and only then."""
        planted = self.planted()
        shapes = {name: ["bf16", [1, -1, 4, 64]] for name in ("q", "k", "v", "out")}
        manifest = self.folder / "manifest.jsonl"
        manifest.write_text(json.dumps({"op": "flash_attention", "tensors": {**shapes, "lse": ["f32", [1, 4, -1]]}}) + "\n")
        for version, kernels in (("13.0", 1), ("12.3", 2)):
            told = {**planted, "LATHE_CACHE_DIR": str(self.folder / version), "LATHE_TEST_NVRTC_VERSION": version}
            status, out, err = self.lathe("warm", manifest, "--arch", "sm_90a", "--json", **told)
            self.assertEqual((status, json.loads(out)["compiled"]), (0, kernels), err)
        kernel, = self.hopper(**{**told, "LATHE_JIT": "off", "LATHE_NVRTC": "/nonexistent"})
        self.assertEqual((kernel["family"], kernel["from"]), ("portable", "disk"))

    def test_no_remarks(self):
        status, out, err = self.lathe("explain", "causal_conv1d", *X, "--json")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual([kernel["remarks"] for kernel in json.loads(out)["kernels"]], [[]])
