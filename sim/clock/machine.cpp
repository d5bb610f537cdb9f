// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sources of the numbers:
//   [guide]  CUDA programming guide, arithmetic instructions: results per cycle and multiprocessor.
//   [sheet]  data sheets and white papers: multiprocessors, clocks, bytes per second of DRAM, 5120
//            bytes a cycle of L2 (A100; taken for Hopper too).
//   [luo]    Luo et al., Benchmarking and dissecting the Nvidia Hopper GPU architecture (arXiv
//            2402.13499): latencies of L1, L2 and DRAM, mma.sync at 62 % of wgmma on Hopper, wgmma
//            by n, shared memory.
//   [sun]    Sun et al., Dissecting tensor cores via microbenchmarks (arXiv 2206.02874): mma.sync
//            of Ampere, its latency of 33 cycles, ldmatrix.
//   [abdel]  Abdelkhalik et al., Demystifying the Nvidia Ampere architecture (arXiv 2208.11174):
//            latencies of instructions.
//   [huerta] Huerta et al., Analyzing modern NVIDIA GPU cores (arXiv 2503.20481): issue, control
//            bits, the order in which warps are chosen.
//   [mla]    FlashMLA's notes: wgmma holds 865 of 989 TFLOP/s on an H800 for power.
//   [fit]    fitted on the first half of the table in README.md.
#include "sim/clock/machine.h"

namespace sim::clock {

const char* const kUnitNames[kUnits] = {
    "control", "fma",   "fma heavy", "alu",    "half", "fp64", "math",    "convert", "uniform",
    "tensor",  "wgmma", "shared",    "global", "copy", "tma",  "shuffle", "constant"};

namespace {

// clang-format off
//                       control fma heavy alu half fp64 math convert uniform tensor wgmma
constexpr Machine kA100 = {
    "a100", 108, 1.41e9, 1.41e9, {1, 2, 2, 2, 1, 2, 8, 8, 2, 0, 0},   // [guide]
    18, 14, 23, 23, 25,        // [abdel]: math, convert, shared, shuffle, constant
    1, 33, 1.0, 0,             // [sun]
    20, 25,                    // [fit]
    33, 200, 470,              // [abdel]: L1, L2, DRAM
    0, 128, 128, 64, 5120, 1.75e12,  // DRAM: what copies reach of 2.039e12
    300, 2.0e-6, 196608};
constexpr Machine kH100 = {
    "h100", 132, 1.83e9, 1.60e9, {1, 1, 2, 2, 1, 1, 8, 2, 2, 0, 0},   // [guide], [mla]
    18, 14, 29, 23, 25,        // [luo]
    2, 33, 1.61, 30,           // [luo]: 62 % of wgmma
    20, 25,
    33, 262, 660,              // [luo]: L1, L2, DRAM
    170, 128, 128, 64, 5120, 2.9e12,
    300, 2.0e-6, 262144};
// clang-format on

constexpr Machine derived(Machine m, const char* gpu, int multiprocessors, double boost,
                          double dram) {
  m.gpu = gpu;
  m.multiprocessors = multiprocessors;
  m.loaded_hz = boost * m.loaded_hz / m.boost_hz;
  m.boost_hz = boost;
  m.dram_bytes_per_second = dram;
  return m;
}

constexpr Machine kMachines[] = {
    kA100,
    kH100,
    derived(kH100, "h200", 132, 1.83e9, 4.2e12),
};

}  // namespace

const Machine* find_machine(const std::string& gpu) {
  for (const Machine& machine : kMachines) {
    if (gpu == machine.gpu) return &machine;
  }
  return nullptr;
}

}  // namespace sim::clock
