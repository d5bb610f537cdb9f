// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Who sends its tail rows to whom, and the order of kernels and messages on two streams.
#include "collective/conv_halo.h"

#include "codegen/base/text.h"

namespace lathe {
namespace {

// One direction of the exchange: `send` goes to every rank of `to`, slot i of `receive` is filled
// by rank i of `from`.
struct Hop {
  const HaloBuffers& buffers;
  const HaloPeers& to;
  const HaloPeers& from;
};

bool is_empty(const Hop& hop) {
  return hop.buffers.message_bytes == 0 || (hop.to.empty() && hop.from.empty());
}

Status check_hop(const Group& group, const Hop& hop) {
  LATHE_TRY(group.usable());
  for (const auto* peers : {&hop.to, &hop.from}) {
    for (const HaloPeer& peer : *peers) {
      if (peer.rank >= 0 && peer.rank < group.world() && peer.rank != group.rank()) continue;
      return {Code::invalid_argument,
              text("the halo's plan for rank ", group.rank(), " names rank ", peer.rank,
                   ", the group has ", group.world())};
    }
  }
  if ((!hop.to.empty() && hop.buffers.send == nullptr) ||
      (!hop.from.empty() && hop.buffers.receive == nullptr)) {
    return {Code::invalid_argument, "a halo buffer is null"};
  }
  return {};
}

ncclResult_t post(const Group& group, const Hop& hop) {
  const Nccl& nccl = group.nccl();
  const size_t bytes = hop.buffers.message_bytes;
  auto* slot = static_cast<char*>(hop.buffers.receive);
  for (const HaloPeer& peer : hop.from) {
    const ncclResult_t result =
        nccl.ncclRecv(slot, bytes, ncclInt8, peer.rank, group.comm(), group.exchange_stream());
    if (result != ncclSuccess && result != ncclInProgress) return result;
    slot += bytes;
  }
  for (const HaloPeer& peer : hop.to) {
    const ncclResult_t result = nccl.ncclSend(hop.buffers.send, bytes, ncclInt8, peer.rank,
                                              group.comm(), group.exchange_stream());
    if (result != ncclSuccess && result != ncclInProgress) return result;
  }
  return ncclSuccess;
}

// All messages of a hop in one group, after what `stream` was given so far.
Status start(Group& group, const Hop& hop, CUstream stream) {
  LATHE_TRY(check_hop(group, hop));
  LATHE_TRY(group.exchange_after(stream));
  const Nccl& nccl = group.nccl();
  LATHE_TRY(check(nccl, group.comm(), nccl.ncclGroupStart(), "ncclGroupStart"));
  const ncclResult_t posted = post(group, hop);
  // A group that was begun must be ended, or the next call of this thread joins it.
  const ncclResult_t ended = nccl.ncclGroupEnd();
  LATHE_TRY(check(nccl, group.comm(), posted, "the halo's ncclSend and ncclRecv"));
  return group.settle(ended, "the halo's ncclGroupEnd");
}

Status run(const Step& step, CUstream stream) {
  return step.run == nullptr ? Status() : step.run(step.user, stream);
}

// Whatever happened, the caller's stream ends after the exchange: its buffers may be reused then,
// and a capture has no loose end.
Status joined(Group& group, Status status, CUstream stream) {
  const Status join = group.stream_after_exchange(stream);
  return status.ok() ? join : status;
}

struct ForwardSteps {
  Step interior, join, boundary;
};

// `interior`, then the halo as soon as the messages of `hop` are there, then what needs it.
Status consume(Group& group, const Hop& hop, const ForwardSteps& steps, CUstream stream) {
  LATHE_TRY(run(steps.interior, stream));
  if (!hop.from.empty()) {
    if (!is_empty(hop)) LATHE_TRY(group.stream_after_exchange(stream));
    LATHE_TRY(run(steps.join, stream));
  }
  return run(steps.boundary, stream);
}

}  // namespace

HaloPlan halo_plan(const Partition& partition, int rank, int width) {
  HaloPlan out;
  out.part = partition.part(rank);
  if (out.part.size() == 0) return out;
  const int64_t reach = width - 1;
  for (int j = rank - 1; j >= 0; --j) {
    const Interval part = partition.part(j);
    if (part.end <= out.part.begin - reach) break;
    if (part.size() > 0) out.sources.push_back({j, part});
  }
  for (int j = rank + 1; j < partition.world(); ++j) {
    const Interval part = partition.part(j);
    if (part.begin - reach >= out.part.end) break;
    if (part.size() > 0) out.destinations.push_back({j, part});
  }
  // Whatever lies between a part and its nearest source is empty.
  out.aligned = out.sources.size() == 1;
  return out;
}

Status conv_halo_forward(Group& group, const HaloPlan& plan, const HaloBuffers& rows, Step pack,
                         Step interior, Step join, Step boundary, CUstream stream) {
  const Hop hop{rows, plan.destinations, plan.sources};
  if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
  if (is_empty(hop)) return consume(group, hop, {interior, join, boundary}, stream);
  Status status = start(group, hop, stream);
  if (status.ok()) status = consume(group, hop, {interior, join, boundary}, stream);
  if (status.ok() && !plan.sources.empty()) return status;  // joined before `join`
  return joined(group, status, stream);
}

Status conv_halo_backward(Group& group, const HaloPlan& plan, const HaloBuffers& rows,
                          const HaloBuffers& gradients, Step pack, Step first_half, Step join,
                          Step boundary, Step second_half, Step add, CUstream stream) {
  // Gradients travel the other way: to the ranks whose rows were received.
  const Hop forth{rows, plan.destinations, plan.sources};
  const Hop back{gradients, plan.sources, plan.destinations};
  const auto until_boundary = [&]() -> Status {
    if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
    if (!is_empty(forth)) LATHE_TRY(start(group, forth, stream));
    return consume(group, forth, {first_half, join, boundary}, stream);
  };
  const auto from_boundary = [&]() -> Status {
    if (!is_empty(back)) LATHE_TRY(start(group, back, stream));
    return run(second_half, stream);
  };
  Status status = until_boundary();
  if (status.ok()) status = from_boundary();
  if (!is_empty(forth) || !is_empty(back)) status = joined(group, status, stream);
  if (!status.ok() || plan.destinations.empty()) return status;
  return run(add, stream);
}

Status all_reduce_f32(Group& group, void* data, size_t count, CUstream stream) {
  if (group.world() == 1 || count == 0) return {};
  LATHE_TRY(group.usable());
  LATHE_TRY(group.exchange_after(stream));
  const ncclResult_t result = group.nccl().ncclAllReduce(data, data, count, ncclFloat32, ncclSum,
                                                         group.comm(), group.exchange_stream());
  return joined(group, group.settle(result, "ncclAllReduce"), stream);
}

}  // namespace lathe
