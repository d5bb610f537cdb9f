// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check how many threads compile, and when there is more than one.
#include "api/cache/workers.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/harness/support.h"

namespace {

using lathe::Busy;
using lathe::MachineTexts;
using lathe::work_through;
using lathe::workers_allowed;

constexpr const char* kPlenty =
    "MemTotal:       263000000 kB\nMemFree:          100 kB\nMemAvailable:   200000000 kB\n";

TEST_CASE("cores, memory and control groups bound the workers") {
  CHECK(workers_allowed({16, kPlenty, {}}) == 16);
  CHECK(workers_allowed({16, "", {}}) == 16);
  CHECK(workers_allowed({0, "", {}}) == 1);
  CHECK(workers_allowed({16, "MemAvailable: 1000000 kB\n", {}}) == 4);
  CHECK(workers_allowed({16, "MemAvailable: 100 kB\n", {}}) == 1);
  CHECK(workers_allowed({16, "MemAvailable: some kB\n", {}}) == 16);
  CHECK(workers_allowed({16, "HugeMemAvailable: 100 kB\n", {}}) == 16);

  CHECK(workers_allowed({16, kPlenty, {{"max\n", "77\n", ""}}}) == 16);
  CHECK(workers_allowed({16, kPlenty, {{"2000000000\n", "500000000\n", ""}}}) == 6);
  // Pages of files are part of the memory in use and can be freed.
  CHECK(workers_allowed(
            {16, kPlenty, {{"2000000000", "500000000", "anon 1\ninactive_file 500000000\n"}}}) ==
        8);
  CHECK(workers_allowed({16,
                         kPlenty,
                         {{"2000000000", "500000000",
                           "inactive_file 9\ntotal_inactive_file 250000000\n"}}}) == 7);
  CHECK(workers_allowed({16, kPlenty, {{"1000000000", "2000000000", ""}}}) == 1);
  // The one around it is tighter; the old kind writes no limit as a large number.
  CHECK(workers_allowed({16, kPlenty, {{"max", "0", ""}, {"750000000", "0", ""}}}) == 3);
  CHECK(workers_allowed({16, kPlenty, {{"9223372036854771712", "0", ""}}}) == 16);
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("the control group of this process and those around it are read") {
  const test::Folder root;
  write(root.path + "/proc/meminfo", kPlenty);
  write(root.path + "/proc/self/cgroup", "0::/a/b\n");
  write(root.path + "/sys/fs/cgroup/a/b/memory.max", "max\n");
  write(root.path + "/sys/fs/cgroup/a/memory.max", "1000000000\n");
  write(root.path + "/sys/fs/cgroup/a/memory.current", "1\n");
  MachineTexts machine = lathe::machine_texts(root.path);
  CHECK(machine.groups.size() == 2);
  machine.cores = 100;
  CHECK(workers_allowed(machine) == 3);

  // The namespace of a container: the group is the root; and the first version beside it.
  write(root.path + "/proc/self/cgroup", "5:memory:/job\n4:cpu:/job\n0::/\n");
  write(root.path + "/sys/fs/cgroup/memory.max", "5000000000\n");
  write(root.path + "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2500000000\n");
  machine = lathe::machine_texts(root.path);
  machine.cores = 100;
  CHECK(workers_allowed(machine) == 10);
  CHECK(lathe::machine_texts().cores >= 1);
}

TEST_CASE("what is never busy is done by the caller alone, in order") {
  std::vector<size_t> order;
  std::set<std::thread::id> threads;
  work_through(100, 8, [&](size_t i, const Busy&) {
    order.push_back(i);
    threads.insert(std::this_thread::get_id());
    return true;
  });
  REQUIRE(order.size() == 100);
  for (size_t i = 0; i < order.size(); ++i) CHECK(order[i] == i);
  CHECK(threads == std::set<std::thread::id>{std::this_thread::get_id()});
  work_through(0, 8, [](size_t, const Busy&) -> bool { throw 0; });
}

TEST_CASE("busy items run side by side, as many as allowed and no more") {
  for (const int most : {1, 2, 5}) {
    std::mutex mutex;
    std::condition_variable changed;
    int running = 0, peak = 0, left = 40;
    work_through(40, most, [&](size_t, const Busy& busy) {
      busy();
      std::unique_lock<std::mutex> lock(mutex);
      peak = std::max(peak, ++running);
      changed.notify_all();
      // Each waits for the others that must come; the last ones of all have none to wait for.
      changed.wait_for(lock, std::chrono::seconds(60), [&] { return peak == most || left < most; });
      --running, --left;
      changed.notify_all();
      return true;
    });
    CHECK(peak == most);
    CHECK(running == 0);
    CHECK(left == 0);
  }
}

TEST_CASE("no item is begun after one that says stop") {
  std::atomic<size_t> begun = 0;
  work_through(1000, 4, [&](size_t i, const Busy& busy) {
    busy();
    ++begun;
    return i < 10;
  });
  CHECK(begun >= 11);
  CHECK(begun <= 14);
}

TEST_CASE("crews of several callers share what the process may have") {
  constexpr int kMost = 3, kCallers = 4;
  std::atomic<int> running = 0, peak = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      work_through(50, kMost, [&](size_t, const Busy& busy) {
        busy();
        const int now = ++running;
        for (int seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --running;
        return true;
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(peak <= kCallers + kMost - 1);
}

}  // namespace
