// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a group has given its exchange stream and may not be over: written by the run path, read by
// the watchdog, without a lock between them.
//
// Two events. `first` stands behind an exchange until that is over, however many follow; `last`
// behind the newest one. Were there only the newest, a host that is ahead of its device would start
// the time anew with every exchange, and with only a count of them would be late for ever.
#pragma once

#include <atomic>
#include <chrono>

#include "cache/driver.h"

namespace lathe {

// An exchange in the words of a timeout.
struct Posting {
  int step = 0;        // of its operator
  int peer = -1;       // whom this rank hears from, the first of them; -1: all ranks
  uint64_t bytes = 0;  // that this rank sends and receives
};

class Flight {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { over, waiting, late };

  // With the device's context current, as for all that takes a driver.
  Status open(const Driver& driver);
  void close(const Driver& driver);

  // Behind the calls of an exchange on `stream`, by the thread that runs it. What is captured in a
  // graph is not watched: its replays are no calls of ours.
  Status post(const Driver& driver, CUstream stream, const Posting& posting);
  bool pending() const;

  // By one thread at a time: whether the exchanges are over, or one has taken longer than
  // `patience`, which `late` is then filled with.
  State inspect(const Driver& driver, Clock::time_point now, std::chrono::milliseconds patience,
                Posting* late);

 private:
  struct Slot {
    CUevent event = nullptr;
    std::atomic<int> step{0}, peer{-1};
    std::atomic<uint64_t> bytes{0};
    Status record(const Driver& driver, CUstream stream, const Posting& posting);
    bool over(const Driver& driver) const;
    Posting posting() const;
  };
  Slot first_, last_;
  std::atomic<bool> armed_{false};     // `first_` stands behind an exchange
  std::atomic<uint64_t> recorded_{0};  // times that `last_` was
  std::atomic<uint64_t> passed_{0};    // of them, those that are over
  // The reader's own: the event it waits for and since when.
  const Slot* oldest_ = nullptr;
  Clock::time_point since_;
};

}  // namespace lathe
