// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The watchdog is one thread of the process. It inspects the exchanges between ranks, so a rank
// that never comes is noticed although no host call waits for that rank. The thread starts with the
// first object to watch, and sleeps while nothing is pending.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

namespace lathe {

class Watched {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Watched() = default;
  // Returns whether the object must be inspected again soon. The watchdog's thread calls this with
  // the lock of WatchEntry held.
  virtual bool inspect(Clock::time_point now) = 0;
  // Returns whether anything is pending. Any thread may call this, without a lock.
  virtual bool pending() const = 0;
};

// A watched object and the watchdog share this entry. The thread that ends the object takes the
// lock and clears `what`; the watchdog does not touch the object after that.
struct WatchEntry {
  std::mutex mutex;
  Watched* what = nullptr;
};

// Watches the object until its entry is cleared.
std::shared_ptr<WatchEntry> watch(Watched& what);
// The run path calls this when something has become pending. Cost: one atomic load, and one
// non-blocking system call if the watchdog sleeps.
void wake_watchdog();

}  // namespace lathe
