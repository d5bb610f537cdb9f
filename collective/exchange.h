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

// Runs the exchange of one call, on the group's own stream.
class Exchange {
 public:
  Exchange(Group& group, CUstream stream) : group_(group), stream_(stream) {}

  // Posts a hop after the work that is on the stream so far. Does nothing for a hop without
  // messages.
  Status post(const Hop& hop);
  // Makes the stream wait until everything that was posted has arrived.
  Status arrive();
  // Does the same whatever `status` is. Posted messages read and write the call's memory, so the
  // caller's stream waits for them even if the call has failed.
  Status joined(Status status);
  // Posts a hop that the stream waits for at once.
  Status run(const Hop& hop) { return joined(post(hop)); }

 private:
  Group& group_;
  CUstream stream_;
  bool waiting_ = false;
};

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

// Sum values over ranks in place on the exchange stream, ordered after the work on `stream` so far
// and before its later work. Integers wrap around, so their sum depends on no order.
Status all_reduce_f32(Group& group, void* data, size_t count, CUstream stream);
Status all_reduce_i64(Group& group, void* data, size_t count, CUstream stream);

}  // namespace lathe
