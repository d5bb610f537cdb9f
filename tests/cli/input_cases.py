# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input: exit 2, one line that names the thing, nothing left behind. And what is legal although it looks odd."""
import json
import pathlib
import struct
import tempfile

from harness import Case, attention, block, conv, kda, load, save, tensor, unpack, update


def without(tensors, name):
    return {k: v for k, v in tensors.items() if k != name}


class InputCases(Case):
    def refused(self, pattern, tensors=None, op="causal_conv1d", options=(), flags=()):
        with self.subTest(pattern=pattern):
            save(self.input, conv() if tensors is None else tensors)
            process = self.start(self.command(op, options=options, flags=flags))
            out, err = process.communicate(timeout=120)
            self.assert_refused((process.returncode, out, err), pattern)

    def test_tensors(self):
        self.refused("weight is not declared, but causal_conv1d requires it", without(conv(), "weight"))
        self.refused("no tensor 'z'; it has x, weight", {**conv(), "z": tensor("F32", [1])})
        self.refused('"y" is an output', {**conv(), "y": tensor("F32", [1, 20, 16])})
        self.refused(r"weight has rank 1; its shape is \[D,W\]", {**conv(), "weight": tensor("F32", [16])})
        self.refused(r"weight has .*so D is 15; \w+ says D is 16", {**conv(), "weight": tensor("F32", [15, 4])})
        self.refused(r"dy has .*so T is 19; \w+ says T is 20", {**conv(), "dy": tensor("F32", [1, 19, 16])})
        self.refused(r"dfinal_state.*without dy", {**conv(), "dfinal_state": tensor("F32", [1, 16, 4])})
        self.refused(r"initial_state has N = 2 and x has B = 1", {**conv(), "initial_state": tensor("F32", [2, 16, 4])})
        self.refused(r"initial_state has .*so W is 3; weight says W is 4", {**conv(), "initial_state": tensor("F32", [1, 16, 3])})
        self.refused("state is not declared", without(update(), "state"), op="causal_conv1d_update")
        self.refused("has no tensor .dy.", {**update(), "dy": tensor("F32", [3, 16])}, op="causal_conv1d_update")

    def test_dtypes(self):
        self.refused("x has dtype i32; allowed are f32.f16.bf16", {**conv(), "x": tensor("I32", [1, 20, 16], values=[0] * 320)})
        self.refused("bias has dtype f16; allowed is f32, that of weight", {**conv(), "bias": tensor("F16", [16])})
        self.refused("residual has dtype f16; allowed is f32, that of x", {**conv(), "residual": tensor("F16", [1, 20, 16])})
        self.refused("dy has dtype bf16; allowed is f32, that of x", {**conv(), "dy": tensor("BF16", [1, 20, 16])})
        self.refused("cu_seqlens has dtype f32; allowed are i32.i64", {**conv(), "cu_seqlens": tensor("F32", [2], values=[0, 20])})
        self.refused('"x".*"F64", allowed: F32, F16, BF16, I32, I64', {**conv(), "x": tensor("F64", [1, 20, 16])})

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

    def test_kda(self):
        def bad(pattern, changes=None, options=(), **shape):
            tensors = {**kda(**shape), **(changes or {})}
            self.refused(pattern, {k: v for k, v in tensors.items() if v}, op="kda_recurrent", options=options)

        bad("beta.* HV is 1", {"beta": tensor("F32", [2, 3, 1])})
        bad("g.* HV is 3", {"g": tensor("F32", [2, 3, 3, 8])})
        bad("K = 6.*multiples of 4 from 8 to 256", K=6)
        bad("V = 260.*multiples of 4 from 8 to 256", V=260)
        bad("HV = 3.*H = 2", H=2, HV=3)
        bad("initial_state has dtype bf16; allowed are f32", {"initial_state": tensor("BF16", [2, 2, 8, 12])})
        bad("initial_state.* K is 12", {"initial_state": tensor("F32", [2, 2, 12, 8])})
        bad("initial_state.* V is 8", {"initial_state": tensor("F32", [2, 2, 8, 12])}, ["state_v_first=1"])
        bad("initial_state has N = 3 and q has B = 2", {"initial_state": tensor("F32", [3, 2, 8, 12])})
        bad("has B = 2; packed sequences need B = 1", offsets=[0, 1, 3])
        bad("has no tensor .do.", {"do": tensor("F32", [2, 3, 2, 12])})
        bad("cu_seqlens ends with 4; allowed is T = 3", B=1, offsets=[0, 1, 4])
        bad("lower_bound is '-6'; allowed are unset.\\[-5,0\\)", options=["lower_bound=-6"])
        bad("A_log is not declared.*lower_bound", options=["use_gate_in_kernel=1"])
        bad("dt_bias has extent 15; allowed is HV . K = 2 . 8 = 16", {"dt_bias": tensor("F32", [15])},
            ["use_gate_in_kernel=1", "lower_bound=-5"])
        bad("safe_gate.*lower_bound is unset", {"A_log": tensor("F32", [2])}, ["use_gate_in_kernel=1", "safe_gate=1"])
        bad("allow_neg_eigval.*use_beta_sigmoid_in_kernel", options=["allow_neg_eigval=1"])
        bad("final_state is declared with state_pool", options=["output_final_state=1"], pool=4, indices=[0, 1])

    def test_kda_slots(self):
        def bad(pattern, **pool):
            self.refused(pattern, kda(**pool), op="kda_recurrent")

        bad("state_indices holds 4 at entry 1; allowed are slots below S = 4", pool=4, indices=[0, 4])
        bad("state_indices gives slot 2 to sequences 0 and 1", pool=4, indices=[2, 2])
        bad("gives slot 3 to sequences 0 and 1", pool=4, indices=[[0, 1, 3], [3, 2, -1]])
        bad("sequence 0 has 3 tokens.*spec = 2", pool=4, indices=[[0, 1], [2, 3]])
        bad("sequence 1 has 2 tokens and state_indices has spec = 1", B=1, offsets=[0, 1, 3], pool=4, indices=[[0], [2]])
        bad("state_indices has N = 3 and q has B = 2", pool=4, indices=[0, 1, 2])
        bad("num_accepted_tokens.*rank 1", pool=4, indices=[0, 1], accepted=[1, 1])
        rows = [[0, 1, 2], [3, 4, 5]]
        bad("num_accepted_tokens holds 0 at entry 1; allowed are 1 to spec = 3", pool=6, indices=rows, accepted=[1, 0])
        bad("num_accepted_tokens holds 4 at entry 0; allowed are 1 to spec = 3", pool=6, indices=rows, accepted=[4, 1])
        bad("state_pool is declared without state_indices|state_indices", pool=4, indices=[0, 1, -1, 2])

    def test_kda_chunked(self):
        def bad(pattern, changes=None, options=(), **shape):
            tensors = {**kda(**shape), **(changes or {})}
            self.refused(pattern, {k: v for k, v in tensors.items() if v}, op="kda", options=options)

        do = {"do": tensor("F32", [2, 3, 2, 12])}
        state = [2, 2, 8, 12]
        bad("beta.* HV is 1", {"beta": tensor("F32", [2, 3, 1])})
        bad("g.* HV is 3", {"g": tensor("F32", [2, 3, 3, 8])})
        bad("K = 6.*multiples of 4 from 8 to 256", K=6)
        bad("HV = 3.*H = 2", H=2, HV=3)
        bad("initial_state has dtype bf16; allowed are f32", {"initial_state": tensor("BF16", state)})
        bad("dht has dtype f16; allowed are f32", {**do, "dht": tensor("F16", state)})
        bad("dht is declared without do", {"dht": tensor("F32", state)})
        bad("do has dtype bf16; allowed is f32, that of q", {"do": tensor("BF16", [2, 3, 2, 12])})
        bad("do has .*so V is 8; \w+ says V is 12", {"do": tensor("F32", [2, 3, 2, 8])})
        bad('"o" is an output', {"o": tensor("F32", [2, 3, 2, 12])})
        bad('"dq" is an output', {**do, "dq": tensor("F32", [2, 3, 1, 8])})
        bad("has no tensor .state_pool.", {"state_pool": tensor("F32", state)})
        bad("has B = 2; packed sequences need B = 1", offsets=[0, 1, 3])
        bad("cu_seqlens ends with 2; allowed is T = 3", B=1, offsets=[0, 2])
        bad("chunk_size is '48'; allowed are 64.16.32", options=["chunk_size=48"])
        bad("lower_bound is '-6'; allowed are unset.\\[-5,0\\)", options=["lower_bound=-6"])
        bad("A_log is not declared.*lower_bound", options=["use_gate_in_kernel=1"])
        bad("safe_gate.*lower_bound is unset", {"A_log": tensor("F32", [2])}, ["use_gate_in_kernel=1", "safe_gate=1"])
        bad("allow_neg_eigval.*use_beta_sigmoid_in_kernel", options=["allow_neg_eigval=1"])
        bad("segments is '33'; allowed are 0..1,33", options=["segments=33"])
        bad("warmup_segments is 4.*do is declared", do, ["warmup_segments=4", "use_qk_l2norm_in_kernel=1"])
        bad("warmup_segments is 4.*use_qk_l2norm_in_kernel", options=["warmup_segments=4"])
        bad("saved_values.*saved_states", {"saved_values": tensor("F32", [2, 3, 2, 12])}, ["disable_recompute=1"])
        self.refused("--rotate", kda(), op="kda", flags=["--ranks", "2", "--rotate", "ring"])
        self.refused("--balance", kda(), op="kda", flags=["--ranks", "2", "--balance", "head_tail"])

    def test_kda_chunk_states(self):
        # Packed, those of all sequences, of which one is empty; what is given is not changed.
        tensors = kda(B=1, T=70, offsets=[0, 40, 40, 70])
        options = ["chunk_size=16", "output_chunk_states=1", "output_final_state=1"]
        _, out = self.run_op("kda", tensors, options=options)
        self.assertEqual(set(out), {"o", "chunk_states", "final_state"})
        self.assertEqual(out["chunk_states"][1], [1, 5, 2, 8, 12])
        _, out = self.run_op("kda", kda(T=33), options=options)
        self.assertEqual(out["chunk_states"][1], [2, 3, 2, 8, 12])
        first = unpack("F32", out["chunk_states"][2])[:2 * 8 * 12]
        self.assertEqual(first, [0.0] * len(first))

    def test_kda_padding_is_legal(self):
        # Slot 1 is that of an empty sequence too, and nobody minds what padding has accepted.
        tensors = kda(B=1, T=3, offsets=[0, 2, 2, 3], pool=4, indices=[[1, 2], [1, 2], [-1, -1]], accepted=[2, 1, 0])
        _, out = self.run_op("kda_recurrent", tensors)
        self.assertEqual(set(out), {"o", "state_pool"})
        slot = len(out["state_pool"][2]) // 4
        for i in range(4):
            same = out["state_pool"][2][i * slot:(i + 1) * slot] == tensors["state_pool"][2][i * slot:(i + 1) * slot]
            self.assertEqual(same, i in (0, 3))
        self.assertEqual(unpack("F32", out["o"][2])[-24:], [0.0] * 24)

    def test_width(self):
        self.refused("W = 1.*2 to 8", conv(W=1))
        self.refused("W = 9.*2 to 8", conv(W=9))
        self.refused("W = 0.*2 to 8", conv(W=0))

    def test_offsets(self):
        for dtype in ("I32", "I64"):
            self.refused("cu_seqlens begins with 1; allowed is 0", conv(offsets=[1, 20], offset_dtype=dtype))
            self.refused("cu_seqlens ends with 19; allowed is T = 20", conv(offsets=[0, 5, 19], offset_dtype=dtype))
            self.refused("cu_seqlens ends with 21", conv(offsets=[0, 21], offset_dtype=dtype))
            self.refused("decreases from 9 to 8 at entry 2", conv(offsets=[0, 9, 8, 20], offset_dtype=dtype))
        self.refused("begins with -3", conv(offsets=[-3, 20]))
        self.refused("has B = 2; packed sequences need B = 1", {**conv(B=2), "cu_seqlens": tensor("I32", [2], values=[0, 20])})
        self.refused("cu_seqlens has shape .0.", {**conv(), "cu_seqlens": tensor("I32", [0])})

    def test_options(self):
        self.refused("activation.*relu.*none.silu", options=["activation=relu"])
        self.refused("activation", options=["activation="])
        self.refused("output_final_state.*2", options=["output_final_state=2"])
        self.refused("output_final_state.*nan", options=["output_final_state=nan"])
        self.refused("output_final_state.*inf", options=["output_final_state=inf"])
        self.refused("speed", options=["speed=9"])
        self.refused("expected key=value", options=["activation"])
        self.refused('"activation" is given twice', options=["activation=none", "activation=silu"])
        self.refused("output_final_state", update(), op="causal_conv1d_update", options=["output_final_state=1"])

    def test_arguments(self):
        self.refused("no operator 'conv'; there are causal_conv1d", op="conv")
        self.refused("--rotate.*takes neither", flags=["--rotate", "ring"])
        self.refused("--balance.*takes neither", flags=["--balance", "none"])
        self.refused("--rotate.*takes neither", flags=["--ranks", "2", "--rotate", "allgather"])
        for ranks in ("0", "-1", "two", "1.5", "99999999999999999999"):
            self.refused("--ranks is.*whole numbers from 1 to", flags=[f"--ranks={ranks}"])
        self.refused("--ranks is \"2\".*from 1 to 1", update(), op="causal_conv1d_update", flags=["--ranks", "2"])
        self.refused("sm_1", flags=["--arch", "sm_1"])
        self.refused("fortran", flags=["--arch", "fortran"])
        self.refused("--speed", flags=["--speed"])
        for words in (["run"], [], ["walk"], ["run", "causal_conv1d"],
                      ["run", "causal_conv1d", "--input", self.input],
                      self.command("causal_conv1d")[1:] + ["--device", "abacus"]):
            with self.subTest(words=words):
                self.assert_refused(self.lathe(*words), "lathe: ")

    def test_paths(self):
        save(self.input, conv())
        for output in (self.folder / "no" / "out", self.folder, "/dev/null"):
            process = self.start(self.command("causal_conv1d", output=output))
            out, err = process.communicate(timeout=60)
            self.assert_refused((process.returncode, out, err), "--output is")
        with tempfile.TemporaryDirectory() as other:
            link = pathlib.Path(other, "link")
            link.symlink_to(pathlib.Path(other, "target"))
            self.assert_refused(self.lathe(*self.command("causal_conv1d", output=link)[1:]), "a symbolic link")
        before = self.input.read_bytes()
        self.assert_refused(self.lathe(*self.command("causal_conv1d", output=self.input)[1:]), "the file of --input")
        self.assertEqual(self.input.read_bytes(), before)
        self.input.unlink()
        self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:]), "no such file")

    def test_no_value_is_empty(self):
        save(self.input, conv())
        for words in (["--ranks", ""], ["--ranks="], ["--cache-dir", ""], ["--arch", ""], ["--device", ""], ["--set", ""]):
            with self.subTest(words=words):
                self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:], *words), "lathe: --")
        command = ["run", "causal_conv1d", "--input", self.input, "--output"]
        self.assert_refused(self.lathe(*command, ""), '--output is "", but needs a value')
        self.assert_refused(self.lathe("cache", "stat", "--cache-dir", ""), '--cache-dir is "", but needs a value')

    def test_what_a_terminal_would_obey_is_escaped(self):
        save(self.input, conv())
        for words in (["--set", "\x1b[31mX=1"], ["--tensor", "\x1b[31m"], ["--\x1b[31m"]):
            with self.subTest(words=words):
                status, out, err = self.lathe(*self.command("causal_conv1d")[1:], *words)
                self.assertEqual(status, 2)
                self.assertNotIn("\x1b", err)
                self.assertIn("\\x1b[31m", err)

    def test_files(self):
        save(self.input, conv())
        good = self.input.read_bytes()
        size = struct.unpack("<Q", good[:8])[0]
        head = json.loads(good[8:8 + size])

        def lie(change):
            changed = json.loads(json.dumps(head))
            change(changed)
            text = json.dumps(changed).encode()
            return struct.pack("<Q", len(text)) + text + good[8 + size:]

        bad = {
            "8 bytes of header length": good[:5],
            "header length is": struct.pack("<Q", 1 << 60) + good[8:],
            "not valid JSON": good[:9] + b"}" + good[10:],
            "bytes of data": good[:-1],
            "the file has": good + b"\0",
            "takes 1280 bytes": lie(lambda h: h["x"].update(data_offsets=[0, 1276])),
            "begin <= end": lie(lambda h: h["x"].update(data_offsets=[1280, 0])),
            "overlapping": lie(lambda h: h["weight"].update(data_offsets=[1276, 1532])),
            "leaving a gap": lie(lambda h: h["x"].update(shape=[1, 19, 16], data_offsets=[0, 1216])),
            "shape must be": lie(lambda h: h["x"].update(shape=[1, -20, -16])),
            "too large": lie(lambda h: h["x"].update(shape=[1 << 62, 1 << 62, 1])),
        }
        for pattern, data in bad.items():
            with self.subTest(pattern=pattern):
                self.input.write_bytes(data)
                self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:]), pattern)

    def test_an_older_output_survives_a_refusal(self):
        save(self.input, conv(W=9))
        self.output.write_text("older")
        self.assertEqual(self.lathe(*self.command("causal_conv1d")[1:])[0], 2)
        self.assertEqual(self.output.read_text(), "older")

    def test_what_comes_out(self):
        report, out = self.run_op("causal_conv1d", conv())
        self.assertEqual(set(out), {"y"})
        self.assertEqual(report["device"], "sim")
        self.assertEqual(report["arch"], "sm_90a")
        full = conv(bias=True, residual=True, state=True, backward=True, dfinal=True, weight="BF16", dtype="F16")
        _, out = self.run_op("causal_conv1d", full, ["output_final_state=1", "activation=silu"])
        self.assertEqual({n: t[0] for n, t in out.items()},
                         {"y": "F16", "final_state": "F16", "dx": "F16", "dweight": "BF16", "dbias": "BF16",
                          "dresidual": "F16", "dinitial_state": "F16"})
        self.assertEqual(out["dresidual"], full["dy"])
        self.assertEqual(out["final_state"][1], [1, 16, 4])
        # A gradient of a state that nobody asked for is legal.
        _, out = self.run_op("causal_conv1d", conv(backward=True, dfinal=True))
        self.assertEqual(set(out), {"y", "dx", "dweight"})
        _, out = self.run_op("causal_conv1d_update", update())
        self.assertEqual(set(out), {"y", "state"})
        old, new = (unpack("F32", t["state"][2]) for t in (update(), out))
        self.assertEqual([new[i] for i in range(len(new)) if i % 4 < 3], [old[i] for i in range(len(old)) if i % 4 > 0])

    def test_infinities_and_nans_are_values(self):
        tensors = conv(T=8, D=2, W=2)
        values = [0.5] * 16
        values[4], values[7] = float("nan"), float("inf")
        tensors["x"] = tensor("F32", [1, 8, 2], values=values)
        _, out = self.run_op("causal_conv1d", tensors)
        y = unpack("F32", out["y"][2])
        odd = {i for i, v in enumerate(y) if v != v or abs(v) == float("inf")}
        self.assertEqual(odd, {4, 6, 7, 9})

    def test_nothing_is_a_problem_too(self):
        _, out = self.run_op("causal_conv1d", conv(T=0, state=True), ["output_final_state=1"])
        self.assertEqual(out["y"][1], [1, 0, 16])
        self.assertEqual(out["final_state"][2], conv(T=0, state=True)["initial_state"][2])
        packed = conv(T=3, state=True, offsets=[0, 0, 3, 3])
        _, out = self.run_op("causal_conv1d", packed, ["output_final_state=1"])
        self.assertEqual(out["final_state"][2][:256], packed["initial_state"][2][:256])

    def test_the_choice_of_a_device_is_said(self):
        save(self.input, conv())
        words = self.command("causal_conv1d")
        words[words.index("sim")] = "auto"
        status, _, err = self.lathe(*words[1:], CUDA_VISIBLE_DEVICES="")
        self.assertEqual(status, 0, err)
        self.assertRegex(err, "^lathe: no GPU can be used .*simulator\nlathe: causal_conv1d ran on the simulator")
        status, _, err = self.lathe(*words[1:], "--quiet", LATHE_DEVICE="sim")
        self.assertEqual((status, err), (0, ""))
        self.output.unlink()
        self.assert_refused(self.lathe(*words[1:], LATHE_DEVICE="abacus"), "LATHE_DEVICE.*abacus.*auto, cuda, sim")
        self.assertFalse(self.output.exists())
