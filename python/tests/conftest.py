# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""All tests run on the simulator, with kernels in the cache folder that the environment names."""
import os
import pathlib
import sys

os.environ.setdefault("LATHE_DEVICE", "sim")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
