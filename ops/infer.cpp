// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/infer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/base/invalid.h"
#include "ops/resolve.h"
#include "ops/tensors.h"

namespace lathe {
namespace {

bool is_wanted_backward(const lathe_problem& problem) {
  const char* gradient = problem.op->backward;
  return *gradient && problem.has(find_tensor(*problem.op, gradient));
}

// Returns the input whose gradient a tensor is, by the name "d" and the input's; -1: it is no
// gradient.
int gradient_of(const Operator& op, std::string_view name) {
  // An operator of a caller has no backward of its own: dx is a tensor like others.
  if (!name.starts_with('d') || op.text != nullptr) return -1;
  const int input = find_tensor(op, name.substr(1));
  return input >= 0 && op.tensors[input].role != Role::output ? input : -1;
}

bool is_wanted(const lathe_problem& problem, const TensorInfo& tensor) {
  const Operator& op = *problem.op;
  const bool given = tensor.given_if && problem.option(tensor.given_if) == "1";
  if (tensor.role != Role::output || given) return false;
  // What a caller's kernel computes with an input is wanted where that one is there.
  for (std::string_view needed : split(op.text != nullptr ? tensor.needed : "", ',')) {
    if (!problem.has(find_tensor(op, needed))) return false;
  }
  // Without the tensor whose dtype it has it means nothing.
  if (tensor.dtypes[0] == '=' && !problem.has(find_tensor(op, tensor.dtypes + 1))) return false;
  if (const int input = gradient_of(op, tensor.name); input >= 0) {
    return is_wanted_backward(problem) && problem.has(input);
  }
  if (tensor.cut_by) {
    const std::string widths = problem.option(tensor.cut_by);
    const int parts = widths == "none" ? 0 : static_cast<int>(split(widths, ',').size());
    return tensor.part < 0 ? parts == 0 : tensor.part < parts;
  }
  const std::string option = text("output_", tensor.name);
  return find_option(op, option) < 0 || problem.option(option.c_str()) == "1";
}

// "=x" follows a tensor, and so does a list that has the dtype of the queries; otherwise the first
// of the list.
Dtype output_dtype(const lathe_problem& problem, const TensorInfo& tensor) {
  const Operator& op = *problem.op;
  if (tensor.dtypes[0] == '=') return problem.tensors[find_tensor(op, tensor.dtypes + 1)].dtype;
  if (tensor.name == std::string_view("out") && find_option(op, "out_dtype") >= 0) {
    const std::string wanted = problem.option("out_dtype");
    for (const DtypeInfo& each : kDtypes) {
      if (wanted == each.word) return each.dtype;
    }
  }
  const Dtype first = problem.tensors[0].dtype;
  if (op.tensors[0].name == std::string_view("q") &&
      std::string_view(tensor.dtypes).find('|') != std::string_view::npos &&
      listed(tensor.dtypes, '|', word(first))) {
    return first;
  }
  const std::string_view word_of_list = split(tensor.dtypes, '|').front();
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [&](const DtypeInfo& each) { return word_of_list == each.word; });
  return found->dtype;
}

// Returns the first of several shapes whose dims all belong to the problem, else the first.
Shape output_shape(const lathe_problem& problem, const TensorInfo& tensor,
                   const std::array<bool, kDimCount>& used) {
  const OwnDims own = problem.op->dims;
  const std::vector<Shape> shapes = parse_shapes(tensor.shape, own);
  for (const Shape& shape : shapes) {
    const auto known = [&](const Axis& axis) { return used[static_cast<int>(axis.dim)]; };
    if (!std::all_of(shape.dims.begin(), shape.dims.begin() + shape.rank, known)) continue;
    return shape_of_rank(tensor.shape, shape.rank, problem.shape_number(), own);
  }
  return shapes.front();
}

// Returns the dims that declared tensors have, or that follow from them.
std::array<bool, kDimCount> used_dims(const lathe_problem& problem, const Extents& extents) {
  std::array<bool, kDimCount> used{};
  for (int i = 0; i < kDimCount; ++i) used[i] = extents.value[i] != kUnknown;
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    if (!problem.has(static_cast<int>(i))) continue;
    const Shape shape = problem.shape(static_cast<int>(i));
    for (int d = 0; d < shape.rank; ++d) used[static_cast<int>(shape.dims[d].dim)] = true;
  }
  return used;
}

