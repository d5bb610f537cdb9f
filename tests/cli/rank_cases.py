# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Many ranks equal one: outputs bit by bit, gradients to the rounding of their dtype."""
from harness import Case, conv, unpack

BOUNDS = {"F32": 1e-5, "F16": 3e-3, "BF16": 1e-2}
FULL = dict(bias=True, residual=True, state=True, backward=True, dfinal=True)


def distance(a, b):
    """rms(a - b) / rms(a)"""
    one, two = unpack(a[0], a[2]), unpack(b[0], b[2])
    error = sum((p - q)**2 for p, q in zip(one, two))
    norm = sum(p * p for p in one)
    return (error / norm)**0.5 if norm else float(error > 0)


class RankCases(Case):
    def assert_equal_ranks(self, tensors, ranks, options=("activation=silu", "output_final_state=1")):
        _, one = self.run_op("causal_conv1d", tensors, options)
        for world in ranks:
            with self.subTest(ranks=world):
                _, many = self.run_op("causal_conv1d", tensors, options, ["--ranks", str(world)])
                self.assertEqual({n: t[:2] for n, t in one.items()}, {n: t[:2] for n, t in many.items()})
                for name in one:
                    if name in ("y", "final_state", "dresidual"):
                        self.assertEqual(one[name], many[name], name)
                    else:
                        self.assertLessEqual(distance(one[name], many[name]), BOUNDS[one[name][0]], name)

    def test_batches(self):
        self.assert_equal_ranks(conv(B=2, T=37, **FULL), [1, 2, 3, 7])

    def test_packed(self):
        self.assert_equal_ranks(conv(T=37, offsets=[0, 9, 9, 11, 12, 37, 37], **FULL), [1, 2, 3, 7])

    def test_parts_of_one_or_two_tokens(self):
        for width in (4, 8):
            self.assert_equal_ranks(conv(B=2, T=11, W=width, **FULL), [6, 7, 11])
            self.assert_equal_ranks(conv(T=11, W=width, offsets=[0, 0, 1, 4, 11], **FULL), [7, 11])

    def test_more_ranks_than_tokens(self):
        self.assert_equal_ranks(conv(T=3, **FULL), [5])
        self.assert_equal_ranks(conv(T=2, offsets=[0, 0, 1, 2, 2], **FULL), [5])

    def test_no_tokens(self):
        self.assert_equal_ranks(conv(T=0, **FULL), [1, 3])

    def test_forward_alone(self):
        self.assert_equal_ranks(conv(B=2, T=19, dtype="BF16"), [3], ())

    def test_backward_without_states(self):
        self.assert_equal_ranks(conv(T=19, dtype="F16", backward=True), [3], ("activation=silu",))

    def test_kernels_are_listed_once(self):
        report, _ = self.run_op("causal_conv1d", conv(T=40, D=24), flags=["--ranks", "4"])
        keys = [k["key"] for k in report["kernels"]]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual(report["compiled"] + report["hits"], len(keys))

    def test_bad_input_is_said_once(self):
        from harness import save
        save(self.input, conv(W=9))
        self.assert_refused(self.lathe(*self.command("causal_conv1d", flags=["--ranks", "3"])[1:]), "W = 9")
