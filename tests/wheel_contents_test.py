#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/wheel_contents.py finds what is wrong with a wheel: wheel_contents_test.py SOURCE

Wheels are put together here, with small libraries in the places of the real ones. The real wheels are
looked at by scripts/wheels, which builds them.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(SOURCE / "scripts/lib"))
import wheel_contents

sys.path.insert(0, str(SOURCE / "python"))
import wheel_metadata

VERSION = "0.1.0"
PLATFORM = "manylinux_2_34_x86_64"


class WheelContents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lathe-wheel-")))

    def library(self, *flags, code="int f(void) { return 1; }", name="library"):
        """The bytes of a shared library."""
        path = self.root / f"{name}.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-", "-x", "none", *flags], check=True,
                       input=code, text=True)
        return path.read_bytes()

    def wheel(self, name="lathe_jit", changes=None, platform=PLATFORM, written=None):
        """A good wheel with changes: other bytes for a file, or None for none."""
        files, notes, python = wheel_contents.WHEELS[name]
        about = f"{name}-{VERSION}.dist-info"
        content = {**{f"lathe/{file}": b"" for file in files}, **{f"{about}/{note}": b"" for note in notes}}
        content[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {python}-{written or platform}\n".encode()
        content[f"{about}/METADATA"] = b"Name: lathe\n\nWhat it is.\n"
        content.update(changes or {})
        path = self.root / f"{name}-{VERSION}-{python}-{platform}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for file, data in content.items():
                if data is not None:
                    archive.writestr(file, data)
        return path

    def complaints(self, **wheel):
        return wheel_contents.check(self.wheel(**wheel))

    def test_a_good_wheel(self):
        library = self.library("-Wl,-rpath,$ORIGIN/lib", "-Wl,-soname,liblathe.so.0")
        self.assertEqual(self.complaints(changes={"lathe/lib/liblathe.so.0": library}), [])
        named = self.library("-Wl,-soname,lathe_sim_cuda.so")
        self.assertEqual(self.complaints(name="lathe_jit_sim", changes={"lathe/lib/sim/libcuda.so.1": named}), [])

    def test_a_file_too_many_or_missing(self):
        self.assertEqual(self.complaints(changes={"lathe/tests/test_run.py": b"", "lathe/py.typed": None}),
                         ["lathe/tests/test_run.py does not belong there", "lathe/py.typed is missing"])
        self.assertEqual(self.complaints(changes={"api/lathe.h": b""}), ["api/lathe.h does not belong there"])

    def test_a_wheel_that_is_too_large(self):
        large = {"lathe/flex.py": b"#" * wheel_contents.LIMIT}
        self.assertRegex(" ".join(self.complaints(changes=large)), "has 100.* bytes; allowed are 9999999$")

    def test_a_tag_that_is_no_manylinux_or_not_the_written_one(self):
        self.assertEqual(self.complaints(platform="linux_x86_64"),
                         ["its tag is cp311-abi3-linux_x86_64; expected cp311-abi3-manylinux_2_N_x86_64"])
        found = self.complaints(written="linux_x86_64")
        self.assertIn("WHEEL says cp311-abi3-linux_x86_64; the name cp311-abi3-" + PLATFORM, found[0])

    def test_a_tag_that_claims_an_older_c_library_than_the_code_needs(self):
        # glibc 2.34 moved it into libc.so.6, under a version of its own.
        new = self.library(code="#include <pthread.h>\nint f(void) { return pthread_detach(pthread_self()); }")
        found = self.complaints(platform="manylinux_2_5_x86_64", changes={"lathe/_core.abi3.so": new})
        self.assertRegex(" ".join(found), r"^lathe/_core\.abi3\.so needs GLIBC_2\.\d+$")

    def test_code_that_looks_into_a_build_folder(self):
        for folder in ("/src/build/lib", "$ORIGIN/lib:/src/build/lib", ""):
            library = self.library(f"-Wl,-rpath,{folder}") if folder else self.library("-Wl,-rpath,$ORIGIN:")
            found = self.complaints(changes={"lathe/lib/liblathe.so.0": library})
            self.assertRegex(" ".join(found), "^lathe/lib/liblathe.so.0 looks for libraries in '(/src/build/lib)?'$")

    def test_code_that_needs_a_library_that_is_not_there(self):
        other = self.library("-Wl,-soname,libother.so.1", name="libother")
        self.assertTrue(other)
        user = self.library("-Wl,--no-as-needed", str(self.root / "libother.so"))
        self.assertEqual(self.complaints(changes={"lathe/bin/lathe": user}), ["lathe/bin/lathe needs libother.so.1"])

    def test_a_simulator_that_calls_itself_the_driver(self):
        driver = self.library("-Wl,-soname,libcuda.so.1")
        found = self.complaints(name="lathe_jit_sim", changes={"lathe/lib/sim/libcuda.so.1": driver})
        self.assertEqual(found, ["lathe/lib/sim/libcuda.so.1 calls itself libcuda.so.1"])

    def test_a_description_that_is_missing_or_has_dead_links(self):
        name = f"lathe_jit-{VERSION}.dist-info/METADATA"
        self.assertEqual(self.complaints(changes={name: b"Name: lathe\n"}), ["METADATA has no description"])
        text = b"Name: lathe\n\n[a](docs/a.md) `[b](b)` [c](https://c.org/c.md) [d](#d)\n```\n[](e)\n```\n"
        self.assertEqual(self.complaints(changes={name: text}), ["METADATA links to docs/a.md, which no wheel has"])

    def test_the_list_of_modules_is_that_of_the_sources(self):
        package = SOURCE / "python/src/lathe"
        found = {str(path.relative_to(package)) for pattern in ("*.py", "*.pyi", "py.typed")
                 for path in package.rglob(pattern)}
        self.assertEqual(found, set(wheel_contents.MODULES))

    def test_what_wheels_say_of_themselves(self):
        for remote, url in (("https://name:secret@host.org/a/b.git", "https://host.org/a/b"),
                            ("git@host.org:a/b.git", "https://host.org/a/b"), ("/srv/git/b", ""), ("../b", "")):
            self.assertEqual(wheel_metadata.web_address(remote), url)
        for url in ("", "https://host.org/a/b"):
            for path in ("docs/python.md", "docs/simulator.md"):
                document = wheel_metadata.document(path, url)
                self.assertEqual(list(wheel_contents.check_description("Name: lathe\n\n" + document)), [])
        self.assertIn("(https://host.org/a/b/blob/HEAD/docs/cache.md)", wheel_metadata.document("docs/python.md", url))

    def test_a_wheel_of_another_name(self):
        path = self.root / f"other-{VERSION}-py3-none-any.whl"
        path.write_bytes(b"")
        self.assertEqual(wheel_contents.check(path), ["there is no wheel other; there are lathe_jit, lathe_jit_sim"])


if __name__ == "__main__":
    unittest.main()
