# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe tune as a user sees it: what it tries and stores, and what later runs make of that."""
import json
import os
import pathlib
import re
import shutil

from harness import Case

BACKWARD = [word for name in ("q", "k", "v", "dout") for word in ("--tensor", f"{name}=bf16:1,64,1,64")]
CONV = ["--tensor", "x=bf16:1,48,64", "--tensor", "weight=bf16:64,4"]


class TuneCases(Case):
    def setUp(self):
        super().setUp()
        shutil.rmtree(pathlib.Path(self.cache) / "v1" / "tuned", ignore_errors=True)

    def database(self):
        return pathlib.Path(self.cache) / "v1" / "tuned" / "h100.txt"

    def tune(self, *words, code=0, **env):
        status, out, err = self.lathe("tune", *words, "--json", **env)
        self.assertEqual(status, code, err)
        return json.loads(out) if out else None

    def spec(self, **env):
        status, out, err = self.lathe("explain", "causal_conv1d", *CONV, "--device", "none", "--arch", "h100", "--json", **env)
        self.assertEqual(status, 0, err)
        explained = json.loads(out)
        return explained["kernels"][0]["spec"]

    def test_the_winner_is_stored_and_used(self):
        report = self.tune("causal_conv1d", *CONV, "--device", "sim")
        self.assertEqual((report["by"], report["gpu"], report["kernels"]), ("model", "h100", 1))
        self.assertEqual([c["reason"] for c in report["candidates"]], [""] * len(report["candidates"]))
        self.assertGreater(len(report["candidates"]), 3)
        winner, = [c for c in report["candidates"] if c["verdict"] in ("won", "default")]
        self.assertLessEqual(report["us"], report["default_us"])
        text = self.database().read_text()
        self.assertEqual(text.splitlines()[0], "lathe-tuned 1")
        self.assertIn(f"| {winner['choice']} | gpu=h100 arch=sm_90a sms=132 ", text)
        self.assertEqual(os.stat(self.database()).st_mode & 0o777, 0o600)
        self.assertIn(f" {winner['choice'].split()[0]} ", self.spec())
        # Once more: the same choice by the same model, the same file.
        self.tune("causal_conv1d", *CONV, "--device", "sim")
        self.assertEqual(self.database().read_text(), text)

    def test_a_stored_choice_is_what_runs_use(self):
        report = self.tune("causal_conv1d", *CONV, "--device", "sim", "--candidates", "2")
        usual, other = [c["choice"] for c in report["candidates"]]
        record, = self.database().read_text().splitlines()[1:]
        for choice in (usual, other):
            fields = record.split(" | ")
            fields[2] = choice
            self.database().write_text("lathe-tuned 1\n" + " | ".join(fields) + "\n")
            self.assertIn(f" {choice.split()[0]} ", self.spec())
        self.assertIn(f" {usual.split()[0]} ", self.spec(LATHE_TUNED="off"))
        mine = self.folder / "mine.txt"
        mine.write_text(self.database().read_text())
        self.database().unlink()
        self.assertIn(f" {other.split()[0]} ", self.spec(LATHE_TUNED=str(mine)))
        mine.unlink()

    def test_a_stored_choice_decides_the_family_of_a_backward(self):
        words = ["--device", "none", "--arch", "h100"] + BACKWARD

        def main(**env):
            status, out, err = self.lathe("explain", "flash_attention", *words, "--json", **env)
            self.assertEqual(status, 0, err)
            kernels = {k["spec"].split()[0]: k for k in json.loads(out)["kernels"]}
            own, other = (name in kernels for name in ("attention_backward_warpgroups", "attention_backward"))
            self.assertNotEqual(own, other)
            self.assertEqual("attention_backward_warpgroups_finish" in kernels, own)
            return kernels["attention_backward_warpgroups" if own else "attention_backward"]

        usual = main()
        self.assertEqual((usual["family"], usual.get("family_reason", "")), ("sm90", ""))
        self.database().parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.database().parent.parent, self.database().parent):
            folder.chmod(0o700)

        def store(choice):
            self.database().write_text(
                "lathe-tuned 1\nattention_backward_warpgroups | element=bf16 cu=i32 width=64 value_width=64 packed=0 local=0 "
                f"softcap=0 alibi=0 deterministic=0 heads_apart=0 | {choice} | gpu=h100 arch=sm_90a sms=132 shape=a(x:1) "
                "us=1.000 default_us=2.000 by=events\n")

        tile = "m=64 n=64 stages=1 width_warps=1"
        store(f"kernel=attention_backward {tile} warps=4")
        portable = main()
        self.assertIn(f" {tile} ", portable["spec"])
        self.assertEqual((portable["family"], portable["family_reason"]),
                         ("portable", "not sm90: the tuned choice is a portable kernel"))
        self.assertEqual(main(LATHE_TUNED="off")["spec"], usual["spec"])
        # The portable kernels have choices of their own.
        alone = main(LATHE_FAMILY="portable")
        self.assertEqual(alone["family_reason"], "not sm90: LATHE_FAMILY is portable")
        self.assertNotIn(f" {tile} ", alone["spec"])
        # What is not offered, or no longer, is ignored.
        for choice in ("kernel=attention_backward m=64 n=999 stages=1 width_warps=1 warps=4", f"kernel=gone {tile} warps=4"):
            store(choice)
            self.assertEqual(main()["spec"], usual["spec"])
        store(" ".join(word for word in usual["spec"].split() if word.split("=")[0] in ("m", "n", "stages", "width_warps")) + " warps=12")
        self.assertEqual(main()["spec"], usual["spec"])

    def test_candidates_of_a_backward_are_of_both_families(self):
        flags = ["--device", "sim", "--dry-run", "--candidates", "2"] + BACKWARD
        report = self.tune("flash_attention", *flags)
        own = [c for c in report["candidates"] if c["kernel"] == "attention_backward_warpgroups"]
        self.assertEqual(len(own), 2)
        self.assertTrue(own[0]["choice"].startswith("m=128 n=128 "), own)
        self.assertTrue(own[1]["choice"].startswith("kernel=attention_backward m="), own)
        for each in own:
            self.assertGreater(each["us"], 0)
            self.assertEqual(each["reason"], "")
        portable = self.tune("flash_attention", *flags, LATHE_FAMILY="portable")
        main = [c for c in portable["candidates"] if c["kernel"].startswith("attention_backward")]
        self.assertEqual([c["kernel"] for c in main], ["attention_backward"] * 2)
        self.assertEqual([c["choice"][:2] for c in main], ["m="] * 2)

    def test_dry_run_and_table(self):
        status, out, err = self.lathe("tune", "causal_conv1d", *CONV, "--device", "sim", "--candidates", "3", "--dry-run")
        self.assertEqual(status, 0, err)
        self.assertIn("not stored (--dry-run)", out)
        self.assertIn("by the simulator's clock", out)
        self.assertEqual(len(re.findall(r"^  tokens=\d+ warps=\d+ ", out, re.M)), 3)
        self.assertFalse(self.database().exists())

    def test_manifest_with_open_extents(self):
        manifest = self.folder / "manifest.jsonl"
        manifest.write_text(
            '{"op":"causal_conv1d","tensors":{"x":["f32",[-1,-1,32]],"weight":["f32",[32,4]],"y":["f32",[-1,-1,32]]}}\n'
            '{"op":"causal_conv1d_update","tensors":{"x":["f32",[-1,32]],"state":["f32",[-1,32,4]],"weight":["f32",[32,4]]'
            ',"y":["f32",[-1,32]]}}\n')
        flags = ["--manifest", str(manifest), "--device", "sim", "--candidates", "2", "--dry-run"]
        status, _, err = self.lathe("tune", *flags, "--extent", "B=2")
        self.assertEqual(status, 2)
        self.assertRegex(err, "line 1: .*T is open")
        reports = self.tune(*flags, "--extent", "B=2", "--extent", "T=20", "--extent", "S=2")
        self.assertEqual([r["op"] for r in reports], ["causal_conv1d", "causal_conv1d_update"])
        self.assertEqual([r["kernels"] for r in reports], [1, 1])

    def test_show_merge_forget(self):
        status, out, _ = self.lathe("tune", "--show", "--gpu", "h100")
        self.assertEqual((status, "no tuned choices" in out), (0, True))
        self.tune("causal_conv1d", *CONV, "--device", "sim", "--candidates", "2")
        shown = self.tune("--show", "--gpu", "h100")
        self.assertEqual([r["mark"] for r in shown["records"]], ["holds"])
        shipped = self.folder / "shipped.txt"
        shipped.write_text(self.database().read_text().replace("sms=132", "sms=60").replace("by=model", "by=events") + "damaged\n")
        self.assertEqual(self.tune("--merge", str(shipped), "--gpu", "h100", code=1)["changed"], 1)
        shown = self.tune("--show", "--gpu", "h100")
        self.assertEqual(sorted(r["mark"] for r in shown["records"]), ["holds", "other"])
        stale = self.database().read_text().replace(" sources=", " sources=0")
        self.database().write_text(stale)
        self.assertIn("stale", [r["mark"] for r in self.tune("--show", "--gpu", "h100")["records"]])
        self.assertEqual(self.tune("--forget", "nothing", "--gpu", "h100")["changed"], 0)
        self.assertEqual(self.tune("--forget", "all", "--gpu", "h100")["changed"], 2)
        self.database().write_text("something else\n")
        self.assertEqual(self.tune("--show", "--gpu", "h100", code=1)["records"], [])
        shipped.unlink()

    def test_what_is_refused(self):
        for words, pattern in (
                ([], "OP is not given"),
                (["causal_conv1d"], "neither --input nor --tensor"),
                (["causal_conv1d", "--tensor", "x=bf16:1,-1,64", "--tensor", "weight=bf16:64,4"], "needs every extent"),
                (["causal_conv1d", *CONV, "--repeats", "-1"], '--repeats is "-1"'),
                (["causal_conv1d", *CONV, "--show"], "exclude each other"),
                (["causal_conv1d", *CONV, "--extent", "T"], '--extent is "T"'),
                (["--show", "--gpu", "h9000"], "h9000"),
                (["--manifest", "/nowhere.jsonl"], "cannot be read")):
            self.assert_refused(self.lathe("tune", *words), pattern)

    def test_operators_with_made_up_inputs(self):
        # Of each family one small problem: every candidate computes what the default does.
        attention = ["q=bf16:1,64,2,64", "k=bf16:1,64,1,64", "v=bf16:1,64,1,64"]
        rows = [("causal_conv1d_update", ["x=bf16:3,40", "weight=bf16:40,4", "state=bf16:3,40,4"], []),
                ("flash_attention", attention, ["causal=1"]),
                ("kda", ["q=bf16:1,64,1,32", "k=bf16:1,64,1,32", "v=bf16:1,64,1,32", "g=f32:1,64,1,32", "beta=f32:1,64,1"], []),
                ("sparse_flash_attention", ["q=bf16:1,4,16,64", "k=bf16:1,64,1,64", "v=bf16:1,64,1,64", "indices=i32:1,4,1,16"], ["scale=0.125"])]
        for op, tensors, options in rows:
            words = [op, "--device", "sim", "--dry-run", "--candidates", "2"]
            for each in tensors:
                words += ["--tensor", each]
            for each in options:
                words += ["--set", each]
            with self.subTest(op=op):
                report = self.tune(*words)
                self.assertGreaterEqual(report["kernels"], 1)
                for candidate in report["candidates"]:
                    self.assertNotRegex(candidate["reason"], "differs|outside|another", candidate)
