// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file opens the driver under test as any client does: dlopen and a table of entry points.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#define SIM_TEST_CUDA(X)                                                                         \
  X(init, cuInit)                                                                                \
  X(driver_get_version, cuDriverGetVersion)                                                      \
  X(get_error_name, cuGetErrorName)                                                              \
  X(get_error_string, cuGetErrorString)                                                          \
  X(get_proc_address, cuGetProcAddress_v2)                                                       \
  X(device_get, cuDeviceGet)                                                                     \
  X(device_get_count, cuDeviceGetCount)                                                          \
  X(device_get_name, cuDeviceGetName)                                                            \
  X(device_get_attribute, cuDeviceGetAttribute)                                                  \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain)                                         \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease_v2)                                    \
  X(device_primary_ctx_reset, cuDevicePrimaryCtxReset_v2)                                        \
  X(device_primary_ctx_get_state, cuDevicePrimaryCtxGetState)                                    \
  X(ctx_create, cuCtxCreate_v4)                                                                  \
  X(ctx_destroy, cuCtxDestroy_v2)                                                                \
  X(ctx_push_current, cuCtxPushCurrent_v2)                                                       \
  X(ctx_pop_current, cuCtxPopCurrent_v2)                                                         \
  X(ctx_set_current, cuCtxSetCurrent)                                                            \
  X(ctx_get_current, cuCtxGetCurrent)                                                            \
  X(ctx_get_device, cuCtxGetDevice)                                                              \
  X(ctx_synchronize, cuCtxSynchronize)                                                           \
  X(module_load_data, cuModuleLoadData)                                                          \
  X(module_load_data_ex, cuModuleLoadDataEx)                                                     \
  X(module_unload, cuModuleUnload)                                                               \
  X(module_get_function, cuModuleGetFunction)                                                    \
  X(module_get_global, cuModuleGetGlobal_v2)                                                     \
  X(library_load_data, cuLibraryLoadData)                                                        \
  X(library_unload, cuLibraryUnload)                                                             \
  X(library_get_kernel, cuLibraryGetKernel)                                                      \
  X(library_get_kernel_count, cuLibraryGetKernelCount)                                           \
  X(kernel_get_function, cuKernelGetFunction)                                                    \
  X(func_get_attribute, cuFuncGetAttribute)                                                      \
  X(func_set_attribute, cuFuncSetAttribute)                                                      \
  X(func_get_param_info, cuFuncGetParamInfo)                                                     \
  X(launch_kernel, cuLaunchKernel)                                                               \
  X(launch_kernel_ex, cuLaunchKernelEx)                                                          \
  X(launch_host_func, cuLaunchHostFunc)                                                          \
  X(occupancy_max_active_blocks_per_multiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(stream_create, cuStreamCreate)                                                               \
  X(stream_destroy, cuStreamDestroy_v2)                                                          \
  X(stream_synchronize, cuStreamSynchronize)                                                     \
  X(stream_query, cuStreamQuery)                                                                 \
  X(stream_wait_event, cuStreamWaitEvent)                                                        \
  X(stream_begin_capture, cuStreamBeginCapture_v2)                                               \
  X(stream_end_capture, cuStreamEndCapture)                                                      \
  X(stream_is_capturing, cuStreamIsCapturing)                                                    \
  X(stream_write_value32, cuStreamWriteValue32_v2)                                               \
  X(stream_wait_value32, cuStreamWaitValue32_v2)                                                 \
  X(event_create, cuEventCreate)                                                                 \
  X(event_destroy, cuEventDestroy_v2)                                                            \
  X(event_record, cuEventRecord)                                                                 \
  X(event_synchronize, cuEventSynchronize)                                                       \
  X(event_query, cuEventQuery)                                                                   \
  X(event_elapsed_time, cuEventElapsedTime_v2)                                                   \
  X(mem_alloc, cuMemAlloc_v2)                                                                    \
  X(mem_free, cuMemFree_v2)                                                                      \
  X(mem_alloc_async, cuMemAllocAsync)                                                            \
  X(mem_free_async, cuMemFreeAsync)                                                              \
  X(mem_host_alloc, cuMemHostAlloc)                                                              \
  X(mem_free_host, cuMemFreeHost)                                                                \
  X(mem_host_register, cuMemHostRegister_v2)                                                     \
  X(mem_host_unregister, cuMemHostUnregister)                                                    \
  X(mem_get_info, cuMemGetInfo_v2)                                                               \
  X(memcpy_htod, cuMemcpyHtoD_v2)                                                                \
  X(memcpy_dtoh, cuMemcpyDtoH_v2)                                                                \
  X(memcpy_dtod, cuMemcpyDtoD_v2)                                                                \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)                                                     \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)                                                     \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2)                                                     \
  X(memcpy_2d_async, cuMemcpy2DAsync_v2)                                                         \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled)                                             \
  X(tensor_map_replace_address, cuTensorMapReplaceAddress)                                       \
  X(device_can_access_peer, cuDeviceCanAccessPeer)                                               \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess)                                               \
  X(ctx_disable_peer_access, cuCtxDisablePeerAccess)                                             \
  X(link_create, cuLinkCreate_v2)                                                                \
  X(link_add_data, cuLinkAddData_v2)                                                             \
  X(link_complete, cuLinkComplete)                                                               \
  X(link_destroy, cuLinkDestroy)                                                                 \
  X(mem_address_reserve, cuMemAddressReserve)                                                    \
  X(mem_address_free, cuMemAddressFree)                                                          \
  X(mem_create, cuMemCreate)                                                                     \
  X(mem_release, cuMemRelease)                                                                   \
  X(mem_map, cuMemMap)                                                                           \
  X(mem_unmap, cuMemUnmap)                                                                       \
  X(mem_set_access, cuMemSetAccess)                                                              \
  X(mem_get_access, cuMemGetAccess)                                                              \
  X(mem_get_allocation_granularity, cuMemGetAllocationGranularity)                               \
  X(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync)                                          \
  X(mem_pool_create, cuMemPoolCreate)                                                            \
  X(mem_pool_destroy, cuMemPoolDestroy)                                                          \
  X(mem_pool_set_access, cuMemPoolSetAccess)                                                     \
  X(memcpy_3d, cuMemcpy3D_v2)                                                                    \
  X(memcpy_3d_async, cuMemcpy3DAsync_v2)                                                         \
  X(memset_d2d16, cuMemsetD2D16_v2)                                                              \
  X(stream_write_value64, cuStreamWriteValue64_v2)                                               \
  X(stream_wait_value64, cuStreamWaitValue64_v2)                                                 \
  X(stream_batch_mem_op, cuStreamBatchMemOp_v2)                                                  \
  X(stream_set_attribute, cuStreamSetAttribute)                                                  \
  X(stream_get_attribute, cuStreamGetAttribute)                                                  \
  X(graph_add_kernel_node, cuGraphAddKernelNode_v2)                                              \
  X(graph_add_memcpy_node, cuGraphAddMemcpyNode)                                                 \
  X(graph_add_memset_node, cuGraphAddMemsetNode)                                                 \
  X(graph_add_host_node, cuGraphAddHostNode)                                                     \
  X(graph_add_empty_node, cuGraphAddEmptyNode)                                                   \
  X(graph_add_dependencies, cuGraphAddDependencies_v2)                                           \
  X(graph_memset_node_set_params, cuGraphMemsetNodeSetParams)                                    \
  X(graph_memcpy_node_set_params, cuGraphMemcpyNodeSetParams)                                    \
  X(graph_host_node_set_params, cuGraphHostNodeSetParams)                                        \
  X(graph_exec_memset_node_set_params, cuGraphExecMemsetNodeSetParams)                           \
  X(graph_exec_memcpy_node_set_params, cuGraphExecMemcpyNodeSetParams)                           \
  X(graph_exec_host_node_set_params, cuGraphExecHostNodeSetParams)                               \
  X(graph_get_nodes, cuGraphGetNodes)                                                            \
  X(graph_get_root_nodes, cuGraphGetRootNodes)                                                   \
  X(graph_node_get_type, cuGraphNodeGetType)                                                     \
  X(graph_create, cuGraphCreate)                                                                 \
  X(memset_d8, cuMemsetD8_v2)                                                                    \
  X(memset_d8_async, cuMemsetD8Async)                                                            \
  X(memset_d32, cuMemsetD32_v2)                                                                  \
  X(memset_d32_async, cuMemsetD32Async)                                                          \
  X(pointer_get_attribute, cuPointerGetAttribute)                                                \
  X(graph_destroy, cuGraphDestroy)                                                               \
  X(graph_instantiate_with_flags, cuGraphInstantiateWithFlags)                                   \
  X(graph_launch, cuGraphLaunch)                                                                 \
  X(graph_exec_destroy, cuGraphExecDestroy)

