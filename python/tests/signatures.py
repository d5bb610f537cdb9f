# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Signatures as texts, to be compared with those of the peers."""
import inspect


def bare(function):
    """Returns the text of a signature without annotations."""
    found = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(inspect.Signature(plain))
