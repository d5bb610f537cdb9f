// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cuTensorMapEncodeTiled; the other encodings are for layouts that the interpreter refuses.
#include "sim/exec/tensor_map.h"

#include "sim/driver/entry.h"
#include "sim/driver/report.h"

using namespace sim::driver;

SIM_API cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                               void* base, const cuuint64_t* dims, const cuuint64_t* strides,
                               const cuuint32_t* box, const cuuint32_t* element_strides,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  return with_driver([&](Driver&, Lock&) -> CUresult {
    if (out == nullptr || reinterpret_cast<uintptr_t>(out) % 64 != 0 || rank < 1 || rank > 5 ||
        dims == nullptr || (strides == nullptr && rank > 1) || box == nullptr ||
        element_strides == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    sim::TensorMapView map;
    map.dtype = static_cast<unsigned>(type);
    map.rank = rank;
    map.swizzle = static_cast<unsigned>(swizzle);
    map.interleave = static_cast<unsigned>(interleave);
    map.fill_nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    map.flush =
        type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ || type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
    map.element_bytes = sim::tensor_element_bytes(map.dtype);
    map.base = reinterpret_cast<uint64_t>(base);
    map.strides[0] = map.element_bytes;
    for (cuuint32_t i = 0; i < rank; ++i) {
      map.dims[i] = dims[i];
      map.box[i] = box[i];
      map.element_strides[i] = element_strides[i];
      if (i > 0) map.strides[i] = strides[i - 1];
    }
    const std::string fault = sim::tensor_map_fault(map);
    if (!fault.empty()) {
      report_note("cuTensorMapEncodeTiled: " + fault);
      return CUDA_ERROR_INVALID_VALUE;
    }
    sim::encode_tensor_map(map, out);
    return CUDA_SUCCESS;
  });
}
