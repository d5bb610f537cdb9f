// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks that a candidate computed what the default computed: values within what another order of
// sums explains, and not a byte outside of the tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/dtype.h"
#include "codegen/base/status.h"

namespace lathe {

// A tensor's memory: `guard` bytes, from its first element to behind its last, `guard` bytes.
struct OutputLayout {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> extents, strides;  // strides in elements, none negative
  size_t guard = 0;

  size_t inner_bytes() const;  // without the guards
};

// `filled`: the memory as it was before the runs. INVALID_ARGUMENT with the tensor, the place and
// both values.
Status compare_outputs(const OutputLayout& layout, std::string_view filled,
                       std::string_view expected, std::string_view found);

}  // namespace lathe
