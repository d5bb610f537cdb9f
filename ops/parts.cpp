// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The steps of an operator, and their calls.
#include "ops/parts.h"

#include <algorithm>
#include <cassert>

namespace lathe {

Result<std::unique_ptr<Part>> Part::make(const char* op,
                                         Result<std::unique_ptr<Executor>> executor) {
  LATHE_TRY(executor);
  auto part = std::make_unique<Part>();
  part->executor_ = std::move(*executor);
  const std::span<const TensorInfo> tensors = find_operator(op)->tensors;
  part->shapes_.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int rank = 1; rank <= kMaxRank; ++rank) {
      part->shapes_[i][rank] = shape_of_rank(tensors[i].shape, rank);
    }
  }
  return part;
}

void Part::put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
               std::initializer_list<int64_t> strides) const {
  const Shape& shape = shapes_[tensor][extents.size()];
  assert(shape.rank == static_cast<int>(extents.size()));
  Tensor& out = call->tensors[tensor];
  out.data = static_cast<char*>(const_cast<void*>(data));
  std::copy(extents.begin(), extents.end(), out.extent.begin());
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    call->extents[shape.dims[i].dim] = out.extent[i] - shape.dims[i].plus;
    out.stride[i] = stride;
    stride *= std::max<int64_t>(out.extent[i], 1);
  }
  if (strides.size() > 0) std::copy(strides.begin(), strides.end(), out.stride.begin());
}

}  // namespace lathe
