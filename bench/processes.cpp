// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Many processes on one cold cache: how often each kernel is compiled, and the time until the last
// process has all that it wants, beside what the compiles alone take.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "bench/folder.h"
#include "bench/verbs.h"
#include "tests/cache/crowd.h"

namespace bench {
namespace {

constexpr int kProcesses = 64;

// Flash attention forward: a heavy kernel, where conv1d's is a light one.
lathe_status make_attention(int, lathe_problem** out) {
  const int64_t queries[] = {-1, -1, 8, 128}, rows[] = {-1, 8, -1};
  lathe_status status = lathe_problem_create(out, "flash_attention");
  for (const char* name : {"q", "k", "v", "out"}) {
    if (status == LATHE_OK) status = lathe_problem_tensor(*out, name, LATHE_BF16, 4, queries);
  }
  if (status == LATHE_OK) status = lathe_problem_tensor(*out, "lse", LATHE_F32, 3, rows);
  return status;
}

// Each of many processes wants these keys: all, in one order; all, beginning with another one; one.
enum class Wants { same, rotated, one };

struct Case {
  const char* what;
  crowd::Maker make;
  int keys;
  Wants wants;
  // All of the cores at work; or one compile after the other, where nobody knows what to ask for
  // next before the last one is there.
  bool serial() const { return wants == Wants::same; }
};

crowd::Outcome timed(const Case& each, int processes) {
  const Folder cache;
  const crowd::Outcome outcome = crowd::run(processes, cache.path(), each.make, [&](int index) {
    if (each.wants == Wants::one && processes > 1) return std::vector<int>{index % each.keys};
    std::vector<int> numbers(each.keys);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (each.wants == Wants::rotated)
      std::rotate(numbers.begin(), numbers.begin() + index % each.keys, numbers.end());
    return numbers;
  });
  if (outcome.failed > 0) throw std::runtime_error("a process did not get its kernels");
  return outcome;
}

}  // namespace

Table bench_processes(const Settings& settings) {
  const auto conv = [](int number, lathe_problem** out) {
    return crowd::make_problem("causal_conv1d", number, out);
  };
  const Case cases[] = {
      {"64 processes, 1 key, conv1d", conv, 1, Wants::same},
      {"64 processes, 1 key, attention", make_attention, 1, Wants::same},
      {"64 processes, 64 keys, one each", conv, 64, Wants::one},
      {"64 processes, 64 keys, each its own order", conv, 64, Wants::rotated},
      {"64 processes, 64 keys, all in one order", conv, 64, Wants::same},
  };
  Table table({"what", "compiles", "compilers", "ms", "ms_p10", "ms_p90", "alone_ms", "ideal",
               "ideal_ms", "times_ideal", "cpu_ms", "alone_cpu_ms"});
  const int runs = settings.runs > 0 ? settings.runs : 5;
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  for (const Case& each : cases) {
    if (std::string(each.what).find(settings.only) == std::string::npos) continue;
    std::vector<double> crowded, alone, crowded_cpu, alone_cpu;
    uint64_t compiled = 0;
    int opened = 0;
    // In turns: what else the machine does shall weigh on both.
    for (int run = 0; run < runs; ++run) {
      const crowd::Outcome one = timed(each, 1), all = timed(each, kProcesses);
      alone.push_back(one.seconds * 1000);
      alone_cpu.push_back(one.cpu_seconds * 1000);
      crowded.push_back(all.seconds * 1000);
      crowded_cpu.push_back(all.cpu_seconds * 1000);
      compiled = all.compiled;
      opened = all.opened;
    }
    const Spread times = spread(crowded), one = spread(alone);
    const double ideal = each.serial() ? one.median : one.median / std::min(cores, each.keys);
    table.add({each.what, std::to_string(compiled), std::to_string(opened), number(times.median, 1),
               number(times.low, 1), number(times.high, 1), number(one.median, 1),
               each.serial() ? "alone" : "alone / cores", number(ideal, 1),
               number(times.median / ideal, 2), number(spread(crowded_cpu).median, 0),
               number(spread(alone_cpu).median, 0)});
  }
  return table;
}

}  // namespace bench
