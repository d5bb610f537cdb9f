// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles groups: a thread's operations between ncclGroupStart and ncclGroupEnd are
// enqueued together.
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

// Holds what a rank puts into one stream in one go. It is matched either at once or when the stream
// comes to it.
struct Held {
  LaunchPtr launch;
  Arrival* arrival = nullptr;
};
using Launches = std::map<std::pair<ncclComm*, CUstream>, Held>;

// A stream could not be held: no stream of the group may be.
ncclResult_t give_up(State& state, const Launches& launches, ncclComm& comm, CUresult result) {
  for (const auto& [key, held] : launches) {
    if (held.launch) release(*held.launch);
  }
  return cuda_failure(state, comm, result);
}

ncclResult_t check_stream(State& state, const Queued& call, bool* captured) {
  Current current(call.comm->context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cu().stream_is_capturing(call.stream, &status);
  if (result == CUDA_ERROR_INVALID_HANDLE) {
    return fail_call(ncclInvalidArgument, "stream is not a live stream");
  }
  if (result != CUDA_SUCCESS) return cuda_failure(state, *call.comm, result);
  *captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
  if (status != CU_STREAM_CAPTURE_STATUS_INVALIDATED) return ncclSuccess;
  return fail_call(ncclInvalidUsage, "the stream's capture is invalidated");
}

// Beside a graph of the communicator, calls and replays are told apart by the order in which the
// device comes to them.
CUresult make_held(State& state, const Queued& call, bool captured, Held* out) {
  Current current(call.comm->context);
  if (captured || call.comm->arrivals > 0) {
    return make_arrival(state, call.comm, call.stream, captured, &out->arrival);
  }
  return make_launch(state, call.comm, call.stream, &out->launch);
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

void begin(State& state, ncclComm& comm, const Call& call, const LaunchPtr& launch) {
  Part part;
  part.rank = comm.rank;
  part.call = call;
  part.call.sequence = comm.operations++;
  part.launch = launch;
  note_call(*launch, part.call);
  part.since = Clock::now();
  comm.last = describe(part.call);
  match(state, *comm.clique, std::move(part));
}

// One launch per communicator and stream. All of them are marked ready before any stream is held,
// so that several ranks may share a stream within a group.
ncclResult_t enqueue(State& state, std::vector<Queued> calls) {
  std::map<CUstream, bool> captured;
  for (const Queued& call : calls) {
    if (!is_live(state, call.comm)) {
      return fail_call(ncclInvalidUsage, "a communicator was destroyed inside a group");
    }
    const Clique& clique = *call.comm->clique;
    if (clique.error != ncclSuccess) return fail_call(clique.error, clique.text);
    const ncclResult_t result = check_stream(state, call, &captured[call.stream]);
    if (result != ncclSuccess) return result;
  }
  Launches launches;
  for (const Queued& call : calls) {
    Held& held = launches[{call.comm, call.stream}];
    if (!held.launch && held.arrival == nullptr) {
      const CUresult result = make_held(state, call, captured[call.stream], &held);
      if (result != CUDA_SUCCESS) return give_up(state, launches, *call.comm, result);
    }
    if (held.arrival != nullptr) {
      add_call(*held.arrival, call.call);
    } else {
      ++held.launch->remaining;
    }
  }
  for (auto& [key, held] : launches) {
    Current current(key.first->context);
    const CUresult result =
        held.arrival != nullptr ? hold_stream(*held.arrival) : hold_stream(*held.launch);
    if (result != CUDA_SUCCESS) return give_up(state, launches, *key.first, result);
  }
  std::erase_if(calls, [&](const Queued& call) {
    return launches[{call.comm, call.stream}].arrival != nullptr;
  });
  note_traffic(calls);
  for (const Queued& call : calls) {
    const Held& held = launches[{call.comm, call.stream}];
    begin(state, *call.comm, call.call, held.launch);
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
