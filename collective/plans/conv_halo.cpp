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

struct ForwardSteps {
  Step interior, join, boundary;
};

// Runs `interior`, then joins the halo as soon as its messages have arrived, then runs the steps
// that need the halo.
Status consume(Exchange* exchange, bool sources, const ForwardSteps& steps, CUstream stream) {
  LATHE_TRY(run(steps.interior, stream));
  if (sources) {
    LATHE_TRY(exchange->arrive());
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
  Exchange exchange(group, stream);
  const auto steps = [&]() -> Status {
    if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
    LATHE_TRY(exchange.post(messages.hop));
    return consume(&exchange, !plan.sources.empty(), {interior, join, boundary}, stream);
  };
  return exchange.joined(steps());
}

Status conv_halo_backward(Group& group, const HaloPlan& plan, const HaloBuffers& rows,
                          const HaloBuffers& gradients, Step pack, Step first_half, Step join,
                          Step boundary, Step second_half, Step add, CUstream stream) {
  // Gradients travel the other way: to the ranks whose rows were received.
  HaloMessages forth, back;
  lay_out(rows, plan.destinations, plan.sources, &forth);
  lay_out(gradients, plan.sources, plan.destinations, &back);
  Exchange exchange(group, stream);
  const auto steps = [&]() -> Status {
    if (!plan.destinations.empty()) LATHE_TRY(run(pack, stream));
    LATHE_TRY(exchange.post(forth.hop));
    LATHE_TRY(consume(&exchange, !plan.sources.empty(), {first_half, join, boundary}, stream));
    LATHE_TRY(exchange.post(back.hop));
    return run(second_half, stream);
  };
  LATHE_TRY(exchange.joined(steps()));
  return plan.destinations.empty() ? Status() : run(add, stream);
}

}  // namespace lathe
