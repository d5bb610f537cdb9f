// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Most tensors have no gaps, and most others are views whose dimensions lie one in another: these
// are passed in one walk over the dimensions. All else takes the general checks, which also say
// what is wrong.
#include "ops/strides.h"

#include <algorithm>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

Status size_error(const Slot& slot, const DLTensor& from, const char* unit) {
  return invalid(text(slot.name, " has shape ", extents_text(from.ndim, from.shape),
                      "; its size passes 2^63 ", unit));
}

Status stride_error(const Slot& slot, const DLTensor& from, const std::string& why) {
  return invalid(text(slot.name, " has strides ", extents_text(from.ndim, from.strides),
                      " for shape ", extents_text(from.ndim, from.shape), "; ", why));
}

// Returns whether every stride steps over all that the dimensions behind it reach, and the size
// fits: so are almost all views, and then no two elements overlap.
bool is_nested(const Slot& slot, const Tensor& tensor) {
  int64_t reach = 1;  // elements from the first to one past the last
  for (int d = slot.shape.rank - 1; d >= 0; --d) {
    const int64_t extent = tensor.extent[d], stride = tensor.stride[d];
    if (extent <= 1) continue;
    int64_t step;
    if (stride < reach || __builtin_mul_overflow(extent - 1, stride, &step) ||
        __builtin_add_overflow(reach, step, &reach)) {
      return false;
    }
  }
  int64_t bytes;
  return !__builtin_mul_overflow(reach, slot.element, &bytes);
}

// Checks that elements do not overlap: every stride must step over all that the smaller ones reach.
// Only what repeats along a whole dimension may, where it is read by kernels that allow it.
Status check_overlap(const Slot& slot, const DLTensor& from, const Tensor& tensor) {
  if (is_nested(slot, tensor)) return {};
  const int rank = slot.shape.rank;
  std::array<int, kMaxRank> order{};
  for (int d = 0; d < rank; ++d) order[d] = d;
  for (int i = 1; i < rank; ++i) {
    for (int j = i; j > 0 && tensor.stride[order[j]] < tensor.stride[order[j - 1]]; --j) {
      std::swap(order[j], order[j - 1]);
    }
  }
  int64_t reach = 1;  // elements from the first to one past the last
  for (int i = 0; i < rank; ++i) {
    const int64_t extent = tensor.extent[order[i]], stride = tensor.stride[order[i]];
    if (extent <= 1 || (stride == 0 && slot.repeats)) continue;
    if (stride == 0 && !slot.written) {
      return stride_error(slot, from,
                          text("elements overlap: the stride at ", order[i],
                               " is 0, which an input may have where no kernel copies by tensor "
                               "maps (with a smaller lathe_problem_alignment)"));
    }
    if (stride < reach) {
      return stride_error(
          slot, from,
          text("elements overlap: the stride at ", order[i], " must be at least ", reach));
    }
    int64_t step;
    if (__builtin_mul_overflow(extent - 1, stride, &step) ||
        __builtin_add_overflow(reach, step, &reach)) {
      return stride_error(slot, from, "its size passes 2^63");
    }
  }
  int64_t bytes;
  if (__builtin_mul_overflow(reach, slot.element, &bytes)) {
    return stride_error(slot, from, "its size passes 2^63 bytes");
  }
  return {};
}

// Takes over the extents and gives the tensor the strides of one without gaps. Returns in `gaps`
// whether the caller's strides are others, and in `empty` whether there is no element.
Status read_shape(const Slot& slot, const DLTensor& from, Tensor* tensor, bool* gaps, bool* empty) {
  int64_t stride = 1;
  for (int d = slot.shape.rank - 1; d >= 0; --d) {
    const int64_t extent = from.shape[d];
    tensor->extent[d] = extent;
    tensor->stride[d] = stride;
    if (extent <= 1) {
      *empty = *empty || extent == 0;
      continue;
    }
    if (from.strides) *gaps = *gaps || from.strides[d] != stride;
    if (__builtin_mul_overflow(stride, extent, &stride)) {
      return size_error(slot, from, "elements");
    }
  }
  int64_t bytes;
  if (__builtin_mul_overflow(stride, slot.element, &bytes)) {
    return size_error(slot, from, "bytes");
  }
  return {};
}

// Takes over strides that are not those of a tensor without gaps.
Status read_strides(const Slot& slot, const DLTensor& from, Tensor* tensor) {
  const int rank = slot.shape.rank;
  for (int d = 0; d < rank; ++d) {
    if (tensor->extent[d] <= 1) continue;
    const int64_t stride = from.strides[d];
    if (stride < 0) return stride_error(slot, from, "negative strides are not allowed");
    if (!slot.strided && stride != tensor->stride[d]) {
      return stride_error(slot, from, "it must be contiguous");
    }
    if (d == rank - 1 && stride != 1) {
      return stride_error(slot, from, "the last must be 1: rows are contiguous");
    }
    tensor->stride[d] = stride;
  }
  return check_overlap(slot, from, *tensor);
}

// Alignments are powers of 2; a division for each dimension would be half of a run's cost.
bool is_aligned(const Slot& slot, int64_t elements) {
  return (elements * slot.element & (slot.alignment - 1)) == 0;
}

Status check_stride_alignment(const Slot& slot, const Tensor& tensor) {
  for (int d = 0; d + 1 < slot.shape.rank; ++d) {
    // One row is never stepped over: its stride is the contiguous one whatever was given.
    if (tensor.extent[d] <= 1 || is_aligned(slot, tensor.stride[d])) continue;
    return invalid(text(slot.name, " has stride ", tensor.stride[d], " at ", d, ", ",
                        tensor.stride[d] * slot.element,
                        " bytes; the problem declared multiples of ", slot.alignment,
                        " bytes (lathe_problem_alignment)"));
  }
  return {};
}

}  // namespace

Status read_layout(const Slot& slot, const DLTensor& from, Tensor* tensor, bool* empty) {
  bool gaps = false;
  LATHE_TRY(read_shape(slot, from, tensor, &gaps, empty));
  if (*empty) return {};
  if (gaps) LATHE_TRY(read_strides(slot, from, tensor));
  // Strides without gaps are multiples of a row.
  const bool aligned = !gaps && is_aligned(slot, tensor->extent[slot.shape.rank - 1]);
  return slot.strided && !aligned ? check_stride_alignment(slot, *tensor) : Status();
}

}  // namespace lathe
