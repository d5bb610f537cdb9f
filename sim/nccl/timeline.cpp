// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file computes when operations would begin and end between real devices, for a driver that
// keeps model time (sim/driver/report/timeline_export.h); any other is asked nothing.
//
// All operations of a launch share the rank's link and are over together: an operation begins when
// every rank it joins is ready, and lasts the latency once and the bytes that the busiest of these
// ranks sends, or receives, with that launch. Launches of one rank in different streams do not slow
// each other. Collectives move what the ring algorithm does.
#include <algorithm>

#include "sim/nccl/state.h"

namespace sim::nccl {
namespace {

struct Bytes {
  uint64_t sent = 0, received = 0;
};

Bytes bytes_on_link(const Call& call, int rank, int size) {
  const uint64_t bytes = call.count * bytes_of(call.type);
  const auto others = static_cast<uint64_t>(size - 1), all = static_cast<uint64_t>(size);
  const bool root = call.root == rank;
  if (others == 0) return {};
  switch (call.kind) {
    case Kind::send:
      return {root ? 0 : bytes, 0};
    case Kind::recv:
      return {0, root ? 0 : bytes};
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return {others * bytes, others * bytes};
    case Kind::all_reduce:
      return {2 * others * bytes / all, 2 * others * bytes / all};
    case Kind::broadcast:
      return {root ? bytes : 0, root ? 0 : bytes};
    case Kind::reduce:
      return {root ? 0 : bytes, root ? bytes : 0};
    case Kind::gather:
      return {root ? 0 : bytes, root ? others * bytes : 0};
    default:  // scatter
      return {root ? others * bytes : 0, root ? 0 : bytes};
  }
}

// "Send to rank 1, Recv from rank 3", without numbers and counts.
void add_name(Travel& travel, const Call& call) {
  const std::string text = describe(call);
  const size_t number = text.find(" #");
  const size_t peer = text.find(is_pair(call.kind) ? " (" : " #", number);
  std::string name = text.substr(0, number);
  if (is_pair(call.kind)) {
    const size_t after = text.find(' ', number + 2);
    name += text.substr(after, peer - after);
  }
  if (travel.name.find(name) != std::string::npos) return;
  travel.name += (travel.name.empty() ? "" : ", ") + name;
}

}  // namespace

void note_lane(const ncclComm& comm) {
  if (cu().hide_stream != nullptr) cu().hide_stream(comm.lane);
}

void note_rank(int rank) {
  if (cu().thread_rank != nullptr) cu().thread_rank(rank);
}

void note_call(Launch& launch, const Call& call) {
  const ncclComm& comm = *launch.comm;
  if (cu().stream_rank == nullptr) return;
  if (launch.travel.name.empty() && launch.passed != nullptr) {
    cu().stream_rank(launch.stream, comm.rank);
  }
  const Bytes bytes = bytes_on_link(call, comm.rank, comm.size);
  const bool first = launch.travel.received == 0;
  launch.travel.sent += bytes.sent;
  launch.travel.received += bytes.received;
  if (call.kind == Kind::recv && bytes.received > 0) {
    launch.travel.peer = first || launch.travel.peer == call.root ? call.root : -1;
  } else if (bytes.received > 0) {
    launch.travel.peer = -1;
  }
  add_name(launch.travel, call);
}

// With the ready events of all parts over; an arrival brings its time along.
void note_start(Task& task) {
  if (cu().event_time == nullptr || cu().message_time == nullptr) return;
  double begin = 0;
  uint64_t busiest = 0;
  for (const Part& part : task.parts) {
    Travel& travel = part.launch->travel;
    if (travel.ready < 0) travel.ready = cu().event_time(part.launch->ready);
    begin = std::max(begin, travel.ready);
    const bool pair = is_pair(part.call.kind), sends = part.call.kind == Kind::send;
    if (!pair || sends) busiest = std::max(busiest, travel.sent);
    if (!pair || !sends) busiest = std::max(busiest, travel.received);
  }
  const bool alone = task.parts.size() == 1 || task.parts[0].rank == task.parts[1].rank;
  const double lasts = alone ? 0 : std::max(0.0, cu().message_time(busiest));
  for (const Part& part : task.parts) {
    Travel& travel = part.launch->travel;
    travel.begin = std::max(travel.begin, begin);  // before, it waits for a partner
    travel.end = std::max(travel.end, begin + lasts);
  }
}

void note_release(const Launch& launch) {
  const Travel& travel = launch.travel;
  if (cu().arrival == nullptr || travel.begin < 0) return;
  const LatheSimTransfer transfer = {travel.name.c_str(), travel.begin,    travel.end,
                                     travel.sent,         travel.received, travel.peer};
  cu().arrival(launch.flag, &transfer);
}

}  // namespace sim::nccl
