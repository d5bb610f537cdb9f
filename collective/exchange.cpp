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

// Makes one NCCL group of all messages. After a message that failed no other is posted.
ncclResult_t post_group(const Group& group, const Hop& hop) {
  const Nccl& nccl = group.nccl();
  const ncclResult_t begun = nccl.ncclGroupStart();
  if (begun != ncclSuccess) return begun;
  ncclResult_t result = ncclSuccess;
  const auto failed = [&] { return result != ncclSuccess && result != ncclInProgress; };
  const auto post_all = [&](std::span<const Transfer> transfers, const auto& call) {
    for (const Transfer& each : transfers) {
      for (int64_t i = 0; i < each.count && each.bytes > 0 && !failed(); ++i) {
        result = call(each.at(i), each.bytes, ncclInt8, each.peer, group.comm(),
                      group.exchange_stream());
      }
    }
  };
  post_all(hop.receives, nccl.ncclRecv);
  post_all(hop.sends, nccl.ncclSend);
  // A group that was begun must be ended, or the next call of this thread joins it.
  const ncclResult_t ended = nccl.ncclGroupEnd();
  return failed() ? result : ended;
}

}  // namespace

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
  LATHE_TRY(group.complete(post_group(group, hop), hop.name));
  return group.posted(posting_of(hop));
}

Status post_after(Group& group, const Hop& hop, CUstream stream) {
  if (is_empty(hop)) return {};
  LATHE_TRY(group.usable());
  LATHE_TRY(check_hop(group, hop));
  LATHE_TRY(group.exchange_after(stream));
  return post(group, hop);
}

Status Exchange::post(const Hop& hop) {
  if (is_empty(hop)) return {};
  waiting_ = true;  // whatever becomes of it
  return post_after(group_, hop, stream_);
}

Status Exchange::arrive() {
  if (!waiting_) return {};
  waiting_ = false;
  return group_.stream_after_exchange(stream_);
}

Status Exchange::joined(Status status) {
  const Status join = arrive();
  return status.ok() ? join : status;
}

namespace {

Status all_reduce(Group& group, void* data, size_t count, ncclDataType_t type, size_t bytes,
                  CUstream stream) {
  if (group.world() == 1 || count == 0) return {};
  LATHE_TRY(group.usable());
  LATHE_TRY(group.exchange_after(stream));
  const auto sum = [&](const Nccl& nccl, ncclComm_t comm, CUstream exchange) {
    return nccl.ncclAllReduce(data, data, count, type, ncclSum, comm, exchange);
  };
  const Collective what{"ncclAllReduce", 0, count * bytes};
  const Status status = post(group, what, sum);
  const Status joined = group.stream_after_exchange(stream);
  return status.ok() ? joined : status;
}

}  // namespace

Status all_reduce_f32(Group& group, void* data, size_t count, CUstream stream) {
  return all_reduce(group, data, count, ncclFloat32, sizeof(float), stream);
}

Status all_reduce_i64(Group& group, void* data, size_t count, CUstream stream) {
  return all_reduce(group, data, count, ncclInt64, sizeof(int64_t), stream);
}

}  // namespace lathe
