# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What explain says: counts of the simulator against formulas, times by its clock, bounds by data sheets where the clock
knows no time, GPUs by name, and what it says without a simulator."""
import json
from xml.etree import ElementTree

from harness import Case, save, tensor

RATES = {"h100": 3.35e12, "h200": 4.8e12, "a100": 2.039e12}  # bytes a second, from the data sheets
NUMBERS = {"launches", "blocks", "sampled_blocks", "memory_bytes", "l2_bytes", "shared_bytes", "shared_passes", "shared_conflicts",
           "issue_slots", "tensor_ops"}
CONV = {"x": "bf16:1,4096,1024", "weight": "bf16:1024,4"}
TINY = {"x": "f32:1,64,64", "weight": "f32:64,4"}
ATTENTION = {"q": "bf16:1,1024,8,32", "k": "bf16:1,1024,4,32", "v": "bf16:1,1024,4,32"}
PARTIAL = {"out": "f32:512,4,32", "lse": "f32:4,512"}
KDA = {"q": "bf16:1,256,4,32", "k": "bf16:1,256,4,32", "v": "bf16:1,256,4,32", "g": "bf16:1,256,4,32", "beta": "bf16:1,256,4"}
SPARSE = {"q": "bf16:64,16,64", "k": "bf16:256,1,64", "indices": "i32:64,1,128"}
PAGES = {"q": "bf16:4,1,8,32", "k_cache": "bf16:64,16,2,32", "v_cache": "bf16:64,16,2,32", "block_table": "i32:4,16",
         "cache_seqlens": "i32:4"}
# One of every family; whether its formula tells what memory gives, rather than what L2 is asked for.
FAMILIES = (
    ("causal_conv1d", {**CONV, "dy": CONV["x"]}, (), True),
    ("causal_conv1d_update", {"x": "bf16:64,1024", "weight": "bf16:1024,4", "state": "bf16:64,1024,4"}, (), True),
    ("flash_attention", ATTENTION, ("causal=1",), True),
    ("flash_attention_decode", PAGES, (), True),
    ("flash_attention_block", {"q": "bf16:512,4,32", "k": "bf16:512,4,32", "v": "bf16:512,4,32", **PARTIAL, "ranges": "i32:1,7"}, (), True),
    ("lse_merge", {**PARTIAL, "block_out": "f32:512,4,32", "block_lse": "f32:4,512"}, (), True),
    ("kda", KDA, (), True),
    ("kda_recurrent", KDA, (), False),
    ("kda_decode", {"qkv": "bf16:8,384", "conv_weight": "bf16:384,4", "conv_pool": "bf16:8,384,3", "g": "f32:8,2,64", "beta": "bf16:8,2",
                    "state_pool": "f32:8,2,64,64", "state_indices": "i32:8"}, (), True),
    ("sparse_flash_attention", SPARSE, ("scale=0.1",), True),
    ("shard", {"x": "bf16:512,1,64", "indices": "i32:256"}, (), True),
)


def words(tensors, options=()):
    out = [word for name, text in tensors.items() for word in ("--tensor", f"{name}={text}")]
    return out + [word for option in options for word in ("--set", option)]


class ExplainCases(Case):
    def explain(self, op, tensors, *flags, options=(), **env):
        status, out, err = self.lathe("explain", op, *words(tensors, options), *flags, "--json", **env)
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_the_clock_replays_each_launch(self):
        report = self.explain("flash_attention", ATTENTION, "--gpu", "h100", "--clock", options=("causal=1",))
        (clock,) = report["clock"]
        self.assertEqual((clock["gpu"], report["counted"]["total"]["launches"]), ("h100", sum(k["launches"] for k in clock["kernels"])))
        self.assertIn(clock["from"], ("sass", "ptx"))
        for kernel in clock["kernels"]:
            self.assertEqual(kernel["stuck"], 0)
            self.assertAlmostEqual(sum(kernel["stalls"].values()), 1, places=5)
            self.assertTrue(all(0 <= share <= 1.001 for share in kernel["use"].values()), kernel["use"])
            # No resource works faster than its rate, which the counts give too.
            alone = next(k["alone"] for k in report["counted"]["kernels"] if k["kernel"] == kernel["kernel"])
            self.assertGreater(kernel["microseconds_of_all"], 0.9 * alone["tensor cores"])
            self.assertTrue(kernel["lines"])
        self.assertEqual(self.explain("flash_attention", ATTENTION, "--gpu", "h100", "--clock", options=("causal=1",))["clock"], report["clock"])

    def test_pictures_of_the_clock(self):
        name = str(self.folder / "warps-")
        self.explain("flash_attention", ATTENTION, "--gpu", "h100", "--clock", "--picture", name)
        root = ElementTree.parse(name + "h100-0.svg").getroot()
        rows = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        self.assertTrue({"consumer 0, warp 0", "consumer 1, warp 7", "wgmma"} <= rows, rows)
        with open(name + "h100-0.json", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertTrue(all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans))
        named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M"}
        self.assertEqual(named, {(event["pid"], event["tid"]) for event in spans})

    def test_what_the_clock_does_not_know(self):
        for flags, said in ((("--gpu", "l4", "--clock"), "a100, h100 and h200"),
                            (("--gpu", "h100", "--picture", "x"), "--clock")):
            status, out, err = self.lathe("explain", "causal_conv1d", *words(TINY), *flags)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn(said, err)

    def assert_counted(self, report):
        """Every member is there and the whole is the sum of its parts."""
        counted = report["counted"]
        self.assertIsNotNone(counted, report["not_counted"])
        self.assertEqual(report["not_counted"], "")
        total, kernels = counted["total"], counted["kernels"]
        self.assertEqual(total["launches"], report["estimate"]["launches"])
        for name in NUMBERS:
            self.assertEqual(total[name], sum(kernel[name] for kernel in kernels), name)
        for name in total["alone"]:
            self.assertAlmostEqual(total["alone"][name], sum(kernel["alone"][name] for kernel in kernels), places=3)
        for resource in ("issue slots", "shared memory", "tensor cores", "L2", "memory", "launch"):
            self.assertIn(resource, total["alone"])
        for kernel in kernels:
            self.assertEqual(kernel["name"], report["kernels"][kernel["kernel"]]["name"])
            self.assertGreaterEqual(kernel["microseconds"], kernel["alone"][kernel["bound"]])
            self.assertLessEqual(kernel["sampled_blocks"], kernel["blocks"])
            self.assertGreater(kernel["issue_slots"], 0)
            if report["arch"] == "sm_90a" and kernel["launches"] == 1:
                self.assert_rates_of_hopper(kernel)
        self.assertAlmostEqual(total["microseconds"], sum(kernel["microseconds"] for kernel in kernels), places=3)
        self.assert_time(report, total)
        return total

    def assert_time(self, report, total):
        """One time: the clock's where it knows the GPU, and it is not far below the data sheet's bound; else that bound."""
        prediction, gpu = report["prediction"], report["estimate"]["gpu"]
        self.assertEqual(prediction["gpu"], gpu)
        if gpu in RATES:
            (clock,) = report["clock"]
            self.assertEqual((prediction["from"], prediction["microseconds"]), ("clock", clock["microseconds"]))
            self.assertEqual(sum(kernel["launches"] for kernel in clock["kernels"]), total["launches"])
            self.assertGreater(prediction["microseconds"], 0.9 * total["microseconds"])
            self.assertIn("a prediction by the simulator's clock", prediction["sentence"])
        else:
            self.assertNotIn("clock", report)
            self.assertEqual((prediction["from"], prediction["microseconds"]), ("counts", total["microseconds"]))
            self.assertIn("the least by the data sheet", prediction["sentence"])

    def assert_rates_of_hopper(self, kernel):
        """A multiprocessor issues 4 instructions, passes once over shared memory and multiplies 4096 times a cycle; L2 gives 5120 bytes."""
        busy = min(kernel["blocks"], 132)
        for resource, cycles in (("issue slots", kernel["issue_slots"] / 4 / busy), ("shared memory", kernel["shared_passes"] / busy),
                                 ("tensor cores", kernel["tensor_ops"] / 4096 / busy), ("L2", kernel["l2_bytes"] / 5120)):
            self.assertAlmostEqual(kernel["alone"][resource] * 1830, cycles, delta=2, msg=resource)
        self.assertEqual(kernel["shared_passes"] > 0, kernel["shared_bytes"] > 0)  # lanes that read the same share a pass
        self.assertGreaterEqual(kernel["l2_bytes"], kernel["memory_bytes"] / 1.1)

    def assert_agrees(self, op, tensors, options, arch, memory):
        with self.subTest(op=op, arch=arch):
            report = self.explain(op, tensors, "--arch", arch, options=options)
            total, estimate = self.assert_counted(report), report["estimate"]
            self.assertAlmostEqual(total["tensor_ops"], estimate["tensor_ops"], delta=0.1 * estimate["tensor_ops"])
            if memory:
                self.assertAlmostEqual(total["memory_bytes"], estimate["bytes"], delta=0.1 * estimate["bytes"])

    def test_every_family(self):
        for op, tensors, options, memory in FAMILIES:
            self.assert_agrees(op, tensors, options, "sm_90a", memory)

    def test_every_family_on_sm_80(self):
        for op, tensors, options, memory in FAMILIES:
            if op in ("causal_conv1d", "flash_attention"):
                self.assert_agrees(op, tensors, options, "sm_80", memory)

    def test_backward(self):
        rows, sums = "bf16:512,4,16", "f32:512,4,16"
        block = {"q": rows, "k": rows, "v": rows, "dout": rows, "lse": "f32:4,512", "delta": "f32:4,512", "dq": sums, "dk": sums, "dv": sums,
                 "ranges": "i32:1,7"}
        self.assert_agrees("flash_attention_block_bwd", block, ("first=1",), "sm_90a", False)

    def test_data_sheets(self):
        reports = self.explain("causal_conv1d", {"x": "bf16:8,8192,4096", "weight": "bf16:4096,4"}, "--gpu", ",".join(RATES))["gpus"]
        self.assertEqual([report["prediction"]["gpu"] for report in reports], list(RATES))
        self.assertEqual([report["arch"] for report in reports], ["sm_90a", "sm_90a", "sm_80"])
        self.assertEqual(reports[0]["kernels"][0]["key"], reports[1]["kernels"][0]["key"])
        for report in reports:
            total = self.assert_counted(report)
            self.assertLess(total["sampled_blocks"], total["blocks"] / 100)
            self.assertEqual((total["bound"], report["prediction"]["bound"]), ("memory", "memory"))
            rate = RATES[report["prediction"]["gpu"]]
            self.assertAlmostEqual(total["alone"]["memory"] * rate * 1e-6 / total["memory_bytes"], 1, places=3)
            # What memory takes, a launch and one way to memory and back.
            self.assertLess(total["microseconds"] - total["alone"]["memory"], 4)
            # The clock gives large copies 85 % of the data sheet's rate.
            self.assertGreater(report["prediction"]["microseconds"], total["alone"]["memory"])

    def test_side_by_side(self):
        status, out, err = self.lathe("explain", "causal_conv1d", *words(CONV), "--gpu", "h100,a100,l4,b200")
        self.assertEqual((status, err), (0, ""))
        lines = out.splitlines()
        self.assertIn(["h100", "a100", "l4", "b200"], [line.split() for line in lines])
        bounds = next(line.split() for line in lines if line.startswith("bound"))
        self.assertEqual(bounds[3:], ["memory", "memory"])
        number = r" +[0-9.]+"
        self.assertRegex(out, rf"time, us by the clock{number}{number} +- +-\n")
        self.assertRegex(out, rf"time, us at least by the data sheet +- +-{number}{number}\n")
        self.assertRegex(out, rf"memory alone, us by the data sheet +- +-{number}{number}\n")
        self.assertRegex(out, r"h100, a100: a prediction by the simulator's clock, from (PTX|machine code)\n")
        self.assertRegex(out, r"\nl4: the least by the data sheet for what the simulator counted, ")
        self.assertRegex(out, r"b200: the least by the data sheet for what formulas count, .*\(the simulator has no b200\)")
        status, out, err = self.lathe("explain", "causal_conv1d", *words(CONV), "--gpu", "h100,h200")
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn("data sheet", out)

    def test_words(self):
        status, out, err = self.lathe("explain", "causal_conv1d", *words({**CONV, "dy": CONV["x"]}), "--gpu", "h200")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"counted on the simulator, \d+ of \d+ thread blocks")
        for line in ("issue slots +[0-9,]+ instructions", "shared memory +[0-9,]+ bytes in [0-9,]+ passes, [0-9,]+ of them for conflicts",
                     "us, by the clock +longest +all ", "causal_conv1d_bwd x1 +[0-9.]+ +[0-9.]+ ",
                     r"\ntime +[0-9.]+ us on h200, bound by \w+\n +a prediction by the simulator's clock"):
            self.assertRegex(out, line)
        self.assertNotIn("data sheet", out)
        status, out, err = self.lathe("explain", "causal_conv1d", *words({**CONV, "dy": CONV["x"]}), "--gpu", "l4")
        self.assertEqual((status, err), (0, ""))
        for line in ("us by the data sheet +issue slots .* at least +bound", r"all +[0-9. ]+ memory\n",
                     r"\ntime +at least [0-9.]+ us on l4, bound by memory\n +the least by the data sheet"):
            self.assertRegex(out, line)

    def test_without_a_simulator(self):
        report = self.explain("causal_conv1d", CONV, LATHE_SIM_DIR="/nowhere")
        self.assertIsNone(report["counted"])
        self.assertIn("/nowhere", report["not_counted"])
        self.assertEqual((report["prediction"]["from"], report["prediction"]["bound"]), ("formulas", "memory"))
        self.assertEqual(report["prediction"]["microseconds"], report["estimate"]["microseconds"])
        status, out, err = self.lathe("explain", "causal_conv1d", *words(CONV), LATHE_SIM_DIR="/nowhere")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, "not counted: .*/nowhere")
        self.assertIn("instructions and shared memory left out", out)

    def test_counts_that_blocks_left_out_would_have_cleared(self):
        """A deterministic backward in chunks of rows builds an index from counts that the chunk before must leave 0."""
        rows = "bf16:2048,16,64"
        report = self.explain("sparse_flash_attention", {"q": rows, "k": "bf16:2048,1,64", "indices": "i32:2048,1,1024", "dout": rows},
                              "--gpu", "h100", options=("scale=0.1", "deterministic=1"))
        self.assertIsNone(report["counted"])
        self.assertEqual(report["not_counted"], "a kernel goes by what thread blocks that were left out would have written")
        self.assertEqual(report["prediction"]["from"], "formulas")

    def test_formulas(self):
        report = self.explain("causal_conv1d", TINY, "--formulas")
        self.assertIsNone(report["counted"])
        self.assertEqual((report["prediction"]["from"], report["prediction"]["bound"]), ("formulas", "launch"))
        report = self.explain("causal_conv1d", {"x": "f32:1,-1,64", "weight": "f32:64,4"})
        self.assertEqual((report["estimate"], report["counted"], report["prediction"]), (None, None, None))
        self.assertEqual(report["not_counted"], "an extent is open")

    def test_nothing_to_do(self):
        report = self.explain("causal_conv1d", {"x": "f32:1,0,64", "weight": "f32:64,4"})
        self.assertEqual((report["counted"]["total"]["launches"], report["counted"]["kernels"]), (0, []))
        self.assertEqual(self.lathe("explain", "causal_conv1d", *words({"x": "f32:1,0,64", "weight": "f32:64,4"}))[0], 0)

    def test_the_environment_of_the_caller(self):
        """Its own reports are about its own runs; another device than the one that is asked for is not."""
        files = {name: self.folder / name for name in ("LATHE_SIM_REPORT", "LATHE_SIM_COUNTERS", "LATHE_SIM_TIMELINE", "LATHE_RECORD")}
        plain = self.explain("causal_conv1d", TINY, "--gpu", "h200")
        odd = self.explain("causal_conv1d", TINY, "--gpu", "h200", LATHE_SIM_GPU="a100", LATHE_SIM_CHECK="abacus", LATHE_SIM_ARCH="sm_80",
                           **{name: str(path) for name, path in files.items() if name != "LATHE_RECORD"})
        self.assertEqual(odd["counted"], plain["counted"])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_data_that_is_there(self):
        """Lengths from a file decide how much there is to do; without one they are even."""
        tensors = {name: tensor("BF16", shape) for name, shape in (("q", [256, 1, 16]), ("k", [256, 1, 16]), ("v", [256, 1, 16]))}
        shapes = {"q": "bf16:256,1,16", "k": "bf16:256,1,16", "v": "bf16:256,1,16", "cu_seqlens_q": "i32:3", "cu_seqlens_k": "i32:3"}
        even = self.assert_counted(self.explain("flash_attention", shapes))
        for offsets, bigger in (([0, 128, 256], False), ([0, 256, 256], True)):
            for name in ("cu_seqlens_q", "cu_seqlens_k"):
                tensors[name] = tensor("I32", [3], values=offsets)
            save(self.input, tensors)
            status, out, err = self.lathe("explain", "flash_attention", "--input", self.input, "--json")
            self.assertEqual((status, err), (0, ""))
            counted = self.assert_counted(json.loads(out))
            if bigger:
                self.assertGreater(counted["tensor_ops"], 1.5 * even["tensor_ops"])
            else:
                self.assertEqual(counted["tensor_ops"], even["tensor_ops"])
        tensors["cu_seqlens_q"] = tensor("I32", [3], values=[0, 300, 256])
        save(self.input, tensors)
        status, out, err = self.lathe("explain", "flash_attention", "--input", self.input, "--json")
        self.assertEqual(status, 0, err)
        self.assertRegex(json.loads(out)["not_counted"], "cu_seqlens_q decreases from 300 to 256")

    def test_a_mod(self):
        """A user's text is counted as it is compiled. Of float32 there is one family of kernels, with mods and without."""
        text = self.folder / "far.cuh"
        text.write_text("__device__ float score_mod(float score, int b, int h, int q, int k) {\n"
                        "  for (int i = 0; i < 8; ++i) score = __fmaf_rn(score, score, (float)(q ^ (k + i)));\n  return score;\n}\n")
        small = {"q": "f32:1,128,1,16", "k": "f32:1,128,1,16", "v": "f32:1,128,1,16"}
        plain = self.assert_counted(self.explain("flash_attention", small))
        changed = self.assert_counted(self.explain("flash_attention", small, options=[f"score_mod={text}"]))
        self.assertGreater(changed["issue_slots"], plain["issue_slots"] + 128 * 128 * 8 / 32)
        self.assertEqual(changed["tensor_ops"], plain["tensor_ops"])

    def test_families(self):
        """Hopper's kernel where it covers the problem; elsewhere the portable one, and why."""
        long = {name: "bf16:1,512,1,64" for name in "qkv"}
        for tensors, env, family, reason in ((long, {}, "sm90", ""),
                                             ({name: "f32:1,512,1,64" for name in "qkv"}, {}, "portable", "not sm90: the elements are float32"),
                                             (long, {"LATHE_FAMILY": "portable"}, "portable", "not sm90: LATHE_FAMILY is portable")):
            with self.subTest(tensors=tensors, env=env):
                kernel, = self.explain("flash_attention", tensors, "--arch", "sm_90a", "--formulas", **env)["kernels"]
                self.assertEqual((kernel["family"], kernel["family_reason"]), (family, reason))
                status, out, err = self.lathe("explain", "flash_attention", *words(tensors), "--arch", "sm_90a", "--formulas", **env)
                self.assertEqual((status, err), (0, ""))
                self.assertIn("\n  family     " + ", ".join(filter(None, (family, reason))) + "\n", out)
        kernel, = self.explain("flash_attention", long, "--arch", "sm_100", "--formulas")["kernels"]
        self.assertEqual((kernel["family"], kernel["family_reason"]), ("portable", "not sm90: the architecture is not sm_90a"))
        kernel, = self.explain("causal_conv1d", TINY, "--arch", "sm_90a", "--formulas")["kernels"]
        self.assertEqual((kernel["family"], kernel["family_reason"]), ("portable", ""))  # there is no other

    def test_refuses(self):
        for flags, pattern in ((["--gpu", "abacus"], "'abacus'.*a100.*h100.*h200"), (["--gpu", "h100,,a100"], '"h100,,a100"'),
                               (["--gpu", "h100", "--arch", "sm_80"], "--arch"), (["--gpu", "h100", "--device", "sim"], '"sim".*none')):
            with self.subTest(flags=flags):
                self.assert_refused(self.lathe("explain", "causal_conv1d", *words(TINY), *flags), pattern)
        self.assert_refused(self.lathe("explain", "causal_conv1d", *words({**TINY, "x": "f32:1,-1,64"}), "--gpu", "h100,a100"), "every extent")
