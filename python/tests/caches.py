# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A cache of two sequences in pages, for tests of attention over caches."""
import torch

from attention import error, reference

BOUND = 2e-3


def made(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


class Pages:
    """A cache in pages of 16 for two sequences, and the same keys in rows."""

    def __init__(self, lengths=(33, 60), width=32, values=None):
        self.k, self.v = made(9, 16, 2, width), made(9, 16, 2, values or width, seed=1)
        order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
        self.table = order[:8].view(2, 4).int()
        self.lengths = torch.tensor(lengths).int()

    def keys(self, b, length):
        """Returns keys and values of a sequence as batches of one."""
        at = self.table[b].long()
        return (cache[at].flatten(0, 1)[None, :length] for cache in (self.k, self.v))

    def expect(self, out, q, added=0, **options):
        """Compares rows of a result with float64; q and out are lists of batches of one."""
        for b in range(2):
            k, v = self.keys(b, int(self.lengths[b]) + added)
            assert error(out[b], reference(q[b], k, v, **options)[0]) < BOUND


def rows(tensor):
    return [tensor[b:b + 1] for b in range(2)]
