// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Posts one hop between ranks: all its messages are in one NCCL group on the exchange stream.
// Ungrouped sends and receives wait for each other in a circle; in a group they cannot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/group.h"

namespace lathe {

// Describes a message to or from `peer`, or `count` of them, `stride` bytes apart, one for each row
// of a batch. Between two ranks messages match in the order of their spans.
struct Transfer {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;  // of each
  int64_t count = 1;
  size_t stride = 0;

  size_t total() const { return bytes * static_cast<size_t>(count); }
  void* at(int64_t i) const { return static_cast<char*>(data) + static_cast<size_t>(i) * stride; }
};
struct Hop {
  std::span<const Transfer> sends, receives;
  const char* name = "exchange";  // for messages: "the halo", "ring step"
  int step = 0;
};

// Messages of no bytes are left out, on both sides alike; a hop without messages is no NCCL call.
// Returns INVALID_ARGUMENT, and enqueues nothing, for a peer outside the group, the rank itself, or
// a null buffer.
Status post(Group& group, const Hop& hop);

// Does the same after the work that is on `stream` so far.
Status post_after(Group& group, const Hop& hop, CUstream stream);

bool is_empty(const Hop& hop);

// Describes a collective of all ranks on the exchange stream for the message of a timeout.
struct Collective {
  const char* name = "ncclAllReduce";
  int step = 0;
  uint64_t bytes = 0;  // sent by this rank
};
// `call(nccl, comm, stream)` makes the call.
template <typename F>
Status post(Group& group, const Collective& what, F call) {
  const Group::Use use(group);
  LATHE_TRY(use.status());
  LATHE_TRY(group.complete(call(group.nccl(), group.comm(), group.exchange_stream()), what.name));
  return group.posted({what.step, -1, what.bytes});
}

// Posts the messages of one NCCL group one by one. Nothing is kept, so the run path allocates
// nothing. Messages of no bytes are left out, and so are all after one that failed.
class Messages {
 public:
  explicit Messages(Group& group) : group_(group) {}
  void send(int peer, const void* data, size_t bytes);
  void receive(int peer, void* data, size_t bytes);
  bool failed() const { return result_ != ncclSuccess && result_ != ncclInProgress; }
  ncclResult_t result() const { return result_; }

 private:
  Group& group_;
  ncclResult_t result_ = ncclSuccess;
};
// `tell(messages)` posts all messages of the group.
template <typename Tell>
ncclResult_t in_group(Group& group, const Tell& tell) {
  const ncclResult_t begun = group.nccl().ncclGroupStart();
  if (begun != ncclSuccess) return begun;
  Messages messages(group);
  tell(messages);
  // A group that was begun must be ended, or the next call of this thread joins it.
  const ncclResult_t ended = group.nccl().ncclGroupEnd();
  return messages.failed() ? messages.result() : ended;
}

}  // namespace lathe
