// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks and posts the messages of a hop.
#include "collective/exchange.h"

#include <algorithm>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

Status check_hop(const Group& group, const Hop& hop) {
  for (const auto& transfers : {hop.sends, hop.receives}) {
    for (const Transfer& transfer : transfers) {
      if (transfer.total() == 0) continue;
      if (transfer.peer < 0 || transfer.peer >= group.world() || transfer.peer == group.rank()) {
        return invalid(text(hop.name, " of rank ", group.rank(), " names rank ", transfer.peer,
                            ", the group has ", group.world()));
      }
      if (transfer.data == nullptr) {
        return invalid(text(hop.name, " of rank ", group.rank(), ": the buffer for rank ",
                            transfer.peer, " is null"));
      }
    }
  }
  return {};
}

// Describes the hop for the watchdog's message, in case the hop never ends.
Posting posting_of(const Hop& hop) {
  Posting out;
  out.step = hop.step;
  for (const auto& transfers : {hop.sends, hop.receives}) {
    for (const Transfer& each : transfers) {
      out.bytes += each.total();
      if (each.total() > 0) out.peer = each.peer;
    }
  }
  return out;
}

}  // namespace

void Messages::send(int peer, const void* data, size_t bytes) {
  if (bytes == 0 || failed()) return;
  result_ =
      group_.nccl().ncclSend(data, bytes, ncclInt8, peer, group_.comm(), group_.exchange_stream());
}

void Messages::receive(int peer, void* data, size_t bytes) {
  if (bytes == 0 || failed()) return;
  result_ =
      group_.nccl().ncclRecv(data, bytes, ncclInt8, peer, group_.comm(), group_.exchange_stream());
}

bool is_empty(const Hop& hop) {
  const auto nothing = [](const Transfer& transfer) { return transfer.total() == 0; };
  return std::all_of(hop.sends.begin(), hop.sends.end(), nothing) &&
         std::all_of(hop.receives.begin(), hop.receives.end(), nothing);
}

Status post(Group& group, const Hop& hop) {
  if (is_empty(hop)) return {};
  const Group::Use use(group);
  LATHE_TRY(use.status());
  LATHE_TRY(check_hop(group, hop));
  const ncclResult_t told = in_group(group, [&](Messages& messages) {
    for (const Transfer& from : hop.receives) {
      for (int64_t i = 0; i < from.count; ++i) messages.receive(from.peer, from.at(i), from.bytes);
    }
    for (const Transfer& to : hop.sends) {
      for (int64_t i = 0; i < to.count; ++i) messages.send(to.peer, to.at(i), to.bytes);
    }
  });
  LATHE_TRY(group.complete(told, hop.name));
  return group.posted(posting_of(hop));
}

Status post_after(Group& group, const Hop& hop, CUstream stream) {
  if (is_empty(hop)) return {};
  LATHE_TRY(group.usable());
  LATHE_TRY(check_hop(group, hop));
  LATHE_TRY(group.exchange_after(stream));
  return post(group, hop);
}

}  // namespace lathe
