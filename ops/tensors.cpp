// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the checks of every run, cheapest first: some tens of integer comparisons, text only on
// failure.
#include "ops/tensors.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/resolve.h"
#include "ops/strides.h"
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

bool has_kind(const Slot& slot, const DLTensor& tensor) {
  return tensor.dtype.code == slot.type.code && tensor.dtype.bits == slot.type.bits &&
         tensor.dtype.lanes == slot.type.lanes && tensor.ndim == slot.shape.rank && tensor.shape;
}

Status kind_error(const Slot& slot, const DLTensor& tensor) {
  if (tensor.dtype.code != slot.type.code || tensor.dtype.bits != slot.type.bits ||
      tensor.dtype.lanes != slot.type.lanes) {
    return invalid(text(slot.name, " has dtype ", found_type(tensor.dtype), "; allowed is ",
                        word(slot.dtype), ", as declared"));
  }
  if (tensor.ndim != slot.shape.rank) {
    return invalid(
        text(slot.name, " has rank ", tensor.ndim, "; its shape is ", shape_text(slot.shape)));
  }
  return invalid(text(slot.name, " has a NULL shape"));
}

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
    return shape_error(slot, tensor, ", so ", name_of(axis.dim), " is ", found,
                       "; the problem declared ", name_of(axis.dim), " = ", expected);
  }
  return shape_error(slot, tensor, ", so ", name_of(axis.dim), " is ", found,
                     "; the tensors before it have ", name_of(axis.dim), " = ", known);
}

// Most extents are those of an earlier tensor, which have passed. That of Dim::fixed is 0 from the
// start.
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

const char* device_name(int type) {
  return type == kDLCPU ? "CPU memory" : type == kDLCUDA ? "kDLCUDA" : "device type";
}

Status check_address(const Slot& slot, const DLTensor& from, int ordinal, bool empty,
                     Tensor* tensor) {
  const int type = from.device.device_type;
  const bool host_visible = type == kDLCUDAHost || type == kDLCUDAManaged;
  if (!host_visible && (type != kDLCUDA || from.device.device_id != ordinal)) {
    return invalid(text(slot.name, " is on ", device_name(type), " (", type, ", ",
                        from.device.device_id, "); allowed is kDLCUDA (2, ", ordinal, ")"));
  }
  if (empty) return {};
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
  return has_kind(slot, tensor) ? Status() : kind_error(slot, tensor);
}

Slot::Slot(const char* its_name, Dtype its_dtype, const Shape& its_shape)
    : name(its_name),
      dtype(its_dtype),
      shape(its_shape),
      type(dl_type(dtype)),
      element(bytes_of(dtype)) {
  for (const Axis& axis : shape.dims) offsets = offsets || axis.plus != 0;
}

std::vector<Slot> make_slots(const Resolved& resolved) {
  const lathe_problem& problem = resolved.problem;
  const Operator& op = *problem.op;
  std::vector<Slot> slots;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const TensorInfo& tensor = op.tensors[i];
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    Slot slot(tensor.name, declared.dtype, problem.shape(static_cast<int>(i)));
    slot.tensor = static_cast<int>(i);
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
    if (!has_kind(slot, *tensors[i])) return kind_error(slot, *tensors[i]);
    LATHE_TRY(check_extents(slot, declared, *tensors[i], &call->extents));
    packed = packed || slot.offsets;
  }
  LATHE_TRY(resolve_sequences(op, packed, &call->extents));
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    const DLTensor& from = *tensors[i];
    Tensor& tensor = call->tensors[slot.tensor];
    bool empty = false;
    LATHE_TRY(read_layout(slot, from, &tensor, &empty));
    if (checks == Checks::all) LATHE_TRY(check_address(slot, from, ordinal, empty, &tensor));
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
