// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the tables, and the replay of what was written down.
#include "tests/collective/fakes.h"

#include <cstring>

namespace fakes {
namespace {

uint64_t next_handle = 1, next_record = 1;
template <typename T>
T handle() {
  return reinterpret_cast<T>(next_handle++ << 4);
}
const auto kContext = reinterpret_cast<CUcontext>(uintptr_t{0x1000});

void violate(const std::string& what) {
  if (current != nullptr) current->violations.push_back(what);
}
Rank* rank_of(ncclComm_t comm) { return reinterpret_cast<Rank*>(comm); }

CUresult create_stream(CUstream* out, unsigned flags) {
  if (flags != CU_STREAM_NON_BLOCKING) violate("the exchange stream waits for the default stream");
  *out = handle<CUstream>();
  ++streams_alive;
  return CUDA_SUCCESS;
}
CUresult create_event(CUevent* out, unsigned flags) {
  if (flags != CU_EVENT_DISABLE_TIMING) violate("an event takes the time");
  *out = handle<CUevent>();
  ++events_alive;
  return CUDA_SUCCESS;
}
CUresult record(CUevent event, CUstream stream) {
  if (silent || current->agreeing) return CUDA_SUCCESS;
  Op op;
  op.kind = Op::record;
  op.record_id = current->recorded[event] = next_record++;
  current->streams[stream].push_back(op);
  return CUDA_SUCCESS;
}
CUresult wait_event(CUstream stream, CUevent event, unsigned) {
  if (silent) return CUDA_SUCCESS;
  Op op;
  op.kind = Op::wait;
  op.record_id = current->recorded[event];
  current->streams[stream].push_back(op);
  return CUDA_SUCCESS;
}

// Begins a call that may keep the communicator busy for a while.
ncclResult_t begin_busy(Rank* rank) {
  rank->busy = rank->behaviour.busy_polls;
  return rank->busy > 0 || rank->behaviour.never_ready ? ncclInProgress : ncclSuccess;
}
ncclResult_t async_error(ncclComm_t comm, ncclResult_t* out) {
  Rank* rank = rank_of(comm);
  if (rank->behaviour.never_ready || rank->busy-- > 0) {
    *out = ncclInProgress;
  } else {
    *out = rank->behaviour.async;
  }
  return ncclSuccess;
}
ncclResult_t init(ncclComm_t* out, int world, ncclUniqueId, int place, ncclConfig_t* config) {
  if (config->blocking != 0) violate("a blocking communicator cannot be given up");
  if (current->behaviour.init != ncclSuccess) return current->behaviour.init;
  current->world = world;
  current->rank = place;
  current->initialised = true;
  *out = reinterpret_cast<ncclComm_t>(current);
  return begin_busy(current);
}
ncclResult_t finalize(ncclComm_t comm) {
  rank_of(comm)->finalized = true;
  return begin_busy(rank_of(comm));
}
ncclResult_t message(bool sends, const void* data, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, CUstream stream) {
  if (silent) return ncclSuccess;
  Rank* rank = rank_of(comm);
  if (rank->depth != 1) violate("a message outside of a group");
  if (rank->open_stream != nullptr && rank->open_stream != stream) violate("two streams in a hop");
  const size_t size = type == ncclInt8 || type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 0;
  if (size == 0) violate("a message of an unknown type");
  rank->open_stream = stream;
  rank->open.push_back({sends, peer, const_cast<void*>(data), count * size, false});
  return ncclSuccess;
}
ncclResult_t group_start() {
  ++current->depth;
  return ncclSuccess;
}
ncclResult_t group_end() {
  if (--current->depth != 0) violate("groups that do not pair");
  if (silent) return ncclSuccess;
  if (current->open.empty()) violate("a group without messages");
  Op op;
  op.kind = Op::hop;
  op.messages.swap(current->open);
  current->streams[current->open_stream].push_back(op);
  current->open_stream = nullptr;
  ++current->groups;
  return begin_busy(current);
}

template <typename... Args>
CUresult host_wait(Args...) {
  violate("the host waits for the device");
  return CUDA_SUCCESS;
}

// Gathers what ranks compare: nobody else runs, so the answer is the same from all of them.
ncclResult_t gather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm, CUstream) {
  rank_of(comm)->agreeing = true;
  return begin_busy(rank_of(comm));
}
CUresult fetch_answer(void* to, CUdeviceptr, size_t bytes, CUstream) {
  if (!current->agreeing) violate("the host waits for the device");
  std::memset(to, 0, bytes);
  return CUDA_SUCCESS;
}
CUresult query(CUevent) {
  if (!current->agreeing) violate("the host waits for the device");
  return CUDA_SUCCESS;
}
CUresult synchronize(CUstream) {
  if (!current->agreeing) violate("the host waits for the device");
  current->agreeing = false;
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<const lathe::Driver> driver() {
  auto out = std::make_shared<lathe::Driver>();
  out->path = "a fake";
  out->cuGetErrorName = [](CUresult, const char** text) { return *text = "FAKE", CUDA_SUCCESS; };
  out->cuGetErrorString = [](CUresult, const char** text) { return *text = "", CUDA_SUCCESS; };
  out->cuDeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  out->cuDeviceGet = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
  out->cuDeviceGetName = [](char* name, int, CUdevice) {
    return std::strcpy(name, "fake"), CUDA_SUCCESS;
  };
  out->cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    return *value = 1, CUDA_SUCCESS;
  };
  out->cuDeviceTotalMem = [](size_t* bytes, CUdevice) { return *bytes = 1, CUDA_SUCCESS; };
  out->cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = kContext, CUDA_SUCCESS;
  };
  out->cuDevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
  out->cuCtxGetCurrent = [](CUcontext* context) { return *context = kContext, CUDA_SUCCESS; };
  out->cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  out->cuCtxPopCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  out->cuCtxSynchronize = host_wait<>;
  out->cuStreamCreate = create_stream;
  out->cuStreamDestroy = [](CUstream) { return --streams_alive, CUDA_SUCCESS; };
  out->cuStreamSynchronize = synchronize;
  out->cuStreamWaitEvent = wait_event;
  out->cuEventCreate = create_event;
  out->cuEventDestroy = [](CUevent) { return --events_alive, CUDA_SUCCESS; };
  out->cuEventRecord = record;
  out->cuEventQuery = query;
  // Captured exchanges are not watched, so that what is written down is the schedule alone.
  out->cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_SUCCESS;
  };
  out->cuEventSynchronize = host_wait<CUevent>;
  out->cuMemAlloc = [](CUdeviceptr* out_address, size_t) {
    return *out_address = 0x7000000000, CUDA_SUCCESS;
  };
  out->cuMemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
  out->cuMemcpyHtoDAsync = [](CUdeviceptr, const void*, size_t, CUstream) { return CUDA_SUCCESS; };
  out->cuMemcpyDtoHAsync = fetch_answer;
  return out;
}

