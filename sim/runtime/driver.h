// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The driver under the runtime: every call of it that the runtime makes, found by name when the
// program makes its first call.
#pragma once

#include <cuda.h>

#include "abi/cuda_runtime_api.h"

// cuda.h leaves these two to a header of their own.
extern "C" CUresult CUDAAPI cuProfilerStart(void);
extern "C" CUresult CUDAAPI cuProfilerStop(void);

// Names are those of cuda.h, whose macros turn them into the newest version of each call.
#define SIM_RUNTIME_DRIVER(X)                             \
  X(cuCtxDisablePeerAccess)                               \
  X(cuCtxEnablePeerAccess)                                \
  X(cuCtxGetCacheConfig)                                  \
  X(cuCtxGetCurrent)                                      \
  X(cuCtxGetDevice)                                       \
  X(cuCtxGetLimit)                                        \
  X(cuCtxGetSharedMemConfig)                              \
  X(cuCtxGetStreamPriorityRange)                          \
  X(cuCtxResetPersistingL2Cache)                          \
  X(cuCtxSetCacheConfig)                                  \
  X(cuCtxSetCurrent)                                      \
  X(cuCtxSetLimit)                                        \
  X(cuCtxSetSharedMemConfig)                              \
  X(cuCtxSynchronize)                                     \
  X(cuDeviceCanAccessPeer)                                \
  X(cuDeviceGetAttribute)                                 \
  X(cuDeviceGetByPCIBusId)                                \
  X(cuDeviceGetCount)                                     \
  X(cuDeviceGetDefaultMemPool)                            \
  X(cuDeviceGetMemPool)                                   \
  X(cuDeviceGetName)                                      \
  X(cuDeviceGetP2PAttribute)                              \
  X(cuDeviceGetPCIBusId)                                  \
  X(cuDeviceGetUuid)                                      \
  X(cuDevicePrimaryCtxGetState)                           \
  X(cuDevicePrimaryCtxReset)                              \
  X(cuDevicePrimaryCtxRetain)                             \
  X(cuDevicePrimaryCtxSetFlags)                           \
  X(cuDeviceSetMemPool)                                   \
  X(cuDeviceTotalMem)                                     \
  X(cuDriverGetVersion)                                   \
  X(cuEventCreate)                                        \
  X(cuEventDestroy)                                       \
  X(cuEventElapsedTime)                                   \
  X(cuEventQuery)                                         \
  X(cuEventRecord)                                        \
  X(cuEventRecordWithFlags)                               \
  X(cuEventSynchronize)                                   \
  X(cuFuncSetSharedMemConfig)                             \
  X(cuGetProcAddress)                                     \
  X(cuGraphAddDependencies)                               \
  X(cuGraphAddEmptyNode)                                  \
  X(cuGraphAddHostNode)                                   \
  X(cuGraphAddKernelNode)                                 \
  X(cuGraphAddMemcpyNode)                                 \
  X(cuGraphAddMemsetNode)                                 \
  X(cuGraphClone)                                         \
  X(cuGraphCreate)                                        \
  X(cuGraphDestroy)                                       \
  X(cuGraphExecDestroy)                                   \
  X(cuGraphExecHostNodeSetParams)                         \
  X(cuGraphExecKernelNodeSetParams)                       \
  X(cuGraphExecMemcpyNodeSetParams)                       \
  X(cuGraphExecMemsetNodeSetParams)                       \
  X(cuGraphExecUpdate)                                    \
  X(cuGraphGetNodes)                                      \
  X(cuGraphGetRootNodes)                                  \
  X(cuGraphHostNodeSetParams)                             \
  X(cuGraphInstantiate)                                   \
  X(cuGraphInstantiateWithParams)                         \
  X(cuGraphKernelNodeSetParams)                           \
  X(cuGraphLaunch)                                        \
  X(cuGraphMemcpyNodeSetParams)                           \
  X(cuGraphMemsetNodeSetParams)                           \
  X(cuGraphNodeGetType)                                   \
  X(cuGraphReleaseUserObject)                             \
  X(cuGraphRetainUserObject)                              \
  X(cuGraphUpload)                                        \
  X(cuInit)                                               \
  X(cuKernelGetAttribute)                                 \
  X(cuKernelGetFunction)                                  \
  X(cuKernelGetName)                                      \
  X(cuKernelGetParamInfo)                                 \
  X(cuKernelSetAttribute)                                 \
  X(cuKernelSetCacheConfig)                               \
  X(cuLaunchHostFunc)                                     \
  X(cuLaunchKernelEx)                                     \
  X(cuLibraryEnumerateKernels)                            \
  X(cuLibraryGetGlobal)                                   \
  X(cuLibraryGetKernel)                                   \
  X(cuLibraryGetKernelCount)                              \
  X(cuLibraryGetManaged)                                  \
  X(cuLibraryGetUnifiedFunction)                          \
  X(cuLibraryLoadData)                                    \
  X(cuLibraryLoadFromFile)                                \
  X(cuLibraryUnload)                                      \
  X(cuLinkAddData)                                        \
  X(cuLinkComplete)                                       \
  X(cuLinkCreate)                                         \
  X(cuLinkDestroy)                                        \
  X(cuMemAdvise)                                          \
  X(cuMemAlloc)                                           \
  X(cuMemAllocAsync)                                      \
  X(cuMemAllocFromPoolAsync)                              \
  X(cuMemAllocManaged)                                    \
  X(cuMemAllocPitch)                                      \
  X(cuMemFree)                                            \
  X(cuMemFreeAsync)                                       \
  X(cuMemFreeHost)                                        \
  X(cuMemGetInfo)                                         \
  X(cuMemHostAlloc)                                       \
  X(cuMemHostGetDevicePointer)                            \
  X(cuMemHostGetFlags)                                    \
  X(cuMemHostRegister)                                    \
  X(cuMemHostUnregister)                                  \
  X(cuMemPoolCreate)                                      \
  X(cuMemPoolDestroy)                                     \
  X(cuMemPoolGetAccess)                                   \
  X(cuMemPoolGetAttribute)                                \
  X(cuMemPoolSetAccess)                                   \
  X(cuMemPoolSetAttribute)                                \
  X(cuMemPoolTrimTo)                                      \
  X(cuMemPrefetchAsync)                                   \
  X(cuMemcpy)                                             \
  X(cuMemcpy2DAsync)                                      \
  X(cuMemcpy2DUnaligned)                                  \
  X(cuMemcpy3D)                                           \
  X(cuMemcpy3DAsync)                                      \
  X(cuMemcpy3DPeer)                                       \
  X(cuMemcpy3DPeerAsync)                                  \
  X(cuMemcpyAsync)                                        \
  X(cuMemcpyDtoD)                                         \
  X(cuMemcpyDtoDAsync)                                    \
  X(cuMemcpyDtoH)                                         \
  X(cuMemcpyDtoHAsync)                                    \
  X(cuMemcpyHtoD)                                         \
  X(cuMemcpyHtoDAsync)                                    \
  X(cuMemcpyPeer)                                         \
  X(cuMemcpyPeerAsync)                                    \
  X(cuMemsetD2D8)                                         \
  X(cuMemsetD2D8Async)                                    \
  X(cuMemsetD8)                                           \
  X(cuMemsetD8Async)                                      \
  X(cuOccupancyAvailableDynamicSMemPerBlock)              \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
  X(cuOccupancyMaxActiveClusters)                         \
  X(cuOccupancyMaxPotentialClusterSize)                   \
  X(cuPointerGetAttributes)                               \
  X(cuProfilerStart)                                      \
  X(cuProfilerStop)                                       \
  X(cuStreamAddCallback)                                  \
  X(cuStreamAttachMemAsync)                               \
  X(cuStreamBeginCapture)                                 \
  X(cuStreamCopyAttributes)                               \
  X(cuStreamCreate)                                       \
  X(cuStreamCreateWithPriority)                           \
  X(cuStreamDestroy)                                      \
  X(cuStreamEndCapture)                                   \
  X(cuStreamGetAttribute)                                 \
  X(cuStreamGetCaptureInfo)                               \
  X(cuStreamGetDevice)                                    \
  X(cuStreamGetFlags)                                     \
  X(cuStreamGetId)                                        \
  X(cuStreamGetPriority)                                  \
  X(cuStreamIsCapturing)                                  \
  X(cuStreamQuery)                                        \
  X(cuStreamSetAttribute)                                 \
  X(cuStreamSynchronize)                                  \
  X(cuStreamWaitEvent)                                    \
  X(cuThreadExchangeStreamCaptureMode)                    \
  X(cuUserObjectCreate)                                   \
  X(cuUserObjectRelease)                                  \
  X(cuUserObjectRetain)

namespace sim::runtime {

// Programs still call what the driver deprecates.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SIM_MEMBER(name) decltype(&::name) name;
struct Driver {
  SIM_RUNTIME_DRIVER(SIM_MEMBER)
};
#undef SIM_MEMBER
#pragma GCC diagnostic pop

// Opens libcuda.so.1 and calls cuInit, once in a process. Order of search: a driver that is loaded
// already, the one beside this library, the loader's. `out` is null unless the answer is
// cudaSuccess.
cudaError_t load_driver(const Driver** out);

// The driver, after load_driver() has succeeded.
const Driver& driver();

}  // namespace sim::runtime
