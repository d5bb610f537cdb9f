# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Where the compiler is, if it came as a wheel.

The library looks beside itself and where the system's loader looks. NVIDIA's wheels lie in a folder
of site-packages that neither is.
"""
from __future__ import annotations

import importlib.util
import os

# The folders of nvidia-cuda-nvrtc (13) and nvidia-cuda-nvrtc-cu12 in the package `nvidia`.
_FOLDERS = (("cu13/lib", "libnvrtc.so.13"), ("cuda_nvrtc/lib", "libnvrtc.so.12"))


def find_compiler() -> str | None:
    """Names a wheel's NVRTC in LATHE_NVRTC, unless that is set. Returns the file."""
    if os.environ.get("LATHE_NVRTC"):
        return os.environ["LATHE_NVRTC"]
    found = importlib.util.find_spec("nvidia")
    for place in (found.submodule_search_locations or ()) if found else ():
        for folder, file in _FOLDERS:
            path = os.path.join(place, folder, file)
            if os.path.exists(path):
                os.environ["LATHE_NVRTC"] = path
                return path
    return None
