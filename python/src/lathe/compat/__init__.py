# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that take the places of other packages' by a change of an import.

The first sentence of a module says whom it follows. Its DROP_INS has a row for each function: the
name, what torch may do around the kernel, in the words of lathe.torch.stats(), and the parameters
that are refused with lathe.Unsupported. scripts/docs makes the tables of docs/python.md from both.

install() puts these functions in the places of whole packages.
"""
from lathe.compat._install import install, uninstall

__all__ = ["install", "uninstall"]
