// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/values.h"

#include <cmath>
#include <cstring>

#include "codegen/base/invalid.h"
#include "ops/tensors.h"

namespace lathe {
namespace {

template <typename T>
std::vector<T> elements(const DLTensor& tensor) {
  int64_t count = 1;
  for (int d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  std::vector<T> out(static_cast<size_t>(count));
  if (count > 0) {
    std::memcpy(out.data(), static_cast<const char*>(tensor.data) + tensor.byte_offset,
                out.size() * sizeof(T));
  }
  return out;
}

// Returns the dim that offsets cut.
Dim cut_dim(std::string_view offsets) {
  return offsets.ends_with("_q") ? Dim::Tq : offsets.ends_with("_k") ? Dim::Tk : Dim::T;
}

Status check_offsets(const Values& values, int tensor) {
  const char* name = values.problem().op->tensors[tensor].name;
  const Dim dim = cut_dim(name);
  if (values[dim] == kUnknown) {
    return invalid(
        text(name, " is given, but no tensor is packed: none has the extent ", name_of(dim)));
  }
  const std::vector<int64_t> offsets = values.integers(tensor);
  if (offsets.front() != 0) {
    return invalid(text(name, " begins with ", offsets.front(), "; allowed is 0"));
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] >= offsets[i - 1]) continue;
    return invalid(text(name, " decreases from ", offsets[i - 1], " to ", offsets[i], " at entry ",
                        i, "; offsets must never decrease"));
  }
  if (offsets.back() == values[dim]) return {};
  return invalid(
      text(name, " ends with ", offsets.back(), "; allowed is ", name_of(dim), " = ", values[dim]));
}

}  // namespace

Status Values::check() const {
  for (size_t i = 0; i < problem_.op->tensors.size(); ++i) {
    if (!has(static_cast<int>(i))) continue;
    const Declared& declared = problem_.tensors[i];
    const DLTensor& given = *tensors_[i];
    Slot slot;
    slot.name = problem_.op->tensors[i].name;
    slot.dtype = declared.dtype;
    slot.shape = declared.shape;
    LATHE_TRY(check_slot_kind(slot, given));
    if (given.device.device_type != kDLCPU) {
      return invalid(text("the values of ", slot.name, " are on device type ",
                          static_cast<int>(given.device.device_type), "; allowed is kDLCPU (1)"));
    }
    int64_t stride = 1;
    for (int d = declared.shape.rank - 1; d >= 0; --d) {
      if (declared.extents[d] != given.shape[d]) {
        return invalid(text("the values of ", slot.name, " have extent ", given.shape[d], " at ", d,
                            "; declared is ", declared.extents[d]));
      }
      if (given.strides && given.shape[d] > 1 && given.strides[d] != stride) {
        return invalid(text("the values of ", slot.name, " have stride ", given.strides[d], " at ",
                            d, "; they must be contiguous"));
      }
      stride *= given.shape[d];
    }
    if (stride > 0 && !given.data) {
      return invalid(text("the values of ", slot.name, " are at NULL"));
    }
  }
  return {};
}

std::vector<int64_t> Values::integers(int tensor) const {
  if (problem_.tensors[tensor].dtype == Dtype::i64) return elements<int64_t>(*tensors_[tensor]);
  const std::vector<int32_t> narrow = elements<int32_t>(*tensors_[tensor]);
  return {narrow.begin(), narrow.end()};
}

std::vector<float> Values::floats(int tensor) const { return elements<float>(*tensors_[tensor]); }

Status check_offsets(const Values& values) {
  for (size_t i = 0; i < values.problem().op->tensors.size(); ++i) {
    const int tensor = static_cast<int>(i);
    if (!values.has(tensor) || values.problem().tensors[i].shape.dims[0].plus == 0) continue;
    if (values.problem().tensors[i].shape.dims[0].dim != Dim::N) continue;
    LATHE_TRY(check_offsets(values, tensor));
  }
  return {};
}

Status check_sinks(const Values& values, int sinks) {
  if (!values.has(sinks)) return {};
  const std::vector<float> logits = values.floats(sinks);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) continue;
    return invalid(text("sinks holds nan at entry ", i, "; allowed are numbers, or -inf for none"));
  }
  return {};
}

}  // namespace lathe
