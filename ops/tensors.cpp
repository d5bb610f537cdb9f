// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the checks of every run: some tens of integer comparisons, text only on failure.
#include "ops/tensors.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/overlap.h"
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
    case Dtype::f8_e4m3:
      return {kDLFloat8E4m3, bits, 1};
    case Dtype::u8:
      return {kDLUInt, bits, 1};
    default:
      return {kDLFloat, bits, 1};
  }
}

std::string found_type(DLDataType type) {
  const char* kind = type.code == kDLFloat        ? "f"
                     : type.code == kDLBfloat     ? "bf"
                     : type.code == kDLInt        ? "i"
                     : type.code == kDLUInt       ? "u"
                     : type.code == kDLFloat8E4m3 ? "f8_e4m3, bits "
                                                  : "type ";
  std::string found = text(kind, static_cast<int>(type.bits));
  return type.lanes == 1 ? found : text(found, " in ", type.lanes, " lanes");
}

bool has_kind(const Slot& slot, const DLTensor& tensor) {
  // Many libraries hand out 8-bit floats as the numbers of their codes.
  const bool codes = slot.type.code == kDLFloat8E4m3 && tensor.dtype.code == kDLUInt;
  return (tensor.dtype.code == slot.type.code || codes) && tensor.dtype.bits == slot.type.bits &&
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

// Addresses from a tensor's first byte to one past its last; both null if it is empty.
struct Range {
  const char *first, *end;
};

Status alias_error(const Slot& written, const Range& range, const Slot& other,
                   const Range& others) {
  const auto at = [](const char* address) { return static_cast<const void*>(address); };
  return invalid(text(written.name, " lies from ", at(range.first), " to ", at(range.end), " and ",
                      other.name, " from ", at(others.first), " to ", at(others.end),
                      ", with elements in common; allowed are memory of its own for what is "
                      "written, or views of one buffer that share no element"));
}

// Called where the ranges of two tensors overlap, of which one is written. Two that are changed in
// place may share memory: caches are views of one buffer, [0, P) and [1, P + 1) of its pages, and
// the call's indices keep apart what is written.
Status check_shared(const Slot& slot, const Range& range, const Slot& other, const Range& others,
                    const Call& call) {
  if (slot.in_place && other.in_place && range.first != others.first) return {};
  if (!share_elements(slot, call.tensors[slot.tensor], other, call.tensors[other.tensor]))
    return {};
  return alias_error(slot, range, other, others);
}

// Tiles read their neighbours' inputs, so nothing may be written over an input.
Status check_aliases(const std::vector<Slot>& slots, const Range* ranges, const Call& call) {
  const size_t count = slots.size();
  for (size_t i = 0; i < count; ++i) {
    if (!slots[i].written) continue;
    const Range range = ranges[i];
    for (size_t j = 0; j < count; ++j) {
      if (ranges[j].first >= range.end || ranges[j].end <= range.first || j == i) continue;
      LATHE_TRY(check_shared(slots[i], range, slots[j], ranges[j], call));
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
    slot.free_columns = tensor.has_free_columns;
    slot.written = problem.writes(slot.tensor);
    slot.in_place = slot.written && tensor.role == Role::inout;
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
  Range ranges[kMaxTensors];
  Range* range = ranges;
  const DLTensor* const* next = tensors;
  for (const Slot& slot : slots) {
    const DLTensor* const from = *next++;
    if (!from) {
      return invalid(text(slot.name, " (slot ", &slot - slots.data(), ") is NULL"));
    }
    if (!has_kind(slot, *from)) return kind_error(slot, *from);
    Tensor& tensor = call->tensors[slot.tensor];
    int64_t bytes = 0;
    LATHE_TRY(read_layout(slot, *from, declared, &call->extents, &tensor, &bytes));
    if (checks == Checks::all) {
      LATHE_TRY(check_address(slot, *from, ordinal, bytes == 0, &tensor));
      *range++ = {tensor.data, tensor.data + bytes};
    }
    packed = packed || slot.offsets;
  }
  LATHE_TRY(resolve_sequences(op, packed, &call->extents));
  return checks == Checks::all ? check_aliases(slots, ranges, *call) : Status();
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
