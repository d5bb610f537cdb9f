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

template <typename... Why>
Status shape_error(const Slot& slot, const DLTensor& tensor, const Why&... why) {
  return invalid(text(slot.name, " has shape ", extents_text(tensor.ndim, tensor.shape), why...));
}

// Says why an extent is refused. `known` is that of the tensors before it.
Status extent_error(const Slot& slot, const Extents& declared, const DLTensor& tensor, int d,
                    int64_t known) {
  const Axis axis = slot.shape.dims[d];
  const int64_t found = tensor.shape[d] - axis.plus;
  if (axis.dim == Dim::fixed) {
    return shape_error(slot, tensor, "; extent ", d, " of ", shape_text(slot.shape), " must be ",
                       axis.plus);
  }
  if (found < 0 || found > kMaxExtent) {
    return shape_error(slot, tensor, "; extent ", d, " of ", shape_text(slot.shape), " must be ",
                       axis.plus, " to ", kMaxExtent);
  }
  const int64_t expected = declared[axis.dim];
  if (expected != kUnknown && expected != found) {
    return shape_error(slot, tensor, ", so ", slot.shape.name(axis.dim), " is ", found,
                       "; the problem declared ", slot.shape.name(axis.dim), " = ", expected);
  }
  return shape_error(slot, tensor, ", so ", slot.shape.name(axis.dim), " is ", found,
                     "; the tensors before it have ", slot.shape.name(axis.dim), " = ", known);
}

Status check_extents(const Slot& slot, const Extents& declared, const DLTensor& tensor,
                     Extents* extents) {
  for (int d = 0; d < slot.shape.rank; ++d) {
    const Axis axis = slot.shape.dims[d];
    const int64_t found = tensor.shape[d] - axis.plus;
    int64_t& known = (*extents)[axis.dim];
    if (found == known && found >= 0) continue;
    const int64_t expected = declared[axis.dim];
    if (known != kUnknown || found < 0 || found > kMaxExtent ||
        (expected != kUnknown && expected != found)) {
      return extent_error(slot, declared, tensor, d, known);
    }
    known = found;
  }
  return {};
}

Status size_error(const Slot& slot, const DLTensor& from, const char* unit) {
  return invalid(text(slot.name, " has shape ", extents_text(from.ndim, from.shape),
                      "; its size passes 2^63 ", unit));
}

Status stride_error(const Slot& slot, const DLTensor& from, const std::string& why) {
  return invalid(text(slot.name, " has strides ", extents_text(from.ndim, from.strides),
                      " for shape ", extents_text(from.ndim, from.shape), "; ", why));
}

// Returns whether every stride steps over all that the dimensions behind it reach, and the size
// fits: so are almost all views, and then no two elements overlap. Sets the bytes that they span.
bool is_nested(const Slot& slot, const DLTensor& from, const Tensor& tensor, int64_t* bytes) {
  int64_t reach = 1;  // elements from the first to one past the last
  for (int d = slot.shape.rank - 1; d >= 0; --d) {
    const int64_t extent = from.shape[d], stride = tensor.stride[d];
    if (extent <= 1) continue;
    int64_t step;
    if (stride < reach || __builtin_mul_overflow(extent - 1, stride, &step) ||
        __builtin_add_overflow(reach, step, &reach)) {
      return false;
    }
  }
  return !__builtin_mul_overflow(reach, slot.element, bytes);
}

// Checks that elements do not overlap: every stride must step over all that the smaller ones reach.
// Only what repeats along a whole dimension may, where it is read by kernels that allow it.
Status check_overlap(const Slot& slot, const DLTensor& from, const Tensor& tensor, int64_t* bytes) {
  if (is_nested(slot, from, tensor, bytes)) return {};
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
    const int64_t extent = from.shape[order[i]], stride = tensor.stride[order[i]];
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
  if (__builtin_mul_overflow(reach, slot.element, bytes)) {
    return stride_error(slot, from, "its size passes 2^63 bytes");
  }
  return {};
}

