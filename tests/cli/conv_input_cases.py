# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input of causal_conv1d over slots of a pool and with its result in parts, and of its update over slots."""
from harness import Case, tensor


def pool(slots=6, indices=(0, 1), offsets=(0, 2, 5), L=3, checkpoints=None, **integers):
    out = {"x": tensor("F32", [1, 5, 16]), "weight": tensor("F32", [16, 4]), "state_pool": tensor("F32", [slots, 16, L]),
           "cu_seqlens": tensor("I32", [len(offsets)], values=list(offsets)),
           "state_indices": tensor("I32", [len(indices)], values=list(indices))}
    for name, values in zip(("cu_checkpoints", "checkpoint_tokens", "checkpoint_slots"), checkpoints or ()):
        out[name] = tensor("I32", [len(values)], values=values)
    return out | {name: tensor("I32", [len(values)], values=values) for name, values in integers.items()}


class ConvInputCases(Case):
    def test_conv_pool(self):
        def bad(pattern, options=(), changes=None, **shape):
            tensors = {**pool(**shape), **(changes or {})}
            self.refused(pattern, {k: v for k, v in tensors.items() if v}, options=options)

        bad("state_indices holds 6 at entry 1; allowed are slots below S = 6", indices=(0, 6))
        bad("state_indices gives slot 2 to sequences 0 and 1", indices=(2, 2))
        bad("source_indices gives slot 1 to sequence 0 to read and to sequence 1 to write", source_indices=(1, 2))
        bad("checkpoint_tokens holds 3 at entry 0 for sequence 0; allowed are 0 to its length, 2",
            checkpoints=([0, 1, 1], [3], [2]))
        bad("checkpoint_slots holds 6 at entry 0", checkpoints=([0, 1, 1], [1], [6]))
        bad("checkpoint_slots gives slot 1 at entry 0 to a second state", checkpoints=([0, 1, 1], [1], [1]))
        bad("source_indices gives slot 3 to sequence 0 to read and to sequence 1 to write", source_indices=(3, 2),
            checkpoints=([0, 0, 1], [1], [3]))
        bad("cu_checkpoints ends with 1; allowed is C = 2", checkpoints=([0, 1, 1], [1, 1], [2, 3]))
        bad("state_pool has LS = 2; allowed are 3 to 4", L=2)
        bad("state_pool has LS = 5; allowed are 3 to 4", L=5)
        bad("state_pool is declared without cu_seqlens", changes={"cu_seqlens": None})
        bad("state_pool has dtype bf16; allowed is f32", changes={"state_pool": tensor("BF16", [6, 16, 3])})
        bad("initial_state is declared with state_pool", changes={"initial_state": tensor("F32", [2, 16, 4])})
        bad("final_state is declared with state_pool", options=["output_final_state=1"])
        bad("state_pool is declared and so is dy", changes={"dy": tensor("F32", [1, 5, 16])})
        bad("null_slot is 0 and state_pool is not declared", options=["null_slot=0"],
            changes={"state_pool": None, "state_indices": None})
        self.refused("state_pool is declared and the problem has a group", pool(), flags=["--ranks", "2"])

    def test_conv_split(self):
        def bad(pattern, split, changes=None):
            tensors = {"x": tensor("F32", [1, 5, 16]), "weight": tensor("F32", [16, 4]), **(changes or {})}
            self.refused(pattern, tensors, options=[f"split={split}"])

        bad("split is '8,7', the sum is 15; allowed is the sum D = 16", "8,7")
        bad("split has 9 entries; allowed are up to 8", "1,1,1,1,1,1,1,1,8")
        bad("option split is set and so is dy", "8,8", {"dy": tensor("F32", [1, 5, 16])})
        for text in ("", "8,,8", "8,8,", ",16", "0,16", "-8,24", "8 ,8", "08,8", "8;8", "8,8x", "LIST", "9999999999999999999999",
                     "2147483648"):
            bad("split is .*allowed are none.LIST", text)
        self.refused("split is set and the problem has a group",
                     {"x": tensor("F32", [1, 5, 16]), "weight": tensor("F32", [16, 4])}, options=["split=8,8"],
                     flags=["--ranks", "2"])

    def test_conv_split_runs(self):
        _, out = self.run_op("causal_conv1d", pool(), options=["split=1,3,12"])
        self.assertEqual({name: each[1] for name, each in out.items()},
                         {"y_0": [1, 5, 1], "y_1": [1, 5, 3], "y_2": [1, 5, 12], "state_pool": [6, 16, 3]})
