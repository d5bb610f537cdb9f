// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/params.h"

#include <charconv>
#include <cstring>

#include "codegen/base/text.h"
#include "codegen/kernel_text.h"
#include "ops/options.h"

namespace lathe::own {
namespace {

// Appends fields to a layout.
class Writer {
 public:
  explicit Writer(ParamsLayout* out) : out_(out) { out_->declaration = "struct Params {\n"; }

  // Returns the offset of a field of `bytes` bytes; `count` of them are an array.
  int add(const std::string& type, const std::string& name, int bytes, int count = 1,
          const std::string& comment = {}) {
    const int offset = bytes_;
    bytes_ += bytes * count;
    out_->values.resize(static_cast<size_t>(bytes_));
    out_->declaration += text("  ", type, name, count > 1 ? text("[", count, "]") : std::string(),
                              ";", comment.empty() ? "" : "  // " + comment, "\n");
    out_->last_field = name, out_->last_offset = offset;
    return offset;
  }
  template <typename Value>
  void put(int offset, Value value) {
    std::memcpy(out_->values.data() + offset, &value, sizeof(value));
  }
  void finish() {
    out_->declaration += "};\n";
    const int alignment = out_->maps.empty() ? 8 : kMapAlignment;
    bytes_ = (bytes_ + alignment - 1) / alignment * alignment;
    out_->values.resize(static_cast<size_t>(bytes_));
  }

 private:
  ParamsLayout* out_;
  int bytes_ = 0;
};

std::string pointer_to(Dtype dtype) { return scoped_device_type(dtype) + "* "; }

// The dtype of a tensor; of one that is not given the first that it might have.
Dtype dtype_of(const lathe_problem& problem, size_t index) {
  const Declared& declared = problem.tensors[index];
  if (declared.given) return declared.dtype;
  const char* words = problem.op->tensors[index].dtypes;
  if (words[0] == '=') {
    return dtype_of(problem, static_cast<size_t>(find_tensor(*problem.op, words + 1)));
  }
  for (const DtypeInfo& each : kDtypes) {
    if (split(words, '|').front() == each.word) return each.dtype;
  }
  return Dtype::f32;
}

void add_numbers(const lathe_problem& problem, bool wide, Writer* writer) {
  const Description& from = *OwnOperator::of(problem).description;
  for (size_t i = 0; i < from.options.size(); ++i) {
    const OptionText& option = from.options[i];
    if (option.compiled || (option.type == OptionType::integer) != wide) continue;
    const OptionInfo& row = problem.op->options[i];
    const std::string value = problem.option(row.name);
    if (option.type == OptionType::integer) {
      long long number = 0;
      std::from_chars(value.data(), value.data() + value.size(), number);
      writer->put(writer->add("long long ", option.name, 8), number);
    } else if (option.type == OptionType::number) {
      float number = 0;
      (void)parse_option(row, value, &number).ok();  // checked with the problem
      writer->put(writer->add("float ", option.name, 4), number);
    } else {
      writer->put(writer->add("int ", option.name, 4, 1, option.allowed), word_number(row, value));
    }
  }
}

}  // namespace

ParamsLayout lay_params(const lathe_problem& problem) {
  const Description& from = *OwnOperator::of(problem).description;
  ParamsLayout out;
  Writer writer(&out);
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const TensorText& tensor = from.tensors[i];
    if (!tensor.has_map) continue;
    // A tensor that is not given keeps its place, and has no recipe.
    const int offset = writer.add("lathe::TensorMap ", tensor.name + "_map", kMapBytes);
    if (!problem.tensors[i].given) continue;
    out.maps.push_back({offset, static_cast<int>(i), static_cast<int>(out.maps.size())});
  }
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const TensorText& tensor = from.tensors[i];
    const std::string reads = tensor.role == Role::input ? "const " : "";
    out.tensors.push_back({writer.add(reads + pointer_to(dtype_of(problem, i)), tensor.name, 8, 1,
                                      "[" + tensor.shape + "]"),
                           static_cast<int>(i)});
  }
  for (size_t i = 0; i < from.workspaces.size(); ++i) {
    const WorkspaceText& array = from.workspaces[i];
    out.workspaces.push_back(
        {writer.add(pointer_to(array.dtype), array.name, 8, 1, "[" + array.count.text() + "]"),
         static_cast<int>(i)});
  }
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const TensorText& tensor = from.tensors[i];
    if (!tensor.strided) continue;
    const int rank = parse_shape(tensor.shape, problem.op->dims).rank;
    const int offset = writer.add("long long ", tensor.name + "_stride", 8, rank, "in elements");
    for (int d = 0; d < rank; ++d) out.strides.push_back({offset + 8 * d, static_cast<int>(i), d});
  }
  for (size_t i = 0; i < from.dims.size(); ++i) {
    if (from.dims[i].compiled) continue;
    out.dims.push_back({writer.add("long long ", from.dims[i].name, 8), static_cast<int>(i)});
  }
  add_numbers(problem, true, &writer);
  add_numbers(problem, false, &writer);
  writer.finish();
  return out;
}

}  // namespace lathe::own
