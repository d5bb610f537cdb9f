# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The other verbs: check, demo, warm, explain, dump, doctor, cache."""
import json
import pathlib
import shutil
import tempfile

from harness import Case, attention, block, conv, load, save, tensor, update

X = ["--tensor", "x=bf16:1,-1,64", "--tensor", "weight=bf16:64,4"]


class ToolCases(Case):
    def test_check_finds_nothing(self):
        full = dict(bias=True, residual=True, state=True, backward=True, dfinal=True)
        options = ["activation=silu", "output_final_state=1"]
        for tensors, ranks in ((conv(B=2, T=33, D=17, **full), "1"), (conv(T=33, offsets=[0, 9, 9, 33], **full), "1"),
                               (conv(T=33, offsets=[0, 9, 9, 33], **full), "3")):
            for seed in ("0", "7"):
                with self.subTest(ranks=ranks, seed=seed):
                    _, plain = self.run_op("causal_conv1d", tensors, options, ["--ranks", ranks])
                    report, out = self.run_op("causal_conv1d", tensors, options, ["--ranks", ranks], verb="check",
                                              LATHE_SIM_SEED=seed)
                    self.assertEqual(report["findings"], [])
                    self.assertGreater(report["launches"], 0)
                    self.assertEqual(report["seed"], seed)
                    self.assertEqual(out, plain)
        save(self.input, update())
        status, out, err = self.lathe(*self.command("causal_conv1d_update", verb="check")[1:], LATHE_SIM_SEED="3")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"^0 findings in \d+ launches \(seed 3\)\n$")

    def test_check_block_step(self):
        for tensors in (block(), block(positions=True)):
            for first in ("first=0", "first=1"):
                options = [first, "causal=1"]
                _, plain = self.run_op("flash_attention_block", tensors, options)
                report, out = self.run_op("flash_attention_block", tensors, options, verb="check", LATHE_SIM_SEED="5")
                self.assertEqual(report["findings"], [])
                self.assertEqual(set(out), {"out", "lse"})
                self.assertEqual(out, plain)
            gradients = {"dout": tensor("BF16", [10, 4, 8]), "delta": tensor("F32", [4, 10]), "dq": tensor("F32", [10, 4, 16]),
                         "dk": tensor("F32", [9, 2, 16]), "dv": tensor("F32", [9, 2, 8])}
            inputs = {**{k: v for k, v in tensors.items() if k != "out"}, **gradients}
            for deterministic in ("0", "1"):
                report, out = self.run_op("flash_attention_block_bwd", inputs, [f"deterministic={deterministic}"], verb="check")
                self.assertEqual(report["findings"], [])
                self.assertEqual(set(out), {"dq", "dk", "dv"})
        for tensors in (block(batch=[2]), block(positions=True, batch=[2])):
            report, out = self.run_op("flash_attention_block", tensors, ["first=1"], verb="check")
            self.assertEqual(report["findings"], [])
            self.assertEqual({name: shape for name, (_, shape, _) in out.items()}, {"out": [2, 10, 4, 8], "lse": [2, 4, 10]})
        merge = {"out": tensor("F32", [10, 4, 8]), "lse": tensor("F32", [4, 10]), "sinks": tensor("F32", [4])}
        report, out = self.run_op("lse_merge", merge, ["output_rounded=1"], verb="check")
        self.assertEqual(report["findings"], [])
        self.assertEqual(report["launches"], 1)
        self.assertEqual({name: dtype for name, (dtype, _, _) in out.items()}, {"out": "F32", "lse": "F32", "rounded": "BF16"})
        rows = {"out": out["rounded"], "dout": gradients["dout"], "lse": out["lse"], "sinks": merge["sinks"]}
        report, out = self.run_op("flash_attention_delta", rows, verb="check")
        self.assertEqual(report["findings"], [])
        self.assertEqual({name: shape for name, (_, shape, _) in out.items()}, {"delta": [4, 10], "dsinks": [4]})

    def test_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            asked, answered = pathlib.Path(folder, "in.json"), pathlib.Path(folder, "out.json")
            asked.write_text('{"cases": [{"world_size": 2, "causal": 1, "balance": "none"}, {"world_size": 0, "causal": 1, "balance": "none"}]}')
            command = ("plan", "ring_schedule", "--input", str(asked), "--output", str(answered))
            status, out, err = self.lathe(*command)
            self.assertEqual((status, out, err), (0, "", ""))
            ring, refused = json.loads(answered.read_text())["cases"]
            self.assertEqual([step["mask"] for step in ring["steps"]], ["causal", "skip", "causal", "full"])
            self.assertIn("world_size is 0", refused["error"])
            answered.unlink()
            link = pathlib.Path(folder, "link")
            link.symlink_to(answered)
            for bad, part in (((*command[:4], "--output", str(link)), "a symbolic link"), (("plan", "rings", *command[2:]), "'rings'"),
                              ((*command[:2], "--input", folder + "/none", *command[4:]), "none\", which cannot be read"),
                              ((*command[:4], "--output", str(asked)), "the file of --input"),
                              ((*command[:4], "--output", folder), "a folder"),
                              ((*command, "--svg", str(answered)), "the file of --output")):
                status, out, err = self.lathe(*bad)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(part, err)
                self.assertFalse(answered.exists())

    def test_check_profile(self):
        save(self.input, conv(B=2, T=33, D=17))
        command = self.command("causal_conv1d", "check")[1:]
        status, out, err = self.lathe(*command, "--profile=3")
        self.assertEqual(status, 0, err)
        self.assertNotIn("data sheet", out)
        table, *clocks = out[out.index(" share"):].split("\n\nlaunch ")
        table = table.splitlines()
        self.assertEqual(len(table), 4)
        self.assertEqual(len(clocks), 1)
        self.assertRegex(clocks[0], r"^0  [0-9.]+ us on h100 by the clock, bound by ")
        self.assertRegex(clocks[0], r"\n  (all|role 0) +warps 0 to \d+: .*waits for ")
        shares = [float(line.split("%")[0]) for line in table[1:]]
        self.assertEqual(shares, sorted(shares, reverse=True))
        status, out, err = self.lathe(*command, "--profile", "--json")
        self.assertEqual(status, 0, err)
        profile = json.loads(out)["profile"]
        self.assertEqual(len(profile["lines"]), 20)
        self.assertGreater(profile["warp_instructions"], sum(line["executions"] for line in profile["lines"]) / 2)
        self.assertEqual([each["gpu"] for each in profile["clock"]], ["h100"])
        self.assertGreater(profile["clock"][0]["microseconds"], 0)
        self.assertTrue(all(line["thread_instructions"] <= 32 * line["executions"] for line in profile["lines"]))
        status, out, err = self.lathe(*command, "--json")
        self.assertNotIn("profile", json.loads(out))
        status, out, err = self.lathe(*command, "--profile=3", "--arch", "sm_89", LATHE_SIM_GPU="l4")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"at least [0-9.]+ us by the data sheet of l4 \(\d+ cycles\), bound: ")
        self.assertNotIn("by the clock", out)

    def test_simulated_device_is_the_environments(self):
        save(self.input, conv())
        command = (*self.command("causal_conv1d", "check")[1:], "--json")
        for variables, words in (({}, ()), ({"LATHE_SIM_GPU": "a100"}, ()), ({"LATHE_SIM_ARCH": "sm_86"}, ()),
                                 ({"LATHE_SIM_GPU": "a100"}, ("--arch", "sm_80"))):
            status, out, err = self.lathe(*command, *words, **variables)
            self.assertEqual(status, 0, err)
            expected = "sm_80" if "LATHE_SIM_GPU" in variables else variables.get("LATHE_SIM_ARCH", "sm_90a")
            self.assertEqual(json.loads(out)["arch"], expected)

    def test_check_refuses_what_run_refuses(self):
        save(self.input, conv(W=9))
        self.assert_refused(self.lathe(*self.command("causal_conv1d", verb="check")[1:]), "W = 9")
        save(self.input, conv())
        self.assert_refused(self.lathe(*self.command("causal_conv1d", "check")[1:], "--device", "cuda"), "--device")

    def test_check_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as place:
            save(self.input, conv())
            self.assertEqual(self.lathe(*self.command("causal_conv1d", "check")[1:], TMPDIR=place)[0], 0)
            self.assertEqual(list(pathlib.Path(place).iterdir()), [])

    def test_demo(self):
        status, out, err = self.lathe("demo", "--device", "sim", "--json")
        self.assertEqual(status, 0, err + out)
        report = json.loads(out)
        self.assertTrue(report["ok"])
        self.assertGreater(report["compiled"], 0)
        self.assertEqual({c["op"] for c in report["cases"]}, {
            "causal_conv1d", "causal_conv1d_update", "flash_attention", "flash_attention_decode", "kda", "kda_decode",
            "kda_recurrent", "sparse_flash_attention"})
        status, out, err = self.lathe("demo", "--device", "sim")
        self.assertEqual(status, 0, err + out)
        self.assertRegex(out, "all results are right: .* 0 compiled now")

    def manifest(self, *lines):
        path = self.folder / "manifest.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    def test_explain(self):
        status, out, err = self.lathe("explain", "causal_conv1d", *X, "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual(report["arch"], "sm_90a")
        kernel = report["kernels"][0]
        self.assertEqual(kernel["name"], "causal_conv1d")
        self.assertIn("bf16", kernel["spec"])
        self.assertGreater(kernel["registers"], 0)
        self.assertEqual(kernel["spill_bytes"], 0)
        self.assertIsNone(report["estimate"])
        save(self.input, conv(B=2, T=64, D=64, dtype="BF16"))
        status, out, err = self.lathe("explain", "causal_conv1d", "--input", self.input, "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual(report["kernels"][0]["key"], kernel["key"])
        self.assertEqual(report["kernels"][0]["from"], "disk")
        # x and y once, the weight once.
        self.assertEqual(report["estimate"]["minimum_bytes"], 2 * 2 * 64 * 64 * 2 + 64 * 4 * 2)
        status, out, err = self.lathe("explain", "causal_conv1d", *X)
        self.assertEqual(status, 0, err)
        for word in (kernel["spec"], "not in any key: B, T,", "registers", "spills"):
            self.assertIn(word, out)

    def test_attention(self):
        open_shapes = {"q": ["bf16", [-1, -1, 4, 64]], "k": ["bf16", [-1, -1, 2, 64]], "v": ["bf16", [-1, -1, 2, 32]]}
        shapes = [word for name, (dtype, extents) in open_shapes.items()
                  for word in ("--tensor", f"{name}={dtype}:{','.join(map(str, extents))}")]
        results = {"out": ["bf16", [-1, -1, 4, 32]], "lse": ["f32", [-1, 4, -1]]}
        line = {"op": "flash_attention", "tensors": {**open_shapes, **results}, "options": {"causal": True, "softmax_scale": 0.5}}
        status, out, err = self.lathe("warm", self.manifest(line), "--arch", "sm_90a", "--json", "--jobs", "1")
        self.assertEqual(status, 0, err)
        # Neither scale nor lengths are in the key; the mask class is.
        for options, found in ((["--set", "causal=1"], "disk"), (["--set", "window_left=5"], "disk"), ([], "compiler")):
            status, out, err = self.lathe("explain", "flash_attention", *shapes, *options, "--json")
            self.assertEqual(status, 0, err)
            report = json.loads(out)
            # The heads of a group share tiles, whatever the lengths: one kernel.
            self.assertEqual([kernel["from"] for kernel in report["kernels"]], [found])
            self.assertEqual(report["varies"], ["B", "Sq", "Sk"])
            self.assertIsNone(report["estimate"])
        shapes = ["--tensor", "q=bf16:3,100,4,64", "--tensor", "k=bf16:3,200,2,64", "--tensor", "v=bf16:3,200,2,32"]
        status, out, err = self.lathe("explain", "flash_attention", *shapes, "--formulas", "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual(report["kernels"][0]["from"], "disk")
        # q, out, lse; k, v. Two products over every pair.
        least = 3 * (100 * 4 * (64 * 2 + 32 * 2 + 4) + 200 * 2 * (64 + 32) * 2)
        self.assertEqual(report["estimate"]["minimum_bytes"], least)
        self.assertEqual(report["estimate"]["flops"], 3 * 4 * 100 * 200 * 2 * (64 + 32))
        status, source, err = self.lathe("dump", "flash_attention", *shapes)
        self.assertEqual(status, 0, err)
        self.assertIn("attention_forward", source)
        shapes += ["--tensor", "dout=bf16:3,100,4,32"]
        status, out, err = self.lathe("explain", "flash_attention", *shapes, "--formulas", "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        names = [kernel["name"] for kernel in report["kernels"]]
        self.assertEqual(sorted(set(names)), ["attention_backward_prepare", "attention_backward_warpgroups",
                                              "attention_backward_warpgroups_finish", "attention_forward_warpgroups"])
        self.assertEqual(report["estimate"]["launches"], 4)
        # Two products forward, and backward three of width 64 and two of width 32.
        self.assertEqual(report["estimate"]["flops"], 3 * 4 * 100 * 200 * 2 * (4 * 64 + 3 * 32))

    def test_alignment(self):
        """Tensors that begin 2 or 4 bytes off: the bits of the portable kernels, nothing found, and told by explain."""
        inputs = {**attention(dtype="BF16"), "dout": tensor("BF16", [2, 5, 4, 8])}
        _, plain = self.run_op("flash_attention", inputs, ["deterministic=1"], LATHE_FAMILY="portable")
        for alignment in ("2", "4"):
            flags = ["--alignment", alignment]
            report, out = self.run_op("flash_attention", inputs, ["deterministic=1"], flags, verb="check")
            self.assertEqual(report["findings"], [])
            self.assertEqual(out, plain)
            self.assertEqual({kernel["family"] for kernel in report["kernels"]}, {"portable"})
        shapes = ["--tensor", "q=bf16:1,64,4,64", "--tensor", "k=bf16:1,64,4,64", "--tensor", "v=bf16:1,64,4,64"]
        status, out, err = self.lathe("explain", "flash_attention", *shapes, "--alignment", "8", "--json", "--gpu", "h100")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        (kernel,) = report["kernels"]
        self.assertEqual((kernel["name"], kernel["family"]), ("attention_forward", "portable"))
        self.assertIn("aligned to fewer than 16 bytes", kernel["family_reason"])
        self.assertIn(" alignment=8 ", kernel["spec"])
        self.assertIsNotNone(report["counted"])
        for verb in (["explain", "flash_attention", *shapes], self.command("flash_attention")[1:]):
            status, out, err = self.lathe(*verb, "--alignment", "3")
            self.assertEqual((status, out), (2, ""))
            self.assertIn("alignment is 3; allowed are 1, 2, 4, 8 and 16 bytes", err)

    def test_attention_saved_forward(self):
        inputs = {**attention(dtype="BF16"), "dout": tensor("BF16", [2, 5, 4, 8]), "dlse": tensor("F32", [2, 4, 5]),
                  "sinks": tensor("F32", [4])}
        _, joined = self.run_op("flash_attention", inputs, ["deterministic=1"])
        self.assertEqual(sorted(joined), ["dk", "dq", "dsinks", "dv", "lse", "out"])
        saved = {name: joined.pop(name) for name in ("out", "lse")}
        _, apart = self.run_op("flash_attention", {**inputs, **saved}, ["deterministic=1", "saved_forward=1"])
        self.assertEqual(apart, joined)

    def test_estimate(self):
        shapes = ["--tensor", "q=bf16:1,4096,8,128", "--tensor", "k=bf16:1,4096,8,128",
                  "--tensor", "v=bf16:1,4096,8,128", "--set", "causal=1"]
        times = {}
        for gpu, arch in (("h100", "sm_90a"), ("h200", "sm_90a"), ("sm_90a", "sm_90a"), ("a100", "sm_80")):
            status, out, err = self.lathe("explain", "flash_attention", *shapes, "--arch", gpu, "--formulas", "--json")
            self.assertEqual(status, 0, err)
            report = json.loads(out)
            estimate = times[gpu] = report["estimate"]
            self.assertEqual(report["arch"], arch)
            self.assertEqual(estimate["bound"], "tensor")
            # The keys and values of a head are 2 MiB, which every cache holds.
            self.assertEqual(estimate["bytes"], estimate["minimum_bytes"])
            self.assertGreater(estimate["tensor_ops"], estimate["flops"])
            self.assertLess(estimate["tensor_ops"], 1.1 * estimate["flops"])
            self.assertEqual(estimate["microseconds"], estimate["tensor_microseconds"])
        self.assertEqual([times[gpu]["gpu"] for gpu in times], ["h100", "h200", "h100", "a100"])
        self.assertEqual(times["sm_90a"], times["h100"])
        self.assertLess(times["h200"]["memory_microseconds"], times["h100"]["memory_microseconds"])
        self.assertAlmostEqual(times["a100"]["tensor_microseconds"] * 312e6, times["a100"]["tensor_ops"], delta=1e3)
        status, out, err = self.lathe("explain", "flash_attention", *shapes, "--arch", "h200", "--formulas")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"at least [0-9.]+ us on h200, bound by tensor cores\n +the least by the data sheet for what formulas count")

    def test_explain_refuses(self):
        for words, pattern in ((["--tensor", "x"], "expected name=dtype"), (["--tensor", "x=f9:1"], "dtype is"),
                               (["--tensor", "x=f32:1,a,3"], "extent is"), ([], "neither --input nor --tensor"),
                               ([*X, "--tensor", "x=f32:1"], '"x" is given twice'),
                               ([*X, "--device", "abacus"], "abacus"), ([*X, "--arch", "sm_7"], "sm_7")):
            with self.subTest(words=words):
                self.assert_refused(self.lathe("explain", "causal_conv1d", *words), pattern)

    def test_dump(self):
        status, source, err = self.lathe("dump", "causal_conv1d", *X)
        self.assertEqual(status, 0, err)
        self.assertIn("__global__", source)
        self.assertLess(len(source.splitlines()), 60)
        status, ptx, err = self.lathe("dump", "causal_conv1d", *X, "--what", "ptx", "--kernel", "causal_conv1d")
        self.assertEqual(status, 0, err)
        self.assertRegex(ptx, r"\.target\s+sm_90a")
        status, key, err = self.lathe("dump", "causal_conv1d", *X, "--what", "key", "--arch", "sm_80")
        self.assertEqual(status, 0, err)
        self.assertIn("sm_80", key)
        self.assert_refused(self.lathe("dump", "causal_conv1d", *X, "--what", "abacus"), "abacus.*source, ptx, key, sass")
        self.assert_refused(self.lathe("dump", "causal_conv1d", *X, "--kernel", "fft"), "fft.*causal_conv1d")

    def test_doctor(self):
        status, out, err = self.lathe("doctor", "--json")
        self.assertEqual(status, 0, err)
        items = json.loads(out)["items"]
        self.assertTrue(any("nvrtc" in i["name"].lower() and i["state"] == "found" for i in items), items)
        self.assertTrue(all(i["state"] in ("found", "missing") for i in items), items)
        self.assertTrue(all(i["remedy"] for i in items if i["state"] == "missing"), items)
        self.assertEqual(self.lathe("doctor")[0], 0)

    def test_cache(self):
        place = self.folder / "cache"
        self.run_op("causal_conv1d", conv(), flags=["--cache-dir", place])
        status, out, err = self.lathe("cache", "stat", "--cache-dir", place, "--json")
        self.assertEqual(status, 0, err)
        about = json.loads(out)
        self.assertEqual(about["entries"], 1)
        self.assertGreater(about["bytes"], 1000)
        words = ["cache", "verify", "--cache-dir", place, "--json"]
        status, out, err = self.lathe(*words)
        self.assertEqual((status, json.loads(out)["removed"]), (0, 0), err)
        entry = max((p for p in place.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)
        status, out, err = self.lathe(*words)
        self.assertEqual((status, json.loads(out)["removed"]), (1, 1), err)
        self.assertEqual(len(json.loads(out)["problems"]), 1)
        self.assertEqual(self.lathe(*words)[0], 0)
        file = self.folder / "file"
        file.write_text("")
        self.assertEqual(self.lathe("cache", "stat", "--cache-dir", file)[0], 3)

    def test_help_and_version(self):
        self.assertRegex(self.lathe("--version")[1], r"^lathe \d+\.\d+\.\d+\n$")
        status, out, _ = self.lathe("--help")
        self.assertEqual(status, 0)
        for verb in ("demo", "run", "check", "warm", "explain", "dump", "doctor", "cache"):
            self.assertIn(verb, out)
            self.assertEqual(self.lathe(verb, "--help")[0], 0)
