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

// Runs a kernel "k" and replays all its blocks, up to `most`.
template <class... A>
Timed run_timed(Device& device, const std::string& gpu, const clock::Wish& wish, uint64_t most,
                uint32_t blocks, uint32_t threads, A... arguments) {
  Traces traces;
  traces.most = most;
  device.settings.traces = &traces;
  Timed out;
  out.outcome = device.run("k", blocks, threads, arguments...);
  device.settings.traces = nullptr;
  INFO(texts(out.outcome));
  REQUIRE(out.outcome.error == 0);
  Grid grid;
  grid.kernel = device.module->find_kernel("k");
  grid.image = device.image.get();
  grid.grid[0] = blocks;
  grid.block[0] = threads;
  grid.cluster[0] = device.cluster;
  grid.dynamic_shared_bytes = device.dynamic_shared;
  const clock::Machine* machine = clock::find_machine(gpu);
  REQUIRE(machine != nullptr);
  out.time =
      clock::time_kernel(grid, device.profile, out.outcome.counters, traces.blocks, *machine, wish);
  return out;
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
