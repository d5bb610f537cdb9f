// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cuMemcpy2D, cuMemcpy3D and their kin copy boxes in memory with pitches; arrays are not modelled.
#include "sim/driver/memory/transfer.h"
#include "sim/driver/memory/twins.h"

namespace sim::driver {
namespace {

// One end of a caller's structure. `address` is 0 where the type says another member is meant.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, height;
};

CUresult read_side(const Side& side, const Copy& size, uint64_t* address, Place* place,
                   size_t* pitch, size_t* layer) {
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      *address = reinterpret_cast<uint64_t>(side.host);
      *place = Place::host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      *address = side.device;
      *place = Place::device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      *address = side.device;
      *place = Place::any;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  *pitch = side.pitch != 0 ? side.pitch : size.width;
  *layer = *pitch * (side.height != 0 ? side.height : size.rows);
  if (*address != 0) *address += side.z * *layer + side.y * *pitch + side.x;
  return CUDA_SUCCESS;
}

CUresult read_sides(const Side& to, const Side& from, Copy* what) {
  const CUresult result =
      read_side(to, *what, &what->to, &what->to_place, &what->to_pitch, &what->to_layer);
  if (result != CUDA_SUCCESS) return result;
  return read_side(from, *what, &what->from, &what->from_place, &what->from_pitch,
                   &what->from_layer);
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same members but for contexts.
template <typename Given>
CUresult read_any(const Given& given, Copy* what) {
  what->width = given.WidthInBytes;
  what->rows = given.Height;
  what->layers = given.Depth;
  return read_sides({given.dstMemoryType, given.dstHost, given.dstDevice, given.dstXInBytes,
                     given.dstY, given.dstZ, given.dstPitch, given.dstHeight},
                    {given.srcMemoryType, given.srcHost, given.srcDevice, given.srcXInBytes,
                     given.srcY, given.srcZ, given.srcPitch, given.srcHeight},
                    what);
}
CUresult read_any(const CUDA_MEMCPY2D& given, Copy* what) {
  what->width = given.WidthInBytes;
  what->rows = given.Height;
  return read_sides({given.dstMemoryType, given.dstHost, given.dstDevice, given.dstXInBytes,
                     given.dstY, 0, given.dstPitch, 0},
                    {given.srcMemoryType, given.srcHost, given.srcDevice, given.srcXInBytes,
                     given.srcY, 0, given.srcPitch, 0},
                    what);
}

template <typename Given>
CUresult copy_box(CUstream stream, const Given* given, bool synchronous) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy what;
  const CUresult result = read_any(*given, &what);
  return result != CUDA_SUCCESS ? result : copy(stream, what, synchronous);
}

}  // namespace

CUresult read_copy(const CUDA_MEMCPY3D& given, Copy* out) { return read_any(given, out); }

}  // namespace sim::driver

using namespace sim::driver;

SIM_SYNC(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* given),
         copy_box(stream, given, true))
SIM_SYNC(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D* given),
         copy_box(stream, given, true))
SIM_ASYNC(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* given),
          copy_box(stream, given, false))
SIM_SYNC(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D* given),
         copy_box(stream, given, true))
SIM_ASYNC(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D* given),
          copy_box(stream, given, false))
SIM_SYNC(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER* given),
         copy_box(stream, given, true))
SIM_ASYNC(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D_PEER* given),
          copy_box(stream, given, false))
