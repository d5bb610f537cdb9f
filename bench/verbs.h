// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the benches, one file each. Each returns its table.
#pragma once

#include <string>

#include "bench/table.h"

namespace bench {

struct Settings {
  int runs = 0;        // 0: the bench's own number
  bool full = false;   // full shapes on the simulator too
  bool tiny = false;   // a few small shapes instead, on any device
  bool peers = false;  // kda: beside the kernels of flash-linear-attention
  int tokens = 0;      // ring: of each rank; 0: the bench's own number
  std::string only;    // loops, shapes or cases with this in their name
  std::string append;  // rows go to the end of this file as they are made: bench/operators/cases.h
  std::string isa;     // sim: this instruction set alone
  std::string folder;  // of this program, to find the null driver
};

Table bench_compile(const Settings& settings);  // a kernel through NVRTC, nothing cached
Table bench_warm(const Settings& settings);     // context and plan, with kernels on disk
Table bench_cache(const Settings& settings);    // new processes, with kernels on disk and without
Table bench_cache_child(const Settings& settings);  // one of those processes
Table bench_launch(const Settings& settings);  // lathe_plan_run over a driver that does nothing
Table bench_conv(const Settings& settings);    // time on a GPU, bytes on the simulator
Table bench_attn(const Settings& settings);    // time on a GPU, counts and bytes on the simulator
Table bench_kda(const Settings& settings);     // the same, and others' bytes
Table bench_ring(const Settings& settings);    // over ranks, in the simulator's model time
Table bench_sparse(const Settings& settings);  // as attn
Table bench_sim(const Settings& settings);     // the simulator's own speed

// Starts 64 processes on a cold cache: compiles, and the time beside that of the compiles alone.
Table bench_processes(const Settings& settings);

}  // namespace bench
