// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One thread of the process that looks at what is under way between ranks, so that a rank which
// never comes is noticed although no host call waits for it. It starts with the first thing to
// watch, and sleeps while nothing is under way.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

namespace lathe {

class Watched {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Watched() = default;
  // Whether it has to be looked at again soon. From the watchdog's thread, with the lock of
  // WatchEntry held.
  virtual bool inspect(Clock::time_point now) = 0;
  // Whether there is anything to look at. From any thread, without a lock.
  virtual bool pending() const = 0;
};

// What a watched object and the watchdog share. Whoever ends the object takes the lock and clears
// `what`; nothing is looked at after that.
struct WatchEntry {
  std::mutex mutex;
  Watched* what = nullptr;
};

// Looks at the object until its entry is cleared.
std::shared_ptr<WatchEntry> watch(Watched& what);
// Something has become pending. For the run path: an atomic load, and if the watchdog sleeps a
// system call that does not block.
void wake_watchdog();

}  // namespace lathe
