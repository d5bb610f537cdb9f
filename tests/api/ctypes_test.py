#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""causal_conv1d from Python by ctypes alone, on the simulator: ctypes_test.py LIBRARY

Everything the C header asks for is written out here, so that this is also what a binding for any
other language has to do. The result is compared with plain Python floats.
"""
import ctypes
import math
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16
from ctypes import c_uint64, c_void_p

F32, CUDA_DEVICE, FLOAT, SIM = 0, 2, 2, 2
BATCH, TOKENS, CHANNELS, WIDTH = 2, 11, 6, 4


class ContextOptions(ctypes.Structure):
    """As programs have it that do not know `family`, which came later: the default holds for them."""
    _fields_ = [("size", c_size_t), ("device", c_int), ("ordinal", c_int), ("arch", c_char_p),
                ("cache_dir", c_char_p)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class Lathe:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.lathe_last_error.restype = c_char_p
        self.library.lathe_version.restype = c_char_p
        self.library.lathe_plan_slot_count.restype = c_size_t
        self.library.lathe_plan_slot_count.argtypes = [c_void_p]

    def __call__(self, name, *arguments):
        status = getattr(self.library, "lathe_" + name)(*arguments)
        if status != 0:
            sys.exit(f"lathe_{name}: status {status}: {self.library.lathe_last_error().decode()}")


def dims(*extents):
    return (c_int64 * len(extents))(*extents)


def conv(x, weight, bias):
    """y[b][t][d] = silu(bias[d] + sum_i weight[d][i] x[b][t - W + 1 + i][d]), flat lists."""
    y = []
    for b in range(BATCH):
        for t in range(TOKENS):
            for d in range(CHANNELS):
                z = bias[d]
                for i in range(WIDTH):
                    at = t - WIDTH + 1 + i
                    if at >= 0:
                        z += weight[d * WIDTH + i] * x[(b * TOKENS + at) * CHANNELS + d]
                y.append(z / (1.0 + math.exp(-z)))
    return y


def main():
    lathe = Lathe(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="lathe-ctypes-") as cache:
        options = ContextOptions(ctypes.sizeof(ContextOptions), SIM, 0, None, cache.encode())
        context, problem, plan = c_void_p(), c_void_p(), c_void_p()
        lathe("context_create", byref(context), byref(options))
        lathe("problem_create", byref(problem), b"causal_conv1d")
        tensors = {b"x": (BATCH, TOKENS, CHANNELS), b"weight": (CHANNELS, WIDTH),
                   b"bias": (CHANNELS,), b"y": (BATCH, TOKENS, CHANNELS)}
        for name, shape in tensors.items():
            declared = (-1, -1, CHANNELS) if len(shape) == 3 else shape
            lathe("problem_tensor", problem, name, F32, len(shape), dims(*declared))
        lathe("problem_set_string", problem, b"activation", b"silu")
        lathe("plan_create", byref(plan), context, problem)

        values, slots = {}, (POINTER(DLTensor) * lathe.library.lathe_plan_slot_count(plan))()
        keep = []
        for name, shape in tensors.items():
            count = math.prod(shape)
            host = (ctypes.c_float * count)(*((i * 29 + len(name) * 7) % 31 / 8 - 2
                                              for i in range(count)))
            data, slot = c_void_p(), c_size_t()
            lathe("malloc", context, byref(data), c_size_t(ctypes.sizeof(host)))
            lathe("copy_to_device", context, data, host, c_size_t(ctypes.sizeof(host)), None)
            view = DLTensor(data, CUDA_DEVICE, 0, len(shape), FLOAT, 32, 1, dims(*shape), None, 0)
            lathe("plan_slot", plan, name, byref(slot))
            slots[slot.value] = ctypes.pointer(view)
            keep.append(view)
            values[name] = (host, data)

        needed = c_size_t(1)
        lathe("plan_workspace", plan, slots, None, byref(needed))
        workspace = c_void_p()
        lathe("malloc", context, byref(workspace), needed)
        lathe("plan_run", plan, slots, workspace, needed, None)
        host, data = values[b"y"]
        lathe("copy_to_host", context, host, data, c_size_t(ctypes.sizeof(host)), None)

        expected = conv(*(list(values[name][0]) for name in (b"x", b"weight", b"bias")))
        worst = max(abs(a - b) for a, b in zip(host, expected))
        for _, data in values.values():
            lathe("free", context, data)
        lathe("free", context, workspace)
        for name, thing in (("plan", plan), ("problem", problem), ("context", context)):
            destroy = getattr(lathe.library, f"lathe_{name}_destroy")
            destroy.restype, destroy.argtypes = None, [c_void_p]
            destroy(thing)
    print(f"lathe {lathe.library.lathe_version().decode()}: largest error {worst:.2e}")
    sys.exit(0 if worst < 1e-5 else 1)


if __name__ == "__main__":
    main()