namespace sim::tests {

struct Cuda {
  void* library = nullptr;
#define SIM_TEST_MEMBER(name, symbol) decltype(&symbol) name = nullptr;
  SIM_TEST_CUDA(SIM_TEST_MEMBER)
#undef SIM_TEST_MEMBER
};

// Opens the driver once; the environment is read at the first cuInit.
inline const Cuda& cuda() {
  static const Cuda table = [] {
    Cuda made;
    made.library = dlopen(SIM_LIBRARY_DIR "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (made.library == nullptr) {
      MESSAGE(std::string(dlerror()));
      std::abort();
    }
#define SIM_TEST_LOAD(name, symbol) \
  made.name = reinterpret_cast<decltype(made.name)>(dlsym(made.library, #symbol));
    SIM_TEST_CUDA(SIM_TEST_LOAD)
#undef SIM_TEST_LOAD
    return made;
  }();
  return table;
}

// Keeps the primary context of a device current on this thread for a scope.
class Primary {
 public:
  explicit Primary(CUdevice device = 0) : device_(device) {
    REQUIRE(cuda().init(0) == CUDA_SUCCESS);
    REQUIRE(cuda().device_primary_ctx_retain(&context_, device) == CUDA_SUCCESS);
    REQUIRE(cuda().ctx_push_current(context_) == CUDA_SUCCESS);
  }
  ~Primary() {
    CUcontext popped = nullptr;
    cuda().ctx_pop_current(&popped);
    cuda().device_primary_ctx_release(device_);
  }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;
  CUcontext context() const { return context_; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
};

inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(cuda().mem_alloc(&address, bytes) == CUDA_SUCCESS);
  return address;
}

template <typename T>
CUdeviceptr upload(const std::vector<T>& values) {
  const CUdeviceptr address = allocate(values.size() * sizeof(T));
  REQUIRE(cuda().memcpy_htod(address, values.data(), values.size() * sizeof(T)) == CUDA_SUCCESS);
  return address;
}

template <typename T>
std::vector<T> download(CUdeviceptr address, size_t count) {
  std::vector<T> values(count);
  REQUIRE(cuda().memcpy_dtoh(values.data(), address, count * sizeof(T)) == CUDA_SUCCESS);
  return values;
}

// A host function appends a value to the list.
struct Trace {
  std::vector<int>* list;
  int value;
  static void CUDA_CB append(void* data) {
    auto* trace = static_cast<Trace*>(data);
    trace->list->push_back(trace->value);
  }
};

}  // namespace sim::tests