std::shared_ptr<const lathe::Nccl> nccl() {
  auto out = std::make_shared<lathe::Nccl>();
  out->path = "a fake";
  out->ncclGetUniqueId = [](ncclUniqueId* id) {
    return std::memset(id->internal, 7, sizeof id->internal), ncclSuccess;
  };
  out->ncclCommInitRankConfig = init;
  out->ncclCommFinalize = finalize;
  out->ncclCommDestroy = [](ncclComm_t comm) {
    return rank_of(comm)->destroyed = true, ncclSuccess;
  };
  out->ncclCommAbort = [](ncclComm_t comm) { return rank_of(comm)->aborted = true, ncclSuccess; };
  out->ncclCommGetAsyncError = async_error;
  out->ncclCommCount = [](ncclComm_t comm, int* n) {
    return *n = rank_of(comm)->world, ncclSuccess;
  };
  out->ncclCommUserRank = [](ncclComm_t comm, int* n) {
    return *n = rank_of(comm)->rank, ncclSuccess;
  };
  out->ncclCommCuDevice = [](ncclComm_t comm, int* n) {
    return *n = rank_of(comm)->device, ncclSuccess;
  };
  out->ncclGetErrorString = [](ncclResult_t) { return "a fake error"; };
  out->ncclGetLastError = [](ncclComm_t) { return "the fake's last words"; };
  out->ncclGroupStart = group_start;
  out->ncclGroupEnd = group_end;
  out->ncclSend = [](const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream) {
    return message(true, data, count, type, peer, comm, stream);
  };
  out->ncclRecv = [](void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream) {
    return message(false, data, count, type, peer, comm, stream);
  };
  out->ncclAllGather = gather;
  out->ncclAllReduce = [](const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclRedOp_t what, ncclComm_t comm, CUstream stream) {
    if (from != to || type != ncclFloat32 || what != ncclSum) violate("not an in-place f32 sum");
    if (silent) return ncclSuccess;
    Op op;
    op.kind = Op::reduce;
    op.messages.push_back({true, 0, to, count * 4, false});
    rank_of(comm)->streams[stream].push_back(op);
    ++rank_of(comm)->reductions;
    return begin_busy(rank_of(comm));
  };
  return out;
}

std::shared_ptr<const lathe::Device> device() {
  static const auto made = lathe::Device::open(driver(), 0, "sm_90a");
  return *made;
}

void enqueue(CUstream stream, const std::string& name, std::function<void()> effect) {
  Op op;
  op.name = name;
  op.effect = std::move(effect);
  current->streams[stream].push_back(std::move(op));
}

}  // namespace fakes
