# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A small hybrid model that is served: python -m serving_steps steps N | draws N SEED | outside

The model is that of core/test_serving.py: a layer of KDA with its convolution, and attention over
pages. Each program prints one line of JSON. The tests run it where nothing can be compiled.
"""
import json
import random
import sys

import numpy as np

import lathe

H, K, W, SLOTS, PAGE, PAGES = 2, 16, 4, 12, 16, 16
D = 3 * H * K
HEADS, KEYS, WIDTH = 4, 2, 32
BATCH, TOKENS, DRAFTS = 8, 64, 2
GATES = {"use_gate_in_kernel": 1, "use_qk_l2norm_in_kernel": 1, "use_beta_sigmoid_in_kernel": 1,
         "lower_bound": -5.0, "null_slot": 0}
POOLED = {"conv_pool": (SLOTS, D, W - 1 + DRAFTS - 1), "state": (SLOTS, D, W - 1 + DRAFTS - 1),
          f"columns_{D}": (SLOTS, D, W - 1), f"columns_{H * K}": (SLOTS, H * K, W - 1),
          "k_cache": (PAGES, PAGE, KEYS, WIDTH), "v_cache": (PAGES, PAGE, KEYS, WIDTH)}


def halves(array):
    """Returns an array as bfloat16's bits."""
    return (np.ascontiguousarray(array, "f").view("u4") >> 16).astype("u2")


def ints(values):
    return np.array(values, "i4")


