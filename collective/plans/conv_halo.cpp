// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decides which rank sends its tail rows to which, and orders kernels and messages on two streams.
#include "collective/plans/conv_halo.h"

#include "collective/exchange.h"

namespace lathe {
namespace {

// Holds one direction of the exchange: `send` goes to every rank of `to`, slot i of `receive` is
// filled by rank i of `from`.
struct HaloMessages {
  std::array<Transfer, kConvMaxMessages> sends, receives;
  Hop hop;
};

// `out` lends its arrays to its hop.
void lay_out(const HaloBuffers& buffers, const HaloPeers& to, const HaloPeers& from,
             HaloMessages* out) {
  for (size_t i = 0; i < to.size(); ++i) {
    out->sends[i] = {to[i].rank, buffers.send, buffers.message_bytes};
  }
  for (size_t i = 0; i < from.size(); ++i) {
    char* slot = static_cast<char*>(buffers.receive);
    if (slot != nullptr) slot += i * buffers.message_bytes;
    out->receives[i] = {from[i].rank, slot, buffers.message_bytes};
  }
  out->hop = {std::span(out->sends).first(to.size()), std::span(out->receives).first(from.size()),
              "the halo"};
}

Status run(const Step& step, CUstream stream) {
  return step.run == nullptr ? Status() : step.run(step.user, stream);
}

// Makes the caller's stream wait for the exchange, whatever `status` is. Then the exchange's
// buffers may be reused, and a capture has no unjoined stream.
Status joined(Group& group, Status status, CUstream stream) {
  const Status join = group.stream_after_exchange(stream);
  return status.ok() ? join : status;
}

struct ForwardSteps {
  Step interior, join, boundary;
};

// Runs `interior`, then joins the halo as soon as the messages of `hop` have arrived, then runs the
// steps that need the halo.
Status consume(Group& group, const Hop& hop, bool sources, const ForwardSteps& steps,
               CUstream stream) {
  LATHE_TRY(run(steps.interior, stream));
  if (sources) {
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
  // All parts between a part and its nearest source are empty.
  out.aligned = out.sources.size() == 1;
  return out;
}

Status conv_halo_forward(Group& group, const HaloPlan& plan, const HaloBuffers& rows, Step pack,
                         Step interior, Step join, Step boundary, CUstream stream) {
  HaloMessages messages;
  lay_out(rows, plan.destinations, plan.sources, &messages);
  const Hop& hop = messages.hop;
  const bool sources = !plan.sources.empty();
  if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
  if (is_empty(hop)) return consume(group, hop, sources, {interior, join, boundary}, stream);
  Status status = post_after(group, hop, stream);
  if (status.ok()) status = consume(group, hop, sources, {interior, join, boundary}, stream);
  if (status.ok() && sources) return status;  // joined before `join`
  return joined(group, status, stream);
}

Status conv_halo_backward(Group& group, const HaloPlan& plan, const HaloBuffers& rows,
                          const HaloBuffers& gradients, Step pack, Step first_half, Step join,
                          Step boundary, Step second_half, Step add, CUstream stream) {
  // Gradients travel the other way: to the ranks whose rows were received.
  HaloMessages rows_forth, gradients_back;
  lay_out(rows, plan.destinations, plan.sources, &rows_forth);
  lay_out(gradients, plan.sources, plan.destinations, &gradients_back);
  const Hop &forth = rows_forth.hop, &back = gradients_back.hop;
  const auto until_boundary = [&]() -> Status {
    if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
    LATHE_TRY(post_after(group, forth, stream));
    return consume(group, forth, !plan.sources.empty(), {first_half, join, boundary}, stream);
  };
  const auto from_boundary = [&]() -> Status {
    LATHE_TRY(post_after(group, back, stream));
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
  const auto sum = [&](const Nccl& nccl, ncclComm_t comm, CUstream exchange) {
    return nccl.ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, exchange);
  };
  const Collective what{"ncclAllReduce", 0, count * sizeof(float)};
  return joined(group, post(group, what, sum), stream);
}

}  // namespace lathe
