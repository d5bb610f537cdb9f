// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the table behind cuGetProcAddress. cuda.h stays out of here, so that every entry
// point can be named with one type.
#include "sim/driver/symbols.h"

// SIM_ONE(name, version, symbol), SIM_TWO(name, version, symbol, per-thread twin)
#define SIM_SYMBOLS(SIM_ONE, SIM_TWO)                                                              \
  SIM_ONE(cuCtxCreate, 3020, cuCtxCreate_v2)                                                       \
  SIM_ONE(cuCtxCreate, 11040, cuCtxCreate_v3)                                                      \
  SIM_ONE(cuCtxCreate, 12050, cuCtxCreate_v4)                                                      \
  SIM_ONE(cuCtxDestroy, 4000, cuCtxDestroy_v2)                                                     \
  SIM_ONE(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess)                                      \
  SIM_ONE(cuCtxGetCurrent, 4000, cuCtxGetCurrent)                                                  \
  SIM_ONE(cuCtxGetDevice, 2000, cuCtxGetDevice)                                                    \
  SIM_ONE(cuCtxGetDevice, 13000, cuCtxGetDevice_v2)                                                \
  SIM_ONE(cuCtxGetFlags, 7000, cuCtxGetFlags)                                                      \
  SIM_ONE(cuCtxGetId, 12000, cuCtxGetId)                                                           \
  SIM_ONE(cuCtxGetLimit, 3010, cuCtxGetLimit)                                                      \
  SIM_ONE(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange)                          \
  SIM_ONE(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                                               \
  SIM_ONE(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2)                                             \
  SIM_ONE(cuCtxSetCurrent, 4000, cuCtxSetCurrent)                                                  \
  SIM_ONE(cuCtxSetLimit, 3010, cuCtxSetLimit)                                                      \
  SIM_ONE(cuCtxSynchronize, 2000, cuCtxSynchronize)                                                \
  SIM_ONE(cuCtxSynchronize, 13000, cuCtxSynchronize_v2)                                            \
  SIM_ONE(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer)                                      \
  SIM_ONE(cuDeviceGet, 2000, cuDeviceGet)                                                          \
  SIM_ONE(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                                        \
  SIM_ONE(cuDeviceGetCount, 2000, cuDeviceGetCount)                                                \
  SIM_ONE(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool)                             \
  SIM_ONE(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool)                                           \
  SIM_ONE(cuDeviceGetName, 2000, cuDeviceGetName)                                                  \
  SIM_ONE(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)                                          \
  SIM_ONE(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2)                                              \
  SIM_ONE(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState)                            \
  SIM_ONE(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)                          \
  SIM_ONE(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2)                              \
  SIM_ONE(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)                                \
  SIM_ONE(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2)                        \
  SIM_ONE(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool)                                           \
  SIM_ONE(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                                             \
  SIM_ONE(cuDriverGetVersion, 2020, cuDriverGetVersion)                                            \
  SIM_ONE(cuEventCreate, 2000, cuEventCreate)                                                      \
  SIM_ONE(cuEventDestroy, 4000, cuEventDestroy_v2)                                                 \
  SIM_ONE(cuEventElapsedTime, 2000, cuEventElapsedTime)                                            \
  SIM_ONE(cuEventElapsedTime, 12080, cuEventElapsedTime_v2)                                        \
  SIM_ONE(cuEventQuery, 2000, cuEventQuery)                                                        \
  SIM_TWO(cuEventRecord, 7000, cuEventRecord, cuEventRecord_ptsz)                                  \
  SIM_TWO(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz)      \
  SIM_ONE(cuEventSynchronize, 2000, cuEventSynchronize)                                            \
  SIM_ONE(cuFuncGetAttribute, 2020, cuFuncGetAttribute)                                            \
  SIM_ONE(cuFuncGetModule, 11000, cuFuncGetModule)                                                 \
  SIM_ONE(cuFuncGetName, 12030, cuFuncGetName)                                                     \
  SIM_ONE(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo)                                           \
  SIM_ONE(cuFuncIsLoaded, 12040, cuFuncIsLoaded)                                                   \
  SIM_ONE(cuFuncLoad, 12040, cuFuncLoad)                                                           \
  SIM_ONE(cuFuncSetAttribute, 9000, cuFuncSetAttribute)                                            \
  SIM_ONE(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig)                                        \
  SIM_ONE(cuGetErrorName, 6000, cuGetErrorName)                                                    \
  SIM_ONE(cuGetErrorString, 6000, cuGetErrorString)                                                \
  SIM_ONE(cuGetExportTable, 3000, cuGetExportTable)                                                \
  SIM_ONE(cuGetProcAddress, 11030, cuGetProcAddress)                                               \
  SIM_ONE(cuGraphCreate, 10000, cuGraphCreate)                                                     \
  SIM_ONE(cuGraphDestroy, 10000, cuGraphDestroy)                                                   \
  SIM_ONE(cuGraphExecDestroy, 10000, cuGraphExecDestroy)                                           \
  SIM_ONE(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2)                                          \
  SIM_ONE(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags)                                  \
  SIM_ONE(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags)                         \
  SIM_TWO(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams,                       \
          cuGraphInstantiateWithParams_ptsz)                                                       \
  SIM_TWO(cuGraphLaunch, 10000, cuGraphLaunch, cuGraphLaunch_ptsz)                                 \
  SIM_ONE(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject)                               \
  SIM_ONE(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject)                                 \
  SIM_TWO(cuGraphUpload, 11010, cuGraphUpload, cuGraphUpload_ptsz)                                 \
  SIM_ONE(cuInit, 2000, cuInit)                                                                    \
  SIM_ONE(cuKernelGetAttribute, 12000, cuKernelGetAttribute)                                       \
  SIM_ONE(cuKernelGetFunction, 12000, cuKernelGetFunction)                                         \
  SIM_ONE(cuKernelGetName, 12030, cuKernelGetName)                                                 \
  SIM_ONE(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo)                                       \
  SIM_ONE(cuKernelSetAttribute, 12000, cuKernelSetAttribute)                                       \
  SIM_TWO(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel,                              \
          cuLaunchCooperativeKernel_ptsz)                                                          \
  SIM_TWO(cuLaunchHostFunc, 10000, cuLaunchHostFunc, cuLaunchHostFunc_ptsz)                        \
  SIM_TWO(cuLaunchKernel, 7000, cuLaunchKernel, cuLaunchKernel_ptsz)                               \
  SIM_TWO(cuLaunchKernelEx, 11060, cuLaunchKernelEx, cuLaunchKernelEx_ptsz)                        \
  SIM_ONE(cuLibraryEnumerateKernels, 12040, cuLibraryEnumerateKernels)                             \
  SIM_ONE(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal)                                           \
  SIM_ONE(cuLibraryGetKernel, 12000, cuLibraryGetKernel)                                           \
  SIM_ONE(cuLibraryGetKernelCount, 12040, cuLibraryGetKernelCount)                                 \
  SIM_ONE(cuLibraryGetModule, 12000, cuLibraryGetModule)                                           \
  SIM_ONE(cuLibraryLoadData, 12000, cuLibraryLoadData)                                             \
  SIM_ONE(cuLibraryUnload, 12000, cuLibraryUnload)                                                 \
  SIM_ONE(cuMemAlloc, 3020, cuMemAlloc_v2)                                                         \
  SIM_TWO(cuMemAllocAsync, 11020, cuMemAllocAsync, cuMemAllocAsync_ptsz)                           \
  SIM_TWO(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz)   \
  SIM_ONE(cuMemAllocHost, 3020, cuMemAllocHost_v2)                                                 \
  SIM_ONE(cuMemAllocManaged, 6000, cuMemAllocManaged)                                              \
  SIM_ONE(cuMemAllocPitch, 3020, cuMemAllocPitch_v2)                                               \
  SIM_ONE(cuMemFree, 3020, cuMemFree_v2)                                                           \
  SIM_TWO(cuMemFreeAsync, 11020, cuMemFreeAsync, cuMemFreeAsync_ptsz)                              \
  SIM_ONE(cuMemFreeHost, 2000, cuMemFreeHost)                                                      \
  SIM_ONE(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2)                                     \
  SIM_ONE(cuMemGetInfo, 3020, cuMemGetInfo_v2)                                                     \
  SIM_ONE(cuMemHostAlloc, 2020, cuMemHostAlloc)                                                    \
  SIM_ONE(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2)                           \
  SIM_ONE(cuMemHostGetFlags, 2030, cuMemHostGetFlags)                                              \
  SIM_ONE(cuMemHostRegister, 6050, cuMemHostRegister_v2)                                           \
  SIM_ONE(cuMemHostUnregister, 4000, cuMemHostUnregister)                                          \
  SIM_ONE(cuMemPoolCreate, 11020, cuMemPoolCreate)                                                 \
  SIM_ONE(cuMemPoolDestroy, 11020, cuMemPoolDestroy)                                               \
  SIM_ONE(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute)                                     \
  SIM_ONE(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess)                                           \
  SIM_ONE(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute)                                     \
  SIM_ONE(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo)                                                 \
  SIM_TWO(cuMemcpy, 7000, cuMemcpy, cuMemcpy_ptds)                                                 \
  SIM_TWO(cuMemcpy2D, 7000, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds)                                     \
  SIM_TWO(cuMemcpy2DAsync, 7000, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz)                      \
  SIM_TWO(cuMemcpy2DUnaligned, 7000, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds)          \
  SIM_TWO(cuMemcpyAsync, 7000, cuMemcpyAsync, cuMemcpyAsync_ptsz)                                  \
  SIM_TWO(cuMemcpyDtoD, 7000, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds)                               \
  SIM_TWO(cuMemcpyDtoDAsync, 7000, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz)                \
  SIM_TWO(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds)                               \
  SIM_TWO(cuMemcpyDtoHAsync, 7000, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz)                \
  SIM_TWO(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds)                               \
  SIM_TWO(cuMemcpyHtoDAsync, 7000, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz)                \
  SIM_TWO(cuMemcpyPeer, 7000, cuMemcpyPeer, cuMemcpyPeer_ptds)                                     \
  SIM_TWO(cuMemcpyPeerAsync, 7000, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz)                      \
  SIM_TWO(cuMemsetD16, 7000, cuMemsetD16_v2, cuMemsetD16_v2_ptds)                                  \
  SIM_TWO(cuMemsetD16Async, 7000, cuMemsetD16Async, cuMemsetD16Async_ptsz)                         \
  SIM_TWO(cuMemsetD2D32, 7000, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds)                            \
  SIM_TWO(cuMemsetD2D32Async, 7000, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz)                   \
  SIM_TWO(cuMemsetD2D8, 7000, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds)                               \
  SIM_TWO(cuMemsetD2D8Async, 7000, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz)                      \
  SIM_TWO(cuMemsetD32, 7000, cuMemsetD32_v2, cuMemsetD32_v2_ptds)                                  \
  SIM_TWO(cuMemsetD32Async, 7000, cuMemsetD32Async, cuMemsetD32Async_ptsz)                         \
  SIM_TWO(cuMemsetD8, 7000, cuMemsetD8_v2, cuMemsetD8_v2_ptds)                                     \
  SIM_TWO(cuMemsetD8Async, 7000, cuMemsetD8Async, cuMemsetD8Async_ptsz)                            \
  SIM_ONE(cuModuleGetFunction, 2000, cuModuleGetFunction)                                          \
  SIM_ONE(cuModuleGetFunctionCount, 12040, cuModuleGetFunctionCount)                               \
  SIM_ONE(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2)                                           \
  SIM_ONE(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode)                                   \
  SIM_ONE(cuModuleLoad, 2000, cuModuleLoad)                                                        \
  SIM_ONE(cuModuleLoadData, 2000, cuModuleLoadData)                                                \
  SIM_ONE(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx)                                            \
  SIM_ONE(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary)                                      \
  SIM_ONE(cuModuleUnload, 2000, cuModuleUnload)                                                    \
  SIM_ONE(cuOccupancyAvailableDynamicSMemPerBlock, 10020, cuOccupancyAvailableDynamicSMemPerBlock) \
  SIM_ONE(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                                       \
          cuOccupancyMaxActiveBlocksPerMultiprocessor)                                             \
  SIM_ONE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,                              \
          cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)                                    \
  SIM_ONE(cuOccupancyMaxActiveClusters, 11070, cuOccupancyMaxActiveClusters)                       \
  SIM_ONE(cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize)                \
  SIM_ONE(cuOccupancyMaxPotentialClusterSize, 11070, cuOccupancyMaxPotentialClusterSize)           \
  SIM_ONE(cuPointerGetAttribute, 4000, cuPointerGetAttribute)                                      \
  SIM_ONE(cuPointerGetAttributes, 7000, cuPointerGetAttributes)                                    \
  SIM_TWO(cuStreamAddCallback, 7000, cuStreamAddCallback, cuStreamAddCallback_ptsz)                \
  SIM_TWO(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz)      \
  SIM_ONE(cuStreamCreate, 2000, cuStreamCreate)                                                    \
  SIM_ONE(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority)                            \
  SIM_ONE(cuStreamDestroy, 4000, cuStreamDestroy_v2)                                               \
  SIM_TWO(cuStreamEndCapture, 10000, cuStreamEndCapture, cuStreamEndCapture_ptsz)                  \
  SIM_TWO(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2,                                \
          cuStreamGetCaptureInfo_v2_ptsz)                                                          \
  SIM_TWO(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3,                                \
          cuStreamGetCaptureInfo_v3_ptsz)                                                          \
  SIM_TWO(cuStreamGetCtx, 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz)                               \
  SIM_TWO(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz)                        \
  SIM_TWO(cuStreamGetDevice, 12080, cuStreamGetDevice, cuStreamGetDevice_ptsz)                     \
  SIM_TWO(cuStreamGetFlags, 7000, cuStreamGetFlags, cuStreamGetFlags_ptsz)                         \
  SIM_TWO(cuStreamGetId, 12000, cuStreamGetId, cuStreamGetId_ptsz)                                 \
  SIM_TWO(cuStreamGetPriority, 7000, cuStreamGetPriority, cuStreamGetPriority_ptsz)                \
  SIM_TWO(cuStreamIsCapturing, 10000, cuStreamIsCapturing, cuStreamIsCapturing_ptsz)               \
  SIM_TWO(cuStreamQuery, 7000, cuStreamQuery, cuStreamQuery_ptsz)                                  \
  SIM_TWO(cuStreamSynchronize, 7000, cuStreamSynchronize, cuStreamSynchronize_ptsz)                \
  SIM_TWO(cuStreamWaitEvent, 7000, cuStreamWaitEvent, cuStreamWaitEvent_ptsz)                      \
  SIM_ONE(cuStreamWaitValue32, 8000, cuStreamWaitValue32)                                          \
  SIM_TWO(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz)         \
  SIM_ONE(cuStreamWriteValue32, 8000, cuStreamWriteValue32)                                        \
  SIM_TWO(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz)      \
  SIM_ONE(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled)                                   \
  SIM_ONE(cuUserObjectCreate, 11030, cuUserObjectCreate)                                           \
  SIM_ONE(cuUserObjectRelease, 11030, cuUserObjectRelease)                                         \
  SIM_ONE(cuUserObjectRetain, 11030, cuUserObjectRetain)                                           \
  SIM_ONE(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress)                             \
  SIM_TWO(cuMemsetD2D16, 7000, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds)                            \
  SIM_TWO(cuMemsetD2D16Async, 7000, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz)                   \
  SIM_TWO(cuMemcpy3D, 7000, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds)                                     \
  SIM_TWO(cuMemcpy3DAsync, 7000, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz)                      \
  SIM_TWO(cuMemcpy3DPeer, 7000, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds)                               \
  SIM_TWO(cuMemcpy3DPeerAsync, 7000, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz)                \
  SIM_ONE(cuLinkCreate, 6050, cuLinkCreate_v2)                                                     \
  SIM_ONE(cuLinkAddData, 6050, cuLinkAddData_v2)                                                   \
  SIM_ONE(cuLinkAddFile, 6050, cuLinkAddFile_v2)                                                   \
  SIM_ONE(cuLinkComplete, 5050, cuLinkComplete)                                                    \
  SIM_ONE(cuLinkDestroy, 5050, cuLinkDestroy)                                                      \
  SIM_ONE(cuMemAddressReserve, 10020, cuMemAddressReserve)                                         \
  SIM_ONE(cuMemAddressFree, 10020, cuMemAddressFree)                                               \
  SIM_ONE(cuMemCreate, 10020, cuMemCreate)                                                         \
  SIM_ONE(cuMemRelease, 10020, cuMemRelease)                                                       \
  SIM_ONE(cuMemMap, 10020, cuMemMap)                                                               \
  SIM_ONE(cuMemUnmap, 10020, cuMemUnmap)                                                           \
  SIM_ONE(cuMemSetAccess, 10020, cuMemSetAccess)                                                   \
  SIM_ONE(cuMemGetAccess, 10020, cuMemGetAccess)                                                   \
  SIM_ONE(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity)                     \
  SIM_ONE(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle)   \
  SIM_ONE(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle)                         \
  SIM_ONE(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess)                                    \
  SIM_ONE(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute)                                  \
  SIM_ONE(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId)                                      \
  SIM_ONE(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability)                              \
  SIM_ONE(cuDeviceGetProperties, 2000, cuDeviceGetProperties)                                      \
  SIM_ONE(cuDeviceGetExecAffinitySupport, 11040, cuDeviceGetExecAffinitySupport)                   \
  SIM_ONE(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion)                                            \
  SIM_ONE(cuCtxGetCacheConfig, 3020, cuCtxGetCacheConfig)                                          \
  SIM_ONE(cuCtxSetCacheConfig, 3020, cuCtxSetCacheConfig)                                          \
  SIM_ONE(cuCtxGetSharedMemConfig, 4020, cuCtxGetSharedMemConfig)                                  \
  SIM_ONE(cuCtxSetSharedMemConfig, 4020, cuCtxSetSharedMemConfig)                                  \
  SIM_ONE(cuCtxResetPersistingL2Cache, 11000, cuCtxResetPersistingL2Cache)                         \
  SIM_ONE(cuCtxSetFlags, 12010, cuCtxSetFlags)                                                     \
  SIM_ONE(cuFuncSetSharedMemConfig, 4020, cuFuncSetSharedMemConfig)                                \
  SIM_ONE(cuKernelGetLibrary, 12050, cuKernelGetLibrary)                                           \
  SIM_ONE(cuKernelSetCacheConfig, 12000, cuKernelSetCacheConfig)                                   \
  SIM_ONE(cuLibraryGetManaged, 12000, cuLibraryGetManaged)                                         \
  SIM_ONE(cuLibraryGetUnifiedFunction, 12000, cuLibraryGetUnifiedFunction)                         \
  SIM_ONE(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile)                                     \
  SIM_ONE(cuModuleEnumerateFunctions, 12040, cuModuleEnumerateFunctions)                           \
  SIM_ONE(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000,                                         \
          cuOccupancyMaxPotentialBlockSizeWithFlags)                                               \
  SIM_ONE(cuMemAdvise, 12020, cuMemAdvise_v2)                                                      \
  SIM_TWO(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz)            \
  SIM_ONE(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess)                                           \
  SIM_ONE(cuPointerSetAttribute, 6000, cuPointerSetAttribute)                                      \
  SIM_TWO(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz)      \
  SIM_TWO(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz)         \
  SIM_TWO(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz)            \
  SIM_TWO(cuStreamGetAttribute, 11000, cuStreamGetAttribute, cuStreamGetAttribute_ptsz)            \
  SIM_TWO(cuStreamSetAttribute, 11000, cuStreamSetAttribute, cuStreamSetAttribute_ptsz)            \
  SIM_TWO(cuStreamCopyAttributes, 11000, cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz)      \
  SIM_TWO(cuStreamAttachMemAsync, 7000, cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz)       \
  SIM_ONE(cuProfilerStart, 4000, cuProfilerStart)                                                  \
  SIM_ONE(cuProfilerStop, 4000, cuProfilerStop)                                                    \
  SIM_ONE(cuGraphKernelNodeSetParams, 12000, cuGraphKernelNodeSetParams_v2)                        \
  SIM_ONE(cuGraphMemcpyNodeSetParams, 10000, cuGraphMemcpyNodeSetParams)                           \
  SIM_ONE(cuGraphMemsetNodeSetParams, 10000, cuGraphMemsetNodeSetParams)                           \
  SIM_ONE(cuGraphHostNodeSetParams, 10000, cuGraphHostNodeSetParams)                               \
  SIM_ONE(cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2)                \
  SIM_ONE(cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams)                   \
  SIM_ONE(cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams)                   \
  SIM_ONE(cuGraphExecHostNodeSetParams, 10020, cuGraphExecHostNodeSetParams)                       \
  SIM_ONE(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2)                                    \
  SIM_ONE(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode)                                       \
  SIM_ONE(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode)                                       \
  SIM_ONE(cuGraphAddHostNode, 10000, cuGraphAddHostNode)                                           \
  SIM_ONE(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode)                                         \
  SIM_ONE(cuGraphAddDependencies, 10000, cuGraphAddDependencies)                                   \
  SIM_ONE(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2)                                \
  SIM_ONE(cuGraphGetNodes, 10000, cuGraphGetNodes)                                                 \
  SIM_ONE(cuGraphGetRootNodes, 10000, cuGraphGetRootNodes)                                         \
  SIM_ONE(cuGraphNodeGetType, 10000, cuGraphNodeGetType)                                           \
  SIM_ONE(cuGraphClone, 10000, cuGraphClone)                                                       \
  SIM_ONE(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode)

#define SIM_DECLARE_ONE(name, version, symbol) void symbol();
#define SIM_DECLARE_TWO(name, version, symbol, twin) \
  void symbol();                                     \
  void twin();
#define SIM_ROW_ONE(name, version, symbol) {#name, version, symbol, nullptr},
#define SIM_ROW_TWO(name, version, symbol, twin) {#name, version, symbol, twin},

extern "C" {
SIM_SYMBOLS(SIM_DECLARE_ONE, SIM_DECLARE_TWO)
}

namespace sim::driver {

const Symbol kSymbols[] = {SIM_SYMBOLS(SIM_ROW_ONE, SIM_ROW_TWO)};
const size_t kSymbolCount = sizeof(kSymbols) / sizeof(kSymbols[0]);

}  // namespace sim::driver
