#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What chunk_kda of flash-linear-attention moves, launch by launch, counted on the simulator.

kda_bytes.py --work FOLDER [--tokens 2048] [--heads 4] [--width 128] [--pass forward|backward]...
             [--options plain|fused|bounded]...

plain: q, k, g and beta as they count; fused: norms, gate and sigmoid in the kernels; bounded: a gate with a
lower bound too, of which FLA makes products of 16 rows.

CSV on standard output. Kernels of Triton are counted by the simulator's counters: `memory_MB` has each
sector once a launch, as from a second cache that holds all of one, `asked_MB` every sector asked of that
cache. What torch itself does between them (fills, casts, sums) is counted by the sizes of its tensors.
Then a line "total", and one of what is allocated beside the results: all of it, and the most at a time.
scripts/test --peers has installed what this needs; LD_LIBRARY_PATH as there.
"""
import argparse
import csv
import importlib.metadata
import json
import os
import pathlib
import sys

COLUMNS = ["impl", "shape", "options", "pass", "what", "launches", "memory_MB", "asked_MB", "tensor_Mop"]
SECTOR = 32


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--pass", dest="passes", action="append", choices=("forward", "backward"))
    parser.add_argument("--options", action="append", choices=("plain", "fused", "bounded"))
    return parser.parse_args()


def inputs_of(torch, tokens, heads, width, fused, requires_grad):
    """bf16; a plain call is given what its gates, sigmoid and norms make, a fused one what they start from."""
    def noise(*shape, seed):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    q, k, v, g = (noise(1, tokens, heads, width, seed=seed) for seed in (1, 2, 3, 4))
    beta = noise(1, tokens, heads, seed=5)
    extra = {}
    if fused:
        extra = {"A_log": noise(heads, seed=6), "dt_bias": noise(heads * width, seed=7)}
    else:
        q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
        g, beta = torch.nn.functional.logsigmoid(g), beta.sigmoid()
    given = {name: t.bfloat16() for name, t in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta))}
    given.update(extra)
    return {name: t.requires_grad_(requires_grad) for name, t in given.items()}


def watch(torch):
    """A mode that notes what torch's own operations move, and what is allocated."""
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.operations = []  # (name, bytes)
            self.made = {}  # storage -> (weak reference, bytes)
            self.most = 0

        def live(self):
            return sum(size for reference, size in self.made.values() if not reference.expired())

        def __torch_dispatch__(self, function, types, given=(), options=None):
            out = function(*given, **(options or {}))
            results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
            sources = [t for t in tree_leaves((given, options)) if isinstance(t, torch.Tensor)]
            ours = {t.untyped_storage()._cdata for t in sources}
            for t in results:
                storage = t.untyped_storage()
                if storage._cdata not in ours and storage.nbytes():
                    self.made[len(self.made)] = (StorageWeakRef(storage), storage.nbytes())
            self.most = max(self.most, self.live())
            name = function.overloadpacket.__name__
            view = any(r.alias_info is not None and not r.alias_info.is_write for r in function._schema.returns)
            silent = name.startswith(("empty", "new_empty", "_local_scalar", "detach", "equal", "isnan"))
            if not view and not silent and results:
                writes_only = name.startswith(("zero", "fill", "new_zeros", "new_full", "ones", "full", "arange"))
                moved = sum(t.numel() * t.element_size() for t in results)
                if not writes_only:
                    moved += sum(t.numel() * t.element_size() for t in sources)
                if moved:
                    self.operations.append((name, moved))
            return out
    return Watch()


def counted(path, seen):
    """The launches in the simulator's file behind the first `seen`."""
    return [json.loads(line) for line in path.read_text().splitlines()[seen:]] if path.exists() else []


def rows_of(torch, chunk_kda, label, options, what, sizes, counters):
    fused, backward = options != "plain", what == "backward"
    given = inputs_of(torch, *sizes, fused, backward)
    if fused:
        given.update(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)
    if options == "bounded":
        given.update(safe_gate=True, lower_bound=-5.0)
    before = len(counted(counters, 0))
    mode = watch(torch)
    if backward:
        out, _ = chunk_kda(**given)
        slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(8)).to(out.dtype)
        before = len(counted(counters, 0))
        with mode:
            out.backward(slope)
        results = [t.grad for t in given.values() if isinstance(t, torch.Tensor)]
    else:
        with torch.no_grad(), mode:
            results = [chunk_kda(**given)[0]]
    launches = counted(counters, before)
    rows, total = [], [0, 0.0, 0.0, 0.0]

    def add(name, count, memory, asked, tensor):
        rows.append([*label, options, what, name, count, f"{memory / 1e6:.3f}", f"{asked / 1e6:.3f}",
                     f"{tensor / 1e6:.0f}"])
        for i, value in enumerate((count, memory, asked, tensor)):
            total[i] += value

    for launch in launches:
        memory = SECTOR * (launch["unique_load_sectors"] + launch["unique_store_sectors"])
        asked = SECTOR * sum(launch[f"global_{kind}_sectors"] for kind in ("load", "store", "atomic"))
        add(launch["kernel"], 1, memory, asked, launch["tensor_ops"])
    for name, moved in mode.operations:
        add(f"torch {name}", 1, moved, moved, 0)
    finals = sum(t.numel() * t.element_size() for t in results if t is not None)
    allocated = sum(size for _, size in mode.made.values())
    rows.append([*label, options, what, "total", total[0], f"{total[1] / 1e6:.3f}", f"{total[2] / 1e6:.3f}",
                 f"{total[3] / 1e6:.0f}"])
    for name, size in (("intermediates, all", allocated), ("intermediates, at a time", mode.most)):
        rows.append([*label, options, what, name, "-", f"{max(0, size - finals) / 1e6:.3f}", "-", "-"])
    return rows


def main():
    given = arguments()
    folder = given.work.resolve() / "kda_bytes"
    folder.mkdir(parents=True, exist_ok=True)
    counters = folder / "counters.jsonl"
    counters.unlink(missing_ok=True)
    # Counting distinct sectors needs no check; races and the like are for the cases of run.py to find.
    os.environ.update(LATHE_SIM_COUNTERS=str(counters), LATHE_SIM_CHECK=os.environ.get("LATHE_SIM_CHECK", "memcheck"))
    os.environ.setdefault("LATHE_SIM_ARCH", "sm_90a")
    os.environ.setdefault("TRITON_CACHE_DIR", str(given.work.resolve() / "triton_cache"))
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import torch
    torch.set_num_threads(1)
    import bridge
    bridge.install(folder)
    from fla.ops.kda import chunk_kda
    import fla_cases
    fla_cases.one_configuration()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    sizes = (given.tokens, given.heads, given.width)
    version = importlib.metadata.version
    label = (f"fla {version('flash-linear-attention')} triton {version('triton')}",
             f"B1 T{given.tokens} H{given.heads} K{given.width} V{given.width} bf16")
    for what in given.passes or ("forward", "backward"):
        for options in given.options or ("plain", "fused", "bounded"):
            out.writerows(rows_of(torch, chunk_kda, label, options, what, sizes, counters))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
