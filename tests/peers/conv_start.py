#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What Triton takes to have flash-linear-attention's conv1d kernels ready for the driver: the other half of
`lathe_bench cache --peers`. One process, one line of JSON; TRITON_CACHE_DIR decides whether it is cold.

Timed is triton.compile() for an explicit target, up to the bytes of the cubin in memory: no GPU is asked, no
driver called, nothing launched. Importing torch, triton and the package, and the work of the launch front end
(specialising arguments, hashing them), are left out of it. A tuned kernel counts with one configuration, its first.
"""
import json
import sys
import time

began = time.perf_counter()
import torch  # noqa: E402,F401 — timed
import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import fla  # noqa: E402
from fla.modules.causal_conv1d.ops import causal_conv1d_bwd_kernel, causal_conv1d_fwd_kernel  # noqa: E402

IMPORTED = time.perf_counter() - began
WIDTH, CHANNELS, CHUNK = 4, 512, 64
TYPES = {"x": "*bf16", "y": "*bf16", "weight": "*bf16", "bias": "*bf16", "dy": "*bf16", "dx": "*bf16",
         "dw": "*fp32", "db": "*fp32", "B": "i32", "T": "i32"}


def jit_function(tuned):
    """The function under the heuristics and the tuner, and the tuner's first configuration."""
    config = None
    while not hasattr(tuned, "arg_names") or hasattr(tuned, "configs") or hasattr(tuned, "values"):
        config = getattr(tuned, "configs", [config])[0]
        tuned = tuned.fn
    return tuned, config


def source_of(tuned, activation, given):
    """As a launch on contiguous tensors of many rows would specialise it."""
    fn, config = jit_function(tuned)
    constants = dict(D=CHANNELS, W=WIDTH, BT=CHUNK, BW=WIDTH, ACTIVATION=activation, HAS_WEIGHT=True, HAS_BIAS=True,
                     HAS_RESIDUAL=False, USE_INITIAL_STATE=False, USE_FINAL_STATE=False, IS_VARLEN=False, **config.kwargs)
    signature, values, attributes = {}, {}, {}
    for index, name in enumerate(fn.arg_names):
        if name in constants or name.endswith("_d") or (name not in given and not name.startswith("stride")
                                                        and name not in ("B", "T")):
            signature[name] = "constexpr"
            values[name] = constants.get(name, 1 if name.endswith("_d") else None)
            continue
        signature[name] = TYPES.get(name, "i32")
        if name != "B":
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(fn, signature, values, attributes), {"num_warps": config.num_warps, "num_stages": config.num_stages}


def main():
    forward = ("x", "y", "weight", "bias")
    wanted = [("causal_conv1d_fwd_kernel", causal_conv1d_fwd_kernel, "silu", forward)]
    if "both" in sys.argv[1:]:
        # The backward makes the value before the activation again, with another forward.
        wanted += [("causal_conv1d_fwd_kernel", causal_conv1d_fwd_kernel, None, forward),
                   ("causal_conv1d_bwd_kernel", causal_conv1d_bwd_kernel, "silu",
                    ("x", "y", "weight", "dy", "dx", "dw", "db"))]
    kernels = []
    for name, tuned, activation, given in wanted:
        source, options = source_of(tuned, activation, given)
        hits = []
        triton.knobs.compilation.listener = lambda cache_hit, hits=hits, **_: hits.append(cache_hit)
        start = time.perf_counter()
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        size = len(kernel.asm["cubin"])
        kernels.append({"name": name, "us": 1e6 * (time.perf_counter() - start), "hit": hits == [True], "bytes": size})
    print(json.dumps({"triton": triton.__version__, "fla": fla.__version__, "import_us": 1e6 * IMPORTED,
                      "kernels": kernels}))


if __name__ == "__main__":
    main()
