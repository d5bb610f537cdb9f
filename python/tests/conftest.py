# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""All tests run on the simulator, with kernels in the cache folder that the environment names."""
import os
import pathlib
import sys
import zlib

os.environ.setdefault("LATHE_DEVICE", "sim")
sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_addoption(parser):
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the tests alone")


def pytest_collection_modifyitems(config, items):
    """Leaves one part of the tests, dealt by their names, so that a new test moves no other."""
    part = config.getoption("--part")
    if part is None:
        return
    turn, parts = (int(each) for each in part.split("/"))
    mine = [each for each in items if zlib.crc32(each.nodeid.encode()) % parts == turn % parts]
    config.hook.pytest_deselected(items=[each for each in items if each not in mine])
    items[:] = mine
