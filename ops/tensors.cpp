// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the checks of every run, cheapest first: some tens of integer comparisons, text only on
// failure.
#include "ops/tensors.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/resolve.h"
#include "ops/workspace.h"

namespace lathe {
namespace {

DLDataType dl_type(Dtype dtype) {
  const auto bits = static_cast<uint8_t>(8 * bytes_of(dtype));
  switch (dtype) {
    case Dtype::bf16:
      return {kDLBfloat, bits, 1};
    case Dtype::i32:
    case Dtype::i64:
      return {kDLInt, bits, 1};
    default:
      return {kDLFloat, bits, 1};
  }
}

std::string found_type(DLDataType type) {
  const char* kind = type.code == kDLFloat    ? "f"
                     : type.code == kDLBfloat ? "bf"
                     : type.code == kDLInt    ? "i"
                     : type.code == kDLUInt   ? "u"
                                              : "type ";
  std::string found = text(kind, static_cast<int>(type.bits));
  return type.lanes == 1 ? found : text(found, " in ", type.lanes, " lanes");
}

template <typename... Why>
Status shape_error(const Slot& slot, const DLTensor& tensor, const Why&... why) {
  return invalid(text(slot.name, " has shape ", extents_text(tensor.ndim, tensor.shape), why...));
}

Status check_extents(const Slot& slot, const Extents& declared, const DLTensor& tensor,
                     Extents* extents) {
  for (int d = 0; d < slot.shape.rank; ++d) {
    const Axis axis = slot.shape.dims[d];
    const int64_t found = tensor.shape[d] - axis.plus;
    if (axis.dim == Dim::fixed && found != 0) {
      return shape_error(slot, tensor, "; extent ", d, " of ", shape_text(slot.shape), " must be ",
                         axis.plus);
    }
    if (found < 0 || found > kMaxExtent) {
      return shape_error(slot, tensor, "; extent ", d, " of ", shape_text(slot.shape), " must be ",
                         axis.plus, " to ", kMaxExtent);
    }
    const int64_t expected = declared[axis.dim];
    if (expected != kUnknown && expected != found) {
      return shape_error(slot, tensor, ", so ", name_of(axis.dim), " is ", found,
                         "; the problem declared ", name_of(axis.dim), " = ", expected);
    }
    int64_t& known = (*extents)[axis.dim];
    if (known != kUnknown && known != found) {
      return shape_error(slot, tensor, ", so ", name_of(axis.dim), " is ", found,
                         "; the tensors before it have ", name_of(axis.dim), " = ", known);
    }
    known = found;
  }
  return {};
}

bool empty(const Slot& slot, const Tensor& tensor) {
  for (int d = 0; d < slot.shape.rank; ++d) {
    if (tensor.extent[d] == 0) return true;
  }
  return false;
}

Status stride_error(const Slot& slot, const DLTensor& from, const std::string& why) {
  return invalid(text(slot.name, " has strides ", extents_text(from.ndim, from.strides),
                      " for shape ", extents_text(from.ndim, from.shape), "; ", why));
}

// Checks that elements do not overlap: every stride must step over all that the smaller ones reach.
// Only what repeats along a whole dimension may, where it is read by kernels that allow it.
Status check_overlap(const Slot& slot, const DLTensor& from, const Tensor& tensor) {
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
  if (__builtin_mul_overflow(reach, bytes_of(slot.dtype), &bytes)) {
    return stride_error(slot, from, "its size passes 2^63 bytes");
  }
  return {};
}

Status contiguous_strides(const Slot& slot, const DLTensor& from, Tensor* tensor) {
  int64_t stride = 1;
  for (int d = slot.shape.rank - 1; d >= 0; --d) {
    tensor->stride[d] = stride;
    if (__builtin_mul_overflow(stride, tensor->extent[d] > 1 ? tensor->extent[d] : 1, &stride)) {
      return shape_error(slot, from, "; its size passes 2^63 elements");
    }
  }
  int64_t bytes;
  if (__builtin_mul_overflow(stride, bytes_of(slot.dtype), &bytes)) {
    return shape_error(slot, from, "; its size passes 2^63 bytes");
  }
  return {};
}

Status check_strides(const Slot& slot, const DLTensor& from, Tensor* tensor) {
  LATHE_TRY(contiguous_strides(slot, from, tensor));
  if (empty(slot, *tensor)) return {};
  const int rank = slot.shape.rank;
  if (from.strides) {
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
    LATHE_TRY(check_overlap(slot, from, *tensor));
  }
  if (!slot.strided) return {};
  const int64_t element = bytes_of(slot.dtype);
  for (int d = 0; d + 1 < rank; ++d) {
    // One row is never stepped over: its stride is the contiguous one whatever was given.
    if (tensor->extent[d] <= 1) continue;
    // Alignments are powers of 2; a division for each dimension would be half of a run's cost.
    if ((tensor->stride[d] * element & (slot.alignment - 1)) != 0) {
      return invalid(text(slot.name, " has stride ", tensor->stride[d], " at ", d, ", ",
                          tensor->stride[d] * element, " bytes; the problem declared multiples of ",
                          slot.alignment, " bytes (lathe_problem_alignment)"));
    }
  }
  return {};
}

const char* device_name(int type) {
  return type == kDLCPU ? "CPU memory" : type == kDLCUDA ? "kDLCUDA" : "device type";
}

Status check_address(const Slot& slot, const DLTensor& from, int ordinal, Tensor* tensor) {
  const int type = from.device.device_type;
  const bool host_visible = type == kDLCUDAHost || type == kDLCUDAManaged;
  if (!host_visible && (type != kDLCUDA || from.device.device_id != ordinal)) {
    return invalid(text(slot.name, " is on ", device_name(type), " (", type, ", ",
                        from.device.device_id, "); allowed is kDLCUDA (2, ", ordinal, ")"));
  }
  if (empty(slot, *tensor)) return {};
  if (!from.data) {
    return invalid(text(slot.name, " has a NULL address and shape ",
                        extents_text(from.ndim, from.shape),
                        "; NULL is allowed for empty tensors only"));
  }
  tensor->data = static_cast<char*>(from.data) + from.byte_offset;
  if ((reinterpret_cast<uintptr_t>(tensor->data) & static_cast<uintptr_t>(slot.alignment - 1)) !=
      0) {
    return invalid(text(slot.name, " is at ", static_cast<const void*>(tensor->data),
                        "; its address must be a multiple of ", slot.alignment, " bytes",
                        slot.strided ? " (lathe_problem_alignment)" : ""));
  }
  return {};
}

// Tiles read their neighbours' inputs, so nothing may be written over an input.
Status check_aliases(const std::vector<Slot>& slots, const Call& call) {
  for (const Slot& written : slots) {
    const char* data = call.tensors[written.tensor].data;
    if (!written.written || !data) continue;
    for (const Slot& other : slots) {
      if (other.tensor == written.tensor || call.tensors[other.tensor].data != data) continue;
      return invalid(text(written.name, " is at ", static_cast<const void*>(data), ", where ",
                          other.name, " is; an output must have memory of its own"));
    }
  }
  return {};
}

}  // namespace

Status check_slot_kind(const Slot& slot, const DLTensor& tensor) {
  const DLDataType type = dl_type(slot.dtype);
  if (tensor.dtype.code != type.code || tensor.dtype.bits != type.bits ||
      tensor.dtype.lanes != type.lanes) {
    return invalid(text(slot.name, " has dtype ", found_type(tensor.dtype), "; allowed is ",
                        word(slot.dtype), ", as declared"));
  }
  if (tensor.ndim != slot.shape.rank) {
    return invalid(
        text(slot.name, " has rank ", tensor.ndim, "; its shape is ", shape_text(slot.shape)));
  }
  if (!tensor.shape) return invalid(text(slot.name, " has a NULL shape"));
  return {};
}

std::vector<Slot> make_slots(const Resolved& resolved) {
  const lathe_problem& problem = resolved.problem;
  const Operator& op = *problem.op;
  std::vector<Slot> slots;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const TensorInfo& tensor = op.tensors[i];
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    Slot slot;
    slot.tensor = static_cast<int>(i);
    slot.name = tensor.name;
    slot.dtype = declared.dtype;
    slot.shape = problem.shape(slot.tensor);
    slot.strided = tensor.is_strided;
    slot.written = problem.writes(slot.tensor);
    const Dim last = slot.shape.dims[slot.shape.rank - 1].dim;
    slot.alignment = slot.strided ? vector_bytes(declared.dtype, problem.alignment, resolved[last])
                                  : bytes_of(declared.dtype);
    if (const int bytes = tensor.alignment; bytes != 0) {
      slot.alignment = std::max(std::min(bytes, problem.alignment), bytes_of(declared.dtype));
    }
    slots.push_back(slot);
  }
  return slots;
}

