// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies and fills of rows and of slices of rows, and copies between devices.
#include <algorithm>

#include "sim/runtime/copy.h"

namespace sim::runtime {
namespace {

struct Sides {
  CUmemorytype from, to;
};

// The kinds of memory that a direction is between.
Result sides_of(cudaMemcpyKind kind, Sides* out) {
  constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE,
                         kEither = CU_MEMORYTYPE_UNIFIED;
  constexpr Sides kSides[] = {
      {kHost, kHost}, {kHost, kDevice}, {kDevice, kHost}, {kDevice, kDevice}, {kEither, kEither}};
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  *out = kSides[kind];
  return cudaSuccess;
}

struct Rows {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch, width, height;
  cudaMemcpyKind kind;
};

Result read_rows(const Rows& rows, CUDA_MEMCPY2D* out) {
  Sides sides = {};
  const Result result = sides_of(rows.kind, &sides);
  if (result.failed()) return result;
  if (rows.height > 1 && (rows.width > rows.to_pitch || rows.width > rows.from_pitch)) {
    return cudaErrorInvalidPitchValue;
  }
  *out = {.srcMemoryType = sides.from,
          .srcHost = rows.from,
          .srcDevice = address(rows.from),
          .srcPitch = rows.from_pitch,
          .dstMemoryType = sides.to,
          .dstHost = rows.to,
          .dstDevice = address(rows.to),
          .dstPitch = rows.to_pitch,
          .WidthInBytes = rows.width,
          .Height = rows.height};
  return cudaSuccess;
}

Result copy_rows(const Driver& driver, const Rows& rows) {
  CUDA_MEMCPY2D what;
  const Result result = read_rows(rows, &what);
  if (result.failed() || rows.width == 0 || rows.height == 0) return result;
  return driver.cuMemcpy2DUnaligned(&what);
}

Result copy_rows_async(const Driver& driver, const Rows& rows, cudaStream_t stream) {
  CUDA_MEMCPY2D what;
  const Result result = read_rows(rows, &what);
  if (result.failed() || rows.width == 0 || rows.height == 0) return result;
  return driver.cuMemcpy2DAsync(&what, stream);
}

bool is_empty(const cudaExtent& extent) {
  return extent.width == 0 || extent.height == 0 || extent.depth == 0;
}

// Slices of a fill touch where the buffer has no rows beyond the extent's; they are one then.
template <typename F>
Result for_slices(const cudaPitchedPtr& buffer, const cudaExtent& extent, F fill) {
  if (is_empty(extent)) return cudaSuccess;
  if (buffer.ysize < extent.height && extent.depth > 1) return cudaErrorInvalidValue;
  if (buffer.ysize == extent.height || extent.depth == 1) {
    return fill(address(buffer.ptr), extent.height * extent.depth);
  }
  for (size_t slice = 0; slice < extent.depth; ++slice) {
    const Result result =
        fill(address(buffer.ptr) + slice * buffer.pitch * buffer.ysize, extent.height);
    if (result.failed()) return result;
  }
  return cudaSuccess;
}

Result fill_async(const Driver& driver, const cudaPitchedPtr& buffer, int value,
                  const cudaExtent& extent, cudaStream_t stream) {
  return for_slices(buffer, extent, [&](CUdeviceptr start, size_t rows) -> Result {
    return driver.cuMemsetD2D8Async(start, buffer.pitch, static_cast<unsigned char>(value),
                                    extent.width, rows, stream);
  });
}

}  // namespace

Result read_box(const cudaMemcpy3DParms& given, CUDA_MEMCPY3D* out) {
  if (given.srcArray != nullptr || given.dstArray != nullptr) {
    say("cudaMemcpy3D: arrays are not supported");
    return cudaErrorNotSupported;
  }
  Sides sides = {};
  const Result result = sides_of(given.kind, &sides);
  if (result.failed()) return result;
  *out = {.srcXInBytes = given.srcPos.x,
          .srcY = given.srcPos.y,
          .srcZ = given.srcPos.z,
          .srcMemoryType = sides.from,
          .srcHost = given.srcPtr.ptr,
          .srcDevice = address(given.srcPtr.ptr),
          .srcPitch = given.srcPtr.pitch,
          .srcHeight = given.srcPtr.ysize,
          .dstXInBytes = given.dstPos.x,
          .dstY = given.dstPos.y,
          .dstZ = given.dstPos.z,
          .dstMemoryType = sides.to,
          .dstHost = given.dstPtr.ptr,
          .dstDevice = address(given.dstPtr.ptr),
          .dstPitch = given.dstPtr.pitch,
          .dstHeight = given.dstPtr.ysize,
          .WidthInBytes = given.extent.width,
          .Height = given.extent.height,
          .Depth = given.extent.depth};
  return cudaSuccess;
}

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind) {
  const Rows rows = {to, to_pitch, from, from_pitch, width, height, kind};
  return with_context([&](const Driver& driver) { return copy_rows(driver, rows); });
}

