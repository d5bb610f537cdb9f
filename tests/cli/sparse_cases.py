# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""sparse_flash_attention from outside: bad input, what compiles nothing, checks, estimates."""
import json
import struct

from harness import Case, save, sparse, tensor

OP, SCALED = "sparse_flash_attention", ["scale=0.2"]


class SparseCases(Case):
    def refused(self, pattern, changes=None, packed=False, options=SCALED, flags=()):
        with self.subTest(pattern=pattern):
            tensors = {**sparse(packed), **(changes or {})}
            save(self.input, {name: each for name, each in tensors.items() if each})
            process = self.start(self.command(OP, options=options, flags=flags))
            out, err = process.communicate(timeout=120)
            self.assert_refused((process.returncode, out, err), pattern)

    def test_tensors(self):
        bad = self.refused
        bad("indices is not declared", {"indices": None})
        bad("k has dtype f16; allowed are bf16, that of q", {"k": tensor("F16", [2, 9, 2, 16])})
        bad("indices has dtype i64; allowed are i32", {"indices": tensor("I64", [2, 5, 2, 4], values=[0] * 80)})
        bad("indices has .*so Sq is 6; \w+ says Sq is 5", {"indices": tensor("I32", [2, 6, 2, 4], values=[0] * 96)})
        bad("indices has .*so HK is 8;", {"indices": tensor("I32", [2, 5, 8, 4], values=[0] * 320)})
        bad("indices has topk = 0", {"indices": tensor("I32", [2, 5, 2, 0], values=[])})
        bad("v has .*so Sk is 8; \w+ says Sk is 9", {"v": tensor("BF16", [2, 8, 2, 24])})
        bad("q_rope is declared without k_rope", {"k_rope": None})
        bad("k_rope has .*so R is 16;|q_rope has .*so R is 8;", {"k_rope": tensor("BF16", [2, 9, 2, 16])})
        bad("H = 7.*HK = 2", {"q": tensor("BF16", [2, 5, 7, 16]), "q_rope": tensor("BF16", [2, 5, 7, 8])})
        bad("q has D = 12.*multiples of 8", {"q": tensor("BF16", [2, 5, 8, 12]), "k": tensor("BF16", [2, 9, 2, 12])})
        bad("rank 3", {"k": tensor("BF16", [9, 2, 16])})
        bad("q_pos has .*so Sq is 4;", {"q_pos": tensor("I32", [2, 4], values=range(8))})
        bad("q_pos has rank 1", {"q_pos": tensor("I32", [5], values=range(5))})
        bad("q_pos has dtype i64", {"q_pos": tensor("I64", [2, 5], values=range(10))})
        bad("sinks has .*so H is 7; \w+ says H is 8", {"sinks": tensor("F32", [7])})
        bad("sinks holds nan at entry 3", {"sinks": tensor("F32", [8], values=[0, 1, 2, float("nan"), 4, 5, 6, 7])})
        bad('"softmax_max" is an output', {"softmax_max": tensor("F32", [2, 2, 5, 4])})
        bad("cu_seqlens_q.*rank 4|no tensor is packed", {"cu_seqlens_q": tensor("I32", [2], values=[0, 5]),
                                                       "cu_seqlens_k": tensor("I32", [2], values=[0, 9])})

    def test_offsets(self):
        def bad(pattern, **values):
            self.refused(pattern, {name: tensor("I32", [len(v)], values=v) for name, v in values.items()}, packed=True)

        bad("cu_seqlens_q begins with 1", cu_seqlens_q=[1, 2, 5])
        bad("cu_seqlens_q ends with 4; allowed is Tq = 5", cu_seqlens_q=[0, 2, 4])
        bad("cu_seqlens_k ends with 8; allowed is Tk = 9", cu_seqlens_k=[0, 8, 8])
        bad("cu_seqlens_k decreases from 8 to 7", cu_seqlens_k=[0, 8, 7])
        bad("cu_seqlens_k has .*so N is 3; cu_seqlens_q says N is 2", cu_seqlens_k=[0, 2, 8, 9])
        self.refused("cu_seqlens_q is declared without cu_seqlens_k", {"cu_seqlens_k": None}, packed=True)

    def test_options(self):
        self.refused("option scale is not set", options=[])
        for option, allowed in (("scale=0", ">0"), ("scale=inf", ">0"), ("block_size=3", "1.2.4.8.16.32.64.128"),
                                ("block_size=256", "1.2.4"), ("sparse_mode=1", "0.3"), ("sparse_mode=4", "0.3"),
                                ("index_space=page", "sequence.absolute"), ("num_splits=-1", "0.>=0"), ("deterministic=2", "0.1")):
            name, value = option.split("=")
            extra = [] if name == "scale" else SCALED
            self.refused(f"option {name} is '{value}'; allowed are .*{allowed}", options=[option, *extra])
        self.refused("block_size is 2 and index_space is absolute", options=[*SCALED, "block_size=2", "index_space=absolute"])
        self.refused("no option 'pre_tokens'", options=[*SCALED, "pre_tokens=3"])
        self.refused("--rotate", flags=["--ranks", "2", "--rotate", "ring"])

    def compiled(self, tensors, options=()):
        report, _ = self.run_op(OP, tensors, [*SCALED, *options])
        self.assertEqual(report["compiled"] + report["hits"], len(report["kernels"]))
        return report["compiled"]

    def test_lengths(self):
        def half(**shape):
            return sparse(dtype="F16", dout=True, **shape)

        calls = [(half(), ()), (half(rows=40, keys=70, topk=64), ["sparse_mode=3"]),
                 (half(B=3, rows=1, topk=1), ["index_space=absolute"]), (half(keys=30, block=4), ["block_size=4"]),
                 (half(rows=0), ()), (half(topk=150), ["num_splits=3"])]
        for i, (tensors, options) in enumerate(calls):
            with self.subTest(call=i):
                self.assertEqual(self.compiled(tensors, options) > 0, i == 0)
        self.assertGreater(self.compiled(half(packed=True)), 0)
        self.assertEqual(self.compiled(half(packed=True, rows=30, keys=12)), 0)

    def test_outputs(self):
        _, out = self.run_op(OP, sparse(), SCALED, LATHE_SIM_CHECK="all")
        self.assertEqual({name: shape for name, (_, shape, _) in out.items()},
                         {"out": [2, 5, 8, 24], "softmax_max": [2, 2, 5, 4], "softmax_sum": [2, 2, 5, 4], "lse": [2, 8, 5]})
        _, out = self.run_op(OP, sparse(packed=True, values=False, dout=True), [*SCALED, "deterministic=1"], LATHE_SIM_CHECK="all")
        self.assertEqual({name: shape for name, (_, shape, _) in out.items()},
                         {"out": [5, 8, 16], "softmax_max": [2, 5, 4], "softmax_sum": [2, 5, 4], "lse": [8, 5], "dq": [5, 8, 16],
                          "dk": [9, 2, 16], "dq_rope": [5, 8, 8], "dk_rope": [9, 2, 8]})

    def test_nothing_named(self):
        tensors = sparse()
        tensors["indices"] = tensor("I32", [2, 5, 2, 4], values=[-1, 9, 2 ** 31 - 1, -2 ** 31] * 20)
        _, out = self.run_op(OP, tensors, SCALED, LATHE_SIM_CHECK="all")
        self.assertEqual(set(out["out"][2]), {0})
        self.assertEqual(set(struct.unpack("<80f", out["lse"][2])), {float("-inf")})

    def test_saved_forward(self):
        inputs = sparse(packed=True, dout=True)
        options = [*SCALED, "sparse_mode=3", "deterministic=1"]
        _, joined = self.run_op(OP, inputs, options)
        saved = {name: joined.pop(name) for name in ("out", "lse", "softmax_max", "softmax_sum")}
        _, apart = self.run_op(OP, {**inputs, "out": saved["out"], "lse": saved["lse"]}, [*options, "saved_forward=1"])
        self.assertEqual(apart, joined)
        _, apart = self.run_op(OP, {**inputs, **saved}, [*options, "saved_forward=1"])
        self.assertEqual(apart, joined)

    def test_check(self):
        report, out = self.run_op(OP, sparse(dout=True), SCALED, verb="check", LATHE_SIM_SEED="5")
        _, plain = self.run_op(OP, sparse(dout=True), SCALED)
        self.assertFalse(report["findings"])
        self.assertEqual(out["out"], plain["out"])
        self.assertEqual(out["dq"], plain["dq"])

    def test_explain(self):
        latent = {"q": "bf16:4096,128,512", "q_rope": "bf16:4096,128,64", "k": "bf16:8192,1,512", "k_rope": "bf16:8192,1,64",
                  "indices": "i32:4096,1,2048"}
        shapes = [word for name, text in latent.items() for word in ("--tensor", f"{name}={text}")]
        status, out, err = self.lathe("explain", OP, *shapes, "--set", "scale=0.04", "--arch", "h200", "--formulas", "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertIn("topk", report["varies"])
        self.assertEqual([kernel["name"] for kernel in report["kernels"]], ["sparse_forward", "sparse_combine"])
        # One launch: rows fill the device. Scores over 576 columns, sums over 512.
        self.assertEqual(report["estimate"]["launches"], 1)
        self.assertEqual(report["estimate"]["flops"], 2 * 4096 * 2048 * 128 * (576 + 512))
        self.assertEqual(report["estimate"]["tensor_ops"], report["estimate"]["flops"])
        status, source, err = self.lathe("dump", OP, *shapes, "--set", "scale=0.04")
        self.assertEqual(status, 0, err)
        self.assertIn("sparse_forward", source)
