// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/model/model.h"

#include <algorithm>

namespace sim::model {
namespace {

constexpr double kSectorBytes = 32;

// Sources of the numbers. Rates of instructions: the CUDA programming guide's table of results
// per clock and multiprocessor, divided by 32 (half: two results an instruction). Multiprocessors,
// clocks, DRAM and tensor operations: the data sheets (tensor = dense bf16 operations per second /
// (multiprocessors * boost clock)). Shared memory: 32 banks of 4 bytes, one wavefront a cycle.
// Sectors: 64 bytes a cycle between L2 and a multiprocessor. L2, latency and launch are round
// numbers in the middle of what is published; nothing here was fitted to a measurement. Link and
// host: half of the data sheet's two-way rate of NVLink (of PCIe where the device has none), and of
// PCIe.
constexpr Rates kSm80 = {4, 2, 2, 4, 0.5, 0.5, 1, 1, 1, 2};
constexpr Rates kSm86 = {4, 2, 4, 2, 0.5, 0.5, 1, 1, 1, 2};  // sm_89 too
constexpr Rates kSm90 = {4, 2, 4, 4, 2, 0.5, 1, 1, 1, 2};
constexpr Gpu kGpus[] = {
    // name, SMs, clock, L2 B/cycle, DRAM B/s, tensor ops, latency, launch, link B/s, host B/s
    {kSm80, "a100", 108, 1.41e9, 5120, 2.039e12, 2048, 600, 2.5e-6, 3e11, 3.2e10},
    {kSm86, "a10", 72, 1.695e9, 1536, 6.0e11, 1024, 600, 2.5e-6, 3.2e10, 3.2e10},
    {kSm86, "a40", 84, 1.74e9, 1536, 6.96e11, 1024, 600, 2.5e-6, 5.625e10, 3.2e10},
    {kSm86, "rtx3090", 82, 1.695e9, 1536, 9.36e11, 512, 600, 2.5e-6, 5.625e10, 3.2e10},
    {kSm86, "l40s", 142, 2.52e9, 3072, 8.64e11, 1024, 700, 2.5e-6, 3.2e10, 3.2e10},
    {kSm86, "l4", 58, 2.04e9, 1536, 3.0e11, 1024, 700, 2.5e-6, 3.2e10, 3.2e10},
    {kSm86, "rtx4090", 128, 2.52e9, 3072, 1.008e12, 512, 700, 2.5e-6, 3.2e10, 3.2e10},
    {kSm90, "h100", 132, 1.83e9, 5120, 3.35e12, 4096, 700, 2.5e-6, 4.5e11, 6.4e10},
    {kSm90, "h200", 132, 1.83e9, 5120, 4.8e12, 4096, 700, 2.5e-6, 4.5e11, 6.4e10},
};

double count(const Counters& c, const char* name) {
  const auto it = c.by_class.find(name);
  return it == c.by_class.end() ? 0 : static_cast<double>(it->second);
}

double sectors(const Counters& c) {
  return static_cast<double>(c.global_load.sectors + c.global_store.sectors +
                             c.global_atomic.sectors);
}

}  // namespace

const Gpu* find_gpu(const std::string& name) {
  for (const Gpu& gpu : kGpus) {
    if (name == gpu.name) return &gpu;
  }
  return nullptr;
}

Prediction predict(const Counters& c, uint64_t blocks, const Gpu& gpu) {
  const double busy = static_cast<double>(
      std::clamp<uint64_t>(blocks, 1, static_cast<uint64_t>(gpu.multiprocessors)));
  const double unique =
      kSectorBytes * static_cast<double>(c.unique_load_sectors + c.unique_store_sectors);
  const double wavefronts =
      static_cast<double>(c.shared_load.wavefronts + c.shared_store.wavefronts);
  Prediction out;
  out.terms = {
      {"issue", static_cast<double>(c.warp_instructions) / (gpu.issue * busy)},
      {"integer", (count(c, "integer") + count(c, "compare")) / (gpu.integer * busy)},
      {"float", count(c, "float") / (gpu.floating * busy)},
      {"half", count(c, "half") / (gpu.half * busy)},
      {"convert", count(c, "convert") / (gpu.convert * busy)},
      {"math", count(c, "math") / (gpu.math * busy)},
      {"memory instructions", (count(c, "memory") + count(c, "atomic")) / (gpu.memory * busy)},
      {"shuffle", count(c, "warp") / (gpu.shuffle * busy)},
      {"shared memory", wavefronts / (gpu.shared_wavefronts * busy)},
      {"L2 to multiprocessor", sectors(c) / (gpu.sectors * busy)},
      {"L2", kSectorBytes * sectors(c) / gpu.l2_bytes},
      {"DRAM", unique / (gpu.dram_bytes / gpu.clock_hz)},
      {"tensor", static_cast<double>(c.tensor_ops) / (gpu.tensor_ops * busy)},
  };
  const Term* most = &out.terms.front();
  for (const Term& term : out.terms) {
    if (term.cycles > most->cycles) most = &term;
  }
  const double latency = sectors(c) > 0 ? gpu.latency : 0;
  out.cycles = latency + most->cycles;
  const double working = out.cycles / gpu.clock_hz;
  out.seconds = working + gpu.launch_seconds;
  out.bound = gpu.launch_seconds > working ? "launch" : most->resource;
  return out;
}

}  // namespace sim::model
