// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel on the simulator, with the clock.
#pragma once

#include "sim/clock/kernel_time.h"
#include "sim/clock/tools.h"
#include "sim/tests/kernel_run.h"

namespace sim::test {

struct Timed {
  Outcome outcome;
  clock::KernelTime time;
};

inline Grid grid_of(const Device& device, const std::string& name, uint32_t blocks,
                    uint32_t threads) {
  Grid grid;
  grid.kernel = device.module->find_kernel(name);
  grid.image = device.image.get();
  grid.grid[0] = blocks;
  grid.block[0] = threads;
  grid.cluster[0] = device.cluster;
  grid.dynamic_shared_bytes = device.dynamic_shared;
  return grid;
}

// Runs a kernel and replays what `traces` asks for.
template <class... A>
Timed run_traced(Device& device, Traces& traces, const std::string& name, const std::string& gpu,
                 const clock::ReplayOptions& options, uint32_t blocks, uint32_t threads,
                 A... arguments) {
  device.settings.traces = &traces;
  Timed out;
  out.outcome = device.run(name, blocks, threads, arguments...);
  device.settings.traces = nullptr;
  INFO(texts(out.outcome));
  REQUIRE(out.outcome.error == 0);
  const Grid grid = grid_of(device, name, blocks, threads);
  const clock::Machine* machine = clock::find_machine(gpu);
  REQUIRE(machine != nullptr);
  out.time = clock::time_kernel(grid, device.profile, out.outcome.counters, traces.blocks, *machine,
                                options);
  return out;
}

// Runs a kernel "k" and replays all its blocks, up to `most`.
template <class... A>
Timed run_timed(Device& device, const std::string& gpu, const clock::ReplayOptions& options,
                uint64_t most, uint32_t blocks, uint32_t threads, A... arguments) {
  Traces traces;
  traces.most = most;
  return run_traced(device, traces, "k", gpu, options, blocks, threads, arguments...);
}

inline std::string repeated(int count, const std::string& text) {
  std::string all;
  for (int k = 0; k < count; ++k) all += text;
  return all;
}

// `#` in the text becomes a number from 0 on.
inline std::string numbered(int count, const std::string& text) {
  std::string all;
  for (int k = 0; k < count; ++k) {
    for (const char letter : text)
      all += letter == '#' ? std::to_string(k) : std::string(1, letter);
  }
  return all;
}

}  // namespace sim::test
