// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The constants of each GPU that the clock needs, with their sources.
#pragma once

#include <cstdint>
#include <string>

#include "sim/clock/program.h"

namespace sim::clock {

// All times are cycles of the multiprocessors' clock, all rates are per cycle.
struct Machine {
  const char* gpu;  // as LATHE_SIM_GPU has it
  int multiprocessors;
  double boost_hz;           // without load on the tensor cores
  double loaded_hz;          // with the tensor cores busy all the time, as power allows
  double cycles[kOwnUnits];  // that a unit of a part is busy with one instruction of a warp
  // Times until a result can be used.
  double math_latency, convert_latency, shared_latency, shuffle_latency, constant_latency;
  double half_latency;     // where PTX is replayed: machine code has its own
  bool alu_converts;       // integers to float32 are the ALU's, not those of the unit that converts
  double tensor_rate;      // multiply-adds of 16-bit floats a cycle and part, over 256
  double mma_latency;      // of mma.sync m16n8k16, from issue to its dependent mma
  double mma_slowdown;     // mma.sync against the tensor cores' full rate
  double wgmma_drain;      // from the end of a product to the end of the wait for it
  double barrier_latency;  // from the last arrival to the first instruction behind it
  double mbarrier_latency;
  double cluster_latency;  // of what goes to another block of the cluster, and of its barrier
  double l1_latency, l2_latency, dram_latency;
  double tma_latency;  // beyond that of L2 or DRAM
  double l1_bytes_per_cycle, shared_bytes_per_cycle;
  double l2_port;                // bytes between L2 and a multiprocessor
  double l2_bytes;               // of the whole device
  double dram_bytes_per_second;  // that loads reach
  double dram_store;             // what a byte stored costs, against one loaded
  double dram_turn;              // that a load waits if DRAM is writing when it comes
  double block_start;            // from the end of a block to the first instruction of the next
  double launch_seconds;         // of a kernel on an idle device, beyond its work
  uint32_t l1_bytes;             // of L1 and shared memory together
};

// Null if the GPU is not known.
const Machine* find_machine(const std::string& gpu);
// Lists those that are, for messages.
std::string machine_names();

}  // namespace sim::clock
