// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run groups.cu: each kernel's words are those that the same loops give on the host,
// and no check finds anything.
#include <algorithm>
#include <functional>
#include <numeric>

#include "sim/tests/programs/program.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr int kThreads = 128, kLanes = 32;

std::vector<int> values() {
  std::vector<int> v(kThreads);
  for (int i = 0; i < kThreads; ++i) v[i] = (i * 37 + i / 5) % 11;
  return v;
}
const std::vector<int> kIn = values();

// The threads of i's group: those of the same piece of `size` threads for which `same` holds.
std::vector<int> group_of(int i, int size, const std::function<bool(int)>& same) {
  std::vector<int> members;
  for (int k = i / size * size; k < (i / size + 1) * size; ++k) {
    if (same(k)) members.push_back(k);
  }
  return members;
}
std::vector<int> tile_of(int i, int size) {
  return group_of(i, size, [](int) { return true; });
}
int sum(const std::vector<int>& threads) {
  return std::accumulate(threads.begin(), threads.end(), 0,
                         [](int s, int k) { return s + kIn[k]; });
}
int count(const std::vector<int>& threads, const std::function<bool(int)>& is) {
  return static_cast<int>(std::count_if(threads.begin(), threads.end(), is));
}
int rank_in(int i, const std::vector<int>& threads) {
  return count(threads, [&](int k) { return k < i; });
}
bool odd(int k) { return kIn[k] % 2 != 0; }

int tile_sum(int i, int size) {
  const auto tile = tile_of(i, size);
  return 100 * sum(tile) + count(tile, odd);
}

int tile_words(int i) {
  const auto tile = tile_of(i, 8);
  const int at = i % 8;
  int word = kIn[tile[3]];
  word = 10 * word + kIn[at < 2 ? i : i - 2];
  word = 10 * word + kIn[at == 7 ? i : i + 1];
  word = 10 * word + (count(tile, [](int k) { return kIn[k] == 1; }) > 0);
  word = 10 * word + (count(tile, [](int k) { return kIn[k] < 4; }) == 8);
  word = 10 * word + count(tile, [&](int k) { return kIn[k] == kIn[i]; });
  return 10 * word + (count(tile, [&](int k) { return kIn[k] / 8 == kIn[i] / 8; }) == 8);
}

int labels(int i) {
  const auto group = group_of(i, kLanes, [&](int k) { return kIn[k] % 5 == kIn[i] % 5; });
  return 100 * sum(group) + static_cast<int>(group.size());
}

int binary(int i) {
  const auto group = group_of(i, 16, [&](int k) { return (kIn[k] % 3 == 0) == (kIn[i] % 3 == 0); });
  int most = 0;
  for (const int k : group) most = std::max(most, kIn[k]);
  return 100 * most + rank_in(i, group);
}

int matches(int i) {
  const auto peers = group_of(i, kLanes, [&](int k) { return kIn[k] == kIn[i]; });
  int lanes = 0;
  for (const int k : peers) lanes += k % kLanes;
  const int odd_lanes = count(peers, [](int k) { return k % 2 != 0; });
  const int any = count(peers, [](int k) { return k % kLanes > 20; }) > 0;
  const int every = count(peers, [](int k) { return k % kLanes >= 30; }) == 0;
  return ((peers.front() % kLanes * 1000 + lanes) * 100 + peers.back() % kLanes) * 100 + odd_lanes +
         20 * any + 40 * every;
}

int masks(int i) { return (kIn[i / 8 * 8] * 100 + kIn[i ^ 5]) * 100 + kIn[i ^ 7]; }

int exits(int i) {
  const auto stays = [](int k) { return k % kLanes % 7 != 3 && k % kLanes / 8 != 2; };
  if (!stays(i)) return 0;
  const auto all = group_of(i, kLanes, stays), eighth = group_of(i, 8, stays);
  return 10000 * sum(all) + 100 * sum(eighth) + rank_in(i, all);
}

int loops(int i) {
  std::vector<int> v(kIn.begin() + i / 8 * 8, kIn.begin() + i / 8 * 8 + 8);
  int rounds = 0;
  while (std::any_of(v.begin(), v.end(), [](int x) { return x > 1; })) {
    std::vector<int> next(8);
    for (int k = 0; k < 8; ++k) next[k] = (v[k] + v[k ^ 1]) / 3;
    v = next;
    ++rounds;
  }
  return 100 * rounds + v[i % 8];
}