void declare_output(lathe_problem* problem, int index, const Extents& extents) {
  const TensorInfo& tensor = problem->op->tensors[index];
  Declared& out = problem->tensors[index];
  if (tensor.alias_of) {
    out.aliased = true;
    return;
  }
  out.given = true;
  out.dtype = output_dtype(*problem, tensor);
  out.shape = output_shape(*problem, tensor, used_dims(*problem, extents));
  for (int d = 0; d < out.shape.rank; ++d) {
    const int64_t extent = extents[out.shape.dims[d].dim];
    out.extents[d] = extent == kUnknown ? kUnknown : extent + out.shape.dims[d].plus;
  }
}

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
Dim cut_dim(const lathe_problem& problem, std::string_view offsets) {
  if (offsets == "cu_checkpoints") return Dim::C;
  // A decoding step has rows of tokens and no axis T.
  const Shape& first = problem.tensors[0].shape;
  if (offsets == "cu_seqlens" && first.rank == 2 && has_dim(first, Dim::B)) return Dim::B;
  return offsets.ends_with("_q") ? Dim::Tq : offsets.ends_with("_k") ? Dim::Tk : Dim::T;
}

Status check_offsets(const Values& values, int tensor) {
  const char* name = values.problem().op->tensors[tensor].name;
  const Dim dim = cut_dim(values.problem(), name);
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
  // A rank has a part of the axis, and its offsets are those of the whole one.
  if (values.problem().group || offsets.back() == values[dim]) return {};
  return invalid(
      text(name, " ends with ", offsets.back(), "; allowed is ", name_of(dim), " = ", values[dim]));
}

}  // namespace

Status infer(lathe_problem* problem, const DLTensor* const* values) {
  const Operator& op = *problem->op;
  LATHE_TRY(check_required(*problem, Outputs::to_infer));
  LATHE_TRY(check_dtypes(*problem));
  LATHE_ASSIGN(Extents extents, declared_extents(*problem));
  if (op.derive) op.derive(*problem, &extents);
  if (values) {
    const Values known(*problem, values, &extents);
    LATHE_TRY(known.check());
    LATHE_TRY(check_offsets(known));
    if (op.check_values) LATHE_TRY(op.check_values(known));
  }
  bool listed = false;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    const int index = static_cast<int>(i);
    listed = listed ||
             (op.tensors[i].role == Role::output && problem->has(index) && problem->writes(index));
  }
  for (size_t i = 0; i < op.tensors.size() && !listed; ++i) {
    const int index = static_cast<int>(i);
    if (problem->has(index) || !is_wanted(*problem, op.tensors[i])) continue;
    declare_output(problem, index, extents);
  }
  return {};
}

void open_extents(lathe_problem* problem) {
  for (Declared& declared : problem->tensors) {
    if (!declared.given) continue;
    if (!problem->opened) declared.called = declared.extents;
    for (int d = 0; d < declared.shape.rank; ++d) {
      if (declared.shape.info(declared.shape.dims[d].dim).varies) declared.extents[d] = kUnknown;
    }
  }
  problem->opened = true;
}

Status Values::check() const {
  for (size_t i = 0; i < problem_.op->tensors.size(); ++i) {
    if (!has(static_cast<int>(i))) continue;
    const Declared& declared = problem_.tensors[i];
    const DLTensor& given = *tensors_[i];
    const Slot slot(problem_.op->tensors[i].name, declared.dtype, declared.shape);
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
    const Dim sequences = values.problem().tensors[i].shape.dims[0].dim;
    if (sequences != Dim::N && sequences != Dim::B) continue;
    LATHE_TRY(check_offsets(values, tensor));
  }
  return {};
}

Status check_sinks(const Values& values, int sinks) {
  if (!values.has(sinks)) return {};
  const std::vector<float> logits = values.floats(sinks);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) continue;
    return invalid(text("sinks holds nan at entry ", i,
                        "; allowed are numbers, -inf for "
                        "none, or +inf, which takes all weight"));
  }
  return {};
}

}  // namespace lathe
