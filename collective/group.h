// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A rank of a context-parallel group: communicator, exchange stream and the events that order it
// against the caller's stream. One call at a time per group object.
#pragma once

#include <memory>

#include "cache/driver.h"
#include "collective/nccl.h"

namespace lathe {

struct UniqueId {
  char bytes[NCCL_UNIQUE_ID_BYTES];
};
Result<UniqueId> make_unique_id(const Nccl& nccl);
Result<UniqueId> make_unique_id(NcclChoice choice);

class Group {
 public:
  static constexpr int kDefaultTimeoutMs = 60000;

  // Collective over all ranks: blocks until everybody has called it, or the timeout (0: the
  // default). The timeout also bounds each later call that has to wait for peers to connect.
  static Result<std::shared_ptr<Group>> create(std::shared_ptr<const Device> device,
                                               std::shared_ptr<const Nccl> nccl, const UniqueId& id,
                                               int world, int rank, int timeout_ms);
  static Result<std::shared_ptr<Group>> create(std::shared_ptr<const Device> device,
                                               NcclChoice choice, const UniqueId& id, int world,
                                               int rank, int timeout_ms);
  // Adopts a communicator that stays the caller's: never destroyed or aborted here.
  static Result<std::shared_ptr<Group>> adopt(std::shared_ptr<const Device> device,
                                              std::shared_ptr<const Nccl> nccl, ncclComm_t comm);
  static Result<std::shared_ptr<Group>> adopt(std::shared_ptr<const Device> device,
                                              NcclChoice choice, ncclComm_t comm);
  // Flushes what was enqueued and leaves, within the timeout; after an error it aborts instead.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  ncclComm_t comm() const { return comm_; }
  const Nccl& nccl() const { return *nccl_; }
  const Device& device() const { return *device_; }
  const std::shared_ptr<const Device>& shared_device() const { return device_; }
  CUstream exchange_stream() const { return stream_; }

  // What follows is for the run path: the device's context must be current.

  // The exchange stream waits for what `stream` has been given so far, and the reverse.
  Status exchange_after(CUstream stream);
  Status stream_after_exchange(CUstream stream);

  // The outcome of a call on the communicator. A non-blocking communicator may still be busy
  // handing the work to the device: waits for that (not for the work), because only then do events
  // on the exchange stream cover it. TIMEOUT ends the communicator, unless it was adopted.
  Status settle(ncclResult_t result, const char* call);
  // NCCL if the group was aborted.
  Status usable() const;

  // An asynchronous error of the communicator, if there is one by now.
  Status async_error() const;
  // Ends pending communication; the group is of no further use. Refused for an adopted one.
  Status abort();

 private:
  Group() = default;
  Status make_streams();
  Status connect(const UniqueId& id);

  std::shared_ptr<const Device> device_;
  std::shared_ptr<const Nccl> nccl_;
  ncclComm_t comm_ = nullptr;
  bool adopted_ = false;
  bool aborted_ = false;
  int rank_ = 0, world_ = 1;
  int timeout_ms_ = kDefaultTimeoutMs;
  CUstream stream_ = nullptr;
  CUevent to_exchange_ = nullptr, from_exchange_ = nullptr;
};

}  // namespace lathe
