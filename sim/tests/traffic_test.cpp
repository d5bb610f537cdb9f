// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sectors and bank conflicts of one access against sets of sectors and of words,
// for patterns that are dense, strided, falling, scattered, repeated, and with lanes left out.
#include <algorithm>
#include <random>
#include <set>

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kOff = 0xFFFFFFFF, kBytes = 8192;

// Loads `type` at data + offset[t] of the lanes whose offset is not kOff.
std::string kernel(const std::string& space, const std::string& type, const std::string& to) {
  const std::string base = space == "shared" ? "mov.u64 %d2, buffer;" : "ld.param.u64 %d2, [data];";
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 offsets, .param .u64 data) {
  .reg .pred %p; .reg .b16 %h; .reg .b32 %r<8>; .reg .b64 %d<8>;
  .shared .align 128 .b8 buffer[8192];
  mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; ld.param.u64 %d1, [offsets];
  add.u64 %d1, %d1, %d0; ld.global.u32 %r1, [%d1]; setp.ne.u32 %p, %r1, 0xFFFFFFFF;
  )" + base +
         R"(
  cvt.u64.u32 %d3, %r1; add.u64 %d2, %d2, %d3;
  @%p ld.)" +
         space + "." + type + " " + to + ", [%d2];\n  ret;\n}\n";
}

std::vector<uint32_t> pattern(std::mt19937& random, uint32_t size) {
  const uint32_t units = kBytes / size, kind = random() % 6, step = random() % 9;
  const uint32_t start = random() % 64;
  std::vector<uint32_t> offsets(32);
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t unit = kind == 0   ? start + l
                          : kind == 1 ? start + l * step
                          : kind == 2 ? start + (31 - l) * step
                          : kind == 3 ? random()
                          : kind == 4 ? start + (random() % 3) * (128 / size)
                                      : start + l / 4 * 8 + l % 4;
    offsets[l] = unit % units * size;
  }
  const uint32_t first = random() % 33, last = random() % 33;
  const bool holes = random() % 4 == 0;
  for (uint32_t l = 0; l < 32; ++l) {
    if (random() % 2 == 0 && holes) offsets[l] = kOff;
    if (kind % 2 && (l < first || l >= std::max(last, first + 1))) offsets[l] = kOff;
  }
  return offsets;
}

// Per group of lanes that moves 128 bytes: the most words in one of 32 banks, less one.
uint64_t conflicts(const std::vector<uint32_t>& offsets, uint32_t size) {
  const uint32_t group = size <= 4 ? 32 : 128 / size;
  uint64_t extra = 0;
  for (uint32_t begin = 0; begin < 32; begin += group) {
    std::set<uint32_t> words[32];
    for (uint32_t l = begin; l < begin + group; ++l) {
      if (offsets[l] == kOff) continue;
      for (uint32_t b = 0; b < size; ++b) {
        const uint32_t word = (offsets[l] + b) / 4;
        words[word % 32].insert(word);
      }
    }
    size_t most = 1;
    for (const auto& bank : words) most = std::max(most, bank.size());
    extra += most - 1;
  }
  return extra;
}

struct Width {
  uint32_t size;
  const char *type, *to;
};
const Width kWidths[] = {{1, "u8", "%h"},
                         {2, "u16", "%h"},
                         {4, "u32", "%r2"},
                         {8, "v2.u32", "{%r2, %r3}"},
                         {16, "v4.u32", "{%r2, %r3, %r4, %r5}"}};

}  // namespace

TEST_CASE("traffic: bank conflicts") {
  std::mt19937 random(1);
  for (const Width& w : kWidths) {
    Device d;
    d.settings.check = kMemcheck;
    d.load(kernel("shared", w.type, w.to));
    for (int k = 0; k < 200; ++k) {
      const auto offsets = pattern(random, w.size);
      const Outcome o = d.run("k", 1, 32, d.upload(offsets), uint64_t{0});
      CAPTURE(w.size);
      CAPTURE(k);
      REQUIRE(o.error == 0);
      CHECK(o.counters.shared_load.conflicts == conflicts(offsets, w.size));
    }
  }
}

TEST_CASE("traffic: sectors of a request, and of the grid, with checks and without") {
  std::mt19937 random(2);
  for (const Width& w : kWidths) {
    Device d;
    d.load(kernel("global", w.type, w.to));
    const uint64_t data = d.upload(std::vector<uint8_t>(kBytes));
    for (int k = 0; k < 200; ++k) {
      const auto offsets = pattern(random, w.size);
      std::set<uint64_t> sectors;
      for (const uint32_t offset : offsets) {
        if (offset != kOff) sectors.insert((data + offset) / 32);
      }
      d.settings.check = k % 2 ? kCheckNone : kMemcheck;
      const Outcome o = d.run("k", 1, 32, d.upload(offsets), data);
      CAPTURE(w.size);
      CAPTURE(k);
      REQUIRE(o.error == 0);
      CHECK(o.findings.empty());
      CHECK(o.counters.global_load.sectors == sectors.size() + 4);  // 4: the offsets themselves
      CHECK(o.counters.unique_load_sectors == sectors.size() + 4);
    }
  }
}
