# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What varies from call to call compiles nothing: each first problem is compiled, those after it find its kernels."""
from harness import Case, tensor

H, HK, D, DV = 4, 2, 32, 16


def dense(B=1, Sq=5, Sk=7, H=H, HK=HK, seed=0):
    return {"q": tensor("BF16", [B, Sq, H, D], seed), "k": tensor("BF16", [B, Sk, HK, D], seed + 1),
            "v": tensor("BF16", [B, Sk, HK, DV], seed + 2)}


def graded(tensors):
    q, v = tensors["q"][1], tensors["v"][1]
    return {**tensors, "dout": tensor("BF16", [*q[:-1], v[-1]], 9)}


def offsets(lengths, dtype):
    begin = [0]
    for length in lengths:
        begin.append(begin[-1] + length)
    return tensor(dtype, [len(begin)], values=begin)


def packed(queries, keys, H=H, HK=HK, dtype="I32"):
    return {"q": tensor("BF16", [sum(queries), H, D]), "k": tensor("BF16", [sum(keys), HK, D]),
            "v": tensor("BF16", [sum(keys), HK, DV]), "cu_seqlens_q": offsets(queries, dtype),
            "cu_seqlens_k": offsets(keys, dtype)}


def kda(B=1, T=5, H=1, HV=2, K=32, V=16, lengths=None, states=False, backward=False, seed=0):
    if lengths is not None:
        T = sum(lengths)
    N = B if lengths is None else len(lengths)
    out = {"q": tensor("BF16", [B, T, H, K], seed), "k": tensor("BF16", [B, T, H, K], seed + 1),
           "v": tensor("BF16", [B, T, HV, V], seed + 2), "g": tensor("F32", [B, T, HV, K], values=[-0.1] * (B * T * HV * K)),
           "beta": tensor("F32", [B, T, HV], seed + 3)}
    if lengths is not None:
        out["cu_seqlens"] = offsets(lengths, "I32")
    if states:
        out["initial_state"] = tensor("F32", [N, HV, K, V], seed + 4)
    if backward:
        out["do"] = tensor("BF16", [B, T, HV, V], seed + 5)
    return out


def pages(B=2, Sq=1, keys=20, page=16, M=4, new=True):
    out = {"q": tensor("BF16", [B, Sq, H, D]), "k_cache": tensor("BF16", [B * M, page, HK, D], 1),
           "v_cache": tensor("BF16", [B * M, page, HK, DV], 2), "cache_seqlens": tensor("I32", [B], values=[keys] * B),
           "block_table": tensor("I32", [B, M], values=list(range(B * M)))}
    if new:
        out.update(k_new=tensor("BF16", [B, Sq, HK, D], 3), v_new=tensor("BF16", [B, Sq, HK, DV], 4))
    return out


class LengthCases(Case):
    def compiled(self, op, tensors, options=()):
        report, _ = self.run_op(op, tensors, options)
        self.assertEqual(report["compiled"] + report["hits"], len(report["kernels"]))
        return report["compiled"]

    def series(self, op, *calls):
        """[(tensors, options), ...]: only the first of them compiles."""
        for i, (tensors, options) in enumerate(calls):
            with self.subTest(call=i, shapes={name: shape for name, (_, shape, _) in tensors.items()}, options=options):
                compiled = self.compiled(op, tensors, options)
                self.assertEqual(compiled > 0, i == 0, f"{compiled} kernels compiled")

    def test_attention(self):
        self.series("flash_attention", (dense(), ()), (dense(B=3), ()), (dense(Sq=1, Sk=200), ()),
                    (dense(Sq=130, Sk=65), ()), (dense(Sq=0), ()), (dense(Sk=0), ()), (dense(), ["softmax_scale=0.5"]))
        # Heads are no part of the code either, nor which window it is, as long as there is one.
        self.series("flash_attention", (dense(), ["causal=1"]), (dense(H=6, HK=1), ["causal=1"]),
                    (dense(B=2, Sq=70, Sk=90), ["window_left=3"]), (dense(), ["window_left=3", "window_right=9"]))

    def test_attention_backward(self):
        self.series("flash_attention", (graded(dense()), ()), (graded(dense(B=2, Sq=130, Sk=200)), ()),
                    (graded(dense(Sq=1, Sk=1)), ["softmax_scale=2"]), (graded(dense(B=40)), ()))

    def test_decode(self):
        self.series("flash_attention_decode", (pages(), ()), (pages(B=5, keys=3), ()), (pages(page=7, M=30, keys=190), ()),
                    (pages(Sq=4), ()), (pages(keys=0), ["softmax_scale=1"]), (pages(M=40, keys=600), ["num_splits=3"]),
                    (pages(page=64, M=1), ["num_splits=1"]))

    def test_packed_attention(self):
        self.series("flash_attention", (packed([4, 6], [4, 10]), ()), (packed([1], [1]), ()),
                    (packed([0, 3, 0, 140, 2], [5, 0, 0, 150, 9]), ()), (packed([9] * 40, [3] * 40), ()))
        self.assertGreater(self.compiled("flash_attention", packed([4, 6], [4, 10], dtype="I64")), 0)

    def test_kda(self):
        norm = "use_qk_l2norm_in_kernel=1"
        self.series("kda", (kda(), [norm]), (kda(B=3), [norm]), (kda(T=1), [norm]), (kda(T=130), [norm, "scale=0.5"]),
                    (kda(T=0), [norm]), (kda(T=1, B=70), [norm]))
        # Nor is the length of a chunk, nor how many heads there are.
        states = [norm, "output_final_state=1", "output_chunk_states=1"]
        self.series("kda", (kda(states=True), states), (kda(T=90, states=True), [*states, "chunk_size=16"]),
                    (kda(H=2, HV=2, states=True), [*states, "chunk_size=32"]))

    def test_kda_classes_of_lengths(self):
        # No length chooses another kernel than its neighbours'.
        self.series("kda", *((kda(T=T, HV=1, K=8, V=8), ["segments=1"]) for T in (5000, 5001, 5632, 6999)))

    def test_packed_kda_backward(self):
        self.series("kda", (kda(lengths=[4, 6], backward=True), ()), (kda(lengths=[1], backward=True), ()),
                    (kda(lengths=[0, 3, 0, 140, 2], backward=True), ()), (kda(lengths=[9] * 40, backward=True), ()))
        self.series("kda", (kda(states=True, backward=True), ()), (kda(T=70, B=2, states=True, backward=True), ()))

    def test_kda_segments(self):
        self.series("kda", (kda(T=130), ["segments=2"]), (kda(T=400), ["segments=3"]), (kda(T=20), ["segments=8"]))
