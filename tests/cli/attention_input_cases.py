# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input of the operators of flash attention: calls, mods, blocks, their gradients and merges."""
import pathlib
import tempfile

from harness import Case, attention, block, tensor, without


class AttentionInputCases(Case):
    def test_attention(self):
        def bad(pattern, changes=None, packed=False, **rest):
            self.refused(pattern, {**attention(packed), **(changes or {})}, op="flash_attention", **rest)

        bad(r"q has rank 2; its shape is \[B,Sq,H,D\], rank 4, or \[Tq,H,D\]", {"q": tensor("F16", [2, 16])})
        bad("k has .*so D is 24; \w+ says D is 16", {"k": tensor("F16", [2, 7, 2, 24])})
        bad("v has .*so HK is 1; \w+ says HK is 2", {"v": tensor("F16", [2, 7, 1, 8])})
        bad("H = 4.*HK = 3", {"k": tensor("F16", [2, 7, 3, 16]), "v": tensor("F16", [2, 7, 3, 8])})
        bad("q has D = 20.*multiples of 8 up to 256",
            {"q": tensor("F16", [2, 5, 4, 20]), "k": tensor("F16", [2, 7, 2, 20])})
        bad("v has DV = 264", {"v": tensor("F16", [2, 7, 2, 264])})
        bad("q has rank 3.*without cu_seqlens_q", {"q": tensor("F16", [5, 4, 16])})
        bad("k has dtype bf16; allowed is f16, that of q", {"k": tensor("BF16", [2, 7, 2, 16])})
        bad("sinks has .*so H is 3; \w+ says H is 4", {"sinks": tensor("F32", [3])})
        bad("alibi_slopes has .*so B is 3; \w+ says B is 2", {"alibi_slopes": tensor("F32", [3, 4])})
        dout = {"dout": tensor("F16", [2, 5, 4, 8])}
        bad("dlse is declared without dout", {"dlse": tensor("F32", [2, 4, 5])})
        bad("dout has .*so DV is 16; \w+ says DV is 8", {"dout": tensor("F16", [2, 5, 4, 16])})
        bad(r"dout has rank 3", {"dout": tensor("F16", [10, 4, 8])})
        bad("dout has dtype bf16; allowed is f16, that of q", {"dout": tensor("BF16", [2, 5, 4, 8])})
        bad("dlse has .*so Sq is 6;", {**dout, "dlse": tensor("F32", [2, 4, 6])})
        bad("dlse has dtype f16; allowed are f32", {**dout, "dlse": tensor("F16", [2, 4, 5])})
        bad('"dq" is an output', {**dout, "dq": tensor("F16", [2, 5, 4, 16])})
        bad('"out" is an output', {**dout, "out": tensor("F16", [2, 5, 4, 8])})
        bad("dout is declared without out", dout, options=["saved_forward=1"])
        bad("out is declared without lse", {**dout, "out": tensor("F16", [2, 5, 4, 8])}, options=["saved_forward=1"])
        bad("nothing to compute", options=["saved_forward=1"])
        bad("option deterministic is '2'; allowed are 0.1", options=["deterministic=2"])
        for option, allowed in (("softmax_scale=0", "D.-0.5.>0"), ("softmax_scale=inf", "D.-0.5.>0"), ("softcap=-1", "0.>0"),
                                ("window_left=-2", "-1.>=0"), ("window_right=-2", "-1.>=0"), ("causal=2", "0.1")):
            name, value = option.split("=")
            bad(f"option {name} is '{value}'; allowed are {allowed}", options=[option])
        bad("--ranks is \"0\".*from 1 to", flags=["--ranks", "0"])

    def test_attention_mods(self):
        texts = tempfile.TemporaryDirectory(prefix="lathe-cli-texts-")
        self.addCleanup(texts.cleanup)
        path = pathlib.Path(texts.name) / "mine.cuh"

        def bad(pattern, text=None, option="score_mod", changes=None):
            if text is not None:
                path.write_text(text)
            self.refused(pattern, {**attention(), **(changes or {})}, op="flash_attention", options=[f"{option}={path}"])

        head = "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) {"
        identity = head + " return score; }\n"
        bad("option score_mod is '.*mine.cuh', which does not exist")
        bad("option mask_mod is '.*mine.cuh', which does not exist", option="mask_mod")
        bad("score_mod: .*mine.cuh is empty", "")
        bad("score_mod: .*mine.cuh has 262145 bytes", " " * 262145)
        bad(r"score_mod: .*mine.cuh\(1\): a mod includes nothing", "#include <math.h>\n" + identity)
        path.write_text(head + "\n return y; }\n")
        process = self.start(self.command("flash_attention", options=[f"score_mod={path}"]))
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out), (2, ""), err)
        self.assertRegex(err, r"(?s)score_mod: .*mine.cuh does not compile\n.*mine.cuh\(2\): error: identifier .y. is undef")
        bad("mask_mod: .*mine.cuh must define __device__ bool mask_mod.int batch", identity, option="mask_mod")
        bad("score_mod: .*mine.cuh writes memory", head + " *(float*)(long long)q_idx = 1; return score; }")
        bad("score_mod: .*mine.cuh depends on the thread", head + " return score + threadIdx.x; }")
        bad("dout is declared and option score_mod is .*mine.cuh, which has no gradient.*score_mod_bwd", identity,
            changes={"dout": tensor("F16", [2, 5, 4, 8])})
        bad(r"capture_0 has rank 2; its shape is \[C0\]", identity, changes={"capture_0": tensor("F32", [2, 2])})
        self.refused("capture_1 is declared, but nothing reads it", {**attention(), "capture_1": tensor("F32", [2])},
                     op="flash_attention")
        self.refused("option score_mod is '.*', which is no file", attention(), op="flash_attention",
                     options=[f"score_mod={texts.name}"])
        self.refused("option scalar_0 is 'x'; allowed are 0.any", attention(), op="flash_attention", options=["scalar_0=x"])

    def test_attention_offsets(self):
        def bad(pattern, changes):
            tensors = {**attention(packed=True), **changes}
            self.refused(pattern, {k: v for k, v in tensors.items() if v}, op="flash_attention")

        def offsets(*values, dtype="I32"):
            return tensor(dtype, [len(values)], values=list(values))

        bad("cu_seqlens_q begins with 1; allowed is 0", {"cu_seqlens_q": offsets(1, 2, 10)})
        bad("cu_seqlens_k decreases from 9 to 8 at entry 2",
            {"cu_seqlens_q": offsets(0, 4, 4, 10), "cu_seqlens_k": offsets(0, 9, 8, 14)})
        bad("cu_seqlens_q ends with 9; allowed is Tq = 10", {"cu_seqlens_q": offsets(0, 4, 9)})
        bad("cu_seqlens_k ends with 15; allowed is Tk = 14", {"cu_seqlens_k": offsets(0, 4, 15)})
        bad("cu_seqlens_k has .*so N is 1; \w+ says N is 2|cu_seqlens_q.* N is 2", {"cu_seqlens_k": offsets(0, 14)})
        bad("cu_seqlens_q is declared without cu_seqlens_k", {"cu_seqlens_k": None})
        bad("cu_seqlens_k is declared without cu_seqlens_q", {"cu_seqlens_q": None})
        bad("cu_seqlens_k has dtype i64; allowed is i32, that of cu_seqlens_q", {"cu_seqlens_k": offsets(0, 4, 14, dtype="I64")})
        bad("alibi_slopes has B = 3; cu_seqlens_q has N = 2", {"alibi_slopes": tensor("F32", [3, 4])})
        bad("cu_seqlens_[kq] is given, but no tensor is packed",
            {"q": tensor("F16", [2, 5, 4, 16]), "k": tensor("F16", [2, 7, 2, 16]), "v": tensor("F16", [2, 7, 2, 8])})

    def test_attention_block(self):
        def bad(pattern, changes=None, **rest):
            tensors = {**block(), **(changes or {})}
            self.refused(pattern, {k: v for k, v in tensors.items() if v}, op="flash_attention_block", **rest)

        def ranges(*rows):
            return {"ranges": block(rows)["ranges"]}

        bad(r"ranges has shape \[2, 6\]; extent 1 of \[NP,7\] must be 7", {"ranges": tensor("I32", [2, 6], values=[0] * 12)})
        bad("neither ranges nor q_pos and k_pos", {"ranges": None})
        bad("ranges is declared beside q_pos", {**block(positions=True)})
        bad("q_pos is declared without k_pos", {**block(positions=True), "ranges": None, "k_pos": None})
        bad("ranges has dtype i64; allowed are i32", {"ranges": tensor("I64", [1, 7], values=[0] * 7)})
        bad("row 0: qa, qb is 3, 2; allowed.*Tq = 10", ranges((3, 2, 0, 9, 0, 0, 0)))
        bad("row 1: ka, kb is 0, 10; allowed.*Tk = 9", ranges((0, 2, 0, 9, 0, 0, 0), (2, 4, 0, 10, 0, 0, 0)))
        bad("row 1: qa is 1 after 2", ranges((2, 3, 0, 9, 0, 0, 0), (1, 2, 0, 9, 0, 0, 0)))
        bad("row 1: it shares rows and keys with row 0", ranges((0, 3, 0, 5, 0, 0, 0), (2, 4, 4, 9, 0, 0, 0)))
        bad("q_pos holds 1073741824 at entry 2", {**block(positions=True), "ranges": None,
                                            "q_pos": tensor("I32", [10], values=[0, 1, 1 << 30] + [0] * 7)})
        batch = block(batch=[2])
        bad("row 0: qa, qb is 0, 11; allowed.*Sq = 10", {**batch, **ranges((0, 11, 0, 9, 0, 0, 0))})
        bad(r"lse has shape \[H,Tq\], but q has \[B,Sq,H,D\]", {**batch, "lse": tensor("F32", [4, 10])})
        bad("q_pos has Tq = 9, but q has Sq = 10", {**block(positions=True, batch=[2]), "ranges": None,
                                                    "q_pos": tensor("I32", [9], values=range(9))})
        bad("out has dtype bf16; allowed are f32", {"out": tensor("BF16", [10, 4, 8])})
        bad("lse is not declared", {"lse": None})
        bad("H = 4.*HK = 3", {"k": tensor("BF16", [9, 3, 16]), "v": tensor("BF16", [9, 3, 8])})
        bad("option first is '2'; allowed are 0.1", options=["first=2"])

    def test_attention_block_bwd(self):
        gradients = {"dout": tensor("BF16", [10, 4, 8]), "delta": tensor("F32", [4, 10]), "dq": tensor("F32", [10, 4, 16]),
                     "dk": tensor("F32", [9, 2, 16]), "dv": tensor("F32", [9, 2, 8])}
        tensors = {**without(block(), "out"), **gradients}

        def bad(pattern, changes):
            self.refused(pattern, {k: v for k, v in {**tensors, **changes}.items() if v}, op="flash_attention_block_bwd")

        bad("delta is not declared", {"delta": None})
        bad("dk is not declared", {"dk": None})
        bad("has no tensor .out.", {"out": tensor("F32", [10, 4, 8])})
        bad("dq has dtype bf16; allowed are f32", {"dq": tensor("BF16", [10, 4, 16])})
        bad("dv has .*so Tk is 8; \w+ says Tk is 9", {"dv": tensor("F32", [8, 2, 8])})
        bad("row 1: it shares rows and keys with row 0", {"ranges": block([(0, 3, 0, 5, 0, 0, 0), (2, 4, 4, 9, 0, 0, 0)])["ranges"]})
        rows = {"out": tensor("BF16", [10, 4, 8]), "dout": tensor("BF16", [10, 4, 8])}
        self.refused("lse is not declared", rows, op="flash_attention_delta")
        self.refused("dout has dtype f16; allowed is bf16, that of out",
                     {**rows, "lse": tensor("F32", [4, 10]), "dout": tensor("F16", [10, 4, 8])}, op="flash_attention_delta")

    def test_lse_merge(self):
        def bad(pattern, changes):
            tensors = {"out": tensor("F32", [10, 4, 8]), "lse": tensor("F32", [4, 10]), **changes}
            self.refused(pattern, tensors, op="lse_merge")

        bad("nothing to merge: declare block_out and block_lse, sinks, or rounded", {})
        bad("block_out is declared without block_lse", {"block_out": tensor("F16", [10, 4, 8])})
        bad("block_lse has rank 3, .B,H,Sq.; allowed is .H,Tq., since out is .Tq,H,DV.",
            {"block_out": tensor("F16", [10, 4, 8]), "block_lse": tensor("F32", [2, 4, 5])})
        bad("out has .*so H is 4; sinks says H is 3", {"sinks": tensor("F32", [3])})
        bad("out has DV = 12", {"out": tensor("F32", [10, 4, 12]), "sinks": tensor("F32", [4])})
