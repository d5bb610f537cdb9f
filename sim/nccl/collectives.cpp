// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the operations, checked and queued, and the small calls around them.
#include "sim/nccl/export.h"
#include "sim/nccl/meet.h"
#include "sim/nccl/reduce.h"

namespace sim::nccl {
namespace {

// These functions return whether this rank's part of a call uses the buffer.
bool uses_send(const Call& call, int rank) {
  if (call.kind == Kind::recv) return false;
  return (call.kind != Kind::broadcast && call.kind != Kind::scatter) || rank == call.root;
}

bool uses_recv(const Call& call, int rank) {
  if (call.kind == Kind::send) return false;
  return (call.kind != Kind::reduce && call.kind != Kind::gather) || rank == call.root;
}

ncclResult_t check_buffer(State& state, const ncclComm& comm, const Call& call, const char* name,
                          const void* address) {
  if (call.count == 0) return ncclSuccess;
  if (address == nullptr) {
    return fail_call(ncclInvalidArgument, std::string(name) + " is null in " + describe(call));
  }
  Current current(comm.context);
  unsigned type = 0;
  const CUresult result = cu().pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                     reinterpret_cast<CUdeviceptr>(address));
  if (result == CUDA_SUCCESS) return ncclSuccess;
  if (result != CUDA_ERROR_INVALID_VALUE) return cuda_failure(state, comm, result);
  return fail_call(ncclInvalidArgument,
                   std::string(name) + " is not device or pinned memory in " + describe(call));
}

ncclResult_t check(State& state, const ncclComm& comm, const Call& call) {
  if (bytes_of(call.type) == 0) {
    return fail_call(ncclInvalidArgument, "datatype is " + std::to_string(call.type) +
                                              "; allowed: 0 to " +
                                              std::to_string(ncclNumTypes - 1));
  }
  if (is_reduction(call.kind) && (call.op < ncclSum || call.op > ncclAvg)) {
    return fail_call(ncclInvalidArgument,
                     "op is " + std::to_string(call.op) + "; allowed: sum, prod, max, min, avg");
  }
  if (is_reduction(call.kind) && !can_reduce(call.type)) {
    return fail_call(ncclInvalidArgument, std::string(name_of(call.type)) + " cannot be reduced");
  }
  if (call.root < 0 || call.root >= comm.size) {
    return fail_call(ncclInvalidArgument, std::string(is_pair(call.kind) ? "peer" : "root") +
                                              " is " + std::to_string(call.root) +
                                              "; allowed: 0 to " + std::to_string(comm.size - 1));
  }
  if (uses_send(call, comm.rank)) {
    const ncclResult_t result = check_buffer(state, comm, call, "sendbuff", call.send);
    if (result != ncclSuccess) return result;
  }
  if (!uses_recv(call, comm.rank)) return ncclSuccess;
  return check_buffer(state, comm, call, "recvbuff", call.recv);
}

ncclResult_t submit(ncclComm* comm, CUstream stream, Call call) {
  return note(with_ready_comm(comm, [&](State& state, Lock&, ncclComm& it) -> ncclResult_t {
    if (it.clique->error != ncclSuccess) return fail_call(it.clique->error, it.clique->text);
    const ncclResult_t result = check(state, it, call);
    if (result != ncclSuccess) return result;
    return queue(state, {&it, call, reinterpret_cast<CUstream>(stream)});
  }));
}

}  // namespace
}  // namespace sim::nccl

using namespace sim::nccl;

SIM_NCCL_API ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::send, send, nullptr, count, type, ncclSum, peer});
}

SIM_NCCL_API ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  return submit(comm, stream, {Kind::recv, nullptr, recv, count, type, ncclSum, peer});
}

SIM_NCCL_API ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::all_gather, send, recv, count, type});
}

SIM_NCCL_API ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::reduce_scatter, send, recv, count, type, op});
}

SIM_NCCL_API ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::all_reduce, send, recv, count, type, op});
}

SIM_NCCL_API ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::broadcast, send, recv, count, type, ncclSum, root});
}

SIM_NCCL_API ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       CUstream stream) {
  return submit(comm, stream, {Kind::broadcast, buffer, buffer, count, type, ncclSum, root});
}

SIM_NCCL_API ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::reduce, send, recv, count, type, op, root});
}

SIM_NCCL_API ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::all_to_all, send, recv, count, type});
}

SIM_NCCL_API ncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::gather, send, recv, count, type, ncclSum, root});
}

SIM_NCCL_API ncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, CUstream stream) {
  return submit(comm, stream, {Kind::scatter, send, recv, count, type, ncclSum, root});
}

SIM_NCCL_API ncclMemAlloc(void** out, size_t bytes) {
  return guarded([&]() -> ncclResult_t {
    std::string what;
    if (out == nullptr) return fail_call(ncclInvalidArgument, "ptr is null");
    if (driver_table(&what) == nullptr) return fail_call(ncclUnhandledCudaError, what);
    CUdeviceptr address = 0;
    const CUresult result = cu().mem_alloc(&address, bytes);
    if (result != CUDA_SUCCESS) return fail_call(ncclUnhandledCudaError, cuda_name(result));
    *out = reinterpret_cast<void*>(address);
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclMemFree(void* address) {
  return guarded([&]() -> ncclResult_t {
    std::string what;
    if (driver_table(&what) == nullptr) return fail_call(ncclUnhandledCudaError, what);
    const CUresult result = cu().mem_free(reinterpret_cast<CUdeviceptr>(address));
    if (result != CUDA_SUCCESS) return fail_call(ncclUnhandledCudaError, cuda_name(result));
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclGetVersion(int* out) {
  if (out == nullptr) return fail_call(ncclInvalidArgument, "version is null");
  *out = NCCL_VERSION(2, 28, 9);  // the release whose functions it has
  return ncclSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(
    ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",       "unhandled cuda error", "system error",
                                    "internal error", "invalid argument",     "invalid usage",
                                    "remote error",   "in progress"};
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}

// The communicator's error if it has one, else this thread's last.
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(ncclComm_t comm) {
  guarded([&]() -> ncclResult_t {
    State& state = State::get();
    Lock lock(state.mutex);
    if (!is_live(state, comm) || comm->clique->error == ncclSuccess) return ncclSuccess;
    return fail_call(comm->clique->error, comm->clique->text);
  });
  return last_error_text();
}
