// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Records the exchanges of a group that may still run. The run path writes the record and the
// watchdog reads it, without a lock.
//
// There are two events. `first` is recorded behind an exchange and stays there until that exchange
// is over; `last` is recorded behind the newest exchange. With `last` alone, a host that is ahead
// of its device would restart the time with every exchange. With a count of exchanges alone, it
// would be late for ever.
#pragma once

#include <atomic>
#include <chrono>

#include "device/driver.h"

namespace lathe {

// Describes an exchange for the message of a timeout.
struct Posting {
  int step = 0;        // of its operator
  int peer = -1;       // the first that this rank receives from; -1: all ranks
  uint64_t bytes = 0;  // sent and received by this rank
};

class Flight {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { over, waiting, late };

  // Every function that takes a driver needs the device's context to be current.
  Status open(const Driver& driver);
  void close(const Driver& driver);

  // The thread that runs an exchange calls this after it has posted the exchange on `stream`. An
  // exchange that is captured in a graph is not watched, because the library does not see the
  // replays.
  Status post(const Driver& driver, CUstream stream, const Posting& posting);
  bool pending() const;

  // Says whether the exchanges are over, or one has taken longer than `patience`; then `late`
  // describes that one. One thread at a time may call this.
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
  // Only the reader uses these: the event that the reader waits for, and since when.
  const Slot* oldest_ = nullptr;
  Clock::time_point since_;
};

}  // namespace lathe
