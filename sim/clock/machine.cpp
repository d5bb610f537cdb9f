// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sources of the numbers:
//   [guide]  CUDA programming guide, arithmetic instructions: results per cycle and multiprocessor.
//   [sheet]  data sheets and white papers: multiprocessors, clocks, bytes per second of DRAM, 64
//            bytes a cycle from L2 to a multiprocessor.
//   [luo]    Luo et al., Benchmarking and dissecting the Nvidia Hopper GPU architecture (arXiv
//            2402.13499): mma.sync m16n8k16 of A100 (24.6 cycles) and H800 (24.1), its rate of 62 %
//            of wgmma on Hopper, wgmma by n, shared memory, blocks of a cluster. Reports of 33 for
//            mma.sync contradict the 24 cycles that ptxas leaves between dependent ones on both.
//   [hpmll]  Logs of the same authors' programs, HPMLL/NVIDIA-Hopper-Benchmark: loads of 32, 264
//   and
//            600 to 649 cycles from L1, L2 and DRAM; a bulk copy takes 105 more. Their papers say
//            40.7, 263, 479 and 170; logs of others agree with theirs.
//   [benches] Logs of te42kyfo/gpu-benches: A100 36, 211 and 570 cycles from L1, L2 and DRAM, H100
//            34, 265 and 650; from L2 to all multiprocessors 5400 GB/s at 1.41 GHz (A100) and 10000
//            at 1.98 GHz (H200).
//   [rt]     Dash-Crystal/flashinfer, docs/mixed_kv_page_transport_backends.md, P0.3 (d), on an
//            H200: bar.sync of four warps 20.7 cycles, a round of arrival and wait at an mbarrier
//            87, fence to wait of wgmma m64n8k16 57.7, of eight 185.5.
//   [sun]    Sun et al., Dissecting tensor cores via microbenchmarks (arXiv 2206.02874): the rate
//   of
//            mma.sync of Ampere, ldmatrix.
//   [abdel]  Abdelkhalik et al., Demystifying the Nvidia Ampere architecture (arXiv 2208.11174):
//            latencies of instructions.
//   [huerta] Huerta et al., Analyzing modern NVIDIA GPU cores (arXiv 2503.20481): issue, control
//            bits, the order in which warps are chosen.
//   [mla]    FlashMLA's notes: wgmma holds 865 of 989 TFLOP/s on an H800 for power.
//   [units]  bench/results/units-h200-2026-11-26.csv: our own measurements of an H200.
//   [conv]   bench/results/conv-h200-2026-11-26.csv: kernels whose warps have one load under way,
//            among stores. Their shapes with 8 and 16 warps a multiprocessor, in 16 and 32 bits and
//            with one store to one or to two loads, all have one and the same turn.
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
    "a100", 108, 1.41e9, 1.24e9, {1, 2, 2, 2, 1, 4, 8, 8, 2, 0, 0},   // [guide]; loaded: [fit]
    18, 14, 23, 23, 25, 4, false,  // [abdel]: math, convert, shared, shuffle, constant, half
    1, 24.6, 1.0, 0,           // [luo]
    20, 25, 0,                 // [rt]: bar.sync, taken from Hopper; [fit]: mbarrier
    36, 211, 570,              // [benches]: L1, L2, DRAM
    // [benches]: L2; DRAM: what copies reach of 2.039e12; its turn is Hopper's microsecond
    0, 128, 128, 64, 3830, 1.75e12, 1, 1410,
    300, 2.0e-6, 196608};
constexpr Machine kH100 = {
    "h100", 132, 1.83e9, 1.60e9, {1, 1, 2, 2, 1, 2, 8, 8, 2, 0, 0},   // [guide], [units], [mla]
    18, 17, 29, 23, 25, 8, true,   // [luo]; convert, half: [units]
    2, 24.1, 1.61, 44,         // [luo]: 62 % of wgmma; [rt]: drain
    20, 76, 180,               // [rt]; blocks of a cluster: [luo]
    34, 264, 650,              // [benches], [hpmll]: L1, L2, DRAM
    // [hpmll]: TMA, beyond a load and an mbarrier; [benches]: L2; [fit]: DRAM, of which copies
    // reach 2.9e12; [conv]: its turn, a microsecond
    5, 128, 128, 64, 5050, 3.24e12, 1.24, 1830,
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
    derived(kH100, "h200", 132, 1.83e9, 4.65e12),
};

}  // namespace

const Machine* find_machine(const std::string& gpu) {
  for (const Machine& machine : kMachines) {
    if (gpu == machine.gpu) return &machine;
  }
  return nullptr;
}

std::string machine_names() {
  std::string all;
  for (const Machine& machine : kMachines)
    all += (all.empty() ? "" : ", ") + std::string(machine.gpu);
  return all;
}

}  // namespace sim::clock
