#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Times kda beside chunk_kda of flash-linear-attention (Triton) in one process, at the shapes of a kda.csv
that lathe_bench wrote: kda_peers.py [--dry-run] [--append FILE] KDA_CSV LIBLATHE

The two take turns: a sample of one, a sample of the other. A sample is a call between two events, after 256
MiB were filled; CSV on standard output with the median and the 10th and 90th percentile of 30 samples, and
how far the results are apart. "forward" is without gradients; "both" is a forward and the backward of all
its inputs. Who is missing is told on standard error. --dry-run only reads the shapes.
"""
import csv
import ctypes
import importlib
import re
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16
from ctypes import c_uint64, c_void_p

import peer_runs

COLUMNS = ["op", "shape", "dtype", "impl", "us", "us_p10", "us_p90", "apart", "gpu", "driver"]
DTYPES = ("bf16", "f16")  # of FLA; float32 inputs are another question
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "g": "dg", "beta": "dbeta", "A_log": "dA_log",
             "dt_bias": "ddt_bias"}


def shapes_of(path):
    """[(op, shape text, dtype, sizes)]; of a backward the op is "both"."""
    found = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["op"] not in ("forward", "backward") or row["dtype"] not in DTYPES:
                continue
            sizes = {k: int(v) for k, v in re.findall(r"\b(B|T|HV|H|K|V|N)(\d+)\b", row["shape"])}
            sizes.setdefault("HV", sizes["H"])
            for flag in ("fused", "states", "g32"):
                sizes[flag] = flag in row["shape"].split()
            found.append(("both" if row["op"] == "backward" else "forward", row["shape"], row["dtype"], sizes))
    return found


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Lathe:
    """The few calls of lathe.h that a plan takes, on torch's tensors and stream."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.lathe_last_error.restype = c_char_p
        self.library.lathe_plan_slot_count.restype = c_size_t
        self.library.lathe_plan_slot_count.argtypes = [c_void_p]
        self.library.lathe_plan_destroy.argtypes = [c_void_p]
        self.library.lathe_plan_destroy.restype = None
        self.context = c_void_p()
        self("context_create", byref(self.context), None)

    def __call__(self, name, *arguments):
        if getattr(self.library, "lathe_" + name)(*arguments) != 0:
            raise RuntimeError(f"lathe_{name}: {self.library.lathe_last_error().decode()}")

    def plan(self, torch, tensors, options):
        """A function that runs kda on these tensors; tensors and options by lathe's names."""
        kinds = {torch.float32: (0, 2, 32), torch.float16: (1, 2, 16), torch.bfloat16: (2, 4, 16),
                 torch.int32: (3, 0, 32), torch.int64: (4, 0, 64)}
        problem, plan = c_void_p(), c_void_p()
        self("problem_create", byref(problem), b"kda")
        views = {}
        for name, t in tensors.items():
            extents = (c_int64 * t.dim())(*t.shape)
            dtype, code, bits = kinds[t.dtype]
            self("problem_tensor", problem, name.encode(), c_int(dtype), c_int(t.dim()), extents)
            views[name] = DLTensor(t.data_ptr(), 2, t.device.index or 0, t.dim(), code, bits, 1, extents, None, 0)
        for name, value in options.items():
            self("problem_set_int", problem, name.encode(), c_int64(value))
        self("plan_create", byref(plan), self.context, problem)
        self.library.lathe_problem_destroy.argtypes = [c_void_p]
        self.library.lathe_problem_destroy(problem)
        slots = (POINTER(DLTensor) * self.library.lathe_plan_slot_count(plan))()
        for name, view in views.items():
            slot = c_size_t()
            self("plan_slot", plan, name.encode(), byref(slot))
            slots[slot.value] = ctypes.pointer(view)
        needed = c_size_t()
        self("plan_workspace", plan, slots, None, byref(needed))
        workspace = torch.empty(max(needed.value, 1), device=next(iter(tensors.values())).device, dtype=torch.uint8)

        def run(stream):
            self("plan_run", plan, slots, c_void_p(workspace.data_ptr()), needed, c_void_p(stream))
        run.keep = (tensors, views, workspace)
        run.destroy = lambda: self.library.lathe_plan_destroy(plan)
        return run


def inputs_of(torch, s, dtype, device):
    def noise(*shape):
        return torch.randn(*shape, device=device)
    rows = (s["B"], s["T"])
    q, k = noise(*rows, s["H"], s["K"]), noise(*rows, s["H"], s["K"])
    v, g, beta = noise(*rows, s["HV"], s["V"]), noise(*rows, s["HV"], s["K"]), noise(*rows, s["HV"])
    if not s["fused"]:
        q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
        g, beta = torch.nn.functional.logsigmoid(g), beta.sigmoid()
    made = {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype),
            "g": g if s["g32"] else g.to(dtype), "beta": beta.to(dtype)}
    if s["fused"]:
        made.update(A_log=noise(s["HV"]), dt_bias=noise(s["HV"] * s["K"]))
    return made


