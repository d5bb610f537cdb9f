# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Caches in pages: what a file may say of them, and which outputs there are."""
import math

from harness import Case, save, tensor, unpack


def ints(*shape, values):
    return tensor("I32", shape, values=values)


def decode(append=False, table=(2, 0, 9, 3, 5, 9), lengths=(5, 8), dtype="F16"):
    """Two sequences of 5 and 8 keys in pages of 4, the table's last column not in use; append: 1 more each."""
    out = {"q": tensor(dtype, [2, 1, 4, 16]), "k_cache": tensor(dtype, [6, 4, 2, 16]), "v_cache": tensor(dtype, [6, 4, 2, 8]),
           "block_table": ints(2, 3, values=table), "cache_seqlens": ints(2, values=lengths)}
    if append:
        out["k_new"], out["v_new"] = tensor(dtype, [2, 1, 2, 16], seed=1), tensor(dtype, [2, 1, 2, 8], seed=1)
    return out


class PageCases(Case):
    def refused(self, pattern, tensors, options=(), flags=()):
        with self.subTest(pattern=pattern):
            save(self.input, tensors)
            process = self.start(self.command("flash_attention_decode", options=options, flags=flags))
            out, err = process.communicate(timeout=120)
            self.assert_refused((process.returncode, out, err), pattern)

    def test_refused(self):
        self.refused(r"block_table has -1 at entry \[0, 1\]; allowed are 0 to 5", decode(table=(2, -1, 9, 3, 5, 9)))
        self.refused(r"block_table has 6 at entry \[1, 0\]; allowed are 0 to 5", decode(table=(2, 0, 9, 6, 5, 9)))
        self.refused("cache_seqlens has 13 at entry 0; allowed are 0 to 12", decode(lengths=(13, 8)))
        self.refused("cache_seqlens has 12 at entry 0; allowed are 0 to 11, .* less the 1 that are appended",
                     decode(append=True, lengths=(12, 7), table=(2, 0, 1, 3, 5, 4)))
        # The ninth key of the second sequence is in a page that the table names but does not have.
        self.refused(r"block_table has 9 at entry \[1, 2\]", decode(append=True))
        self.refused(r"block_table has 0 at entry \[1, 0\], the page that sequence 0 appends to",
                     decode(append=True, table=(2, 0, 9, 0, 5, 4)))
        half = decode(append=True, table=(2, 0, 1, 3, 5, 4))
        del half["v_new"]
        self.refused("k_new.* declared without v_new", half)
        self.refused("block_table has dtype i64; allowed are i32",
                     {**decode(), "block_table": tensor("I64", [2, 3], values=[0] * 6)})
        self.refused("cache_seqlens has .*so B is 3; \w+ says B is 2", {**decode(), "cache_seqlens": ints(3, values=[1, 1, 1])})
        self.refused("v_cache has .*so page is 8; \w+ says page is 4", {**decode(), "v_cache": tensor("F16", [6, 8, 2, 8])})
        self.refused("page = 0", {**decode(), "k_cache": tensor("F16", [6, 0, 2, 16]), "v_cache": tensor("F16", [6, 0, 2, 8])})
        self.refused("num_splits is '-1'; allowed are 0.>=0", decode(), options=["num_splits=-1"])
        self.refused("score_mod.*bias.cuh", decode(), options=["score_mod=bias.cuh"])
        self.refused("has dtype f32; allowed are f16.bf16", decode(dtype="F32"))
        self.refused('--ranks is "2".*from 1 to 1', decode(), flags=["--ranks", "2"])

    def test_outputs(self):
        _, outputs = self.run_op("flash_attention_decode", decode())
        self.assertEqual(set(outputs), {"out", "lse"})
        # Reading alone, sequences may share a page, and what is not in use may hold anything.
        _, outputs = self.run_op("flash_attention_decode", decode(table=(2, 0, -1, 2, 5, 77)), options=["num_splits=3"])
        self.assertTrue(all(math.isfinite(x) for x in unpack("F16", outputs["out"][2])))

    def test_append(self):
        tensors = decode(append=True, table=(2, 0, 9, 2, 5, 4))
        _, outputs = self.run_op("flash_attention_decode", tensors, options=["causal=1"])
        self.assertEqual(set(outputs), {"out", "lse", "k_cache", "v_cache"})
        for kind, width in (("k", 16), ("v", 8)):
            row = 2 * width * 2  # bytes: two heads
            expected = bytearray(tensors[f"{kind}_cache"][2])
            new = tensors[f"{kind}_new"][2]
            for sequence, place in ((0, 0 * 4 + 1), (1, 4 * 4 + 0)):  # position 5 is in page 0, position 8 in page 4
                expected[place * row:(place + 1) * row] = new[sequence * row:(sequence + 1) * row]
            self.assertEqual(outputs[f"{kind}_cache"][2], bytes(expected))

    def test_check(self):
        save(self.input, decode(append=True, table=(2, 0, 9, 3, 5, 4)))
        words = self.command("flash_attention_decode", verb="check", options=["num_splits=2"])
        status, out, err = self.lathe(*words[1:])
        self.assertEqual((status, out), (0, "0 findings in 2 launches (seed 0)\n"), err)
