# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels that were recorded, warmed and packed in one place run in another that has no compiler."""
import json
import pathlib
import re
import subprocess

import harness
from harness import Case
from warm_cases import NO_COMPILER

DOCS = pathlib.Path(__file__).parents[2] / "docs"


class ShipCases(Case):
    def run_command(self, command, **env):
        words = re.sub(r"(build/bin/)?\blathe\b(?= )", f'"{harness.PROGRAM}"', command, count=1)
        done = subprocess.run(["sh", "-c", words], cwd=self.folder, env=self.environment(**env), capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 0, command + "\n" + done.stderr + done.stdout)
        return done.stdout

    def test_the_documents_on_the_cache_and_tuning(self):
        """Their commands run as they stand, in their order; with the bundle alone no kernel comes from anywhere else."""
        text = (DOCS / "cache.md").read_text() + (DOCS / "tuning.md").read_text()
        commands = [line.split("  #")[0] for line in re.findall(r"^    (.*build/bin/lathe .*)$", text, re.M)]
        self.assertEqual(len(commands), 15)
        for command in commands:
            strict = command.startswith("LATHE_JIT=off")
            out = self.run_command(command, **({"LATHE_NVRTC": "/nonexistent"} if strict else {}))
            if strict:
                self.assertRegex(out, "all results are right: .* 0 compiled now")
        stage, = re.findall(r"^RUN (.*)$", text, re.M)
        self.assertIn("0 lines failed", self.run_command(stage))
        listed = json.loads(self.lathe("cache", "list", self.folder / "server.bundle", "--json")[1])["kernels"]
        self.assertEqual({kernel["arch"] for kernel in listed}, {"sm_80", "sm_90a"})
        self.assert_ships("demo", self.folder / "problems.jsonl", self.folder / "kernels.bundle")

    def assert_ships(self, words, manifest, bundle):
        """The run with nothing but the bundle takes every kernel from it, and each problem was in the manifest."""
        again = self.folder / "again.jsonl"
        status, out, err = self.lathe(*words.split(), "--device", "sim", "--json", LATHE_BUNDLES=str(bundle), LATHE_CACHE_DIR="off",
                                      LATHE_RECORD=str(again), **NO_COMPILER)
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual({kernel["from"] for kernel in report["kernels"]}, {"bundle"})
        known = manifest.read_text().splitlines()
        self.assertEqual(sorted(again.read_text().splitlines()), sorted(set(known)))
        entries = json.loads(self.lathe("cache", "list", bundle, "--json")[1])["kernels"]
        self.assertEqual({entry["key"] for entry in entries}, {kernel["key"] for kernel in report["kernels"]})

    def test_ranks_ship_too(self):
        manifest, bundle = self.folder / "problems.jsonl", self.folder / "kernels.bundle"
        status, _, err = self.lathe("demo", "--ranks", "4", "--device", "sim", LATHE_RECORD=str(manifest))
        self.assertEqual(status, 0, err)
        status, out, err = self.lathe("warm", manifest, "--gpu", "h100", "--bundle", bundle, "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual((report["compiled"], report["bundle"]["entries"]), (0, report["kernels"]))
        self.assert_ships("demo --ranks 4", manifest, bundle)
