# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bundles and read-only caches as a user sees them: packed, shipped, merged, opened in place, damaged."""
import json
import os
import pathlib
import tempfile

from harness import Case, conv, save


class BundleCases(Case):
    """One cache with the kernels of two problems, filled once."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        filler = cls("test_list_names_what_is_there")
        filler.setUp()
        for width in (3, 4):
            filler.run_op("causal_conv1d", conv(W=width))
        filler.doCleanups()

    def cache_verb(self, *words, code=0, **env):
        status, out, err = self.lathe("cache", *words, **env)
        self.assertEqual(status, code, err + out)
        return json.loads(out) if "--json" in words else out

    def packed(self, *words, name="bundle"):
        path = self.folder / name
        return path, self.cache_verb("pack", path, "--json", *words)

    def keys(self, *words, **env):
        return [k["key"] for k in self.cache_verb("list", "--json", *words, **env)["kernels"]]

    def sources(self, width=4, **env):
        """Where the kernels of a run came from."""
        report, _ = self.run_op("causal_conv1d", conv(W=width), **env)
        self.output.unlink()
        return {kernel["from"] for kernel in report["kernels"]}

    def test_list_names_what_is_there(self):
        kernels = self.cache_verb("list", "--json")["kernels"]
        self.assertEqual(len(kernels), 2)
        files = {p.stem: p.stat().st_size for p in pathlib.Path(self.cache).rglob("*.lathe")}
        self.assertEqual({k["key"]: k["bytes"] for k in kernels}, files)
        for kernel in kernels:
            self.assertEqual(kernel["tier"], self.cache)
            self.assertEqual(kernel["arch"], "sm_90a")
            self.assertTrue(kernel["spec"].startswith(kernel["kernel"] + " "), kernel)
        out = self.cache_verb("list")
        self.assertEqual(len(out.splitlines()), 2)

    def test_a_bundle_serves_in_place_without_a_compiler_or_a_directory(self):
        _, good = self.run_op("causal_conv1d", conv())
        bundle, report = self.packed()
        self.assertEqual(report["entries"], 2)
        self.assertEqual(report["bytes"], bundle.stat().st_size)
        self.assertEqual(report["archs"], ["sm_90a"])
        alone = {"LATHE_CACHE_DIR": "off", "LATHE_BUNDLES": str(bundle), "LATHE_NVRTC": "/nowhere/libnvrtc.so"}
        for jit in ("off", "on"):
            with self.subTest(jit=jit):
                report, out = self.run_op("causal_conv1d", conv(), LATHE_JIT=jit, **alone)
                self.assertEqual({k["from"] for k in report["kernels"]}, {"bundle"})
                self.assertEqual(out, good)
        self.output.unlink()
        save(self.input, conv(W=2))
        result = self.lathe(*self.command("causal_conv1d")[1:], LATHE_JIT="off", **alone)
        bundle.unlink()
        self.assertEqual(result[0], 3)
        for part in ("not cached", "bundle " + str(bundle), "LATHE_JIT=off", "width=2", "nearest entry"):
            self.assertIn(part, result[2])

    def test_read_only_directories_come_before_bundles_and_are_left_alone(self):
        bundle, _ = self.packed()
        mine = self.folder / "mine"
        before = sorted((str(p), p.stat().st_mtime_ns) for p in pathlib.Path(self.cache).rglob("*"))
        tiers = {"LATHE_CACHE_DIR": str(mine), "LATHE_CACHE_READONLY": self.cache, "LATHE_BUNDLES": str(bundle)}
        self.assertEqual(self.sources(**tiers), {"disk"})
        self.assertEqual(self.sources(width=2, **tiers), {"compiler"})
        self.assertEqual(self.sources(width=2, **tiers), {"disk"})
        self.assertEqual(self.sources(LATHE_CACHE_DIR=str(mine), LATHE_BUNDLES=str(bundle)), {"bundle"})
        self.assertEqual(len(list(mine.rglob("*.lathe"))), 1)
        after = sorted((str(p), p.stat().st_mtime_ns) for p in pathlib.Path(self.cache).rglob("*"))
        self.assertEqual(before, after)
        stat = self.cache_verb("stat", "--json", **tiers)
        self.assertEqual([(t["kind"], t["path"], t["entries"], t["problem"]) for t in stat["tiers"]],
                         [("directory", str(mine), 1, ""), ("read-only", self.cache, 2, ""), ("bundle", str(bundle), 2, "")])
        self.assertEqual(len(self.keys(**tiers)), 3)
        _, everything = self.packed(name="two")
        self.assertEqual(everything["entries"], 2)
        all_of_it = self.folder / "all"
        self.assertEqual(self.cache_verb("pack", all_of_it, "--tiers", "--json", **tiers)["entries"], 3)

    def test_pack_chooses_and_repeats(self):
        first, _ = self.packed(name="first")
        second, _ = self.packed(name="second")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        keys = self.keys()
        halves = [self.packed("--key", key, name=key)[0] for key in keys]
        for half, key in zip(halves, keys):
            self.assertEqual(self.keys(half), [key])
        merged = self.folder / "merged"
        self.cache_verb("merge", merged, halves[1], halves[0], halves[1])
        self.assertEqual(merged.read_bytes(), first.read_bytes())
        fresh = self.folder / "fresh"
        counts = [self.cache_verb("unpack", merged, "--cache-dir", fresh, "--json") for _ in range(2)]
        self.assertEqual([(c["added"], c["present"], c["bad"]) for c in counts], [(2, 0, 0), (0, 2, 0)])
        self.assertEqual(self.sources(LATHE_CACHE_DIR=str(fresh), LATHE_JIT="off"), {"disk"})
        again = self.folder / "again"
        self.cache_verb("pack", again, "--cache-dir", fresh)
        self.assertEqual(again.read_bytes(), first.read_bytes())

    def test_what_is_wrong_is_named_and_nothing_is_written(self):
        out = self.folder / "out"
        key = "0" * 32
        for words, pattern, code in (
                (("pack", out, "--key", "12"), "keys\\[0\\] is '12'.*32 hexadecimal", 2),
                (("pack", out, "--key", key), f"{key}.*no such entry", 3),
                (("pack", out, "--key", key, "--tiers"), "does not go with", 2),
                (("pack", out / "below"), "open its directory", 3),
                (("pack", out, "--cache-dir", "off"), "off", 3),
                (("merge", out, self.folder / "nowhere"), "nowhere.*No such file", 2),
                (("unpack", self.folder / "nowhere"), "nowhere.*No such file", 2),
                (("verify", self.folder), "not a regular file", 2),
                (("list", self.folder / "nowhere"), "No such file", 2)):
            with self.subTest(words=words):
                self.assert_refused(self.lathe("cache", *words), pattern, code)
        self.assertEqual(self.lathe("cache", "pack")[0], 2)

    def test_what_is_no_regular_file_is_not_replaced(self):
        with tempfile.TemporaryDirectory() as other:
            pipe, link, manifest = (pathlib.Path(other, name) for name in ("pipe", "link", "manifest"))
            os.mkfifo(pipe)
            link.symlink_to(pipe)
            manifest.write_text(json.dumps({"op": "causal_conv1d", "tensors": {
                "x": ["f32", [-1, -1, 16]], "weight": ["f32", [16, 4]], "y": ["f32", [-1, -1, 16]]}}) + "\n")
            for path, kind in ((pipe, "a pipe"), (link, "a symbolic link"), (pathlib.Path(other), "a folder")):
                for words in (["cache", "pack", path], ["cache", "merge", path, path],
                              ["warm", manifest, "--arch", "sm_90a", "--bundle", path]):
                    if words[1] == "merge":
                        words[3] = self.bundle_outside(other)
                    with self.subTest(words=words):
                        self.assert_refused(self.lathe(*words), kind)
            self.assertTrue(pipe.is_fifo() and link.is_symlink())

    def bundle_outside(self, folder):
        path = pathlib.Path(folder, "bundle")
        if not path.exists():
            self.cache_verb("pack", path)
        return path

    def test_damage_is_told_and_costs_one_kernel(self):
        bundle, _ = self.packed()
        good = bundle.read_bytes()
        self.assertEqual(self.cache_verb("verify", bundle, "--json")["bad"], 0)
        bad = bytearray(good)
        bad[-1] ^= 1
        bundle.write_bytes(bad)
        last = self.keys()[-1]
        report = self.cache_verb("verify", bundle, "--json", code=1)
        self.assertEqual(report["bad"], 1)
        self.assertRegex(report["problems"][0], f"{last}: .*checksum")
        self.assertIn("damaged", self.cache_verb("list", bundle, code=1))
        self.cache_verb("unpack", bundle, "--cache-dir", self.folder / "fresh", code=1)
        mine = {"LATHE_CACHE_DIR": str(self.folder / "mine"), "LATHE_BUNDLES": str(bundle)}
        came_from = [self.sources(width, **mine) for width in (3, 4)]
        self.assertCountEqual(came_from, [{"bundle"}, {"compiler"}])
        for cut in (good[:-1], good[:100], good + b"x", b"", good[:20] + b"\1" + good[21:]):
            bundle.write_bytes(cut)
            for verb in ("verify", "list", "unpack"):
                status, out, err = self.lathe("cache", verb, bundle, "--cache-dir", self.folder / "fresh")
                self.assertEqual((status, out), (2, ""), err)
                self.assertIn(f"bundle {bundle} is refused: ", err)
            status, out, err = self.lathe("cache", "stat", LATHE_BUNDLES=str(bundle))
            self.assertEqual(status, 0)
            self.assertEqual(err.count("warning"), 1)

    def test_stat_and_doctor_tell_what_is_refused(self):
        bundle, _ = self.packed()
        os.chmod(bundle, 0o666)
        shared = self.folder / "shared"
        shared.mkdir()
        os.chmod(shared, 0o777)
        env = {"LATHE_BUNDLES": str(bundle), "LATHE_CACHE_READONLY": str(shared)}
        problems = [t["problem"] for t in self.cache_verb("stat", "--json", **env)["tiers"]]
        self.assertEqual(problems[0], "")
        for problem in problems[1:]:
            self.assertIn("chmod go-w", problem)
        status, out, _ = self.lathe("doctor", "--json", **env)
        self.assertEqual(status, 0)
        items = {item["name"]: item for item in json.loads(out)["items"]}
        self.assertEqual(items["bundle"]["state"], "missing")
        self.assertIn("LATHE_BUNDLES", items["bundle"]["remedy"])
        self.assertIn("LATHE_CACHE_READONLY", items["read-only cache"]["remedy"])
        _, out, err = self.lathe("doctor", "--json", LATHE_CACHE_DIR="off", LATHE_BUNDLES="")
        items = {item["name"]: item for item in json.loads(out)["items"]}
        self.assertEqual(items["cache directory"]["state"], "found")
        self.assertEqual(err, "")
