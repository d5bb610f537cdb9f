// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that does nothing and says that it worked: what is left of a launch is lathe's own
// cost. Memory is host memory; everything else is a made-up handle.
#include <cuda.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Handle>
CUresult hand_out(Handle* out) {
  static int object;
  *out = reinterpret_cast<Handle>(&object);
  return CUDA_SUCCESS;
}

thread_local CUcontext current = nullptr;

}  // namespace

#define NULL_API extern "C" __attribute__((visibility("default"))) CUresult

NULL_API cuInit(unsigned) { return CUDA_SUCCESS; }
NULL_API cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
NULL_API cuGetErrorName(CUresult, const char** text) { return *text = "?", CUDA_SUCCESS; }
NULL_API cuGetErrorString(CUresult, const char** text) { return *text = "?", CUDA_SUCCESS; }
NULL_API cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
NULL_API cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
NULL_API cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "null driver", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}
// The device is as large as an H100.
NULL_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return *value = 9, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return *value = 0, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return *value = 132, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return *value = 227 << 10, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return *value = 228 << 10, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return *value = 50 << 20, CUDA_SUCCESS;
    default:
      return *value = 65536, CUDA_SUCCESS;
  }
}
NULL_API cuDeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = 1ul << 36, CUDA_SUCCESS; }
NULL_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice) { return hand_out(out); }
NULL_API cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
NULL_API cuCtxPushCurrent(CUcontext context) { return current = context, CUDA_SUCCESS; }
NULL_API cuCtxPopCurrent(CUcontext* out) {
  if (out != nullptr) *out = current;
  return current = nullptr, CUDA_SUCCESS;
}
NULL_API cuCtxGetCurrent(CUcontext* out) { return *out = current, CUDA_SUCCESS; }
NULL_API cuCtxSynchronize() { return CUDA_SUCCESS; }
NULL_API cuLibraryLoadData(CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return hand_out(out);
}
NULL_API cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
NULL_API cuLibraryGetKernel(CUkernel* out, CUlibrary, const char*) { return hand_out(out); }
NULL_API cuKernelGetFunction(CUfunction* out, CUkernel) { return hand_out(out); }
NULL_API cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  return *value = 0, CUDA_SUCCESS;
}
NULL_API cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
// Takes as long as the real one on an H200's host, 86 ns (bench/results/units-h200-2026-11-26.csv),
// and writes as much.
NULL_API cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* data,
                                const cuuint64_t* extents, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(86);
  while (std::chrono::steady_clock::now() < until) {
  }
  std::memset(map, 0, sizeof(*map));
  std::memcpy(map, &data, sizeof(data));
  std::memcpy(reinterpret_cast<char*>(map) + 8, extents, 8);
  return CUDA_SUCCESS;
}
NULL_API cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
NULL_API cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) {
  return CUDA_SUCCESS;
}
NULL_API cuStreamCreate(CUstream* out, unsigned) { return hand_out(out); }
NULL_API cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
NULL_API cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
NULL_API cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
NULL_API cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* out) {
  return *out = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
NULL_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
NULL_API cuEventCreate(CUevent* out, unsigned) { return hand_out(out); }
NULL_API cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
NULL_API cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
NULL_API cuEventQuery(CUevent) { return CUDA_SUCCESS; }
NULL_API cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
NULL_API cuEventElapsedTime(float* ms, CUevent, CUevent) { return *ms = 0, CUDA_SUCCESS; }
NULL_API cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return *out = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
}
NULL_API cuMemFree(CUdeviceptr memory) {
  return std::free(reinterpret_cast<void*>(memory)), CUDA_SUCCESS;
}
NULL_API cuMemGetInfo(size_t* available, size_t* total) {
  return *available = *total = 1ul << 36, CUDA_SUCCESS;
}
NULL_API cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
NULL_API cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
NULL_API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes),
         CUDA_SUCCESS;
}
NULL_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), CUDA_SUCCESS;
}
