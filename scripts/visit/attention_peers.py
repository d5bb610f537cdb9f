#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Times attention of torch (each backend of scaled_dot_product_attention) and of flash-attn 2 and 3, as
far as they can be imported, at the shapes of an attn.csv that lathe_bench wrote:
attention_peers.py [--dry-run] [--append FILE] ATTN_CSV

CSV on standard output, timed as lathe_bench does: single calls between two events, each after 256 MiB
were filled, the median and the 10th and 90th percentile of 30 samples. Who is missing, or cannot do a
shape, is told on standard error. --dry-run only reads the shapes.
"""
import csv
import importlib
import re
import sys

import peer_runs

COLUMNS = ["op", "shape", "dtype", "impl", "us", "us_p10", "us_p90", "TFLOP_per_s", "GB_per_s", "minimum_MB",
           "gpu", "driver"]
SIZES = {"f16": 2, "bf16": 2}


def shapes_of(path):
    """[(op, shape text, dtype, {"B": .., "Sq": .., .., "causal": bool})] of what peers can do."""
    found = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["op"] not in ("forward", "backward", "decode") or row["dtype"] not in SIZES:
                continue
            sizes = {k: int(v) for k, v in re.findall(r"\b(B|Sq|Sk|HK|H|DV|D|N|window|page)(\d+)", row["shape"])}
            for flag in ("causal", "deterministic"):
                sizes[flag] = flag in row["shape"].split()
            found.append((row["op"], row["shape"], row["dtype"], sizes))
    return found


def flops(op, s):
    """The usual convention: 2 (D + DV) per head and pair, half if causal and no decode; a backward is 2.5."""
    parts = s.get("N", 1)
    pairs = s["B"] * parts * (s["Sq"] / parts) * (s["Sk"] / parts)
    if "window" in s and s["window"] < s["Sk"] / parts:
        pairs = s["B"] * s["Sq"] * (s["window"] + 1)
    elif s["causal"] and op != "decode":
        pairs /= 2
    return 2 * (s["D"] + s["DV"]) * s["H"] * pairs * (2.5 if op == "backward" else 1)


def minimum_bytes(op, s, size):
    """Inputs once, outputs once: as lathe_bench counts them."""
    rows, keys = s["B"] * s["Sq"] * s["H"], s["B"] * s["Sk"] * s["HK"]
    once = (rows + keys) * (s["D"] + s["DV"]) * size
    # The backward reads out and dout as well, and writes dq, dk, dv.
    return (2 if op == "backward" else 1) * once + 4 * rows


def torch_backends(torch):
    """name -> function (q, k, v [B, S, H, D], s) -> out [B, S, H, DV], or None where it cannot."""
    attention = importlib.import_module("torch.nn.attention")
    functional = torch.nn.functional

    def of(backend):
        def run(q, k, v, s):
            # Without bottom-right alignment; a causal mask is the same only where Sq = Sk.
            if "N" in s or "window" in s or "page" in s or s["deterministic"] or (s["causal"] and s["Sq"] != s["Sk"]):
                return None
            with attention.sdpa_kernel(backend):
                out = functional.scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=s["causal"],
                    enable_gqa=s["H"] != s["HK"])
            return out.transpose(1, 2)
        return run

    found = {}
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        backend = getattr(attention.SDPBackend, name, None)
        if backend is not None:
            found["torch_" + name.split("_")[0].lower()] = of(backend)
    return found


def flash_packages(torch):
    """The same for flash-attn, which also packs sequences and has windows."""
    found = {}
    for label, module in (("flash_attn_2", "flash_attn"), ("flash_attn_3", "flash_attn_interface")):
        try:
            package = importlib.import_module(module)
            dense, packed = package.flash_attn_func, package.flash_attn_varlen_func
            paged = package.flash_attn_with_kvcache
        except (ImportError, AttributeError) as error:
            print(f"peers: {label} cannot be imported: {error}", file=sys.stderr)
            continue

        # flash-attn 2 takes no other pages, 3 no name for their table but its own.
        pages = (256, "block_table") if label == "flash_attn_2" else (1, "page_table")

        def run(q, k, v, s, dense=dense, packed=packed, paged=paged, pages=pages):
            if "page" in s:
                if s["page"] % pages[0]:
                    return None
                k, v = (t.view(-1, s["page"], *t.shape[2:]) for t in (k, v))
                table = torch.randperm(k.shape[0], device="cuda", dtype=torch.int32).view(s["B"], -1)
                lengths = torch.full((s["B"],), s["Sk"], device="cuda", dtype=torch.int32)
                out = paged(q, k, v, cache_seqlens=lengths, causal=s["causal"], **{pages[1]: table})
                return out[0] if isinstance(out, tuple) else out
            window = (s["window"], 0) if "window" in s else (-1, -1)
            if "N" not in s:
                out = dense(q, k, v, causal=s["causal"], window_size=window, deterministic=s["deterministic"])
            else:
                cu = [torch.arange(s["N"] + 1, device="cuda", dtype=torch.int64) * s[t] // s["N"]
                      for t in ("Sq", "Sk")]
                most = [int((c[1:] - c[:-1]).max()) for c in cu]
                out = packed(q[0], k[0], v[0], cu[0].int(), cu[1].int(), most[0], most[1],
                             causal=s["causal"], window_size=window, deterministic=s["deterministic"])[None]
            return out[0] if isinstance(out, tuple) else out
        found[label] = run
    return found


def measure(torch, shapes, out):
    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16}
    gpu, driver = torch.cuda.get_device_name(), torch.version.cuda
    peers = {**torch_backends(torch), **flash_packages(torch)}
    for op, text, dtype, s in shapes:
        torch.manual_seed(1)
        made = dict(device="cuda", dtype=dtypes[dtype], requires_grad=op == "backward")
        q = torch.randn(s["B"], s["Sq"], s["H"], s["D"], **made)
        k = torch.randn(s["B"], s["Sk"], s["HK"], s["D"], **made)
        v = torch.randn(s["B"], s["Sk"], s["HK"], s["DV"], **made)
        for name, function in peers.items():
            try:
                y = function(q, k, v, s)
                if y is None:
                    continue
                work = lambda: function(q, k, v, s)
                if op == "backward":
                    dy = torch.randn_like(y)
                    work = lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)
                work()
                times = peer_runs.take_turns(torch, {name: work})[name]
            except Exception as error:  # a peer that cannot do a shape must not end the others
                print(f"peers: {name} {op} {text}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            least = minimum_bytes(op, s, SIZES[dtype])
            out.writerow([op, text, dtype, name] + [f"{t:.2f}" for t in times] +
                         [f"{flops(op, s) / times[0] / 1e6:.1f}", f"{least / times[0] / 1e3:.0f}",
                          f"{least / 1e6:.2f}", gpu, driver])
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(peer_runs.run(__doc__, COLUMNS, shapes_of, measure))
