// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Allocations whose runtime call is not quite the driver's: nothing is asked for, or null is freed.
#include "sim/runtime/entry.h"

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return with_context([&](const Driver& driver) -> Result {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    return driver.cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), bytes);
  });
}

SIM_RUNTIME cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, flags);
  });
}

SIM_RUNTIME cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width,
                                        size_t height) {
  return with_context([&](const Driver& driver) -> Result {
    if (pointer == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    *pitch = 0;
    if (width == 0 || height == 0) return cudaSuccess;
    constexpr unsigned kElement = 16;  // the widest access of a thread
    return driver.cuMemAllocPitch(reinterpret_cast<CUdeviceptr*>(pointer), pitch, width, height,
                                  kElement);
  });
}

SIM_RUNTIME cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  if (pointer == nullptr) return record(cudaErrorInvalidValue);
  *pointer = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&pointer->ptr, &pointer->pitch, extent.width,
                         extent.height * extent.depth);
}

SIM_RUNTIME cudaError_t cudaFree(void* pointer) {
  return with_context([&](const Driver& driver) -> Result {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFree(address(pointer));
  });
}

SIM_RUNTIME cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, 0);
}

SIM_RUNTIME cudaError_t cudaFreeHost(void* pointer) {
  return with_context([&](const Driver& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(pointer);
  });
}

SIM_RUNTIME cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return with_context([&](const Driver& driver) -> Result {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {};
    CUmemorytype type = {};
    unsigned managed = 0;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* where[] = {&type, &managed, &out->device, &out->devicePointer, &out->hostPointer};
    const Result result = driver.cuPointerGetAttributes(5, which, where, address(pointer));
    if (result.failed()) return result;
    if (type == CUmemorytype{}) {  // memory that CUDA does not know is the host's own
      out->hostPointer = const_cast<void*>(pointer);
    } else {
      out->type = managed != 0                 ? cudaMemoryTypeManaged
                  : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                               : cudaMemoryTypeDevice;
    }
    return cudaSuccess;
  });
}

// A description alone: there are no arrays to which it could be given.
SIM_RUNTIME cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                        cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}
