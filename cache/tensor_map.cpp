// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "cache/tensor_map.h"

#include <algorithm>

namespace lathe {
namespace {

CUtensorMapDataType element_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Dtype::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

CUtensorMapSwizzle swizzle_of(int bytes) {
  switch (bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace

Status encode_tensor_map(const Driver& driver, const TensorMapRecipe& recipe,
                         const MappedTensor& tensor, TensorMap* out) {
  const size_t rank = std::min(recipe.box.size(), kMostMapped);
  cuuint64_t extents[kMostMapped], strides[kMostMapped - 1];
  cuuint32_t box[kMostMapped], steps[kMostMapped];
  const auto bytes = static_cast<cuuint64_t>(bytes_of(recipe.dtype));
  for (size_t k = 0; k < rank; ++k) {
    extents[k] = static_cast<cuuint64_t>(tensor.extent[k]);
    if (k > 0) strides[k - 1] = static_cast<cuuint64_t>(tensor.stride[k]) * bytes;
    box[k] = static_cast<cuuint32_t>(recipe.box[k] > 0 ? recipe.box[k] : tensor.box[k]);
    steps[k] = 1;
  }
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap) && alignof(TensorMap) >= 64);
  return LATHE_DRIVER_CALL(driver, cuTensorMapEncodeTiled, reinterpret_cast<CUtensorMap*>(out),
                           element_of(recipe.dtype), static_cast<cuuint32_t>(rank),
                           const_cast<void*>(tensor.data), extents, strides, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(recipe.swizzle_bytes),
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace lathe
