// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The ranks of one process make the same launches on other memory: one of them is enough.
#include "sim/driver/code/sampled.h"

#include <algorithm>
#include <cstring>

#include "sim/exec/tensor_map.h"
#include "sim/ptx/code.h"

namespace sim::driver {
namespace {

constexpr uint64_t kFewBlocks = 2;
constexpr uint64_t kSmall = 64 * 1024;  // bytes: tables, not tensors

// Returns the rest of a small allocation, as it is now; nothing of a larger one. A value in the
// range where a process has its memory counts as a pointer too, into the host's memory.
std::string content_at(Driver& driver, uint64_t address, bool* pointer) {
  const Lock lock(driver.mutex);
  const Block* block = driver.find_block(address);
  *pointer = block != nullptr || (address >> 40 != 0 && address >> 47 == 0);
  if (block == nullptr || block->bytes > kSmall) return "";
  return {reinterpret_cast<const char*>(address), block->base + block->bytes - address};
}

void append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}

// Parameters without the places of memory, and what small memory holds behind them.
std::string key_of(const Grid& grid, std::vector<uint8_t> params) {
  Driver& driver = Driver::get();
  std::string key, contents;
  for (size_t at = 0; at + kTensorMapBytes <= params.size(); at += 64) {
    TensorMapView map;
    if (!decode_tensor_map(params.data() + at, &map)) continue;
    map.base = 0;
    encode_tensor_map(map, params.data() + at);
  }
  for (size_t at = 0; at + 8 <= params.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, params.data() + at, 8);
    bool pointer = false;
    contents += content_at(driver, word, &pointer);
    if (pointer) std::memset(params.data() + at, 0, 8);
  }
  append(&key, &grid.kernel, sizeof grid.kernel);
  key += grid.kernel->name;
  append(&key, grid.grid, sizeof grid.grid);
  append(&key, grid.block, sizeof grid.block);
  append(&key, grid.cluster, sizeof grid.cluster);
  append(&key, &grid.dynamic_shared_bytes, sizeof grid.dynamic_shared_bytes);
  append(&key, params.data(), params.size());
  return key + contents;
}

struct Known {
  std::mutex mutex;
  std::map<std::string, Outcome> outcomes;
};

// Never destroyed: worker threads may outlive static destructors.
Known& known() {
  static Known* all = new Known;
  return *all;
}

// As many blocks as the instructions allow.
Outcome run_some(const Grid& grid, const Device& device, Settings settings, uint64_t instructions) {
  const uint64_t most = settings.sample_blocks;
  if (instructions == 0 || most <= kFewBlocks) {
    return run_grid(grid, device.profile, *device.memory, settings);
  }
  settings.sample_blocks = kFewBlocks;
  const Outcome few = run_grid(grid, device.profile, *device.memory, settings);
  if (few.error != 0 || few.counters.sampled_blocks == 0) return few;
  const double blocks = static_cast<double>(grid.grid[0]) * grid.grid[1] * grid.grid[2];
  const double each = static_cast<double>(few.counters.warp_instructions) / blocks;
  const double affordable = static_cast<double>(instructions) / std::max(each, 1.0);
  settings.sample_blocks = affordable < static_cast<double>(most)
                               ? std::max(kFewBlocks, static_cast<uint64_t>(affordable))
                               : most;
  if (settings.sample_blocks == kFewBlocks) return few;
  if (settings.traces) settings.traces->blocks.clear();
  return run_grid(grid, device.profile, *device.memory, settings);
}

}  // namespace

Outcome run_sampled(const Grid& grid, const Device& device, const Settings& settings,
                    uint64_t instructions) {
  if (grid.kernel->code->ordered_across_blocks) {
    return run_some(grid, device, settings, instructions);
  }
  Known& all = known();
  const std::string key = key_of(grid, grid.params);
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.outcomes.find(key);
    if (found != all.outcomes.end()) return found->second;
  }
  Outcome outcome = run_some(grid, device, settings, instructions);
  const std::lock_guard lock(all.mutex);
  if (outcome.error == 0 && outcome.findings.empty()) all.outcomes[key] = outcome;
  return outcome;
}

}  // namespace sim::driver
