# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The list of cases: a name, where it runs, and a function that answers [(what, got, want, bound)].

The bound is on max |got - want| / max(1, max |want|); 0 asks for equality.
"""
import collections

Case = collections.namedtuple("Case", "name group archs known run")
CASES = []

# See "Findings that are real" in README.md: two threads at the same store.
EQUAL_STORES = r"race \S+: store to shared .* at PTX line (\d+) .* races with the store .* at PTX line \1 "


def case(group, archs=("sm_80", "sm_90a"), known=None):
    """known: a pattern of findings that are real and told of in README.md, as "kind kernel: text"."""
    def keep(run):
        CASES.append(Case(run.__name__, group, archs, known, run))
        return run
    return keep