Status read_call(const Operator& op, const std::vector<Slot>& slots, const Extents& declared,
                 const DLTensor* const* tensors, Checks checks, int ordinal, Call* call) {
  if (!tensors) return invalid("slots is NULL, but must be given");
  bool packed = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (!tensors[i]) return invalid(text(slot.name, " (slot ", i, ") is NULL"));
    LATHE_TRY(check_slot_kind(slot, *tensors[i]));
    LATHE_TRY(check_extents(slot, declared, *tensors[i], &call->extents));
    for (const Axis& axis : slot.shape.dims) packed = packed || axis.plus != 0;
  }
  LATHE_TRY(resolve_sequences(op, packed, &call->extents));
  for (size_t i = 0; i < slots.size(); ++i) {
    Tensor& tensor = call->tensors[slots[i].tensor];
    for (int d = 0; d < slots[i].shape.rank; ++d) tensor.extent[d] = tensors[i]->shape[d];
    LATHE_TRY(check_strides(slots[i], *tensors[i], &tensor));
    if (checks == Checks::all) LATHE_TRY(check_address(slots[i], *tensors[i], ordinal, &tensor));
  }
  return checks == Checks::all ? check_aliases(slots, *call) : Status();
}

Status Call::check_workspace(int64_t needed) const {
  if (needed == 0) return {};
  if (!workspace) return invalid(text("workspace is NULL; this run needs ", needed, " bytes"));
  if (workspace_bytes < static_cast<size_t>(needed)) {
    return invalid(text("workspace has ", workspace_bytes, " bytes; this run needs ", needed,
                        " (lathe_plan_workspace)"));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % kSectionBytes == 0) return {};
  return invalid(text("workspace is at ", static_cast<const void*>(workspace),
                      "; its address must be a multiple of ", kSectionBytes));
}

Result<int64_t> checked_product(const char* what, std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return invalid(text(what, " passes 2^63 bytes"));
    }
  }
  return product;
}

}  // namespace lathe
