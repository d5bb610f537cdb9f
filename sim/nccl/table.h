// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file lists the driver entry points that this library uses, found in whichever libcuda.so.1
// the process has.
#pragma once

#include <cuda.h>

#include <string>

#include "sim/driver/report/timeline_export.h"

// The header names only a later version of this function.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                              cuuint64_t* id, CUgraph* graph,
                                              const CUgraphNode** nodes, size_t* count);

namespace sim::nccl {

#define SIM_NCCL_DRIVER(X)                                     \
  X(init, cuInit)                                              \
  X(get_error_name, cuGetErrorName)                            \
  X(ctx_get_current, cuCtxGetCurrent)                          \
  X(ctx_push_current, cuCtxPushCurrent_v2)                     \
  X(ctx_pop_current, cuCtxPopCurrent_v2)                       \
  X(ctx_get_device, cuCtxGetDevice)                            \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain)       \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease_v2)  \
  X(stream_create, cuStreamCreate)                             \
  X(stream_destroy, cuStreamDestroy_v2)                        \
  X(stream_is_capturing, cuStreamIsCapturing)                  \
  X(stream_capture_info, cuStreamGetCaptureInfo_v2)            \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode)  \
  X(user_object_create, cuUserObjectCreate)                    \
  X(graph_retain_user_object, cuGraphRetainUserObject)         \
  X(stream_wait_event, cuStreamWaitEvent)                      \
  X(stream_wait_value32, cuStreamWaitValue32_v2)               \
  X(launch_host_func, cuLaunchHostFunc)                        \
  X(event_create, cuEventCreate)                               \
  X(event_destroy, cuEventDestroy_v2)                          \
  X(event_record, cuEventRecord)                               \
  X(event_query, cuEventQuery)                                 \
  X(mem_alloc, cuMemAlloc_v2)                                  \
  X(mem_free, cuMemFree_v2)                                    \
  X(mem_host_alloc, cuMemHostAlloc)                            \
  X(mem_free_host, cuMemFreeHost)                              \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2) \
  X(memcpy_async, cuMemcpyAsync)                               \
  X(memcpy_peer_async, cuMemcpyPeerAsync)                      \
  X(pointer_get_attribute, cuPointerGetAttribute)

// The simulator's driver has these functions beside them; they are null on any other driver.
#define SIM_NCCL_TIMELINE(X)              \
  X(message_time, lathe_sim_message_time) \
  X(event_time, lathe_sim_event_time)     \
  X(now, lathe_sim_now)                   \
  X(arrival, lathe_sim_arrival)           \
  X(stream_rank, lathe_sim_stream_rank)   \
  X(thread_rank, lathe_sim_thread_rank)   \
  X(hide_stream, lathe_sim_hide_stream)

struct Table {
#define SIM_NCCL_MEMBER(name, symbol) decltype(&symbol) name = nullptr;
  SIM_NCCL_DRIVER(SIM_NCCL_MEMBER)
  SIM_NCCL_TIMELINE(SIM_NCCL_MEMBER)
#undef SIM_NCCL_MEMBER
};

// Opens the driver once: LATHE_SIM_DRIVER, or the libcuda.so.1 that is loaded, or the one the
// loader finds. Returns null and fills `what` if there is none.
const Table* driver_table(std::string* what);

// Returns the table once it is known to be there: every communicator has been made with it.
const Table& cu();

// Returns text such as "CUDA_ERROR_ILLEGAL_ADDRESS".
std::string cuda_name(CUresult error);

// Makes a context current for a scope.
class Current {
 public:
  explicit Current(CUcontext context) { pushed_ = cu().ctx_push_current(context) == CUDA_SUCCESS; }
  ~Current() {
    CUcontext popped = nullptr;
    if (pushed_) cu().ctx_pop_current(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace sim::nccl
