// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Encodes tensor maps at launch, from a recipe of the spec and the tensor of the call.
#pragma once

#include <array>
#include <cstdint>

#include "codegen/spec.h"
#include "device/driver.h"
#include "templates/params/tensor_map.h"

namespace lathe {

// A tensor in global memory, the fastest dimension first, which is contiguous. Strides are in
// elements. Base and strides are multiples of 16 bytes.
inline constexpr size_t kMostMapped = 5;  // dimensions
struct MappedTensor {
  const void* data = nullptr;
  std::array<int64_t, kMostMapped> extent{};  // of as many dimensions as the recipe's box has
  std::array<int64_t, kMostMapped> stride{};  // the first is 1
  std::array<int, kMostMapped> box{};         // where the recipe leaves it to the call
};

// A recipe of a loaded kernel, in words that are read fast. A form is used with one driver.
struct TensorMapForm {
  explicit TensorMapForm(const TensorMapRecipe& recipe);

  uint64_t number;  // that no other form of the process has had
  Dtype dtype;
  int swizzle_bytes, rank;
  std::array<int, kMostMapped> box{};
};

// Fills `out`. Reading outside the tensor gives zeros. Fast enough for a launch: it allocates
// nothing and takes no lock. All extents are positive. The driver is not asked again for a map that
// the thread made lately.
Status encode_tensor_map(const Driver& driver, const TensorMapForm& form,
                         const MappedTensor& tensor, TensorMap* out);

}  // namespace lathe
