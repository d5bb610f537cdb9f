// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements a group in use. Events order its two streams. The run path and the watchdog share the
// communicator, and either may have to end it.
#include <algorithm>
#include <thread>
#include <utility>

#include "codegen/base/invalid.h"
#include "collective/group.h"

namespace lathe {

// Most waits are short, so the pauses begin small.
ncclResult_t wait_while_busy(const Nccl& nccl, ncclComm_t comm, int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  auto pause = std::chrono::microseconds(1);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress || Clock::now() >= deadline) return state;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

std::string Group::name() const { return text("rank ", rank_, " of ", world_); }

Status Group::named(ncclResult_t result, const char* call) const {
  const Status status = check(*nccl_, comm_, result, call);
  return {status.code(), text(name(), ": ", status.text())};
}

Group::Use::Use(Group& group) : group_(group) {
  int uses = group.uses_.load();
  while (uses != kEnded && !group.uses_.compare_exchange_weak(uses, uses + 1)) {
  }
  if (uses == kEnded) status_ = group.why_;
}

Group::Use::~Use() {
  if (!status_.ok()) return;
  int uses = group_.uses_.load();
  while (uses != kEnded && !group_.uses_.compare_exchange_weak(uses, uses - 1)) {
  }
}

Status Group::exchange_after(CUstream stream) {
  const Driver& driver = device_->driver();
  LATHE_TRY(check(driver, driver.cuEventRecord(to_exchange_, stream), "cuEventRecord"));
  return check(driver, driver.cuStreamWaitEvent(stream_, to_exchange_, 0), "cuStreamWaitEvent");
}

Status Group::stream_after_exchange(CUstream stream) {
  const Driver& driver = device_->driver();
  LATHE_TRY(check(driver, driver.cuEventRecord(from_exchange_, stream_), "cuEventRecord"));
  return check(driver, driver.cuStreamWaitEvent(stream, from_exchange_, 0), "cuStreamWaitEvent");
}

Status Group::complete(ncclResult_t result, const char* call) {
  if (result == ncclInProgress) result = wait_while_busy(*nccl_, comm_, timeout_ms_);
  if (result == ncclSuccess) return {};
  if (result != ncclInProgress) return check(*nccl_, comm_, result, call);
  return fail({Code::timeout, text(call, " of ", name(), " waited ", timeout_ms_,
                                   " ms for its peers to connect")});
}

Status Group::usable() const { return uses_.load() == kEnded ? why_ : Status(); }

Status Group::async_error() {
  const Use use(*this);
  LATHE_TRY(use.status());
  ncclResult_t state = ncclSuccess;
  LATHE_TRY(
      check(*nccl_, comm_, nccl_->ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return named(state, "the communicator");
}

Status Group::abort() {
  if (adopted_) {
    return invalid(
        "the group adopted its communicator, which is the caller's to abort (ncclCommAbort)");
  }
  (void)fail({Code::nccl, text("the group of ", name(), " was aborted")});
  return {};
}

Status Group::fail(Status why) {
  {
    const std::lock_guard lock(entry_->mutex);
    if (uses_.load() == kEnded) return why_;
    why_ = std::move(why);
    uses_.store(kEnded);
  }
  // The abort runs without the lock. It may wait for a stream that another group blocks, and the
  // watchdog must be able to reach that group.
  if (!adopted_) (void)nccl_->ncclCommAbort(comm_);
  return why_;
}

Status Group::late(const Posting& posting) const {
  std::string from = "with all ranks";
  if (posting.peer >= 0) from = text("from rank ", posting.peer);
  return {Code::timeout,
          text(name(), " waited ", timeout_ms_, " ms for an exchange ", from, " (step ",
               posting.step, ", ", posting.bytes, " bytes)",
               adopted_ ? "; the communicator is the caller's to abort" : "; it was aborted")};
}

// Only the watchdog calls this.
bool Group::inspect(Clock::time_point now) {
  if (uses_.load() == kEnded) return false;
  const Device::Scope scope(*device_);
  const Driver& driver = device_->driver();
  // Without the relaxed mode a query of an event would invalidate a capture that another thread has
  // begun.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (driver.cuThreadExchangeStreamCaptureMode != nullptr) {
    (void)driver.cuThreadExchangeStreamCaptureMode(&mode);
  }
  Posting posting;
  const Flight::State state =
      flight_.inspect(driver, now, std::chrono::milliseconds(timeout_ms_), &posting);
  if (state == Flight::State::over) return false;
  Status why = late(posting);
  if (state == Flight::State::waiting) {
    // The kernels of this rank do not notice such an error.
    ncclResult_t error = ncclSuccess;
    if (nccl_->ncclCommGetAsyncError(comm_, &error) != ncclSuccess || error == ncclSuccess ||
        error == ncclInProgress) {
      return true;
    }
    why = named(error, "the communicator");
  }
  why_ = std::move(why);
  int unused = 0;
  // A thread inside its calls has its own timeout, so the watchdog inspects again later.
  if (!uses_.compare_exchange_strong(unused, kEnded)) return true;
  if (adopted_) return false;
  // See fail(); nobody else uses the communicator any more.
  std::thread([device = device_, nccl = nccl_, comm = comm_] {
    const Device::Scope current(*device);
    (void)nccl->ncclCommAbort(comm);
  }).detach();
  return false;
}

}  // namespace lathe
