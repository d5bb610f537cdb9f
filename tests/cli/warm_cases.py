# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Record, warm, ship: manifests, what warming reports, interruptions, and runs without a compiler."""
import json
import os
import signal
import subprocess
import time

import harness
from harness import Case, attention, conv, save, sparse, tensor, update

NO_COMPILER = {"LATHE_JIT": "off", "LATHE_NVRTC": "/nonexistent"}


def line(W=4, D=16, dtype="f32", activation=None, op="causal_conv1d"):
    shapes = {"x": [dtype, [1, -1, D]], "weight": [dtype, [D, W]], "y": [dtype, [1, -1, D]]}
    return {"op": op, "tensors": shapes, **({"options": {"activation": activation}} if activation else {})}


class WarmCases(Case):
    def manifest(self, *lines):
        path = self.folder / "manifest.jsonl"
        path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
        return path

    def words(self, path, *flags):
        return ["warm", path, "--cache-dir", self.folder / "cache", *flags]

    def warm(self, path, *flags, code=0, **env):
        status, out, err = self.lathe(*self.words(path, "--json", *flags), **env)
        self.assertEqual(status, code, err)
        return json.loads(out)

    def test_a_run_finds_what_was_warmed(self):
        backward = {"op": "causal_conv1d", "options": {"activation": "silu"}, "tensors": {
            "x": ["f32", [-1, -1, 16]], "weight": ["f32", [16, 4]], "dy": ["f32", [-1, -1, 16]], "y": ["f32", [-1, -1, 16]],
            "dx": ["f32", [-1, -1, 16]], "dweight": ["f32", [16, 4]]}}
        path = self.manifest(backward, "", {"op": "causal_conv1d_update", "tensors": {
            "x": ["f32", [-1, 16]], "state": ["f32", [-1, 16, 4]], "weight": ["f32", [16, 4]], "y": ["f32", [-1, 16]]}})
        first = self.warm(path, "--arch", "sm_80,sm_90a")
        self.assertGreater(first["compiled"], 3)
        self.assertEqual((first["hits"], first["failed"], first["left"]), (0, 0, 0))
        self.assertEqual([(each["line"], each["arch"]) for each in first["lines"]],
                         [(1, "sm_80"), (3, "sm_80"), (1, "sm_90a"), (3, "sm_90a")])
        self.assertEqual(sum(each["compiled"] for each in first["lines"]), first["compiled"])
        second = self.warm(path, "--arch", "sm_80,sm_90a")
        self.assertEqual((second["compiled"], second["hits"]), (0, first["compiled"]))
        for arch in ("sm_80", "sm_90a"):
            report, _ = self.run_op("causal_conv1d", conv(T=9, backward=True), ["activation=silu"],
                                    ["--cache-dir", self.folder / "cache", "--arch", arch])
            self.assertEqual(report["compiled"], 0)
        report, _ = self.run_op("causal_conv1d_update", update(), flags=["--cache-dir", self.folder / "cache"])
        self.assertEqual(report["compiled"], 0)

    def test_equal_lines_and_equal_kernels_are_one(self):
        same = json.dumps({"tensors": line()["tensors"], "op": "causal_conv1d"}, indent=None, separators=(" ,", ": "))
        longer = line()
        longer["tensors"] = {name: [dtype, [2, 77, *shape[2:]] if len(shape) == 3 else shape]
                             for name, (dtype, shape) in longer["tensors"].items()}
        path = self.manifest(line(), line(), same, longer)
        report = self.warm(path, "--arch", "sm_90a")
        self.assertEqual((report["kernels"], report["compiled"]), (1, 1))
        self.assertEqual([(each["line"], each["compiled"], each["shared"]) for each in report["lines"]], [(1, 1, 0), (4, 0, 1)])

    def test_inputs_alone_ask_for_what_run_makes_of_them(self):
        inputs = {"x": ["f32", [-1, -1, 16]], "weight": ["f32", [16, 4]], "dy": ["f32", [-1, -1, 16]]}
        path = self.manifest({"op": "causal_conv1d", "tensors": inputs, "options": {"activation": "silu"}})
        self.assertGreater(self.warm(path, "--arch", "sm_90a")["compiled"], 2)
        report, _ = self.run_op("causal_conv1d", conv(T=9, backward=True), ["activation=silu"],
                                ["--cache-dir", self.folder / "cache", "--arch", "sm_90a"])
        self.assertEqual(report["compiled"], 0)

    def test_standard_input(self):
        process = subprocess.run([str(word) for word in [harness.PROGRAM, *self.words("-", "--arch", "sm_90a")]],
                                 input=json.dumps(line()) + "\n", capture_output=True, text=True, env=self.environment())
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertRegex(process.stdout, r"line 1 .* 1 compiled .*\n1 lines, 1 kernels: 1 compiled, 0 found in the cache; 0 lines failed")

    def test_bad_lines_are_named(self):
        bad = {
            "JSON array": "[1]",
            "no JSON": "# a comment",
            "op is missing": {"tensors": {}},
            "kda2.*causal_conv1d": {"op": "kda2", "tensors": {}},
            "dtype is \"f8\"": {"op": "causal_conv1d", "tensors": {"x": ["f8", [1, 1, 1]]}},
            r"\[-2, 1, 1\].*or -1": {"op": "causal_conv1d", "tensors": {"x": ["f32", [-2, 1, 1]]}},
            "'speed'": {**line(), "speed": 1},
            "relu": line(activation="relu"),
        }
        for pattern, text in bad.items():
            with self.subTest(pattern=pattern):
                status, out, err = self.lathe(*self.words(self.manifest(line(), "", text), "--arch", "sm_90a"))
                self.assertEqual((status, out), (2, ""), err)
                self.assertRegex(err, "line 3: .*" + pattern)
                self.assertFalse((self.folder / "cache").exists())

    def test_a_text_of_a_manifest_opens_no_file(self):
        """Nothing of a secret file is printed, and a file that never ends is not waited for."""
        secret, pipe = self.folder / "secret", self.folder / "pipe"
        secret.write_text("a-secret-word:*:20228\n")
        os.mkfifo(pipe)
        shapes = {name: ["bf16", [-1, -1, 2, 64]] for name in ("q", "k", "v", "out")}
        mods = {"score_mod": "__device__ float score_mod(float s, int, int, int, int) { return s; }\n",
                "mask_mod": "__device__ bool mask_mod(int, int, int, int) { return true; }\n"}
        spellings = ["#include \"{}\"", "%:include \"{}\"", "#\\\ninclude \"{}\"", "#inc\\\nlude \"{}\"",
                     "#inc\\\r\nlude \"{}\"", "%\\\n:include_next \"{}\"", "/**/ # /**/ import <{}>",
                     "int x = L'\"'; \n#include \"{}\"\n int y = L'\"';", "#if __has_include(\"{}\")\n#endif",
                     "#if __has_\\\ninclude_next(\"{}\")\n#endif", "int x[] = {{\n#embed \"{}\"\n}};",
                     "# 1 \"{}\"\nint x = y;", "#line 1 \"{}\"\nint x = y;", "// \\ \n#include \"{}\"",
                     "#define J(a, b) a##b\nJ(as, m)(\".incbin \\\"{}\\\"\");"]
        for spelling in spellings:
            for name, text in mods.items():
                for file in (secret, pipe):
                    with self.subTest(spelling=spelling, mod=name, file=file.name):
                        path = self.manifest({"op": "flash_attention", "tensors": {**shapes, "lse": ["f32", [-1, 2, -1]]},
                                              "mods": {name: text + spelling.format(file) + "\n"}})
                        process = self.start([harness.PROGRAM, *self.words(path, "--arch", "sm_90a")])
                        try:
                            out, err = process.communicate(timeout=60)
                        except subprocess.TimeoutExpired:
                            process.kill()
                            process.communicate()
                            self.fail("it waits for the file")
                        self.assertEqual((process.returncode, out), (2, ""), err)
                        self.assertNotIn("secret-word", err)
                        self.assertRegex(err, f"line 1: option {name}: .*a mod")

    def test_bad_flags_are_named(self):
        path = self.manifest(line())
        for flags, pattern in (([], "--arch.*--gpu"), (["--arch", "sm_7"], "sm_7.*sm_90a"), (["--gpu", "abacus"], "abacus"),
                               (["--gpu", "sm_80"], "--gpu is \"sm_80\""), (["--gpu", "h100", "--arch", "sm_80"], "h100\" runs sm_90a"),
                               (["--arch", "sm_80", "--jobs", "0"], "--jobs")):
            with self.subTest(flags=flags):
                status, out, err = self.lathe(*self.words(path, *flags))
                self.assertEqual((status, out), (2, ""), err)
                self.assertRegex(err, pattern)
        self.assertEqual(self.lathe(*self.words(self.folder / "none", "--arch", "sm_80"))[0], 2)

    def test_gpus_by_name(self):
        report = self.warm(self.manifest(line()), "--gpu", "h100,a100,h200", "--arch", "sm_80,sm_90a,sm_89")
        self.assertEqual([(each["gpu"], each["arch"]) for each in report["lines"]],
                         [("h100", "sm_90a"), ("a100", "sm_80"), ("h200", "sm_90a"), (None, "sm_89")])
        self.assertEqual((report["compiled"], [each["shared"] for each in report["lines"]]), (3, [0, 0, 1, 0]))

    def test_a_failure_does_not_stop_the_rest(self):
        broken = {"op": "flash_attention", "tensors": {
            "q": ["bf16", [-1, -1, 2, 64]], "k": ["bf16", [-1, -1, 2, 64]], "v": ["bf16", [-1, -1, 2, 64]],
            "out": ["bf16", [-1, -1, 2, 64]], "lse": ["f32", [-1, 2, -1]]},
            "mods": {"score_mod": "__device__ float score_mod(float s, Nothing n) { return s; }"}}
        report = self.warm(self.manifest(line(W=9), broken, line()), "--arch", "sm_90a", code=3)
        self.assertEqual((report["compiled"], report["failed"], [each["line"] for each in report["errors"]]), (1, 2, [1, 2]))
        self.assertIn("W = 9", report["errors"][0]["error"])
        self.assertIn("score_mod", report["errors"][1]["error"])
        status, out, err = self.lathe(*self.words(self.manifest(line(W=9), line()), "--arch", "sm_90a"))
        self.assertEqual(status, 3)
        self.assertRegex(err, "line 1 for sm_90a: .*W = 9")
        self.assertIn("0 compiled, 1 found in the cache; 1 lines failed", out)

    def stopped(self, how):
        """Sends `how` to a warming of 42 kernels after the first; gives exit code, errors, entries and the lines."""
        lines = [line(W=W, dtype=dtype, activation=activation) for W in range(2, 9) for dtype in ("f32", "f16", "bf16")
                 for activation in ("none", "silu")]
        # No kernel is found among the tests' own: NVRTC handles SIGINT itself during its first compile, which is over then.
        process = self.start([harness.PROGRAM, *self.words(self.manifest(*lines), "--arch", "sm_90a", "--jobs", "1")],
                             LATHE_TEST_NVRTC_MEMO=str(self.folder / "memo"))
        cache = self.folder / "cache"
        while not list(cache.rglob("*.lathe")) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(how)
        out, err = process.communicate(timeout=300)
        entries = list(cache.rglob("*.lathe"))
        self.assertGreater(len(entries), 0)
        self.assertLess(len(entries), len(lines))
        # In order, and the next run finds them.
        report = self.warm(self.manifest(*lines[:len(entries)]), "--arch", "sm_90a")
        self.assertEqual((report["compiled"], report["hits"]), (0, len(entries)))
        self.assertEqual(self.lathe("cache", "verify", "--cache-dir", cache)[0], 0)
        return process.returncode, out, err, len(entries)

    def test_interrupted(self):
        status, out, err, done = self.stopped(signal.SIGINT)
        self.assertEqual(status, 130, err)
        self.assertIn("interrupted", err)
        self.assertRegex(out, rf"42 lines, 42 kernels: {done} compiled, 0 found in the cache; 0 lines failed")
        self.assertEqual([path for path in (self.folder / "cache").rglob("*") if path.name.startswith(".tmp")], [])

    def test_killed(self):
        self.assertEqual(self.stopped(signal.SIGKILL)[0], -signal.SIGKILL)

    def test_what_was_not_cached_can_be_warmed(self):
        """The problems of a run that finds nothing are recorded; warmed, the same run needs no compiler."""
        record = self.folder / "record.jsonl"
        score = self.folder / "score.cuh"
        score.write_text("// \"a\\b\"\n__device__ float score_mod(float s, int batch, int head, int q, int k, Captures c) {\n"
                         "  return s - 0.5f * (q - k);\n}\n")
        ranks = [["--ranks", "2", *more] for more in ([], ["--rotate", "allgather"], ["--rotate", "dispatch"], ["--rotate", "heads"])]
        square = {**attention(), "q": tensor("F16", [2, 7, 4, 16])}
        calls = [("flash_attention", square, options, flags)
                 for options, flags in [((), flags) for flags in ranks] + [((f"score_mod={score}",), [])]]
        calls.append(("sparse_flash_attention", sparse(), ("scale=0.25",), ["--ranks", "2"]))
        for op, tensors, options, flags in calls:
            save(self.input, tensors)
            words = self.command(op, options=options, flags=flags)
            status, _, err = self.lathe(*words[1:], LATHE_RECORD=str(record), LATHE_CACHE_DIR=str(self.folder / "cache"), **NO_COMPILER)
            self.assertEqual(status, 3, err)
        self.assertEqual(record.stat().st_mode & 0o777, 0o600)
        self.assertEqual(len(record.read_text().splitlines()), len(calls))
        score.unlink()
        self.warm(record, "--arch", "sm_90a")
        score.write_text(json.loads(record.read_text().splitlines()[4])["mods"]["score_mod"])
        for op, tensors, options, flags in calls:
            report, _ = self.run_op(op, tensors, options, flags, LATHE_CACHE_DIR=str(self.folder / "cache"), **NO_COMPILER)
            self.assertEqual(report["compiled"], 0)

    def test_no_bundle_without_all_kernels(self):
        bundle = self.folder / "kernels.bundle"
        for lines, code, pattern in (((line(), line(W=9)), 3, "is not written"), (("",), 2, "no problem")):
            status, _, err = self.lathe(*self.words(self.manifest(*lines), "--arch", "sm_80", "--bundle", bundle))
            self.assertEqual(status, code, err)
            self.assertRegex(err, pattern)
            self.assertFalse(bundle.exists())
        status, _, err = self.lathe(*self.words(self.manifest(line()), "--arch", "sm_80", "--bundle", self.folder / "none" / "x"))
        self.assertEqual(status, 2, err)  # before anything is compiled
        # Other architectures' entries of one directory go into one bundle, and nothing else of it.
        self.warm(self.manifest(line(W=3)), "--arch", "sm_80")
        report = self.warm(self.manifest(line()), "--arch", "sm_80,sm_90a", "--bundle", str(bundle))
        self.assertEqual((report["hits"], report["compiled"], report["bundle"]["entries"]), (1, 1, 2))
        first = bundle.read_bytes()
        self.warm(self.manifest(line()), "--arch", "sm_90a,sm_80", "--bundle", str(bundle))
        self.assertEqual(bundle.read_bytes(), first)
