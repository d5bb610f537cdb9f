# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The two layers of hybrid.c from Python, with NumPy: a convolution with Kimi Delta Attention, then
attention whose heads share one latent key and value, with their gradients, over 4 ranks in one
layout, against one rank."""
import threading

import lathe
import numpy as np

WORLD, TOKENS, HEADS, WIDTH, TAPS = 4, 301, 2, 32, 4
OFFSETS = [0, 120, 121, TOKENS]
COLUMNS = HEADS * WIDTH
ONES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def inputs():
    """Returns what the layers read; all but the weight has a row for each token."""
    draw = np.random.default_rng(0).standard_normal
    channels = 3 * COLUMNS + 2 * WIDTH
    arrays = {"x": draw((1, TOKENS, channels)), "beta": draw((1, TOKENS, HEADS)),
              "g": -np.abs(draw((1, TOKENS, HEADS, WIDTH))) / 10,
              "dout": draw((TOKENS, HEADS, WIDTH)), "weight": draw((channels, TAPS))}
    return {name: array.astype(np.float32 if name == "g" else np.float16)
            for name, array in arrays.items()}


def parts(y):
    """Returns q, k and v of KDA and the latent key and value, of rows [.., tokens, channels]."""
    q, k, v, key, value = np.split(y[0], [COLUMNS, 2 * COLUMNS, 3 * COLUMNS, 3 * COLUMNS + WIDTH], 1)
    heads = [each.reshape(1, -1, HEADS, WIDTH) for each in (q, k, v)]
    return heads, [each.reshape(-1, 1, WIDTH) for each in (key, value)]


def layers(rows, **ranks):
    """Runs both layers and their gradients; `ranks`: the group, its flags, the shard."""
    offsets = np.array(OFFSETS, np.int32)
    conv = {"weight": rows["weight"], "cu_seqlens": offsets, "activation": "silu", **ranks}
    gates = {"g": rows["g"], "beta": rows["beta"], "cu_seqlens": offsets, **ONES, **ranks}
    y = lathe.run("causal_conv1d", x=rows["x"], **conv)["y"]
    (q, k, v), (key, value) = parts(y)
    o = lathe.run("kda", q=q, k=k, v=v, **gates)["o"]
    latent = lathe.run("flash_attention", q=o[0], k=key, v=value, dout=rows["dout"], causal=True,
                       cu_seqlens_q=offsets, cu_seqlens_k=offsets, **ranks)
    back = lathe.run("kda", q=q, k=k, v=v, do=latent["dq"][None], **gates)
    dy = np.concatenate([back[name].reshape(1, -1, COLUMNS) for name in ("dq", "dk", "dv")] +
                        [latent[name].reshape(1, -1, WIDTH) for name in ("dk", "dv")], 2)
    found = lathe.run("causal_conv1d", x=rows["x"], dy=dy, **conv)
    return {"out": latent["out"], "dx": found["dx"][0], "dg": back["dg"][0],
            "dbeta": back["dbeta"][0], "dweight": found["dweight"]}


def over_ranks(rows):
    """Runs the layers on ranks that are threads, and puts their tokens together."""
    context = lathe.context()
    unique, found = context.unique_id(), [None] * WORLD

    def work(rank):
        shard = lathe.Shard(WORLD, rank, TOKENS, balance="per_document", cu_seqlens=OFFSETS)
        held = np.concatenate([np.arange(*interval) for interval in shard.intervals()])
        own = {name: array if name == "weight" else np.ascontiguousarray(
            np.take(array, held, 0 if name == "dout" else 1)) for name, array in rows.items()}
        group = lathe.Group(context, unique, WORLD, rank)
        found[rank] = held, layers(own, group=group, flags=("reduce_parameter_grads",), shard=shard)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = {"dweight": found[0][1]["dweight"]}
    for name, array in found[0][1].items():
        if name != "dweight":
            whole[name] = np.zeros((TOKENS, *array.shape[1:]), array.dtype)
            for held, results in found:
                whole[name][held] = results[name]
    return whole


def main():
    """Returns the largest distance of a result over ranks from the one of one rank, by its size."""
    rows = inputs()
    one, many = layers(rows), over_ranks(rows)
    worst = 0.0
    for name, array in one.items():
        error = many[name].astype(np.float64) - array
        worst = max(worst, float(np.linalg.norm(error) / np.linalg.norm(array.astype(np.float64))))
    print(f"two layers of {TOKENS} tokens over {WORLD} ranks: largest distance from one rank {worst:.1e}")
    return worst


if __name__ == "__main__":
    main()
