#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Moving changes no key: relocation_test.py BUILD_FOLDER

The tree that `cmake --install` leaves is put under another prefix and run under another name, from another
directory, as another user with another HOME, into another cache. It finds its compiler there, the
keys that it makes, and the code under them, are the same byte by byte; and a cache that was moved
serves a program that may not compile. This test reads the files of the cache by the layout that
cache/store/entry.cpp states.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
INSTALLED = pathlib.Path(tempfile.mkdtemp(prefix="lathe-installed-"))
ANY = [-1, -1, 64]
MANIFEST = [
    {"op": "causal_conv1d", "options": {"activation": "silu"},
     "tensors": {"x": ["bf16", ANY], "weight": ["bf16", [64, 4]], "y": ["bf16", ANY]}},
    {"op": "causal_conv1d_update",
     "tensors": {"x": ["f32", [-1, 64]], "weight": ["f32", [64, 3]], "state": ["f32", [-1, 64, 3]],
                 "y": ["f32", [-1, 64]]}},
]
ARCHS = "sm_80,sm_90a"


def parts(path):
    """(key text, cubin, PTX) of an entry."""
    data = path.read_bytes()
    key, metadata, cubin, ptx = struct.unpack_from("<4Q", data, 16)
    at = 96
    text = data[at:at + key]
    at += key + metadata
    return text, data[at:at + cubin], data[at + cubin:at + cubin + ptx]


def entries(cache):
    return {path.name: parts(path) for path in sorted(cache.glob("v1/*/*.lathe"))}


class Place:
    """A prefix, a cache and everything else that a run could depend on."""

    def __init__(self, folder, name="lathe", user=None):
        self.prefix, self.cache = folder / "prefix", folder / "cache"
        self.home, self.work = folder / "home", folder / "work"
        for part in (self.home, self.work):
            part.mkdir(parents=True)
        # Hard links: a compiler from a wheel has 100 MB.
        shutil.copytree(INSTALLED, self.prefix, symlinks=True, copy_function=os.link)
        self.program = self.prefix / "bin" / name
        if name != "lathe":
            os.rename(self.prefix / "bin" / "lathe", self.program)
        self.user = user
        (self.work / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in MANIFEST))
        if user is not None:
            for path in [folder, self.home, self.work, *self.work.iterdir()]:
                os.chown(path, user, user, follow_symlinks=False)

    def environment(self, **more):
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("LATHE_", "XDG_"))}
        return plain | {"HOME": str(self.home), "USER": self.home.parent.name, "LOGNAME": "somebody",
                        "LATHE_CACHE_DIR": str(self.cache)} | more

    def run(self, *words, **more):
        who = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        done = subprocess.run([self.program, *words], cwd=self.work, env=self.environment(**more), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **who)
        return done.returncode, done.stdout, done.stderr

    def warm(self, **more):
        return self.run("warm", "manifest.jsonl", "--arch", ARCHS, "--json", **more)


class Relocation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="lathe-relocation-"))
        cls.root.chmod(0o755)  # another user goes through it
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.addClassCleanup(shutil.rmtree, INSTALLED, ignore_errors=True)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", INSTALLED], check=True, stdout=subprocess.DEVNULL)
        INSTALLED.chmod(0o755)
        cls.here = Place(cls.root / "here")
        status, _, err = cls.here.warm()
        if status != 0 and "libnvrtc" in err:
            print("skipped: nothing can be compiled here: " + err.splitlines()[0])
            sys.exit(77)
        assert status == 0, err
        cls.keys = entries(cls.here.cache)

    def test_there_is_something_to_compare(self):
        self.assertEqual(len(self.keys), 4)
        for text, cubin, ptx in self.keys.values():
            self.assertTrue(text.startswith(b"lathe-key 1\narch=sm_"), text)
            self.assertNotIn(str(self.root).encode(), text + cubin + ptx)

    def same(self, place, **more):
        status, _, err = place.warm(**more)
        self.assertEqual(status, 0, err)
        self.assertEqual(entries(place.cache), self.keys)

    def test_another_prefix_name_directory_home_and_cache(self):
        self.same(Place(self.root / "a much longer place" / "with blanks", name="another program"))

    def test_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.same(Place(self.root / "theirs", user=65534))

    def test_another_environment(self):
        place = Place(self.root / "environment")
        self.same(place, LANG="tr_TR.UTF-8", TZ="Pacific/Apia", TMPDIR=str(place.home), CUDA_HOME="/nowhere",
                  SOURCE_DATE_EPOCH="0", LATHE_LOCK_TIMEOUT_MS="1", LATHE_CACHE_MAX_BYTES="0")

    def test_a_compiler_in_another_place(self):
        candidates = [os.environ.get("LATHE_NVRTC", ""), "/usr/local/cuda/lib64/libnvrtc.so.13",
                      str(INSTALLED / "lib/libnvrtc.so.13")]
        library = next((pathlib.Path(path).resolve() for path in candidates if path and os.path.exists(path)), None)
        if library is None:
            self.skipTest("the compiler's file was not found")
        place = Place(self.root / "compiler")
        elsewhere = place.work / "elsewhere"
        elsewhere.mkdir()
        for part in library.parent.glob("libnvrtc*.so*"):
            os.symlink(part.resolve(), elsewhere / part.name)
        self.same(place, LATHE_NVRTC=str(elsewhere / library.name))

    def test_a_moved_cache_serves_without_a_compiler(self):
        place = Place(self.root / "moved")
        shutil.copytree(self.here.cache, self.root / "copy", copy_function=shutil.copy)
        shutil.move(self.root / "copy", place.cache)
        for path in [place.cache, *place.cache.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        for more in ({"LATHE_JIT": "off"}, {"LATHE_JIT": "off", "LATHE_NVRTC": "/nowhere/libnvrtc.so"},
                     {"LATHE_NVRTC": "/nowhere/libnvrtc.so"}):
            status, out, err = place.warm(**more)
            self.assertEqual(status, 0, err)
            self.assertNotIn('"compiled":1', out.replace(" ", ""))
        self.assertEqual(entries(place.cache), self.keys)
        (place.work / "manifest.jsonl").write_text(json.dumps(
            MANIFEST[0] | {"options": {"activation": "none"}}) + "\n")
        status, _, _ = place.warm(LATHE_JIT="off")
        self.assertNotEqual(status, 0)  # so the hits above were hits

    def test_flags_for_the_compiler_are_an_ingredient(self):
        place = Place(self.root / "flags")
        status, _, err = place.warm(NVRTC_APPEND_FLAGS="-lineinfo")
        self.assertEqual(status, 0, err)
        other = entries(place.cache)
        self.assertEqual(len(other), len(self.keys))
        self.assertFalse(set(other) & set(self.keys))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
