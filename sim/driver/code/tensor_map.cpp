// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles tensor maps: the calls that make and change them.
#include "sim/exec/tensor_map.h"

#include <cstring>

#include "sim/driver/entry.h"
#include "sim/driver/report/report.h"

namespace sim::driver {
namespace {

constexpr uintptr_t kAlignment = 64;

CUresult refuse(const char* call, const std::string& text, CUresult code) {
  report_note(std::string(call) + ": " + text);
  return code;
}

CUresult check_place(const char* call, const CUtensorMap* map, const Context& context) {
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % kAlignment != 0) {
    return refuse(call, "the map is not at a multiple of 64", CUDA_ERROR_INVALID_VALUE);
  }
  if (context.device->profile.major < 9) {
    return refuse(call, "the device has no tensor maps", CUDA_ERROR_NOT_SUPPORTED);
  }
  return CUDA_SUCCESS;
}

// Returns true for maps that the header allows and the simulator does not model.
bool is_unmodelled(const TensorMapView& map) {
  const bool packed = map.dtype >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B &&
                      map.dtype <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
  const bool interleaved = map.interleave == CU_TENSOR_MAP_INTERLEAVE_16B ||
                           map.interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
  const bool atoms = map.swizzle >= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B &&
                     map.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B;
  return packed || interleaved || atoms;
}

CUresult store(const char* call, const TensorMapView& map, CUtensorMap* out) {
  const std::string fault = tensor_map_fault(map);
  if (!fault.empty()) {
    return refuse(call, fault,
                  is_unmodelled(map) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
  }
  static_assert(sizeof(CUtensorMap) == kTensorMapBytes);
  encode_tensor_map(map, out);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                               void* base, const cuuint64_t* dims, const cuuint64_t* strides,
                               const cuuint32_t* box, const cuuint32_t* element_strides,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  static constexpr char kCall[] = "cuTensorMapEncodeTiled";
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    const CUresult result = check_place(kCall, out, context);
    if (result != CUDA_SUCCESS) return result;
    if (rank < 1 || rank > 5 || dims == nullptr || box == nullptr || element_strides == nullptr ||
        (strides == nullptr && rank > 1)) {
      return refuse(kCall, "the rank is not 1 to 5, or an array is missing",
                    CUDA_ERROR_INVALID_VALUE);
    }
    if (promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE ||
        promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        fill < CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) {
      return refuse(kCall, "no such L2 promotion or fill", CUDA_ERROR_INVALID_VALUE);
    }
    sim::TensorMapView map;
    map.dtype = static_cast<unsigned>(type);
    map.rank = rank;
    map.swizzle = static_cast<unsigned>(swizzle);
    map.interleave = static_cast<unsigned>(interleave);
    map.fill_nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    map.base = reinterpret_cast<uint64_t>(base);
    for (unsigned axis = 0; axis < rank; ++axis) {
      map.dims[axis] = dims[axis];
      map.box[axis] = box[axis];
      if (axis == 0) continue;  // the innermost stride is the element's size, its step is ignored
      map.strides[axis] = strides[axis - 1];
      map.element_strides[axis] = element_strides[axis];
    }
    return store(kCall, map, out);
  });
}

SIM_API cuTensorMapReplaceAddress(CUtensorMap* map, void* base) {
  static constexpr char kCall[] = "cuTensorMapReplaceAddress";
  return with_context([&](Driver&, Lock&, Context& context) -> CUresult {
    const CUresult result = check_place(kCall, map, context);
    if (result != CUDA_SUCCESS) return result;
    sim::TensorMapView view;
    if (!sim::decode_tensor_map(map, &view)) {
      return refuse(kCall, "the bytes are no tensor map of this driver", CUDA_ERROR_INVALID_VALUE);
    }
    view.base = reinterpret_cast<uint64_t>(base);
    return store(kCall, view, map);
  });
}
