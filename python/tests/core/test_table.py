# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the operator table allows has kernels: each dtype of each tensor is planned.

As a program, with compilation off and an empty cache: a problem that has kernels ends with
NotCached, and every other exception is a refusal, which is printed.
"""
import os
import subprocess
import sys

import lathe

CONV = {"x": (1, 9, 8), "weight": (8, 4), "y": (1, 9, 8)}
ATTENTION = {"q": (9, 2, 16), "k": (9, 1, 16), "v": (9, 1, 16), "cu_seqlens_q": (3,),
             "cu_seqlens_k": (3,), "out": (9, 2, 16), "lse": (2, 9)}
BLOCK = {"q": (1, 9, 2, 16), "k": (1, 9, 1, 16), "v": (1, 9, 1, 16), "ranges": (1, 7)}
KDA = {"q": (1, 9, 1, 16), "k": (1, 9, 1, 16), "v": (1, 9, 1, 16), "g": (1, 9, 1, 16),
       "beta": (1, 9, 1), "o": (1, 9, 1, 16)}
SPARSE = {"q": (9, 2, 16), "k": (9, 1, 16), "v": (9, 1, 16), "indices": (9, 1, 4),
          "cu_seqlens_q": (3,), "cu_seqlens_k": (3,), "out": (9, 2, 16), "lse": (2, 9)}

# Small problems, which have every tensor with more than one dtype: operator, shapes, options.
PROBLEMS = [
    ("causal_conv1d", {**CONV, "cu_seqlens": (3,), "dy": (1, 9, 8), "dx": (1, 9, 8),
                       "dweight": (8, 4)}, {}),
    ("causal_conv1d", {**CONV, "cu_seqlens": (3,), "state_pool": (4, 8, 3),
                       "state_indices": (2,)}, {}),
    ("causal_conv1d_update", {"x": (2, 8), "weight": (8, 4), "state": (2, 8, 4), "y": (2, 8)}, {}),
    ("causal_conv1d_update", {"x": (9, 8), "weight": (8, 4), "state": (5, 8, 3), "y": (9, 8),
                              "cu_seqlens": (3,), "state_indices": (2,)}, {}),
    ("flash_attention", ATTENTION, {}),
    ("flash_attention", {**ATTENTION, "q_scale": (1,), "k_scale": (1,), "v_scale": (1,)}, {}),
    ("flash_attention", {**ATTENTION, "dout": (9, 2, 16), "dq": (9, 2, 16), "dk": (9, 1, 16),
                         "dv": (9, 1, 16)}, {}),
    ("flash_attention_decode", {"q": (2, 1, 2, 16), "k_cache": (4, 16, 1, 16),
                                "v_cache": (4, 16, 1, 16), "block_table": (2, 2),
                                "cache_seqlens": (2,), "k_new": (2, 1, 1, 16),
                                "v_new": (2, 1, 1, 16), "out": (2, 1, 2, 16), "lse": (2, 2, 1),
                                "rope_cos": (9, 4), "rope_sin": (9, 4)}, {}),
    ("flash_attention_decode", {"q": (5, 2, 16), "k_cache": (4, 16, 1, 16),
                                "v_cache": (4, 16, 1, 16), "block_table": (2, 2),
                                "cache_seqlens": (2,), "cu_seqlens_q": (3,), "out": (5, 2, 16),
                                "lse": (2, 5)}, {}),
    ("flash_attention_block", {**BLOCK, "out": (1, 9, 2, 16), "lse": (1, 2, 9)}, {}),
    ("flash_attention_block_bwd", {**BLOCK, "dout": (1, 9, 2, 16), "lse": (1, 2, 9),
                                   "delta": (1, 2, 9), "dq": (1, 9, 2, 16), "dk": (1, 9, 1, 16),
                                   "dv": (1, 9, 1, 16)}, {}),
    ("flash_attention_delta", {"out": (1, 9, 2, 16), "dout": (1, 9, 2, 16), "lse": (1, 2, 9),
                               "delta": (1, 2, 9)}, {}),
    ("lse_merge", {"block_out": (1, 9, 2, 16), "block_lse": (1, 2, 9), "out": (1, 9, 2, 16),
                   "lse": (1, 2, 9), "rounded": (1, 9, 2, 16)}, {}),
    ("kda", {**KDA, "cu_seqlens": (3,), "do": (1, 9, 1, 16), "dq": (1, 9, 1, 16)}, {}),
    ("kda", {**KDA, "cu_seqlens": (3,), "state_pool": (4, 1, 16, 16), "state_indices": (2,)}, {}),
    ("kda_recurrent", {**KDA, "cu_seqlens": (3,), "state_pool": (4, 1, 16, 16),
                       "state_indices": (2,)}, {}),
    ("kda_recurrent", {**KDA, "state_pool": (4, 1, 16, 16), "state_indices": (1,),
                       "ring_k": (4, 16, 1, 16), "ring_u": (4, 16, 1, 16),
                       "ring_g": (4, 16, 1, 16), "ring_count": (4,)}, {}),
    ("kda_decode", {"qkv": (2, 48), "conv_weight": (48, 4), "conv_pool": (4, 48, 3),
                    "g": (2, 1, 16), "beta": (2, 1), "state_pool": (4, 1, 16, 16),
                    "state_indices": (2,), "output_gate": (2, 1, 16), "o": (2, 1, 16)}, {}),
    ("sparse_flash_attention", SPARSE, {"scale": 0.25}),
    ("shard", {"x": (9, 4), "indices": (6,), "y": (6, 4)}, {}),
    ("shard", {"buffer": (9, 4), "indices": (9,)}, {}),
    ("unshard", {"x": (6, 4), "indices": (6,), "y": (9, 4)}, {}),
    ("unshard", {"buffer": (9, 4), "indices": (9,)}, {}),
]
# Said in the tensor's sentence: these are as q or qkv, or float32.
REFUSED = {("sparse_flash_attention", "out"), ("flash_attention", "out"),
           ("kda_recurrent", "ring_u"),
           ("kda_decode", "ring_u"), ("kda_decode", "norm_weight"),
           ("flash_attention_decode", "k_cache"), ("flash_attention_decode", "v_cache"),
           ("sparse_flash_attention", "k")}
CAPTURES = {"capture_0", "capture_1", "capture_2", "capture_3"}  # of mods: their own tests


def default_dtype(tensor: lathe._operators.Tensor) -> str:
    words = tensor.dtypes.split("|")
    return next(each for each in ("bf16", *words) if each in words)


def choices() -> list[tuple[int, str, str]]:
    """Returns (problem, tensor, dtype) for all that the table lets choose."""
    table = lathe.operators()
    return [(i, name, dtype) for i, (op, shapes, _) in enumerate(PROBLEMS) for name in shapes
            for dtype in table[op].tensors[name].dtypes.split("|")
            if "|" in table[op].tensors[name].dtypes and (op, name) not in REFUSED
            and (name != "q" or (dtype == "f8_e4m3") == ("q_scale" in shapes))]


def refusals() -> list[str]:
    """Returns what is refused of the choices, with the reason."""
    found = []
    context = lathe.Context("none", arch="sm_90a")
    for problem, tensor, dtype in choices():
        op, shapes, options = PROBLEMS[problem]
        table = lathe.operators()[op].tensors
        dtypes = {name: dtype if name == tensor else default_dtype(table[name]) for name in shapes
                  if not table[name].dtypes.startswith("=")}
        if "q_scale" in shapes:
            dtypes["q"] = "f8_e4m3"
        own = dtypes.get("q", dtypes.get("qkv"))
        own = "bf16" if own == "f8_e4m3" else own
        dtypes |= {name: own for name in shapes if (op, name) in REFUSED}
        tensors = {name: (dtypes.get(name) or dtypes[table[name].dtypes[1:]], shape)
                   for name, shape in shapes.items()}
        try:
            lathe.Plan(context, lathe.Problem(op, tensors, **options))
        except lathe.NotCached:
            continue
        except lathe.LatheError as error:
            found.append(f"{op} {tensor} {dtype}: {error}")
    return found


def test_each_dtype_has_kernels(tmp_path) -> None:
    environment = {**os.environ, "LATHE_JIT": "off", "LATHE_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, __file__], env=environment, capture_output=True,
                         text=True)
    assert run.returncode == 0 and run.stdout == "", run.stdout + run.stderr


def test_every_choice_of_the_table_is_tried() -> None:
    tried = {(PROBLEMS[i][0], name) for i, name, _ in choices()} | REFUSED
    wanted = {(op.name, name) for op in lathe.operators().values()
              for name, tensor in op.tensors.items()
              if "|" in tensor.dtypes and name not in CAPTURES}
    assert wanted == tried


if __name__ == "__main__":
    print("".join(line + "\n" for line in refusals()), end="")
