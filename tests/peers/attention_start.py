#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What Triton takes to have the kernels of an attention forward or a KDA forward of flash-linear-attention ready for the
driver, for `lathe_bench cache --peers`: attention_start.py
attention|attention_grouped|kda. One process, one line of JSON.

The package's own functions are called with tensors of the CPU, each kernel is compiled as its launch would have it, for
sm_90 up to the cubin, and nothing is launched; no GPU or driver is there. A tuned kernel counts with one configuration,
its first. Imports are left out of the times; `cpu_us` has ptxas in it, which is a process of its own.
"""
import json
import resource
import sys
import time

began = time.perf_counter()
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

TOKENS, HEADS, WIDTH = 256, 8, 64  # lengths are parameters; the others as in bench/cache_problems.cpp


class Utils:
    """An H100's limits, as its driver tells them."""

    def get_device_properties(self, device):
        return {"max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32,
                "sm_clock_rate": 1980000, "mem_clock_rate": 2619000, "mem_bus_width": 5120}


class Driver:
    utils = Utils()

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device):
        return 0

    def get_device_capability(self, device=0):
        return 9, 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        return lambda kernel, quantiles=None: [0.0] * len(quantiles or [0])

    @staticmethod
    def is_active():
        return True


def pretend():
    """Before the package is imported, which asks at once."""
    triton.runtime.driver.set_active(Driver())
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.get_device_name = lambda device=None: "NVIDIA H100"
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    launch = JITFunction.run
    JITFunction.run = lambda self, *args, grid, warmup, **options: launch(self, *args, grid=grid, warmup=True, **options)


def one_configuration():
    """A tuner would measure; without a device it keeps its first."""
    tuned = triton.runtime.Autotuner.run

    def run(self, *args, **options):
        self.configs = self.configs[:1]
        return tuned(self, *args, **options)
    triton.runtime.Autotuner.run = run


def noise(heads, width=WIDTH):
    return torch.randn(1, TOKENS, heads, width).bfloat16()


def attention(kv_heads=HEADS):
    from fla.ops.attn.parallel import parallel_attn
    q, k, v = noise(HEADS), noise(kv_heads), noise(kv_heads)
    return lambda: parallel_attn(q, k, v)


def kda():
    from fla.ops.kda import chunk_kda
    q, k, v, g = (noise(HEADS) for _ in range(4))
    beta = torch.rand(1, TOKENS, HEADS).bfloat16()
    return lambda: chunk_kda(q, k, v, -g.abs(), beta, use_qk_l2norm_in_kernel=True)


def processor_seconds():
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF,
                                                                                  resource.RUSAGE_CHILDREN)))


def main():
    pretend()
    one_configuration()
    import fla
    work = {"attention": attention, "attention_grouped": lambda: attention(2), "kda": kda}[sys.argv[1]]()
    imported = time.perf_counter() - began
    hits = []
    triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
    start, used = time.perf_counter(), processor_seconds()
    with torch.no_grad():
        work()
    took, used = time.perf_counter() - start, processor_seconds() - used
    print(json.dumps({"triton": triton.__version__, "fla": fla.__version__, "import_us": 1e6 * imported,
                      "cpu_us": 1e6 * used, "us": 1e6 * took, "kernels": len(hits), "hits": sum(hits)}))


if __name__ == "__main__":
    main()
