// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tensor maps of a caller's kernels: what a box may be, and the recipes that specs have. Functions
// of integers: run.cpp encodes the maps.
#pragma once

#include <string>
#include <vector>

#include "codegen/spec.h"
#include "ops/own/operator.h"

namespace lathe::own {

// "sm_90a" -> 90.
int64_t arch_number(const std::string& arch);

// "is 512; allowed are 1 to 256", of one extent of a box; of the bytes of a swizzle.
Status check_box_extent(int64_t extent);
Status check_swizzle(int64_t bytes);

// Returns the recipes of the maps of all tensors that are given, in their order. INVALID_ARGUMENT
// for a box that hardware does not copy; UNSUPPORTED before sm_90, if there is any.
Result<std::vector<TensorMapRecipe>> map_recipes(const lathe_problem& problem,
                                                 const KnownValues& known, const std::string& arch);

// Refuses strides, where they are known, that no map may have: of contiguous tensors whose inner
// dims are no multiple of 16 bytes.
Status check_mapped_rows(const lathe_problem& problem);

// The same of a call: the stride in elements of dimension `dim`, which is not the last.
Status check_mapped_stride(const std::string& tensor, int dim, int64_t stride, int element_bytes);

}  // namespace lathe::own
