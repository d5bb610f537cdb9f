// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the library's one instance, errors, and the flags that streams wait for.
#include "sim/nccl/state.h"

#include <algorithm>

#include "sim/driver/environment.h"
#include "sim/driver/forked.h"
#include "sim/driver/per_thread.h"

namespace sim::nccl {
namespace {

struct LastError {
  std::string text = "no error";
};

// With the context current. Allocating is no part of a capture that this thread may have begun.
CUresult add_page(ncclComm* comm) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cu().exchange_capture_mode(&mode);
  void* flags = nullptr;
  const CUresult result = cu().mem_host_alloc(&flags, kFlagsPerPage * sizeof(uint32_t),
                                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  cu().exchange_capture_mode(&mode);
  if (result != CUDA_SUCCESS) return result;
  auto page = std::make_shared<Page>();
  page->context = comm->context;
  page->flags = static_cast<uint32_t*>(flags);
  std::fill(page->flags, page->flags + kFlagsPerPage, 0u);
  for (size_t at = 0; at < kFlagsPerPage; ++at) comm->free_flags.emplace_back(page->flags + at, 0u);
  comm->pages.push_back(std::move(page));
  return CUDA_SUCCESS;
}

}  // namespace

// Any thread may still be inside a call when static destructors run, so it is never destroyed.
State& State::get() {
  static State* state = [] {
    refuse_forks();
    return new State;
  }();
  return *state;
}

// driver_table() has refused what is not allowed.
std::chrono::milliseconds timeout() {
  static const std::chrono::milliseconds value = [] {
    std::string unused;
    return read_timeout(&unused);
  }();
  return value;
}

std::chrono::milliseconds read_timeout(std::string* what) {
  uint64_t given = 30000;
  environment_number("LATHE_SIM_NCCL_TIMEOUT_MS", 1, INT32_MAX, &given, what);
  return std::chrono::milliseconds(given);
}

ncclResult_t fail_call(ncclResult_t code, const std::string& text) {
  per_thread<LastError>().text = text;
  return code;
}

const char* last_error_text() { return per_thread<LastError>().text.c_str(); }

bool is_live(State& state, ncclComm* comm) { return state.comms.count(comm) != 0; }

Page::~Page() {
  Current current(context);
  cu().mem_free_host(flags);
}

// Takes a flag and the value to wait for.
CUresult take_flag(ncclComm* comm, std::pair<uint32_t*, uint32_t>* out) {
  const CUresult result = comm->free_flags.empty() ? add_page(comm) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  *out = comm->free_flags.back();
  ++out->second;
  comm->free_flags.pop_back();
  return CUDA_SUCCESS;
}

// With the communicator's context current.
CUresult make_launch(State& state, ncclComm* comm, CUstream stream, LaunchPtr* out,
                     bool with_event) {
  std::pair<uint32_t*, uint32_t> flag;
  CUresult result = take_flag(comm, &flag);
  if (result != CUDA_SUCCESS) return result;
  auto launch = std::make_shared<Launch>();
  launch->comm = comm;
  launch->stream = stream;
  launch->thread = std::this_thread::get_id();
  launch->order = state.launches++;
  launch->flag = flag.first;
  launch->value = flag.second;
  result = cu().event_create(&launch->passed, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS && with_event) {
    result = cu().event_create(&launch->ready, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cu().event_record(launch->ready, stream);
  }
  if (result != CUDA_SUCCESS) {
    if (launch->ready != nullptr) cu().event_destroy(launch->ready);
    if (launch->passed != nullptr) cu().event_destroy(launch->passed);
    comm->free_flags.emplace_back(flag.first, flag.second - 1);
    return result;
  }
  comm->launches.push_back(launch);
  *out = launch;
  return CUDA_SUCCESS;
}

CUresult hold_stream(Launch& launch) {
  CUdeviceptr address = 0;
  CUresult result = cu().mem_host_get_device_pointer(&address, launch.flag, 0);
  if (result == CUDA_SUCCESS) {
    result =
        cu().stream_wait_value32(launch.stream, address, launch.value, CU_STREAM_WAIT_VALUE_GEQ);
  }
  return result == CUDA_SUCCESS ? cu().event_record(launch.passed, launch.stream) : result;
}

void release(Launch& launch) {
  if (launch.released) return;
  launch.released = true;
  note_release(launch);
  __atomic_store_n(launch.flag, launch.value, __ATOMIC_RELEASE);
}

void fail_clique(State& state, Clique& clique, ncclResult_t code, const std::string& text) {
  if (clique.error != ncclSuccess) return;
  clique.error = code;
  clique.text = text;
  clique.collectives.clear();
  clique.sends.clear();
  clique.recvs.clear();
  std::erase_if(state.tasks, [&](const std::shared_ptr<Task>& task) {
    return task->clique == &clique && !task->running;
  });
  for (ncclComm* comm : clique.ranks) {
    if (comm == nullptr) continue;
    for (const LaunchPtr& launch : comm->launches) {
      launch->failed = true;
      if (launch->running == 0) release(*launch);
    }
  }
  state.changed.notify_all();
  state.work.notify_all();
}

ncclResult_t cuda_failure(State& state, const ncclComm& comm, CUresult result) {
  const std::string text = "rank " + std::to_string(comm.rank) + ": " + cuda_name(result);
  fail_clique(state, *comm.clique, ncclUnhandledCudaError, text);
  return fail_call(ncclUnhandledCudaError, text);
}

}  // namespace sim::nccl
