// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cuMemcpy* and cuMemset*: the many names of copy() and fill(). The twins with a
// per-thread default stream are here too.
#include "sim/driver/memory/transfer.h"
#include "sim/driver/memory/twins.h"

using namespace sim::driver;

namespace {

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

Copy line(uint64_t to, Place to_place, uint64_t from, Place from_place, size_t bytes) {
  return {.to = to, .from = from, .to_place = to_place, .from_place = from_place, .width = bytes};
}

CUresult set_2d(CUstream stream, CUdeviceptr to, size_t pitch, uint32_t value, unsigned element,
                size_t columns, size_t rows, bool synchronous) {
  return fill(stream, {to, value, element, columns, rows, pitch}, synchronous);
}

CUresult set(CUstream stream, CUdeviceptr to, uint32_t value, unsigned element, size_t count,
             bool synchronous) {
  return set_2d(stream, to, 0, value, element, count, 1, synchronous);
}

}  // namespace

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
