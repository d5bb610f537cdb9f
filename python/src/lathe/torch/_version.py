# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The versions of torch that lathe.torch is for; it is imported before all else of it."""
import torch

OLDEST = (2, 6)

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(f"torch is {torch.__version__}; allowed is {OLDEST[0]}.{OLDEST[1]} or newer "
                      "with lathe.torch: pip install --upgrade torch")
