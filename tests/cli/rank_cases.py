# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Many ranks equal one: outputs bit by bit, gradients to the rounding of their dtype."""
import json
import tempfile

from harness import Case, attention, conv, kda, pack, save, sparse, tensor, unpack

BOUNDS = {"F32": 1e-5, "F16": 3e-3, "BF16": 1e-2}
FULL = dict(bias=True, residual=True, state=True, backward=True, dfinal=True)


def distance(a, b):
    """rms(a - b) / rms(a)"""
    one, two = unpack(a[0], a[2]), unpack(b[0], b[2])
    error = sum((p - q)**2 for p, q in zip(one, two))
    norm = sum(p * p for p in one)
    return (error / norm)**0.5 if norm else float(error > 0)


class RankCases(Case):
    def assert_equal_ranks(self, tensors, ranks, options=("activation=silu", "output_final_state=1"), flags=()):
        _, one = self.run_op("causal_conv1d", tensors, options)
        for world in ranks:
            with self.subTest(ranks=world, flags=flags):
                _, many = self.run_op("causal_conv1d", tensors, options, ["--ranks", str(world), *flags])
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

    def write_ranges(self, table):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = f"{folder.name}/ranges.json"
        with open(path, "w", encoding="utf-8") as file:
            file.write(table if isinstance(table, str) else json.dumps(table))
        return path

    def test_balances_and_ranges(self):
        packed, rows = conv(T=37, offsets=[0, 9, 9, 11, 12, 37, 37], **FULL), conv(B=2, T=37, **FULL)
        table = self.write_ranges([[[0, 10], [20, 21]], [], [[10, 20], [21, 37]]])
        for flags in (["--balance", "head_tail"], ["--balance", "per_document"], ["--ranges", table]):
            self.assert_equal_ranks(packed, [3], flags=flags)
            self.assert_equal_ranks(rows, [3], flags=flags)

    def test_ranges_are_refused(self):
        save(self.input, conv(T=37))
        for table, pattern in (
                ([[[0, 10]], [[11, 37]]], "token 10 lies in no range of any rank"),
                ([[[0, 10]], [[9, 37]]], "token 9 lies in ranges of rank 0 and of rank 1"),
                ([[[0, 37]]], "has lists for 1 ranks; --ranks is 2"),
                ([[[0, 37]], [[1]]], "range 0 of rank 1 is no pair of integers"),
                ({"ranks": []}, "which is no list"), ("[[", "which is not valid JSON")):
            words = self.command("causal_conv1d", flags=["--ranks", "2", "--ranges", self.write_ranges(table)])
            self.assert_refused(self.lathe(*words[1:]), pattern)
        words = self.command("causal_conv1d", flags=["--ranks", "2", "--ranges", "x.json", "--balance", "ptrr"])
        self.assert_refused(self.lathe(*words[1:]), "--balance and --ranges are given")

    def test_rank_invariant(self):
        """The bits of one rank, with --ranks 1 and without --ranks, for every table on multiples of 64."""
        table = self.write_ranges([[[0, 64], [192, 200]], [], [[64, 192], [200, 264], [328, 330]], [[264, 328]]])
        cases = [("causal_conv1d", conv(T=330, dtype="BF16", offsets=[0, 200, 330], **FULL), ("activation=silu",)),
                 ("kda", kda(B=1, T=330, offsets=[0, 200, 330]), ("use_qk_l2norm_in_kernel=1",))]
        for op, tensors, options in cases:
            _, alone = self.run_op(op, tensors, options, ["--rank-invariant"])
            for flags in (["--ranks", "1"], ["--ranks", "4", "--ranges", table]):
                with self.subTest(op=op, flags=flags):
                    _, many = self.run_op(op, tensors, options, ["--rank-invariant", *flags])
                    self.assertEqual(alone, many)

    def test_rank_invariant_is_refused(self):
        save(self.input, attention(packed=True))
        words = self.command("flash_attention", flags=["--rank-invariant", "--ranks", "3"])
        self.assert_refused(self.lathe(*words[1:]), "tokens into sequence 0; allowed with LATHE_RANK_INVARIANT")
        words = self.command("flash_attention", flags=["--rank-invariant", "--ranks", "2", "--rotate", "allgather"])
        self.assert_refused(self.lathe(*words[1:]), "with LATHE_RANK_INVARIANT .32., which has ways of its own")
        save(self.input, {"x": tensor("F32", [4]), "indices": tensor("I32", [1], values=[2])})
        words = self.command("shard", flags=["--rank-invariant"])
        self.assert_refused(self.lathe(*words[1:]), "--rank-invariant is given, but shard runs on one rank")

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

    def assert_equal_attention(self, tensors, options, ways):
        """Rows of a rank meet keys in another order: equal to the rounding of the results' types."""
        _, one = self.run_op("flash_attention", tensors, options)
        for flags in ways:
            with self.subTest(flags=flags):
                report, many = self.run_op("flash_attention", tensors, options, flags.split(), verb="check")
                self.assertEqual(report["findings"], [])
                self.assertEqual({n: t[:2] for n, t in one.items()}, {n: t[:2] for n, t in many.items()})
                for name in one:
                    # The gradient of sinks is a sum over rows of what the rounding of out leaves.
                    bound = BOUNDS["F16" if name == "dsinks" else one[name][0]]
                    self.assertLessEqual(distance(one[name], many[name]), bound, name)

    def test_attention_batches(self):
        tensors = {**attention(), "dout": tensor("F16", [2, 5, 4, 8], 3), "sinks": tensor("F32", [4])}
        self.assert_equal_attention(tensors, ("causal=1",), [
            "--ranks 1", "--ranks 2", "--ranks 2 --balance head_tail", "--ranks 3 --rotate allgather --balance head_tail"])

    def test_attention_packed(self):
        tensors = {**attention(packed=True), "dout": tensor("F16", [10, 4, 8], 3)}
        self.assert_equal_attention(tensors, ("causal=1", "deterministic=1"), [
            "--ranks 3 --balance per_document", "--ranks 2 --rotate allgather --balance ptrr", "--ranks 12"])

    def test_attention_without_causal(self):
        self.assert_equal_attention(attention(), (), ["--ranks 3 --rotate ring --balance head_tail"])

    def test_choices(self):
        def refused(op, tensors, flags, pattern, options=()):
            save(self.input, tensors)
            self.assert_refused(self.lathe(*self.command(op, options=options, flags=flags.split())[1:]), pattern)
        refused("flash_attention", attention(), "--ranks 2 --rotate star", "--rotate is .star.; flash_attention allows ring, allgather,")
        refused("flash_attention", attention(), "--ranks 2 --balance even", "--balance is .even.; flash_attention allows none, head_tail")
        refused("flash_attention", attention(), "--balance head_tail", "--balance is .head_tail., but --ranks is not given")
        refused("flash_attention", attention(), "--ranks 0", "--ranks is .0.")
        refused("kda", kda(H=2), "--ranks 2 --rotate ring", "--rotate is .ring., but no keys travel in kda")
        refused("kda", kda(H=2), "--ranks 2 --balance even", "--balance is .even.; kda allows none, head_tail")
        refused("sparse_flash_attention", sparse(), "--ranks 2 --rotate ring", "--rotate is .ring.; sparse_flash_attention allows allgather",
                ("scale=0.25",))
        refused("shard", {"x": tensor("F32", [4]), "indices": tensor("I32", [1], values=[2])}, "--ranks 2", "--ranks")

    def test_shards(self):
        """Tokens taken and put back by the indices of a plan."""
        order = [0, 3, 1, 2]
        x = tensor("F32", [2, 4, 3])
        rows = unpack("F32", x[2])
        taken = [rows[(b * 4 + t) * 3 + i] for b in range(2) for t in order[:3] for i in range(3)]
        indices = tensor("I32", [3], values=order[:3])
        _, out = self.run_op("shard", {"x": x, "indices": indices}, ("axis=1",), verb="check")
        self.assertEqual(out, {"y": ("F32", [2, 3, 3], pack("F32", taken))})
        kept = tensor("F32", [2, 4, 3], values=[7.0] * 24)
        _, back = self.run_op("unshard", {"x": out["y"], "indices": indices, "y": kept}, ("axis=1",), verb="check")
        whole = [rows[(b * 4 + t) * 3 + i] if t != 2 else 7.0 for b in range(2) for t in range(4) for i in range(3)]
        self.assertEqual(back["y"], ("F32", [2, 4, 3], pack("F32", whole)))
        everything = tensor("I32", [4], values=order)
        _, there = self.run_op("shard", {"buffer": x, "indices": everything}, ("axis=1",))
        _, home = self.run_op("unshard", {"buffer": there["buffer"], "indices": everything}, ("axis=1",))
        self.assertEqual(home["buffer"], x)

    def test_bad_input_is_said_once(self):
        save(self.input, conv(W=9))
        self.assert_refused(self.lathe(*self.command("causal_conv1d", flags=["--ranks", "3"])[1:]), "W = 9")
