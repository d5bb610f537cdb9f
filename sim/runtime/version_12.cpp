// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls as CUDA 12 has them: those that CUDA 13 gave another form under the same name, the names of
// newer forms, and calls that CUDA 13 dropped.
#include "sim/runtime/direct.h"
#include "sim/runtime/properties.h"
#include "sim/runtime/version.h"

namespace sim::runtime {

const unsigned kToolkitVersion = 12090;

namespace {

// cudaDeviceProp of CUDA 12, which its programs ask for by the name cudaGetDeviceProperties_v2.
struct Properties12 {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;
  int integrated;
  int canMapHostMemory;
  int computeMode;
  int maxTexture1D;
  int maxTexture1DMipmap;
  int maxTexture1DLinear;
  int maxTexture2D[2];
  int maxTexture2DMipmap[2];
  int maxTexture2DLinear[3];
  int maxTexture2DGather[2];
  int maxTexture3D[3];
  int maxTexture3DAlt[3];
  int maxTextureCubemap;
  int maxTexture1DLayered[2];
  int maxTexture2DLayered[3];
  int maxTextureCubemapLayered[2];
  int maxSurface1D;
  int maxSurface2D[2];
  int maxSurface3D[3];
  int maxSurface1DLayered[2];
  int maxSurface2DLayered[3];
  int maxSurfaceCubemap;
  int maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int isMultiGpuBoard;
  int multiGpuBoardGroupID;
  int hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio;
  int pageableMemoryAccess;
  int concurrentManagedAccess;
  int computePreemptionSupported;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables;
  int directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported;
  int sparseCudaArraySupported;
  int hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported;
  int memoryPoolsSupported;
  int gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported;
  int ipcEventSupported;
  int clusterLaunch;
  int unifiedFunctionPointers;
  int reserved[63];
};
static_assert(sizeof(Properties12) == 1032, "the structure of CUDA 12 has 1032 bytes");

// X(member, attribute): what only this structure has.
#define SIM_PROPERTIES_12(X)                                                 \
  X(clockRate, CLOCK_RATE)                                                   \
  X(deviceOverlap, GPU_OVERLAP)                                              \
  X(kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT)                           \
  X(computeMode, COMPUTE_MODE)                                               \
  X(memoryClockRate, MEMORY_CLOCK_RATE)                                      \
  X(singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) \
  X(cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH)

// A device number of CUDA 12; -1 is the host.
CUmemLocation place_of(int device) {
  CUmemLocation where = {};
  where.type = device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  where.id = device < 0 ? 0 : device;
  return where;
}

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

// C++ knows these names in the form of CUDA 13, so the exported name stands beside the function's.
#define SIM_EXPORTED(name, parameters)                            \
  SIM_RUNTIME cudaError_t name##_of_12 parameters __asm__(#name); \
  SIM_RUNTIME cudaError_t name##_of_12 parameters

SIM_RUNTIME cudaError_t cudaGetDeviceProperties_v2(Properties12* out, int device) {
  return with_driver([&](const Driver& driver) -> Result {
    if (out == nullptr) return cudaErrorInvalidValue;
    Result result = fill_properties(driver, device, out);
    SIM_PROPERTIES_12(SIM_FILL_PROPERTY)
    return result;
  });
}

SIM_EXPORTED(cudaMemAdvise, (void* pointer, size_t bytes, int advice, int device)) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemAdvise(address(pointer), bytes, static_cast<CUmem_advise>(advice),
                              place_of(device));
  });
}

SIM_EXPORTED(cudaMemPrefetchAsync,
             (const void* pointer, size_t bytes, int device, cudaStream_t stream)) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemPrefetchAsync(address(pointer), bytes, place_of(device), 0, stream);
  });
}

SIM_EXPORTED(cudaMemPrefetchAsync_ptsz,
             (const void* pointer, size_t bytes, int device, cudaStream_t stream)) {
  return cudaMemPrefetchAsync_of_12(pointer, bytes, device, own(stream));
}

SIM_EXPORTED(cudaGraphAddDependencies, (cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, size_t count)) {
  return with_context([&](const Driver& driver) {
    return driver.cuGraphAddDependencies(graph, from, to, nullptr, count);
  });
}

// The first form of this call.
SIM_EXPORTED(cudaStreamGetCaptureInfo,
             (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id)) {
  return with_context([&](const Driver& driver) {
    return driver.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                         reinterpret_cast<cuuint64_t*>(id), nullptr, nullptr,
                                         nullptr, nullptr);
  });
}

SIM_EXPORTED(cudaStreamGetCaptureInfo_ptsz,
             (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id)) {
  return cudaStreamGetCaptureInfo_of_12(own(stream), status, id);
}

SIM_RUNTIME cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                    cudaStreamCaptureStatus* status,
                                                    unsigned long long* id, cudaGraph_t* graph,
                                                    const cudaGraphNode_t** after, size_t* count) {
  return with_context([&](const Driver& driver) {
    return driver.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                         reinterpret_cast<cuuint64_t*>(id), graph, after, nullptr,
                                         count);
  });
}

SIM_RUNTIME cudaError_t cudaStreamGetCaptureInfo_v2_ptsz(cudaStream_t stream,
                                                         cudaStreamCaptureStatus* status,
                                                         unsigned long long* id, cudaGraph_t* graph,
                                                         const cudaGraphNode_t** after,
                                                         size_t* count) {
  return cudaStreamGetCaptureInfo_v2(own(stream), status, id, graph, after, count);
}

// CUDA 13's forms under the names that they had before.
extern "C" {
decltype(cudaEventElapsedTime) cudaEventElapsedTime_v2;
decltype(cudaGraphAddDependencies) cudaGraphAddDependencies_v2;
decltype(cudaMemAdvise) cudaMemAdvise_v2;
decltype(cudaMemPrefetchAsync) cudaMemPrefetchAsync_v2;
decltype(cudaMemPrefetchAsync) cudaMemPrefetchAsync_v2_ptsz;
decltype(cudaStreamGetCaptureInfo) cudaStreamGetCaptureInfo_v3;
decltype(cudaStreamGetCaptureInfo) cudaStreamGetCaptureInfo_v3_ptsz;
decltype(cudaDeviceGetCacheConfig) cudaThreadGetCacheConfig;
decltype(cudaDeviceGetLimit) cudaThreadGetLimit;
decltype(cudaDeviceSetCacheConfig) cudaThreadSetCacheConfig;
decltype(cudaDeviceSetLimit) cudaThreadSetLimit;
decltype(cudaDeviceSynchronize) cudaThreadSynchronize;
}
SIM_DIRECT(3, cudaEventElapsedTime_v2, cuEventElapsedTime, with_context)
SIM_DIRECT(5, cudaGraphAddDependencies_v2, cuGraphAddDependencies, with_context)
SIM_DIRECT(4, cudaMemAdvise_v2, cuMemAdvise, with_context)
SIM_DIRECT_TWO(5, cudaMemPrefetchAsync_v2, cuMemPrefetchAsync, with_context)
SIM_DIRECT_TWO(7, cudaStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, with_context)
SIM_DIRECT(1, cudaThreadGetCacheConfig, cuCtxGetCacheConfig, with_context)
SIM_DIRECT(2, cudaThreadGetLimit, cuCtxGetLimit, with_context)
SIM_DIRECT(1, cudaThreadSetCacheConfig, cuCtxSetCacheConfig, with_context)
SIM_DIRECT(2, cudaThreadSetLimit, cuCtxSetLimit, with_context)
SIM_DIRECT(0, cudaThreadSynchronize, cuCtxSynchronize, with_context)

SIM_RUNTIME cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
