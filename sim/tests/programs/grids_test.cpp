// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run grids.cu: blocks that meet across a grid or a cluster, a last block, and the heap
// of kernels. The words are those of the same loops on the host, and no check finds anything.
#include <numeric>

#include "sim/exec/heap.h"
#include "sim/tests/programs/program.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr const char* kHeader = "cooperative_groups.h";

std::vector<int> numbers(int n) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = (i * 29 + i / 3) % 101;
  return v;
}

}  // namespace

TEST_CASE("a cooperative grid adds up in two steps around grid.sync()") {
  const std::vector<int> in = numbers(20000);
  const int expected = std::accumulate(in.begin(), in.end(), 0);
  on_devices("grids.cu", kHeader, [&](Device& device) {
    device.cooperative = true;
    for (const uint32_t blocks : {1u, 13u, 100u}) {
      const uint64_t total = device.upload(std::vector<int>(1, 0));
      if (!check_clean(device.run("reduce", blocks, 128, device.upload(in), 20000,
                                  device.buffer(4 * blocks), total))) {
        continue;
      }
      CHECK(device.download<int>(total, 1)[0] == expected);
    }
  });
}

TEST_CASE("a cooperative grid goes round a stencil, arriving and waiting apart") {
  constexpr int kCount = 1000, kRounds = 7;
  std::vector<int> a = numbers(kCount);
  const std::vector<int> in = a;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> b(kCount);
    for (int i = 0; i < kCount; ++i) {
      b[i] = (a[std::max(i - 1, 0)] + 2 * a[i] + a[std::min(i + 1, kCount - 1)]) / 4 + round;
    }
    a = b;
  }
  on_devices("grids.cu", kHeader, [&](Device& device) {
    device.cooperative = true;
    const uint64_t one = device.upload(in), other = device.upload(std::vector<int>(kCount, 0));
    if (!check_clean(device.run("smooth", 5, 64, one, other, kCount, kRounds))) return;
    CHECK(device.download<int>(other, kCount) == a);
  });
}

TEST_CASE("blocks of a cluster add to each other's shared memory") {
  constexpr int kThreads = 64, kBlocks = 4;
  const std::vector<int> in = numbers(kThreads * kBlocks);
  on_devices("grids.cu", kHeader,
             [&](Device& device) {
               device.cluster = kBlocks;
               const uint64_t out = device.buffer(2 * 4 * in.size());
               if (!check_clean(
                       device.run("cluster_sum", 2 * kBlocks, kThreads, device.upload(in), out))) {
                 return;
               }
               int sums[kBlocks] = {}, all = 0;
               for (const int v : in) sums[v % kBlocks] += v;
               for (const int sum : sums) all = all * 3 + sum;
               const auto words = device.download<int>(out, 2 * in.size());
               int wrong = 0;
               for (size_t i = 0; i < words.size(); ++i) {
                 wrong += words[i] != all * 4 + static_cast<int>(i / kThreads % kBlocks);
               }
               CHECK(wrong == 0);
             },
             {"sm_90a"});
}

TEST_CASE("the last block adds up what the others have written") {
  const std::vector<int> in = numbers(5000);
  const int expected = std::accumulate(in.begin(), in.end(), 0);
  on_devices("grids.cu", kHeader, [&](Device& device) {
    for (const uint32_t blocks : {1u, 30u}) {
      const uint64_t total = device.upload(std::vector<int>(1, 0));
      if (!check_clean(device.run("last_block", blocks, 32, device.upload(in), 5000,
                                  device.buffer(4 * blocks), total))) {
        continue;
      }
      CHECK(device.download<int>(total, 1)[0] == expected);
    }
  });
}

TEST_CASE("lists on the heap outlive their kernel, and another one frees them") {
  constexpr uint32_t kBlocks = 3, kThreads = 64, kCount = kBlocks * kThreads;
  const std::vector<int> in = numbers(kCount);
  on_devices("grids.cu", kHeader, [&](Device& device) {
    Heap heap(&device.memory, 1 << 20);
    device.heap = &heap;
    const uint64_t lists = device.buffer(8 * kCount), out = device.buffer(4 * kCount);
    if (!check_clean(device.run("make_lists", kBlocks, kThreads, device.upload(in), lists))) return;
    if (!check_clean(device.run("sum_lists", kBlocks, kThreads, lists, out))) return;
    const auto words = device.download<int>(out, kCount);
    int wrong = 0;
    for (int i = 0; i < static_cast<int>(kCount); ++i) {
      const int nodes = i % 7;
      wrong += words[i] != nodes * in[i] + nodes * (nodes - 1) / 2;
    }
    CHECK(wrong == 0);
    if (!check_clean(device.run("shared_array", kBlocks, kThreads, device.upload(in), out))) return;
    const auto turned = device.download<int>(out, kCount);
    for (size_t i = 0; i < kThreads; ++i) CHECK(turned[i] == in[kThreads - 1 - i]);
    const uint64_t whole = heap.allocate((1 << 20) - 16);  // everything has been freed
    CHECK(whole != 0);
    device.heap = nullptr;
  });
}

TEST_CASE("malloc answers null when the heap is full, and everything can be given back") {
  on_devices("grids.cu", kHeader, [&](Device& device) {
    for (const uint32_t bytes : {16u, 1000u, 100'000u, 2'000'000u}) {
      Heap heap(&device.memory, 1 << 20);
      device.heap = &heap;
      const uint64_t out = device.buffer(4 * 64);
      if (!check_clean(device.run("exhaust", 2, 32, out, bytes))) continue;
      int pieces = 0;
      for (const int count : device.download<int>(out, 64)) pieces += count;
      // Blocks take turns, so that pieces may be given twice; never more at once than there is.
      CHECK((pieces > 0) == (bytes < 1'000'000));
      CHECK(heap.allocate((1 << 20) - 16) != 0);
      device.heap = nullptr;
    }
  });
}