SIM_RUNTIME cudaError_t cudaMemcpy2D_ptds(void* to, size_t to_pitch, const void* from,
                                          size_t from_pitch, size_t width, size_t height,
                                          cudaMemcpyKind kind) {
  const Rows rows = {to, to_pitch, from, from_pitch, width, height, kind};
  return on_own_stream([&](const Driver& driver, cudaStream_t stream) {
    return copy_rows_async(driver, rows, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                          size_t from_pitch, size_t width, size_t height,
                                          cudaMemcpyKind kind, cudaStream_t stream) {
  const Rows rows = {to, to_pitch, from, from_pitch, width, height, kind};
  return with_context([&](const Driver& driver) { return copy_rows_async(driver, rows, stream); });
}

SIM_RUNTIME cudaError_t cudaMemcpy2DAsync_ptsz(void* to, size_t to_pitch, const void* from,
                                               size_t from_pitch, size_t width, size_t height,
                                               cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, own(stream));
}

SIM_RUNTIME cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* params) {
  return with_context([&](const Driver& driver) -> Result {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D what;
    const Result result = read_box(*params, &what);
    if (result.failed() || is_empty(params->extent)) return result;
    return driver.cuMemcpy3D(&what);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return with_context([&](const Driver& driver) -> Result {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D what;
    const Result result = read_box(*params, &what);
    if (result.failed() || is_empty(params->extent)) return result;
    return driver.cuMemcpy3DAsync(&what, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* params) {
  const cudaError_t error = cudaMemcpy3DAsync(params, CU_STREAM_PER_THREAD);
  return error != cudaSuccess ? error : cudaStreamSynchronize(CU_STREAM_PER_THREAD);
}

SIM_RUNTIME cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* params,
                                               cudaStream_t stream) {
  return cudaMemcpy3DAsync(params, own(stream));
}

SIM_RUNTIME cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width,
                                     size_t height) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD2D8(address(pointer), pitch, static_cast<unsigned char>(value), width,
                               height);
  });
}

SIM_RUNTIME cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width,
                                          size_t height, cudaStream_t stream) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD2D8Async(address(pointer), pitch, static_cast<unsigned char>(value),
                                    width, height, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemset2D_ptds(void* pointer, size_t pitch, int value, size_t width,
                                          size_t height) {
  return on_own_stream([&](const Driver& driver, cudaStream_t stream) {
    return driver.cuMemsetD2D8Async(address(pointer), pitch, static_cast<unsigned char>(value),
                                    width, height, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemset2DAsync_ptsz(void* pointer, size_t pitch, int value, size_t width,
                                               size_t height, cudaStream_t stream) {
  return cudaMemset2DAsync(pointer, pitch, value, width, height, own(stream));
}

SIM_RUNTIME cudaError_t cudaMemset3D(cudaPitchedPtr buffer, int value, cudaExtent extent) {
  return with_context([&](const Driver& driver) {
    return for_slices(buffer, extent, [&](CUdeviceptr start, size_t rows) -> Result {
      return driver.cuMemsetD2D8(start, buffer.pitch, static_cast<unsigned char>(value),
                                 extent.width, rows);
    });
  });
}

SIM_RUNTIME cudaError_t cudaMemset3D_ptds(cudaPitchedPtr buffer, int value, cudaExtent extent) {
  return on_own_stream([&](const Driver& driver, cudaStream_t stream) {
    return fill_async(driver, buffer, value, extent, stream);
  });
}

SIM_RUNTIME cudaError_t cudaMemset3DAsync(cudaPitchedPtr buffer, int value, cudaExtent extent,
                                          cudaStream_t stream) {
  return with_context(
      [&](const Driver& driver) { return fill_async(driver, buffer, value, extent, stream); });
}

SIM_RUNTIME cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr buffer, int value, cudaExtent extent,
                                               cudaStream_t stream) {
  return cudaMemset3DAsync(buffer, value, extent, own(stream));
}
