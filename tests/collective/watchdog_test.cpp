// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the watchdog beside fork(): its thread stays with the parent, its locks must
// not.
#include "collective/watchdog.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace {

using namespace std::chrono_literals;

// Always busy, and most of the time under the lock of its entry.
struct Slow : lathe::Watched {
  std::atomic<int> looks{0};
  bool inspect(Clock::time_point) override {
    ++looks;
    std::this_thread::sleep_for(20ms);
    return true;
  }
  bool pending() const override { return true; }
};

}  // namespace

TEST_CASE("a forked child can end what the watchdog looks at") {
  Slow slow;
  const auto entry = lathe::watch(slow);
  lathe::wake_watchdog();
  while (slow.looks == 0) std::this_thread::sleep_for(1ms);
  for (int turn = 0; turn < 20; ++turn) {
    std::this_thread::sleep_for(3ms);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(30);  // a child that hangs dies of it
      {
        const std::lock_guard lock(entry->mutex);
        entry->what = nullptr;
      }
      Slow other;
      const auto mine = lathe::watch(other);
      lathe::wake_watchdog();
      _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const int seen = slow.looks;
  while (slow.looks == seen) std::this_thread::sleep_for(1ms);  // the parent's goes on
  const std::lock_guard lock(entry->mutex);
  entry->what = nullptr;
}
