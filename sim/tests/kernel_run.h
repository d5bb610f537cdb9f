// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each test has a device of its own: buffers, launches, and a short way from PTX text to results.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "sim/exec/launch.h"

namespace sim::test {

class Device {
 public:
  explicit Device(const std::string& arch = "sm_90a") : profile(*find_profile(arch)) {}

  // Allocates undefined memory.
  uint64_t buffer(uint64_t bytes) {
    const uint64_t at = memory.allocate(bytes, MemoryKind::device, 1);
    REQUIRE(at != 0);
    return at;
  }
  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t at = buffer(values.size() * sizeof(T));
    std::memcpy(reinterpret_cast<void*>(at), values.data(), values.size() * sizeof(T));
    memory.define(at, values.size() * sizeof(T));
    return at;
  }
  template <class T>
  std::vector<T> download(uint64_t at, size_t count) const {
    std::vector<T> values(count);
    std::memcpy(values.data(), reinterpret_cast<void*>(at), count * sizeof(T));
    return values;
  }

  void load(const std::string& ptx) {
    std::string log;
    module = Module::parse(ptx, &log);
    INFO(log);
    REQUIRE(module != nullptr);
    image = load_image(module, memory, &log);
    REQUIRE(image != nullptr);
  }

  // Arguments are laid out as the kernel says, in order.
  template <class... A>
  Outcome run(const std::string& name, uint32_t blocks, uint32_t threads, A... arguments) {
    Grid grid;
    grid.kernel = module->find_kernel(name);
    REQUIRE(grid.kernel != nullptr);
    grid.image = image.get();
    grid.grid[0] = blocks;
    grid.grid[1] = rows;
    grid.block[0] = threads;
    grid.cluster[0] = cluster;
    grid.dynamic_shared_bytes = dynamic_shared;
    grid.cooperative = cooperative;
    grid.heap = heap;
    grid.params.resize(grid.kernel->param_bytes);
    size_t k = 0;
    auto place = [&](auto value) {
      REQUIRE(k < grid.kernel->params.size());
      const ParamInfo& p = grid.kernel->params[k++];
      REQUIRE(p.bytes == sizeof(value));
      std::memcpy(grid.params.data() + p.offset, &value, sizeof(value));
    };
    (place(arguments), ...);
    grid.order = order;
    grid.world = world;
    grid.dependence = dependence;
    return run_grid(grid, profile, memory, settings);
  }

  Profile profile;
  Memory memory{0, 4ull << 30};
  Settings settings;
  std::shared_ptr<const Module> module;
  std::shared_ptr<const Image> image;
  uint32_t dynamic_shared = 0;
  uint32_t cluster = 1;
  uint32_t rows = 1;  // of blocks
  LaunchOrder order;
  std::shared_ptr<RaceWorld> world;
  std::shared_ptr<Dependence> dependence;
  bool cooperative = false;
  Heap* heap = nullptr;
};

// Returns a module of PTX: what `body` declares, after the lines that every module begins with.
inline std::string unit(const std::string& body, const std::string& target = "sm_90a") {
  return ".version 9.0\n.target " + target + "\n.address_size 64\n" + body;
}

inline std::string kinds(const Outcome& o) {
  std::string all;
  for (const Finding& f : o.findings) all += (all.empty() ? "" : " ") + f.kind;
  return all;
}

inline std::string texts(const Outcome& o) {
  std::string all;
  for (const Finding& f : o.findings) {
    all += f.kind + " line " + std::to_string(f.ptx_line) + ": " + f.text + "\n";
  }
  return all;
}

// ThreadWords is the result of a kernel "k" over one array, of which each thread stores a word.
struct ThreadWords {
  Outcome outcome;
  std::vector<uint32_t> values;
};
inline ThreadWords run_values(Device& device, const std::string& ptx, uint32_t blocks,
                              uint32_t threads) {
  device.load(ptx);
  const uint64_t out = device.upload(std::vector<uint32_t>(threads * blocks, 0));
  ThreadWords r;
  r.outcome = device.run("k", blocks, threads, out);
  r.values = device.download<uint32_t>(out, threads * blocks);
  return r;
}
// Checks that every thread's word is expected(thread), and that there are no findings.
template <class F>
void check_values(const ThreadWords& r, F expected) {
  INFO(texts(r.outcome));
  REQUIRE(r.outcome.error == 0);
  CHECK(r.outcome.findings.empty());
  int wrong = 0;
  for (uint32_t t = 0; t < r.values.size(); ++t) {
    wrong += r.values[t] != static_cast<uint32_t>(expected(t));
  }
  CHECK(wrong == 0);
}

}  // namespace sim::test