// Holds what one walk over the dimensions of a tensor finds.
struct Walk {
  int64_t elements;
  bool fits;   // that number does
  bool known;  // the extents are those of earlier tensors
  bool gaps;   // the caller's strides are not those of a tensor without gaps
  bool empty;
};

// Gives the tensor the strides of one without gaps. An extent of Dim::fixed is 0 from the start.
Walk walk(const Slot& slot, const DLTensor& from, const Extents& extents, Tensor* tensor) {
  int64_t* const dense = tensor->stride.data();
  const int64_t* const strides = from.strides ? from.strides : dense;
  int64_t elements = 1, unlike = 0, signs = 0;
  bool fits = true, gaps = false, empty = false;
  for (int d = slot.shape.rank - 1; d >= 0; --d) {
    const Axis axis = slot.shape.dims[d];
    const int64_t extent = from.shape[d], known = extents[axis.dim];
    unlike |= (extent - axis.plus) ^ known;
    signs |= known;  // negative if not known
    tensor->extent[d] = extent;
    dense[d] = elements;
    if (extent <= 1) {
      empty |= extent == 0;
      continue;
    }
    gaps |= strides[d] != elements;
    int64_t more;
    fits &= !__builtin_mul_overflow(elements, extent, &more);
    elements = more;
  }
  return {elements, fits, unlike == 0 && signs >= 0, gaps, empty};
}

// Takes over strides that are not those of a tensor without gaps.
Status read_strides(const Slot& slot, const DLTensor& from, Tensor* tensor, int64_t* bytes) {
  const int rank = slot.shape.rank;
  for (int d = 0; d < rank; ++d) {
    if (from.shape[d] <= 1) continue;
    const int64_t stride = from.strides[d];
    if (stride < 0) return stride_error(slot, from, "negative strides are not allowed");
    if (!slot.strided && stride != tensor->stride[d]) {
      return stride_error(slot, from, "it must be contiguous");
    }
    if (d == rank - 1 && stride != 1 && !slot.free_columns) {
      return stride_error(slot, from, "the last must be 1: rows are contiguous");
    }
    tensor->stride[d] = stride;
  }
  return check_overlap(slot, from, *tensor, bytes);
}

// Alignments are powers of 2; a division for each dimension would be half of a run's cost.
bool is_aligned(const Slot& slot, int64_t elements) {
  return (elements * slot.element & (slot.alignment - 1)) == 0;
}

Status check_stride_alignment(const Slot& slot, const DLTensor& from, const Tensor& tensor) {
  for (int d = 0; d + 1 < slot.shape.rank; ++d) {
    // One row is never stepped over: its stride is the contiguous one whatever was given.
    if (from.shape[d] <= 1 || is_aligned(slot, tensor.stride[d])) continue;
    return invalid(text(slot.name, " has stride ", tensor.stride[d], " at ", d, ", ",
                        tensor.stride[d] * slot.element,
                        " bytes; the problem declared multiples of ", slot.alignment,
                        " bytes (lathe_problem_alignment)"));
  }
  return {};
}

}  // namespace

Status read_layout(const Slot& slot, const DLTensor& from, const Extents& declared,
                   Extents* extents, Tensor* tensor, int64_t* bytes) {
  const Walk found = walk(slot, from, *extents, tensor);
  if (!found.known) LATHE_TRY(check_extents(slot, declared, from, extents));
  if (!found.fits) return size_error(slot, from, "elements");
  if (__builtin_mul_overflow(found.elements, slot.element, bytes)) {
    return size_error(slot, from, "bytes");
  }
  if (found.empty) {
    *bytes = 0;
    return {};
  }
  if (found.gaps) LATHE_TRY(read_strides(slot, from, tensor, bytes));
  // Strides without gaps are multiples of a row.
  const bool aligned = !found.gaps && is_aligned(slot, from.shape[slot.shape.rank - 1]);
  return slot.strided && !aligned ? check_stride_alignment(slot, from, *tensor) : Status();
}

}  // namespace lathe
