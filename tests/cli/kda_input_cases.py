# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input of the operators of KDA, and what is legal although it looks odd."""
from harness import Case, kda, tensor, unpack


class KdaInputCases(Case):
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
        sources = dict(pool=4, indices=[0, 1])
        bad("source_indices gives slot 1 to sequence 0 to read and to sequence 1 to write", sources=[1, 2],
            **sources)
        bad("source_indices holds 5 at entry 0; allowed are slots below S = 4", sources=[5, 2], **sources)
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
        bad("state_pool is declared without state_indices", {"state_pool": tensor("F32", state)})
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
        self.refused("--rotate.*no keys travel in kda", kda(), op="kda", flags=["--ranks", "2", "--rotate", "ring"])

    def test_kda_pool(self):
        def bad(pattern, options=(), checkpoints=None, **shape):
            tensors = kda(**{"B": 1, "T": 5, "offsets": [0, 2, 5], "pool": 6, "indices": [0, 1], **shape})
            if checkpoints:
                for name, values in zip(("cu_checkpoints", "checkpoint_tokens", "checkpoint_slots"), checkpoints):
                    tensors[name] = tensor("I32", [len(values)], values=values)
            self.refused(pattern, tensors, op="kda", options=options)

        bad("state_indices holds 6 at entry 1; allowed are slots below S = 6", indices=[0, 6])
        bad("state_indices gives slot 2 to sequences 0 and 1", indices=[2, 2])
        bad("source_indices gives slot 1 to sequence 0 to read and to sequence 1 to write", sources=[1, 2])
        bad("final_state is declared with state_pool", options=["output_final_state=1"])
        bad("warmup_segments is 4 and state_pool is declared", options=["warmup_segments=4", "use_qk_l2norm_in_kernel=1"])
        bad("cu_checkpoints ends with 1; allowed is C = 2", checkpoints=([0, 1, 1], [1, 1], [2, 3]))
        bad("cu_checkpoints decreases", checkpoints=([0, 2, 1], [1], [2]))
        bad("checkpoint_tokens holds 3 at entry 0 for sequence 0; allowed are 0 to its length, 2",
            checkpoints=([0, 1, 1], [3], [2]))
        bad("checkpoint_tokens holds -1", checkpoints=([0, 1, 1], [-1], [2]))
        bad("checkpoint_slots holds 6 at entry 0", checkpoints=([0, 1, 1], [1], [6]))
        bad("checkpoint_slots gives slot 1 at entry 0 to a second state", checkpoints=([0, 1, 1], [1], [1]))
        bad("checkpoint_slots gives slot 2 at entry 1 to a second state", checkpoints=([0, 1, 2], [1, 3], [2, 2]))
        bad("source_indices gives slot 3 to sequence 0 to read and to sequence 1 to write", sources=[3, 2],
            checkpoints=([0, 0, 1], [1], [3]))
        bad("option null_slot is 0 and state_pool is not declared", options=["null_slot=0"], pool=None)
        # Padding's checkpoints are nobody's, and so are slots below 0.
        tensors = kda(B=1, T=5, offsets=[0, 2, 5], pool=6, indices=[0, 1])
        for name, values in (("cu_checkpoints", [0, 2, 3]), ("checkpoint_tokens", [9, 9, 9]), ("checkpoint_slots", [4, 4, -1])):
            tensors[name] = tensor("I32", [len(values)], values=values)
        _, out = self.run_op("kda", tensors, options=["null_slot=0"])
        self.assertEqual(set(out), {"o", "state_pool"})
        slot = len(out["state_pool"][2]) // 6
        for i in range(6):
            same = out["state_pool"][2][i * slot:(i + 1) * slot] == tensors["state_pool"][2][i * slot:(i + 1) * slot]
            self.assertEqual(same, i != 1)

    def test_kda_decode(self):
        def layer(B=2, T=None, pool=5, indices=(0, 1), counts=None, L=3, **integers):
            rows = [B] if T is None else [B, T]
            out = {"qkv": tensor("F32", [*rows, 40]), "conv_weight": tensor("F32", [40, 4]), "conv_pool": tensor("F32", [pool, 40, 3]),
                   "g": tensor("F32", [*rows, 2, 8]), "beta": tensor("F32", [*rows, 2]), "state_pool": tensor("F32", [pool, 2, 8, 12]),
                   "state_indices": tensor("I32", [len(indices)], values=indices)}
            if counts:
                out |= {"ring_k": tensor("F32", [pool, L, 1, 8]), "ring_u": tensor("F32", [pool, L, 2, 12]),
                        "ring_g": tensor("F32", [pool, L, 2, 8]), "ring_count": tensor("I32", [pool], values=counts)}
            return out | {name: tensor("I32", [len(values)], values=values) for name, values in integers.items()}

        def bad(pattern, options=(), **shape):
            self.refused(pattern, layer(**shape), op="kda_decode", options=options)

        bad("state_indices holds 5 at entry 1; allowed are slots below S = 5", indices=(0, 5))
        bad("state_indices gives slot 2 to sequences 0 and 1", indices=(2, 2))
        bad("source_indices gives slot 1 to sequence 0 to read and to sequence 1 to write", source_indices=(1, 2))
        bad("source_indices holds 9 at entry 0", source_indices=(9, 2))
        bad("ring_count holds 4 at entry 2; allowed are 0 to L = 3", counts=(0, 0, 4, 0, 0))
        bad("ring_count holds -1 at entry 0", counts=(-1, 0, 0, 0, 0))
        bad("sequence 0 has 4 tokens and ring_k has L = 3", T=4, counts=(0, 0, 0, 0, 0))
        bad("source_indices is declared with ring_k", counts=(0, 0, 0, 0, 0), source_indices=(3, 4))
        bad("append is 0 and ring_k is not declared", options=["append=0"])
        # One slot for padding, twice; sources that two sequences read.
        _, out = self.run_op("kda_decode", layer(B=4, indices=(0, 0, -1, 3), source_indices=(1, 1, 1, 1)), options=["null_slot=0"])
        self.assertEqual(set(out), {"o", "state_pool", "conv_pool"})
        self.assertEqual(unpack("F32", out["o"][2])[:3 * 24], [0.0] * (3 * 24))
        _, out = self.run_op("kda_decode", layer(T=2, counts=(0, 2, 0, 3, 1)))
        self.assertEqual(unpack("I32", out["ring_count"][2]), [2, 2, 0, 3, 1])

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
