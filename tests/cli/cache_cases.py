# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The cache as a user sees it: what compiles again and what does not, many processes, damage, no disk."""
import collections
import json
import os
import pathlib
import shutil

from harness import Case, conv, load, save, update


class CacheCases(Case):
    def setUp(self):
        super().setUp()
        shutil.rmtree(self.cache, ignore_errors=True)

    def compiled(self, tensors, options=(), flags=(), op="causal_conv1d"):
        report, _ = self.run_op(op, tensors, options, flags)
        self.assertEqual(report["compiled"] + report["hits"], len(report["kernels"]))
        self.assertEqual(report["compiled"], sum(k["from"] == "compiler" for k in report["kernels"]))
        return report["compiled"]

    def test_equal_runs_share_one_compile(self):
        first, one = self.run_op("causal_conv1d", conv(backward=True))
        second, two = self.run_op("causal_conv1d", conv(backward=True))
        self.assertEqual(first["compiled"], len(first["kernels"]))
        self.assertEqual({k["family"] for k in first["kernels"]}, {"portable"})
        self.assertEqual(second["compiled"], 0)
        self.assertEqual({k["from"] for k in second["kernels"]}, {"disk"})
        self.assertEqual([k["key"] for k in first["kernels"]], [k["key"] for k in second["kernels"]])
        self.assertEqual(one, two)

    def trim(self, *words):
        status, out, err = self.lathe("cache", "trim", "--max-bytes", *words)
        self.assertEqual(status, 0, err)
        return out

    def test_trim_removes_what_was_used_longest_ago(self):
        self.compiled(conv())
        old = set(self.entries())
        for path in old:
            os.utime(path, (1, 1))
        self.compiled(conv(W=3))
        new = set(self.entries()) - old
        size = sum(path.stat().st_size for path in old | new)
        self.assertIn(f"would remove {len(old)} entries", self.trim(str(size - 1), "--dry-run"))
        self.assertEqual(set(self.entries()), old | new)
        self.trim(str(size - 1))
        self.assertEqual(set(self.entries()), new)
        self.trim("1G")
        report = json.loads(self.trim("0", "--json"))
        self.assertEqual((report["removed"], report["entries"], report["bytes"]), (len(new), 0, 0))
        self.assertGreater(self.compiled(conv(W=3)), 0)
        self.output.unlink()
        for wrong in ("", "-1", "2X", "9999999T"):
            self.assert_refused(self.lathe("cache", "trim", "--max-bytes=" + wrong), "--max-bytes")

    def test_a_new_length_compiles_nothing(self):
        self.assertGreater(self.compiled(conv(offsets=[0, 8, 20], state=True)), 0)
        self.assertEqual(self.compiled(conv(T=57, offsets=[0, 3, 3, 40, 57], state=True)), 0)
        self.assertGreater(self.compiled(conv()), 0)
        for shape in ({"T": 1}, {"T": 300}, {"B": 3}, {"B": 2, "T": 7}, {"T": 0}, {"D": 32}):
            with self.subTest(shape=shape):
                self.assertEqual(self.compiled(conv(**shape)), 0)

    def test_what_changes_the_code_compiles(self):
        self.compiled(conv(dtype="F16"))
        for change in ({"D": 17}, {"dtype": "BF16"}, {"weight": "F32"}, {"W": 3}, {"bias": True}, {"residual": True},
                       {"state": True}):
            with self.subTest(change=change):
                tensors = conv(**{"dtype": "F16", **change})
                self.assertGreater(self.compiled(tensors), 0)
                self.assertEqual(self.compiled(tensors), 0)
        self.assertGreater(self.compiled(conv(dtype="F16"), ["activation=silu"]), 0)
        self.assertGreater(self.compiled(conv(dtype="F16"), flags=["--arch", "sm_80"]), 0)
        self.assertEqual(self.compiled(conv(dtype="F16"), ["activation=none", "output_final_state=0"]), 0)

    def test_many_processes_compile_each_key_once(self):
        save(self.input, conv(backward=True))
        running = [self.start(self.command("causal_conv1d", flags=["--json"], output=self.folder / f"out{i}"))
                   for i in range(32)]
        compiled = collections.Counter()
        outputs = set()
        for i, process in enumerate(running):
            out, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, err)
            report = json.loads(out)
            for kernel in report["kernels"]:
                compiled[kernel["key"]] += kernel["from"] == "compiler"
            outputs.add((self.folder / f"out{i}").read_bytes())
        self.assertEqual(set(compiled.values()), {1}, compiled)
        self.assertEqual(len(outputs), 1)

    def entries(self):
        """Files that hold kernels: the large ones."""
        return sorted(p for p in pathlib.Path(self.cache).rglob("*") if p.is_file() and p.stat().st_size > 2000)

    def test_a_flipped_byte_heals(self):
        first, good = self.run_op("causal_conv1d", conv())
        files = self.entries()
        self.assertEqual(len(files), first["compiled"])
        for at in (0, 100, len(files[0].read_bytes()) // 2, -1):
            with self.subTest(at=at):
                data = bytearray(files[0].read_bytes())
                data[at] ^= 0x10
                files[0].write_bytes(data)
                report, out = self.run_op("causal_conv1d", conv())
                self.assertEqual((report["compiled"], out), (1, good))
                report, out = self.run_op("causal_conv1d", conv())
                self.assertEqual((report["compiled"], out), (0, good))

    def test_a_short_entry_heals(self):
        _, good = self.run_op("causal_conv1d", conv())
        for size in (0, 10, 1000):
            self.entries()[0].write_bytes(self.entries()[0].read_bytes()[:size])
            report, out = self.run_op("causal_conv1d", conv())
            self.assertEqual((report["compiled"], out), (1, good))

    def test_no_place_to_write_costs_a_warning(self):
        _, good = self.run_op("causal_conv1d", conv())
        file = self.folder / "file"
        file.write_text("not a folder")
        for place in (file, file / "below", "/proc/nowhere/cache"):
            with self.subTest(place=place):
                save(self.input, conv())
                status, out, err = self.lathe(*self.command("causal_conv1d", flags=["--cache-dir", place, "--json"])[1:])
                self.assertEqual(status, 0, err)
                self.assertRegex(err, "warning")
                self.assertEqual(json.loads(out)["compiled"], 1)
                self.assertEqual(load(self.output), good)

    def test_the_flag_and_the_variable_name_the_same_place(self):
        report, _ = self.run_op("causal_conv1d_update", update())
        self.assertEqual(report["compiled"], 1)
        report, _ = self.run_op("causal_conv1d_update", update(), flags=["--cache-dir", self.cache], LATHE_CACHE_DIR="")
        self.assertEqual(report["compiled"], 0)
