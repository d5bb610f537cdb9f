// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the _ptsz twins: the same calls with 0 meaning the calling thread's own stream.
// Those of copies, fills and values are in memory/.
#include "sim/driver/entry.h"
#include "sim/driver/work.h"

#undef cuStreamGetCaptureInfo

extern "C" CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                                      CUgraph*, const CUgraphNode**, size_t*);

using sim::driver::own;

SIM_API cuLaunchKernel_ptsz(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream stream, void** params, void** extra) {
  return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, own(stream),
                        params, extra);
}

SIM_API cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params,
                              void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig mine = *config;
  mine.hStream = own(mine.hStream);
  return cuLaunchKernelEx(&mine, f, params, extra);
}

SIM_API cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y,
                                       unsigned block_z, unsigned shared, CUstream stream,
                                       void** params) {
  return cuLaunchCooperativeKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                   own(stream), params);
}

SIM_API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
  return cuLaunchHostFunc(own(stream), function, data);
}

SIM_API cuStreamSynchronize_ptsz(CUstream stream) { return cuStreamSynchronize(own(stream)); }

SIM_API cuStreamQuery_ptsz(CUstream stream) { return cuStreamQuery(own(stream)); }

SIM_API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return cuStreamWaitEvent(own(stream), event, flags);
}

SIM_API cuStreamGetCtx_ptsz(CUstream stream, CUcontext* out) {
  return cuStreamGetCtx(own(stream), out);
}

SIM_API cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* out, CUgreenCtx* green) {
  return cuStreamGetCtx_v2(own(stream), out, green);
}

SIM_API cuStreamGetFlags_ptsz(CUstream stream, unsigned* out) {
  return cuStreamGetFlags(own(stream), out);
}

SIM_API cuStreamGetPriority_ptsz(CUstream stream, int* out) {
  return cuStreamGetPriority(own(stream), out);
}

SIM_API cuStreamGetId_ptsz(CUstream stream, unsigned long long* out) {
  return cuStreamGetId(own(stream), out);
}

SIM_API cuStreamGetDevice_ptsz(CUstream stream, CUdevice* out) {
  return cuStreamGetDevice(own(stream), out);
}

SIM_API cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return cuStreamBeginCapture(own(stream), mode);
}

SIM_API cuStreamEndCapture_ptsz(CUstream stream, CUgraph* out) {
  return cuStreamEndCapture(own(stream), out);
}

SIM_API cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return cuStreamIsCapturing(own(stream), status);
}

SIM_API cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                       cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                       size_t* count) {
  return cuStreamGetCaptureInfo_v2(own(stream), status, id, graph, nodes, count);
}

SIM_API cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                       cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                       const CUgraphEdgeData** edges, size_t* count) {
  return cuStreamGetCaptureInfo_v3(own(stream), status, id, graph, nodes, edges, count);
}

SIM_API cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback function, void* data,
                                 unsigned flags) {
  return cuStreamAddCallback(own(stream), function, data, flags);
}

SIM_API cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return cuEventRecord(event, own(stream));
}

SIM_API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
  return cuEventRecordWithFlags(event, own(stream), flags);
}

SIM_API cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return cuMemAllocAsync(out, bytes, own(stream));
}

SIM_API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                     CUstream stream) {
  return cuMemAllocFromPoolAsync(out, bytes, pool, own(stream));
}

SIM_API cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return cuMemFreeAsync(address, own(stream));
}

SIM_API cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return cuGraphLaunch(exec, own(stream));
}
