// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run samples.cu: each kernel's words are those of the same computation on the host,
// and no check finds anything.
#include <algorithm>
#include <numeric>

#include "sim/exec/heap.h"
#include "sim/tests/programs/program.h"

using namespace sim;
using namespace sim::test;

namespace {

std::vector<int> numbers(int n) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = (i * 389 + i / 7) % 1000;
  return v;
}

// Checks the words of a kernel over one input and one output.
void check_words(Device& device, const std::string& kernel, uint32_t blocks, uint32_t threads,
                 const std::vector<int>& in, const std::vector<int>& expected) {
  CAPTURE(kernel);
  const uint64_t out = device.buffer(4 * expected.size());
  if (!check_clean(device.run(kernel, blocks, threads, device.upload(in), out))) return;
  CHECK(device.download<int>(out, expected.size()) == expected);
}

std::vector<int> sums_before(const std::vector<int>& in) {
  std::vector<int> sums(in.size());
  std::exclusive_scan(in.begin(), in.end(), sums.begin(), 0);
  return sums;
}

}  // namespace

TEST_CASE("sums and scans of a block") {
  const auto in = numbers(512);
  const std::vector<int> sums = {std::accumulate(in.begin(), in.begin() + 256, 0),
                                 std::accumulate(in.begin() + 256, in.end(), 0)};
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    check_words(device, "tree", 2, 256, in, sums);
    check_words(device, "scan", 1, 256, in, sums_before(in));
  });
}

TEST_CASE("a scan whose blocks look back at those before them") {
  constexpr uint32_t kBlocks = 40;
  const auto in = numbers(kBlocks * 32);
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    const uint64_t out = device.buffer(4 * in.size());
    const uint64_t status = device.upload(std::vector<uint64_t>(kBlocks, 0));
    const uint64_t tickets = device.upload(std::vector<uint32_t>(1, 0));
    if (!check_clean(
            device.run("scan_blocks", kBlocks, 32, device.upload(in), out, status, tickets))) {
      return;
    }
    CHECK(device.download<int>(out, in.size()) == sums_before(in));
  });
}

TEST_CASE("a transpose, a sort and a histogram") {
  constexpr int kSide = 40;
  const auto square = numbers(kSide * kSide);
  auto words = numbers(512), sorted = words;
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint8_t> bytes(3000);
  std::vector<int> bins(64, 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * i / 7);
    ++bins[bytes[i] % 64];
  }
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    const uint64_t turned = device.buffer(4 * square.size());
    device.rows = 3;
    const Outcome o = device.run("transpose", 3, 256, device.upload(square), turned, kSide);
    device.rows = 1;
    if (check_clean(o)) {
      const auto b = device.download<int>(turned, square.size());
      int wrong = 0;
      for (int i = 0; i < kSide * kSide; ++i) {
        wrong += b[i] != square[i % kSide * kSide + i / kSide];
      }
      CHECK(wrong == 0);
    }
    const uint64_t list = device.upload(words);
    if (check_clean(device.run("bitonic", 1, 256, list))) {
      CHECK(device.download<int>(list, 512) == sorted);
    }
    const uint64_t counts = device.upload(std::vector<int>(64, 0));
    if (check_clean(device.run("histogram", 5, 128, device.upload(bytes), 3000, counts))) {
      CHECK(device.download<int>(counts, 64) == bins);
    }
  });
}

TEST_CASE("a lock by tickets, and a flag that goes from block to block") {
  constexpr uint32_t kBlocks = 12;
  int counter = 0;
  for (uint32_t k = 0; k < 5 * kBlocks; ++k) counter = counter * 3 % 1009 + 1;
  auto relayed = numbers(64);
  const auto data = relayed;
  for (int& v : relayed) {
    for (uint32_t block = 0; block < kBlocks; ++block) v = v * 2 + static_cast<int>(block);
  }
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    const uint64_t ticket = device.upload(std::vector<int>(1, 0));
    const uint64_t serving = device.upload(std::vector<int>(1, 0));
    const uint64_t guarded = device.upload(std::vector<int>(1, 0));
    if (check_clean(device.run("locked", kBlocks, 32, ticket, serving, guarded))) {
      CHECK(device.download<int>(guarded, 1)[0] == counter);
    }
    const uint64_t words = device.upload(data);
    const uint64_t flags = device.upload(std::vector<int>(kBlocks + 1, 0));
    if (check_clean(device.run("relay", kBlocks, 64, words, flags))) {
      CHECK(device.download<int>(words, 64) == relayed);
    }
  });
}

TEST_CASE("pipelines, barriers and named barriers between producers and consumers") {
  constexpr int kRounds = 6;
  const auto in = numbers(128 * kRounds);
  std::vector<int> piped(128 * kRounds), produced(96 * kRounds), named(64 * kRounds);
  for (int i = 0; i < 128 * kRounds; ++i) piped[i] = 3 * in[i ^ 1];
  for (int i = 0; i < 96 * kRounds; ++i) produced[i] = in[i / 96 * 96 + 95 - i % 96] + i / 96;
  for (int i = 0; i < 64 * kRounds; ++i) named[i] = 2 * in[i / 64 * 64 + 63 - i % 64];
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    for (const auto& [kernel, expected] :
         {std::pair{"pipeline", piped}, std::pair{"producer", produced},
          std::pair{"named", named}}) {
      CAPTURE(std::string(kernel));
      const uint64_t out = device.buffer(4 * expected.size());
      if (!check_clean(device.run(kernel, 1, 128, device.upload(in), out, kRounds))) continue;
      CHECK(device.download<int>(out, expected.size()) == expected);
    }
  });
}

TEST_CASE("virtual functions, recursion, and instructions on pieces of words") {
  constexpr int kThreads = 96;
  std::vector<int> areas(kThreads);
  const std::vector<int> ladder = {0, 1, 1, 2, 3, 5, 8, 13, 21};
  for (int t = 0; t < kThreads; ++t) areas[t] = t % 3 == 0 ? t * t + t % 9 : ladder[t % 9];
  on_devices("samples.cu", "cccl/cuda/barrier", [&](Device& device) {
    const uint64_t out = device.buffer(4 * kThreads);
    if (check_clean(device.run("shapes", 1, kThreads, out))) {
      CHECK(device.download<int>(out, kThreads) == areas);
    }
    std::vector<uint32_t> words(64);
    for (uint32_t i = 0; i < 64; ++i) words[i] = i * 0x9E3779B9u;
    const uint64_t wrong = device.buffer(4 * 64);
    if (check_clean(device.run("pieces", 1, 64, device.upload(words), wrong))) {
      CHECK(device.download<uint32_t>(wrong, 64) == std::vector<uint32_t>(64, 0));
    }
  });
}
