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

README = pathlib.Path(__file__).parents[2] / "README.md"


class ShipCases(Case):
    def test_record_warm_ship(self):
        """The commands of README's chapter, word for word, and with the bundle alone no kernel from anywhere else."""
        chapter = README.read_text().split("\n## Record, warm, ship\n")[1].split("\n## ")[0]
        commands = re.findall(r"^    (.*build/bin/lathe .*)$", chapter, re.M)
        self.assertEqual(len(commands), 4)
        for number, command in enumerate(commands):
            command = command.split("  #")[0].replace("build/bin/lathe", f'"{harness.PROGRAM}"')
            env = self.environment(**({"LATHE_NVRTC": "/nonexistent"} if number == 3 else {}))
            done = subprocess.run(["sh", "-c", command], cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertRegex(done.stdout, "all results are right: .* 0 compiled now")
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
