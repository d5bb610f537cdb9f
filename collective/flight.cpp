// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Records the two events behind exchanges, and decides when each may be recorded.
#include "collective/flight.h"

#include "collective/watchdog.h"

namespace lathe {

Status Flight::open(const Driver& driver) {
  for (Slot* slot : {&first_, &last_}) {
    LATHE_TRY(check(driver, driver.cuEventCreate(&slot->event, CU_EVENT_DISABLE_TIMING),
                    "cuEventCreate"));
  }
  return {};
}

void Flight::close(const Driver& driver) {
  for (Slot* slot : {&first_, &last_}) {
    if (slot->event != nullptr) (void)driver.cuEventDestroy(slot->event);
    slot->event = nullptr;
  }
}

Status Flight::Slot::record(const Driver& driver, CUstream stream, const Posting& posting) {
  step.store(posting.step, std::memory_order_relaxed);
  peer.store(posting.peer, std::memory_order_relaxed);
  bytes.store(posting.bytes, std::memory_order_relaxed);
  return check(driver, driver.cuEventRecord(event, stream), "cuEventRecord");
}

// An error counts as over: the thread that waits for the stream sees the error.
bool Flight::Slot::over(const Driver& driver) const {
  return driver.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

Posting Flight::Slot::posting() const {
  return {step.load(std::memory_order_relaxed), peer.load(std::memory_order_relaxed),
          bytes.load(std::memory_order_relaxed)};
}

Status Flight::post(const Driver& driver, CUstream stream, const Posting& posting) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  LATHE_TRY(check(driver, driver.cuStreamIsCapturing(stream, &capture), "cuStreamIsCapturing"));
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) return {};
  // While `first_` is armed the reader alone may free it, so each event has one writer at a time.
  if (!armed_.load()) {
    LATHE_TRY(first_.record(driver, stream, posting));
    armed_.store(true);
  } else {
    LATHE_TRY(last_.record(driver, stream, posting));
    recorded_.fetch_add(1);
  }
  wake_watchdog();
  return {};
}

bool Flight::pending() const { return armed_.load() || recorded_.load() != passed_.load(); }

Flight::State Flight::inspect(const Driver& driver, Clock::time_point now,
                              std::chrono::milliseconds patience, Posting* late) {
  const auto wait_for = [&](const Slot& slot) {
    if (oldest_ != &slot) since_ = now;
    oldest_ = &slot;
    if (now - since_ < patience) return State::waiting;
    *late = slot.posting();
    return State::late;
  };
  if (armed_.load()) {
    if (!first_.over(driver)) return wait_for(first_);
    oldest_ = nullptr;
    armed_.store(false);
  }
  const uint64_t recorded = recorded_.load();
  if (recorded != passed_.load()) {
    // Once `first_` is recorded behind a newer exchange, the end of that exchange covers this one.
    if (armed_.load()) return State::waiting;
    if (!last_.over(driver)) return wait_for(last_);
    oldest_ = nullptr;
    passed_.store(recorded);
  }
  return armed_.load() ? State::waiting : State::over;
}

}  // namespace lathe
