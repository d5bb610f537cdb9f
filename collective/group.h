// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Group is one rank of a context-parallel group. It owns the communicator, the exchange stream
// and the events that order that stream against the caller's. Only one call at a time may use a
// Group. The watchdog alone inspects it from another thread, and ends the communicator if an
// exchange takes longer than the timeout.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "collective/flight.h"
#include "collective/nccl.h"
#include "collective/watchdog.h"
#include "device/driver.h"

namespace lathe {

using UniqueId = ncclUniqueId;
Result<UniqueId> make_unique_id(const Nccl& nccl);

class Group : private Watched {
 public:
  static constexpr int kDefaultTimeoutMs = 60000;

  // This is a collective over all ranks. It blocks until every rank has called it, or until the
  // timeout (0: the default). The timeout also bounds each later call that has to wait for peers to
  // connect, and how long an exchange may take on the device. The caller has checked that `rank` is
  // one of `world`.
  static Result<std::shared_ptr<Group>> create(std::shared_ptr<const Device> device,
                                               std::shared_ptr<const Nccl> nccl, const UniqueId& id,
                                               int world, int rank, int timeout_ms);
  // Adopts a communicator that the caller keeps: the group never destroys or aborts it.
  static Result<std::shared_ptr<Group>> adopt(std::shared_ptr<const Device> device,
                                              std::shared_ptr<const Nccl> nccl, ncclComm_t comm);
  // This is a collective over the ranks of `parent`. Ranks of one color become a group, ordered by
  // key, then by their rank in `parent`. Returns null for a negative color. The new group does not
  // need `parent`, which may be destroyed first.
  static Result<std::shared_ptr<Group>> split(Group& parent, int color, int key);
  // Makes a group without peers, for `world` ranks. Plans choose their kernels for such a group,
  // but nothing runs.
  static std::shared_ptr<Group> unconnected(int world, int rank);
  // Flushes what was enqueued and leaves, within the timeout; after an error it aborts instead.
  ~Group() override;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  int timeout_ms() const { return timeout_ms_; }
  bool adopted() const { return adopted_; }
  bool connected() const { return device_ != nullptr; }
  // Only a thread that holds a Use may make calls on the communicator.
  ncclComm_t comm() const { return comm_; }
  const Nccl& nccl() const { return *nccl_; }
  const Device& device() const { return *device_; }
  CUstream exchange_stream() const { return stream_; }

  // Keeps the communicator for calls of this thread; the watchdog does not end the communicator
  // meanwhile. Never waits. An error in status() says why the group can no longer be used.
  class Use {
   public:
    explicit Use(Group& group);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    const Status& status() const { return status_; }

   private:
    Group& group_;
    Status status_;
  };

  // The run path calls the functions below. The device's context must be current.

  // Makes the exchange stream wait for the work that is on `stream` so far, and the reverse.
  Status exchange_after(CUstream stream);
  Status stream_after_exchange(CUstream stream);

  // Returns the outcome of a call on the communicator, within a Use. A non-blocking communicator
  // may still be enqueuing the work on the device. The function waits until the work is enqueued
  // (not until it is done), because only then do events on the exchange stream cover it. TIMEOUT
  // ends the communicator, unless it was adopted.
  Status complete(ncclResult_t result, const char* call);
  // Has the watchdog watch an exchange that was just posted. Graphs are not watched, because the
  // library does not see their replays.
  Status posted(const Posting& posting) {
    return flight_.post(device_->driver(), stream_, posting);
  }
  // Says why the group can no longer be used: TIMEOUT after a timeout, NCCL if it failed or was
  // aborted.
  Status usable() const;

  // Returns the communicator's asynchronous error, if there is one by now, or the error that ended
  // it.
  Status async_error();
  // Ends pending communication; the group cannot be used any more. An adopted communicator cannot
  // be aborted: the call is refused.
  Status abort();
  // Marks the group as unusable for this reason, and ends pending communication unless the
  // communicator was adopted. Returns the reason, or the earlier one if there is one.
  Status fail(Status why);

 private:
  Group(std::shared_ptr<const Device> device, std::shared_ptr<const Nccl> nccl)
      : device_(std::move(device)), nccl_(std::move(nccl)) {}
  Status open();
  Status connect(const UniqueId& id);
  void leave();
  void stop_watching();
  // Waits, within the timeout, until no posted exchange is running.
  bool drained() const;

  bool inspect(Clock::time_point now) override;
  bool pending() const override { return uses_.load() != kEnded && flight_.pending(); }
  Status late(const Posting& posting) const;
  std::string name() const;
  // Returns check() of a call that concerns this group, with the group's name before the words.
  Status named(ncclResult_t result, const char* call) const;

  static Result<std::shared_ptr<Group>> split_by_id(Group& parent, int color, int key);
  static Result<std::shared_ptr<Group>> split_by_nccl(Group& parent, int color, int key);

  std::shared_ptr<const Device> device_;
  std::shared_ptr<const Nccl> nccl_;
  ncclComm_t comm_ = nullptr;
  ncclComm_t half_made_ = nullptr;  // where a split that is under way puts its communicator
  bool adopted_ = false;
  int rank_ = 0, world_ = 1;
  int timeout_ms_ = kDefaultTimeoutMs;
  CUstream stream_ = nullptr;
  CUevent to_exchange_ = nullptr, from_exchange_ = nullptr;
  Flight flight_;
  std::shared_ptr<WatchEntry> entry_;
  // uses_ counts the Uses; it is kEnded once the communicator cannot be used. The run path and the
  // watchdog share this variable only.
  static constexpr int kEnded = -1;
  std::atomic<int> uses_{0};
  Status why_;  // written with the entry's lock, before uses_ becomes kEnded; then read by all
};

// Returns ncclInProgress at the deadline, else the state of a communicator that is no longer busy.
ncclResult_t wait_while_busy(const Nccl& nccl, ncclComm_t comm, int timeout_ms);

}  // namespace lathe
