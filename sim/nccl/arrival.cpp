// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles operations that meet their partners when their stream comes to them. A graph
// has them: a capture records a host function and a wait for a flag, and at each replay the
// function lowers the flag and rings, upon which the operations are matched as if they were called
// then. Calls beside a graph of the same communicator have to ring too, or they would overtake its
// replays.
//
// Host functions run on a thread of the driver, which must not wait: they touch the inbox alone,
// whose lock is held for nothing else. A user object of the graph says when nothing can ring again.
#include <atomic>

#include "sim/nccl/state.h"
#include "sim/nccl/traffic.h"

namespace sim::nccl {

struct Arrival {
  ncclComm* comm = nullptr;  // null: gone. Guarded by State::mutex
  std::shared_ptr<Page> page;
  CUstream stream = nullptr;
  uint32_t* flag = nullptr;
  uint32_t value = 0;
  bool captured = false;
  LaunchPtr launch;  // of a call; a replay makes its own
  std::vector<Call> calls;
  std::atomic<bool> gone{false};  // nobody answers any more: streams go on at once
};

namespace {

struct Note {
  Arrival* arrival;
  bool over;     // nothing can ring again
  double ready;  // model time, microseconds
};

struct Inbox {
  std::mutex mutex;
  std::vector<Note> notes;
};

Inbox& inbox() {
  static auto* const made = new Inbox;
  return *made;
}

void put(Arrival* arrival, bool over) {
  {
    const std::lock_guard lock(inbox().mutex);
    inbox().notes.push_back({arrival, over, over || cu().now == nullptr ? 0 : cu().now()});
  }
  State::get().work.notify_all();
}

void raise(const Arrival& arrival, uint32_t value) {
  __atomic_store_n(arrival.flag, value, __ATOMIC_SEQ_CST);
}

// The stream has come to the operations: this rank's buffers may be used.
void CUDA_CB on_arrival(void* data) {
  auto* arrival = static_cast<Arrival*>(data);
  if (arrival->captured) raise(*arrival, arrival->value - 1);
  if (arrival->gone.load()) {
    raise(*arrival, arrival->value);
    if (arrival->captured) return;
  }
  put(arrival, false);
}

void CUDA_CB on_end(void* data) { put(static_cast<Arrival*>(data), true); }

void forget(State& state, Arrival* arrival) {
  state.arrivals.erase(arrival);
  if (ncclComm* comm = arrival->comm) {
    --comm->arrivals;
    if (arrival->captured) comm->free_flags.emplace_back(arrival->flag, arrival->value);
  }
  delete arrival;
}

void arrive(State& state, Arrival& arrival, double ready) {
  ncclComm* comm = arrival.comm;
  if (comm == nullptr || comm->clique->error != ncclSuccess) {
    if (arrival.captured) raise(arrival, arrival.value);
    return;  // a call's launch was released with the others
  }
  LaunchPtr launch = arrival.launch;
  if (!launch) {
    launch = std::make_shared<Launch>();
    launch->comm = comm;
    launch->order = state.launches++;
    launch->flag = arrival.flag;
    launch->value = arrival.value;
    comm->launches.push_back(launch);
  }
  launch->is_ready = true;
  launch->travel.ready = ready;
  launch->remaining = static_cast<int>(arrival.calls.size());
  std::vector<Queued> queued;
  for (const Call& call : arrival.calls) queued.push_back({comm, call, arrival.stream});
  note_traffic(queued);
  for (const Call& call : arrival.calls) begin(state, *comm, call, launch);
}

// The graph tells when it and all that was made of it is gone.
CUresult keep_with_graph(Arrival* arrival) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  CUresult result =
      cu().stream_capture_info(arrival->stream, &status, nullptr, &graph, nullptr, nullptr);
  if (result != CUDA_SUCCESS) return result;
  CUuserObject object = nullptr;
  result = cu().user_object_create(&object, arrival, on_end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (result != CUDA_SUCCESS) return result;
  return cu().graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

}  // namespace

CUresult make_arrival(State& state, ncclComm* comm, CUstream stream, bool captured, Arrival** out) {
  auto arrival = std::make_unique<Arrival>();
  arrival->comm = comm;
  arrival->stream = stream;
  arrival->captured = captured;
  CUresult result = CUDA_SUCCESS;
  if (captured) {
    std::pair<uint32_t*, uint32_t> flag;
    result = take_flag(comm, &flag);
    if (result != CUDA_SUCCESS) return result;
    arrival->flag = flag.first;
    arrival->value = flag.second;
    result = keep_with_graph(arrival.get());
  } else {
    result = make_launch(state, comm, stream, &arrival->launch, false);
    if (result != CUDA_SUCCESS) return result;
    arrival->flag = arrival->launch->flag;
    arrival->value = arrival->launch->value;
  }
  for (const auto& page : comm->pages) {
    if (arrival->flag >= page->flags && arrival->flag < page->flags + kFlagsPerPage) {
      arrival->page = page;
    }
  }
  if (result == CUDA_SUCCESS) {
    result = cu().launch_host_func(stream, on_arrival, arrival.get());
  }
  ++comm->arrivals;
  Arrival* made = arrival.release();
  state.arrivals.insert(made);
  if (result == CUDA_SUCCESS) *out = made;
  return result;
}

void add_call(Arrival& arrival, const Call& call) { arrival.calls.push_back(call); }

CUresult hold_stream(Arrival& arrival) {
  if (arrival.launch) return hold_stream(*arrival.launch);
  CUdeviceptr address = 0;
  const CUresult result = cu().mem_host_get_device_pointer(&address, arrival.flag, 0);
  if (result != CUDA_SUCCESS) return result;
  return cu().stream_wait_value32(arrival.stream, address, arrival.value, CU_STREAM_WAIT_VALUE_GEQ);
}

bool take_arrivals(State& state) {
  std::vector<Note> notes;
  {
    const std::lock_guard lock(inbox().mutex);
    notes.swap(inbox().notes);
  }
  for (const Note& note : notes) {
    if (!note.over) arrive(state, *note.arrival, note.ready);
    if (note.over || !note.arrival->captured) forget(state, note.arrival);
  }
  return !notes.empty();
}

void end_arrivals(State& state, ncclComm* comm) {
  for (Arrival* arrival : state.arrivals) {
    if (arrival->comm != comm) continue;
    arrival->comm = nullptr;
    arrival->gone.store(true);
    raise(*arrival, arrival->value);
  }
}

}  // namespace sim::nccl
