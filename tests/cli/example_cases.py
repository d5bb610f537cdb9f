# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The mod that docs/attention.md shows, against its mask by plain loops."""
import math
import pathlib

from harness import Case, tensor, unpack

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"
S, D = 200, 8


def attend(q, k, v, kept):
    """[S, D] by rows; kept(i, j)."""
    out = []
    for i in range(S):
        keys = [j for j in range(S) if kept(i, j)]
        scores = [sum(q[i * D + c] * k[j * D + c] for c in range(D)) / math.sqrt(D) for j in keys]
        weights = [math.exp(x) for x in scores]
        out += [sum(w * v[j * D + c] for w, j in zip(weights, keys)) / sum(weights) for c in range(D)]
    return out


class ExampleCases(Case):
    def test_mask(self):
        tensors = {name: tensor("F16", [1, S, 1, D], seed) for seed, name in enumerate("qkv")}
        options = [f"mask_mod={EXAMPLES / 'first_and_near.cuh'}"]
        _, found = self.run_op("flash_attention", tensors, options, LATHE_SIM_CHECK="all")
        q, k, v = (unpack("F16", tensors[name][2]) for name in "qkv")
        expected = attend(q, k, v, lambda i, j: j <= i and (j < 4 or i - j < 128))
        self.assertEqual(found["out"][1], [1, S, 1, D])
        for a, r in zip(unpack("F16", found["out"][2]), expected):
            self.assertLess(abs(a - r), 2e-3)