int nested(int i) {
  const int word = sum(tile_of(i, 4)) * 10 + i % 16 / 4;
  if (i % 3 == 1) return word;
  const auto lanes = group_of(i, kLanes, [](int k) { return k % 3 != 1; });
  const int first = rank_in(i, lanes) / 4 * 4;
  const int size = std::min(4, static_cast<int>(lanes.size()) - first);
  return word * 1000 + kIn[lanes[first]] * 10 + size;
}

int scans(int i) {
  const auto before = group_of(i, 16, [&](int k) { return k < i; });
  const auto same = group_of(i, 16, [&](int k) { return k <= i && odd(k) == odd(i); });
  return (1000 * sum(before) + sum(before) + kIn[i]) * 1000 + sum(same);
}

int chosen(int i) {
  return static_cast<int>(
      group_of(i, kLanes, [&](int k) { return kIn[k] % 4 == kIn[i] % 4; }).size());
}

int tile64(int i) {
  return 1000 * sum(tile_of(i, 64)) + sum(group_of(i, 64, [&](int k) { return k < i; }));
}

struct Program {
  const char* kernel;
  int threads;
  std::function<int(int)> expected;
};
const std::vector<Program> kPrograms = {
    {"tile4", kThreads, [](int i) { return tile_sum(i, 4); }},
    {"tile8", kThreads, [](int i) { return tile_sum(i, 8); }},
    {"tile16", kThreads, [](int i) { return tile_sum(i, 16); }},
    {"tile32", kThreads, [](int i) { return tile_sum(i, 32); }},
    {"tile_words", kThreads, tile_words},
    {"labels", kThreads, labels},
    {"binary", kThreads, binary},
    {"matches", kThreads, matches},
    {"masks", 64, masks},
    {"exits", kThreads, exits},
    {"loops", kThreads, loops},
    {"nested", kThreads, nested},
    {"scans", kThreads, scans},
    {"chosen", kThreads, chosen},
    {"tile64", kThreads, tile64},
};

constexpr const char* kHeader = "cooperative_groups.h";

void check_program(Device& device, const Program& program) {
  const uint64_t out = device.upload(std::vector<int>(kThreads, 0));
  const Outcome o = device.run(program.kernel, 1, static_cast<uint32_t>(program.threads),
                               device.upload(kIn), out);
  if (!check_clean(o)) return;
  const auto words = device.download<int>(out, kThreads);
  int wrong = 0;
  for (int i = 0; i < program.threads; ++i) wrong += words[i] != program.expected(i);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("groups within warps: tiles, labels, matches, lanes that left") {
  on_devices("groups.cu", kHeader, [](Device& device) {
    for (const Program& program : kPrograms) {
      CAPTURE(std::string(program.kernel));
      check_program(device, program);
    }
  });
}

TEST_CASE("lanes in a branch share one atomic, and each gets a place of its own") {
  std::vector<int> in(4 * kThreads), expected;
  for (int i = 0; i < 4 * kThreads; ++i) {
    in[i] = i * i % 17;
    if (in[i] % 3 == 1) expected.push_back(i);
  }
  on_devices("groups.cu", kHeader, [&](Device& device) {
    const uint64_t out = device.upload(std::vector<int>(4 * kThreads, -1));
    const uint64_t counter = device.upload(std::vector<int>(1, 0));
    const Outcome o = device.run("filter", 4, kThreads, device.upload(in), out, counter);
    if (!check_clean(o)) return;
    CHECK(device.download<int>(counter, 1)[0] == static_cast<int>(expected.size()));
    auto found = device.download<int>(out, expected.size());
    std::sort(found.begin(), found.end());
    CHECK(found == expected);
  });
}

TEST_CASE("a block copies together, and does something else until it waits") {
  std::vector<int> in(256);
  for (int i = 0; i < 256; ++i) in[i] = i * 7 % 100;
  const auto word = [&](int i) { return 100 * in[i] + in[255 - i]; };
  on_devices("groups.cu", kHeader, [&](Device& device) {
    const uint64_t out = device.upload(std::vector<int>(256, 0));
    if (!check_clean(device.run("copies", 1, 256, device.upload(in), out))) return;
    const auto words = device.download<int>(out, 256);
    int wrong = 0;
    for (int i = 0; i < 256; ++i) wrong += words[i] != 2 * word(i) + word(i ^ 33);
    CHECK(wrong == 0);
  });
}