def offsets_of(torch, s, device):
    if "N" not in s:
        return None
    return (torch.arange(s["N"] + 1, dtype=torch.int64) * s["T"] // s["N"]).to(device)


def fla_of(torch, chunk_kda, given, s, slope, initial):
    """(function of nothing, function that hands out what it made)"""
    flags = {name: s["fused"] for name in ("use_qk_l2norm_in_kernel", "use_gate_in_kernel",
                                           "use_beta_sigmoid_in_kernel")}
    inputs = {name: t.clone().requires_grad_(slope is not None) for name, t in given.items()}
    made = {}

    def work():
        with torch.set_grad_enabled(slope is not None):
            made["o"], _ = chunk_kda(**inputs, **flags, initial_state=initial, output_final_state=s["states"],
                                     cu_seqlens=offsets_of(torch, s, inputs["q"].device))
            if slope is not None:
                found = torch.autograd.grad(made["o"], list(inputs.values()), slope)
                made.update((GRADIENTS[name], t) for name, t in zip(inputs, found))
    return work, made


def lathe_of(torch, lathe, given, s, slope, initial):
    flags = {name: int(s["fused"]) for name in ("use_qk_l2norm_in_kernel", "use_gate_in_kernel",
                                                "use_beta_sigmoid_in_kernel")}
    common = dict(given)
    if initial is not None:
        common["initial_state"] = initial
    offsets = offsets_of(torch, s, given["q"].device)
    if offsets is not None:
        common["cu_seqlens"] = offsets
    made = {"o": torch.empty_like(given["v"])}
    forward = dict(common, o=made["o"])
    if s["states"]:
        forward["final_state"] = torch.empty_like(initial)
    plans = [lathe.plan(torch, forward, flags)]
    if slope is not None:
        made.update((GRADIENTS[name], torch.empty_like(t)) for name, t in given.items())
        gradients = {name: t for name, t in made.items() if name != "o"}
        plans.append(lathe.plan(torch, dict(common, do=slope, **gradients), flags))

    def work():
        stream = torch.cuda.current_stream().cuda_stream
        for plan in plans:
            plan(stream)
    work.destroy = lambda: [plan.destroy() for plan in plans]
    return work, made


def apart(one, other):
    """The largest difference of a result both made, as root mean square over its own."""
    worst = 0.0
    for name in set(one) & set(other):
        a, b = one[name].double(), other[name].double()
        worst = max(worst, float((a - b).square().mean().sqrt() / b.square().mean().sqrt().clamp_min(1e-30)))
    return worst


def measure(torch, shapes, library, out):
    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16}
    gpu, driver = torch.cuda.get_device_name(), torch.version.cuda
    lathe = Lathe(library)
    try:
        chunk_kda = importlib.import_module("fla.ops.kda").chunk_kda
    except (ImportError, AttributeError) as error:
        print(f"peers: flash-linear-attention cannot be imported: {error}", file=sys.stderr)
        chunk_kda = None
    for op, text, dtype, s in shapes:
        torch.manual_seed(1)
        given = inputs_of(torch, s, dtypes[dtype], "cuda")
        slope = torch.randn_like(given["v"]) if op == "both" else None
        initial = None
        if s["states"]:
            initial = torch.randn(s.get("N", s["B"]), s["HV"], s["K"], s["V"], device="cuda")
        works, results = {}, {}
        makers = {"lathe": lambda: lathe_of(torch, lathe, given, s, slope, initial)}
        if chunk_kda is not None:
            makers["fla"] = lambda: fla_of(torch, chunk_kda, given, s, slope, initial)
        for name, make in makers.items():
            try:
                work, made = make()
                work()
                torch.cuda.synchronize()
                works[name], results[name] = work, made
            except Exception as error:  # one that cannot do a shape must not end the others
                print(f"peers: {name} {op} {text}: {str(error).splitlines()[0]}", file=sys.stderr)
        distance = f"{apart(results['lathe'], results['fla']):.1e}" if len(results) == 2 else "-"
        for name, times in peer_runs.take_turns(torch, works).items():
            out.writerow([op, text, dtype, name] + [f"{t:.2f}" for t in times] + [distance, gpu, driver])
            sys.stdout.flush()
        if "lathe" in works:
            works["lathe"].destroy()


if __name__ == "__main__":
    sys.exit(peer_runs.run(__doc__, COLUMNS, shapes_of, measure, others=1))
