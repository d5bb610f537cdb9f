// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cuMemcpy* and cuMemset*: the many names of copy() and fill(). The twins with a per-thread default
// stream are here too.
#include "sim/driver/entry.h"
#include "sim/driver/memory/transfer.h"

using namespace sim::driver;

namespace {

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

Copy line(uint64_t to, Place to_place, uint64_t from, Place from_place, size_t bytes) {
  Copy what;
  what.to = to;
  what.to_place = to_place;
  what.from = from;
  what.from_place = from_place;
  what.width = bytes;
  return what;
}

CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D* given, bool synchronous) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy what;
  what.width = given->WidthInBytes;
  what.rows = given->Height;
  what.to_pitch = given->dstPitch != 0 ? given->dstPitch : given->WidthInBytes;
  what.from_pitch = given->srcPitch != 0 ? given->srcPitch : given->WidthInBytes;
  switch (given->dstMemoryType) {
    case CU_MEMORYTYPE_HOST:
      what.to = number(given->dstHost);
      what.to_place = Place::host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      what.to_place = Place::device;
      [[fallthrough]];
    case CU_MEMORYTYPE_UNIFIED:
      what.to = given->dstDevice;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // arrays are not modelled
  }
  switch (given->srcMemoryType) {
    case CU_MEMORYTYPE_HOST:
      what.from = number(given->srcHost);
      what.from_place = Place::host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      what.from_place = Place::device;
      [[fallthrough]];
    case CU_MEMORYTYPE_UNIFIED:
      what.from = given->srcDevice;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (what.to != 0) what.to += given->dstY * what.to_pitch + given->dstXInBytes;
  if (what.from != 0) what.from += given->srcY * what.from_pitch + given->srcXInBytes;
  return copy(stream, what, synchronous);
}

CUresult set(CUstream stream, CUdeviceptr to, uint32_t value, unsigned element, size_t count,
             bool synchronous) {
  Fill what;
  what.to = to;
  what.value = value;
  what.element = element;
  what.columns = count;
  return fill(stream, what, synchronous);
}

CUresult set_2d(CUstream stream, CUdeviceptr to, size_t pitch, uint32_t value, unsigned element,
                size_t columns, size_t rows, bool synchronous) {
  Fill what;
  what.to = to;
  what.value = value;
  what.element = element;
  what.columns = columns;
  what.rows = rows;
  what.pitch = pitch;
  return fill(stream, what, synchronous);
}

CUstream own(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

}  // namespace

// SIM_SYNC(name, twin, (parameters), expression in `stream`): a call in the default stream.
#define SIM_SYNC(name, twin, parameters, ...)     \
  SIM_API name parameters {                       \
    CUstream const stream = CU_STREAM_LEGACY;     \
    return __VA_ARGS__;                           \
  }                                               \
  SIM_API twin parameters {                       \
    CUstream const stream = CU_STREAM_PER_THREAD; \
    return __VA_ARGS__;                           \
  }

#define SIM_UNPACK(...) __VA_ARGS__

// SIM_ASYNC(name, twin, (parameters but the stream), expression in `stream`).
#define SIM_ASYNC(name, twin, parameters, ...)                                 \
  SIM_API name(SIM_UNPACK parameters, CUstream stream) { return __VA_ARGS__; } \
  SIM_API twin(SIM_UNPACK parameters, CUstream stream) {                       \
    stream = own(stream);                                                      \
    return __VA_ARGS__;                                                        \
  }

SIM_SYNC(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
         copy(stream, line(to, Place::any, from, Place::any, bytes), true))
SIM_SYNC(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void* from, size_t bytes),
         copy(stream, line(to, Place::device, number(from), Place::host, bytes), true))
SIM_SYNC(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void* to, CUdeviceptr from, size_t bytes),
         copy(stream, line(number(to), Place::host, from, Place::device, bytes), true))
SIM_SYNC(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
         copy(stream, line(to, Place::device, from, Place::device, bytes), true))
SIM_SYNC(cuMemcpyPeer, cuMemcpyPeer_ptds,
         (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
         copy(stream, line(to, Place::device, from, Place::device, bytes), true))
SIM_SYNC(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* given),
         copy_2d(stream, given, true))
SIM_SYNC(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D* given),
         copy_2d(stream, given, true))

SIM_ASYNC(cuMemcpyAsync, cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
          copy(stream, line(to, Place::any, from, Place::any, bytes), false))
SIM_ASYNC(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
          (CUdeviceptr to, const void* from, size_t bytes),
          copy(stream, line(to, Place::device, number(from), Place::host, bytes), false))
SIM_ASYNC(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
          (void* to, CUdeviceptr from, size_t bytes),
          copy(stream, line(number(to), Place::host, from, Place::device, bytes), false))
SIM_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
          (CUdeviceptr to, CUdeviceptr from, size_t bytes),
          copy(stream, line(to, Place::device, from, Place::device, bytes), false))
SIM_ASYNC(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
          (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
          copy(stream, line(to, Place::device, from, Place::device, bytes), false))
SIM_ASYNC(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* given),
          copy_2d(stream, given, false))

SIM_SYNC(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char value, size_t count),
         set(stream, to, value, 1, count, true))
SIM_SYNC(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr to, unsigned short value, size_t count),
         set(stream, to, value, 2, count, true))
SIM_SYNC(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr to, unsigned value, size_t count),
         set(stream, to, value, 4, count, true))
SIM_SYNC(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
         (CUdeviceptr to, size_t pitch, unsigned char value, size_t columns, size_t rows),
         set_2d(stream, to, pitch, value, 1, columns, rows, true))
SIM_SYNC(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
         (CUdeviceptr to, size_t pitch, unsigned value, size_t columns, size_t rows),
         set_2d(stream, to, pitch, value, 4, columns, rows, true))

SIM_SYNC(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
         (CUdeviceptr to, size_t pitch, unsigned short value, size_t columns, size_t rows),
         set_2d(stream, to, pitch, value, 2, columns, rows, true))

SIM_ASYNC(cuMemsetD8Async, cuMemsetD8Async_ptsz,
          (CUdeviceptr to, unsigned char value, size_t count),
          set(stream, to, value, 1, count, false))
SIM_ASYNC(cuMemsetD16Async, cuMemsetD16Async_ptsz,
          (CUdeviceptr to, unsigned short value, size_t count),
          set(stream, to, value, 2, count, false))
SIM_ASYNC(cuMemsetD32Async, cuMemsetD32Async_ptsz, (CUdeviceptr to, unsigned value, size_t count),
          set(stream, to, value, 4, count, false))
SIM_ASYNC(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
          (CUdeviceptr to, size_t pitch, unsigned char value, size_t columns, size_t rows),
          set_2d(stream, to, pitch, value, 1, columns, rows, false))
SIM_ASYNC(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
          (CUdeviceptr to, size_t pitch, unsigned short value, size_t columns, size_t rows),
          set_2d(stream, to, pitch, value, 2, columns, rows, false))
SIM_ASYNC(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
          (CUdeviceptr to, size_t pitch, unsigned value, size_t columns, size_t rows),
          set_2d(stream, to, pitch, value, 4, columns, rows, false))
