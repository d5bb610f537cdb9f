#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the scripts that time peers read from a bench's CSV, and what they count: gpu_peers_test.py ROOT

Needs neither torch nor a GPU: what they would time is not tested here.
"""
import importlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts/visit"))
sys.dont_write_bytecode = True

HEAD = "op,shape,dtype,us\n"
DENSE = "forward,B2 Sq512 Sk1024 H8 HK2 D64 DV32,bf16,1\n"
CAUSAL = "backward,B1 Sq1024 Sk1024 H4 HK4 D128 DV128 causal,f16,1\n"
PACKED = "forward,B1 Sq1000 Sk1000 H4 HK4 D128 DV128 N4 causal window100,bf16,1\n"
PAGED = "decode,B8 Sq4 Sk2048 H16 HK4 D128 DV128 causal page64,bf16,1\n"


class Attention(unittest.TestCase):
    def setUp(self):
        self.peers = importlib.import_module("attention_peers")
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "attn.csv")

    def tearDown(self):
        self.folder.cleanup()

    def shapes(self, *rows):
        self.path.write_text(HEAD + "".join(rows))
        return self.peers.shapes_of(self.path)

    def test_shapes(self):
        shapes = self.shapes(DENSE, CAUSAL, PACKED, PAGED, "append,B1 Sq1,bf16,1\n", "forward,B1 Sq1,f32,1\n")
        self.assertEqual([(op, dtype) for op, _, dtype, _ in shapes],
                         [("forward", "bf16"), ("backward", "f16"), ("forward", "bf16"), ("decode", "bf16")])
        self.assertEqual(shapes[0][3], {"B": 2, "Sq": 512, "Sk": 1024, "H": 8, "HK": 2, "D": 64, "DV": 32,
                                        "causal": False, "deterministic": False})
        self.assertTrue(shapes[1][3]["causal"])
        self.assertEqual((shapes[2][3]["N"], shapes[2][3]["window"]), (4, 100))
        self.assertEqual(shapes[3][3]["page"], 64)

    def test_counts(self):
        dense, causal, packed, paged = (s for _, _, _, s in self.shapes(DENSE, CAUSAL, PACKED, PAGED))
        self.assertEqual(self.peers.flops("forward", dense), 2 * 96 * 8 * 2 * 512 * 1024)
        self.assertEqual(self.peers.flops("forward", causal), 4 * 128 * 4 * 1024 * 1024 / 2)
        self.assertEqual(self.peers.flops("backward", causal), 2.5 * 4 * 128 * 4 * 1024 * 1024 / 2)
        self.assertEqual(self.peers.flops("forward", packed), 4 * 128 * 4 * 1000 * 101)
        self.assertEqual(self.peers.flops("decode", paged), 4 * 128 * 16 * 8 * 4 * 2048)
        self.assertEqual(self.peers.minimum_bytes("forward", dense, 2),
                         2 * (2 * 512 * 8 + 2 * 1024 * 2) * 96 + 4 * 2 * 512 * 8)

    def test_without_a_gpu(self):
        self.shapes(DENSE)
        for script, text in (("attention_peers.py", self.path.read_text()),
                             ("conv_peers.py", HEAD + "forward,B1 T8 D8 W4,bf16,1\n")):
            self.path.write_text(text)
            done = subprocess.run([sys.executable, ROOT / "scripts/visit" / script, "--dry-run", self.path],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 1)
            self.path.write_text(HEAD)
            done = subprocess.run([sys.executable, ROOT / "scripts/visit" / script, "--dry-run", self.path],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no shapes in", done.stderr)


class Kda(unittest.TestCase):
    ROWS = ("forward,B1 T8192 H96 K128 V128,bf16,1\n"
            "backward,B1 T512 H2 HV4 K64 V128 N3 fused states g32,f16,1\n"
            "forward,B1 T512 H4 K128 V128,f32,1\nupdate,B1 T1 H1 K8 V8,bf16,1\n")

    def run_script(self, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "kda.csv")
            path.write_text(text)
            return subprocess.run([sys.executable, ROOT / "scripts/visit/kda_peers.py", *options, path, "liblathe.so"],
                                  capture_output=True, text=True)

    def test_shapes(self):
        peers = importlib.import_module("kda_peers")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "kda.csv")
            path.write_text(HEAD + self.ROWS)
            shapes = peers.shapes_of(path)
        self.assertEqual([(op, dtype) for op, _, dtype, _ in shapes], [("forward", "bf16"), ("both", "f16")])
        plain = {"B": 1, "T": 8192, "H": 96, "HV": 96, "K": 128, "V": 128, "fused": False, "states": False,
                 "g32": False}
        self.assertEqual(shapes[0][3], plain)
        self.assertEqual(shapes[1][3], {"B": 1, "T": 512, "H": 2, "HV": 4, "K": 64, "V": 128, "N": 3, "fused": True,
                                        "states": True, "g32": True})

    def test_without_a_gpu(self):
        done = self.run_script(HEAD + self.ROWS, "--dry-run")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 1), done.stderr)
        done = self.run_script(HEAD, "--dry-run")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no shapes in", done.stderr)


class Shapes(unittest.TestCase):
    def test_what_a_file_has_is_left_out(self):
        runs = importlib.import_module("peer_runs")
        shapes = [("forward", name, "bf16", {}) for name in ("B1", "B2", "B3")]
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder, "peers.csv"))
            turn = iter(runs.Shapes(shapes, path))
            self.assertEqual([next(turn)[1], next(turn)[1]], ["B1", "B2"])  # and killed in B2
            self.assertEqual([shape[1] for shape in runs.Shapes(shapes, path)], ["B2", "B3"])
            self.assertEqual(list(runs.Shapes(shapes, path)), [])
            pathlib.Path(path + ".cases").write_text("begin forward B1 bf16\n" * 2)
            self.assertEqual([shape[1] for shape in runs.Shapes(shapes, path)], ["B2", "B3"])
            self.assertEqual([shape[1] for shape in runs.Shapes(shapes, "")], ["B1", "B2", "B3"])

    def test_rows_are_appended_under_one_header(self):
        runs = importlib.import_module("peer_runs")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "peers.csv")
            for number in (1, 2):
                runs.output(str(path), ["op", "us"]).writerow(["forward", number])
            self.assertEqual(path.read_text(), "op,us\nforward,1\nforward,2\n")


if __name__ == "__main__":
    unittest.main()