class Model:
    """Makes the arrays of random calls; pools stay from call to call."""

    def __init__(self, seed):
        self.random, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.pools = {name: halves(self.noise.standard_normal(shape))
                      for name, shape in POOLED.items()}
        self.pools["state_pool"] = self.noise.standard_normal((SLOTS, H, K, K)).astype("f")

    def normal(self, *shape):
        return halves(self.noise.standard_normal(shape) / 2)

    def some(self):
        return self.random.random() < 0.5

    def slots(self, count):
        """Returns so many slots, each once, of which some are padding."""
        found = self.random.sample(range(1, SLOTS), count)
        return ints([self.random.choice((0, -1)) if self.random.random() < 0.2 else slot
                     for slot in found])

    def offsets(self, sequences, most):
        lengths = [self.random.randint(0, most) for _ in range(sequences)]
        lengths[-1] = max(lengths[-1], 1)
        return ints(np.concatenate([[0], np.cumsum(lengths)]))

    def others(self, slots):
        """Returns slots to read that nobody else writes."""
        return slots if self.some() else ints([-1] * len(slots))

    # ---- KDA -------------------------------------------------------------------------------------

    def rows(self, *leading):
        return {"q": self.normal(*leading, H, K), "k": self.normal(*leading, H, K),
                "v": self.normal(*leading, H, K), "g": self.normal(*leading, H, K),
                "beta": self.normal(*leading, H), **self.gate()}

    def gate(self):
        return {"A_log": np.linspace(-1, 1, H, dtype="f"), "dt_bias": np.zeros(H * K, "f")}

    def prefill(self):
        """The layer's prefill: its states in slots, checkpoints for a cache of prefixes."""
        sequences = self.random.randint(1, 3)
        cu, slots = self.offsets(sequences, TOKENS // 3), self.slots(sequences)
        given = {**self.rows(1, int(cu[-1])), "cu_seqlens": cu, "state_indices": slots,
                 "state_pool": self.pools["state_pool"]}
        if self.some():
            given["source_indices"] = self.others(slots)
        if self.some():
            given["has_initial_state"] = ints([self.some() for _ in slots])
        if self.some():
            free = [slot for slot in range(1, SLOTS) if slot not in slots]
            given.update(cu_checkpoints=ints([0] + [1] * sequences),
                         checkpoint_tokens=ints([int(cu[1]) // 2]),
                         checkpoint_slots=ints([free[0]]))
        return "kda", given, dict(GATES)

    def convolution(self):
        sequences = self.random.randint(1, 3)
        cu, channels = self.offsets(sequences, TOKENS // 3), self.random.choice((D, H * K))
        given = {"x": self.normal(1, int(cu[-1]), channels), "weight": self.normal(channels, W),
                 "cu_seqlens": cu}
        if self.some():
            slots = self.slots(sequences)
            given.update(state_pool=self.pools[f"columns_{channels}"], state_indices=slots)
            if self.some():
                given["has_initial_state"] = ints([self.some() for _ in slots])
            return "causal_conv1d", given, {"activation": "silu", "null_slot": 0}
        if self.some():
            given["initial_state"] = self.normal(sequences, channels, W)
        return "causal_conv1d", given, {"activation": "silu", "output_final_state": int(self.some())}

    def layer(self):
        """A decoding layer in one launch."""
        batch = self.random.randint(1, BATCH)
        leading = (batch, self.random.randint(1, DRAFTS)) if self.some() else (batch,)
        slots = self.slots(batch)
        given = {"qkv": self.normal(*leading, D), "conv_weight": self.normal(D, W),
                 "conv_pool": self.pools["conv_pool"], "g": self.normal(*leading, H, K),
                 "beta": self.normal(*leading, H), **self.gate(), "state_indices": slots,
                 "state_pool": self.pools["state_pool"], "norm_weight": np.ones(K, "f"),
                 "output_gate": self.normal(*leading, H, K)}
        if self.some():
            given["source_indices"] = self.others(slots)
        return "kda_decode", given, {**GATES, "activation": "silu"}

    def update(self):
        """The convolution of new tokens, or of drafts of which the last ones count in part."""
        batch, kind = self.random.randint(1, BATCH), self.random.choice(("row", "rows", "packed"))
        slots, given = self.slots(batch), {}
        if kind == "packed":
            given["cu_seqlens"] = self.offsets(batch, DRAFTS)
            leading = (int(given["cu_seqlens"][-1]),)
        else:
            leading = (batch,) if kind == "row" else (batch, self.random.randint(1, DRAFTS))
        given.update(x=self.normal(*leading, D), weight=self.normal(D, W), state_indices=slots,
                     state=self.pools["state"])
        if self.some():
            given["num_accepted_tokens"] = ints([self.random.randint(1, DRAFTS) for _ in slots])
        if self.some():
            given["source_indices"] = self.others(slots)
        return "causal_conv1d_update", given, {"activation": "silu", "null_slot": 0}

    def recurrence(self):
        batch, given = self.random.randint(1, BATCH), {}
        if self.some():
            given["cu_seqlens"] = self.offsets(batch, DRAFTS)
            leading = (1, int(given["cu_seqlens"][-1]))
        else:
            leading = (batch, self.random.randint(1, DRAFTS))
        if self.some():
            batch = min(batch, (SLOTS - 1) // DRAFTS)
            if "cu_seqlens" in given:
                given["cu_seqlens"] = given["cu_seqlens"][:batch + 1]
                leading = (1, max(int(given["cu_seqlens"][-1]), 1))
                given["cu_seqlens"][-1] = leading[1]
                if given["cu_seqlens"][-1] - given["cu_seqlens"][-2] > DRAFTS:
                    return self.recurrence()
            else:
                leading = (batch, leading[1])
            slots = ints(self.random.sample(range(1, SLOTS), batch * DRAFTS)).reshape(batch, DRAFTS)
            if self.some():
                given["num_accepted_tokens"] = ints(
                    [self.random.randint(1, DRAFTS) for _ in range(batch)])
        else:
            slots = self.slots(batch)
            if self.some():
                given["source_indices"] = self.others(slots)
        if "num_accepted_tokens" not in given and self.some():
            given["has_initial_state"] = ints([self.some() for _ in slots])
        given.update(self.rows(*leading), state_indices=slots, state_pool=self.pools["state_pool"])
        return "kda_recurrent", given, dict(GATES)

    # ---- attention -------------------------------------------------------------------------------

    def attention(self):
        """Ragged queries over pages, or as many of each sequence; new keys are stored first."""
        batch, given = self.random.randint(1, BATCH // 2), {}
        if self.some():
            given["cu_seqlens_q"] = self.offsets(batch, PAGE)
            leading = (int(given["cu_seqlens_q"][-1]),)
        else:
            leading = (batch, self.random.randint(1, DRAFTS))
        table = ints(self.random.sample(range(PAGES), 3 * batch)).reshape(batch, 3)
        given.update(q=self.normal(*leading, HEADS, WIDTH), block_table=table,
                     k_cache=self.pools["k_cache"], v_cache=self.pools["v_cache"],
                     cache_seqlens=ints([self.random.randint(PAGE, 2 * PAGE) for _ in table]))
        if self.some():
            given.update(k_new=self.normal(*leading, KEYS, WIDTH),
                         v_new=self.normal(*leading, KEYS, WIDTH))
        return "flash_attention_decode", given, {"causal": 1}

    def packed_attention(self):
        cu = self.offsets(self.random.randint(1, 3), TOKENS // 3)
        rows = int(cu[-1])
        return "flash_attention", {
            "q": self.normal(rows, HEADS, WIDTH), "k": self.normal(rows, KEYS, WIDTH),
            "v": self.normal(rows, KEYS, WIDTH), "cu_seqlens_q": cu, "cu_seqlens_k": cu,
        }, {"causal": 1}

    def call(self):
        """Returns a random call: operator, arrays by name, options."""
        return self.random.choice((self.prefill, self.convolution, self.layer, self.update,
                                   self.recurrence, self.attention, self.packed_attention))()


def finite(array):
    if array.dtype == np.uint16:
        array = (array.astype("u4") << 16).view("f")
    return bool(np.isfinite(array).all())


def steps(count):
    model, context = Model(count), lathe.context("sim")
    told, calls, good = [], {}, True
    lathe.on_compile(told.append)
    for _ in range(count):
        op, given, options = model.call()
        found = lathe.run(op, context=context, **given, **options)
        calls[op] = calls.get(op, 0) + 1
        good = good and all(finite(array) for name, array in found.items() if name != "lse")
    good = good and all(finite(pool) for pool in model.pools.values())
    return {"steps": count, "compiled": context.compiled, "told": len(told), "calls": calls,
            "from": sources(model, context), "finite": good}


def sources(model, context):
    """Returns where the kernels of fresh contexts come from."""
    fresh = lathe.Context("none", arch=context.info()["arch"])
    found = {each["from"] for _ in range(20)
             for each in lathe.Plan(fresh, problem(*model.call())).kernels()}
    return sorted(found - {"memory"})


_WORDS = {"float32": "f32", "uint16": "bf16", "int32": "i32"}


def problem(op, given, options, opened=True):
    """Returns the problem of a call: open, or with its new tokens declared."""
    made = lathe.Problem(op, {name: (_WORDS[str(array.dtype)], array.shape)
                              for name, array in given.items()}, **options)
    made.infer()
    if opened:
        made.open()
        return made
    rows = {row["name"]: row for row in made.tensors() if row["declared"]}
    kept = {"T", "Sq"} if "decode" in op or op.endswith(("update", "recurrent")) else {"T", "N"}
    again = lathe.Problem(op, **{name: value for name, value in options.items()
                                 if not name.startswith("output_")})
    for name, row in rows.items():
        shape = [extent if not row["varies"][d] or row["dims"][d] in kept and "cu_seqlens" not in given
                 else -1 for d, extent in enumerate(row["shape"])]
        again.tensor(name, row["dtype"], shape)
    return again


def draws(count, seed):
    arch = lathe.context("sim").info()["arch"]
    model, context, missed = Model(seed), lathe.Context("none", arch=arch), []
    for _ in range(count):
        op, given, options = model.call()
        asked = problem(op, given, options, opened=model.random.random() < 0.8)
        try:
            lathe.Plan(context, asked)
        except lathe.NotCached as error:
            missed.append(error.line)
    return {"plans": count, "missed": missed}


def outside():
    """Returns the lines of calls that the manifest does not have."""
    model, lines = Model(1), []
    context = lathe.Context("none", arch=lathe.context("sim").info()["arch"])
    op, given, options = model.layer()
    for changed, more in (({}, {"gate_activation": "silu"}),
                          ({"conv_weight": model.normal(D, 3)}, {}),
                          ({"g": given["g"].astype("f")}, {})):
        try:
            lathe.Plan(context, problem(op, {**given, **changed}, {**options, **more}))
        except lathe.NotCached as error:
            assert "LATHE_JIT=off" in str(error) and "`lathe warm` makes it from this line" in str(error)
            lines.append(error.line)
    op, given, options = model.convolution()
    try:
        lathe.run(op, context=lathe.context("sim"), **{**given, "weight": given["weight"][:, :3].copy()},
                  **{**options, "output_final_state": 0, "activation": "none"})
    except (lathe.NotCached, lathe.InvalidArgument) as error:
        lines.append(getattr(error, "line", ""))
    return [line for line in lines if line]


if __name__ == "__main__":
    program = {"steps": steps, "draws": draws, "outside": outside}[sys.argv[1]]
    print(json.dumps(program(*map(int, sys.argv[2:]))))
