#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The installed package, used from outside the tree by a C99 program: package_test.py SOURCE BUILD

Installs BUILD into a temporary prefix, builds the programs of SOURCE/examples with find_package(lathe)
and with pkg-config, and runs them on the simulator, with the build tree out of reach.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROJECT = """\
cmake_minimum_required(VERSION 3.22)
project(outside C)
find_package(lathe {version} REQUIRED)
foreach(name {names})
  add_executable(${{name}} ${{name}}.c)
  set_target_properties(${{name}} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${{name}} PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_link_libraries(${{name}} PRIVATE lathe::lathe m)
endforeach()
"""

# What each example says first.
EXAMPLES = {"conv1d": "causal_conv1d of 100 tokens, 64 channels: largest error ",
            "flash_attention": "flash_attention of 200 tokens, 4 heads: largest error ",
            "kda": "kda of 150 tokens, 4 value heads: largest error ",
            "sparse_attention": "sparse_flash_attention of 40 rows, 20 keys each: largest error "}


def run(*words, **kwargs):
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=240, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


def check_output(program, env):
    text = run(program, env=env)
    print(f"{program.parent.name}: {text}")
    if not text.startswith(EXAMPLES[program.name]):
        sys.exit(f"{program}: unexpected output")


def main():
    source, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="lathe-package-") as folder:
        root = pathlib.Path(folder)
        prefix, outside = root / "prefix", root / "outside"
        run("cmake", "--install", build, "--prefix", prefix)
        outside.mkdir()
        for example in (source / "examples").glob("*.c"):
            shutil.copy(example, outside)
        if {example.stem for example in outside.iterdir()} != set(EXAMPLES):
            sys.exit(f"examples: {sorted(outside.iterdir())}, expected {sorted(EXAMPLES)}")
        library = next(prefix.rglob("liblathe.so")).parent
        version = run("pkg-config", "--modversion", "lathe",
                      env=dict(os.environ, PKG_CONFIG_PATH=f"{library}/pkgconfig"))

        env = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
        env.update(LATHE_DEVICE="sim", LATHE_SIM_CHECK="all", LATHE_CACHE_DIR=str(root / "cache"))
        # An installed library looks for NVRTC in the system; the wheels of a build tree are not there.
        for wheel in (pathlib.Path(__file__).parent.parent / ".deps/lib").glob("libnvrtc.so.*"):
            env["LATHE_NVRTC"] = str(wheel.resolve())

        (outside / "CMakeLists.txt").write_text(PROJECT.format(version=version, names=" ".join(EXAMPLES)))
        run("cmake", "-G", "Ninja", "-S", outside, "-B", root / "find_package",
            f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", root / "find_package")
        for name in EXAMPLES:
            check_output(root / "find_package" / name, env)

        flags = run("pkg-config", "--cflags", "--libs", "lathe",
                    env=dict(os.environ, PKG_CONFIG_PATH=f"{library}/pkgconfig")).split()
        (root / "pkg_config").mkdir()
        for name in EXAMPLES:
            program = root / "pkg_config" / name
            run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program,
                outside / f"{name}.c", *flags, "-lm", f"-Wl,-rpath,{library}")
            check_output(program, env)

        installed = [path for path in prefix.rglob("*.h") if path.parent.name != "dlpack"]
        if [path.name for path in installed] != ["lathe.h"]:
            sys.exit(f"installed headers: {installed}, expected lathe.h alone")


if __name__ == "__main__":
    main()
