// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Members of cudaDeviceProp that CUDA 12 and 13 have in common, and where their values come from.
#pragma once

#include <type_traits>

#include "sim/runtime/entry.h"

// X(member, attribute): members that are one attribute of the driver.
#define SIM_PROPERTIES(X)                                                                 \
  X(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK)                                       \
  X(regsPerBlock, MAX_REGISTERS_PER_BLOCK)                                                \
  X(warpSize, WARP_SIZE)                                                                  \
  X(memPitch, MAX_PITCH)                                                                  \
  X(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)                                            \
  X(maxThreadsDim[0], MAX_BLOCK_DIM_X)                                                    \
  X(maxThreadsDim[1], MAX_BLOCK_DIM_Y)                                                    \
  X(maxThreadsDim[2], MAX_BLOCK_DIM_Z)                                                    \
  X(maxGridSize[0], MAX_GRID_DIM_X)                                                       \
  X(maxGridSize[1], MAX_GRID_DIM_Y)                                                       \
  X(maxGridSize[2], MAX_GRID_DIM_Z)                                                       \
  X(totalConstMem, TOTAL_CONSTANT_MEMORY)                                                 \
  X(major, COMPUTE_CAPABILITY_MAJOR)                                                      \
  X(minor, COMPUTE_CAPABILITY_MINOR)                                                      \
  X(textureAlignment, TEXTURE_ALIGNMENT)                                                  \
  X(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT)                                       \
  X(multiProcessorCount, MULTIPROCESSOR_COUNT)                                            \
  X(integrated, INTEGRATED)                                                               \
  X(canMapHostMemory, CAN_MAP_HOST_MEMORY)                                                \
  X(surfaceAlignment, SURFACE_ALIGNMENT)                                                  \
  X(concurrentKernels, CONCURRENT_KERNELS)                                                \
  X(ECCEnabled, ECC_ENABLED)                                                              \
  X(pciBusID, PCI_BUS_ID)                                                                 \
  X(pciDeviceID, PCI_DEVICE_ID)                                                           \
  X(pciDomainID, PCI_DOMAIN_ID)                                                           \
  X(tccDriver, TCC_DRIVER)                                                                \
  X(asyncEngineCount, ASYNC_ENGINE_COUNT)                                                 \
  X(unifiedAddressing, UNIFIED_ADDRESSING)                                                \
  X(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH)                                              \
  X(l2CacheSize, L2_CACHE_SIZE)                                                           \
  X(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE)                               \
  X(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR)                          \
  X(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED)                               \
  X(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED)                                    \
  X(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED)                                      \
  X(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)                     \
  X(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)                              \
  X(managedMemory, MANAGED_MEMORY)                                                        \
  X(isMultiGpuBoard, MULTI_GPU_BOARD)                                                     \
  X(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID)                                       \
  X(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED)                              \
  X(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)                                         \
  X(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)                                   \
  X(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED)                             \
  X(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)           \
  X(cooperativeLaunch, COOPERATIVE_LAUNCH)                                                \
  X(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)                            \
  X(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) \
  X(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                  \
  X(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR)                            \
  X(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE)                             \
  X(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK)                          \
  X(hostRegisterSupported, HOST_REGISTER_SUPPORTED)                                       \
  X(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED)                                         \
  X(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES)                       \
  X(clusterLaunch, CLUSTER_LAUNCH)                                                        \
  X(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS)

namespace sim::runtime {

// Fills one member of `out` where `result` has not failed yet.
#define SIM_FILL_PROPERTY(member, attribute)                                               \
  if (!result.failed()) {                                                                  \
    int value = 0;                                                                         \
    result = driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_##attribute, device); \
    out->member = static_cast<std::remove_reference_t<decltype(out->member)>>(value);      \
  }

// Fills the members that each version of the structure has; `Properties` is one of them.
template <typename Properties>
Result fill_properties(const Driver& driver, int device, Properties* out) {
  *out = {};
  Result result = driver.cuDeviceGetName(out->name, sizeof out->name, device);
  if (!result.failed()) {
    result = driver.cuDeviceGetUuid(reinterpret_cast<CUuuid*>(&out->uuid), device);
  }
  if (!result.failed()) result = driver.cuDeviceTotalMem(&out->totalGlobalMem, device);
  SIM_PROPERTIES(SIM_FILL_PROPERTY)
  return result;
}

}  // namespace sim::runtime
