// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies between devices, and access of one device to another's memory. The driver names devices by
// their contexts here.
#include "sim/runtime/entry.h"

namespace sim::runtime {
namespace {

struct Ends {
  CUcontext from, to;
};

// Runs body(const Driver&, Ends).
template <typename F>
cudaError_t between(int from, int to, F body) noexcept {
  return with_context([&](const Driver& driver) -> Result {
    Ends ends = {};
    Result result = primary_context(from, &ends.from);
    if (!result.failed()) result = primary_context(to, &ends.to);
    return result.failed() ? result : Result(body(driver, ends));
  });
}

Result read_box(const cudaMemcpy3DPeerParms& given, const Ends& ends, CUDA_MEMCPY3D_PEER* out) {
  if (given.srcArray != nullptr || given.dstArray != nullptr) {
    say("cudaMemcpy3DPeer: arrays are not supported");
    return cudaErrorNotSupported;
  }
  *out = {.srcXInBytes = given.srcPos.x,
          .srcY = given.srcPos.y,
          .srcZ = given.srcPos.z,
          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
          .srcDevice = address(given.srcPtr.ptr),
          .srcContext = ends.from,
          .srcPitch = given.srcPtr.pitch,
          .srcHeight = given.srcPtr.ysize,
          .dstXInBytes = given.dstPos.x,
          .dstY = given.dstPos.y,
          .dstZ = given.dstPos.z,
          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
          .dstDevice = address(given.dstPtr.ptr),
          .dstContext = ends.to,
          .dstPitch = given.dstPtr.pitch,
          .dstHeight = given.dstPtr.ysize,
          .WidthInBytes = given.extent.width,
          .Height = given.extent.height,
          .Depth = given.extent.depth};
  return cudaSuccess;
}

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return with_context([&](const Driver& driver) -> Result {
    CUcontext context = nullptr;
    const Result result = primary_context(peer, &context);
    return result.failed() ? result : Result(driver.cuCtxEnablePeerAccess(context, flags));
  });
}

SIM_RUNTIME cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return with_context([&](const Driver& driver) -> Result {
    CUcontext context = nullptr;
    const Result result = primary_context(peer, &context);
    return result.failed() ? result : Result(driver.cuCtxDisablePeerAccess(context));
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                                       size_t bytes) {
  return between(from_device, to_device, [&](const Driver& driver, const Ends& ends) {
    return driver.cuMemcpyPeer(address(to), ends.to, address(from), ends.from, bytes);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from,
                                            int from_device, size_t bytes, cudaStream_t stream) {
  return between(from_device, to_device, [&](const Driver& driver, const Ends& ends) {
    return driver.cuMemcpyPeerAsync(address(to), ends.to, address(from), ends.from, bytes, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* params) {
  if (params == nullptr) return record(cudaErrorInvalidValue);
  return between(params->srcDevice, params->dstDevice,
                 [&](const Driver& driver, const Ends& ends) -> Result {
                   CUDA_MEMCPY3D_PEER what;
                   const Result result = read_box(*params, ends, &what);
                   return result.failed() ? result : Result(driver.cuMemcpy3DPeer(&what));
                 });
}

SIM_RUNTIME cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* params,
                                              cudaStream_t stream) {
  if (params == nullptr) return record(cudaErrorInvalidValue);
  return between(params->srcDevice, params->dstDevice,
                 [&](const Driver& driver, const Ends& ends) -> Result {
                   CUDA_MEMCPY3D_PEER what;
                   const Result result = read_box(*params, ends, &what);
                   if (result.failed()) return result;
                   return driver.cuMemcpy3DPeerAsync(&what, stream);
                 });
}

SIM_RUNTIME cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms* params) {
  const cudaError_t error = cudaMemcpy3DPeerAsync(params, CU_STREAM_PER_THREAD);
  return error != cudaSuccess ? error : cudaStreamSynchronize(CU_STREAM_PER_THREAD);
}

SIM_RUNTIME cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms* params,
                                                   cudaStream_t stream) {
  return cudaMemcpy3DPeerAsync(params, own(stream));
}
