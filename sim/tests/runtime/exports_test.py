#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The runtimes export what programs link against: exports_test.py FOLDER_OF_LIBCUDART

Each library has its soname, and each name the library's version, as the tool kit's have. Where the tool kit's library
of the same release is found, the names are its names too. Exit status 77, skipped, where there is no nm.
"""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

PLACES = [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/{folder}" for folder in ("lib64", "lib", "targets/x86_64-linux/lib")]
RELEASES = {12: 12090, 13: 13000}  # whose names ours are
# Every program of nvcc asks for these symbols, whatever it does.
START_UP = {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary", "__cudaRegisterFunction",
            "__cudaRegisterVar", "__cudaPushCallConfiguration", "__cudaPopCallConfiguration", "__cudaInitModule"}


def names_of(library, version):
    """Exported names with this version; None if one has another version, or none."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    names = set()
    for line in text.splitlines():
        name, _, of = line.split()[-1].partition("@@")
        if name == version and not of:
            continue  # the version itself
        if of != version:
            sys.exit(f"{library}: {name} has the version '{of}', not {version}")
        names.add(name)
    return names


def release_of(library):
    """13000 of CUDA 13.0."""
    version = ctypes.c_int()
    ctypes.CDLL(str(library)).cudaRuntimeGetVersion(ctypes.byref(version))
    return version.value


def compare(ours, theirs, soname):
    """Returns what differs from the tool kit's library, as text; "" if nothing does."""
    expected = names_of(theirs, soname)
    lacks, more = sorted(expected - ours), sorted(ours - expected)
    return f"{soname} beside {theirs}: lacks {lacks}, has besides {more}" if lacks or more else ""


def main():
    if shutil.which("nm") is None:
        print("skipped: no nm")
        return 77
    for major, release in RELEASES.items():
        soname = f"libcudart.so.{major}"
        library = pathlib.Path(sys.argv[1]) / soname
        ours = names_of(library, soname)
        if START_UP - ours:
            sys.exit(f"{soname} lacks {sorted(START_UP - ours)}")
        theirs = next((path for path in (pathlib.Path(place) / soname for place in PLACES) if path.exists()), None)
        if theirs is None or release_of(theirs) != release:
            print(f"{soname}: {len(ours)} names; no library of the same release to compare them with")
            continue
        difference = compare(ours, theirs, soname)
        if difference:
            sys.exit(difference)
        print(f"{soname}: {len(ours)} names as in {theirs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
