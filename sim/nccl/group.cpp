// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Groups: a thread's operations between ncclGroupStart and ncclGroupEnd are enqueued together.
#include "sim/driver/per_thread.h"
#include "sim/nccl/export.h"
#include "sim/nccl/meet.h"
#include "sim/nccl/traffic.h"

namespace sim::nccl {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Queued> calls;
  std::vector<Waiter> waiters;
};

Group& group() { return per_thread<Group>(); }

using Launches = std::map<std::pair<ncclComm*, CUstream>, LaunchPtr>;

// A stream could not be held: no stream of the group may be.
ncclResult_t give_up(State& state, const Launches& launches, ncclComm& comm, CUresult result) {
  for (const auto& [key, launch] : launches) {
    if (launch) release(*launch);
  }
  return cuda_failure(state, comm, result);
}

ncclResult_t check_stream(State& state, const Queued& call) {
  Current current(call.comm->context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cu().stream_is_capturing(call.stream, &status);
  if (result == CUDA_ERROR_INVALID_HANDLE) {
    return fail_call(ncclInvalidArgument, "stream is not a live stream");
  }
  if (result != CUDA_SUCCESS) return cuda_failure(state, *call.comm, result);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return ncclSuccess;
  return fail_call(ncclInvalidUsage,
                   "the stream is capturing; this library's operations cannot "
                   "be captured");
}

}  // namespace

bool in_group() { return group().depth > 0; }

ncclResult_t wait_or_defer(State& state, Lock& lock, Waiter waiter) {
  if (!in_group()) return waiter(state, lock);
  group().waiters.push_back(std::move(waiter));
  return ncclSuccess;
}

ncclResult_t queue(State& state, Queued call) {
  if (!in_group()) return enqueue(state, {std::move(call)});
  group().calls.push_back(std::move(call));
  return ncclSuccess;
}

// One launch per communicator and stream. All of them are marked ready before any stream is held,
// so that several ranks may share a stream within a group.
ncclResult_t enqueue(State& state, std::vector<Queued> calls) {
  for (const Queued& call : calls) {
    if (!is_live(state, call.comm)) {
      return fail_call(ncclInvalidUsage, "a communicator was destroyed inside a group");
    }
    const Clique& clique = *call.comm->clique;
    if (clique.error != ncclSuccess) return fail_call(clique.error, clique.text);
    const ncclResult_t result = check_stream(state, call);
    if (result != ncclSuccess) return result;
  }
  Launches launches;
  for (const Queued& call : calls) {
    LaunchPtr& launch = launches[{call.comm, call.stream}];
    if (!launch) {
      Current current(call.comm->context);
      const CUresult result = make_launch(state, call.comm, call.stream, &launch);
      if (result != CUDA_SUCCESS) return give_up(state, launches, *call.comm, result);
    }
    ++launch->remaining;
  }
  for (auto& [key, launch] : launches) {
    Current current(key.first->context);
    const CUresult result = hold_stream(*launch);
    if (result != CUDA_SUCCESS) return give_up(state, launches, *key.first, result);
  }
  note_traffic(calls);
  for (Queued& call : calls) {
    Part part;
    part.rank = call.comm->rank;
    part.call = call.call;
    part.call.sequence = call.comm->operations++;
    part.launch = launches[{call.comm, call.stream}];
    note_call(*part.launch, part.call);
    part.since = Clock::now();
    call.comm->last = describe(part.call);
    match(state, *call.comm->clique, std::move(part));
  }
  state.work.notify_all();
  return ncclSuccess;
}

// Remembers the first error of a call inside a group; ncclGroupEnd then launches nothing.
ncclResult_t note(ncclResult_t result) {
  Group& mine = group();
  if (mine.depth > 0 && mine.error == ncclSuccess) mine.error = result;
  return result;
}

}  // namespace sim::nccl

using namespace sim::nccl;

SIM_NCCL_API ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

SIM_NCCL_API ncclGroupEnd() {
  return guarded([]() -> ncclResult_t {
    Group& mine = group();
    if (mine.depth == 0) {
      return fail_call(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    }
    if (--mine.depth > 0) return ncclSuccess;
    const std::vector<Waiter> waiters = std::move(mine.waiters);
    std::vector<Queued> calls = std::move(mine.calls);
    ncclResult_t result = mine.error;
    mine = Group();
    State& state = State::get();
    Lock lock(state.mutex);
    for (const Waiter& waiter : waiters) {
      const ncclResult_t waited = waiter(state, lock);
      if (result == ncclSuccess) result = waited;
    }
    if (result != ncclSuccess || calls.empty()) return result;
    return enqueue(state, std::move(calls));
  });
}
